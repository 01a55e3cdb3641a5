"""A person logs in on another device (RFC 8628): a real authorization server, a protected server, real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from protected import Place, protected

from ferrule import AuthorizationFailed, Client, OAuth
from ferrule.auth.client import device_flow
from ferrule.auth.client.device_flow import DeviceCode, print_code, read_begun
from ferrule.auth.client.registration import DEVICE_CODE
from ferrule.auth.devserver import device
from ferrule.auth.jose import make_key


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let questions come as fast as a server allows."""
    monkeypatch.setattr(device_flow, "SHORTEST_INTERVAL", 0.01)


async def visit(url: str, **form: str) -> str:
    """Open a page in a browser of its own, or send its form. Return what it says."""
    async with httpx.AsyncClient(trust_env=False) as browser:
        if form:
            answer = await browser.post(url, data=form)
        else:
            answer = await browser.get(url)
    return answer.text


class Elsewhere:
    """A person with another device, who signs in once the client has been told to wait."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.codes: list[DeviceCode] = []
        self._visits: list[asyncio.Task[str]] = []

    def __call__(self, shown: DeviceCode) -> None:
        self.codes.append(shown)
        self._visits.append(asyncio.create_task(self._sign_in(shown)))

    async def _sign_in(self, shown: DeviceCode) -> str:
        while self._place.issuer.count("token", DEVICE_CODE) == 0:
            await asyncio.sleep(0.005)
        return await visit(shown.whole_url)


async def test_a_call_waits_for_the_login_on_another_device_and_is_answered(tmp_path: Path) -> None:
    """The code is shown, the client asks until it is allowed in, and what it got is kept and can be renewed."""
    async with protected(device_interval=0.02) as place:
        person = Elsewhere(place)
        for _ in range(2):
            auth = OAuth(storage=tmp_path / "tokens.json", device=person)
            async with Client(place.url, auth=auth) as client:
                assert (await client.call_tool("whoami")).text.endswith("#ada")
        [shown] = person.codes
        assert shown.code in shown.whole_url
        assert shown.url == place.issuer.url("device_page")
        assert place.issuer.count("device") == place.issuer.count("register") == 1
        assert place.issuer.count("token", DEVICE_CODE) >= 2
        session = auth.session(place.url)
        assert session.login is not None
        assert session.login.token.refresh
        assert shown.code not in (tmp_path / "tokens.json").read_text()


async def test_whoever_is_asked_too_often_is_asked_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 8628 §3.5: slow_down adds to the interval; a server that does not answer doubles it."""
    monkeypatch.setattr(device_flow, "SLOWER", 0.3)
    # The server asks once for more time, and is content with any.
    monkeypatch.setattr(device, "SLOWER", -1000.0)
    async with protected(device_interval=0.01) as place:
        loop = asyncio.get_running_loop()
        shown_at: list[float] = []

        async def show(shown: DeviceCode) -> None:
            for _, pending in place.issuer.devices._by_secret._entries.values():
                pending.interval = 1000.0
            place.issuer.fail("token", 503)
            await visit(shown.whole_url)
            shown_at.append(loop.time())

        async with Client(place.url, auth=OAuth(storage="memory", device=show)) as client:
            took = loop.time() - shown_at[0]
            assert (await client.call_tool("whoami")).text.endswith("#ada")
        statuses = [each.status for each in place.issuer.seen if each.grant == DEVICE_CODE]
        assert statuses == [503, 400, 200]
        assert took >= 0.01 + 0.02 + 0.32


@pytest.mark.parametrize(
    ("how", "words"),
    [("denied", "access_denied"), ("ignored", "before the code ended"), ("not there", "no login on another device")],
)
async def test_a_login_that_does_not_happen_says_why(how: str, words: str) -> None:
    profile = "linear" if how == "not there" else "plain"
    lifetime = 0.3 if how == "ignored" else 30.0
    async with protected(profile=profile, device_lifetime=lifetime) as place:
        place.issuer.devices._interval = 0.02
        place.issuer.devices.user = ""
        shows: list[DeviceCode] = []

        async def show(shown: DeviceCode) -> None:
            shows.append(shown)
            if how == "denied":
                await visit(shown.url, user_code=shown.code, decision="deny")

        auth = OAuth(storage="memory", device=show)
        for _ in range(2):
            with pytest.raises(AuthorizationFailed, match=words):
                async with Client(place.url, auth=auth):
                    pass
        # Whatever asks again at once does not bother the person again.
        assert len(shows) == (0 if how == "not there" else 1)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"device_code": "x", "user_code": "A", "verification_uri": 7},
        {"device_code": "x", "user_code": "A\x1b[2J", "verification_uri": "https://a.example"},
        {"device_code": "x", "user_code": "A" * 200, "verification_uri": "https://a.example"},
        {"device_code": "", "user_code": "A", "verification_uri": "https://a.example"},
    ],
    ids=str,
)
def test_a_login_that_cannot_be_shown_is_not_begun(document: dict[str, Any]) -> None:
    with pytest.raises(AuthorizationFailed, match="without a code"):
        read_begun(document, "https://as.example", 300.0)


def test_how_often_and_how_long_is_asked_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    document = {"device_code": "x", "user_code": "A", "verification_uri": "https://a.example"}
    for said, interval in ((0, 1.0), (None, 5.0), (7, 7.0), (1e9, 60.0), (float("nan"), 5.0), (True, 5.0)):
        assert read_begun({**document, "interval": said}, "as", 300.0).interval == interval
    begun = read_begun({**document, "expires_in": 10**12, "verification_uri_complete": "\n"}, "as", 10**6)
    now = device_flow.time.time()
    assert begun.shown.expires - now == pytest.approx(1800.0, abs=5)
    assert begun.shown.whole_url == ""
    assert "x" not in repr(begun).replace("…", "")


async def test_a_page_that_may_not_be_opened_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with protected(device_interval=0.02) as place:
        monkeypatch.setattr(type(place.issuer), "url", lambda self, name: "javascript:alert(1)")
        shown: list[DeviceCode] = []
        with pytest.raises(AuthorizationFailed, match="the page to log in at"):
            async with Client(place.url, auth=OAuth(storage="memory", device=shown.append)):
                pass
        assert shown == []


def test_a_terminal_is_shown_the_code_and_where_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    print_code(DeviceCode("BCDF-GHJK", "https://as.example/device", "", 0.0))
    assert "https://as.example/device and enter the code BCDF-GHJK" in capsys.readouterr().err


async def test_a_client_proves_who_it_is_with_a_key_in_every_flow() -> None:
    """RFC 7523 §2.2: private_key_jwt for the code, for another device, and for what renews the token."""
    key = make_key("ES256")
    fields: dict[str, Any] = {"auth_method": "private_key_jwt", "keys": [key]}
    async with protected(device_interval=0.02) as place:
        place.issuer.add_client("desk", redirect_uris=["http://127.0.0.1/callback"], **fields)

        async def show(shown: DeviceCode) -> None:
            await visit(shown.whole_url)

        for way in ({"open_browser": place.person}, {"device": show}):
            auth = OAuth(storage="memory", client_id="desk", key=key.private_pem(), **way)
            async with Client(place.url, auth=auth) as client:
                assert (await client.call_tool("whoami")).text.endswith("#ada")
            session = auth.session(place.url)
            assert session.login is not None
            assert (session.login.client.method, session.login.client.secret) == ("private_key_jwt", "")
            assert await session._renewed(session.login)
        other = OAuth(storage="memory", client_id="desk", key=make_key("ES256").private_pem(), device=show)
        with pytest.raises(AuthorizationFailed, match="invalid_client"):
            async with Client(place.url, auth=other):
                pass
        assert place.issuer.count("register") == 0


async def test_a_login_of_a_client_with_a_key_is_forgotten_by_who_has_no_key(tmp_path: Path) -> None:
    """As `ferrule logout` does: only whoever has the key can have it revoked."""
    key = make_key("ES256")
    fields: dict[str, Any] = {"auth_method": "private_key_jwt", "keys": [key]}
    async with protected() as place:
        place.issuer.add_client("desk", redirect_uris=["http://127.0.0.1/callback"], **fields)
        stored: dict[str, Any] = {"storage": tmp_path / "tokens.json"}
        auth = OAuth(client_id="desk", key=key.private_pem(), open_browser=place.person, **stored)
        async with Client(place.url, auth=auth) as client:
            await client.call_tool("whoami")
        session = OAuth(**stored).session(place.url)
        assert not await session.revoke()
        assert await session.forget()
        assert await auth.session(place.url).stored() is None
