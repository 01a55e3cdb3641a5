"""Requests whose head was judged before: the short way answers as the long one does, and gives way to it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ferrule import Context, Principal, RequestFacts, Server, Unauthorized, Verifier
from ferrule.identity.verifier import Certificate
from ferrule.testing import run_in_virtual_time
from ferrule.transports.http.endpoint.head_cache import Sender, ToolCallVerdict, unmistakable
from ferrule.transports.http.endpoint.router import HttpEndpoint
from ferrule.transports.http.message import HeadDecision, HttpRequest
from ferrule.transports.http.mirror import peek
from ferrule.transports.http.settings import EndpointSettings

META = "io.modelcontextprotocol/"
BOTH = b"application/json, text/event-stream"
WHO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": WHO}


class Kept:
    """The way back of one request, and the one answer that came."""

    gone = False
    backlog = 0

    def __init__(self) -> None:
        self.status = 0
        self.head = b""
        self.body = b""

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        self.status, self.head, self.body = status, head, body

    def watch(self, lost: Any) -> None:
        """Nobody goes away."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """Requests that all have the same head, as one connection brings them."""

    def __init__(self, doors: HttpEndpoint, *, shared: HeadDecision | None = None, **headers: str) -> None:
        self._doors = doors
        named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        self._headers = {b"host": b"localhost", b"content-type": b"application/json", b"accept": BOTH, **named}
        self.decision = HeadDecision() if shared is None else HeadDecision(shared.take, shared)

    def post(self, message: Any, address: str = "127.0.0.1", certificate: Certificate | None = None) -> Kept:
        kept = Kept()
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        request = HttpRequest("POST", "/mcp", "", self._headers, body, address, decision=self.decision)
        request.certificate = certificate
        take = self.decision.take or self._doors.handle
        take(request, kept)  # type: ignore[arg-type]
        return kept


def call(identity: int, name: str = "add", meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if meta is not None:
        params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}


@pytest.mark.parametrize("around", ["", "Vz", "V", "z", "a long text, " * 100])
@pytest.mark.parametrize(
    ("part", "ordinary"),
    [
        ('"method":"tools/call"', True),
        ('"method":"initialize"', False),
        ('"io.modelcontextprotocol/protocolVersion":"2026-07-28"', False),
        ("initialize", True),
        ('"protocol"', True),
        ("\\u0069nitialize", False),
    ],
)
def test_a_body_is_ordinary_unless_it_may_be_a_handshake_or_of_the_stateless_era(
    part: str, around: str, ordinary: bool
) -> None:
    assert unmistakable(f"{around}{part}{around}".encode()) is ordinary


def test_a_sender_is_told_anew_when_its_head_is_another() -> None:
    """The same head comes on the same connection; one that differs in its length only is still another."""
    sender, head = Sender(), {b"content-length": b"2"}
    first = sender.of(HttpRequest("POST", "/mcp", "", head, b"{}", "127.0.0.1"))
    assert sender.of(HttpRequest("POST", "/mcp", "", head, b"[]", "127.0.0.1")) is first
    longer = sender.of(HttpRequest("POST", "/mcp", "", {b"content-length": b"3"}, b"{ }", "127.0.0.1"))
    assert (first.headers["content-length"], longer.headers["content-length"]) == ("2", "3")
    assert (first.address, first.version) == ("127.0.0.1", "")


MODERN = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}


class Roll(Verifier):
    """Says of everybody what it was told to say last, and is asked for each request."""

    def __init__(self) -> None:
        self.verdict: Principal | Unauthorized = Principal(issuer="roll", subject="ada")
        self.asked = 0

    def verify(self, facts: RequestFacts) -> Principal | Unauthorized:
        self.asked += 1
        return self.verdict


def site(auth: Verifier | None = None) -> Server:
    app = Server("familiar", **({} if auth is None else {"auth": auth}))

    @app.tool
    async def me(ctx: Context) -> str:
        return str(ctx.principal)

    @app.tool
    async def whence(ctx: Context) -> str:
        return ctx._call.origin.address

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def double(a: int) -> int:
        return 2 * a

    return app


def scene(play: Any, auth: Verifier | None = None) -> None:
    """Open doors in virtual time, and let a scene play."""

    async def run() -> None:
        doors = HttpEndpoint(site(auth).host, EndpointSettings(), bound_to="127.0.0.1")
        await doors.start()
        try:
            await asyncio.wait_for(play(doors), 1000)
        finally:
            await doors.close()

    run_in_virtual_time(run())


def session(doors: HttpEndpoint) -> tuple[Connection, str]:
    opened = Connection(doors).post(INITIALIZE)
    identity = opened.head.decode().split("mcp-session-id: ")[1].split("\r\n")[0]
    return Connection(doors, mcp_session_id=identity), identity


def modern(doors: HttpEndpoint, name: str = "add", shared: HeadDecision | None = None) -> Connection:
    return Connection(doors, shared=shared, mcp_protocol_version="2026-07-28", mcp_method="tools/call", mcp_name=name)


def test_a_head_judged_on_one_connection_is_not_judged_for_the_first_call_on_the_next() -> None:
    async def play(doors: HttpEndpoint) -> None:
        shared = HeadDecision()
        first = modern(doors, "whence", shared).post(call(1, "whence", MODERN), "10.0.0.1")
        judged: list[HttpRequest] = []
        doors.guard.judge = _noting(doors.guard.judge, judged)  # type: ignore[method-assign]
        other = modern(doors, "whence", shared)
        second = other.post(call(2, "whence", MODERN), "10.0.0.2")
        assert judged == []
        third = other.post(call(3, "whence", MODERN), "10.0.0.2")
        assert len(judged) == 1
        fourth = other.post(call(4, "whence", MODERN), "10.0.0.2")
        assert len(judged) == 1
        texts = [kept.json["result"]["content"][0]["text"] for kept in (first, second, third, fourth)]
        assert texts == ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"]
        mismatch = modern(doors, "whence", shared).post(call(5, meta=MODERN, a=1, b=2))
        assert (mismatch.status, mismatch.json["error"]["code"]) == (400, -32020)

    scene(play)


def _noting(judge: Any, judged: list[HttpRequest]) -> Any:
    def note(request: HttpRequest) -> Any:
        judged.append(request)
        return judge(request)

    return note


def test_no_verdict_on_a_head_is_shared_where_callers_are_verified() -> None:
    async def play(doors: HttpEndpoint) -> None:
        shared = HeadDecision()
        assert modern(doors, "me", shared).post(call(1, "me", MODERN)).status == 200
        assert shared.take is None

    scene(play, Roll())


def test_whoever_shows_a_certificate_is_verified_though_its_head_is_known_for_all() -> None:
    async def play(doors: HttpEndpoint) -> None:
        shared = HeadDecision()
        modern(doors, "add", shared).post(call(1, meta=MODERN, a=1, b=2))
        assert shared.take is not None
        admitted: list[HttpRequest] = []

        def admit(request: HttpRequest, responder: Any, handle: Any) -> None:
            admitted.append(request)
            handle(request, responder)

        doors.callers.admit = admit  # type: ignore[method-assign]
        certificate = Certificate({})
        assert modern(doors, "add", shared).post(call(2, meta=MODERN, a=1, b=2), certificate=certificate).status == 200
        assert len(admitted) == 1

    scene(play)


def test_the_head_of_a_handshake_is_judged_once_for_all_connections() -> None:
    async def play(doors: HttpEndpoint) -> None:
        shared = HeadDecision()
        assert Connection(doors, shared=shared).post(INITIALIZE).status == 200
        judged: list[HttpRequest] = []
        doors.guard.judge = _noting(doors.guard.judge, judged)  # type: ignore[method-assign]
        for _ in range(2):
            connection = Connection(doors, shared=shared)
            opened = [connection.post(INITIALIZE) for _ in range(2)]
            assert [kept.status for kept in opened] == [200, 200]
            assert len({kept.head for kept in opened}) == 2
        assert judged == []
        assert len(doors.sessions) == 5
        unreadable = Connection(doors, shared=shared).post(b"{")
        assert (unreadable.status, unreadable.json["error"]["code"]) == (400, -32700)
        ordinary = Connection(doors, shared=shared).post(call(1, a=1, b=2))
        assert (ordinary.status, ordinary.json["error"]["code"]) == (400, -32600)
        assert judged == []

    scene(play)


def test_heads_that_differ_in_their_session_share_a_verdict_and_no_session() -> None:
    async def play(doors: HttpEndpoint) -> None:
        shared = HeadDecision()
        judged: list[HttpRequest] = []
        sessions = [session(doors)[1] for _ in range(3)]
        first = Connection(doors, shared=shared, mcp_session_id=sessions[0])
        assert first.post(call(1, a=1, b=2)).status == 200
        doors.guard.judge = _noting(doors.guard.judge, judged)  # type: ignore[method-assign]
        for identity in sessions[1:]:
            other = Connection(doors, shared=shared, mcp_session_id=identity)
            assert [other.post(call(number, a=1, b=2)).status for number in range(2)] == [200, 200]
        assert judged == []
        doors.sessions.end(next(iter(doors.sessions)))
        ended = Connection(doors, shared=shared, mcp_session_id=sessions[0])
        assert (ended.post(call(1, a=1, b=2)).status, first.post(call(2, a=1, b=2)).status) == (404, 404)

    scene(play)


def test_a_head_that_is_refused_is_refused_on_every_connection() -> None:
    async def play(doors: HttpEndpoint) -> None:
        for status, headers in (
            (403, {"host": "elsewhere.example"}),
            (415, {"content_type": "text/plain"}),
            (406, {"accept": "text/html"}),
        ):
            shared = HeadDecision()
            for _ in range(2):
                assert Connection(doors, shared=shared, **headers).post(INITIALIZE).status == status
            assert shared.take is None

    scene(play)


def test_what_does_not_follow_from_a_head_is_looked_at_each_time() -> None:
    async def play(doors: HttpEndpoint) -> None:
        shared = HeadDecision()
        assert Connection(doors, shared=shared).post(INITIALIZE).status == 200
        too_large = b" " * (doors.settings.max_body_size + 1)
        assert Connection(doors, shared=shared).post(too_large).status == 413
        doors.draining = True
        assert Connection(doors, shared=shared).post(INITIALIZE).status == 503

    scene(play)


def test_no_head_of_a_handshake_is_known_for_all_where_callers_are_verified() -> None:
    async def play(doors: HttpEndpoint) -> None:
        shared = HeadDecision()
        assert Connection(doors, shared=shared).post(INITIALIZE).status == 200
        assert shared.take is None

    scene(play, Roll())


def test_a_certificate_is_verified_though_the_head_of_the_handshake_is_known_for_all() -> None:
    async def play(doors: HttpEndpoint) -> None:
        shared = HeadDecision()
        Connection(doors, shared=shared).post(INITIALIZE)
        admitted: list[HttpRequest] = []
        doors.callers.admit = lambda request, responder, handle: admitted.append(request)  # type: ignore[method-assign]
        Connection(doors, shared=shared).post(INITIALIZE, certificate=Certificate({}))
        assert len(admitted) == 1

    scene(play)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_the_second_request_takes_the_short_way_and_is_answered_alike(era: str) -> None:
    async def play(doors: HttpEndpoint) -> None:
        connection = session(doors)[0] if era == "handshake" else modern(doors)
        meta = None if era == "handshake" else MODERN
        first = connection.post(call(1, a=1, b=2, meta=meta))
        assert connection.decision.take is not None
        second = connection.post(call(2, a=3, b=4, meta=meta))
        assert [first.json["result"]["structuredContent"], second.json["result"]["structuredContent"]] == [
            {"result": 3},
            {"result": 7},
        ]
        assert (first.status, first.head) == (second.status, second.head)

    scene(play)


def test_a_session_that_is_over_is_gone_on_the_short_way_too() -> None:
    """HTL-27: 404, also on a connection that knew it."""

    async def play(doors: HttpEndpoint) -> None:
        connection, _ = session(doors)
        assert connection.post(call(1, a=1, b=2)).status == 200
        doors.sessions.end_all()
        assert connection.post(call(2, a=1, b=2)).status == 404

    scene(play)


def test_what_the_head_does_not_say_of_the_body_is_still_compared() -> None:
    """HDR-4: another tool, another method, another version under the head of a known call."""

    async def play(doors: HttpEndpoint) -> None:
        connection = modern(doors)
        assert connection.post(call(1, a=1, b=2, meta=MODERN)).status == 200
        other = {"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {"_meta": MODERN}}
        newer = {**MODERN, f"{META}protocolVersion": "2099-01-01"}
        wrong = [call(2, "double", a=1, meta=MODERN), other, call(4, a=1, b=2, meta=newer)]
        for message in wrong:
            refused = connection.post(message)
            assert (refused.status, refused.json["error"]["code"]) == (400, -32020)
            assert refused.json["id"] == message["id"]
        assert connection.post(call(5, a=1, b=2)).json["error"]["code"] == -32602
        assert connection.post(b"{").json["error"]["code"] == -32700
        assert connection.post(call(6, a=1, b=2, meta=MODERN)).status == 200

    scene(play)


def test_a_tool_that_wants_headers_now_gets_none_on_the_short_way() -> None:
    """HDR-11: a tool may be replaced while a connection knows its name."""

    async def play(doors: HttpEndpoint) -> None:
        connection = modern(doors)
        assert connection.post(call(1, a=1, b=2, meta=MODERN)).status == 200
        app: Any = doors._acceptor.services.app
        app.remove_tool("add")
        schema = {"type": "object", "properties": {"a": {"type": "integer", "x-mcp-header": "A"}}}

        async def add(a: int = 0, b: int = 0) -> int:
            return a + b

        app.add_tool(add, schema=schema)
        refused = connection.post(call(2, a=1, b=2, meta=MODERN))
        assert (refused.status, refused.json["error"]["code"]) == (400, -32020)

    scene(play)


def test_a_handshake_on_a_connection_that_knew_a_session_opens_another() -> None:
    """SES-10: whatever id the head brings along."""

    async def play(doors: HttpEndpoint) -> None:
        connection, identity = session(doors)
        connection.post(call(1, a=1, b=2))
        opened = connection.post({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": WHO})
        assert b"mcp-session-id: " in opened.head
        assert identity.encode() not in opened.head

    scene(play)


def test_a_server_that_stops_says_so_on_the_short_way_too() -> None:
    async def play(doors: HttpEndpoint) -> None:
        connection = modern(doors)
        assert connection.post(call(1, a=1, b=2, meta=MODERN)).status == 200
        doors.draining = True
        assert connection.post(call(2, a=1, b=2, meta=MODERN)).status == 503

    scene(play)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_sender_is_verified_for_each_request_though_its_head_is_known(era: str) -> None:
    """What was decided about the head stays; who sends it is asked anew, and may be another, or nobody, from now on."""
    roll = Roll()

    async def play(doors: HttpEndpoint) -> None:
        connection = session(doors)[0] if era == "handshake" else modern(doors, "me")
        meta = None if era == "handshake" else MODERN
        for number in (1, 2):
            assert connection.post(call(number, "me", meta=meta)).json["result"]["content"][0]["text"] == "roll#ada"
            assert connection.decision.take is not None
        opening = 1 if era == "handshake" else 0
        assert roll.asked == opening + 2
        roll.verdict = Unauthorized("Unauthorized: not any more")
        assert connection.post(call(3, "me", meta=meta)).status == 401
        roll.verdict = Principal(issuer="roll", subject="bob")
        other = connection.post(call(4, "me", meta=meta))
        if era == "handshake":
            # A session is bound to whoever opened it (SES-04).
            assert other.status == 404
        else:
            assert other.json["result"]["content"][0]["text"] == "roll#bob"

    scene(play, roll)


def test_a_proof_of_possession_is_for_one_request_and_its_head_is_not_remembered() -> None:
    roll = Roll()
    roll.verdict = Principal(issuer="roll", subject="ada", confirmation={"jkt": "thumbprint"})

    async def play(doors: HttpEndpoint) -> None:
        connection = modern(doors)
        assert connection.post(call(1, a=1, b=2, meta=MODERN)).status == 200
        assert connection.decision.take is None

    scene(play, roll)


def test_a_session_is_not_served_to_another_sender_of_the_same_head_however_often_it_asks() -> None:
    """A verdict that was found to be of another sender holds for none of the next requests (SES-04)."""
    roll = Roll()
    roll.keep = 10.0
    now = [1000.0]

    async def run() -> None:
        doors = HttpEndpoint(site(roll).host, EndpointSettings(), bound_to="127.0.0.1", clock=lambda: now[0])
        await doors.start()
        connection = session(doors)[0]
        assert connection.post(call(1, "me")).json["result"]["content"][0]["text"] == "roll#ada"
        roll.verdict = Principal(issuer="roll", subject="bob")
        now[0] += 11
        assert [connection.post(call(number, "me")).status for number in (2, 3, 4)] == [404, 404, 404]
        roll.verdict = Principal(issuer="roll", subject="ada")
        now[0] += 11
        assert connection.post(call(5, "me")).json["result"]["content"][0]["text"] == "roll#ada"
        await doors.close()

    run_in_virtual_time(run())


def test_a_verdict_for_all_connections_keeps_nothing_of_a_request_that_failed() -> None:
    class Failing:
        draining = False

        class stateless:
            @staticmethod
            def take(*_: object) -> None:
                raise OSError("a fault of ours")

        def mirrored(self, tool: str) -> dict[str, Any]:
            return {}

    body = json.dumps(call(1, meta=MODERN)).encode()
    calls = ToolCallVerdict(Failing(), peek(body), b"", None)  # type: ignore[arg-type]
    request = HttpRequest("POST", "/mcp", "", {b"x-api-key": b"secret"}, body, "192.0.2.7", decision=HeadDecision())
    with pytest.raises(OSError, match="ours"):
        calls.take_first(request, Kept())  # type: ignore[arg-type]
    assert calls._sender.headers is not request.headers
    assert not calls._sender.origin.address
