"""The overseer: opens the listening sockets, keeps one process for each, and runs none of the server's code.

Rule 1: the overseer keeps the listening sockets. A worker that dies leaves its queue to its successor: whoever waits in
it is served a moment later, and no connection is refused.
Rule 2: every worker has a socket of its own, so that the system spreads connections evenly (SO_REUSEPORT).
Rule 3: a worker that dies is started again, as often as WORKER_PLAN allows; one that cannot begin ends everything.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from ferrule.errors import FerruleError, SetupError, SupervisorFailed
from ferrule.settings.sources import active
from ferrule.supervision.child import Child, Ready
from ferrule.supervision.restart import RestartPlan
from ferrule.supervision.signals import Shutdown, run_coroutine
from ferrule.supervision.supervisor import Supervisor
from ferrule.transports.contract import InheritingListener
from ferrule.transports.registry import TRANSPORTS
from ferrule.transports.sockets.bind import listen
from ferrule.workers import worker
from ferrule.workers.mesh import OVERSEER, Mesh, path_in
from ferrule.workers.monitor import WorkersMonitor
from ferrule.workers.plan import WorkerPlan
from ferrule.workers.process import WorkerProcess
from ferrule.workers.questions import Questions
from ferrule.workers.recycle import MIB, RecycleRule

logger = logging.getLogger("ferrule.workers")

WORKER_PLAN = RestartPlan(intensity=5, period=60.0, first=0.0, delay=0.1, longest=5.0, calm=10.0)
"""A worker that has lived for ten seconds is replaced at once when it dies; one that keeps dying, later and later."""
CANNOT_BEGIN = 3
"""The exit code of a worker whose server cannot be loaded or begun: starting it again would not help."""
KEY_SIZE = 32
FOLDER = "ferrule-"
"""How the names of the folders begin in which workers find each other: short, as paths of sockets must be."""
RECYCLE_EVERY = 0.5
"""How many seconds lie between two looks at the age and the memory of workers."""
RECYCLE_PAUSE = 30.0
"""How many seconds nothing is tried again after a worker could not be replaced."""


class Oversight(Struct, frozen=True, kw_only=True):
    """What an overseer is to keep running."""

    workers: int
    places: list[str]
    """The files or modules of the server, each with its name."""
    arguments: list[str] = []
    transport: str
    options: dict[str, Any]
    recycle: RecycleRule = RecycleRule()
    ready_timeout: float = 60.0
    """How many seconds a process may take until it serves."""


class WorkerDied(FerruleError):
    """A worker has ended by itself."""


class CannotBegin(FerruleError):
    """A worker could not begin."""


class Slot:
    """The place of one worker: its listening sockets, and the process that has it now."""

    def __init__(self, overseer: Overseer, number: int, listening: list[socket.socket]) -> None:
        self._overseer = overseer
        self.number = number
        self._listening = listening
        self.process: WorkerProcess | None = None
        self.restarts = -1
        """How often a process was started here after the first."""
        self.chance = 0.0
        """Between 0 and 1, another for each process."""

    @property
    def is_up(self) -> bool:
        """Whether a worker serves here."""
        return self.process is not None and self.process.serves

    def child(self) -> Child:
        """Return what a supervisor runs; it ends by itself, when its process has ended in order or was killed."""
        return Child(f"worker-{self.number}", self.run, plan=WORKER_PLAN, ready_timeout=math.inf, grace=math.inf)

    async def run(self, ready: Ready) -> None:
        """Keep a process until it dies; raise what is to be said of its end."""
        self.process = process = await self._start()
        try:
            await self._begin(process)
            ready()
            while True:
                code = await process.wait()
                self._overseer.ended(process)
                if process is self.process:
                    raise WorkerDied(f"worker {self.number} has ended {_by(code)}{_held(code, process)}")
                process = self.process  # it was replaced, and has ended in order
        finally:
            if self.process is not None:
                await self.process.end()

    async def _start(self, *, succeeds: bool = False) -> WorkerProcess:
        process = WorkerProcess(self.number)
        self.restarts += 1
        self.chance = random.random()  # noqa: S311 - spreads restarts, no secret
        numbers = [each.fileno() for each in self._listening]
        await process.start(lambda status: self._overseer.plan_of(self.number, numbers, status, succeeds), numbers)
        return process

    async def _begin(self, process: WorkerProcess) -> None:
        """Wait until a process serves; raise CannotBegin where it ends before that, or hangs and is killed."""
        limit = self._overseer.ready_timeout
        ended = asyncio.ensure_future(process.wait())
        serves = asyncio.ensure_future(process.ready.wait())
        try:
            await asyncio.wait([ended, serves], timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if process.ready.is_set():
                return
            if not ended.done():
                process.kill()
                await ended
                raise CannotBegin(
                    f"worker {self.number} did not serve within {limit:g} s and was killed; "
                    "worker_ready_timeout allows more"
                )
            code = ended.result()
            if code == CANNOT_BEGIN and self.process is process:
                self._overseer.fail(code, process.reason)
            raise CannotBegin(f"worker {self.number} could not begin: {process.reason or _by(code)}")
        finally:
            ended.cancel()
            serves.cancel()

    async def replace(self) -> bool:
        """Start a successor, and when it serves let the process end what it has begun. Return whether one serves."""
        before = self.process
        if before is None:
            return False
        try:
            successor = await self._start(succeeds=True)
        except OSError as error:
            logger.error("the worker is not replaced: no process can be started: %s", error)
            return False
        # Where it dies meanwhile another is started in its place, and others must not find two there.
        ended = asyncio.ensure_future(before.wait())

        def died(over: asyncio.Future[int]) -> None:
            if not over.cancelled():
                successor.kill()

        ended.add_done_callback(died)
        try:
            await self._begin(successor)
        except FerruleError as error:
            logger.error("the worker stays, its successor could not take its place: %s", error)
            return False
        except asyncio.CancelledError:
            successor.kill()
            await successor.wait()
            raise
        finally:
            ended.cancel()
        if self.process is not before or not before.serves:
            # It has died meanwhile, and another is started in its place.
            await successor.end()
            return False
        self.process = successor
        await before.end(replaced=True)
        return True


class Overseer:
    """Keeps the workers of one server."""

    def __init__(self, oversight: Oversight) -> None:
        self._oversight = oversight
        self._keys = [secrets.token_bytes(KEY_SIZE)]
        self._folder = ""
        """Where workers find each other; nobody else can enter it."""
        self.slots: list[Slot] = []
        self._supervisor: Supervisor | None = None
        self._exit_code = 0
        self._reloading: asyncio.Task[None] | None = None
        self._recycling: asyncio.Task[None] | None = None
        self._replacing = asyncio.Lock()
        """Held while a worker is replaced: never two at once."""
        self._monitor: WorkersMonitor | None = None
        self._stopping = False

    @property
    def ready_timeout(self) -> float:
        """How many seconds a process may take until it serves."""
        return self._oversight.ready_timeout

    def plan_of(self, slot: int, listening: list[int], status: int, succeeds: bool) -> WorkerPlan:
        """Return what a worker is told."""
        oversight = self._oversight
        return WorkerPlan(
            slot=slot,
            count=oversight.workers,
            folder=self._folder,
            places=oversight.places,
            configuration=active().path,
            arguments=oversight.arguments,
            transport=oversight.transport,
            options=oversight.options,
            listening=listening,
            status=status,
            succeeds=succeeds,
            request_state_keys=self._keys,
        )

    async def run(self) -> int:
        """Keep the workers until a signal comes; return the exit code of the program."""
        loop = asyncio.get_running_loop()
        sockets = await self._listen()
        remove_left_folders()
        with tempfile.TemporaryDirectory(prefix=FOLDER) as self._folder:
            self.slots = [Slot(self, number, each) for number, each in enumerate(sockets)]
            self._supervisor = Supervisor("workers", *[slot.child() for slot in self.slots])
            mesh = Mesh(self._folder, OVERSEER, self._oversight.workers)
            questions = Questions(mesh)
            self._monitor = WorkersMonitor(questions, self.slots)
            mesh.open()
            with Shutdown(loop, self.stop), suppress(NotImplementedError):
                loop.add_signal_handler(signal.SIGHUP, self.reload)
                try:
                    await self._supervisor.run(self._begun)
                except SupervisorFailed as failure:
                    if not self._exit_code:
                        sys.stderr.write(f"error: {failure.__cause__ or failure}\n")
                        self._exit_code = 1
                finally:
                    loop.remove_signal_handler(signal.SIGHUP)
                    for replacing in (self._reloading, self._recycling):
                        if replacing is not None:
                            replacing.cancel()
                            await asyncio.wait([replacing])
                    await questions.close()
                    mesh.close()
                    for each in sockets:
                        for listening in each:
                            listening.close()
        return self._exit_code

    async def _listen(self) -> list[list[socket.socket]]:
        """Open listening sockets for every worker, all on one port."""
        oversight = self._oversight
        listener = TRANSPORTS[oversight.transport].new_listener(oversight.options)
        if not isinstance(listener, InheritingListener):
            raise SetupError(f"{oversight.transport} cannot be served by several workers: leave workers out")
        place = listener.place
        if sys.platform != "linux":
            # Elsewhere sockets of one port do not share what comes.
            return [await listen(place)] * oversight.workers
        opened: list[list[socket.socket]] = []
        port = place.port
        for _ in range(oversight.workers):
            # The settings of every listener are structs.
            sockets = await listen(structs.replace(place, port=port, reuse_port=True))  # type: ignore[type-var]
            port = sockets[0].getsockname()[1]
            opened.append(sockets)
        return opened

    def _begun(self) -> None:
        """Called when all workers serve."""
        self._recycling = asyncio.ensure_future(self._recycle(self._oversight.recycle))
        process = self.slots[0].process
        told = "" if process is None else process.told
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{told} with {len(self.slots)} workers. Ctrl-C ends it.\n")

    # -- signals

    def stop(self) -> None:
        """Let all workers end in order."""
        self._stopping = True
        for slot in self.slots:
            if slot.process is not None:
                slot.process.terminate()
        if self._supervisor is not None:
            self._supervisor.request_stop()

    def fail(self, code: int, reason: str) -> None:
        """End everything: a worker could not begin, and no other could."""
        if not self._stopping:
            sys.stderr.write(f"error: {reason}\n")
            self._exit_code = code
            self.stop()

    def reload(self) -> None:
        """Replace one worker after the other by one that loads the server anew."""
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.ensure_future(self._reload())

    async def _reload(self) -> None:
        replaced = 0
        for slot in self.slots:
            if self._stopping:
                return
            async with self._replacing:
                if await slot.replace():
                    replaced += 1
        logger.info("%d of %d workers are replaced", replaced, len(self.slots))

    async def _recycle(self, rule: RecycleRule) -> None:
        """Replace workers that are old or hold much memory, one after the other."""
        warned: set[int] = set()
        while True:
            await asyncio.sleep(RECYCLE_EVERY)
            for slot in self.slots:
                process = slot.process
                if process is None or not process.serves or self._stopping:
                    continue
                if rule.begins_above(process.memory_at_first) and slot.number not in warned:
                    warned.add(slot.number)
                    logger.warning(
                        "worker %d holds %d MiB of memory as soon as it serves: raise worker_max_memory",
                        slot.number,
                        process.memory_at_first // MIB,
                    )
                reason = rule.reason(process.age, process.memory, process.memory_at_first, slot.chance)
                if not reason:
                    continue
                logger.warning("worker %d is replaced: %s", slot.number, reason)
                async with self._replacing:
                    replaced = await slot.replace()
                if not replaced:
                    await asyncio.sleep(RECYCLE_PAUSE)

    def ended(self, process: WorkerProcess) -> None:
        """Called when the process of a worker has ended."""
        if self._monitor is not None:
            self._monitor.ended(process.pid)


def remove_left_folders() -> None:
    """Remove folders of overseers that were killed together with their workers: nobody listens in them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            knocking.setblocking(False)
            try:
                knocking.connect(str(path_in(folder, OVERSEER)))
            except ConnectionRefusedError:
                shutil.rmtree(folder, ignore_errors=True)


def _by(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"


def _held(code: int, process: WorkerProcess) -> str:
    """Say how much memory a killed process held: the system kills those that hold too much, and does not say so."""
    if code != -signal.SIGKILL or not process.memory:
        return ""
    return f", and held {process.memory // MIB} MiB of memory"


def require_program() -> None:
    """Refuse to run workers in a worker."""
    if worker.slot is not None:
        raise SetupError(
            "app.run(workers=…) was reached while a worker imports the program: write it below "
            "`if __name__ == '__main__':`, so that only the program itself does it"
        )


def oversee(
    workers: int,
    places: list[str],
    arguments: list[str],
    transport: str,
    options: dict[str, Any],
    *,
    max_age: float | None = None,
    max_memory: int | None = None,
    ready_timeout: float = 60.0,
) -> None:
    """Keep the workers of a server until a signal comes; ends the process where that ended with an error."""
    oversight = Oversight(
        workers=workers,
        places=places,
        arguments=arguments,
        transport=transport,
        options=options,
        recycle=RecycleRule(max_age, max_memory),
        ready_timeout=ready_timeout,
    )
    code = run_coroutine(Overseer(oversight).run)
    if code:
        sys.stderr.flush()
        os._exit(code)
