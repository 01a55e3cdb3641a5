"""A client is let in to a protected server: the whole way, over real sockets, on every carrier of HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
import webbrowser
from pathlib import Path

import httpx
import pytest
from protected import protected

from ferrule import AuthorizationFailed, Bearer, Client, HttpFailed, LoginRequired, OAuth, SetupError, SyncClient
from ferrule.auth.client.store import FileStore

WAYS = {
    "handshake": lambda url: (url, {"mode": "handshake"}),
    "stateless": lambda url: (url, {"mode": "stateless"}),
    "auto": lambda url: (url, {}),
    "old pair": lambda url: (f"sse+{url}/sse", {}),
    "websocket": lambda url: (url.replace("http", "ws") + "/ws", {}),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_waits_for_the_login_and_is_answered(way: str) -> None:
    """ACLI-1, ACLI-2: the first request of a conversation is refused, and sent again with the token."""
    async with protected() as place:
        target, options = WAYS[way](place.url)
        async with Client(target, auth=place.oauth(), **options) as client:
            assert (await client.call_tool("whoami")).text.endswith("#ada")
            assert (await client.call_tool("whoami")).text.endswith("#ada")
        assert len(place.person.pages) == 1
        assert place.issuer.count("token") == 1


async def test_every_kind_of_request_shows_the_token() -> None:
    """ACLI-1: POST, GET and DELETE, in a header and never in the query."""
    async with protected() as place:
        async with Client(place.url, auth=place.oauth(), mode="handshake") as client:
            await client.call_tool("whoami")
        after_login = place.verifier.shown[1:]
        assert {method for method, _ in after_login} == {"POST", "GET", "DELETE"}
        assert {scheme for _, scheme in after_login} == {"Bearer"}


async def test_a_request_that_waits_for_a_person_does_not_time_out() -> None:
    """A login may take longer than any request: its time begins when it is sent."""
    async with protected() as place:

        async def slowly(url: str) -> str:
            await asyncio.sleep(1.2)
            return await place.person(url)

        auth = place.oauth(open_browser=slowly)
        async with Client(place.url, auth=auth, probe_timeout=0.5, init_timeout=0.5, request_timeout=0.5) as client:
            assert (await client.call_tool("whoami")).text.endswith("#ada")


async def test_who_gives_up_waiting_for_a_login_leaves_nothing_behind() -> None:
    async with protected() as place:
        begun = asyncio.Event()

        async def never(url: str) -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

        async def connect() -> None:
            async with Client(place.url, auth=place.oauth(open_browser=never)):
                pass

        task = asyncio.create_task(connect())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = [each.get_name() for each in asyncio.all_tasks() if "CodeGrant" in repr(each) or "Gate" in repr(each)]
        assert left == []
        assert place.issuer.count("token") == 0


async def test_a_login_is_shared_by_all_who_wait_for_it() -> None:
    async with protected() as place:
        auth = place.oauth()
        async with Client(place.url, auth=auth) as first, Client(place.url, auth=auth) as second:
            answers = await asyncio.gather(*(each.call_tool("whoami") for each in (first, second) * 10))
        assert len(answers) == 20
        assert len(place.person.pages) == 1


async def test_a_stored_login_serves_the_next_program(tmp_path: Path) -> None:
    async with protected() as place:
        for _ in range(2):
            auth = place.oauth(storage=tmp_path / "tokens.json")
            async with Client(place.url, auth=auth) as client:
                await client.call_tool("whoami")
        assert len(place.person.pages) == 1
        assert place.issuer.count("register") == 1


async def test_without_a_person_the_error_names_the_command(tmp_path: Path) -> None:
    async with protected() as place:
        auth = OAuth(storage=tmp_path / "tokens.json", open_browser=False)
        with pytest.raises(LoginRequired, match=r"run `ferrule login http://127.0.0.1:\d+/mcp`"):
            async with Client(place.url, auth=auth):
                pass
        assert place.issuer.count("register") == 0


async def test_a_browser_that_does_not_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "/nowhere/at-all %s")
    monkeypatch.setattr(webbrowser, "_tryorder", None)
    monkeypatch.setattr(webbrowser, "_browsers", {})
    async with protected() as place:
        with pytest.raises((AuthorizationFailed, LoginRequired), match="browser"):
            async with Client(place.url, auth=OAuth(storage="memory")):
                pass


async def test_a_browser_that_is_sent_back_brings_the_answer() -> None:
    """The loopback listener: the browser follows the redirect by itself."""
    async with protected() as place:
        shown: list[httpx.Response] = []

        async def browser(url: str) -> None:
            async with httpx.AsyncClient(trust_env=False, follow_redirects=True) as http:
                shown.append(await http.get(url))

        async with Client(place.url, auth=place.oauth(open_browser=browser)) as client:
            await client.call_tool("whoami")
        assert shown[0].status_code == 200
        assert "close this window" in shown[0].text


async def test_scopes_are_stepped_up_to_the_union() -> None:
    """ACLI-8, ACLI-9: what the challenge names is asked for, and what was asked for before stays."""
    async with protected(verifier={"scopes": ["notes"]}) as place:
        async with Client(place.url, auth=place.oauth(scopes=["profile"])) as client:
            await client.call_tool("whoami")
        assert place.person.scopes[-1].split() == ["profile", "notes"]


@pytest.mark.parametrize("mode", ["handshake", "stateless"])
async def test_a_tool_that_needs_more_is_called_after_stepping_up(mode: str) -> None:
    """ACLI-9: the refused call was not run, and is sent again with a token for the union."""
    async with protected(verifier={"scopes": ["notes"]}) as place:
        async with Client(place.url, auth=place.oauth(), mode=mode) as client:
            await client.call_tool("whoami")
            assert (await client.call_tool("erase")).text == "erased 1"
            assert (await client.call_tool("erase")).text == "erased 2"
        assert place.issuer.count("register") == 1
        assert [sorted(scopes.split()) for scopes in place.person.scopes] == [["notes"], ["notes", "notes:write"]]


async def test_tokens_bound_to_a_key_are_proven_with_every_request() -> None:
    """RFC 9449: a proof at the token endpoint and on each request, with nonces on both sides."""
    async with protected(verifier={"dpop": "required", "dpop_nonce": True}, dpop="nonce") as place:
        for mode in ("handshake", "stateless"):
            async with Client(place.url, auth=place.oauth(), mode=mode) as client:
                for _ in range(3):
                    assert (await client.call_tool("whoami")).text.endswith("#ada")
        assert {scheme for _, scheme in place.verifier.shown} == {"", "DPoP"}


async def test_a_nonce_that_changes_under_many_requests_is_no_login() -> None:
    """RFC 9449 §9: each of them is sent again with it."""
    async with protected(verifier={"dpop": "required", "dpop_nonce": True}) as place:
        auth = place.oauth()
        async with Client(place.url, auth=auth, mode="stateless") as client:
            key = auth.session(place.url)._proof_key
            assert key is not None
            for _ in range(3):
                key._nonces.clear()
                answers = await asyncio.gather(*(client.call_tool("whoami") for _ in range(20)))
                assert len(answers) == 20
        assert len(place.person.pages) == 1


async def test_no_token_is_in_any_log_or_text(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """SEC: neither tokens nor secrets are told to anybody."""
    caplog.set_level(logging.DEBUG)
    store = FileStore(tmp_path / "tokens.json")
    async with protected(access_lifetime=1.0) as place:
        auth = place.oauth(storage=store)
        async with Client(place.url, auth=auth) as client:
            await client.call_tool("whoami")
            session = auth.sessions.of(place.url, None)  # type: ignore[arg-type]
            login = session.login
            assert login is not None
            await client.call_tool("whoami")
        texts = [caplog.text, repr(auth), repr(auth.options), repr(login), repr(session), str(vars(login.__class__))]
        for secret in (login.token.access, login.token.refresh, login.client.secret or "no secret"):
            assert all(secret not in text for text in texts)


async def test_what_a_person_refuses_is_told_and_not_asked_again_at_once() -> None:
    async with protected() as place:
        asked: list[str] = []

        async def declines(url: str) -> str:
            asked.append(url)
            said = httpx.URL(url).params
            return f"{said['redirect_uri']}?error=access_denied&state={said['state']}&iss={place.issuer.issuer}"

        auth = place.oauth(open_browser=declines)
        for _ in range(3):
            with pytest.raises(AuthorizationFailed, match="did not allow it: access_denied"):
                async with Client(place.url, auth=auth):
                    pass
        assert len(asked) == 1


# -- tokens one has already


@pytest.mark.parametrize("way", WAYS)
async def test_a_bearer_token_is_shown_from_the_first_request(way: str) -> None:
    async with protected() as place:
        token = place.issuer.access_token(audience=place.url)
        target, options = WAYS[way](place.url)
        if way in ("old pair", "websocket"):
            token = place.issuer.access_token(audience=[place.url, target.removeprefix("sse+")])
        async with Client(target, auth=Bearer(token), **options) as client:
            assert (await client.call_tool("whoami")).text.endswith("#ada")


@pytest.mark.parametrize("awaited", [False, True])
async def test_a_function_is_asked_again_when_its_token_is_refused(awaited: bool) -> None:
    async with protected() as place:
        tokens = [place.issuer.access_token(lifetime=-100, audience=place.url)]
        tokens.append(place.issuer.access_token(audience=place.url))

        def plain() -> str:
            return tokens.pop(0) if len(tokens) > 1 else tokens[0]

        async def later() -> str:
            return plain()

        async with Client(place.url, auth=Bearer(later if awaited else plain)) as client:
            assert (await client.call_tool("whoami")).text.endswith("#ada")


async def test_a_function_that_fails_fails_the_request_in_words() -> None:
    async with protected() as place:

        def broken() -> str:
            raise KeyError("TOKEN")

        with pytest.raises(AuthorizationFailed, match="failed with KeyError"):
            async with Client(place.url, auth=Bearer(broken)):
                pass


async def test_a_token_that_is_refused_for_good_is_not_sent_again_and_again() -> None:
    async with protected() as place:
        began = time.monotonic()
        with pytest.raises(HttpFailed, match="HTTP 401"):
            async with Client(place.url, auth=Bearer("wrong"), mode="stateless"):
                pass
        assert time.monotonic() - began < 10
        assert len(place.verifier.shown) == 1


@pytest.mark.parametrize("token", ["", "two words", "line\r\nx: y", "ünicode", 7])
def test_a_token_that_cannot_be_sent_is_refused_at_once(token: object) -> None:
    with pytest.raises(SetupError, match="visible characters") as refused:
        Bearer(token)  # type: ignore[arg-type]
    assert "words" not in str(refused.value)


def test_two_answers_to_who_we_are_are_refused() -> None:
    for options in ({"headers": {"Authorization": "Bearer x"}}, {"http": {"headers": {"authorization": "x"}}}):
        client = Client("http://127.0.0.1:9/mcp", auth=Bearer("y"), **options)  # type: ignore[arg-type]
        with pytest.raises(SetupError, match="both say who we are"):
            asyncio.run(client.connect())
    with pytest.raises(SetupError, match="both say who we are"):
        asyncio.run(Client("http://u:p@127.0.0.1:9/mcp", auth=Bearer("y")).connect())


@pytest.mark.parametrize("auth", ["a-secret-token", 7, {"token": "a-secret-token"}, OAuth])
@pytest.mark.parametrize("scheme", ["http", "ws", "sse+http"])
def test_what_is_no_auth_is_refused_without_being_shown(auth: object, scheme: str) -> None:
    client = Client(f"{scheme}://127.0.0.1:9/mcp", auth=auth)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match=r"auth must be OAuth\(…\), Bearer\(…\) or their like") as refused:
        asyncio.run(client.connect())
    assert "a-secret-token" not in str(refused.value)


# -- other clients


async def test_a_client_of_several_targets_logs_in_to_each() -> None:
    """ACLI-12: one login a server."""
    async with protected() as one, protected() as other:
        person = one.person
        async with Client([one.url, other.url], auth=one.oauth()) as client:
            for _ in range(4):
                assert (await client.call_tool("whoami")).text.endswith("#ada")
        assert len(person.pages) == 2
        assert (one.issuer.count("token"), other.issuer.count("token")) == (1, 1)


async def test_a_synchronous_client_logs_in_too() -> None:
    async with protected() as place:

        def use() -> str:
            with SyncClient(place.url, auth=place.oauth()) as client:
                return client.call_tool("whoami").text

        assert (await asyncio.to_thread(use)).endswith("#ada")
