"""Whatever is asked in whatever order, an endpoint that keeps its verdicts on heads answers as one that keeps none."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ferrule import Context, Principal, RequestFacts, Server, Unauthorized, Verifier
from ferrule.identity.verifier import ANONYMOUS, Anonymous
from ferrule.testing import run_in_virtual_time
from ferrule.transports.http.endpoint.router import HttpEndpoint
from ferrule.transports.http.engine.connection import Connection
from ferrule.transports.http.engine.state import EngineState
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.settings import EndpointSettings, EngineSettings

KEEP = 5.0  # seconds for which a verdict on a sender is kept
TURNS = 100  # of the loop, which an answer may take
CHANCE = re.compile(r"\r\ndate: .*|(?<=\nid: )\w+")
"""What differs from answer to answer: the date, and the name of a stream in the ids of its events."""
META = "io.modelcontextprotocol/"
MODERN = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}
MODERN_HEAD = [b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Name: who"]
WHO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
CALL = {"method": "tools/call", "params": {"name": "who", "arguments": {}}}
BODIES: dict[str, Any] = {
    "call": {"id": 1, **CALL},
    "longer": {"id": 1000, **CALL},
    "other tool": {"id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {}}},
    "ping": {"id": 1, "method": "ping"},
    "notification": {"method": "notifications/initialized"},
    "initialize": {"id": 0, "method": "initialize", "params": WHO},
    "modern call": {"id": 1, "method": "tools/call", "params": {**CALL["params"], "_meta": MODERN}},
    "modern list": {"id": 1, "method": "tools/list", "params": {"_meta": MODERN}},
}
HEADS: dict[str, list[bytes]] = {
    "plain": [],
    "dated": [b"MCP-Protocol-Version: 2025-11-25"],
    "modern call": [*MODERN_HEAD, b"Mcp-Method: tools/call"],
    "modern list": [*MODERN_HEAD, b"Mcp-Method: tools/list"],
}


class Ask(NamedTuple):
    """One request."""

    connection: int
    token: str = "a"
    session: int = 0
    """Which one that was opened; of those that are not there, one that nobody opened."""
    head: str = "plain"
    body: str = "call"
    method: str = "POST"


class Name(NamedTuple):
    """A token comes to be somebody else's, or nobody's, and what was known of it has expired."""

    token: str
    person: str


class End(NamedTuple):
    """The server ends a session."""

    session: int


class Renew(NamedTuple):
    """A connection goes, some time goes by, and a new one comes."""

    connection: int
    seconds: float


Step = Ask | Name | End | Renew
CONNECTIONS, SESSIONS, TOKENS = st.integers(0, 1), st.integers(0, 2), st.sampled_from("ab")
METHODS = st.sampled_from(["POST"] * 6 + ["GET", "DELETE", "PUT"])
BODY = st.sampled_from(["call"] * 4 + [*BODIES])
USUAL = [Ask(0), Ask(0, head="modern call", body="modern call")]
ASKS = st.builds(Ask, CONNECTIONS, TOKENS, SESSIONS, st.sampled_from([*HEADS]), BODY, METHODS) | st.sampled_from(USUAL)
OTHERS = st.one_of(
    st.builds(Name, TOKENS, st.sampled_from(["ada", "bob", "brief", "anyone", "nobody"])),
    st.builds(End, SESSIONS),
    st.builds(Renew, st.integers(0, 2), st.sampled_from([0.0, 0.5, KEEP])),
)
TIMES = st.integers(1, 3)  # what was decided for the first of some requests may be kept for the others
SEQUENCES = st.lists(st.one_of(st.tuples(ASKS, TIMES), st.tuples(OTHERS, st.just(1))), min_size=8, max_size=24)


class Roll(Verifier):
    """Says whose a token is."""

    keep = KEEP

    def __init__(self, now: list[float]) -> None:
        self.now = now
        self.people = {"a": "ada", "b": "bob"}

    def verify(self, facts: RequestFacts) -> Principal | Anonymous | Unauthorized:
        match self.people[facts.headers.get("x-token", "")]:
            case "nobody":
                return Unauthorized("Unauthorized: not any more")
            case "anyone":
                return ANONYMOUS
            case "brief":
                return Principal(issuer="roll", subject="ada", expires=self.now[0] + 1)
            case person:
                return Principal(issuer="roll", subject=person)


def wire(number: int) -> Any:
    """Return a transport to a peer that takes everything."""
    told = {"peername": (f"10.0.0.{number}", 1)}
    made = mock.Mock()
    made.get_extra_info.side_effect = told.get
    made.get_write_buffer_size.return_value = 0
    made.can_write_eof.return_value = False
    return made


def site(auth: Verifier | None) -> Server:
    app = Server("alike", **({} if auth is None else {"auth": auth}))

    @app.tool
    async def who(ctx: Context) -> str:
        origin = ctx._call.origin
        told = [origin.headers.get(name) for name in ("mcp-session-id", "x-token", "content-length")]
        return f"{ctx.principal} {origin.address} {origin.version} {told}"

    @app.tool
    async def add() -> None:
        """Do nothing."""

    return app


class Front:
    """An endpoint with an engine before it, which keeps verdicts on heads or does not."""

    def __init__(self, *, keeps: bool, verified: bool) -> None:
        self.now = [1000.0]
        self.roll = Roll(self.now)
        self.sessions: list[bytes] = []
        self.asked = 0
        app = site(self.roll if verified else None)
        self.doors = HttpEndpoint(app.host, EndpointSettings(), bound_to="127.0.0.1", clock=lambda: self.now[0])
        self.judge = self.doors.handle = mock.Mock(side_effect=self.doors.handle)  # type: ignore[method-assign]
        self._engine = EngineState(self.doors.handle if keeps else self._handle_anew, EngineSettings(), 2**20)
        self._engine.tick(0.0)
        self._connections: dict[int, tuple[Connection, Any]] = {}

    def _handle_anew(self, request: HttpRequest, responder: Responder) -> None:
        request.decision = None
        self.doors.handle(request, responder)

    async def take(self, step: Step) -> str:
        """Do a step; return what was answered, if anything was asked."""
        match step:
            case Ask():
                self.asked += 1
                return await self._ask(step)
            case Name():
                self.roll.people[step.token] = step.person
                self.now[0] += KEEP + 1
            case Renew():
                self.now[0] += step.seconds
                self._leave(step.connection)
            case End():
                for session in list(self.doors.sessions):
                    if session.id.encode() == self._id(step.session):
                        self.doors.sessions.end(session)
        return ""

    def _id(self, session: int) -> bytes:
        return self.sessions[session] if session < len(self.sessions) else b"nobodys"

    def _leave(self, number: int) -> None:
        if number in self._connections:
            self._connections.pop(number)[0].connection_lost(None)

    def _written(self, ask: Ask) -> bytes:
        lines = [b"%b /mcp HTTP/1.1" % ask.method.encode(), b"Host: localhost", b"X-Token: " + ask.token.encode()]
        lines += [b"Content-Type: application/json", b"Accept: application/json, text/event-stream", *HEADS[ask.head]]
        if not ask.head.startswith("modern"):
            lines.append(b"Mcp-Session-Id: " + self._id(ask.session))
        body = b""
        if ask.method == "POST":
            body = json.dumps({"jsonrpc": "2.0", **BODIES[ask.body]}).encode()
            lines.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join([*lines, b"", body])

    async def _ask(self, ask: Ask) -> str:
        if ask.connection not in self._connections:
            made = Connection(self._engine, asyncio.get_running_loop()), wire(ask.connection)
            made[0].connection_made(made[1])
            self._connections[ask.connection] = made
        connection, peer = self._connections[ask.connection]
        peer.write.reset_mock()
        connection.data_received(self._written(ask))
        for _ in range(TURNS):
            if not peer.write.called:
                await asyncio.sleep(0)
        answer = b"".join(call.args[0] for call in peer.write.call_args_list)
        if peer.close.called or peer.abort.called or ask.method == "GET":  # which may have opened a stream
            self._leave(ask.connection)
        self.sessions += re.findall(rb"mcp-session-id: (\S+)", answer)
        for number, identity in enumerate(self.sessions):
            answer = answer.replace(identity, b"session %d" % number)
        return CHANCE.sub("", answer.decode())


async def alike(sequence: list[tuple[Step, int]], verified: bool) -> tuple[int, int]:
    """Take the same steps with two endpoints and compare; return how often was asked and how often judged."""
    keeping, anew = Front(keeps=True, verified=verified), Front(keeps=False, verified=verified)
    await keeping.doors.start()
    await anew.doors.start()
    try:
        opening = [Ask(0, token, body="initialize") for token in "ab"]
        for step in [*opening, *(step for step, times in sequence for _ in range(times))]:
            kept, judged = await keeping.take(step), await anew.take(step)
            assert kept == judged, step
            assert kept or not isinstance(step, Ask), "an answer comes within the turns"
    finally:
        await keeping.doors.close()
        await anew.doors.close()
    return keeping.asked, keeping.judge.call_count


@pytest.mark.parametrize("verified", [True, False], ids=["verified", "open"])
def test_every_answer_is_the_same_with_and_without_kept_verdicts(verified: bool) -> None:
    """SES-04: also where a token comes to name somebody else, and where a session ends."""
    counts: list[tuple[int, int]] = []

    @given(SEQUENCES)
    @example([(Ask(0), 2), (Name("a", "bob"), 1), (Ask(0), 3), (Name("a", "ada"), 1), (Ask(0), 2)])
    @settings(max_examples=80)
    def compare(sequence: list[tuple[Step, int]]) -> None:
        counts.append(run_in_virtual_time(alike(sequence, verified)))

    compare()
    asked, judged = map(sum, zip(*counts, strict=True))
    assert judged < 0.85 * asked
