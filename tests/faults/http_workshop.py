"""Serves MCP over HTTP as `app.run("http")` does, for the tests that treat it badly; prints what it logs.

http_workshop.py '{"server": {"shutdown_grace": 1}, "http": {"quiet": 0.2}, "log": {"level": "DEBUG"}}'
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from turns import Turns

from ferrule import Context, Logging, Server
from ferrule.supervision.logs import unwritable_logs_told


def open_after(seconds: float) -> Any:
    """Return a lifespan that takes so long to begin, and says when it does."""

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        print("opening", flush=True)
        await asyncio.sleep(seconds)
        yield

    return lifespan


class Workshop(Server):
    """A server whose tools wait, tell a lot, and count what became of them."""

    def __init__(
        self, more_tools: int = 0, opening: float = 0.0, payloads: bool = False, book: str = "", **options: Any
    ) -> None:
        if payloads:
            options["middleware"] = [Logging(payloads=True)]
        super().__init__("workshop", version="1", lifespan=open_after(opening) if opening else None, **options)
        for number in range(more_tools):
            self.add_tool(self.echo, name=f"tool_{number:05}")
        self.counts: Counter[str] = Counter()
        for tool in (self.echo, self.sleep, self.tell, self.flood, self.count, self.hold, self.change, self.stats):
            self.add_tool(tool)
        self.add_tool(self.fail)
        self.turns = Turns()
        self.add_tool(self.watch_turns)
        self.add_tool(self.longest_turn)
        self.book = book
        self.add_tool(self.write_down)
        self.add_tool(self.write_down, name="write_down_again", annotations={"idempotentHint": True})
        for uri in ("note://one", "note://two"):
            self.add_resource(uri, lambda: "a note", name=uri)

    async def echo(self, text: str) -> str:
        """Return the text back."""
        return text

    async def sleep(self, ms: float) -> str:
        """Wait."""
        self.counts["running"] += 1
        self.counts["most"] = max(self.counts["most"], self.counts["running"])
        try:
            await asyncio.sleep(ms / 1000)
        finally:
            self.counts["running"] -= 1
        return "slept"

    async def tell(self, ctx: Context, name: str, to: int, pause: float = 0.0) -> str:
        """Tell progress so many times, each under this name."""
        for number in range(1, to + 1):
            await ctx.report_progress(number, to, name)
            await asyncio.sleep(pause)
        return name

    async def flood(self, ctx: Context, name: str, count: int, size: int) -> str:
        """Send so many log messages of this size."""
        try:
            for number in range(count):
                await ctx.info({"n": number, "text": "x" * size})
                self.counts[name] += 1
        except asyncio.CancelledError:
            self.counts[f"{name} cancelled"] += 1
            raise
        return name

    async def count(self, values: Any) -> int:
        """Count what came."""
        return len(values)

    async def fail(self, size: int) -> str:
        """Fail with a message of this size."""
        raise RuntimeError("x" * size)

    async def write_down(self, line: str) -> str:
        """Write a line into the book, which others write into as well."""
        with Path(self.book).open("a") as book:
            book.write(f"{line}\n")
        await asyncio.sleep(0.02)
        return line

    async def hold(self) -> str:
        """Never end."""
        self.counts["running"] += 1
        await asyncio.Event().wait()
        return "never"

    async def change(self, count: int, size: int = 0, pause: float = 0.0, uri: str = "note://one") -> str:
        """Tell so many times that a resource changed."""
        for number in range(count):
            self.notify_resource_updated(uri, n=number, text="x" * size)
            await asyncio.sleep(pause)
        return "changed"

    async def watch_turns(self) -> str:
        """Measure the turns of the loop from now on."""
        self.turns.start()
        return "watching"

    async def longest_turn(self) -> float:
        """Return the CPU time of the loop's longest turn since `watch_turns`, in seconds."""
        return self.turns.longest

    async def stats(self) -> str:
        """Return what was counted."""
        return json.dumps(self.counts)


def watch_logging(counts: Counter[str]) -> None:
    """Count the log records that take more than 10 ms of this thread's own time."""
    handle = logging.Logger.handle

    def watched(logger: logging.Logger, record: logging.LogRecord) -> None:
        began = time.thread_time()
        handle(logger, record)
        counts["records"] += 1
        counts["slow records"] += time.thread_time() - began > 0.01

    logging.Logger.handle = watched  # type: ignore[method-assign]


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    log: dict[str, Any] = {"level": logging.INFO, "format": "%(name)s %(message)s"} | given.get("log", {})
    logging.basicConfig(**(log if "filename" in log else {"stream": sys.stdout} | log))
    workshop = Workshop(**given.get("server", {}))
    watch_logging(workshop.counts)
    with unwritable_logs_told(*logging.getLogger().handlers):
        workshop.run("http", port=0, **given.get("http", {}))
