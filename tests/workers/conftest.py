"""Real workers, gone after the test."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "transports"))

from pace import LONG
from worker_program import PROGRAM, Program

PATIENCE = 240 if LONG else 60


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), PATIENCE))
    return True


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start the program with so many workers, or another program; it is gone after the test."""
    started: list[Program] = []

    def start(workers: int = 2, text: str = PROGRAM, transport: str = "http", **options: object) -> Program:
        path = tmp_path / "server.py"
        path.write_text(text)
        one = Program(str(path), str(workers), transport, json.dumps(options))
        started.append(one)
        return one

    yield start
    for each in started:
        if each.process.poll() is None:
            workers = each.workers
            each.process.kill()
            each.process.communicate()
            for number in workers:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        elif each.process.stderr is not None:
            each.process.stderr.close()
