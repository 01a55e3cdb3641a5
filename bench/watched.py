"""What it costs to be watched: a call over stdio with a feature on, beside the same call without it.

All servers live in this process, each behind two pipes of its own. Their turns are short and interleaved, and the
least of many counts, so that whatever else the machine does spoils neither side.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import time

from bench.contestants import FERRULE
from bench.results import Results

SCENARIO = "watched"
PLAIN = "nobody watches"
METRICS = "with metrics"
TRACING = "with tracing, nothing sampled"
RECEIPTS = "with receipts"

IN_FLIGHT = 32
TURNS = 20
"""How many batches one server answers before it is the next one's turn."""
ROUNDS = 150
READ_SIZE = 1 << 20
OPENING = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"bench","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":40}}}\n'


def features(folder: str) -> dict[str, dict[str, object]]:
    """Return the options of a server, by what the row is called; what is written goes into a folder."""
    from opentelemetry.sdk.trace import TracerProvider

    from ferrule import Receipts, Tracing

    return {
        PLAIN: {},
        METRICS: {"metrics": True},
        TRACING: {"tracing": Tracing(ratio=0, provider=TracerProvider())},
        RECEIPTS: {"receipts": Receipts(folder)},
    }


class Piped:
    """A server of this process at the other end of two pipes."""

    def __init__(self, options: dict[str, object]) -> None:
        from ferrule import Server, Stdio

        app = self._app = Server("bench", **options)

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        read_fd, self._inlet = os.pipe()
        self._outlet, write_fd = os.pipe()
        self._fds = (read_fd, write_fd)
        self._next_id = 1
        self._serving = asyncio.ensure_future(app.serve(Stdio(read_fd=read_fd, write_fd=write_fd)))

    async def begin(self) -> None:
        """Make the handshake."""
        os.set_blocking(self._outlet, False)
        os.write(self._inlet, OPENING)
        await self._answers(1)

    async def answer(self, batches: int) -> float:
        """Return the CPU seconds of so many batches of calls."""
        first = self._next_id
        self._next_id += batches * IN_FLIGHT
        asked = []
        for start in range(first, self._next_id, IN_FLIGHT):
            asked.append(b"".join(CALL % number for number in range(start, start + IN_FLIGHT)))
        before = time.thread_time()
        for batch in asked:
            os.write(self._inlet, batch)
            await self._answers(IN_FLIGHT)
        return time.thread_time() - before

    async def _answers(self, count: int) -> None:
        while count > 0:
            await asyncio.sleep(0)
            try:
                count -= os.read(self._outlet, READ_SIZE).count(b"\n")
            except BlockingIOError:
                continue

    async def rest(self) -> None:
        """Wait until its receipts are written: the thread that writes them is not counted, and disturbs nobody."""
        log = self._app.host.receipts
        while log is not None and log.written + log.lost < self._next_id:
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        """Let it go."""
        os.close(self._inlet)
        await self._serving
        for fd in (*self._fds, self._outlet):
            os.close(fd)


async def _least(rounds: int, folder: str) -> dict[str, float]:
    """Return the CPU microseconds of one call, by feature."""
    servers = {name: Piped(options) for name, options in features(folder).items()}
    least = dict.fromkeys(servers, float("inf"))
    for server in servers.values():
        await server.begin()
        await server.answer(TURNS)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, server in servers.items():
                took = await server.answer(TURNS) / (TURNS * IN_FLIGHT) * 1e6
                least[name] = min(least[name], took)
                await server.rest()
            gc.collect()
    finally:
        gc.enable()
    for server in servers.values():
        await server.end()
    return least


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """Return the CPU microseconds of one call over stdio, by feature."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_least(rounds, folder))


def run_watched(results: Results) -> None:
    """Measure what it costs to be watched."""
    least = measure()
    for name, took in least.items():
        more = took - least[PLAIN]
        row = {"cpu_us": round(took, 3), "more_us": round(more, 3), "over_plain": round(more / least[PLAIN] * 100, 2)}
        results.add(SCENARIO, name, FERRULE, 1, row)
