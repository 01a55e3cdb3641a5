"""One worker: a server in a process of its own, on sockets that its overseer keeps."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from ferrule.errors import SetupError
from ferrule.supervision.signals import Shutdown
from ferrule.telemetry.process import resident_memory
from ferrule.transports.contract import AnnouncedListener, InheritingListener, Listener
from ferrule.transports.http.endpoint.neighbours import Neighbours
from ferrule.transports.http.listener import Http
from ferrule.workers.mesh import Mesh
from ferrule.workers.neighbours import WorkerNeighbours
from ferrule.workers.plan import ALIVE, GRACE, LEAVE, PULSE, READY, WorkerPlan, say
from ferrule.workers.questions import Questions

ORPHAN_GRACE = 1.0
"""How many seconds a worker without an overseer has to end in order."""
LAST_GRACE = 0.5
"""How many seconds it has after that."""

slot: int | None = None
"""Which worker this process is; None where it is none."""


class OverseerWatch:
    """Ends this process when its overseer is gone, also where the loop is busy or the program is still imported."""

    def __init__(self, control: int, folder: str) -> None:
        self._control = control
        """The descriptor that ends when the overseer does."""
        self._folder = folder
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: Callable[[], None] = _nothing
        self._stop: Callable[[float], None] = _nothing
        self._is_gone = False
        threading.Thread(target=self._watch, name="overseer", daemon=True).start()

    def tell(self, leave: Callable[[], None], stop: Callable[[float], None]) -> None:
        """Call the one in this loop when the overseer says that another has the place, the other when it is gone."""
        self._leave = leave
        self._stop = stop
        self._loop = asyncio.get_running_loop()

    def clean_up(self) -> None:
        """Remove what an overseer left that was killed."""
        if self._is_gone:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _watch(self) -> None:
        with suppress(OSError):
            while said := os.read(self._control, 1):
                if said == LEAVE and self._loop is not None:
                    self._loop.call_soon_threadsafe(self._leave)
        self._is_gone = True
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop, ORPHAN_GRACE)
            time.sleep(ORPHAN_GRACE + LAST_GRACE)
        self.clean_up()
        os._exit(1)


def _nothing(*told: object) -> None:
    """Do nothing."""


class Host(Protocol):
    """What a worker needs of the host of a server."""

    @property
    def shutdown_grace(self) -> float:
        """How many seconds running calls may take to end."""

    def join(self, neighbours: Neighbours, keys: Sequence[bytes]) -> None:
        """Be one of several workers, who seal the states of calls with these keys unless the server has its own."""


class WorkerServer(Protocol):
    """A server, as a worker serves it."""

    name: str

    @property
    def host(self) -> Host:
        """What peers meet."""

    async def serve(self, *listeners: Listener, ready: Callable[[], object] | None = None) -> None:
        """Serve until stopped."""

    async def stop(self, grace: float | None = None) -> None:
        """Stop serving."""


class Worker:
    """Serves one server as one of several workers."""

    def __init__(self, server: WorkerServer, plan: WorkerPlan, overseer: OverseerWatch) -> None:
        self._server = server
        self._plan = plan
        self._overseer = overseer
        self.began = False
        """Whether it has served."""

    async def run(self, listener: Listener) -> None:
        """Serve on the sockets of the plan until a signal comes or the overseer is gone."""
        plan = self._plan
        if not isinstance(listener, InheritingListener):
            raise SetupError(f"{plan.transport} cannot be served by several workers: leave workers out")
        listener.inherited = [socket.socket(fileno=number) for number in plan.listening]
        mesh = Mesh(plan.folder, plan.slot, plan.count)
        questions = Questions(mesh)
        neighbours = WorkerNeighbours(mesh, questions, succeeds=plan.succeeds)
        self._server.host.join(neighbours, plan.request_state_keys)
        loop = asyncio.get_running_loop()
        stopping: set[asyncio.Task[None]] = set()
        pulse: list[asyncio.Task[None]] = []

        def stop(grace: float | None = None) -> None:
            stopping.add(loop.create_task(self._server.stop(grace)))

        async def leave() -> None:
            try:
                if isinstance(listener, Http):
                    await neighbours.leave(listener.leave_to)
            finally:
                await self._server.stop()

        self._overseer.tell(lambda: stopping.add(loop.create_task(leave())), stop)

        def ready() -> None:
            if isinstance(listener, Http) and listener.endpoint is not None:
                neighbours.handle = listener.endpoint.handle
                neighbours.answer = listener.endpoint.answer
                neighbours.adopt = listener.adopt
                neighbours.adopt_session = listener.endpoint.adopt
            mesh.open()
            self.began = True
            told = self._server.name
            if isinstance(listener, AnnouncedListener):
                told += f" serves MCP at {listener.url}"
            say(plan.status, GRACE, str(self._server.host.shutdown_grace + _delay(listener)))
            say(plan.status, READY, told)
            pulse.append(loop.create_task(self._beat()))

        try:
            with Shutdown(loop, stop):
                await self._server.serve(listener, ready=ready)
                if stopping:
                    await asyncio.wait(stopping)
        finally:
            for beating in pulse:
                beating.cancel()
            await neighbours.reports.say_last()
            await mesh.wait_left()
            await questions.close()
            mesh.close()
            self._overseer.clean_up()

    async def _beat(self) -> None:
        while True:
            say(self._plan.status, ALIVE, str(resident_memory()))
            await asyncio.sleep(PULSE)


def _delay(listener: Listener) -> float:
    """Return how many seconds a listener goes on as before when it was told to end."""
    return listener.drain_delay if isinstance(listener, Http) else 0.0
