"""A contestant's client in an interpreter of its own: with its server beside it in memory, or against a URL."""

from __future__ import annotations

import json
import os
import subprocess

from bench.contestants import Contestant
from bench.machine import GENERATOR_CORE, SERVER_CORE, pinned
from bench.messages import Operation

PATIENCE = 60.0


class PairFailed(Exception):
    """A driver ended without its figures."""


def measure_pair(
    contestant: Contestant, operation: Operation, seconds: float, warm_up: float, url: str = ""
) -> dict[int, dict]:
    """Run a contestant's driver; the windows by how many calls were in flight."""
    target = ["--url", url] if url else []
    arguments, expected = json.dumps(operation.params["arguments"]), json.dumps(operation.value)
    asked = ["--tool", operation.params["name"], "--arguments", arguments, "--expected", expected]
    with pinned(GENERATOR_CORE if url else SERVER_CORE):
        process = subprocess.Popen(
            [*contestant.pair, "--seconds", str(seconds), "--warm-up", str(warm_up), *asked, *target],
            env={**os.environ, **contestant.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        out, complaints = process.communicate(timeout=4 * (seconds + warm_up) + PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        words = complaints.strip().splitlines() or ["without a word"]
        raise PairFailed(words[-1])
    rows = [json.loads(line) for line in out.splitlines()]
    return {row.pop("in_flight"): _with_rate(row) for row in rows}


def _with_rate(row: dict) -> dict:
    rounded = {name: round(value, 3) for name, value in row.items()}
    return {**rounded, "per_s": round(row["operations"] / row["seconds"], 1)}
