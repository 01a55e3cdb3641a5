"""What a store must show to be judged, and what a rule about stores is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ferrule.stores.stores import Stores
from ferrule.testing.carrier_kit.findings import Broken, NotApplicable

Part = Literal["sessions", "nodes", "directory", "events", "tasks", "values", "bus", "limits", "locks", "seen"]

PATIENCE = 10.0
"""How many seconds what is written behind may take to be seen elsewhere."""
LONG = 600.0
"""Seconds that do not pass while a rule is judged."""


@dataclass(frozen=True)
class StoreStand:
    """A store that is open, and empty."""

    stores: Stores
    tick: float
    """The shortest time to live, in seconds, that a rule should use."""
    pass_time: Callable[[float], Awaitable[None]]
    """Lets so many seconds pass for the store: by its clock where it has one that can be set, else by waiting."""
    another: Stores | None = None
    """The same store as another process would open it, for what processes share."""

    @property
    def elsewhere(self) -> Stores:
        """The store as another process sees it."""
        if self.another is None:
            raise NotApplicable("this store lives in one process")
        return self.another


class StoreMaker(Protocol):
    """Makes stores of one kind to be judged."""

    @property
    def name(self) -> str:
        """What the store is called in reports."""

    @property
    def lacks(self) -> Mapping[Part, str]:
        """The parts that processes do not share, each with the reason: rules about several processes leave them out."""

    def stand(self, *, idle: float = LONG, age: float = LONG) -> AbstractAsyncContextManager[StoreStand]:
        """Open an empty store, whose idle sessions and silent streams are forgotten after so many seconds."""


@dataclass(frozen=True)
class StoreRule:
    """One sentence that holds for every store."""

    name: str
    sentence: str
    part: Part
    work: Callable[[StoreMaker], Awaitable[None]]
    is_shared: bool = field(default=False)
    """Whether it is about several processes."""

    def __str__(self) -> str:
        return f"{self.part}: {self.name}"


def rule(part: Part, *, is_shared: bool = False) -> Callable[[Callable[[StoreMaker], Awaitable[None]]], StoreRule]:
    """Make a function a rule: its name is the rule's, the first line of its docstring the sentence."""

    def made(work: Callable[[StoreMaker], Awaitable[None]]) -> StoreRule:
        name = getattr(work, "__name__", "").replace("_", " ")
        return StoreRule(name, (work.__doc__ or "").partition("\n")[0], part, work, is_shared)

    return made


async def eventually(look: Callable[[], Awaitable[object]], wanted: object, why: str) -> None:
    """Look until something is as wanted; what is written behind takes its time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while (found := await look()) != wanted:
        if loop.time() > until:
            raise Broken(f"{why}: {found!r} after {PATIENCE:g} s, not {wanted!r}")
        await asyncio.sleep(0.01)
