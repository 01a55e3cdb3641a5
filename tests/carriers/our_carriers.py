"""Every transport of ours, as the kit wants it described."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import uvicorn
from certificates import write_certificate

from ferrule import CarrierError, Http, Tcp, Unix, WebSocket
from ferrule.testing.carrier_kit import Carrier, FarSide, Stand, Wire, relayed, serving
from ferrule.testing.carrier_kit.bounds import LONG, LONG_ONES
from ferrule.transports.contract import Acceptor
from ferrule.transports.http.asgi.app import AsgiApp
from ferrule.transports.http.client.old_sse import SseTransport
from ferrule.transports.http.client.transport import HttpTransport
from ferrule.transports.http.listener import Sse
from ferrule.transports.memory import Memory
from ferrule.transports.process.child import ChildProcess
from ferrule.transports.tcp.transport import TcpTransport
from ferrule.transports.websocket.client import WebSocketTransport

ANY_PORT = {"host": "127.0.0.1", "port": 0}
FAR_SIDE = [sys.executable, str(Path(__file__).with_name("stdio_far_side.py"))]

ONE_BY_ONE = "every message is a request of its own, on whichever connection is free"
NO_WIRE = "a cut ends the requests under way, not the conversation: the next one opens a connection"


class InMemory(Carrier):
    name = "memory"
    lacks: ClassVar = {
        "back-pressure": "what is sent is received at once: nothing can wait",
        "wire": "both ends are in one process: nothing lies between them",
        "half-close": "both ends close together",
        "their limit": "both ends have one limit",
    }

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        await far.enter()
        try:
            yield Stand(transport=lambda limit: Memory(far, max_message_size=limit))
        finally:
            await far.leave()


class Children:
    """Child processes that were started, and what can be done to them."""

    def __init__(self) -> None:
        self.started: list[ChildProcess] = []
        self.bare: list[asyncio.subprocess.Process] = []

    def transport(self, limit: int, far_limit: int) -> ChildProcess:
        child = ChildProcess([*FAR_SIDE, str(far_limit)], max_message_size=limit, stderr="capture", grace=0.3)
        self.started.append(child)
        return child

    def signal(self, number: int) -> None:
        for child in self.started:
            if child.pid is not None and child.exit_code is None:
                os.kill(child.pid, number)

    async def wire(self, far_limit: int) -> Wire:
        process = await asyncio.create_subprocess_exec(
            *FAR_SIDE, str(far_limit), stdin=-1, stdout=-1, stderr=asyncio.subprocess.DEVNULL
        )
        assert process.stdout is not None
        assert process.stdin is not None
        self.bare.append(process)
        return process.stdout, process.stdin

    async def end(self) -> None:
        for process in self.bare:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


class StdioChild(Carrier):
    name = "stdio"
    newline_framed = True

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        children = Children()
        try:
            yield Stand(
                transport=lambda limit: children.transport(limit, max_message_size),
                cut=lambda: children.signal(signal.SIGKILL),
                hold=lambda: children.signal(signal.SIGSTOP),
                release=lambda: children.signal(signal.SIGCONT),
                visible=False,
                holds_both_ways=False,
                wire=lambda: children.wire(max_message_size),
            )
        finally:
            await children.end()


class OverTcp(Carrier):
    name = "tcp"
    newline_framed = True
    after_oversize = "closed"

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        listener = Tcp(**ANY_PORT, max_message_size=max_message_size)
        async with serving(listener, far), relayed(listener.address) as relay:
            where = f"tcp://127.0.0.1:{relay.address[1]}"
            yield Stand(
                transport=lambda limit: TcpTransport(where, max_message_size=limit),
                listener=listener,
                cut=relay.cut,
                hold=relay.hold,
                release=relay.release,
                wire=lambda: asyncio.open_connection(*listener.address, limit=2**20),
            )


@cache
def certificate() -> tuple[str, str]:
    """Make one certificate for all."""
    folder = tempfile.mkdtemp(prefix="ferrule-carriers-")
    atexit.register(shutil.rmtree, folder)
    return write_certificate(Path(folder))


class OverTls(Carrier):
    name = "tls"
    origin = "tcp"
    newline_framed = True
    after_oversize = "closed"
    lacks: ClassVar = {"half-close": "who ends one direction of TLS ends both"}

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        cert, key = certificate()
        context = ssl.create_default_context(cafile=cert)
        listener = Tcp(**ANY_PORT, certificate=cert, private_key=key, max_message_size=max_message_size)
        async with serving(listener, far), relayed(listener.address) as relay:
            where = f"tls://127.0.0.1:{relay.address[1]}"
            yield Stand(
                transport=lambda limit: TcpTransport(where, ca=cert, server_name="localhost", max_message_size=limit),
                listener=listener,
                cut=relay.cut,
                hold=relay.hold,
                release=relay.release,
                wire=lambda: asyncio.open_connection(
                    *listener.address, ssl=context, server_hostname="localhost", limit=2**20
                ),
            )


class OverUnix(Carrier):
    name = "unix"
    newline_framed = True
    after_oversize = "closed"

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/s"
            listener = Unix(path, max_message_size=max_message_size)
            async with serving(listener, far), relayed(path) as relay:
                yield Stand(
                    transport=lambda limit: TcpTransport(f"unix:{relay.path}", max_message_size=limit),
                    listener=listener,
                    cut=relay.cut,
                    hold=relay.hold,
                    release=relay.release,
                    wire=lambda: asyncio.open_unix_connection(path, limit=2**20),
                )


class OverWebSocket(Carrier):
    name = "websocket"
    after_oversize = "closed"
    lacks: ClassVar = {"half-close": "a WebSocket has no half-closed state"}

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        listener = WebSocket(**ANY_PORT, max_message_size=max_message_size)
        async with serving(listener, far), relayed(listener.address) as relay:
            where = f"ws://127.0.0.1:{relay.address[1]}/mcp/ws"
            yield Stand(
                transport=lambda limit: WebSocketTransport(where, max_message_size=limit),
                listener=listener,
                cut=relay.cut,
                hold=relay.hold,
                release=relay.release,
                wire=lambda: asyncio.open_connection(*listener.address),
            )


class OverHttp(Carrier):
    """Streamable HTTP on our own engine, with a session."""

    name = "http session"
    origin = "http"
    lacks: ClassVar = {
        "order": ONE_BY_ONE,
        "one wire": NO_WIRE,
        "half-close": "a request is over when it is answered: there is nothing to keep half open",
    }

    def listener(self, max_message_size: int, **options: Any) -> Any:
        return Http(**ANY_PORT, max_body_size=max_message_size, **options)

    def transport(self, place: str, limit: int) -> Any:
        return HttpTransport(f"http://{place}/mcp", max_message_size=limit, retry_delay=0.01)

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        listener = self.listener(max_message_size)
        async with serving(listener, far), relayed(listener.address) as relay:
            yield Stand(
                transport=lambda limit: self.transport(f"127.0.0.1:{relay.address[1]}", limit),
                listener=listener,
                cut=relay.cut,
                hold=relay.hold,
                release=relay.release,
                wire=lambda: asyncio.open_connection(*listener.address),
            )


class OverHttpStateless(OverHttp):
    name = "http stateless"
    era = "stateless"
    lacks: ClassVar = {**OverHttp.lacks, "push": "nobody is known between two requests, so there is nobody to tell"}


class OnUvicorn:
    """The ASGI app on a server of somebody else's, as a listener."""

    def __init__(self, max_body_size: int) -> None:
        self._limit = max_body_size
        self.address = ("127.0.0.1", 0)
        self._server: uvicorn.Server | None = None

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        app = AsgiApp(acceptor, 5.0, max_body_size=self._limit)
        config = uvicorn.Config(
            app, port=0, log_config=None, log_level="critical", ws="none", timeout_graceful_shutdown=2
        )
        server = self._server = uvicorn.Server(config)
        serving = asyncio.ensure_future(self._run(server))
        while not (server.started or serving.done()):
            await asyncio.sleep(0.005)
        if serving.done():
            serving.result()
        self.address = server.servers[0].sockets[0].getsockname()[:2]
        ready()
        await serving

    async def _run(self, server: uvicorn.Server) -> None:
        try:
            await server._serve()
        except SystemExit as reason:
            raise CarrierError("uvicorn did not start") from reason

    async def close(self, grace: float) -> None:
        assert self._server is not None
        self._server.should_exit = True
        while self._server.started and not self._server.lifespan.shutdown_event.is_set():
            await asyncio.sleep(0.01)


class OverAsgi(OverHttp):
    name = "http asgi"

    def listener(self, max_message_size: int, **options: Any) -> Any:
        return OnUvicorn(max_message_size)


class OverAsgiStateless(OverAsgi):
    name = "http asgi stateless"
    era = "stateless"
    lacks: ClassVar = OverHttpStateless.lacks


class OverSse(OverHttp):
    """The HTTP+SSE pair: posts one way, one stream the other."""

    name = "sse"
    lacks: ClassVar = {"order": ONE_BY_ONE, "half-close": "the stream is the link: without it there is no conversation"}

    def listener(self, max_message_size: int, **options: Any) -> Any:
        # All answers share one stream, whose reader may lag by what the rules ask for at once.
        lag = 2 * LONG * LONG_ONES
        return Sse(**ANY_PORT, max_body_size=max_message_size, sse_grace=0.2, max_stream_backlog=lag, **options)

    def transport(self, place: str, limit: int) -> Any:
        return SseTransport(f"http://{place}/sse", max_message_size=limit)


CARRIERS: tuple[Carrier, ...] = (
    InMemory(),
    StdioChild(),
    OverTcp(),
    OverTls(),
    OverUnix(),
    OverHttp(),
    OverHttpStateless(),
    OverAsgi(),
    OverSse(),
    OverWebSocket(),
)
