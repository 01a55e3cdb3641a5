"""The flat sketch with calls that begin where they were read, in a task that is lent to them until they wait.

It is the least a handler costs that may wait, and that finds a task around it as asyncio promises: the way of
`ferrule/supervision/start.py`, and nothing else of Ferrule. Where no call waits it is the floor, for the flat sketch
gives each call a turn of the loop; where they all do, the flat sketch is.
"""

from __future__ import annotations

from contextvars import copy_context

import msgspec
import uvloop
from sketch import Lines, serve

from ferrule.supervision.start import starting


class EagerLines(Lines):
    """Begins every call at once."""

    def __init__(self, fixed: dict[str, msgspec.Raw]) -> None:
        super().__init__(fixed)
        start, context = starting(self.loop), copy_context()
        self.begin = lambda work: start(work, "call", context)


if __name__ == "__main__":
    uvloop.run(serve(EagerLines))
