"""Our own stdin and stdout as the way to the one peer that started us.

Rule 1: once claimed, nothing but the channel can write to the peer: not print, not a child, not a C library.
Rule 2: a peer that does not read our stderr never makes us wait.
Rule 3: the descriptors are shared with strangers, so they are handed back the way they were.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Unpack, cast

from msgspec import Struct

from ferrule.errors import CarrierError, SetupError
from ferrule.settings.option import MessageSize, NonNegativeInt, Seconds, check, read
from ferrule.transports.contract import Acceptor
from ferrule.transports.process.pipe import READ_SIZE, PipeTransport, loop_can_watch
from ferrule.transports.stream import StreamChannel
from ferrule.wire.channel import Origin, Traits
from ferrule.wire.codec import MAX_MESSAGE_SIZE
from ferrule.wire.framing import LineFramer
from ferrule.wire.messages import Message, Notification

if sys.platform == "win32":
    from ferrule.transports.process.windows import ThreadedPipes
else:
    import fcntl

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from ferrule.transports.keywords import StdioKeywords

STDIN = 0
STDOUT = 1
STDERR = 2
PIPE_SIZE = 1024 * 1024
DRAIN_GRACE = 5.0
HANG_UP_DELAY = 0.1
# A pipe that polls as writable has room for a page, so a write of no more than that does not block.
PAGE = 4096
PATIENCE_MS = 100


class QuietStderr(io.RawIOBase):
    """Writes to stderr and, rather than wait for a reader that does not read, drops and counts."""

    def __init__(self, fd: int = STDERR) -> None:
        self._fd = fd
        if sys.platform != "win32":
            self._room = select.poll()
            self._room.register(fd, select.POLLOUT)
        self._lock = threading.RLock()
        self.dropped = 0

    def writable(self) -> bool:
        """Whether this stream is for writing: yes."""
        return True

    def fileno(self) -> int:
        """Return the real descriptor, for children and faulthandler."""
        return self._fd

    def isatty(self) -> bool:
        """Return whether this is a terminal."""
        return os.isatty(self._fd)

    def write(self, data: ReadableBuffer) -> int:
        """Write what there is room for; the rest counts as dropped."""
        view = memoryview(data).cast("B")
        with self._lock:
            written = 0
            # A stderr that is gone is no reason to fail a print.
            with suppress(OSError):
                while written < len(view) and self._has_room():
                    written += os.write(self._fd, view[written : written + PAGE])
            self.dropped += len(view) - written
        return len(view)

    def _has_room(self) -> bool:
        if sys.platform == "win32":
            # Nothing tells there whether a pipe has room.
            return True
        if not self.dropped:
            return bool(self._room.poll(0) or self._room.poll(PATIENCE_MS))
        if not self._room.poll(0):
            return False
        os.write(self._fd, b"\n[ferrule: stderr was full, %d bytes were dropped]\n" % self.dropped)
        self.dropped = 0
        return bool(self._room.poll(0))


class Claim:
    """The standard streams, taken away from everyone else in this process until released."""

    def __init__(self) -> None:
        if sys.stdout is not None:
            sys.stdout.flush()
        self.read_fd = keep(STDIN, "stdin", sys.__stdin__)
        self.write_fd = keep(STDOUT, "stdout", sys.__stdout__)
        self._strays = place_for_strays()
        redirect_to_null(STDIN)
        os.dup2(self._strays, STDOUT)
        self._stdout = sys.stdout
        self._stderr = sys.stderr
        self._quiet = io.TextIOWrapper(
            cast("BinaryIO", QuietStderr(self._strays)), "utf-8", "backslashreplace", line_buffering=True
        )
        sys.stdout = sys.stderr = self._quiet

    def release(self) -> None:
        """Hand the standard streams back."""
        self._flush_strays()
        os.dup2(self.read_fd, STDIN)
        os.dup2(self.write_fd, STDOUT)
        os.close(self.read_fd)
        os.close(self.write_fd)
        if self._strays != STDERR:
            os.close(self._strays)
        if sys.stdout is self._quiet:
            sys.stdout = self._stdout
        if sys.stderr is self._quiet:
            sys.stderr = self._stderr

    def _flush_strays(self) -> None:
        """Let text that others still buffer go to stderr, for after the release it would go to the peer."""
        with suppress(OSError, ValueError):
            self._quiet.flush()
        if not _takes_more(STDOUT):
            redirect_to_null(STDOUT)
        with suppress(OSError, ValueError):
            if self._stdout is not None:
                self._stdout.flush()
        with suppress(ImportError, OSError, AttributeError, TypeError):
            import ctypes

            ctypes.CDLL(None).fflush(None)


def _takes_more(fd: int) -> bool:
    """Return whether a write would not wait, as far as that can be told."""
    if sys.platform == "win32":
        return True
    room = select.poll()
    room.register(fd, select.POLLOUT)
    return room.poll(0) == [(fd, select.POLLOUT)]


def is_open(fd: int) -> bool:
    """Return whether the descriptor is in use."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def redirect_to_null(fd: int) -> None:
    """Let the descriptor read nothing and write nowhere."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == fd:
        os.set_inheritable(fd, True)
    else:
        os.dup2(null, fd)
        os.close(null)


def keep(fd: int, name: str, at_start: object) -> int:
    """Return a private copy of a standard descriptor, never one of the three standard numbers."""
    # A stream that was closed when Python started is None; its number may be the event loop's own by now.
    with suppress(OSError):
        if at_start is not None and sys.platform == "win32":
            return os.dup(fd)
        if at_start is not None:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, STDERR + 1)
    raise CarrierError(f"{name} is closed: start the server with stdin and stdout connected to its client")


def place_for_strays() -> int:
    """Return the descriptor for what is not for the peer: stderr, or nowhere if we were started without one."""
    if not is_open(STDERR):
        redirect_to_null(STDERR)
    elif sys.__stderr__ is None:
        return os.open(os.devnull, os.O_RDWR)
    return STDERR


current_claim: Claim | None = None


def claim() -> Claim:
    """Claim the standard streams, or give the claim that holds already."""
    global current_claim
    if current_claim is None:
        current_claim = Claim()
    return current_claim


def release() -> None:
    """Hand the standard streams back; harmless when they are not claimed."""
    global current_claim
    if current_claim is not None:
        current_claim.release()
        current_claim = None


def enlarge(fd: int) -> None:
    """Let a pipe hold more, so that both sides take turns less often; refused for anything but a pipe."""
    if sys.platform != "linux":
        return
    with suppress(OSError):
        if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < PIPE_SIZE:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_SIZE)


class ReaderThread(threading.Thread):
    """Reads, piece by piece, what the loop cannot wait for: a file, or a terminal that must not get O_NONBLOCK."""

    def __init__(self, fd: int, take: Callable[[bytes | OSError], None]) -> None:
        super().__init__(name="ferrule-stdin", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._fd = os.dup(fd)
        self._wake_read, self._wake_write = os.pipe()
        self._stopped = False
        self.wanted = threading.Event()

    def stop(self) -> None:
        """End the thread, also in the middle of waiting for input."""
        self._stopped = True
        self.wanted.set()
        os.close(self._wake_write)

    def run(self) -> None:
        """Read one piece each time one is wanted."""
        if sys.platform == "win32":
            return
        ready = select.poll()
        ready.register(self._fd, select.POLLIN)
        ready.register(self._wake_read, select.POLLIN)
        data: bytes | OSError = b"begin"
        while data and not isinstance(data, OSError) and self.wanted.wait() and ready.poll() and not self._stopped:
            self.wanted.clear()
            data = self._read()
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._take, data)
        os.close(self._fd)
        os.close(self._wake_read)

    def _read(self) -> bytes | OSError:
        try:
            return os.read(self._fd, READ_SIZE)
        except OSError as error:
            # A terminal that hung up.
            if error.errno == errno.EIO:
                return b""
            return error


class StandardStreams(PipeTransport):
    """The transport of our own stdin and stdout, whatever they are connected to."""

    def __init__(self, read_fd: int, write_fd: int, protocol: asyncio.Protocol) -> None:
        if loop_can_watch(read_fd):
            self._thread = None
        else:
            self._thread = ReaderThread(read_fd, self._take)
        super().__init__(read_fd, write_fd, protocol)
        if stat.S_ISFIFO(os.fstat(write_fd).st_mode):
            self._loop.add_reader(write_fd, self._hung_up)

    def _start_watching(self) -> None:
        if self._thread is None:
            super()._start_watching()
            return
        self._thread.wanted.set()
        if not self._thread.ident:
            self._thread.start()

    def _stop_watching(self) -> None:
        if self._thread is None:
            super()._stop_watching()
        else:
            self._thread.wanted.clear()

    def _take(self, data: bytes | OSError) -> None:
        if self._closing:
            return
        if isinstance(data, OSError):
            self._fail(data)
        elif data:
            self._protocol.data_received(data)
            if self._reading and self._thread:
                self._thread.wanted.set()
        else:
            self._read_ended()

    def _hung_up(self) -> None:
        self._loop.remove_reader(self._write_fd)
        # A peer that closes both pipes has ended in order: the end of its input comes within the delay.
        self._loop.call_later(HANG_UP_DELAY, self._report_hang_up)

    def _report_hang_up(self) -> None:
        if not self._closing:
            self._write_failed(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._loop.remove_reader(self._write_fd)
            if self._thread:
                self._thread.stop()
        super()._lose(error)


class StdioChannel(StreamChannel):
    """The channel over stdin and stdout; once the input has ended, it sends answers and no notifications.

    A client that closes our stdin is leaving. It takes the answers it still waits for; a client of the official SDK 1.x
    that gets anything else then fails with an exception group in place of its own error.
    """

    traits = Traits(patient=True)
    _left = False

    def _end_handed_over(self) -> None:
        self.send = self._send_answer  # type: ignore[method-assign]

    def _send_answer(self, message: Message | Sequence[Message]) -> None:
        if type(message) is not Notification and not self._left:
            super().send(message)

    def leave(self) -> None:
        """Called when we are told to stop: a client that has closed our stdin before is gone, and gets nothing more."""
        self._left = True


class StdioSettings(Struct, frozen=True, kw_only=True):
    """How the one peer at the other end of two descriptors is served; times are seconds, sizes bytes."""

    max_message_size: MessageSize = MAX_MESSAGE_SIZE
    """The longest message that is read."""
    grace: Seconds = DRAIN_GRACE
    """How long running calls may take to end after the client has closed our input."""
    json_only: bool = False
    """Whether lines that cannot be JSON are passed over."""
    read_fd: NonNegativeInt | None = None
    """A descriptor to read from, in the place of stdin."""
    write_fd: NonNegativeInt | None = None
    """A descriptor to write to, in the place of stdout."""

    def __post_init__(self) -> None:
        check(self)
        if (self.read_fd is None) != (self.write_fd is None):
            raise SetupError("Stdio needs both read_fd and write_fd, or neither")


class Stdio:
    """Serves the one peer at the other end of our own stdin and stdout, or of two given descriptors.

    The options are those of `StdioSettings`.
    """

    carrier = "stdio"
    serves_once = True

    def __init__(self, **options: Unpack[StdioKeywords]) -> None:
        settings = self._settings = read(StdioSettings, options, "stdio")
        if settings.read_fd is None or settings.write_fd is None:
            self._given = None
        else:
            self._given = (settings.read_fd, settings.write_fd)
        self._acceptor: Acceptor | None = None
        self._channel: StdioChannel | None = None
        self._served = asyncio.Event()

    def claim(self) -> None:
        """Take stdin and stdout away from everyone else now, before any code that might print is imported."""
        if self._given is None:
            claim()

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        """Serve until the peer's input ends and all it asked is answered; raises CarrierError when it stops reading."""
        if self._channel is not None:
            raise SetupError("this Stdio serves already")
        self.claim()
        await acceptor.enter()
        try:
            await self._serve(acceptor, ready)
        finally:
            await acceptor.leave()

    async def _serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        receiver = acceptor.link(Origin(carrier="stdio"))
        framer = LineFramer(self._settings.max_message_size)
        channel = StdioChannel(receiver, framer, on_oversize="skip", json_only=self._settings.json_only)
        if sys.platform == "win32":
            ThreadedPipes(*self._open(), channel)
        else:
            StandardStreams(*self._open(), channel)
        self._acceptor = acceptor
        self._channel = channel
        self._served.clear()
        try:
            ready()
            await channel.wait_ended()
            await self._finish(self._settings.grace)
        finally:
            channel.abort()
            await channel.wait_lost()
            self._channel = None
            self._release()
            self._served.set()
        if channel.error is not None:
            raise CarrierError(f"the client can no longer be reached over stdio: {channel.error}") from channel.error

    async def close(self, grace: float) -> None:
        """Let running calls be answered within `grace` seconds, then give stdin and stdout back."""
        if self._channel is None:
            self._release()
            return
        self._channel.leave()
        await self._finish(grace)
        await self._served.wait()

    def _open(self) -> tuple[int, int]:
        read_fd, write_fd = self._given or (claim().read_fd, claim().write_fd)
        for fd in (read_fd, write_fd):
            enlarge(fd)
        return os.dup(read_fd), os.dup(write_fd)

    def _release(self) -> None:
        if self._given is None:
            release()

    async def _finish(self, grace: float) -> None:
        """Wait until everything is answered and written, unless nobody is left to read it."""
        channel = self._channel
        acceptor = self._acceptor
        if channel is None or acceptor is None:
            return
        lost = asyncio.ensure_future(channel.wait_lost())
        drained = asyncio.ensure_future(acceptor.drain(grace))
        try:
            await asyncio.wait([lost, drained], return_when=asyncio.FIRST_COMPLETED)
            channel.close()
            await asyncio.wait([lost], timeout=grace)
            if drained.done():
                drained.result()
            if not lost.done():
                raise CarrierError(f"the client did not read our last answers within {grace:g} s")
        finally:
            lost.cancel()
            drained.cancel()
