"""A server with listeners in this very process, and raw peers for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from ferrule import Server
from ferrule.transports.tcp.listener import SocketListener, Tcp
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.messages import Id

Run = Callable[[Coroutine[Any, Any, None]], None]

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    """Make a request that calls a tool."""
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def line(*messages: Any) -> bytes:
    """Write messages, one a line."""
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


async def until(condition: Callable[[], Any]) -> None:
    """Wait for something to become true."""
    while not condition():
        await asyncio.sleep(0.002)


def at_work(app: Server) -> bool:
    """Return whether a call runs."""
    return any(app.host.busy(link) for link in app.host.links)


def make_app(**options: Any) -> Server:
    """Make a server with tools that answer at once, wait, or tell who asks."""
    app = Server("desk", version="1.0.0", **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "waited"

    return app


@asynccontextmanager
async def serving(app: Server, *listeners: SocketListener) -> AsyncIterator[None]:
    """Serve while the block runs; afterwards nothing is left: no place, no task."""
    before = asyncio.all_tasks()
    await app.enter()
    serves = []
    for listener in listeners:
        ready = asyncio.Event()
        serves.append(asyncio.ensure_future(listener.serve(app.host, ready.set)))
        # No time limit: names are looked up in a thread, and virtual time would run away meanwhile.
        begun = asyncio.ensure_future(ready.wait())
        await asyncio.wait([begun, serves[-1]], return_when=asyncio.FIRST_COMPLETED)
        if serves[-1].done():
            serves[-1].result()
    try:
        yield
    finally:
        for listener in listeners:
            await listener.close(1.0)
        await asyncio.gather(*serves)
        await app.leave()
    assert [listener.occupancy.current for listener in listeners] == [0] * len(listeners)
    assert len(app.host.links) == 0
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()


class Peer:
    """A client that speaks bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def reach(cls, listener: Tcp, **options: Any) -> Peer:
        """Connect."""
        return cls(*await asyncio.open_connection(*listener.address, limit=1 << 25, **options))

    def send(self, *messages: Any) -> None:
        """Send messages, one a line."""
        self.writer.write(line(*messages))

    async def read(self) -> Any:
        """Read one message."""
        return json.loads(await self.reader.readline())

    async def ask(self, message: Any) -> Any:
        """Send a request and read its answer."""
        self.send(message)
        while (answer := await self.read()).get("id") != message["id"]:
            pass
        return answer

    async def open(self) -> Peer:
        """Make the handshake."""
        assert "result" in await self.ask(INITIALIZE)
        return self

    async def close(self) -> None:
        """Leave."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class Notes:
    """A receiver that writes down what it is told."""

    def __init__(self) -> None:
        self.opened: list[Channel] = []
        self.frames: list[bytes] = []
        self.losses: list[Exception | None] = []

    def channel_opened(self, channel: Channel) -> None:
        self.opened.append(channel)

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        self.frames.append(frame)
        return False

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        self.frames.append(b"refused")

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        raise AssertionError("a socket fails as a whole")

    def end_received(self, channel: Channel) -> None:
        pass

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.losses.append(error)
