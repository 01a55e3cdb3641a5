"""The workers of one server and their overseer, as one of them sees the others.

Every one listens on a Unix socket in a folder that only this user can enter; who has something for another connects
to it, once. What one says to another is in `pipe.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ferrule.workers.pipe import LEAVING, LEFT, Frame, Pipe

logger = logging.getLogger("ferrule.workers")

OVERSEER = -1
"""What stands for the overseer where workers have the number of their slot."""
BACKLOG = 128
LEAVING_TIME = 1.0
"""How many seconds others have to learn that a worker ends."""
SENDING_TIME = 5.0
"""How many seconds they have to take what it leaves them."""

Take = Callable[[Pipe, Frame], None]


class Mesh:
    """The other workers, and the overseer."""

    def __init__(self, folder: str, slot: int, count: int) -> None:
        self.slot = slot
        self.count = count
        self._folder = Path(folder)
        self._listening: socket.socket | None = None
        self._pipes: dict[int, Pipe] = {}
        """Those we have opened, by slot."""
        self._others: set[Pipe] = set()
        """Those that others have opened."""
        self._left: set[Pipe] = set()
        """Those on which only answers come: one of the two workers ends."""
        self._leaving: asyncio.Event | None = None
        """Set when nobody sends us anything any more; None while we stay."""
        self._takers: dict[int, Take] = {}
        self._lost: list[Callable[[Pipe], None]] = []
        self._loop = asyncio.get_running_loop()

    def on(self, kind: int, take: Take) -> None:
        """Call a function with every frame of a kind."""
        self._takers[kind] = take

    def on_lost(self, lost: Callable[[Pipe], None]) -> None:
        """Call a function when a pipe is gone."""
        self._lost.append(lost)

    def open(self) -> None:
        """Let other workers reach us. A successor in the same slot takes the place of whoever had it."""
        path = path_in(self._folder, self.slot)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.setblocking(False)
        listening.bind(str(fresh))
        listening.listen(BACKLOG)
        fresh.rename(path)
        self._listening = listening
        self._loop.add_reader(listening.fileno(), self._accept)

    def close(self) -> None:
        """End everything."""
        self._stop_listening()
        for pipe in [*self._pipes.values(), *self._others, *self._left]:
            pipe.close()

    def _accept(self) -> None:
        assert self._listening is not None
        with suppress(BlockingIOError, InterruptedError):
            accepted, _ = self._listening.accept()
            self._others.add(Pipe(accepted, self._received, self._gone))

    def to(self, slot: int) -> Pipe | None:
        """Return the pipe to another worker or the overseer; None where it cannot be reached."""
        if slot == self.slot or not OVERSEER <= slot < self.count:
            return None
        return self._reached(slot)

    def successor(self) -> Pipe | None:
        """Return the pipe to the worker that has taken our place, and send others there too; None where none has."""
        self._stop_listening()
        self._leaving = asyncio.Event()
        for pipe in self._others:
            pipe.send(LEAVING, 0)
        self._see_who_is_left()
        return self._reached(self.slot)

    async def wait_left(self) -> None:
        """Wait until nobody sends us anything any more and all we said is taken: nothing is on its way then."""
        if self._leaving is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVING_TIME):
                    await self._leaving.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(SENDING_TIME):
                    for pipe in [*self._pipes.values(), *self._others, *self._left]:
                        await pipe.wait_sent()

    def _see_who_is_left(self) -> None:
        if self._leaving is not None and not self._others:
            self._leaving.set()

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None

    def _reached(self, slot: int) -> Pipe | None:
        pipe = self._pipes.get(slot)
        if pipe is not None and not pipe.closed:
            return pipe
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.setblocking(False)
            connected.connect(str(path_in(self._folder, slot)))
        except OSError:
            # It has died and its successor is not there yet, or its queue is full.
            connected.close()
            return None
        pipe = self._pipes[slot] = Pipe(connected, self._received, self._gone)
        return pipe

    def _received(self, pipe: Pipe, frame: Frame) -> None:
        try:
            self._take(pipe, frame)
        except Exception:
            logger.exception("failed on what another worker said")

    def _take(self, pipe: Pipe, frame: Frame) -> None:
        if frame.kind == LEAVING:
            self._forget(pipe)
            pipe.send(LEFT, 0)
        elif frame.kind == LEFT:
            self._others.discard(pipe)
            self._left.add(pipe)
            self._see_who_is_left()
        else:
            self._takers[frame.kind](pipe, frame)

    def _forget(self, pipe: Pipe) -> None:
        """Send nothing more on a pipe that we have opened: whoever has the slot next is reached on another."""
        for slot, each in list(self._pipes.items()):
            if each is pipe:
                del self._pipes[slot]
                self._left.add(pipe)

    def _gone(self, pipe: Pipe) -> None:
        self._others.discard(pipe)
        self._forget(pipe)
        self._left.discard(pipe)
        self._see_who_is_left()
        for lost in self._lost:
            lost(pipe)


def path_in(folder: Path, slot: int) -> Path:
    """Return where a worker listens, or the overseer."""
    if slot == OVERSEER:
        return folder / "overseer"
    return folder / str(slot)
