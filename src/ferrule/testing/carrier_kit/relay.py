"""A wire one can cut and hold: bytes pass through it, to a listener, as they came."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from ferrule.supervision.scope import Scope

BUFFER = 64 * 1024
"""What the system may hold on each side: little, so that a sender soon learns that nobody reads."""

HARD_END = struct.pack("ii", 1, 0)


class Half(asyncio.Protocol):
    """One side of a relayed connection; what it reads is written to the other."""

    transport: asyncio.Transport

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.other: Half | None = None
        self.gone = False
        self.made: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note where to write."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(BUFFER)
        self._relay.halves.add(self)
        if self._relay.held or self.other is None:
            self.transport.pause_reading()
        self.made.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        if self.other is not None and not self.other.gone:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Pass an end on."""
        if self.other is not None and not self.other.gone and self.other.transport.can_write_eof():
            self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        """Read no more than the other side takes."""
        if self.other is not None and not self.other.gone:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
        if self.other is not None and not self.other.gone and not self._relay.held:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """End the other side too."""
        self.gone = True
        self._relay.halves.discard(self)
        if self.other is not None and not self.other.gone:
            self.other.transport.close()

    def cut(self) -> None:
        """Reset the connection: whoever is at its end is told nothing in order."""
        plug: socket.socket = self.transport.get_extra_info("socket")
        if plug.family != socket.AF_UNIX:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, HARD_END)
        self.transport.abort()


class Relay:
    """Listens at a place of its own and passes everything on to a host and port, or to a socket's path."""

    def __init__(self, target: tuple[str, int] | str) -> None:
        self._target = target
        self._scope = Scope(asyncio.get_running_loop())
        self.halves: set[Half] = set()
        self.held = False
        self.taken = 0
        """How many connections were taken so far."""
        self.address: tuple[str, int] = ("", 0)
        self.path = ""

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        if isinstance(self._target, str):
            self.path = f"{self._target}.relay"
            self._server = await loop.create_unix_server(self._take, self.path)
            return
        # Of this very protocol by name: else asyncio would not know that what is written must be sent at once.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.bind((self._target[0], 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        self.address = listening.getsockname()[:2]
        self._server = await loop.create_server(self._take, sock=listening)

    def _take(self) -> Half:
        near = Half(self)
        self.taken += 1
        self._scope.spawn(self._reach(near))
        return near

    async def _reach(self, near: Half) -> None:
        loop = asyncio.get_running_loop()
        far = Half(self)
        far.other = near
        await near.made
        try:
            if isinstance(self._target, str):
                await loop.create_unix_connection(lambda: far, self._target)
            else:
                await loop.create_connection(lambda: far, *self._target)
        except OSError:
            near.transport.abort()
            return
        near.other = far
        if near.gone:
            far.transport.close()
        elif not self.held:
            near.transport.resume_reading()

    def cut(self) -> None:
        """Reset every connection."""
        for half in list(self.halves):
            half.cut()

    def hold(self) -> None:
        """Let nothing pass."""
        self.held = True
        for half in self.halves:
            half.transport.pause_reading()

    def release(self) -> None:
        """Let everything pass again."""
        self.held = False
        for half in self.halves:
            if half.other is not None:
                half.transport.resume_reading()

    async def close(self) -> None:
        """End everything."""
        self._server.close()
        await self._scope.close()
        for half in list(self.halves):
            half.transport.abort()
        # A transport closes its socket in the next turn of the loop.
        await asyncio.sleep(0)
        if self.path:
            Path(self.path).unlink(missing_ok=True)  # noqa: ASYNC240 - a socket's file is gone at once


@asynccontextmanager
async def relayed(target: tuple[str, int] | str) -> AsyncIterator[Relay]:
    """Set a relay before a listener."""
    relay = Relay(target)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.close()
