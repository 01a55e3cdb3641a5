"""An HTTP/2 connection of our engine in memory: no sockets, and a clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from hyperframe.frame import Frame

from ferrule.transports.backpressure import backlog as unread
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.engine.http2.connection import Http2Connection
from ferrule.transports.http.engine.http2.stream import Stream
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.settings import EngineSettings, Http2Settings
from http2_peer import Http2Peer, new_client

BEGINNING = 100.0
"""What the clock says first."""


class Wire(asyncio.Transport):
    """A transport that keeps what is written, and notes how it is treated."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.size = 0
        """Bytes written, in all."""
        self.held = 0
        """Bytes the peer has not taken."""
        self.calls: list[str] = []
        self.half_closes = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert "write_eof" not in self.calls, "nothing may be written behind the end"
        self.written += bytes(data)
        self.size += len(data)

    def get_write_buffer_size(self) -> int:
        return self.held

    def can_write_eof(self) -> bool:
        return self.half_closes

    def write_eof(self) -> None:
        self.calls.append("write_eof")

    def pause_reading(self) -> None:
        self.calls.append("pause_reading")

    def resume_reading(self) -> None:
        self.calls.append("resume_reading")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    @property
    def closed(self) -> bool:
        return "close" in self.calls


class MemoryPeer(Http2Peer):
    """A client with a connection of its own; every request waits for the test to answer it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        says: bool = True,
        client: dict[str, int] | None = None,
        max_streams: int = 100,
        window: int = 65_535,
        max_body_size: int = 100_000,
        draining: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(cast("Any", None), cast("Any", None), new_client(**(client or {})))
        self.speaks = says
        self.loop = loop
        self.requests: list[HttpRequest] = []
        self.owed: list[Stream] = []
        self.lost = 0
        self.wire = Wire()
        self.handler: Callable[[Stream], None] = lambda stream: None
        engine = Engine(self.handle, EngineSettings(port=0, **options), max_body_size=max_body_size)
        self.engine_state = engine._engine_state
        self.engine_state.tick(BEGINNING)
        self.engine_state.draining = draining
        settings = Http2Settings(max_streams=max_streams, window=window)
        self.connection = Http2Connection(self.engine_state, settings, loop)
        self.connection.connection_made(self.wire)
        self.flush()

    def handle(self, request: HttpRequest, responder: Any) -> None:
        self.requests.append(request)
        self.owed.append(responder)
        responder.watch(self.lose)
        self.handler(responder)

    def lose(self) -> None:
        self.lost += 1

    def flush(self) -> None:
        """Say what the protocol has to say, and hear what is answered."""
        if self.speaks:
            self.say(self.client.data_to_send())

    def say(self, *frames: Frame | bytes) -> None:
        """Send frames as they are, together, and hear what is answered."""
        data = b"".join(frame if isinstance(frame, bytes) else frame.serialize() for frame in frames)
        if data:
            self.connection.data_received(data)
        self.listen()

    def listen(self) -> None:
        """Hear what was written meanwhile."""
        written = self.wire.written
        self.wire.written = b""
        if written:
            self.hear(written)

    def turn(self) -> None:
        """Let the loop have one turn."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        self.listen()

    def at(self, now: float) -> None:
        """Set the clock, and sweep."""
        self.engine_state.tick(now)
        self.connection.sweep(now)
        self.listen()


@contextmanager
def in_memory(**options: Any) -> Iterator[MemoryPeer]:
    """Run a connection; afterwards nothing is held for it any more."""
    loop = asyncio.new_event_loop()
    peer = MemoryPeer(loop, **options)
    peer.listen()
    try:
        yield peer
    finally:
        peer.connection.connection_lost(None)
        loop.close()
    assert peer.engine_state.requests.held == 0
    assert len(unread) == 0
    assert peer.connection._streams == peer.connection.out._sending == {}
