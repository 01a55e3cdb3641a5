"""Runs every pair of programs that a module asks about once, side by side, and none beyond the module's end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import matrix
import peer_programs


def wanted_runs(request: pytest.FixtureRequest) -> list[matrix.Run]:
    """The runs that tests of this module look at; those of others may be another process's to do."""
    specs = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and "interop_observations" in getattr(item, "fixturenames", ())
    ]
    return [run for run in dict.fromkeys(params["run"] for params in specs) if peer_programs.missing(run.peer) is None]


@pytest.fixture(scope="module")
def interop_observations(request: pytest.FixtureRequest) -> Iterator[Callable[[matrix.Run], dict[str, Any]]]:
    """What a run observed; all start with the first question, and their threads end with the module."""
    pool = ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2))
    futures = {run: pool.submit(peer_programs.observe, run) for run in wanted_runs(request)}
    yield lambda run: futures[run].result()
    pool.shutdown(cancel_futures=True)


@pytest.fixture
def check(interop_observations: Callable[[matrix.Run], dict[str, Any]]) -> Callable[[matrix.Run, str], None]:
    """Compare one feature of one run with the matrix."""

    def compare(run: matrix.Run, feature: str) -> None:
        reason = peer_programs.missing(run.peer) or matrix.gap(run, feature)
        if reason is not None:
            pytest.skip(reason)
        seen = interop_observations(run)
        if feature != "connect" and seen.get("connect") != "connected":
            pytest.fail(f"{run} did not connect: {seen.get('connect')}")
        assert seen.get(feature, "not observed") == matrix.expected(run, feature)

    return compare
