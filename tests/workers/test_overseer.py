"""What an overseer does where a process cannot be started, and where one does not end."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from ferrule.workers.overseer import Slot


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
