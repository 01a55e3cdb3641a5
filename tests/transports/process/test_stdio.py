"""Stdio as real servers have it: a process of its own at the other end of pipes, sockets, files and terminals."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ferrule.errors import CarrierError, SetupError
from ferrule.transports.process.stdio import QuietStderr, Stdio
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.codec import decode
from ferrule.wire.messages import Request, Success

ECHO = str(Path(__file__).with_name("echo_server.py"))
MIB = 1 << 20
ENV = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def request(identity: int, method: str = "ping", **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params}).encode() + b"\n"


class EchoProcess:
    """The echo server as a child of the test, spoken to with plain blocking calls."""

    def __init__(self, loop: str, *arguments: str, **options: Any) -> None:
        pipe = subprocess.PIPE
        settings = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "env": ENV, "bufsize": 0, **options}
        self.process: Any = subprocess.Popen([sys.executable, ECHO, loop, *arguments], **settings)
        self.rest = b""

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.process.stdin.fileno(), rest) :]

    def read_line(self) -> Any:
        while b"\n" not in self.rest:
            assert select.select([self.process.stdout], [], [], 10)[0], "nothing to read for 10 s"
            piece = os.read(self.process.stdout.fileno(), MIB)
            assert piece, "the server closed its stdout"
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def call(self, method: str = "ping", **params: Any) -> Any:
        self.write(request(0, method, **params))
        answer = self.read_line()
        assert answer["id"] == 0
        return answer["result"]

    def end(self) -> tuple[list[Any], str, int]:
        """End the input; give the last messages, all of stderr and the exit code."""
        self.process.stdin.close()
        last, errors = self.process.stdout.read(), self.process.stderr.read()
        return [json.loads(line) for line in last.splitlines()], errors.decode(), self.process.wait(60)

    def memory(self, field: str = "VmRSS") -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split(f"{field}:")[1].split()[0]) * 1024

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.process.stderr):
            if file:
                file.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(loop: str) -> Iterator[Callable[..., EchoProcess]]:
    started: list[EchoProcess] = []

    def start_echo(*arguments: str, **options: Any) -> EchoProcess:
        started.append(EchoProcess(loop, *arguments, **options))
        return started[-1]

    yield start_echo
    for server in started:
        server.close()


@pytest.fixture
def server(start: Callable[..., EchoProcess]) -> EchoProcess:
    return start()


def test_stdi_01_requests_on_stdin_are_answered_on_stdout(server: EchoProcess) -> None:
    """STDI-01, STDI-02, STDI-05, STDI-12, STDIO-1, STDIO-2, STDIO-10."""
    assert server.call() == {}
    assert server.call("echo", text="line\nfeed é") == {"text": "line\nfeed é"}
    last, errors, code = server.end()
    assert last == [{"jsonrpc": "2.0", "method": "end"}]
    assert errors == "lost NoneType\n"
    assert code == 0


def test_std_02_96_mib_without_a_line_end_are_refused_in_bounded_memory(server: EchoProcess) -> None:
    """STD-02, SIZE-10: the limit is 16 MiB; the peak of the process stays within 24 MiB of its start."""
    server.call()
    before = server.memory("VmHWM")
    piece = b"x" * MIB
    for _ in range(96):
        server.write(piece)
    refusal = server.read_line()
    assert refusal["error"]["code"] == -32012
    assert refusal["error"]["data"]["maxSize"] == 16 * MIB
    server.write(b"\n" + request(7))
    assert server.read_line()["id"] == 7
    growth = server.memory("VmHWM") - before
    print(f"peak grew by {growth / MIB:.1f} MiB")
    assert growth <= 24 * MIB


def test_std_03_a_client_that_does_not_read_is_not_read_either(server: EchoProcess) -> None:
    """STD-03, STDI-13: 4000 calls of 8 KiB; memory stays bounded, every call is answered once."""
    server.call()
    before = server.memory()
    written = 0

    def push() -> None:
        nonlocal written
        for number in range(4000):
            server.write(request(number, "echo", text="x" * 8192))
            written += 1

    writer = threading.Thread(target=push, daemon=True)
    writer.start()
    stuck_at = -1
    while stuck_at != written:
        stuck_at = written
        time.sleep(0.7)
    assert stuck_at < 1000
    assert server.memory() - before <= 16 * MIB
    assert [server.read_line()["id"] for _ in range(4000)] == list(range(4000))
    writer.join(60)
    assert server.memory() - before <= 16 * MIB


def test_std_04_nothing_but_messages_reaches_stdout(server: EchoProcess) -> None:
    """STD-04, STDI-12, STDIO-2: print, descriptor 1, a child, a C library and faulthandler all land on stderr."""
    assert server.call("print") == {}
    assert server.call() == {}
    last, errors, code = server.end()
    assert last == [{"jsonrpc": "2.0", "method": "end"}]
    assert code == 0
    for stray in ("print", "buffer", "original stdout", "descriptor", "child", "C library"):
        assert errors.count(f"stray {stray}\n") == 1
    assert "print_everywhere" in errors


def test_std_04_children_of_the_server_get_an_empty_stdin(server: EchoProcess) -> None:
    """STD-04, STDIO-3: a child that reads its stdin cannot eat the client's messages."""
    pid = server.call("spawn")
    while Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
        time.sleep(0.01)
    try:
        # A program that begins opens its libraries for a moment; what it has inherited is there all the time.
        deadline = time.monotonic() + 30
        while len(os.listdir(f"/proc/{pid}/fd")) > 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        assert os.readlink(f"/proc/{pid}/fd/1") == os.readlink(f"/proc/{pid}/fd/2")
    finally:
        os.kill(pid, signal.SIGKILL)


def test_std_05_the_end_of_input_ends_an_idle_server(server: EchoProcess) -> None:
    """STD-05, STDI-05, STDIO-10."""
    server.call()
    started = time.monotonic()
    assert server.end()[2] == 0
    assert time.monotonic() - started < 30


def test_std_05_calls_in_flight_at_the_end_of_input_are_answered(server: EchoProcess) -> None:
    """STD-05."""
    server.write(b"".join(request(number, "slow", seconds=0.3) for number in range(20)))
    last, _, code = server.end()
    assert sorted(message["id"] for message in last if "id" in message) == list(range(20))
    assert code == 0


def test_std_05_300_requests_in_one_write_are_all_answered(server: EchoProcess) -> None:
    """STD-05, STDI-08: the last line needs no line end."""
    server.write(b"".join(map(request, range(300))).rstrip(b"\n"))
    last, _, code = server.end()
    assert [message["id"] for message in last if "id" in message] == list(range(300))
    assert code == 0


@pytest.mark.parametrize("asking", [True, False], ids=["asking", "idle"])
def test_std_06_a_closed_stdout_ends_the_server_with_code_1(server: EchoProcess, asking: bool) -> None:
    """STD-06: within 5 seconds and without spinning."""
    server.call()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    server.process.stdout.close()
    if asking:
        server.write(request(1))
    assert server.process.wait(60) == 1
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime < 2
    errors = server.process.stderr.read().decode()
    assert "lost BrokenPipeError" in errors
    assert "can no longer be reached over stdio" in errors


def test_std_06_a_client_that_closes_both_pipes_ends_an_idle_server_in_order(start: Callable[..., EchoProcess]) -> None:
    """STD-06: this is how Popen's own context manager leaves."""
    server = start("silent")
    server.call()
    server.process.stdout.close()
    server.process.stdin.close()
    assert server.process.wait(60) == 0
    assert server.process.stderr.read() == b"lost NoneType\n"


def test_std_06_a_stderr_that_nobody_reads_blocks_nothing_and_the_loss_is_counted(server: EchoProcess) -> None:
    """STD-06: 64 KiB fit, the rest of a megabyte is dropped after a wait of at most 100 ms."""
    fcntl.fcntl(server.process.stderr.fileno(), fcntl.F_SETPIPE_SZ, 64 * 1024)
    server.call()
    started = time.monotonic()
    for _ in range(10):
        server.call("chatter", size=100_000)
    assert time.monotonic() - started < 30
    kept = len(os.read(server.process.stderr.fileno(), MIB))
    assert 60 * 1024 <= kept <= 64 * 1024
    server.call("chatter", size=100)
    _, errors, code = server.end()
    assert f"stderr was full, {1_000_000 - kept} bytes were dropped" in errors
    assert code == 0


def test_std_06_a_closed_stderr_harms_nothing(start: Callable[..., EchoProcess]) -> None:
    """STD-06: the reader went away."""
    server = start()
    server.process.stderr.close()
    server.call("chatter", size=1000)
    server.call("chatter", size=100_000)
    assert server.call() == {}
    server.process.stdin.close()
    assert json.loads(server.process.stdout.read()) == {"jsonrpc": "2.0", "method": "end"}
    assert server.process.wait(60) == 0


def test_std_06_a_server_started_without_any_stderr_keeps_its_stdout_clean(loop: str) -> None:
    """STD-06, STD-04: a descriptor opened later must not become the wire under the number of stderr."""
    script = 'exec "$0" "$@" 2>&-'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, ECHO, loop],
        input=request(1, "print") + request(2),
        env=ENV,
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    assert [json.loads(line).get("id") for line in done.stdout.splitlines()] == [1, 2, None]


def test_std_07_a_server_whose_client_is_killed_is_gone_soon(loop: str) -> None:
    """STD-07: the end of its stdin tells it."""
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, sys.executable, ECHO, loop], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}/stat").exists()
        parent.kill()
    deadline = time.monotonic() + (2.0 if os.environ.get("FERRULE_LONG") else 30.0)
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_std_09_a_stopped_server_loses_nothing(server: EchoProcess) -> None:
    """STD-09: requests written while it stands still are answered when it goes on."""
    server.call()
    server.process.send_signal(signal.SIGSTOP)
    server.write(b"".join(map(request, range(500))))
    time.sleep(5)
    server.process.send_signal(signal.SIGCONT)
    assert [server.read_line()["id"] for _ in range(500)] == list(range(500))


def test_the_pipes_block_again_for_others_when_the_server_has_ended(loop: str) -> None:
    """STDI-07: the open files are shared with whoever started us."""
    (their_read, our_write), (our_read, their_write) = os.pipe(), os.pipe()
    with subprocess.Popen([sys.executable, ECHO, loop], stdin=their_read, stdout=their_write) as process:
        os.write(our_write, request(1))
        assert json.loads(os.read(our_read, MIB))["id"] == 1
        assert not os.get_blocking(their_read)
        os.close(our_write)
        assert process.wait(60) == 0
    assert os.get_blocking(their_read)
    assert os.get_blocking(their_write)
    for fd in (their_read, our_read, their_write):
        os.close(fd)


@pytest.mark.parametrize("shared", [False, True], ids=["two sockets", "one socket"])
def test_sockets_serve_as_stdin_and_stdout(loop: str, shared: bool) -> None:
    """STDI-01: Node starts its children so; inetd hands out one socket for both."""
    ours_in, theirs_in = socket.socketpair()
    ours_out, theirs_out = (ours_in, theirs_in) if shared else socket.socketpair()
    command = [sys.executable, ECHO, loop]
    with ours_in, ours_out, subprocess.Popen(command, stdin=theirs_in.fileno(), stdout=theirs_out.fileno()) as run:
        theirs_in.close()
        theirs_out.close()
        ours_in.sendall(b"".join(map(request, range(100))))
        ours_in.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: ours_out.recv(MIB), b""))
        assert run.wait(60) == 0
    assert [json.loads(line).get("id") for line in received.splitlines()] == [*range(100), None]


def test_files_serve_as_stdin_and_stdout(loop: str, tmp_path: Path) -> None:
    """STDI-01: the loop cannot wait for a file, so a thread reads it."""
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    asked.write_bytes(b"".join(request(number, "echo", text="x" * 100) for number in range(5000)))
    with asked.open("rb") as stdin, answered.open("wb") as stdout:
        subprocess.run([sys.executable, ECHO, loop], stdin=stdin, stdout=stdout, timeout=60, check=True)
    messages = [json.loads(line) for line in answered.read_bytes().splitlines()]
    assert [message.get("id") for message in messages] == [*range(5000), None]


def test_an_empty_device_as_stdin_ends_the_server_at_once(loop: str) -> None:
    """STDI-05."""
    done = subprocess.run(
        [sys.executable, ECHO, loop], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, check=True
    )
    assert json.loads(done.stdout)["method"] == "end"


def test_a_terminal_is_served_and_never_set_to_non_blocking(loop: str) -> None:
    """STDI-01: O_NONBLOCK on a terminal would hit the shell that shares it."""
    master, terminal = pty.openpty()
    with subprocess.Popen([sys.executable, ECHO, loop], stdin=terminal, stdout=terminal, stderr=subprocess.PIPE) as run:
        os.write(master, request(1))
        seen = b""
        while b'"result"' not in seen:
            assert select.select([master], [], [], 5)[0]
            seen += os.read(master, 4096)
        assert os.get_blocking(terminal)
        os.write(master, b"\x04")
        assert run.wait(60) == 0
    os.close(master)
    os.close(terminal)


def test_a_server_started_without_stdin_says_what_is_wrong(loop: str) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', sys.executable, ECHO, loop],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert b"stdin is closed: start the server with stdin and stdout connected to its client" in done.stderr


def test_the_standard_streams_are_given_back_on_close() -> None:
    """STDI-07: after serving, print reaches stdout again and input reads stdin."""
    script = (
        "import asyncio, sys\n"
        "from ferrule.transports.process.stdio import Stdio\n"
        "first = sys.stdout, sys.stderr\n"
        "stdio = Stdio()\n"
        "print('before')\n"
        "stdio.claim()\n"
        "stdio.claim()\n"
        "print('claimed')\n"
        "asyncio.run(stdio.close(1.0))\n"
        "asyncio.run(stdio.close(1.0))\n"
        "assert (sys.stdout, sys.stderr) == first\n"
        "print('after', input())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=b"typed\n", capture_output=True, env=ENV, check=True)
    assert done.stdout == b"before\nafter typed\n"
    assert done.stderr == b"claimed\n"


class Answering:
    """Acceptor and receiver: answers after a while."""

    def __init__(self, seconds: float = 0.0, result: Any = "done") -> None:
        self.seconds, self.result = seconds, result
        self.running: set[asyncio.Task[None]] = set()
        self.origin: Origin | None = None
        self.losses: list[Exception | None] = []

    def link(self, origin: Origin) -> Answering:
        self.origin = origin
        return self

    async def enter(self) -> None: ...
    async def leave(self) -> None: ...
    async def drain(self, grace: float) -> None:
        if self.running:
            await asyncio.wait(self.running, timeout=grace)

    def channel_opened(self, channel: Channel) -> None: ...

    def frame_received(self, frame: bytes, channel: Channel) -> None:
        message = decode(frame)
        assert isinstance(message, Request)
        self.running.add(asyncio.ensure_future(self.answer(message, channel)))

    async def answer(self, message: Request, channel: Channel) -> None:
        await asyncio.sleep(self.seconds)
        channel.send(Success(message.id, self.result))

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None: ...
    def end_received(self, channel: Channel) -> None: ...
    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.losses.append(error)


class Pipes:
    """Two pipes: `stdio` serves their far ends."""

    def __init__(self) -> None:
        self.their_read, self.write = os.pipe()
        self.read, self.their_write = os.pipe()

    def close(self) -> None:
        for fd in (self.their_read, self.write, self.read, self.their_write):
            os.close(fd)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    pipes = Pipes()
    yield pipes
    pipes.close()


def run_on(loop: str, test: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test, 60))


def test_stdi_03_given_descriptors_are_served_and_the_standard_streams_left_alone(loop: str, pipes: Pipes) -> None:
    """STDI-03, STDI-04: no access to stdin; `close` lets the running call be answered and gives all back."""

    async def test() -> None:
        before = sys.stdin, sys.stdout, sys.stderr, os.fstat(0), os.fstat(1), sorted(os.listdir("/proc/self/fd"))
        acceptor, stdio, ready = (
            Answering(0.1),
            Stdio(max_message_size=1024, read_fd=pipes.their_read, write_fd=pipes.their_write),
            asyncio.Event(),
        )
        serving = asyncio.ensure_future(stdio.serve(acceptor, ready.set))
        await ready.wait()
        assert acceptor.origin == Origin(carrier="stdio")
        with pytest.raises(SetupError, match="serves already"):
            await stdio.serve(acceptor, ready.set)
        os.write(pipes.write, request(1))
        await asyncio.sleep(0.02)
        await stdio.close(5.0)
        await serving
        assert json.loads(os.read(pipes.read, 4096)) == {"jsonrpc": "2.0", "id": 1, "result": "done"}
        assert acceptor.losses == [None]
        after = sys.stdin, sys.stdout, sys.stderr, os.fstat(0), os.fstat(1)
        assert after == before[:-1]
        assert os.get_blocking(pipes.their_read)
        await stdio.close(5.0)

    run_on(loop, test())


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_stdi_06_cancelling_the_server_leaves_no_thread_and_no_descriptor(loop: str, kind: str, pipes: Pipes) -> None:
    """STDI-06, STDI-07."""
    master, terminal = pty.openpty()

    async def test() -> None:
        before, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
        read_fd = pipes.their_read if kind == "pipe" else terminal
        serving = asyncio.ensure_future(
            Stdio(max_message_size=1024, read_fd=read_fd, write_fd=pipes.their_write).serve(Answering(), lambda: None)
        )
        await asyncio.sleep(0.05)
        while len(ours := set(threading.enumerate()) - threads) < (kind == "terminal"):
            await asyncio.sleep(0.01)
        assert len(ours) == (kind == "terminal")
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        while any(thread.is_alive() for thread in ours):
            await asyncio.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) == before

    run_on(loop, test())
    os.close(master)
    os.close(terminal)


def test_a_client_that_never_reads_its_last_answers_is_given_up_after_the_grace(loop: str, pipes: Pipes) -> None:
    async def test() -> None:
        acceptor = Answering(result="x" * 4 * MIB)
        stdio = Stdio(max_message_size=8 * MIB, read_fd=pipes.their_read, write_fd=pipes.their_write, grace=0.2)
        os.write(pipes.write, request(1))
        end, pipes.write = pipes.write, os.open(os.devnull, os.O_RDONLY)
        os.close(end)
        with pytest.raises(CarrierError, match="did not read our last answers"):
            await stdio.serve(acceptor, lambda: None)

    run_on(loop, test())


def test_half_a_pair_of_descriptors_is_refused() -> None:
    with pytest.raises(SetupError, match="both read_fd and write_fd"):
        Stdio(read_fd=5)


def test_a_full_stderr_makes_one_short_wait_and_then_none() -> None:
    """STD-06: what is written while it is full is counted, and said when there is room again."""
    read_fd, write_fd = os.pipe()
    fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, 4096)
    stream = QuietStderr(write_fd)
    started = time.monotonic()
    assert stream.write(b"a" * 4096) == 4096
    for _ in range(100):
        assert stream.write(b"b" * 10) == 10
    # A hundred such waits would take ten seconds.
    assert 0.1 <= time.monotonic() - started < 9
    assert stream.dropped == 1000
    assert os.read(read_fd, 8192) == b"a" * 4096
    stream.write(b"c")
    assert os.read(read_fd, 8192) in {
        b"\n[ferrule: stderr was full, 1000 bytes were dropped]\nc",
        b"\n[ferrule: stderr was full, 1000 bytes were dropped]\n",
    }
    os.close(read_fd)
    stream.write(b"nobody reads this")
    os.close(write_fd)


LEAVING = """
import asyncio, sys
from pathlib import Path
from ferrule import Context, Server

app = Server("leaving")

@app.tool
async def work(gone: str, ctx: Context) -> str:
    await ctx.report_progress(1, 3)
    while not Path(gone).exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    await ctx.report_progress(2, 3)
    await ctx.error("nobody reads this")
    app.notify_tools_changed()
    await asyncio.sleep(0.2)
    return "done"

app.run()
"""
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
STATELESS = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/logLevel": "debug",
}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_once_the_input_has_ended_there_are_answers_and_no_notifications(tmp_path: Path, era: str) -> None:
    gone, meta = tmp_path / "gone", {"progressToken": 7, **(STATELESS if era == "stateless" else {})}
    call = {"name": "work", "arguments": {"gone": str(gone)}, "_meta": meta}
    process = subprocess.Popen([sys.executable, "-c", LEAVING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENV)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        if era == "handshake":
            process.stdin.write(request(1, "initialize", **HELLO))
            process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        process.stdin.write(request(2, "tools/call", **call))
        process.stdin.flush()
        heard = [json.loads(process.stdout.readline())]
        while heard[-1].get("method") != "notifications/progress":
            heard.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        gone.touch()
        rest = [json.loads(line) for line in process.stdout]
        assert process.wait(60) == 0
    assert [message.get("id") for message in rest] == [2]
    assert rest[0]["result"]["content"][0]["text"] == "done"


def test_a_client_that_closed_our_input_and_then_stops_us_is_sent_nothing_more(tmp_path: Path) -> None:
    """As clients of the official SDK 1.x leave: they read no more, and an answer would be an error of theirs."""
    call = {"name": "work", "arguments": {"gone": str(tmp_path / "never")}, "_meta": {"progressToken": 7, **STATELESS}}
    process = subprocess.Popen([sys.executable, "-c", LEAVING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENV)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request(2, "tools/call", **call))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["method"] == "notifications/progress"
        process.stdin.close()
        time.sleep(0.3)
        process.terminate()
        assert process.stdout.read() == b""
        process.wait(60)
