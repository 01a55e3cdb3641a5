"""Questions between workers, over a real mesh."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ferrule.workers.mesh import OVERSEER, Mesh
from ferrule.workers.questions import Questions


async def test_a_question_is_answered_in_time_or_not_at_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who is slow, fails, knows no such topic, is gone or never was has said nothing."""
    worker, overseer = Mesh(str(tmp_path), 0, 2), Mesh(str(tmp_path), OVERSEER, 2)
    asking, asked = Questions(worker), Questions(overseer)
    for mesh in (worker, overseer):
        mesh.open()
    begun = asyncio.Event()

    async def double(content: bytes) -> bytes:
        return content * 2

    async def wait(content: bytes) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b"never"

    async def fail(content: bytes) -> bytes:
        raise ValueError("not today")

    asked.on("double", double)
    asked.on("wait", wait)
    asked.on("fail", fail)
    asking.on("double", double)
    assert await asking.ask(OVERSEER, "double", b"ab") == b"abab"
    assert await asked.ask(0, "double", b"c") == b"cc"
    assert await asking.ask(OVERSEER, "wait", limit=0.01) is None
    with caplog.at_level(logging.ERROR):
        assert await asking.ask(OVERSEER, "fail") is None
    assert "not today" in caplog.text
    assert await asking.ask(OVERSEER, "unheard of") is None
    assert await asking.ask(1, "double") is None
    assert await asking.ask(0, "double") is None
    assert await asking.ask(7, "double") is None

    begun.clear()
    waiting = asyncio.create_task(asking.ask(OVERSEER, "wait", limit=30))
    await begun.wait()
    await asked.close()
    overseer.close()
    assert await asyncio.wait_for(waiting, 5) is None
    await asking.close()
    worker.close()
