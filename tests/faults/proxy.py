"""A TCP proxy that is faulty on purpose: it cuts, resets, holds, swallows, delays, chops and reorders."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

RESET = struct.pack("ii", 1, 0)
PIECE = 65536

Way = Literal["to_server", "to_client"]
WAYS: tuple[Way, Way] = ("to_server", "to_client")


class Carried:
    """One connection through the proxy."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.writers: dict[Way, asyncio.StreamWriter] = {"to_client": near, "to_server": far}
        self.swallows: set[Way] = set()

    def cut(self) -> None:
        """End both sides with FIN."""
        for writer in self.writers.values():
            writer.close()

    def reset(self) -> None:
        """End both sides with RST; what is under way is lost."""
        for writer in self.writers.values():
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()


class Proxy:
    """Carries connections to a port, as faultily as it is told.

    `delay` is how many seconds every piece is held, `piece` how many bytes go out at once. `refusing` resets whoever
    comes. While a way is in `held`, bytes that go this way wait. `shuffle(n)` gathers the next answers of `n`
    connections and lets the last of them go first.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.delay = 0.0
        self.piece = PIECE
        self.refusing = False
        self.accepted = 0
        self.connections: set[Carried] = set()
        self._open = {way: asyncio.Event() for way in WAYS}
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathered: list[asyncio.Future[None]] = []
        self._shuffled = 0
        for event in self._open.values():
            event.set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=PIECE)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- faults

    def cut(self) -> None:
        """End every connection with FIN."""
        for carried in list(self.connections):
            carried.cut()

    def reset(self) -> None:
        """End every connection with RST."""
        for carried in list(self.connections):
            carried.reset()

    def stall(self, *ways: Way) -> None:
        """Hold what goes these ways, both if none is named, on every connection, those to come included."""
        for way in ways or WAYS:
            self._open[way].clear()

    def flow(self) -> None:
        """Let everything held go on."""
        for event in self._open.values():
            event.set()

    def half_open(self, *ways: Way) -> None:
        """Swallow what goes these ways on the connections there are now: neither side notices."""
        for carried in self.connections:
            carried.swallows.update(ways or WAYS)

    def shuffle(self, number: int) -> None:
        """Hold the next answers until that many connections have one, then let the last go first."""
        self._shuffled = number

    # -- carrying

    async def _accept(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refusing:
            near.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            near.transport.abort()
            return
        try:
            answers, far = await asyncio.open_connection("127.0.0.1", self.target, limit=PIECE)
        except OSError:
            near.transport.abort()
            return
        carried = Carried(near, far)
        self.connections.add(carried)
        task = asyncio.create_task(self._carry(reader, answers, carried))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, asked: asyncio.StreamReader, answers: asyncio.StreamReader, carried: Carried) -> None:
        """Carry both ways until either side ends: then the other learns it, whichever way it would have noticed."""
        ways = [self._pump(asked, carried, "to_server"), self._pump(answers, carried, "to_client")]
        pumps = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.connections.discard(carried)
            carried.cut()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, carried: Carried, way: Way) -> None:
        writer = carried.writers[way]
        with suppress(OSError):
            while data := await reader.read(PIECE):
                await self._open[way].wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                if way == "to_client" and self._shuffled:
                    await self._turn()
                if way not in carried.swallows:
                    await self._write(writer, data)

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        for part in pieces(data, self.piece):
            writer.write(part)
            await writer.drain()
            if self.piece < PIECE:
                await asyncio.sleep(0)

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gathered.append(turn)
        if len(self._gathered) == self._shuffled:
            gathered, self._gathered, self._shuffled = self._gathered, [], 0
            for number, waiting in enumerate(reversed(gathered)):
                asyncio.get_running_loop().call_later(0.02 * number, _let_go, waiting)
        await turn


def _let_go(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Cut bytes into parts of at most a size."""
    return (data[start : start + size] for start in range(0, len(data), size))
