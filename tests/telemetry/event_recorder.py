"""An observer that writes everything down."""

from __future__ import annotations

import asyncio
from typing import Any

from ferrule import Observer
from ferrule.telemetry.observer import EVENTS
from ferrule.types import Outcome

PATIENCE = 60.0


class Recorder(Observer):
    """Keeps every event with its values, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, tuple[Any, ...]]] = []
        self._changed = asyncio.Event()

    def note(self, event: str, *values: Any) -> None:
        """Keep one event."""
        self.events.append((event, values))
        self._changed.set()

    def all(self, event: str) -> list[Any]:
        """Return the first value of each event of this kind."""
        return [values[0] for name, values in self.events if name == event]

    def outcomes(self, event: str = "request_finished") -> dict[Any, Outcome]:
        """Return how each request ended, by its id; each must have ended once."""
        ended: dict[Any, Outcome] = {}
        for name, values in self.events:
            if name == event:
                request, outcome = values
                assert request.id not in ended, f"{request.id} ended twice"
                ended[request.id] = outcome
        return ended

    def request(self, identity: Any) -> Any:
        """Return the request that was received with this id."""
        return next(
            values[0] for name, values in self.events if name == "request_finished" and values[0].id == identity
        )

    def story(self, identity: Any) -> list[str]:
        """Return what was told of the request with this id, in order."""
        told = [name for name, values in self.events if getattr(values[0], "id", None) == identity]
        return [name.removeprefix("request_") for name in told]

    async def until(self, event: str, count: int = 1) -> None:
        """Wait until there were so many events of this kind."""
        async with asyncio.timeout(PATIENCE):
            while len(self.all(event)) < count:
                self._changed.clear()
                await self._changed.wait()


def _noting(event: str) -> Any:
    return lambda self, *values: self.note(event, *values)


for _event in EVENTS:
    setattr(Recorder, _event, _noting(_event))
