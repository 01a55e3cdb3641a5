"""What takes the place of POSIX pipes and process groups on Windows; imported there only.

Rule 1: no loop of Windows can wait for a pipe, so a thread reads each and a thread writes each. A thread that waits in
a read or a write cannot be called back: it is a daemon, and goes with the process or with its pipe.
Rule 2: a child leads a group of its own, so that Ctrl-Break reaches it and not us. What it started itself is asked with
it, and left when it is killed.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from ferrule.transports.process.pipe import BUFFERS_A_WRITE, READ_SIZE, PipeTransport

NEW_GROUP = int(getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0))
"""The creation flags of a child."""
ASK_TO_END = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM)


class ReaderThread(threading.Thread):
    """Reads a pipe, a piece each time one is wanted, and closes it at the end."""

    def __init__(self, fd: int, take: Callable[[bytes | OSError], None]) -> None:
        super().__init__(name=f"ferrule-reader-{fd}", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._fd = fd
        self._stopped = False
        self.wanted = threading.Event()

    def stop(self) -> None:
        """Read no more; a read that waits is the last."""
        self._stopped = True
        self.wanted.set()
        if not self.ident:
            os.close(self._fd)

    def run(self) -> None:
        """Read until the end, or until somebody stops us."""
        data: bytes | OSError = b"begin"
        while data and not isinstance(data, OSError) and self.wanted.wait() and not self._stopped:
            self.wanted.clear()
            try:
                data = os.read(self._fd, READ_SIZE)
            except BrokenPipeError:
                # So Windows says that nobody can write to the pipe any more.
                data = b""
            except OSError as error:
                data = error
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._take, data)
        os.close(self._fd)


class WriterThread(threading.Thread):
    """Writes to a pipe what it is given, and closes it at the end; counts how much was written."""

    def __init__(self, fd: int, written: Callable[[int | OSError], None]) -> None:
        super().__init__(name=f"ferrule-writer-{fd}", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._written = written
        self._fd = fd
        # The transport gives one piece, and the next when that is written.
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def give(self, data: bytes) -> None:
        """Write some data."""
        self._waiting.put(data)

    def stop(self) -> None:
        """Write no more."""
        self._waiting.put(None)

    def run(self) -> None:
        """Write until somebody stops us."""
        while True:
            data = self._waiting.get()
            if data is None:
                break
            outcome: int | OSError
            try:
                outcome = os.write(self._fd, data)
            except OSError as error:
                outcome = error
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._written, outcome)
        os.close(self._fd)


class ThreadedPipes(PipeTransport):
    """Two pipes as one asyncio transport, by a thread for each."""

    def __init__(self, read_fd: int, write_fd: int, protocol: asyncio.Protocol) -> None:
        self._reader = ReaderThread(read_fd, self._take)
        self._writer = WriterThread(write_fd, self._written)
        self._writer.start()
        super().__init__(read_fd, write_fd, protocol)

    def _unblock(self) -> None:
        """A thread may wait."""

    def _start_watching(self) -> None:
        self._reader.wanted.set()
        if not self._reader.ident:
            self._reader.start()

    def _stop_watching(self) -> None:
        self._reader.wanted.clear()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write when the thread comes to it."""
        # A copy: whoever gave it may use it again before it is written.
        self.writelines((bytes(data),))

    def _write_held(self) -> None:
        if self._held and not self._awaiting_room:
            self._awaiting_room = True
            self._writer.give(b"".join(islice(self._held, BUFFERS_A_WRITE)))

    def _await_room(self, *, wanted: bool) -> None:
        """Nothing is to be called off: what the thread has is written or fails."""

    def _take(self, data: bytes | OSError) -> None:
        if self._lost:
            return
        if isinstance(data, OSError):
            self._fail(data)
        elif data:
            self._protocol.data_received(data)
            if self._reading:
                self._reader.wanted.set()
        else:
            self._read_ended()

    def _written(self, outcome: int | OSError) -> None:
        self._awaiting_room = False
        if isinstance(outcome, OSError):
            if not self._lost:
                self._write_failed(outcome)
            return
        if not self._held:
            return
        self._drop_written(outcome)
        if self._congested and self._held_size <= self._low:
            self._congested = False
            self._protocol.resume_writing()
        self._write_held()
        if self._closing and not self._held:
            self._all_written()

    def _release(self, fd: int) -> None:
        if fd == self._read_fd:
            self._reader.stop()
        else:
            self._writer.stop()


class ProcessGroup:
    """The group of one child, reached by Ctrl-Break."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ask_to_end(self) -> bool:
        """Ask everyone in the group to end. Return whether the child is there."""
        if not self.remains():
            return False
        with suppress(OSError):
            self._process.send_signal(ASK_TO_END)
        return True

    def kill(self) -> bool:
        """End the child at once. Return whether it was there."""
        if not self.remains():
            return False
        with suppress(OSError):
            self._process.kill()
        return True

    def remains(self) -> bool:
        """Return whether the child is there."""
        return self._process.poll() is None
