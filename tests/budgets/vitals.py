"""What a process under attack tells of itself, on a way of its own: the CPU of its longest turn, and its memory.

`watch(fd)` is called in the process that is attacked, before its loop runs; `Vitals` is the other end, in the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

PEAK = "5"
"""What `/proc/self/clear_refs` takes to forget the peak of resident memory (proc(5))."""


class Seen(NamedTuple):
    """What was seen since the last look."""

    longest_turn: float
    """Seconds of CPU that the loop's thread spent in one turn."""
    resident: int
    """Bytes of memory now."""
    peak: int
    """Most bytes of memory at any moment."""
    cpu: float
    """Seconds of CPU of the whole process."""
    loop_error: str
    """What reached the loop's exception handler."""


class _Watch:
    def __init__(self) -> None:
        self.longest = 0.0
        self.loop_error = ""

    def time_turns(self) -> None:
        """Let every turn of every loop be measured in CPU time of its thread, in which waiting costs nothing."""
        run_once = asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]

        def measured(loop: Any) -> None:
            begun = time.thread_time()
            run_once(loop)
            took = time.thread_time() - begun
            self.longest = max(self.longest, took)

        asyncio.BaseEventLoop._run_once = measured  # type: ignore[attr-defined]
        handle = asyncio.BaseEventLoop.call_exception_handler

        def noted(loop: Any, context: dict[str, Any]) -> None:
            self.loop_error = self.loop_error or repr(context)[:500]
            handle(loop, context)

        asyncio.BaseEventLoop.call_exception_handler = noted  # type: ignore[method-assign]

    def answer(self, fd: int) -> None:
        """Tell what was seen whenever the test asks; `reset` forgets it."""
        with socket.socket(fileno=fd) as control, control.makefile("rwb") as lines:
            for line in lines:
                gc.collect()
                if line.strip() == b"reset":
                    self.longest = 0.0
                    Path("/proc/self/clear_refs").write_text(PEAK, encoding="ascii")
                lines.write(json.dumps(self.seen()).encode() + b"\n")
                lines.flush()

    def seen(self) -> Seen:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        sizes = {name: value for name, _, value in (line.partition(":") for line in status.splitlines())}
        resident = int(sizes["VmRSS"].split()[0]) * 1024
        peak = int(sizes["VmHWM"].split()[0]) * 1024
        return Seen(self.longest, resident, peak, time.process_time(), self.loop_error)


def watch(fd: int) -> None:
    """Measure this process from now on, and answer the test at the other end of a socket."""
    watching = _Watch()
    watching.time_turns()
    threading.Thread(target=watching.answer, args=(fd,), daemon=True).start()


class Vitals:
    """The test's end: asks a process how it is."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._theirs: socket.socket | None = theirs
        self.fd = theirs.fileno()
        os.set_inheritable(self.fd, True)
        self._lines = ours.makefile("rwb")

    def begun(self) -> None:
        """Let go of the end the process has inherited."""
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None

    def look(self) -> Seen:
        """Return what was seen since the last reset."""
        return self._ask(b"look\n")

    def reset(self) -> Seen:
        """Forget what was seen, and return how it is now."""
        return self._ask(b"reset\n")

    def _ask(self, line: bytes) -> Seen:
        self._lines.write(line)
        self._lines.flush()
        answer = self._lines.readline()
        assert answer, "the process under attack has died"
        return Seen(*json.loads(answer))

    def close(self) -> None:
        """Ask no more."""
        with contextlib.suppress(OSError):
            self._lines.close()
        self._socket.close()
        self.begun()
