"""What an overseer does where a process cannot be started, and where one does not end."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ferrule.workers.overseer import Slot, remove_left_folders


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


def test_what_a_killed_overseer_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("ferrule-dead", "ferrule-alive", "ferrule-begins", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "ferrule-link").symlink_to(tmp_path / "ferrule-dead")
    (tmp_path / "ferrule-file").touch()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "ferrule-dead" / "overseer"))
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(tmp_path / "ferrule-alive" / "overseer"))
        alive.listen(0)
        for _ in range(3):  # also where its queue is full
            remove_left_folders()
    left = [*[f"ferrule-{name}" for name in ("alive", "begins", "file", "link")], "other"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
