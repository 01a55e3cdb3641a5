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

from ferrule.workers.overseer import CannotBegin, Slot, remove_left_folders


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


async def test_a_worker_that_hangs_at_its_start_is_killed_and_the_reason_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that the system gave to its socket would else wait for ever, while others are served."""
    monkeypatch.setattr("ferrule.workers.process.COMMAND", ("-c", "import time; time.sleep(60)"))
    overseer: Any = SimpleNamespace(plan_of=lambda *told: {}, ready_timeout=0.2)
    slot = Slot(overseer, 0, [])
    async with asyncio.timeout(10):
        with pytest.raises(CannotBegin, match=r"worker 0 did not serve within 0\.2 s and was killed; worker_ready_tim"):
            await slot.run(lambda: None)
    assert slot.process is not None
    with pytest.raises(ProcessLookupError):
        os.kill(slot.process.pid, 0)


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
