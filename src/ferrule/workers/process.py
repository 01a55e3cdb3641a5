"""The process of one worker, as its overseer sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from ferrule.workers.plan import ALIVE, FAILED, GRACE, LEAVE, READY, WorkerPlan, write_plan

COMMAND = ("-m", "ferrule.cli.worker")
"""What a worker runs; the number of the descriptor its plan comes on follows."""
SILENCE = 5.0
"""How many seconds a worker may be silent before it counts as stuck."""
SLACK = 2.0
"""How many seconds a process has to end beyond what its server takes: its stores and its memory."""
SIGNS = 4096
"""How many bytes of signs are read at once, and how long a line may be."""


class WorkerProcess:
    """One process: started with a plan, watched for signs of life."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.ready = asyncio.Event()
        """Set when it serves."""
        self.told = ""
        """What it said when it was ready: the name of the server and where clients find it."""
        self.reason = ""
        """Why it could not begin."""
        self.grace = SLACK
        """How many seconds it has to end once it was asked to; more when it serves, as it says then."""
        self.memory = 0
        """How many bytes of memory it held when it last said so."""
        self.memory_at_first = 0
        """How many it held when it began to serve."""
        self._loop = asyncio.get_running_loop()
        self._process: asyncio.subprocess.Process | None = None
        self._control = -1
        self._status = -1
        self._heard = 0.0
        self._serves_since = 0.0
        self._said = b""
        self._asked_to_end = False
        self._watching: asyncio.TimerHandle | None = None

    async def start(self, plan: Callable[[int], WorkerPlan], listening: list[int]) -> None:
        """Start it; the plan is made with the number of the descriptor it shall tell its status on. Raises OSError."""
        plan_read, self._control = os.pipe()
        self._status, status_write = os.pipe()
        os.set_blocking(self._status, False)
        try:
            content = write_plan(plan(status_write))
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *COMMAND,
                str(plan_read),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(plan_read, status_write, *listening),
                process_group=0,  # Ctrl-C is for the overseer alone
            )
        except BaseException:
            self._release()
            raise
        finally:
            os.close(plan_read)
            os.close(status_write)
        self._heard = self._loop.time()
        self._loop.add_reader(self._status, self._hear)
        with suppress(BrokenPipeError):  # it has ended already, and whoever waits for it hears so
            await asyncio.to_thread(os.write, self._control, len(content).to_bytes(4, "big") + content)

    def _hear(self) -> None:
        try:
            said = os.read(self._status, SIGNS)
        except BlockingIOError:
            return
        if not said:
            self._loop.remove_reader(self._status)
            return
        self._heard = self._loop.time()
        *lines, rest = (self._said + said).split(b"\n")
        self._said = rest[-SIGNS:]
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        if line.startswith(READY) and not self.ready.is_set():
            self.told = line.removeprefix(READY).decode("utf-8", "replace")
            self._serves_since = self._loop.time()
            self.ready.set()
            # One that imports much may be silent for long; one that serves may not.
            self._watch()
        elif line.startswith(FAILED):
            self.reason = line.removeprefix(FAILED).decode("utf-8", "replace")
        elif line.startswith(GRACE):
            with suppress(ValueError):
                self.grace = float(line.removeprefix(GRACE)) + SLACK
        elif line.startswith(ALIVE):
            with suppress(ValueError):
                self.memory = int(line.removeprefix(ALIVE))
            self.memory_at_first = self.memory_at_first or self.memory

    @property
    def pid(self) -> int:
        """Its number; 0 before it was started."""
        if self._process is None:
            return 0
        return self._process.pid

    @property
    def serves(self) -> bool:
        """Whether it serves now."""
        return self.ready.is_set() and self._process is not None and self._process.returncode is None

    @property
    def age(self) -> float:
        """For how many seconds it has served."""
        if not self.ready.is_set():
            return 0.0
        return self._loop.time() - self._serves_since

    def _watch(self) -> None:
        left = self._heard + SILENCE - self._loop.time()
        if left <= 0:
            self.kill()
        else:
            self._watching = self._loop.call_later(left, self._watch)

    async def wait(self) -> int:
        """Return its exit code when it has ended; minus the number of the signal that ended it."""
        assert self._process is not None
        code = await self._process.wait()
        self._release()
        return code

    def _release(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._status >= 0:
            self._hear()  # what it said last
            self._loop.remove_reader(self._status)
            os.close(self._status)
            os.close(self._control)
            self._status = self._control = -1

    def leave(self) -> None:
        """Ask it to leave its sessions and connections to the process that takes its place, and to end."""
        with suppress(OSError):
            os.write(self._control, LEAVE)

    def terminate(self) -> None:
        """Ask it to end: it answers what runs, and takes nothing new."""
        # A second signal would end it at once.
        if not self._asked_to_end:
            self._asked_to_end = True
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def end(self, *, replaced: bool = False) -> int:
        """Ask it to end, wait as long as that may take, then end it."""
        if replaced:
            self.leave()
        else:
            self.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.grace):
                return await self.wait()
        self.kill()
        return await self.wait()
