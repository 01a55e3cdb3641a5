"""A client and its own server in one process: what a call costs when no wire is between them."""

from __future__ import annotations

import json
import os
import subprocess

from bench.contestants import Contestant
from bench.machine import SERVER_CORE, pinned

PATIENCE = 60.0


class PairFailed(Exception):
    """A pair's driver ended without its figures."""


def measure_pair(contestant: Contestant, seconds: float, warm_up: float) -> dict[int, dict]:
    """Run a contestant's pair in an interpreter of its own; the windows by how many calls were in flight."""
    with pinned(SERVER_CORE):
        process = subprocess.Popen(
            [*contestant.pair, "--seconds", str(seconds), "--warm-up", str(warm_up)],
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
