"""Mixed load on all transports at once, for a moment or for hours, leaves this process as it was."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import sys
import tempfile
import threading
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from every_way import every_way

from ferrule import CallFailed, Client, Context, Server, ToolError
from patience import PATIENT

HOURS = float(os.environ.get("FERRULE_SOAK", "0")) / 3600
ROUNDS = 10
"""How often everything is used where no time is given."""
WARM = 1 / 4
"""The first part fills what is kept on purpose: pools, caches, the allocator's own stock."""
MOST_AN_HOUR = 2**20
LEAST_SEEN = 1.5 * 2**20
"""What an hour and a half may add; in less time no less can be told from the allocator's habits."""
SHORT_SLACK = 8 * 2**20
"""In a few seconds the allocator's pages say more than a leak would."""
PAGE = os.sysconf("SC_PAGE_SIZE")
CHILD = [
    sys.executable,
    "-c",
    "from ferrule import Server; app = Server('c'); app.add_tool('echo', lambda text: text); app.run()",
]


def new_app() -> Server:
    app = Server("soak")

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    async def count(ctx: Context) -> str:
        for step in range(5):
            await ctx.report_progress(step, 5)
            await ctx.info(str(step))
        return "done"

    @app.tool
    async def fail() -> str:
        raise ToolError("on purpose")

    @app.tool
    async def hang() -> str:
        await asyncio.sleep(3600)
        return ""

    app.add_resource("x://y", lambda: "text")
    return app


async def use(client: Client) -> None:
    """Do a little of everything: answered, told about, failed, given up, read, and a large message."""
    assert (await client.call_tool("echo", {"text": "x"})).text == "x"
    assert len((await client.call_tool("echo", {"text": "x" * 100_000})).text) == 100_000
    await client.call_tool("count", on_progress=lambda *_: None)
    await client.call_tool("fail", raise_on_error=False)
    with suppress(CallFailed):
        await client.call_tool("hang", timeout=0.02)
    await client.read_resource("x://y")
    await client.list_tools()


@dataclass
class Sample:
    """What this process held at one moment."""

    resident: int
    descriptors: int
    threads: int
    tasks: int

    @classmethod
    def now(cls) -> Sample:
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
        return cls(resident, len(os.listdir("/proc/self/fd")), threading.active_count(), len(asyncio.all_tasks()))


async def soak(ways: dict[str, Any]) -> list[Sample]:
    """Use every transport by clients that stay and by clients that come and go; take a sample after each round."""
    samples: list[Sample] = []
    until = asyncio.get_running_loop().time() + HOURS * 3600
    async with AsyncExitStack() as stack:
        staying = [
            await stack.enter_async_context(Client(way.target, **{way.options_of: way.options}))
            for way in ways.values()
        ]
        child = await stack.enter_async_context(Client(CHILD, **PATIENT))
        while len(samples) < ROUNDS or asyncio.get_running_loop().time() < until:
            await asyncio.gather(*(use(client) for client in staying), child.call_tool("echo", {"text": "x"}))
            for way in ways.values():
                mode: Any = "stateless" if len(samples) % 2 and not way.target.startswith("sse") else "handshake"
                async with Client(way.target, mode=mode, **{way.options_of: way.options}) as client:
                    await use(client)
            await asyncio.sleep(0.2)
            samples.append(Sample.now())
    return samples


def test_sok_02_mixed_load_on_all_transports_leaves_nothing_behind() -> None:
    """SOK-02: a few seconds here, hours in `make soak`; descriptors, threads and tasks flat, memory as good as."""

    async def test() -> list[Sample]:
        app, ready = new_app(), asyncio.Event()
        with tempfile.TemporaryDirectory() as folder:
            ways = every_way(folder)
            serving = asyncio.ensure_future(app.serve(*(way.listener for way in ways.values()), ready=ready.set))
            await ready.wait()
            try:
                return await soak(ways)
            finally:
                await app.stop(0.0)
                await serving

    samples = asyncio.run(test())
    first, *late = samples[int(len(samples) * WARM) :]
    for held in ("descriptors", "threads", "tasks"):
        counts = [getattr(sample, held) for sample in late]
        assert statistics.median(counts) <= getattr(first, held) + 2, (held, counts)
    resident = [sample.resident for sample in late]
    if HOURS:
        growth = statistics.linear_regression(range(len(resident)), resident).slope * len(resident)
        assert growth <= max(MOST_AN_HOUR * HOURS * (1 - WARM), LEAST_SEEN), resident[:: len(resident) // 20]
    else:
        assert resident[-1] - resident[0] <= SHORT_SLACK, resident
