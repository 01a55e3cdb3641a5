"""Load on a client whose server lives in the same process, or at a URL; prints one line of JSON a window.

Each pair driver is a script for its own interpreter: `driver.py --seconds 1.0 --warm-up 0.3 [--url URL]`, with the call
to make as `--tool`, `--arguments` and `--expected`. CPU is the process's: without a URL it covers both sides of a call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "servers"))

from catalogue import search  # noqa: F401 - the drivers offer it; its folder is not theirs

IN_FLIGHT = (1, 64)

Call = Callable[[str, dict], Awaitable[object]]
"""Calls a tool through the client and gives the structured content of its result."""


async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def _caller(call: Call, chosen: argparse.Namespace, end: float, latencies: list[float]) -> None:
    clock = time.perf_counter
    tool, arguments, expected = chosen.tool, chosen.arguments, {"result": chosen.expected}
    before = clock()
    while before < end:
        got = await call(tool, arguments)
        if got != expected:
            raise ValueError(f"a wrong answer: {got!r}")
        now = clock()
        latencies.append(now - before)
        before = now


async def _window(
    call: Call, chosen: argparse.Namespace, in_flight: int, seconds: float
) -> tuple[list[float], float, float]:
    latencies: list[float] = []
    before, cpu_before = time.perf_counter(), time.process_time()
    await asyncio.gather(*[_caller(call, chosen, before + seconds, latencies) for _ in range(in_flight)])
    return sorted(latencies), time.perf_counter() - before, time.process_time() - cpu_before


def options() -> argparse.Namespace:
    """Read the command line of a pair driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--warm-up", type=float, default=0.3)
    parser.add_argument("--tool", default="add")
    parser.add_argument("--arguments", type=json.loads, default={"a": 2, "b": 40})
    parser.add_argument("--expected", type=json.loads, default=42)
    parser.add_argument("--targets", type=int, default=1)
    parser.add_argument("--layers", type=int, default=0, help="how many layers of middleware, where there is any")
    parser.add_argument("--bare", action="store_true", help="call the handler of tools itself, past any composition")
    parser.add_argument("--url", help="call this server, not one in the same process")
    return parser.parse_args()


async def measure(call: Call, chosen: argparse.Namespace) -> None:
    """Run every window that the command line asks for."""
    for in_flight in IN_FLIGHT:
        await _window(call, chosen, in_flight, chosen.warm_up)
        latencies, seconds, cpu = await _window(call, chosen, in_flight, chosen.seconds)
        count = len(latencies)
        row = {"in_flight": in_flight, "operations": count, "seconds": seconds, "cpu_us": cpu / count * 1e6}
        row |= {f"p{p}_us": latencies[(count - 1) * p // 100] * 1e6 for p in (50, 95, 99)}
        print(json.dumps(row), flush=True)
