"""How the doors are tested: requests go in as they are, answers are written down, and time is virtual.

Async tests that use `endpoint` run on a clock that jumps; other async tests of this folder run in a loop of their own.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from ferrule import Context, Server
from ferrule.protocol.handshake import NEWEST as HANDSHAKE
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.testing import run_in_virtual_time
from ferrule.transports.http.endpoint.router import HttpEndpoint
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.mirror import mirrored_headers
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.sse import Event, SseParser

PATIENCE = 120.0
FOREVER = 1_000_000.0
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
PLAIN = {"host": "localhost", "content-type": "application/json", "accept": "application/json, text/event-stream"}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test; on the virtual clock if it uses `virtual_time`, where waiting for nothing fails at once."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    if "virtual_time" in pyfuncitem.fixturenames:
        run_in_virtual_time(asyncio.wait_for(pyfuncitem.obj(**given), FOREVER))
    else:
        asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), PATIENCE))
    return True


class Answer:
    """A responder that writes down what it is given, for a peer that may go away or read slowly."""

    def __init__(self) -> None:
        self.status = 0
        self.head = b""
        self.content = b""
        self.writes: list[bytes] = []
        self.streamed = self.over = self.aborted = self.gone = False
        self.backlog = 0
        self.unacknowledged: int | None = None
        self._lost: Callable[[], None] | None = None
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    # -- what the doors use

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        if self.gone:
            return
        assert not self.status, "a second answer"
        self.status, self.head, self.content, self.over = status, head, body, True
        self._note()

    def begin(self, status: int, head: bytes, filler: bytes = b"") -> None:
        if self.gone:
            return
        assert not self.status, "a second answer"
        self.status, self.head, self.streamed = status, head, True
        self._note()

    def write(self, data: bytes) -> None:
        if self.gone or self.over:
            return
        assert self.streamed, "a part before the beginning"
        self.content += data
        self.writes.append(data)
        if not self._room.is_set():
            self.backlog += len(data)
        self._note()

    def finish(self) -> None:
        if not self.gone:
            self.over = True
            self._note()

    def abort(self) -> None:
        """Our own engine tells of an abort a turn later, when the connection is really gone."""
        self.aborted = self.gone = True
        self._room.set()
        self._note()
        asyncio.get_running_loop().call_soon(self._tell_lost)

    def watch(self, lost: Callable[[], None]) -> None:
        self._lost = lost

    async def wait_writable(self) -> None:
        await self._room.wait()

    # -- what the peer does

    def leave(self) -> None:
        """Go away before the answer is finished, or after it."""
        self.gone = True
        self._room.set()
        if not self.over:
            self._tell_lost()

    def stop_reading(self) -> None:
        self._room.clear()

    def read_on(self) -> None:
        self.backlog = 0
        self._room.set()

    def _tell_lost(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            lost()

    # -- what is seen

    def _note(self) -> None:
        self._changed.set()

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("ascii").split("\r\n")
        assert lines.pop() == ""
        return dict(line.split(": ", 1) for line in lines)

    @property
    def is_stream(self) -> bool:
        return self.headers["content-type"] == "text/event-stream"

    @property
    def body(self) -> Any:
        """The one JSON value of the answer."""
        assert self.over, "no answer yet"
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.content)

    @property
    def code(self) -> int | None:
        """The number of the error the body is, None for no error."""
        error = self.body.get("error")
        return None if error is None else error["code"]

    @property
    def events(self) -> list[Event]:
        """The events of a stream, the priming one too."""
        assert self.is_stream
        return SseParser().feed(self.content)

    @property
    def messages(self) -> list[Any]:
        """What was said, as a stream or whole."""
        if self.is_stream:
            return [json.loads(event.data) for event in self.events if event.data]
        return self.body if isinstance(self.body, list) else [self.body]

    @property
    def ids(self) -> list[str]:
        return [event.id for event in self.events]

    @property
    def last_id(self) -> str:
        return self.ids[-1]

    def result(self) -> Any:
        """The result the answer ends with."""
        assert self.over, "no answer yet"
        return self.messages[-1]["result"]

    @property
    def text(self) -> str:
        return self.result()["content"][0]["text"]

    async def whole(self) -> Answer:
        """Wait until the answer is finished."""
        return await self.until(lambda: self.over)

    async def until(self, true: Callable[[], Any]) -> Answer:
        """Wait until something holds that what is written decides."""
        while not true():
            self._changed.clear()
            await self._changed.wait()
        return self

    async def said(self, method: str, times: int = 1) -> Any:
        """Wait until a message that names a method was said so many times; gives the last of them."""

        def heard() -> list[Any]:
            return [m for m in self.messages if m.get("method") == method] if self.status else []

        await self.until(lambda: len(heard()) >= times)
        return heard()[times - 1]


class Endpoint:
    """The doors of one server, without a network: `async with endpoint(app, quiet=1) as doors`."""

    def __init__(self, app: Server, *, bound_to: str = "127.0.0.1", log: Any = None, **settings: Any) -> None:
        self.app = app
        self.doors = HttpEndpoint(app.host, EndpointSettings(**settings), bound_to=bound_to, log=log)

    async def __aenter__(self) -> Endpoint:
        await self.doors.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.doors.close()

    def send(
        self,
        method: str,
        body: bytes = b"",
        path: str = "/mcp",
        headers: Any = None,
        *,
        plain: bool = True,
        secure: bool = False,
    ) -> Answer:
        """Send any request at all; `plain` adds the headers of an honest one, and None takes one away."""
        given = {**(PLAIN if plain else {}), **(headers or {})}
        raw = {
            name.lower().encode(): value if isinstance(value, bytes) else value.encode("latin-1")
            for name, value in given.items()
            if value is not None
        }
        return self.take(HttpRequest(method, path, "", raw, body, "192.0.2.1", secure))

    def take(self, request: HttpRequest) -> Answer:
        """Take a request as a front end made it."""
        answer = Answer()
        self.doors.handle(request, answer)
        return answer

    def post(self, message: Any, **headers: Any) -> Answer:
        """Post a JSON value, or bytes as they are; headers are given with underscores."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.send("POST", body, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def initialize(self, version: str = HANDSHAKE.version, capabilities: Any = None, **headers: Any) -> Answer:
        """Ask for a session."""
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "tester", "version": "1"},
        }
        return self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, **headers)

    def client(self, era: str = "handshake", **options: Any) -> Client:
        """Return a client of either era, its handshake made."""
        return Client(self, era, **options)

    async def settle(self, turns: int = 20) -> None:
        """Let whatever is due happen, without letting time pass."""
        for _ in range(turns):
            await asyncio.sleep(0)


class Client:
    """Someone who asks: in a session, or bringing along what every request needs."""

    def __init__(
        self, endpoint: Endpoint, era: str = "handshake", *, version: str = "", capabilities: Any = None
    ) -> None:
        self.endpoint = endpoint
        self.stateless = era == "stateless"
        self.version = version or (STATELESS if self.stateless else HANDSHAKE).version
        self.capabilities = capabilities or {}
        self.session: str | None = None
        self._ids = itertools.count(1)
        if not self.stateless:
            opened = endpoint.initialize(self.version, capabilities)
            assert opened.status == 200, opened.content
            assert opened.result()["protocolVersion"] == self.version
            self.session = opened.headers.get("mcp-session-id")
            assert self.tell("notifications/initialized").status == 202

    def headers(self, method: str = "", params: Any = None) -> dict[str, Any]:
        if self.stateless:
            mirrored = mirrored_headers(method, params or {}, version=self.version)
            return {name.lower(): value for name, value in mirrored.items()}
        session = {} if self.session is None else {"mcp-session-id": self.session}
        return {"mcp-protocol-version": self.version, **session}

    def ask(
        self,
        method: str,
        params: Any = None,
        *,
        id: Any = None,  # noqa: A002
        meta: Any = None,
        headers: Any = None,
    ) -> Answer:
        """Send a request."""
        own = dict(meta or {})
        if self.stateless:
            own = {VERSION_KEY: self.version, CAPABILITIES_KEY: self.capabilities, **own}
        params = {**(params or {}), **({"_meta": own} if own else {})}
        identity = next(self._ids) if id is None else id
        message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
        return self.send(message, **{**self.headers(method, params), **(headers or {})})

    def send(self, message: Any, **headers: Any) -> Answer:
        """Post anything at all."""
        return self.endpoint.post(message, **(headers or self.headers()))

    def call(self, name: str, arguments: Any = None, *, token: Any = None, **options: Any) -> Answer:
        """Call a tool; `token` asks for progress."""
        meta = {} if token is None else {"progressToken": token}
        return self.ask("tools/call", {"name": name, "arguments": arguments or {}}, meta=meta, **options)

    def tell(self, method: str, params: Any = None) -> Answer:
        """Send a notification."""
        message = {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}
        return self.send(message, **self.headers(method, params))

    def reply(self, asked: Any, result: Any) -> Answer:
        """Answer a question of the server's."""
        return self.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    def cancel(self, identity: Any) -> Answer:
        return self.tell("notifications/cancelled", {"requestId": identity})

    def get(self, last: str | None = None, **headers: Any) -> Answer:
        """Open the session's own stream, or come back for another."""
        resume = {} if last is None else {"last-event-id": last}
        return self.endpoint.send("GET", headers={**self.headers(), "accept": "text/event-stream", **resume, **headers})

    def delete(self) -> Answer:
        """End the session."""
        return self.endpoint.send("DELETE", headers=self.headers())


@pytest.fixture
def endpoint(virtual_time: None) -> type[Endpoint]:
    """The doors of a server, driven by hand."""
    return Endpoint


@pytest.fixture
def answering(virtual_time: None) -> type[Answer]:
    """A responder that writes down what it is given."""
    return Answer


class Workshop(Server):
    """A server with tools that wait, tell, ask and fail, and a book of what became of their calls."""

    def __init__(self, **options: Any) -> None:
        super().__init__("workshop", version="1", **options)
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        for tool in (self.echo, self.rest, self.count, self.hold, self.ask_name, self.fail, self.headers, self.poll):
            self.add_tool(tool)
        self.add_resource("note://one", lambda: "one", name="one")

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    async def echo(self, text: str) -> str:
        """Return the text back."""
        return text

    async def rest(self, seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return f"rested {seconds:g} s"

    async def count(self, ctx: Context, to: int, pause: float = 0.0) -> str:
        """Tell progress so many times."""
        for number in range(1, to + 1):
            await ctx.report_progress(number, to)
            await asyncio.sleep(pause)
        return f"counted to {to}"

    async def hold(self, ctx: Context, name: str, tell: int = 0) -> str:
        """Wait until the gate of this name is opened; before, tell progress so many times."""
        self.begun.append(name)
        try:
            for number in range(1, tell + 1):
                await ctx.report_progress(number)
            await self.gate(name).wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        self.ended.append(name)
        await ctx.report_progress(tell + 1)
        return f"held {name}"

    async def ask_name(self, ctx: Context) -> str:
        """Ask the user for a name."""
        return "hello " + str(await ctx.ask("Your name?", str, key="name"))

    async def fail(self) -> str:
        """Fail."""
        raise LookupError("no such thing")

    async def headers(self, ctx: Context, name: str) -> str:
        """Return a header of the request."""
        return ctx.headers.get(name, "none")

    async def poll(self, ctx: Context, seconds: float) -> str:
        """Let go of the connection, work, and be done."""
        await ctx.close_stream()
        await asyncio.sleep(seconds)
        await ctx.report_progress(1)
        return "polled"


@pytest.fixture
def app() -> Workshop:
    """A server with tools that wait, tell, ask and fail."""
    return Workshop()


@pytest.fixture
def workshop() -> type[Workshop]:
    """Such a server with options of its own."""
    return Workshop
