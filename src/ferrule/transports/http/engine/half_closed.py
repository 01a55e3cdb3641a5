"""A peer that has ended its side of a connection and is owed an answer: it may only have said all, or be gone.

Rule: HTTP/1.1 owes the one its answer, however long that takes, and the other nothing. The system cannot tell them
apart until something is sent: one that is gone answers it with a reset.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ferrule.transports.sockets.bind import hung_up, watch_over

if TYPE_CHECKING:
    from ferrule.transports.http.engine.connection import Connection

DOUBT_AFTER = 0.5
"""How long an answer that has not begun may still take before we look whether anybody is there to read it."""
RESET_TIME = 0.1
"""How long a peer that is gone takes, as a rule, to say so; the sweep looks for those that take longer."""


class HalfClosed:
    """Whether anybody is still there, at one connection whose peer has ended its side."""

    __slots__ = ("_connection", "_later", "_loop")

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        # A peer may also go later, or without a word: the system's own probes find that within two minutes.
        watch_over(connection.socket)
        begun = connection.answer is not None and connection.answer.begun
        self._later = loop.call_later(0.0 if begun else DOUBT_AFTER, self._ask)

    def _ask(self) -> None:
        answer = self._connection.answer
        if answer is not None:
            answer.fill()
            self._later = self._loop.call_later(RESET_TIME, self.look)

    def look(self) -> None:
        """Cut the connection if the peer has answered with a reset."""
        if self._connection.answer is not None and hung_up(self._connection.socket):
            self._connection.abort()

    def end(self) -> None:
        """Look no more."""
        self._later.cancel()
