"""Outbox: what one node says to another, in order, as much at once as fits into a notice."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ferrule.errors import Busy
from ferrule.stores.contracts import Bus
from ferrule.transports.http.cluster.frames import LONGEST_FRAME, LONGEST_NOTICE, PIECE, Frame, pack

TOPIC = "requests"
HIGH = 512 * 1024
"""Bytes that wait before whoever writes a stream has to wait."""
OVERHEAD = 32
"""Bytes of a frame besides its content, at most."""


class Outbox:
    """The way to one node. One notice is on its way at a time; what comes meanwhile goes together with the next."""

    def __init__(self, bus: Bus, node: str, lost: Callable[[str], None]) -> None:
        self._bus = bus
        self.node = node
        self._lost = lost
        """Called with the node where what was said may not have arrived."""
        self._waiting: deque[Frame] = deque()
        self.backlog = 0
        """Bytes that wait or are on their way."""
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def send(self, kind: int, exchange: int, content: bytes = b"") -> None:
        """Say something; never waits."""
        while len(content) > LONGEST_FRAME:
            self._put(Frame(PIECE, exchange, content[:LONGEST_FRAME]))
            content = content[LONGEST_FRAME:]
        self._put(Frame(kind, exchange, content))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    def _put(self, frame: Frame) -> None:
        self._waiting.append(frame)
        self.backlog += len(frame.content) + OVERHEAD
        if self.backlog > HIGH:
            self._room.clear()

    async def wait_writable(self) -> None:
        """Return at once unless much waits to be sent."""
        await self._room.wait()

    async def close(self) -> None:
        """Send what waits, and no more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _deliver(self) -> None:
        try:
            while self._waiting:
                frames, size = self._next()
                if not await self._arrives(pack(frames)):
                    self._drop()
                    self._lost(self.node)
                    return
                self._sent(size)
        finally:
            self._task = None
            self._room.set()

    def _next(self) -> tuple[list[Frame], int]:
        frames: list[Frame] = []
        size = 0
        while self._waiting:
            each = len(self._waiting[0].content) + OVERHEAD
            if frames and size + each > LONGEST_NOTICE:
                break
            frames.append(self._waiting.popleft())
            size += each
        return frames, size

    async def _arrives(self, body: bytes) -> bool:
        try:
            return await self._bus.deliver(self.node, TOPIC, body)
        except Busy:
            return False

    def _sent(self, size: int) -> None:
        self.backlog -= size
        if self.backlog <= HIGH:
            self._room.set()

    def _drop(self) -> None:
        self._waiting.clear()
        self.backlog = 0
