"""Tokens that only their issuer can read."""

from __future__ import annotations

import asyncio
import inspect
import json
from base64 import b64decode
from typing import Any

import pytest
from issuer_double import ISSUER, NOW, RESOURCE, Clock, facts, judged

from ferrule.auth.dpop import make_proof
from ferrule.auth.fetch import Fetched, FetchFailed
from ferrule.auth.jose import make_key
from ferrule.auth.server.introspection import Introspection
from ferrule.errors import SetupError
from ferrule.identity.principal import Principal
from ferrule.transports.verification import Verification

URL = "https://login.example.com/introspect"
ACTIVE = {"active": True, "sub": "ada", "client_id": "editor", "aud": RESOURCE, "exp": int(NOW) + 600, "scope": "notes"}


class Issuer:
    """Answers questions about tokens."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str], dict[str, str]]] = []

    async def post_form(self, url: str, fields: dict[str, str], headers: dict[str, str]) -> Fetched:
        self.asked.append((url, fields, headers))
        answer = self.answer
        if isinstance(answer, Exception):
            raise answer
        if inspect.iscoroutinefunction(answer):
            answer = await answer()
        if isinstance(answer, Fetched):
            return answer
        return Fetched(URL, 200, {}, json.dumps(answer).encode())


def asking(answer: Any, **options: Any) -> tuple[Introspection, Issuer, Clock]:
    clock = Clock()
    given = {"client": ("me:1", "s3cret/"), "issuer": ISSUER, "resource": RESOURCE, "clock": clock, **options}
    by = Introspection(URL, **given)
    issuer = by._fetcher = Issuer(answer)  # type: ignore[assignment]
    return by, issuer, clock


async def verdict_on(by: Any, shown: str = "opaque") -> Any:
    verdict = judged(shown, by)
    return await verdict if asyncio.iscoroutine(verdict) else verdict


async def test_an_active_token_is_let_in_and_asked_for_again_after_a_minute() -> None:
    by, issuer, clock = asking(ACTIVE)
    found = await verdict_on(by)
    assert (found.issuer, found.subject, found.client, found.scopes) == (ISSUER, "ada", "editor", {"notes"})
    assert (found.method, found.expires) == ("introspection", NOW + 660)
    url, fields, headers = issuer.asked[0]
    assert (url, fields["token"]) == (URL, "opaque")
    assert b64decode(headers["authorization"].split()[1]) == b"me%3A1:s3cret%2F"
    await verdict_on(by)
    assert len(issuer.asked) == 1
    clock.now += 61
    issuer.answer = {"active": False}
    assert (await verdict_on(by)).status == 401
    await by.close()


async def test_one_token_is_asked_for_once_however_many_show_it() -> None:
    by, issuer, _ = asking(ACTIVE)
    found = await asyncio.gather(*(verdict_on(by) for _ in range(100)))
    assert all(isinstance(each, Principal) for each in found)
    assert len(issuer.asked) == 1
    await by.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"active": False},
        {**ACTIVE, "active": "true"},
        {**ACTIVE, "active": 1},
        {**ACTIVE, "active": None},
        {**ACTIVE, "aud": "https://other.example"},
        {**ACTIVE, "aud": None},
        {**ACTIVE, "exp": int(NOW) - 60},
        {**ACTIVE, "exp": "soon"},
        {**ACTIVE, "nbf": int(NOW) + 600},
        {**ACTIVE, "iss": "https://evil.example"},
        {**ACTIVE, "sub": None, "client_id": None},
        {**ACTIVE, "sub": "", "client_id": ""},
        {},
    ],
    ids=repr,
)
async def test_what_the_issuer_does_not_vouch_for_is_refused(answer: dict[str, Any]) -> None:
    by, _, _ = asking(answer)
    assert (await verdict_on(by)).status == 401
    await by.close()


async def slowly() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    "answer",
    [
        FetchFailed("down"),
        Fetched(URL, 500, {}, b"{}"),
        Fetched(URL, 401, {}, b"{}"),
        Fetched(URL, 200, {}, b"<p>"),
        slowly,
    ],
    ids=["down", "500", "401", "HTML", "slow"],
)
async def test_while_the_issuer_cannot_be_asked_nobody_comes_in(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """AUT-13: fails closed, with 503."""
    monkeypatch.setattr("ferrule.auth.server.introspection.FETCH_TIMEOUT", 0.05)
    by, issuer, _ = asking(answer)
    refused = await verdict_on(by)
    assert (refused.status, refused.headers) == (503, {"Retry-After": "2"})
    issuer.answer = ACTIVE
    assert isinstance(await verdict_on(by), Principal)
    await by.close()


async def test_a_storm_of_bad_tokens_is_not_handed_on_to_the_issuer() -> None:
    """AUT-13: those whose check still runs count too, or a slow issuer is asked about all of them."""
    release = asyncio.Event()

    async def slowly() -> dict[str, Any]:
        await release.wait()
        return {"active": False}

    by, issuer, clock = asking({"active": False})
    await verdict_on(by)
    issuer.answer = slowly
    storm = [asyncio.ensure_future(verdict_on(by, f"bad-{number}")) for number in range(300)]
    await asyncio.sleep(0.01)
    assert len(issuer.asked) <= 101
    release.set()
    statuses = [each.status for each in await asyncio.gather(*storm)]
    assert set(statuses) == {401, 429}
    # Whoever has shown none for a while, or never, may have many checked at once.
    clock.now += 61
    issuer.answer = ACTIVE
    found = await asyncio.gather(*(verdict_on(by, f"good-{number}") for number in range(300)))
    assert all(isinstance(each, Principal) for each in found)
    await by.close()


async def test_an_open_connection_shows_its_proof_once_and_stays_with_its_key() -> None:
    """When its token is looked at again, the proof it was opened with is an old one."""
    key = make_key()
    by, issuer, clock = asking({**ACTIVE, "cnf": {"jkt": key.thumbprint()}})
    by.recheck = 0.01
    proof = make_proof(key, "POST", RESOURCE, now=NOW, token="opaque")
    shown = facts("DPoP opaque", headers={"dpop": proof})
    verification = Verification(by, clock)
    identity = await verification.verdict(shown)
    assert isinstance(identity, Principal)
    ended = asyncio.Event()
    watch = verification.watch(identity, shown, ended.set)
    assert watch is not None
    clock.now += 61
    while len(issuer.asked) < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert not ended.is_set()
    again = await verification.verdict(shown)
    assert getattr(again, "status", None) == 401
    issuer.answer = {**ACTIVE, "cnf": {"jkt": make_key().thumbprint()}}
    clock.now += 61
    await asyncio.wait_for(ended.wait(), 10)
    watch.cancel()
    await by.close()


async def test_a_token_that_does_not_end_is_asked_for_each_minute() -> None:
    lasting = {name: value for name, value in ACTIVE.items() if name != "exp"}
    by, issuer, clock = asking(lasting)
    assert (await verdict_on(by)).expires is None
    clock.now += 61
    await verdict_on(by)
    assert len(issuer.asked) == 2
    await by.close()


@pytest.mark.parametrize(
    "wrong", [{"client": None}, {"client": ("a", "")}, {"client": "ab"}, {"client": ("a", "b", "c")}], ids=repr
)
def test_who_asks_must_be_said(wrong: dict[str, Any]) -> None:
    with pytest.raises(SetupError):
        asking(ACTIVE, **wrong)


def test_the_secret_is_in_no_text() -> None:
    by, _, _ = asking(ACTIVE)
    assert "s3cret" not in repr(by)
