"""Whatever happens to the children of a supervisor, in whatever order: what should run runs, and nothing is left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from supervised import Crash, tasks_left, timers_left

from ferrule.errors import SetupError, SupervisorFailed
from ferrule.supervision.child import Child
from ferrule.supervision.restart import RestartPlan
from ferrule.supervision.supervisor import Supervisor, SupervisorEvent
from ferrule.testing import run_in_virtual_time

STRATEGIES = ("one_for_one", "rest_for_one", "one_for_all")
KINDS = ("permanent", "transient", "temporary")


class Storm:
    """A supervisor, its children, and what chance does to them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.alive: dict[str, int] = {}
        self.orders: dict[str, list[asyncio.Future[None]]] = {}
        self.kinds: dict[str, Any] = {}
        self.stopped: set[str] = set()
        self.ended: set[str] = set()
        self.events: list[SupervisorEvent] = []
        self.number = 0
        plan = RestartPlan(intensity=10**6, first=0.0, delay=0.5, longest=2.0, give_up=self.chance.random() < 0.5)
        self.strategy: Any = self.chance.choice(STRATEGIES)
        self.tree = Supervisor(
            "storm",
            *[self.child() for _ in range(self.chance.randrange(5))],
            strategy=self.strategy,
            plan=plan,
            chance=self.chance.random,
            on_event=self.events.append,
        )

    def child(self) -> Child:
        """Make a child that starts slowly, ends slowly, and now and then fails to start."""
        self.number += 1
        name = f"c{self.number}"
        self.alive[name] = 0
        self.orders[name] = []
        self.kinds[name] = self.chance.choice(KINDS)
        first = True

        async def run(ready: Callable[[], None]) -> None:
            nonlocal first
            self.alive[name] += 1
            try:
                if self.chance.random() < 0.5:
                    await asyncio.sleep(self.chance.random())
                if not first and self.chance.random() < 0.2:
                    raise Crash(name)
                first = False
                ready()
                order: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self.orders[name].append(order)
                await order
            finally:
                try:
                    if self.chance.random() < 0.3:
                        await asyncio.sleep(self.chance.random() * 2)
                finally:
                    self.alive[name] -= 1

        return Child(name, run, restart=self.kinds[name])

    async def act(self) -> None:
        """Do one thing."""
        names = [child.name for child in self.tree.children]
        what = self.chance.choice(["crash", "crash", "end", "stop", "restart", "add", "remove", "wait", "wait"])
        if what == "wait" or (not names and what != "add"):
            await asyncio.sleep(self.chance.random() * 3)
        elif what == "add":
            self.tree.add(self.child())
        else:
            await self._do(what, self.chance.choice(names))

    async def _do(self, what: str, name: str) -> None:
        if what in ("crash", "end"):
            for order in self.orders[name]:
                if not order.done():
                    if what == "crash":
                        order.set_exception(Crash(name))
                    else:
                        order.set_result(None)
                    await asyncio.sleep(0)
            return
        waiting = asyncio.create_task(getattr(self.tree, what)(name))
        if self.chance.random() < 0.5:
            await asyncio.wait({waiting}, timeout=self.chance.random())
        waiting.add_done_callback(_look)
        if what == "restart":
            self.stopped.discard(name)
        elif what == "stop":
            self.stopped.add(name)


def _look(task: asyncio.Task[None]) -> None:
    """Let no exception but the expected ones pass."""
    if not task.cancelled():
        error = task.exception()
        assert error is None or isinstance(error, SetupError | SupervisorFailed)


async def storm(seed: int) -> None:
    """Let chance act, then let everything settle, then look."""
    scene = Storm(seed)
    async with scene.tree as tree:
        for _ in range(60):
            await scene.act()
            assert max(scene.alive.values(), default=0) <= 1, "two runs of one child at once"
        await asyncio.sleep(600)
        states = {child.name: child.state for child in tree.children}
        for name, state in states.items():
            assert state in ("running", "ended", "stopped"), (name, state)
            assert (state == "running") == (scene.alive[name] == 1)
            if state == "ended":
                assert scene.kinds[name] == "transient"
        for name, count in scene.alive.items():
            assert name in states or count == 0
        keepers = len(states) if scene.strategy == "one_for_one" else int(bool(scene.number))
        running = list(states.values()).count("running")
        assert len(tasks_left()) == running + keepers
        order = list(states)
    assert sum(scene.alive.values()) == 0
    ended = [event.path.rpartition("/")[2] for event in scene.events if event.kind == "ended"]
    last = [name for name in ended[len(ended) - running :] if name in order]
    assert last == [name for name in reversed(order) if states[name] == "running"], "stopped in reverse"
    assert tasks_left() == []
    assert timers_left() <= 1


@pytest.mark.parametrize("block", range(10))
def test_a_storm_leaves_what_should_run_running(block: int) -> None:
    """SUPV-01, SUPV-02: crashes, ends, stops, restarts, new children and removed ones, at any moment."""
    for seed in range(block * 12, block * 12 + 12):
        run_in_virtual_time(asyncio.wait_for(storm(seed), 100_000))
