"""A child process as the way to the server that runs in it.

Rule 1: whatever happens, the child is reaped, its process group is ended and its pipes are closed.
Rule 2: what the child says on stderr is read as fast as it comes, and only the end of it is kept.
Rule 3: when we die the child learns it by the end of its stdin. No parent-death signal is asked for: that takes code
between fork and exec, which forbids vfork and is unsafe beside threads, or one more program around the child.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import io
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from ferrule.errors import CarrierError, ChildFailed, SetupError
from ferrule.settings.option import FilePath, MessageSize, Seconds, require
from ferrule.transports.process.pipe import READ_SIZE
from ferrule.transports.process.stdio import QuietStderr
from ferrule.transports.stream import StreamChannel
from ferrule.wire.channel import Receiver, Traits
from ferrule.wire.codec import MAX_MESSAGE_SIZE
from ferrule.wire.framing import LineFramer

if sys.platform == "win32":
    from ferrule.transports.process.windows import NEW_GROUP, ProcessGroup, ReaderThread
    from ferrule.transports.process.windows import ThreadedPipes as PipeTransport
else:
    from ferrule.transports.process.group import NEW_GROUP, ProcessGroup
    from ferrule.transports.process.pipe import PipeTransport

if TYPE_CHECKING:
    from ferrule.telemetry.observer import Observers

SAFE_ENV = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR", "TZ"),
    *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME"),
    # Of Windows, where hardly a program starts without them.
    *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMFILES"),
    *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
)
"""What a child may know of our environment unless told otherwise: where things are, and no secrets."""

TAIL_SIZE = 4096
LINE_SIZE = 64 * 1024
SETTLE_TIME = 0.5

StderrSink = Literal["pass", "capture"] | Callable[[str], None] | IO[Any]

logger = logging.getLogger("ferrule.transports")


class StderrLines:
    """Cuts what the child says into lines for a callback."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        """Hand on the lines that are complete, at the end (no data) also the rest; a long line goes in pieces."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (not data or len(self._rest) > LINE_SIZE):
            whole = len(self._rest)
            if data:
                whole -= len(self._rest) % LINE_SIZE
            lines.append(self._rest[:whole])
            self._rest = self._rest[whole:]
        for line in lines:
            self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        for at in range(0, max(len(line), 1), LINE_SIZE):
            self._take(line[at : at + LINE_SIZE].decode("utf-8", "replace").rstrip("\r"))


def stderr_writer(sink: StderrSink) -> Callable[[bytes], object]:
    """Return the function that takes the child's stderr, piece by piece."""
    if sink == "pass":
        return QuietStderr().write
    if sink == "capture":
        return len
    if callable(sink):
        return StderrLines(sink)
    if isinstance(sink, io.TextIOBase):
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        return lambda data: sink.write(decode(data, not data))
    if isinstance(sink, str):
        raise SetupError(f'stderr must be "pass", "capture", a function or a file, not {sink!r}')
    return sink.write


class StderrPump:
    """Reads the child's stderr, keeps its end and hands everything on."""

    def __init__(self, fd: int, write: Callable[[bytes], object], ended: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._write = write
        self._tell_end = ended
        self.tail = b""
        self.ended = False
        if sys.platform == "win32":
            self._thread = ReaderThread(fd, self._take_next)
            self._thread.wanted.set()
            self._thread.start()
        else:
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self.read)

    def read(self) -> None:
        """Take one piece, if there is one."""
        if self.ended or sys.platform == "win32":
            return
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return
        self._take(data)

    def _take_next(self, data: bytes | OSError) -> None:
        """Take what the thread has read, and let it go on."""
        if self.ended:
            return
        self._take(b"" if isinstance(data, OSError) else data)
        if sys.platform == "win32":
            self._thread.wanted.set()

    def _take(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-TAIL_SIZE:]
        try:
            self._write(data)
        except Exception:
            logger.exception("a child's stderr could not be handed on; the rest of it is discarded")
            self._write = len
        if not data:
            self.close()
            self._tell_end()

    def close(self) -> None:
        """Stop reading."""
        if self.ended:
            return
        self.ended = True
        if sys.platform == "win32":
            self._thread.stop()
        else:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)


class ChildPipes(PipeTransport):
    """The child's stdin and stdout; closing ends its stdin and goes on reading, so that it can end in peace."""

    def __init__(self, read_fd: int, write_fd: int, protocol: asyncio.Protocol, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.stdout_ended = self.stdin_broken = False
        super().__init__(read_fd, write_fd, protocol)

    def close(self) -> None:
        """Write what waits, then end the child's stdin."""
        if not self._closing:
            self.resume_reading()
            self._closing = True
            if not self._held:
                self._all_written()

    def lose(self, error: Exception | None) -> None:
        """Close both pipes now."""
        self.abort()
        self._lose(error)

    def _all_written(self) -> None:
        fd = self._write_fd
        self._write_fd = -1
        self._release(fd)

    def _write_failed(self, error: OSError) -> None:
        # What the child said before it stopped listening is still to be read.
        self.resume_reading()
        self._closing = self.stdin_broken = True
        self._drop_held()
        self._all_written()
        self._changed()

    def _read_ended(self) -> None:
        self.pause_reading()
        self._protocol.eof_received()
        self.stdout_ended = True
        self._changed()

    def _release(self, fd: int) -> None:
        if fd >= 0:
            super()._release(fd)


class RunningChild:
    """One process, from its start until it is reaped and its group is gone."""

    def __init__(self, process: subprocess.Popen[bytes], channel: StreamChannel, name: str, grace: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._group = ProcessGroup(process)
        self._channel = channel
        self._name = name
        self._grace = grace
        self._exit: asyncio.Future[None] = self._loop.create_future()
        self._settling: asyncio.TimerHandle | None = None
        self._bytes_seen = 0
        self._stopping = self._lost = False
        self.pid = process.pid
        self._on_exit: Callable[[int], None] | None = None

    def observe(self, observer: Observers) -> None:
        """Report the start of the child now, and its end when it comes."""
        from ferrule.telemetry.observer import ObservedChild

        child = ObservedChild(command=self._name, pid=self.pid, started=time.monotonic())

        def ended(code: int) -> None:
            child.exited = time.monotonic()
            child.exit_code = code
            observer.child_exited(child)

        self._on_exit = ended
        observer.child_started(child)

    def start(self, write_stderr: Callable[[bytes], object]) -> None:
        """Connect the pipes and wait for the exit."""
        process = self._process
        stdin, stdout, stderr = map(take_descriptor, (process.stdin, process.stdout, process.stderr))
        self._pipes = ChildPipes(stdout, stdin, self._channel, self._changed)
        self._stderr = StderrPump(stderr, write_stderr, self._changed)
        self._pidfd = -1
        with suppress(AttributeError, OSError):
            if sys.platform == "linux":
                self._pidfd = os.pidfd_open(self.pid)
        if self._pidfd < 0:
            threading.Thread(target=self._await_exit, name=f"ferrule-child-{self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._exited)

    @property
    def alive(self) -> bool:
        """Whether the process can still be talked to."""
        return not (self._lost or self._stopping)

    @property
    def exit_code(self) -> int | None:
        """The exit code, or minus the number of the signal that killed the child; None while it runs."""
        if self._exit.done():
            return self._process.returncode
        return None

    @property
    def stderr_tail(self) -> str:
        """The last words of the child."""
        return self._stderr.tail.decode("utf-8", "replace").strip()

    async def stop(self, grace: float) -> None:
        """End stdin, then ask the group to end, then kill it, with `grace` seconds before each next step."""
        if self._stopping:
            await asyncio.wait([self._exit])
            await self._channel.wait_lost()
            return
        self._stopping = True
        self._channel.close()
        try:
            for demand in (self._group.ask_to_end, self._group.kill):
                if not self._exit.done():
                    await asyncio.wait([self._exit], timeout=grace)
                if not self._exit.done():
                    demand()
            await asyncio.wait([self._exit])
            await self._wait_group_gone(grace)
        finally:
            self._group.kill()
        self._lose()

    async def _wait_group_gone(self, grace: float) -> None:
        deadline = self._loop.time() + grace
        # Nothing tells when a process group becomes empty.
        while self._group.remains() and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def _await_exit(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._exited)

    def _exited(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        code = self._process.wait()
        self._exit.set_result(None)
        if self._on_exit is not None:
            self._on_exit(code)
        # Whoever the child left behind in its group belongs to nobody now.
        self._end_group()
        if self._lost:
            self._stderr.close()
        self._changed()

    def _end_group(self) -> None:
        if self._group.ask_to_end():
            self._loop.call_later(self._grace, self._group.kill)

    def _changed(self) -> None:
        """Lose the channel when all is read; when something may still come, once nothing came for a while."""
        pipes = self._pipes
        exited = self._exit.done()
        if exited and pipes.stdout_ended and self._stderr.ended:
            self._lose()
        elif self._settling is None and (exited or pipes.stdout_ended or pipes.stdin_broken):
            self._bytes_seen = self._channel.bytes_in
            self._settling = self._loop.call_later(SETTLE_TIME, self._settle)

    def _settle(self) -> None:
        if self._channel.bytes_in == self._bytes_seen:
            self._lose()
        else:
            self._bytes_seen = self._channel.bytes_in
            self._settling = self._loop.call_later(SETTLE_TIME, self._settle)

    def _lose(self) -> None:
        if self._lost:
            return
        self._lost = True
        if self._settling is not None:
            self._settling.cancel()
        if self._exit.done():
            self._stderr.read()
            self._stderr.close()
        else:
            self._end_group()
        self._pipes.lose(None if self._stopping else ChildFailed(self._verdict()))

    def _verdict(self) -> str:
        code = self._process.returncode
        if not self._exit.done():
            fate = f"closed its {'stdout' if self._pipes.stdout_ended else 'stdin'} and was ended"
        elif code < 0:
            fate = f"was killed by {signal.Signals(-code).name}"
        else:
            fate = f"exited with code {code}"
        when = "" if self._channel.messages_in else " before it sent anything"
        if self.stderr_tail:
            words = f"{ChildFailed.SAID}{self.stderr_tail}"
        else:
            words = "it said nothing on stderr"
            if code == 0 and when:
                words += ": does it start a server, as app.run() does?"
        return f"{self._name!r} {fate}{when}; {words}"


def take_descriptor(file: IO[bytes] | None) -> int:
    """Take the descriptor out of a file object, which is closed."""
    assert file is not None
    with file:
        return os.dup(file.fileno())


class ChildKeywords(TypedDict, total=False):
    """The options of `ChildProcess`."""

    env: Mapping[str, str] | None
    inherit_env: Sequence[str] | bool
    cwd: FilePath | None
    stderr: StderrSink
    max_message_size: MessageSize
    grace: Seconds


def from_command_line(address: str, **options: Unpack[ChildKeywords]) -> ChildProcess:
    """Return the transport to "stdio:command with arguments"; raises SetupError for one that cannot be read."""
    _, _, command = address.partition(":")
    try:
        words = shlex.split(command)
    except ValueError as reason:
        raise SetupError(f"cannot read the command {command!r}: {reason}") from None
    if not words:
        raise SetupError("the command is empty: give the program, then its arguments")
    return ChildProcess(words, **options)


class ChildChannel(StreamChannel):
    """The channel to a process of ours."""

    traits = Traits(starts_peer=True)


class ChildProcess:
    """Starts a command and talks to it over its stdin and stdout; connecting again starts a new process."""

    carrier = "stdio"

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        inherit_env: Sequence[str] | bool = SAFE_ENV,
        cwd: str | os.PathLike[str] | None = None,
        stderr: StderrSink = "pass",
        max_message_size: int = MAX_MESSAGE_SIZE,
        grace: float = 2.0,
    ) -> None:
        if isinstance(command, str) or not command:
            raise SetupError("the command must be a list: the program, then its arguments")
        require("max_message_size", max_message_size, MessageSize)
        require("grace", grace, Seconds)
        self._command = list(map(os.fspath, command))
        self._env = env or {}
        self._inherit_env = inherit_env
        self._cwd = cwd
        self._stderr = stderr
        self._max_message_size = max_message_size
        self._grace = grace
        self._child: RunningChild | None = None
        self.observer: Observers | None = None
        """Observers of children that start and end."""

    @property
    def pid(self) -> int | None:
        """The process id of the child that was started last."""
        return self._child.pid if self._child else None

    @property
    def exit_code(self) -> int | None:
        """The exit code, or minus the number of the signal that killed the child; None while it runs."""
        return self._child.exit_code if self._child else None

    @property
    def stderr_tail(self) -> str:
        """The last 4 KiB the child said on stderr."""
        return self._child.stderr_tail if self._child else ""

    async def connect(self, receiver: Receiver) -> StreamChannel:
        """Start the process; raises ChildFailed when that is impossible."""
        if self._child is not None and self._child.alive:
            raise CarrierError(f"{self._command[0]!r} runs already: close it before it is started again")
        await self.close()
        write_stderr = stderr_writer(self._stderr)
        process = self._start()
        channel = self.new_channel(receiver)
        self._child = RunningChild(process, channel, self._command[0], self._grace)
        if self.observer is not None:
            self._child.observe(self.observer)
        self._child.start(write_stderr)
        return channel

    def new_channel(self, receiver: Receiver) -> ChildChannel:
        """Make the channel that reads a child's stdout."""
        return ChildChannel(receiver, LineFramer(self._max_message_size), on_oversize="skip", serving=False)

    async def close(self, grace: float | None = None) -> None:
        """End the process: close its stdin, then SIGTERM, then SIGKILL, with `grace` seconds between."""
        if self._child is not None:
            await self._child.stop(self._grace if grace is None else grace)

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._cwd,
                env=self._environment(),
                start_new_session=True,
                creationflags=NEW_GROUP,
            )
        except (OSError, ValueError) as error:
            raise ChildFailed(f"cannot start {self._command[0]!r}: {self._diagnose(error)}") from error

    def _environment(self) -> dict[str, str]:
        inherited = os.environ if self._inherit_env is True else self._inherit_env or ()
        # A value that begins like this is a function that bash exported: code, not data.
        known = {}
        for name in inherited:
            value = os.environ.get(name, "()")
            if not value.startswith("()"):
                known[name] = value
        return {**known, **self._env}

    def _diagnose(self, error: OSError | ValueError) -> str:
        program = self._command[0]
        if self._cwd is not None and not Path(self._cwd).is_dir():
            return f"the working directory {os.fspath(self._cwd)!r} does not exist; create it or change cwd"
        if isinstance(error, FileNotFoundError):
            if os.sep not in program:
                return "there is no such command on PATH; install it or give its full path"
            if Path(self._cwd or ".", program).exists():
                return "the interpreter that its first line names does not exist; install it or correct the line"
            return "there is no such file; correct the path"
        if isinstance(error, PermissionError):
            return "it may not be executed; make it executable with chmod +x"
        if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
            return "it is not a program; give it a first line such as #!/usr/bin/env python3"
        return str(error)
