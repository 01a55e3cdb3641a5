"""HeldReply: a whole answer that waits until something else is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ferrule.transports.http.message import Responder


class HeldReply:
    """The way back of a request whose answer waits; what is not an answer goes through."""

    unacknowledged: int | None = None

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._held: tuple[int, bytes, bytes] | None = None

    @property
    def gone(self) -> bool:
        """Whether nobody can read the answer any more."""
        return self._responder.gone

    @property
    def backlog(self) -> int:
        """How many bytes were written and not taken by the peer yet."""
        return self._responder.backlog

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        """Take the answer, and hold it."""
        self._held = (status, head, body)

    def release(self) -> None:
        """Send what is held."""
        held = self._held
        self._held = None
        if held is not None:
            self._responder.reply(*held)

    async def release_after(self, done: Awaitable[None]) -> None:
        """Send what is held when something is done, or has failed."""
        try:
            await done
        finally:
            self.release()

    def begin(self, status: int, head: bytes, filler: bytes = b"") -> None:
        """Start an answer of unknown length."""
        self._responder.begin(status, head, filler)

    def write(self, data: bytes) -> None:
        """Send a part of the answer."""
        self._responder.write(data)

    def finish(self) -> None:
        """End the answer."""
        self._responder.finish()

    def abort(self) -> None:
        """Abort the connection."""
        self._responder.abort()

    def watch(self, lost: Callable[[], None]) -> None:
        """Call a function if the peer goes away before the answer is finished."""
        self._responder.watch(lost)

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write."""
        await self._responder.wait_writable()
