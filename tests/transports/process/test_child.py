"""ChildProcess with real children: good ones, bad ones, and what they leave behind."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.errors import CarrierError, ChildFailed, SetupError
from ferrule.transports.process.child import SAFE_ENV, ChildProcess
from ferrule.transports.stream import StreamChannel
from ferrule.wire.channel import Channel
from ferrule.wire.messages import Request

ECHO = str(Path(__file__).with_name("echo_server.py"))
PYTHON = sys.executable
MIB = 1 << 20
LONG = bool(os.environ.get("FERRULE_LONG"))
PATIENCE = 120.0 if LONG else 30.0

Run = Callable[[Awaitable[None]], None]


class Recorder:
    """Writes down what the channel tells."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.refused: list[int] = []
        self.ends = 0
        self.losses: list[Exception | None] = []

    def channel_opened(self, channel: Channel) -> None: ...

    def frame_received(self, frame: bytes, channel: Channel) -> None:
        self.frames.append(frame)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        self.refused.append(max_size)

    def end_received(self, channel: Channel) -> None:
        self.ends += 1

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.losses.append(error)

    async def wait_frames(self, count: int) -> None:
        while len(self.frames) < count:
            await asyncio.sleep(0.005)


async def ask(channel: StreamChannel, recorder: Recorder, method: str = "ping", **params: Any) -> Any:
    known = len(recorder.frames)
    channel.send(Request(1, method, params))
    await recorder.wait_frames(known + 1)
    return json.loads(recorder.frames[-1])["result"]


async def outcome_of(child: ChildProcess) -> tuple[Recorder, str]:
    """Let the child end by itself; give what it said and the error that told of its end."""
    recorder = Recorder()
    channel = await child.connect(recorder)
    await channel.wait_lost()
    assert recorder.losses == [channel.error]
    assert isinstance(channel.error, ChildFailed)
    await child.close()
    return recorder, str(channel.error)


def python(script: str, **options: Any) -> ChildProcess:
    return ChildProcess([PYTHON, "-c", script], **{"stderr": "capture", **options})


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


EARLIER: set[str] = set()
"""The children of this process that no test of this module has started."""


@pytest.fixture(autouse=True)
def only_children_of_this_test() -> None:
    EARLIER.update(children())


def children() -> list[str]:
    return [child for task in os.listdir("/proc/self/task") for child in children_of(task) if child not in EARLIER]


def children_of(task: str) -> list[str]:
    """What one thread started; a thread that ended since it was listed has nothing left."""
    try:
        return Path(f"/proc/self/task/{task}/children").read_text().split()
    except OSError:
        return []


async def wait_gone(pids: list[int], within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert [pid for pid in pids if is_running(pid)] == []


def test_stdi_01_a_server_in_a_child_process_is_asked_and_ended(run: Run, loop: str) -> None:
    """STDI-01, STDI-07, STDIO-3, STDIO-9, FRAM-02: only messages go to its stdin, and the end of it ends the child."""

    async def test() -> None:
        child, recorder = ChildProcess([PYTHON, ECHO, loop], stderr="capture"), Recorder()
        channel = await child.connect(recorder)
        assert child.pid
        assert child.exit_code is None
        assert await ask(channel, recorder, "echo", text="line\nfeed") == {"text": "line\nfeed"}
        with pytest.raises(CarrierError, match="runs already"):
            await child.connect(Recorder())
        started = time.monotonic()
        await child.close()
        assert time.monotonic() - started < 60
        assert child.exit_code == 0
        assert recorder.losses == [None]
        assert child.stderr_tail == "lost NoneType"
        await child.close()
        assert children() == []

    run(test())


def test_stdio_11_connecting_again_starts_a_fresh_process(run: Run, loop: str) -> None:
    """After a close, and after a death; a client does so by itself (STDIO-11 is shown there)."""

    async def test() -> None:
        child, pids = ChildProcess([PYTHON, ECHO, loop], stderr="capture"), set()
        for ending in ("close", "death", "close"):
            recorder = Recorder()
            channel = await child.connect(recorder)
            pids.add(child.pid)
            assert await ask(channel, recorder) == {}
            if ending == "close":
                await child.close()
            else:
                assert child.pid
                os.kill(child.pid, signal.SIGKILL)
                await channel.wait_lost()
                assert str(channel.error) == f"{PYTHON!r} was killed by SIGKILL; it said nothing on stderr"
                assert child.exit_code == -9
        assert len(pids) == 3
        assert children() == []

    run(test())


STUBBORN = """
import os, signal, sys, time
def asked(*_): print("asked", file=sys.stderr, flush=True)
signal.signal(signal.SIGTERM, asked)
print("{}", flush=True)
while sys.stdin.readline(): pass
print("ended", file=sys.stderr, flush=True)
while True: time.sleep(60)
"""


def test_spec_22_a_stubborn_child_is_asked_by_sigterm_and_then_killed(run: Run) -> None:
    """SPEC-22, STDIO-9, LIFE-10: close stdin, wait, SIGTERM, wait, SIGKILL."""

    async def test() -> None:
        child, recorder = python(STUBBORN), Recorder()
        await child.connect(recorder)
        await recorder.wait_frames(1)
        started = time.monotonic()
        await asyncio.gather(child.close(1.5), child.close(1.5))
        assert 3.0 <= time.monotonic() - started < 60
        assert child.stderr_tail.split() == ["ended", "asked"]
        assert child.exit_code == -9
        assert recorder.losses == [None]
        assert children() == []

    run(test())


def test_a_cancelled_close_kills_the_child_and_still_reaps_it(run: Run) -> None:
    async def test() -> None:
        child, recorder = python(STUBBORN), Recorder()
        channel = await child.connect(recorder)
        await recorder.wait_frames(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(child.close(60), 0.1)
        await channel.wait_lost()
        assert child.exit_code == -9
        assert children() == []

    run(test())


def test_a_child_that_never_reads_its_stdin_does_not_hold_up_the_close(run: Run) -> None:
    """STD-10: what cannot be written is given up with the child."""

    async def test() -> None:
        child, recorder = ChildProcess(["sleep", "600"]), Recorder()
        channel = await child.connect(recorder)
        channel.send(Request(1, "big", "x" * 4 * MIB))
        await child.close(1.5)
        assert child.exit_code == -signal.SIGTERM
        assert recorder.losses == [None]

    run(test())


@pytest.mark.parametrize("ending", ["close", "death"])
def test_grandchildren_left_in_the_group_end_with_the_child(run: Run, loop: str, ending: str) -> None:
    """SPEC-22, STD-12: also those that do not care about SIGTERM."""

    async def test() -> None:
        child, recorder = ChildProcess([PYTHON, ECHO, loop], stderr="capture", grace=0.3), Recorder()
        channel = await child.connect(recorder)
        pid = await ask(channel, recorder, "spawn")
        deaf = await ask(channel, recorder, "spawn", deaf=True)
        assert is_running(pid)
        assert is_running(deaf)
        if ending == "close":
            await child.close()
            await wait_gone([pid, deaf])
        else:
            assert child.pid
            os.kill(child.pid, signal.SIGKILL)
            await wait_gone([pid, deaf])
            await channel.wait_lost()
        assert children() == []

    run(test())


def test_std_07_children_and_their_children_end_when_the_parent_is_killed(run: Run, loop: str) -> None:
    """STD-07: every stdin ends in turn; no parent-death signal is needed."""
    script = (
        "import asyncio, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from echo_server import Echo\n"
        "from ferrule.transports.process.child import ChildProcess\n"
        "from ferrule.transports.process.stdio import Stdio\n"
        "async def middle():\n"
        "    child = ChildProcess([sys.executable, *sys.argv[2:]])\n"
        "    await child.connect(Echo())\n"
        "    print(child.pid, file=sys.stderr)\n"
        "    await Stdio().serve(Echo(), lambda: None)\n"
        "    await child.close()\n"
        "async def top():\n"
        "    child = ChildProcess([sys.executable, '-c', sys.argv[1], sys.argv[1], *sys.argv[2:], 'middle'])\n"
        "    await child.connect(Echo())\n"
        "    print(child.pid, file=sys.stderr, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(middle() if sys.argv[-1] == 'middle' else top())\n"
    )

    async def test() -> None:
        with subprocess.Popen([PYTHON, "-c", script, script, ECHO, loop], stderr=subprocess.PIPE) as top:
            assert top.stderr
            pids = [int(await asyncio.to_thread(top.stderr.readline)) for _ in range(2)]
            await asyncio.sleep(0.2)
            assert all(map(is_running, pids))
            top.kill()
        await wait_gone(pids, 2.0 if LONG else 30.0)

    run(test())


def test_std_10_a_child_that_exits_at_once_is_reported_with_its_last_words(run: Run) -> None:
    """STD-10: the exit code and the last 4 KiB of stderr."""

    async def test() -> None:
        script = "import sys; sys.stderr.write('x' * 9000 + '\\nModuleNotFoundError: no colours\\n'); sys.exit(3)"
        child = python(script)
        recorder, error = await outcome_of(child)
        assert error.startswith(f"{PYTHON!r} exited with code 3 before it sent anything; its last words on stderr: xxx")
        assert error.endswith("x\nModuleNotFoundError: no colours")
        assert 4000 < len(child.stderr_tail) <= 4096
        assert child.exit_code == 3
        assert recorder.ends == 1

    run(test())


def test_std_10_garbage_is_handed_on_as_frames_and_everything_said_is_read_before_the_loss(run: Run) -> None:
    """STD-10: what a frame means is not the carrier's business."""

    async def test() -> None:
        script = "import sys; sys.stdout.write('Welcome!\\n\\n' + 'x' * 99 + '\\n' + 'line\\n' * 200000 + 'half')"
        recorder, error = await outcome_of(python(script))
        assert recorder.frames[:2] == [b"Welcome!", b"x" * 99]
        assert recorder.frames[2:] == [b"line"] * 200_000 + [b"half"]
        assert error == f"{PYTHON!r} exited with code 0; it said nothing on stderr"

    run(test())


def peak_growth(before: int) -> int:
    return peak() - before


def peak() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def test_std_10_a_64_mib_line_is_skipped_in_bounded_memory(run: Run) -> None:
    """STD-10: the limit is 16 MiB; our peak stays within twice that."""

    async def test() -> None:
        script = (
            "import sys\n"
            "for _ in range(64): sys.stdout.write('x' * 1048576)\n"
            "sys.stdout.write('\\nnext\\n')\n"
            "sys.stdout.flush()\n"
            "sys.stdin.read()\n"
        )
        child, recorder = python(script), Recorder()
        Path("/proc/self/clear_refs").write_text("5")
        before = peak()
        await child.connect(recorder)
        await recorder.wait_frames(1)
        assert recorder.refused == [16 * MIB]
        growth = peak_growth(before)
        await child.close()
        assert recorder.frames == [b"next"]
        assert growth <= 32 * MIB
        assert child.exit_code == 0

    run(test())


@pytest.mark.parametrize("sink", ["capture", "pass"])
def test_std_10_a_flood_of_stderr_costs_no_memory_and_never_blocks_the_child(
    run: Run, sink: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """STD-10, DSK-08: 1 GB in the long run, 128 MiB in the quick one; passed on, it may be dropped."""
    size = 1024 if LONG else 128 if sink == "capture" else 16

    async def test() -> None:
        script = (
            f"import sys\nfor _ in range({size}): sys.stderr.write('y' * 1048575 + '\\n')\n"
            "sys.stderr.write('flooded')\nsys.stderr.flush()\nprint('{}', flush=True)\nsys.stdin.read()\n"
        )
        child, recorder = python(script, stderr=sink), Recorder()
        Path("/proc/self/clear_refs").write_text("5")
        before = peak()
        await child.connect(recorder)
        await recorder.wait_frames(1)
        assert peak_growth(before) <= 16 * MIB
        await child.close()
        assert child.stderr_tail.endswith("yyy\nflooded")

    run(test())
    if sink == "pass":
        assert capfd.readouterr().err.endswith("yyy\nflooded")


def test_std_10_a_child_that_never_answers_is_ended_by_close(run: Run) -> None:
    """STD-10: the deadline for the start is the client's; the carrier lets go at once."""

    async def test() -> None:
        child, recorder = ChildProcess(["sleep", "600"]), Recorder()
        await child.connect(recorder)
        await asyncio.sleep(0.05)
        assert recorder.losses == []
        await child.close(0.05)
        assert recorder.losses == [None]
        assert children() == []

    run(test())


@pytest.mark.parametrize("name", ["stdout", "stdin"])
def test_a_child_that_closes_a_pipe_but_lives_on_is_lost_and_ended(run: Run, name: str) -> None:
    async def test() -> None:
        script = f"import os, time; os.close({int(name == 'stdout')}); print('closed', file=__import__('sys').stderr)\n"
        child, recorder = python(script + "time.sleep(60)", grace=1.5), Recorder()
        channel = await child.connect(recorder)
        while not channel.lost:
            channel.send(Request(1, "ping"))
            await asyncio.sleep(0.02)
        assert str(channel.error) == (
            f"{PYTHON!r} closed its {name} and was ended before it sent anything; its last words on stderr: closed"
        )
        assert child.pid
        await wait_gone([child.pid])
        await child.close()
        assert child.exit_code == -signal.SIGTERM

    run(test())


def test_std_11_the_child_sees_exactly_its_arguments_its_directory_and_the_allowed_environment(
    run: Run, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STD-11: no shell, no secrets."""
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("SHELL", "() { echo a function; }")
    strange = [";$(touch x)", "`id`", "a b", "*", "é", '"', ""]

    async def environment(**options: Any) -> Any:
        child, recorder = ChildProcess([PYTHON, ECHO, loop, *strange], stderr="capture", **options), Recorder()
        seen = await ask(await child.connect(recorder), recorder, "environ")
        await child.close()
        return seen

    async def test() -> None:
        seen = await environment(cwd=tmp_path, env={"API_KEY": "given"})
        assert seen["argv"] == [ECHO, loop, *strange]
        assert seen["cwd"] == str(tmp_path)
        assert os.listdir(tmp_path) == []
        assert seen["env"]["API_KEY"] == "given"
        assert seen["env"]["LC_ALL"] == "C.UTF-8"
        assert set(seen["env"]) <= {*SAFE_ENV, "API_KEY"} - {"SHELL"}
        assert (await environment(inherit_env=["SECRET_TOKEN"]))["env"].items() >= {("SECRET_TOKEN", "hush")}
        assert "PATH" not in (await environment(inherit_env=["SECRET_TOKEN"]))["env"]
        assert (await environment(inherit_env=True))["env"]["SECRET_TOKEN"] == "hush"
        assert set((await environment(inherit_env=False))["env"]) <= {"LC_CTYPE"}

    run(test())


def test_std_12_spawning_and_closing_leaks_nothing(run: Run) -> None:
    """STD-12: descriptors +0, children 0, at most 1 KiB of memory a cycle."""
    cycles = 500

    async def cycle(number: int) -> None:
        child, recorder = ChildProcess(["cat"], stderr="capture"), Recorder()
        channel = await child.connect(recorder)
        if number % 2:
            channel.send(Request(number, "ping"))
            await recorder.wait_frames(1)
        await child.close()
        assert child.exit_code == 0
        assert recorder.losses == [None]

    async def test() -> None:
        for number in range(10):
            await cycle(number)
        gc.collect()
        tracemalloc.start()
        try:
            descriptors, memory = len(os.listdir("/proc/self/fd")), tracemalloc.get_traced_memory()[0]
            for number in range(cycles):
                await cycle(number)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - memory
        finally:
            tracemalloc.stop()
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        assert children() == []
        assert grown <= 1024 * cycles

    run(test())


def failing_commands(folder: Path) -> dict[str, tuple[list[str], dict[str, Any], str]]:
    (folder / "plain.txt").write_text("not a program")
    (folder / "data").write_text("no first line")
    (folder / "data").chmod(0o755)
    (folder / "script").write_text("#!/no/such/interpreter\n")
    (folder / "script").chmod(0o755)
    at = f"{folder}/"
    return {
        "missing command": (["no-such-cmd"], {}, "there is no such command on PATH; install it or give its full path"),
        "missing file": ([at + "gone"], {}, "there is no such file; correct the path"),
        "plain file": ([at + "plain.txt"], {}, "it may not be executed; make it executable with chmod +x"),
        "data": ([at + "data"], {}, "it is not a program; give it a first line such as #!/usr/bin/env python3"),
        "interpreter": (
            [at + "script"],
            {},
            "the interpreter that its first line names does not exist; install it or correct the line",
        ),
        "directory": (
            ["cat"],
            {"cwd": at + "gone"},
            f"the working directory {at + 'gone'!r} does not exist; create it or change cwd",
        ),
        "null": (["cat", "a\0b"], {}, "embedded null byte"),
    }


def test_a_command_that_cannot_be_started_is_named_with_the_remedy(run: Run, tmp_path: Path) -> None:
    """STD-10, STD-12: and nothing is left behind."""

    async def test() -> None:
        descriptors = len(os.listdir("/proc/self/fd"))
        for command, options, remedy in failing_commands(tmp_path).values():
            with pytest.raises(ChildFailed) as failure:
                await ChildProcess(command, **options).connect(Recorder())
            assert str(failure.value) == f"cannot start {command[0]!r}: {remedy}"
        assert len(os.listdir("/proc/self/fd")) == descriptors

    run(test())


def test_a_command_must_be_a_list() -> None:
    commands: list[Any] = ["cat -n", []]
    for command in commands:
        with pytest.raises(SetupError, match="the command must be a list"):
            ChildProcess(command)


def test_stderr_goes_where_it_is_told_to(run: Run, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """STDIO-4: passed on, captured, handed to a function line by line, or written to a file."""
    script = (
        "import os, time\n"
        "os.write(2, b'first\\r\\nsec\\nlast without end \\xc3')\n"
        "time.sleep(0.1)\n"
        "os.write(2, b'\\xa9')\n"
    )
    lines: list[str] = []
    text, binary = io.StringIO(), (tmp_path / "log").open("wb")

    def fail(line: str) -> None:
        raise ValueError(line)

    async def test() -> None:
        for sink in ("pass", "capture", lines.append, text, binary, fail):
            _, error = await outcome_of(python(script, stderr=sink))
            assert error.endswith("its last words on stderr: first\r\nsec\nlast without end é")

    with binary:
        run(test())
    assert lines == ["first", "sec", "last without end é"]
    assert text.getvalue() == "first\r\nsec\nlast without end é"
    assert (tmp_path / "log").read_bytes() == text.getvalue().encode()
    assert capfd.readouterr().err.startswith("first\r\nsec\nlast without end é")


def test_an_endless_line_on_stderr_is_cut_for_the_function(run: Run) -> None:
    lines: list[str] = []

    async def test() -> None:
        await outcome_of(python("import sys; sys.stderr.write('x' * 1000000)", stderr=lines.append))

    run(test())
    assert "".join(lines) == "x" * 1_000_000
    assert max(map(len, lines)) <= 2 * 65536


def test_an_unknown_place_for_stderr_is_refused(run: Run) -> None:
    async def test() -> None:
        wrong: Any = "nowhere"
        with pytest.raises(SetupError, match="not 'nowhere'"):
            await ChildProcess(["cat"], stderr=wrong).connect(Recorder())

    run(test())


def test_where_the_system_has_no_process_descriptors_a_thread_waits_for_the_exit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")

    async def test() -> None:
        child, recorder = ChildProcess(["cat"]), Recorder()
        channel = await child.connect(recorder)
        channel.send(Request(1, "ping"))
        await recorder.wait_frames(1)
        await child.close()
        assert child.exit_code == 0
        _, error = await outcome_of(python("import sys; sys.exit('no luck')"))
        assert error.endswith("exited with code 1 before it sent anything; its last words on stderr: no luck")
        assert children() == []

    run(test())
