"""Two descriptors as one asyncio transport: what is read from the one, what is written to the other."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from collections import deque
from collections.abc import Iterable
from itertools import islice

HIGH_WATER = 256 * 1024
LOW_WATER = 64 * 1024
# malloc maps and unmaps a longer buffer for every read, which costs more than the read itself.
READ_SIZE = 64 * 1024
BUFFERS_A_WRITE = 64

logger = logging.getLogger("ferrule.transports")


class PipeTransport(asyncio.Transport):
    """A descriptor to read and a descriptor to write, owned and closed here, as one asyncio transport."""

    def __init__(self, read_fd: int, write_fd: int, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._unblocked: list[int] = []
        self._unblock()
        self._held: deque[memoryview] = deque()
        self._held_size = 0
        self._high = HIGH_WATER
        self._low = LOW_WATER
        self._reading = self._awaiting_room = self._congested = self._closing = self._lost = False
        protocol.connection_made(self)
        self.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set at how many unwritten bytes the protocol is told to pause, and at how many to go on."""
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be written."""
        return self._held_size

    def pause_reading(self) -> None:
        """Leave what comes in the pipe, which makes the peer wait."""
        if self._reading:
            self._reading = False
            self._stop_watching()

    def resume_reading(self) -> None:
        """Hand data on as it comes."""
        if not (self._reading or self._closing):
            self._reading = True
            self._start_watching()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write now what the pipe takes now, the rest when there is room."""
        written = 0
        if not (self._held or self._closing):
            try:
                written = os.write(self._write_fd, data)
            except BlockingIOError:
                pass
            except OSError as error:
                self._write_failed(error)
                return
        if written < len(data):
            self.writelines((memoryview(data)[written:],))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write several buffers in one system call, copying none."""
        if self._closing:
            return
        waited = bool(self._held)
        for data in filter(len, list_of_data):
            self._held.append(memoryview(data))
            self._held_size += len(data)
        if not waited:
            self._write_held()
        if self._held_size > self._high and not self._congested:
            self._congested = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Whether writing can continue after the end of what is read: yes."""
        return True

    def close(self) -> None:
        """Stop reading, write what waits, then close both descriptors."""
        if not self._closing:
            self._closing = True
            self.pause_reading()
            if not self._held:
                self._all_written()

    def abort(self) -> None:
        """Close both descriptors without writing what waits."""
        self._fail(None)

    def _unblock(self) -> None:
        """Let reads and writes of what the loop watches come back at once."""
        if sys.platform == "win32":
            return
        for fd in (self._read_fd, self._write_fd):
            if loop_can_watch(fd) and os.get_blocking(fd):
                self._unblocked.append(fd)
        for fd in self._unblocked:
            os.set_blocking(fd, False)

    def _start_watching(self) -> None:
        self._loop.add_reader(self._read_fd, self._read)

    def _stop_watching(self) -> None:
        self._loop.remove_reader(self._read_fd)

    def _read(self) -> None:
        try:
            data = os.read(self._read_fd, READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        if data:
            self._protocol.data_received(data)
        else:
            self._read_ended()

    def _read_ended(self) -> None:
        self.pause_reading()
        if not self._protocol.eof_received():
            self.close()

    def _write_held(self) -> None:
        if sys.platform == "win32":
            return
        try:
            while self._held:
                self._drop_written(os.writev(self._write_fd, list(islice(self._held, BUFFERS_A_WRITE))))
        except BlockingIOError:
            self._await_room(wanted=True)
        except OSError as error:
            self._write_failed(error)
        else:
            self._await_room(wanted=False)
            if self._closing:
                self._all_written()
        if self._congested and self._held_size <= self._low:
            self._congested = False
            self._protocol.resume_writing()

    def _drop_written(self, size: int) -> None:
        self._held_size -= size
        while size:
            first = self._held.popleft()
            if size < len(first):
                self._held.appendleft(first[size:])
                return
            size -= len(first)

    def _await_room(self, *, wanted: bool) -> None:
        if wanted and not self._awaiting_room:
            self._loop.add_writer(self._write_fd, self._write_held)
        elif self._awaiting_room and not wanted:
            self._loop.remove_writer(self._write_fd)
        self._awaiting_room = wanted

    def _all_written(self) -> None:
        self._loop.call_soon(self._lose, None)

    def _write_failed(self, error: OSError) -> None:
        self._fail(error)

    def _fail(self, error: Exception | None) -> None:
        self._closing = True
        self.pause_reading()
        self._drop_held()
        self._loop.call_soon(self._lose, error)

    def _drop_held(self) -> None:
        self._held.clear()
        self._held_size = 0
        self._await_room(wanted=False)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._release(self._write_fd)
            self._release(self._read_fd)
            self._protocol.connection_lost(error)

    def _release(self, fd: int) -> None:
        if sys.platform != "win32" and fd in self._unblocked:
            os.set_blocking(fd, True)
        os.close(fd)


def loop_can_watch(fd: int) -> bool:
    """Return whether the loop can wait for the descriptor: it refuses files, and a terminal must keep blocking."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
