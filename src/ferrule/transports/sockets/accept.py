"""Takes connections from a listening socket, also when descriptors run out.

Rule 1: a shortage costs neither the processor nor the log. Whoever waits in line is turned away with the descriptor
kept in reserve, then accepting rests for a moment.
Rule 2: a socket that will never accept again is reported to its owner, once.
"""

from __future__ import annotations

import _socket
import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

logger = logging.getLogger("ferrule.transports")

BATCH = 64
"""How many are accepted before other work has its turn."""
PROBE_EVERY = 8
"""How many come one by one before a second is looked for: looking in vain costs an exception."""
REST = 0.25
FAREWELL_TIME = 1.0
MAX_FAREWELLS = 64
WARN_EVERY = 60.0
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
DEAD = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP})
"""What `accept` says of a socket that is closed, or does not listen any more."""


class AcceptedSocket(socket.socket):
    """A connection that was accepted. Its family and type are plain numbers: an event loop asks for them again and
    again, and `socket.socket` looks an enum up each time."""

    family = _socket.socket.family  # type: ignore[assignment]
    type = _socket.socket.type  # type: ignore[assignment]


class SocketAcceptor:
    """Takes connections from one listening socket."""

    def __init__(
        self,
        listening: socket.socket,
        take: Callable[[socket.socket], None],
        refusal: Callable[[], bytes],
        failed: Callable[[OSError], None] | None = None,
    ) -> None:
        self._listening = listening
        self._take = take
        self._refusal = refusal
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._reserve = _open_reserve()
        self._resting: asyncio.TimerHandle | None = None
        self._warned_at = -WARN_EVERY
        self._kind = int(listening.family), int(listening.type), listening.proto
        self._batch = BATCH
        """How many are accepted at once now: one after they came one by one, twice as many after each full batch."""
        self._one_by_one = 0
        """How many batches of one there were since somebody was looked for in vain."""

    def start(self) -> None:
        """Accept from now on."""
        self._resting = None
        if self._reserve is None:
            self._reserve = _open_reserve()
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def stop(self) -> None:
        """Accept nothing more, and close the socket."""
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        self._give_reserve()

    def _accept(self) -> None:
        for _ in range(self._batch):
            try:
                accepted = self._next()
            except (BlockingIOError, InterruptedError):
                self._batch = 1
                self._one_by_one = 0
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno in DEAD and self._failed is not None:
                    self._loop.remove_reader(self._listening.fileno())
                    self._failed(error)
                else:
                    self._run_short(error)
                return
            self._take(accepted)
        # Whoever else waits makes the socket ready again, so nobody need be looked for in vain.
        self._one_by_one += 1
        if self._batch > 1 or self._one_by_one >= PROBE_EVERY:
            self._batch = min(2 * self._batch, BATCH)

    def _next(self) -> socket.socket:
        """Accept one connection; it is in blocking mode until an event loop has it."""
        # `accept` of the same socket would look two enums up for each connection.
        descriptor, _ = self._listening._accept()  # type: ignore[attr-defined]  # noqa: SLF001
        return AcceptedSocket(*self._kind, fileno=descriptor)

    def _run_short(self, error: OSError) -> None:
        """Turn away whoever waits, using the reserved descriptor, and rest a while."""
        now = self._loop.time()
        if now - self._warned_at >= WARN_EVERY:
            self._warned_at = now
            if error.errno in SHORTAGES:
                advice = "; raise the limit of open files (ulimit -n)"
            else:
                advice = ""
            logger.warning("cannot accept connections: %s%s", error.strerror, advice)
        if error.errno in SHORTAGES and self._reserve is not None:
            self._give_reserve()
            with suppress(OSError):
                for _ in range(BATCH):
                    turn_away(self._next(), self._refusal())
            self._reserve = _open_reserve()
        self._loop.remove_reader(self._listening.fileno())
        self._resting = self._loop.call_later(REST, self.start)

    def _give_reserve(self) -> None:
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None


class LingeringCloses:
    """Peers that were refused: each is closed a little later, so that one still sending can read why."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[socket.socket] = deque()
        self._ending: asyncio.TimerHandle | None = None

    def turn_away(self, accepted: socket.socket, refusal: bytes) -> None:
        """Refuse a peer, and close soon."""
        say(accepted, refusal)
        self._waiting.append(accepted)
        if len(self._waiting) > MAX_FAREWELLS:
            hang_up(self._waiting.popleft())
        if self._ending is None:
            self._ending = self._loop.call_later(FAREWELL_TIME, self.end)

    def end(self) -> None:
        """Close them all now."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        while self._waiting:
            hang_up(self._waiting.popleft())


def turn_away(accepted: socket.socket, refusal: bytes) -> None:
    """Send one text to a peer, without waiting, and close."""
    say(accepted, refusal)
    hang_up(accepted)


def say(accepted: socket.socket, refusal: bytes) -> None:
    """Send what fits into the socket, and that nothing follows."""
    with suppress(OSError):
        accepted.setblocking(False)
        accepted.send(refusal)
        accepted.shutdown(socket.SHUT_WR)


def hang_up(accepted: socket.socket) -> None:
    """Close a socket after reading what has come: unread, it would make the system take back what we said."""
    with accepted, suppress(OSError):
        accepted.recv(65536)


def _open_reserve() -> int | None:
    with suppress(OSError):
        return os.open(os.devnull, os.O_RDONLY)
    return None
