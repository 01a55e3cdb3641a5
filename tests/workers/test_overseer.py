"""What an overseer does where a process cannot be started, and where one does not end."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from ferrule.workers.overseer import STOP_GRACE, Slot


async def test_a_worker_that_cannot_be_replaced_now_stays_and_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lack of descriptors or processes would else end the task that replaces workers, for good."""

    async def refused(*command: object, **options: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    overseer: Any = SimpleNamespace(plan_of=lambda *told: {})
    slot = Slot(overseer, 0, [])
    before: Any = SimpleNamespace(serves=True)
    slot.process = before
    opened = os.listdir("/proc/self/fd")
    for _ in range(3):
        assert not await slot.replace()
    assert slot.process is before
    assert len(os.listdir("/proc/self/fd")) == len(opened)


def test_an_overseer_waits_until_its_workers_have_ended_or_are_killed() -> None:
    """One that is left behind would hold the port, and what it still answers would be cut."""
    overseer: Any = None
    grace = Slot(overseer, 0, []).child().grace
    assert grace is not None
    assert grace > STOP_GRACE
