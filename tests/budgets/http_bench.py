"""A server over HTTP in memory: the real engine, connections and endpoint, on transports that only note what happens.

No socket is open, so a virtual clock need not wait for the system.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ferrule import Server
from ferrule.protocol.handshake import NEWEST as HANDSHAKE
from ferrule.stores.contracts import EventLog
from ferrule.supervision.scope import Scope
from ferrule.transports.http.endpoint.router import HttpEndpoint
from ferrule.transports.http.endpoint.sessions import EndpointSession
from ferrule.transports.http.engine.connection import Connection
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.message import Handle, HttpRequest, Responder
from ferrule.transports.http.settings import EndpointSettings, EngineSettings

HEAD = "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"
BOTH = "application/json, text/event-stream"
STEPS = 100
"""How often a thing is looked at within the time it may last."""


class Wire(asyncio.Transport):
    """The transport of a connection in memory: keeps what is written, and notes how it is treated."""

    def __init__(self, sock: socket.socket | None = None) -> None:
        super().__init__({"socket": sock})
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.BaseProtocol | None = None
        self.sent = b""
        self.largest = 0
        """Bytes of the largest piece that was written."""
        self.held = 0
        """Bytes the peer has not taken; once there are some, it takes nothing more."""
        self.reading = True
        self.ended = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data
        self.largest = max(self.largest, len(data))
        if self.held:
            self.held += len(data)

    def get_write_buffer_size(self) -> int:
        return self.held

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def close(self) -> None:
        if not self.ended:
            self.ended = True
            assert self._protocol is not None
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close


class Peer:
    """One HTTP/1.1 connection to an engine."""

    def __init__(self, engine: Engine, sock: socket.socket | None = None) -> None:
        self.wire = Wire(sock)
        self.connection = Connection(engine._engine_state, asyncio.get_running_loop())
        self.wire.set_protocol(self.connection)
        self.connection.connection_made(self.wire)
        self.feed = self.connection.data_received

    @property
    def status(self) -> int:
        """The status of the first answer since the last request; 0 while there is none."""
        if not self.wire.sent:
            return 0
        return int(self.wire.sent.split(b" ", 2)[1])

    def header(self, name: str) -> str:
        """Return a header of the answer; empty where it has none of that name."""
        head = self.wire.sent.partition(b"\r\n\r\n")[0].decode()
        found = [line.partition(": ")[2] for line in head.split("\r\n") if line.startswith(f"{name}: ")]
        return "".join(found)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> int:
        """Send a request; return the status of the answer, 0 where none has begun."""
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        if body:
            lines += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.wire.sent = b""
        self.feed(HEAD.format(method=method, path=path, lines=lines).encode() + body)
        return self.status


def message(method: str, params: dict[str, Any], identity: int | None = 1) -> bytes:
    """Write a request, or a notification."""
    named = {} if identity is None else {"id": identity}
    return json.dumps({"jsonrpc": "2.0", **named, "method": method, "params": params}).encode()


def introduction(size: int = 0) -> bytes:
    """Write an `initialize`, of so many bytes where it is to be longer than it must."""
    client = {"name": "probe", "version": "1"}
    params = {"protocolVersion": HANDSHAKE.version, "capabilities": {}, "clientInfo": client, "_meta": {"x": ""}}
    params["_meta"] = {"x": "x" * (size - len(message("initialize", params)))}
    return message("initialize", params)


class Site:
    """A server, and its clients."""

    def __init__(self, endpoint: HttpEndpoint, engine: Engine) -> None:
        self.endpoint = endpoint
        self.engine = engine

    def peer(self, sock: socket.socket | None = None) -> Peer:
        """Open a connection."""
        return Peer(self.engine, sock)

    def greeted(self, size: int = 0) -> str:
        """Open a session, with an `initialize` of so many bytes; return its id, empty where it was refused."""
        peer = self.peer()
        assert peer.ask("POST", "/mcp", introduction(size), accept=BOTH) == 200
        return peer.header("mcp-session-id")

    def session(self, identity: str) -> EndpointSession:
        """Return a session that is open."""
        return self.endpoint.sessions._open[identity]

    def stream(self, identity: str, last: str = "", peer: Peer | None = None) -> Peer:
        """Open the stream of a session, or come back for what followed an event of it."""
        reader = peer or self.peer()
        resumed = {"last_event_id": last} if last else {}
        reader.ask("GET", "/mcp", accept="text/event-stream", mcp_session_id=identity, **resumed)
        return reader


@asynccontextmanager
async def serving(
    app: Server | None = None,
    *,
    log: EventLog | None = None,
    engine: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Site]:
    """Serve without a socket; the options are those of `EndpointSettings`, and for the engine its own."""
    host = (app or Server("probed")).host
    endpoint = HttpEndpoint(host, EndpointSettings(metrics=False, **settings), bound_to="127.0.0.1", log=log)
    site = Site(endpoint, new_engine(endpoint.handle, **(engine or {})))
    await endpoint.start()
    try:
        yield site
    finally:
        await endpoint.close()
        stop(site.engine)


def new_engine(handle: Handle | None = None, **options: Any) -> Engine:
    """Return an engine that looks at deadlines and listens nowhere; without a function it answers nothing."""
    made = Engine(handle or owe, EngineSettings(port=0, **options), max_body_size=100 * 2**20)
    # What `start` does beside listening.
    made._loop = asyncio.get_running_loop()
    made._scope = Scope(made._loop)
    made._sweep()
    return made


def stop(engine: Engine) -> None:
    """End an engine that listens nowhere."""
    if engine._sweeping is not None:
        engine._sweeping.cancel()
    for connection in list(engine._engine_state.connections):
        connection.connection_lost(None)  # type: ignore[attr-defined]


def owe(request: HttpRequest, responder: Responder) -> None:
    """Take a request, and never answer it."""


def answer(request: HttpRequest, responder: Responder) -> None:
    """Answer a request at once."""
    responder.reply(200, b"", b"ok")


async def stands(true: Callable[[], bool], lasts: float, passes: float) -> bool:
    """Let time pass, as long as something is true that may last so long. Return whether it still is."""
    loop = asyncio.get_running_loop()
    until = loop.time() + passes
    while true() and loop.time() < until:
        await asyncio.sleep(min(lasts / STEPS, until - loop.time()))
    return true()


async def turns(count: int = 20) -> None:
    """Let whatever is due happen, without letting time pass."""
    for _ in range(count):
        await asyncio.sleep(0)
