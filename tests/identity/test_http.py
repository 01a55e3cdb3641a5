"""Identity over HTTP: sessions, remembered heads, verdicts that wait, refusals, and routes beside MCP."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from identity_desk import STEP_UP, ByHeader, new_server, served
from identity_wire import Wire

from ferrule import ANONYMOUS, Principal, RequestFacts, Server, SetupError, Unauthorized, Verifier, WebRequest
from ferrule.budgets import process
from ferrule.transports.http.endpoint import caller


async def opened(wire: Wire, era: str, user: str) -> dict[str, str]:
    """Return the headers with which somebody calls."""
    who = {"X_User": user}
    return who if era == "stateless" else {**who, "Mcp_Session_Id": await wire.session(**who)}


# -- sessions


@pytest.mark.parametrize("way", ["engine", "asgi"])
async def test_another_principals_session_does_not_exist(way: str, tmp_path: Path) -> None:
    """SES-03: the words are those about a session that never was."""
    async with served(new_server(ByHeader()), way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        session = await wire.session(X_User="ada")
        answers = []
        for identity in (session, "x" * 32):
            headers = {"X_User": "bob", "Mcp_Session_Id": identity}
            wire.called(1, "whoami", "handshake", **headers)
            answers.append(await wire.read())
            answers.append(await wire.ask(method="GET", **headers))
            answers.append(await wire.ask(method="DELETE", **headers))
        assert [answer.status for answer in answers] == [404] * 6
        assert [answer.body for answer in answers[:3]] == [answer.body for answer in answers[3:]]
        wire.called(2, "whoami", "handshake", X_User="ada", Mcp_Session_Id=session)
        assert (await wire.read()).text == "staff#ada"
        await wire.close()


@pytest.mark.parametrize("way", ["engine", "asgi"])
async def test_another_principals_request_state_opens_nothing(way: str, tmp_path: Path) -> None:
    async with served(new_server(ByHeader()), way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.called(1, "book", "stateless", X_User="ada")
        asked = (await wire.read()).json["result"]
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": 3}}}
        retry = {"requestState": asked["requestState"], "inputResponses": answers}
        wire.called(2, "book", "stateless", more=retry, X_User="bob")
        stolen = await wire.read()
        assert stolen.json["error"]["code"] == -32602
        wire.called(3, "book", "stateless", more=retry, X_User="ada")
        assert (await wire.read()).text == "staff#ada row 3"
        await wire.close()


async def test_a_session_of_the_old_pair_belongs_to_its_principal(tmp_path: Path) -> None:
    async with served(new_server(ByHeader()), "sse", tmp_path) as place:
        wire = await Wire.reach(place.url.removeprefix("sse+"))
        wire.send(method="GET", X_User="ada")
        await wire.reader.readuntil(b"\r\n\r\n")
        said = await wire.reader.readuntil(b"session_id=")
        session = (await wire.reader.readuntil(b"\n")).strip().decode()
        assert b"event: endpoint" in said
        other = await Wire.reach(place.url.removeprefix("sse+"))
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        path = f"/messages?session_id={session}"
        assert (await other.ask(ping, path=path, X_User="bob")).status == 404
        assert (await other.ask(ping, path=path)).status == 401
        assert (await other.ask(ping, path=path, X_User="ada")).status == 202
        await other.close()
        await wire.close()


# -- heads that are remembered


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_verifier_is_asked_for_each_request_unless_it_lets_its_verdicts_be_kept(
    era: str, tmp_path: Path
) -> None:
    for keep, wanted in ((0.0, 6), (60.0, 1)):
        verifier = ByHeader(keep=keep)
        async with served(new_server(verifier), "engine", tmp_path) as place:
            wire = await Wire.reach(place.url)
            headers = await opened(wire, era, "ada")
            verifier.asked.clear()
            for number in (1, 2, 10, 11, 100, 3):
                wire.called(number, "whoami", era, **headers)
                assert (await wire.read()).text == "staff#ada"
            # Each with the facts of its own head, also where that differs in its length only.
            lengths = [int(facts.headers["content-length"]) for facts in verifier.asked]
            assert [length - lengths[0] for length in lengths] == [0, 0, 1, 1, 2, 0][:wanted]
            await wire.close()


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_verdict_that_is_kept_ends_with_the_principal(era: str, tmp_path: Path) -> None:
    """The same head again and again: the token in it expires while the connection lives."""
    verifier = ByHeader(keep=3600.0, lifetime=0.5)
    async with served(new_server(verifier), "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await opened(wire, era, "ada")
        wire.called(1, "whoami", era, **headers)
        assert (await wire.read()).text == "staff#ada"
        asked = len(verifier.asked)
        wire.called(2, "whoami", era, **headers)
        assert (await wire.read()).text == "staff#ada"
        assert len(verifier.asked) == asked, "a verdict that holds is not asked for again"
        verifier.judge = lambda facts: Unauthorized("expired")  # type: ignore[method-assign]
        await asyncio.sleep(0.6)
        for number in (3, 4):
            wire.called(number, "whoami", era, **headers)
            assert (await wire.read()).status == 401
        await wire.close()


async def test_a_principal_that_has_expired_already_is_not_let_in(http_way: tuple[str, str], tmp_path: Path) -> None:
    way, era = http_way
    async with served(new_server(ByHeader(lifetime=-1.0)), way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.called(1, "whoami", era, X_User="ada")
        refused = await wire.read()
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        await wire.close()


# -- verdicts that wait


async def test_who_waits_holds_up_no_other_connection_and_keeps_its_own_order(
    http_way: tuple[str, str], tmp_path: Path
) -> None:
    way, era = http_way

    gate = asyncio.Event()

    class SlowForSome(ByHeader):
        def verify(self, facts: RequestFacts) -> Any:
            verdict = super().verify(facts)
            return self.opened(verdict) if facts.headers.get("x-wait") else verdict

        async def opened(self, verdict: Any) -> Any:
            await gate.wait()
            return verdict

    async with served(new_server(SlowForSome()), way, tmp_path) as place:
        slow, quick = await Wire.reach(place.url), await Wire.reach(place.url)
        slow_one, quick_one = await opened(slow, era, "slow"), await opened(quick, era, "ada")
        slow.called(1, "whoami", era, X_Wait="yes", **slow_one)
        slow.called(2, "whoami", era, **slow_one)
        for number in range(5):
            quick.called(number, "whoami", era, **quick_one)
            assert (await quick.read()).text == "staff#ada"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow.reader.readexactly(1), 0.1)
        gate.set()
        for number in (1, 2):
            answer = await slow.read()
            assert (answer.json["id"], answer.text) == (number, "staff#slow")
        await slow.close()
        await quick.close()


async def test_a_verdict_that_takes_too_long_is_given_up(http_way: tuple[str, str], tmp_path: Path) -> None:
    way, era = http_way
    verifier = ByHeader(pause=60.0)
    verifier.timeout = 0.2
    async with served(new_server(verifier), way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.called(1, "whoami", era, X_User="ada")
        refused = await wire.read()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        await wire.close()


async def test_who_leaves_before_the_verdict_costs_nothing_more(tmp_path: Path) -> None:
    ended: list[str] = []

    class Noting(ByHeader):
        async def later(self, verdict: Any) -> Any:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

    verifier = Noting(pause=1.0)
    verifier.timeout = 60.0
    async with served(new_server(verifier), "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.called(1, "whoami", "stateless", X_User="ada")
        while not verifier.asked:
            await asyncio.sleep(0.01)
        wire.writer.transport.abort()
        async with asyncio.timeout(5):
            while not ended:
                await asyncio.sleep(0.01)
    assert ended == ["cancelled"]


async def test_a_stop_does_not_wait_for_a_verdict(tmp_path: Path) -> None:
    verifier = ByHeader(pause=60.0)
    async with served(new_server(verifier), "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.called(1, "whoami", "stateless", X_User="ada")
        while not verifier.asked:
            await asyncio.sleep(0.01)
    assert (await wire.read()).status == 503
    await wire.close()


# -- a verifier that fails lets nobody in


class Wrong(Verifier):
    """Answers with anything at all."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def verify(self, facts: RequestFacts) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [None, True, "ada", ValueError("token s3cret is bad")], ids=repr)
async def test_a_verifier_that_fails_lets_nobody_in(
    answer: Any, http_way: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    way, era = http_way
    with caplog.at_level(logging.ERROR, "ferrule.auth"):
        async with served(new_server(Wrong(answer)), way, tmp_path) as place:
            wire = await Wire.reach(place.url)
            wire.called(1, "whoami", era)
            refused = await wire.read()
            assert refused.status == 500
            assert b"s3cret" not in refused.body
            reference = refused.json["error"]["data"]["reference"]
            await wire.close()
    assert any(reference in record.getMessage() for record in caplog.records)


async def test_a_header_that_would_split_the_answer_is_not_sent(http_way: tuple[str, str], tmp_path: Path) -> None:
    way, era = http_way
    splitting = Unauthorized("no", headers={"WWW-Authenticate": "Bearer\r\nSet-Cookie: a=b"})
    async with served(new_server(Wrong(splitting)), way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.called(1, "whoami", era)
        refused = await wire.read()
        assert refused.status == 500
        assert "set-cookie" not in refused.headers
        await wire.close()


def test_auth_must_be_a_verifier() -> None:
    with pytest.raises(SetupError, match="auth must be Verifier or None"):
        Server("x", auth=lambda facts: ANONYMOUS)  # type: ignore[arg-type]


def test_a_mounted_servers_own_verifier_is_not_asked_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ferrule.server"):
        Server("host").mount(Server("open"), prefix="a")
        verifier = ByHeader()
        Server("host", auth=verifier).mount(Server("same", auth=verifier), prefix="a")
        assert caplog.records == []
        Server("host").mount(Server("closed", auth=verifier), prefix="a")
    assert "the auth of 'closed' is not asked in 'host'" in caplog.text


# -- what a verifier knows, and what it is not asked about


async def test_a_verifier_sees_the_whole_request(http_way: tuple[str, str], tmp_path: Path) -> None:
    way, era = http_way
    verifier = ByHeader()
    async with served(new_server(verifier), way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.path += "?a=b"
        wire.called(1, "whoami", era, X_User="ada", DPoP="proof")
        await wire.read()
        facts = verifier.asked[-1]
        assert (facts.transport, facts.method, facts.url) == ("http", "POST", "http://127.0.0.1/mcp?a=b")
        assert (facts.headers["dpop"], facts.address, facts.certificate) == ("proof", "127.0.0.1", None)
        assert facts.scope.get("type") == ("http" if way == "asgi" else None)
        await wire.close()


async def test_health_and_preflights_are_open_and_routes_are_not(http_way: tuple[str, str], tmp_path: Path) -> None:
    way, _ = http_way
    verifier = ByHeader()
    app = new_server(verifier)

    @app.custom_route("/mine")
    async def mine(request: WebRequest) -> str:
        assert isinstance(request.identity, Principal)
        return str(request.principal)

    @app.custom_route("/public", auth=False)
    async def public(request: WebRequest) -> str:
        return str(request.principal)

    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        assert (await wire.ask(method="GET", path="/livez")).status == 200
        assert (await wire.ask(method="OPTIONS")).status == 204
        assert (await wire.ask(method="GET", path="/public")).body == b"None"
        assert (await wire.ask(method="GET", path="/nowhere")).status == 404
        assert verifier.asked == []
        assert (await wire.ask(method="GET", path="/mine")).status == 401
        assert (await wire.ask(method="GET", path="/mine", X_User="ada")).body == b"staff#ada"
        await wire.close()


async def test_a_page_that_may_not_call_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    verifier = ByHeader()
    async with served(new_server(verifier), "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.called(1, "whoami", "stateless", X_User="ada", Origin="https://evil.example")
        assert (await wire.read()).status == 403
        assert verifier.asked == []
        await wire.close()


# -- refusals that a handler makes


async def test_a_tool_can_demand_more_rights(http_way: tuple[str, str], tmp_path: Path) -> None:
    """The status and the headers are HTTP's, the error is the message's: step-up authorization needs both."""
    way, era = http_way
    async with served(new_server(ByHeader()), way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await opened(wire, era, "ada")
        wire.called(7, "change", era, **headers)
        refused = await wire.read()
        assert (refused.status, refused.headers["www-authenticate"]) == (403, STEP_UP)
        error = {"code": -32600, "message": "Forbidden: seats:write is needed"}
        assert refused.json == {"jsonrpc": "2.0", "id": 7, "error": error}
        await wire.close()


# -- the other ways to a call


@pytest.mark.parametrize("pause", [None, 0.01], ids=["at once", "awaited"])
async def test_the_handshake_era_without_sessions_knows_its_callers_too(pause: float | None, tmp_path: Path) -> None:
    async with served(new_server(ByHeader(pause=pause)), "engine", tmp_path, stateless=True) as place:
        wire = await Wire.reach(place.url)
        for user in ("ada", "bob"):
            wire.called(1, "whoami", "handshake", X_User=user)
            assert (await wire.read()).text == f"staff#{user}"
        wire.called(2, "whoami", "handshake")
        assert (await wire.read()).status == 401
        await wire.close()


async def test_who_polls_polls_its_own_events_only(tmp_path: Path) -> None:
    async with served(new_server(ByHeader()), "engine", tmp_path, poll_routes=True) as place:
        wire = await Wire.reach(place.url)
        assert (await wire.ask(path="/mcp/sessions/create")).status == 401
        created = await wire.ask(path="/mcp/sessions/create", X_User="ada")
        events = f"/mcp/events?session_id={created.json['session_id']}"
        assert (await wire.ask(method="GET", path=events, X_User="bob")).status == 404
        assert (await wire.ask(method="GET", path=events, X_User="ada")).status == 200
        await wire.close()


# -- what waits for a verdict costs what it may


async def test_bodies_that_wait_for_a_verdict_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "MAX_WAITING", 100_000)
    gate = asyncio.Event()

    class Gated(ByHeader):
        async def later(self, verdict: Any) -> Any:
            await gate.wait()
            return verdict

    held = process.requests.held
    verifier = Gated(pause=1.0)
    async with served(new_server(verifier), "engine", tmp_path) as place:
        wires = [await Wire.reach(place.url) for _ in range(8)]
        padding = {"padding": "x" * 40_000}
        for wire in wires:
            wire.called(1, "whoami", "stateless", more=padding, X_User="ada")
        refused = [asyncio.ensure_future(wire.read()) for wire in wires]
        while sum(each.done() for each in refused) < 6:
            await asyncio.sleep(0.01)
        assert process.requests.held - held > 40_000
        gate.set()
        answers = await asyncio.gather(*refused)
        assert sorted(answer.status for answer in answers) == [200, 200, 503, 503, 503, 503, 503, 503]
        assert {answer.headers.get("retry-after") for answer in answers if answer.status == 503} == {"1"}
        for wire in wires:
            await wire.close()
    assert process.requests.held == held
