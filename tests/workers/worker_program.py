"""Real workers: a program of its own, whose processes can be killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from ferrule import Client
from ferrule.errors import FerruleError

PROGRAM = """
import asyncio, json, os, sys, time
from ferrule import Server, Context

app = Server("notes")
kept = []

@app.tool
async def worker() -> int:
    return os.getpid()

@app.tool
async def nap(seconds: float, ctx: Context) -> int:
    await ctx.report_progress(1)
    await asyncio.sleep(seconds)
    return os.getpid()

@app.tool
async def block(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()

@app.tool
async def grow(mebibytes: int) -> int:
    kept.append(b"x" * mebibytes * 2**20)
    return os.getpid()

@app.tool
async def change() -> int:
    app.notify_resource_updated("notes://1")
    return os.getpid()

@app.tool
async def order(ctx: Context) -> str:
    return await ctx.ask("Which?", str)

@app.resource("notes://1")
async def note() -> str:
    return "text"

if __name__ == "__main__":
    app.run(sys.argv[2], port=0, workers=int(sys.argv[1]), **json.loads(sys.argv[3]))
"""
PATIENCE = 30.0


class Program:
    """A running overseer."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
        self.url = next((word for word in self.said.split() if "://" in word), "")

    @property
    def workers(self) -> list[int]:
        """The processes of its workers."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in path.read_text().split()]

    def signal(self, number: int) -> None:
        """Send the overseer a signal."""
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Return its exit code and what else it said."""
        assert self.process.stderr is not None
        code = self.process.wait(PATIENCE)
        # `communicate` would miss what was read together with the first line.
        return code, self.process.stderr.read()


async def until(condition: Callable[[], bool], within: float = PATIENCE) -> float:
    """Wait until something is so; return how long that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within, "it is not so in time"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


class Load:
    """Clients that call without a pause; each begins again when a call of it fails."""

    def __init__(self, url: str, clients: int = 4, modes: tuple[str, ...] = ("handshake", "stateless")) -> None:
        self.answered = 0
        self.failed: list[str] = []
        self.lost_with: list[int] = []
        """Which process had answered last before a call failed: its client speaks to one."""
        self._url = url
        self._modes = modes
        self._over = False
        self._tasks = [asyncio.create_task(self._call(number)) for number in range(clients)]

    async def _call(self, number: int) -> None:
        mode = self._modes[number % len(self._modes)]
        last = 0
        while not self._over:
            try:
                async with Client(self._url, mode=mode) as client:
                    while not self._over:
                        last = (await client.call_tool("worker")).data
                        self.answered += 1
            except FerruleError as error:
                self.failed.append(f"{type(error).__name__}: {error}")
                self.lost_with.append(last)

    async def goes_on(self) -> None:
        """Wait until more calls are answered."""
        before = self.answered
        await until(lambda: self.answered > before + 50)

    async def end(self) -> None:
        """Call no more."""
        self._over = True
        await asyncio.gather(*self._tasks)


class Knocking:
    """Opens a new connection again and again, each for one request."""

    def __init__(self, url: str) -> None:
        self.answered = 0
        self.refused = 0
        """How often nobody listened."""
        self.cut = 0
        """How often a connection ended before it was answered."""
        self.longest = 0.0
        """How many seconds the longest answer took."""
        self._port = urlsplit(url).port
        self._over = False
        self._task = asyncio.create_task(self._knock())

    async def _knock(self) -> None:
        while not self._over:
            began = time.monotonic()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                self.refused += 1
                continue
            try:
                writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                said = await reader.read()
            except OSError:
                said = b""
            writer.close()
            if said.startswith(b"HTTP/1.1 200"):
                self.answered += 1
            else:
                self.cut += 1
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(0.005)

    async def end(self) -> None:
        """Knock no more."""
        self._over = True
        await self._task
