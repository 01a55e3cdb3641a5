"""RemoteResponder: the way back of a request that came in at another node."""

from __future__ import annotations

from collections.abc import Callable

from ferrule.transports.http.cluster.frames import BEGIN, CUT, FINISH, PART, WHOLE, AnswerHead, encode
from ferrule.transports.http.cluster.outbox import Outbox


class RemoteResponder:
    """The way back of a request that came in at another node."""

    def __init__(self, outbox: Outbox, exchange: int, ended: Callable[[RemoteResponder], None]) -> None:
        self._outbox = outbox
        self.exchange = exchange
        self._ended = ended
        self._lost: Callable[[], None] | None = None
        self._begun = False
        self.gone = False
        """Whether nobody can read the answer any more."""
        self.unacknowledged: int | None = None

    @property
    def node(self) -> str:
        """The node the request came in at."""
        return self._outbox.node

    @property
    def backlog(self) -> int:
        """How many bytes wait for the other node, of this answer and others."""
        return self._outbox.size

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
        if not self.gone:
            self._outbox.send(kind, self.exchange, content)

    def _end(self) -> None:
        self.gone = True
        self._lost = None
        self._ended(self)

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
        """Return at once unless much waits for the other node."""
        await self._outbox.wait_writable()
