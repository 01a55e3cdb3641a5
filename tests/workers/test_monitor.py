"""The health and the metrics of all workers, asked of any of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from urllib.request import Request, urlopen

from worker_program import Program, until

from ferrule import Client

Start = Callable[..., Program]


def fetched(url: str, accept: str = "*/*") -> str:
    """Return what is found at a URL, over a connection of its own."""
    with urlopen(Request(url, headers={"Accept": accept}), timeout=10) as answer:
        return answer.read().decode()


def number(text: str, start: str) -> float:
    """Return the sum of the series whose lines begin so."""
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(start))


CALLS = 'mcp_server_operation_duration_seconds_count{mcp_method_name="tools/call"'


async def test_any_worker_tells_of_all_and_what_a_dead_one_counted_stays(program: Start) -> None:
    one = program(2, metrics=True)
    root = one.url.removesuffix("/mcp")
    found: set[int] = set()
    made = 0
    while len(found) < 2:
        async with Client(one.url, mode="stateless") as client:
            found.add((await client.call_tool("worker")).data)
            made += 1
    for _ in range(4):
        # Each over another connection, and so at any worker.
        text = await asyncio.to_thread(fetched, f"{root}/metrics")
        assert number(text, CALLS) == made
        assert number(text, "ferrule_worker_up") == 2
        assert number(text, "ferrule_build_info") == 1
    openmetrics = await asyncio.to_thread(fetched, f"{root}/metrics", "application/openmetrics-text")
    assert openmetrics.endswith("# EOF\n")
    assert await asyncio.to_thread(fetched, f"{root}/livez") == "alive\n"
    report = json.loads(await asyncio.to_thread(fetched, f"{root}/readyz?verbose"))
    assert report["status"] == "pass"
    assert {"worker 0: memory", "worker 1: memory"} <= report["checks"].keys()

    victim = one.workers[0]
    os.kill(victim, signal.SIGKILL)
    assert await asyncio.to_thread(fetched, f"{root}/readyz") == "ready\n"
    await until(lambda: victim not in one.workers and len(one.workers) == 2)
    text = await asyncio.to_thread(fetched, f"{root}/metrics")
    assert number(text, CALLS) == made
    assert number(text, "ferrule_worker_restarts_total") == 1

    # Those that are replaced say what they counted before they end.
    before = set(one.workers)
    async with Client(one.url, mode="stateless") as client:
        await client.call_tool("worker")
    one.signal(signal.SIGHUP)
    await until(lambda: before.isdisjoint(one.workers) and len(one.workers) == 2)
    text = await asyncio.to_thread(fetched, f"{root}/metrics")
    assert number(text, CALLS) == made + 1
