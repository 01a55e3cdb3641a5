"""One connection between two workers: frames in order, some with a descriptor.

Rule 1: nothing waits. What the system does not take at once is kept in order, within a bound; beyond it the pipe is
cut.
Rule 2: the length of a frame is checked before anything of it is kept.
Rule 3: a descriptor goes with its own frame. Where one was lost because this process has too many open, the pipe is
cut: the next one would be taken for it, and one client would read what is for another.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from ferrule.transports.http.cluster.frames import LONGEST_CONTENT
from ferrule.transports.sockets.accept import AcceptedSocket

HEADER = struct.Struct("!BIQ")
"""The kind of a frame, the exchange it belongs to, the length of what follows."""
MAX_UNSENT = 64 * 1024 * 1024
"""Bytes that may wait for the other worker."""
FEW_UNSENT = 256 * 1024
"""Bytes up to which writers need not wait."""
READ_SIZE = 256 * 1024
READ_INTO = memoryview(bytearray(READ_SIZE))
"""Where all pipes read into, one at a time: memory of this size would be taken from the system for each reading."""
DESCRIPTOR = struct.Struct("@i")
MOST_DESCRIPTORS = 16
"""How many descriptors are taken with one reading."""
DESCRIPTORS = socket.CMSG_SPACE(MOST_DESCRIPTORS * DESCRIPTOR.size)
NOT_INHERITED = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
"""Processes that a tool starts do not get the connections of clients."""
CUT_SHORT = int(socket.MSG_CTRUNC)
"""Set where a descriptor was lost. A plain number: the operators of an enum are slow."""


class Frame(Struct, frozen=True):
    """What one worker says to another."""

    kind: int
    exchange: int
    content: bytes
    connected: AcceptedSocket | None = None
    """A connection that goes along."""


class Pipe:
    """One connection to another worker."""

    def __init__(
        self, connected: socket.socket, received: Callable[[Pipe, Frame], None], lost: Callable[[Pipe], None]
    ) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._on_frame = received
        self._on_lost = lost
        self._unsent: deque[tuple[memoryview, int | None]] = deque()
        """What waits until the system takes more, in order, each with the descriptor that goes along."""
        self.backlog = 0
        """Bytes that the other worker has not taken yet."""
        self._waiters: list[asyncio.Future[None]] = []
        self._read = bytearray()
        self._descriptors: deque[int] = deque()
        self.closed = False
        self._loop.add_reader(connected.fileno(), self._readable)

    # -- sending

    def send(self, kind: int, exchange: int, content: bytes = b"", descriptor: int | None = None) -> None:
        """Send a frame; a descriptor that goes along is closed here once it has gone."""
        if self.closed or self.backlog > MAX_UNSENT:
            if descriptor is not None:
                socket.close(descriptor)
            self.close()
            return
        whole = HEADER.pack(kind, exchange, len(content)) + content
        size = len(whole)
        sent = 0
        if not self._unsent:
            sent = self._write(whole, descriptor)
            if sent == size or self.closed:
                return
            self._loop.add_writer(self._socket.fileno(), self._writable)
        self.backlog += size - sent
        self._unsent.append((memoryview(whole)[sent:], None if sent else descriptor))

    def _write(self, data: bytes | memoryview, descriptor: int | None) -> int:
        """Return how many bytes the system took, and the descriptor with the first of them."""
        try:
            if descriptor is None:
                return self._socket.send(data)
            along = (socket.SOL_SOCKET, socket.SCM_RIGHTS, DESCRIPTOR.pack(descriptor))
            sent = self._socket.sendmsg([data], [along])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            if descriptor is not None:
                socket.close(descriptor)
            self.close()
            return 0
        socket.close(descriptor)
        return sent

    def _writable(self) -> None:
        while self._unsent:
            data, descriptor = self._unsent.popleft()
            sent = self._write(data, descriptor)
            if self.closed:
                return
            self.backlog -= sent
            if sent < len(data):
                self._unsent.appendleft((data[sent:], None if sent else descriptor))
                return
        self._loop.remove_writer(self._socket.fileno())
        self._wake()

    async def wait_sent(self) -> None:
        """Return when the other worker has taken everything, or is gone."""
        while self.backlog and not self.closed:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    async def wait_writable(self) -> None:
        """Return at once unless the other worker reads slower than we write."""
        while self.backlog > FEW_UNSENT and not self.closed:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def _wake(self) -> None:
        waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- receiving

    def _readable(self) -> None:
        try:
            size, ancillary, flags, _ = self._socket.recvmsg_into([READ_INTO], DESCRIPTORS, NOT_INHERITED)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = len(content) - len(content) % DESCRIPTOR.size
                for (descriptor,) in DESCRIPTOR.iter_unpack(content[:whole]):
                    self._descriptors.append(descriptor)
        if not size or flags & CUT_SHORT:
            self.close()
            return
        self._read += READ_INTO[:size]
        self._take_frames()

    def _take_frames(self) -> None:
        at = 0
        while len(self._read) - at >= HEADER.size and not self.closed:
            kind, exchange, length = HEADER.unpack_from(self._read, at)
            if length > LONGEST_CONTENT:
                self.close()
                return
            end = at + HEADER.size + length
            if len(self._read) < end:
                break
            content = bytes(self._read[at + HEADER.size : end])
            at = end
            connected = None
            if kind in WITH_CONNECTION and self._descriptors:
                connected = AcceptedSocket(fileno=self._descriptors.popleft())
            self._on_frame(self, Frame(kind, exchange, content, connected))
        del self._read[:at]

    def close(self) -> None:
        """End it, and tell whoever waits for something from the other side."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for _, descriptor in self._unsent:
            if descriptor is not None:
                socket.close(descriptor)
        self._unsent.clear()
        self.backlog = 0
        while self._descriptors:
            socket.close(self._descriptors.popleft())
        self._wake()
        self._on_lost(self)


# The kinds of frames beside those of requests and answers, which stand in `transports/http/cluster/frames.py`.
CONNECTION = 32
"""A connection is handed over."""
SESSION = 33
"""A session is handed over."""
GIVEN = 34
"""All sessions of the worker that ends were handed over."""
NOTICE = 35
"""Something that all workers are told."""
QUESTION = 36
REPLY = 37
LEAVING = 38
"""A worker ends, and its successor has its place."""
LEFT = 39
"""Nothing more is sent to the worker that ends."""
WITH_CONNECTION = frozenset({CONNECTION})
