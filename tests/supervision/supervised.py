"""Children for supervisors to keep: they write down what happens to them and die when they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ferrule.supervision.child import Child
from ferrule.supervision.supervisor import SupervisorEvent


class Crash(Exception):
    """What a child dies of."""


class Worker:
    """A child that runs until it is told how to end."""

    def __init__(self, name: str, log: list[str] | None = None) -> None:
        self.name = name
        self.log: list[str] = [] if log is None else log
        self.runs = 0
        self.alive = 0
        self.orders: asyncio.Future[None] | None = None

    async def run(self, ready: Callable[[], None]) -> None:
        """Be ready, and wait for orders."""
        self.runs += 1
        self.alive += 1
        self.log.append(f"{self.name} starts")
        self.orders = asyncio.get_running_loop().create_future()
        try:
            ready()
            await self.orders
        finally:
            self.alive -= 1
            self.log.append(f"{self.name} ends")

    def crash(self, error: BaseException | None = None) -> None:
        """Let it raise."""
        assert self.orders is not None
        self.orders.set_exception(error or Crash(self.name))

    def end(self) -> None:
        """Let it return."""
        assert self.orders is not None
        self.orders.set_result(None)

    def child(self, **options: Any) -> Child:
        """Return it as a child."""
        return Child(self.name, self.run, **options)


class Loop:
    """A child that crashes whenever it is started."""

    def __init__(self, lives: float = 0.0, is_ready: bool = True) -> None:
        self.starts: list[float] = []
        self._lives = lives
        self._is_ready = is_ready

    async def run(self, ready: Callable[[], None]) -> None:
        """Be ready, live for a while and crash."""
        self.starts.append(asyncio.get_running_loop().time())
        if self._is_ready:
            ready()
        if self._lives:
            await asyncio.sleep(self._lives)
        raise Crash(f"start {len(self.starts)}")


async def turns(count: int = 30) -> None:
    """Let the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


def told(events: list[SupervisorEvent]) -> list[str]:
    """Return events as short texts."""
    return [f"{event.kind} {event.path}" for event in events]


def tasks_left() -> list[str]:
    """Return the names of the tasks that a supervisor started."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("child ", "supervisor ", "stop "))]


def timers_left() -> int:
    """Count the timers of the loop that will fire."""
    loop: Any = asyncio.get_running_loop()
    if not hasattr(loop, "_scheduled"):
        return 0
    return sum(not handle.cancelled() for handle in loop._scheduled)
