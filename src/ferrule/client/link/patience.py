"""While the server waits for an answer of ours it cannot be late with its own: no deadline passes."""

from __future__ import annotations

from typing import Any

from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler
from ferrule.runtime.link import Link


class Patience:
    """Holds the deadlines of one link as long as a question of its peer is being answered."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self._questions = 0

    def around(self, handler: Handler) -> Handler:
        """Give a handler that holds the deadlines while it runs."""

        async def answer(call: Call) -> Any:
            self._questions += 1
            self._hold()
            try:
                return await handler(call)
            finally:
                self._questions -= 1
                if not self._questions:
                    self._renew()

        return answer

    def _hold(self) -> None:
        assert self.link is not None
        for awaited in self.link.session.awaited.values():
            if awaited.timeout is not None:
                awaited.deadline = awaited.limit

    def _renew(self) -> None:
        assert self.link is not None
        now = self.link.loop.time()
        for awaited in self.link.session.awaited.values():
            if awaited.timeout is not None:
                deadline = now + awaited.timeout
                awaited.deadline = deadline if awaited.limit is None else min(deadline, awaited.limit)
                self.link.arm(awaited.deadline)
