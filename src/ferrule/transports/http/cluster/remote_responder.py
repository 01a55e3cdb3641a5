"""RemoteResponder: the way back of a request that came in at another process, a node or a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ferrule.transports.http.cluster.frames import (
    BEGIN,
    CUT,
    FINISH,
    LONGEST_CONTENT,
    PART,
    WHOLE,
    AnswerHead,
    encode,
)


class AnswerSender(Protocol):
    """What takes the answers of many exchanges to one other process."""

    @property
    def backlog(self) -> int:
        """How many bytes it has not taken yet, of all of them."""

    def send(self, kind: int, exchange: int, content: bytes = b"") -> None:
        """Say something of an exchange; never waits."""

    async def wait_writable(self) -> None:
        """Return at once unless the other process reads slower than we write."""


class RemoteResponder:
    """The way back of a request that came in at another process."""

    def __init__(self, sender: AnswerSender, exchange: int, ended: Callable[[], object]) -> None:
        self._sender = sender
        self._exchange = exchange
        self._ended = ended
        """Called when the answer is said."""
        self._lost: Callable[[], None] | None = None
        self._begun = False
        self.gone = False
        """Whether nobody can read the answer any more."""
        self.unacknowledged: int | None = None

    @property
    def backlog(self) -> int:
        """How many bytes the other process has not taken yet, of this answer and others."""
        return self._sender.backlog

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        """Send a whole answer."""
        if self._begun:
            raise RuntimeError("this answer has begun already")
        self._say(WHOLE, encode(AnswerHead(status, head, body)))
        self._end()

    def begin(self, status: int, head: bytes, filler: bytes = b"") -> None:
        """Start an answer of unknown length."""
        self._begun = True
        self._say(BEGIN, encode(AnswerHead(status, head, filler)))

    def write(self, data: bytes) -> None:
        """Send a part of the answer."""
        self._say(PART, data)

    def finish(self) -> None:
        """End the answer."""
        self._say(FINISH)
        self._end()

    def abort(self) -> None:
        """Cut the answer."""
        self._say(CUT)
        self._end()

    def _say(self, kind: int, content: bytes = b"") -> None:
        if self.gone:
            return
        if len(content) > LONGEST_CONTENT:
            # Whoever is told more cuts the requests of others too.
            self._sender.send(CUT, self._exchange)
        else:
            self._sender.send(kind, self._exchange, content)

    def _end(self) -> None:
        self.gone = True
        self._lost = None
        self._ended()

    def watch(self, lost: Callable[[], None]) -> None:
        """Call a function if whoever asked goes away before the answer is finished."""
        self._lost = lost

    def lose(self) -> None:
        """Called when whoever asked is gone."""
        self.gone = True
        lost = self._lost
        self._lost = None
        if lost is not None:
            lost()

    async def wait_writable(self) -> None:
        """Return at once unless the other process reads slower than we write."""
        await self._sender.wait_writable()
