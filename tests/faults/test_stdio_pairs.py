"""Our client and real child processes: our own server end to end, and servers that do everything wrong."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from pace import prompt

from ferrule import Client, PeerError, Reconnect, ToolError
from ferrule.errors import ChildFailed, InitializeTimedOut, LinkLost, OutcomeUnknown, TimedOut
from ferrule.protocol.session import Phase
from ferrule.testing import run_in_virtual_time
from patience import PATIENT

MIB = 1 << 20
PATIENCE = 120

SERVER = """
import asyncio, os, sys, threading, time
import msgspec
from ferrule import Context, Server, ToolError

app = Server("pair", version="1.0", instructions="Be kind.", list_changed_interval=0)


class Seat(msgspec.Struct):
    row: int
    aisle: bool = True


@app.tool
async def add(a: int, b: int) -> int:
    return a + b


@app.tool
def shout(text: str) -> str:
    print("stray print")
    os.write(1, b"stray bytes\\n")
    return text.upper()


@app.tool
async def fail() -> str:
    raise ToolError("the disk is full")


@app.tool
async def count(to: int, ctx: Context) -> str:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to)
        await ctx.info(f"at {number}")
    return "done"


@app.tool
async def book(ctx: Context) -> str:
    await ctx.step("open", lambda: sys.stderr.write("opened\\n"))
    seat = await ctx.ask("Which seat?", Seat)
    name = await ctx.sample("Name?", max_tokens=5)
    folders = await ctx.list_roots()
    return f"{seat.row} {seat.aisle} {name.text} {folders[0].uri}"


@app.tool
async def wait(ctx: Context) -> str:
    sys.stderr.write("waiting\\n")
    try:
        await asyncio.sleep(3600)
    finally:
        sys.stderr.write("stopped waiting\\n")


@app.tool
async def die(code: int) -> str:
    sys.stderr.write("my last words\\n")
    sys.stderr.flush()
    os._exit(code)


@app.tool
async def pid() -> int:
    return os.getpid()


@app.resource("notes://{number}")
async def note(number: str) -> str:
    return f"note {number}"


@app.tool
async def change(number: str) -> str:
    app.notify_resource_updated(f"notes://{number}")
    app.add_tool(f"tool {number}", pid)
    return "changed"


@app.prompt
async def review(language: str) -> str:
    return f"Review this {language}."


@app.completion("review")
async def languages(value: str) -> list[str]:
    return [name for name in ("perl", "python") if name.startswith(value)]


if __name__ == "__main__":
    app.run()
"""

HANDSHAKE = """
import json, os, sys, time

def answer(message, result):
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)

INFO = {"name": "fake", "version": "1"}
OPENED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
"""


@pytest.fixture
def server(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture
def fake(tmp_path: Path) -> Callable[[str], list[str]]:
    """Write a server of a few lines, and give the command that starts it."""

    def write(body: str) -> list[str]:
        path = tmp_path / "fake.py"
        path.write_text(HANDSHAKE + textwrap.dedent(body))
        return [sys.executable, "-u", str(path)]

    return write


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_test(test: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(test, PATIENCE))

    return run_test


@pytest.fixture(scope="module", autouse=True)
def uvloop_has_opened_what_it_keeps() -> None:
    uvloop.new_event_loop().close()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """A test leaves no descriptor and no process behind."""
    before = held()
    yield
    deadline = time.monotonic() + 20
    while (left := held() - before) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert not left


def held() -> set[str]:
    descriptors = {f"descriptor {fd}" for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}
    children = Path("/proc/thread-self/children").read_text().split()
    return descriptors | {f"process {pid}" for pid in children}


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


class Stderr(list[str]):
    """The lines a child says on stderr."""

    async def until(self, line: str) -> None:
        while line not in self:
            await asyncio.sleep(0.005)


# Our own server


def test_everything_works_over_a_pipe(server, era, run):
    """TEST-08"""

    async def test() -> None:
        reports, logs = [], []
        client = Client(server, mode=era, **PATIENT, log_level="info", stderr="capture")
        client.on_log(lambda level, data, logger: logs.append(data))
        async with client:
            assert client.server_info.name == "pair"
            assert client.instructions == "Be kind."
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            assert (await client.call_tool("shout", {"text": "hé"})).text == "HÉ"
            with pytest.raises(ToolError, match="the disk is full"):
                await client.call_tool("fail")
            with pytest.raises(PeerError, match="Unknown tool"):
                await client.call_tool("moon")
            assert (await client.call_tool("count", {"to": 5}, on_progress=lambda *r: reports.append(r))).text == "done"
            assert (await client.read_resource("notes://7")).text == "note 7"
            assert (await client.get_prompt("review", {"language": "c"})).messages[0].content.text == "Review this c."
            assert (await client.complete("review", {"name": "language", "value": "py"})).values == ["python"]
            assert await client.ping() < 5
        assert [report[:2] for report in reports] == [(n, 5) for n in range(1, 6)]
        assert logs == [f"at {n}" for n in range(1, 6)]

    run(test())


def test_the_newest_era_is_found_over_a_pipe(server, run):
    """COMPAT-2"""

    async def test() -> None:
        async with Client(server, stderr="capture", **PATIENT) as client:
            assert client.protocol_version == "2026-07-28"
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    run(test())


def test_one_handler_asks_in_both_eras_over_a_pipe(server, era, run, tmp_path):
    async def test() -> None:
        said = Stderr()
        answers = {"elicitation": lambda p: {"row": 7}, "sampling": lambda p: "Ada", "roots": [tmp_path]}
        async with Client(server, mode=era, **PATIENT, stderr=said.append, **answers) as client:
            assert (await client.call_tool("book")).text == f"7 True Ada {tmp_path.as_uri()}"
        assert said.count("opened") == 1

    run(test())


def test_changes_are_heard_of_over_a_pipe(server, era, run):
    """SUBS-07"""

    async def test() -> None:
        lists = asyncio.Queue()
        client = Client(server, mode=era, **PATIENT, stderr="capture")
        client.on_notification("notifications/tools/list_changed", lists)
        async with client, client.subscribe("notes://7") as changes:
            await client.call_tool("change", {"number": "8"})
            await client.call_tool("change", {"number": "7"})
            assert await anext(changes) == "notes://7"
            await lists.get()
            assert "tool 7" in [tool.name for tool in await client.list_tools()]

    run(test())


def test_a_cancelled_call_stops_its_handler_and_is_not_answered(server, era, run):
    """CANC-04, STDIO-8"""

    async def test() -> None:
        said = Stderr()
        async with Client(server, mode=era, **PATIENT, stderr=said.append) as client:
            call = asyncio.create_task(client.call_tool("wait"))
            await said.until("waiting")
            started = time.perf_counter()
            call.cancel()
            await asyncio.wait([call])
            await said.until("stopped waiting")
            assert time.perf_counter() - started < prompt(1)
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    run(test())


def test_a_call_that_takes_too_long_is_cancelled_there_too(server, era, run):
    async def test() -> None:
        said = Stderr()
        async with Client(server, mode=era, **PATIENT, stderr=said.append) as client:
            with pytest.raises(TimedOut):
                await client.call_tool("wait", timeout=0.2)
            await said.until("stopped waiting")

    run(test())


def test_a_thousand_calls_at_once_are_all_answered(server, era, run):
    """CORR-03"""

    async def test() -> None:
        async with Client(server, mode=era, **PATIENT, stderr="capture") as client:
            results = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in range(1000)))
            assert [result.data for result in results] == [n + 1 for n in range(1000)]

    run(test())


def test_a_large_message_goes_both_ways(server, era, run):
    async def test() -> None:
        text = "x" * (5 * MIB)
        async with Client(server, mode=era, **PATIENT, stderr="capture") as client:
            assert (await client.call_tool("shout", {"text": text})).text == text.upper()

    run(test())


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_server_that_dies_in_a_call_fails_it_with_its_last_words(how, server, era, run):
    """CORR-10, SESS-10"""

    async def test() -> None:
        said = Stderr()
        client = Client(server, mode=era, **PATIENT, stderr=said.append)
        await client.connect()
        pid = (await client.call_tool("pid")).data
        waiting = [asyncio.create_task(client.call_tool("wait")) for _ in range(5)]
        await said.until("waiting")
        if how == "kill":
            os.kill(pid, signal.SIGKILL)
        else:
            waiting.append(asyncio.create_task(client.call_tool("die", {"code": 3})))
        for call in waiting:
            with pytest.raises(LinkLost) as lost:
                await call
            fate, words = ("exited with code 3", "my last words") if how == "exit" else ("killed by SIGKILL", "waiting")
            assert fate in str(lost.value)
            assert words in str(lost.value)
        assert client.phase is Phase.ERROR
        assert gone(pid)
        await client.reconnect()
        assert (await client.call_tool("pid")).data != pid
        await client.close()

    run(test())


def test_a_client_that_is_closed_ends_its_child(server, era, run):
    """LIFE-10"""

    async def test() -> None:
        async with Client(server, mode=era, **PATIENT, stderr="capture") as client:
            pid = (await client.call_tool("pid")).data
            call = asyncio.create_task(client.call_tool("wait"))
            await client.ping()
            started = time.perf_counter()
            await client.close(drain=0)
            assert time.perf_counter() - started < prompt(1.5)
        assert gone(pid)
        with pytest.raises(LinkLost):
            await call

    run(test())


def test_reconnecting_starts_a_new_process(server, era, run):
    async def test() -> None:
        client = Client(server, mode=era, **PATIENT, stderr="capture")
        pids = []
        for _ in range(3):
            await client.reconnect()
            pids.append((await client.call_tool("pid")).data)
        await client.close()
        assert len(set(pids)) == 3
        assert all(map(gone, pids))

    run(test())


def test_a_paused_server_loses_nothing(server, era, run):
    async def test() -> None:
        async with Client(server, mode=era, **PATIENT, stderr="capture") as client:
            pid = (await client.call_tool("pid")).data
            os.kill(pid, signal.SIGSTOP)
            calls = [asyncio.create_task(client.call_tool("add", {"a": n, "b": 0})) for n in range(100)]
            await asyncio.sleep(0.3)
            assert not any(call.done() for call in calls)
            os.kill(pid, signal.SIGCONT)
            assert [(await call).data for call in calls] == list(range(100))

    run(test())


# Servers that do everything wrong


def test_std_10_a_child_that_exits_at_once_is_reported_with_its_exit_code_and_last_words(fake, run):
    """It is tried twice, for an exit may be the answer of an old server to the probe."""

    async def test() -> None:
        command = fake("""
            sys.stderr.write("x" * 10_000 + " no licence")
            sys.exit(1)
        """)
        client = Client(command, stderr="capture")
        with pytest.raises(ChildFailed) as failed:
            await client.connect()
        message = str(failed.value)
        assert "exited with code 1 before it sent anything" in message
        assert message.endswith(" no licence")
        assert 4000 < message.count("x") <= 4096
        assert client.phase is Phase.ERROR

    run(test())


def test_std_10_a_child_that_ends_on_the_probe_is_started_again(fake, run, tmp_path):
    """COMPAT-2"""

    async def test() -> None:
        starts = tmp_path / "starts"
        command = fake(f"""
            with open({str(starts)!r}, "a") as file:
                file.write("x")
            for line in sys.stdin:
                message = json.loads(line)
                if message.get("method") == "server/discover":
                    sys.exit("what is that?")
                if message.get("method") == "initialize":
                    answer(message, OPENED)
                elif message.get("method") == "ping":
                    answer(message, {{}})
        """)
        async with Client(command, stderr="capture") as client:
            assert client.protocol_version == "2025-11-25"
            await client.ping()
        assert starts.read_text() == "xx"

    run(test())


def test_std_10_a_child_that_never_answers_is_given_up_after_its_deadline(fake):
    """always:STD-10: the probe has 5 s and the handshake 30."""

    async def test() -> None:
        client = Client(fake("time.sleep(600)"), stderr="capture")
        with pytest.raises(InitializeTimedOut, match="within 30 s"):
            await client.connect()
        assert 35 - 0.01 <= asyncio.get_running_loop().time() < 45

    run_in_virtual_time(test())


GARBAGE = """
            junk = [b"Starting...\\n", b"\\xff\\xfe\\n", b"{\\n", b"[]\\n", b"null\\n", b"\\x00" * 100 + b"\\n", b"\\n"]
            for line in sys.stdin:
                message = json.loads(line)
                for piece in junk:
                    os.write(1, piece)
                if message.get("method") == "initialize":
                    answer(message, OPENED)
                elif message.get("method") == "tools/call":
                    answer(message, {"content": [{"type": "text", "text": "fine"}]})
"""


def test_std_10_a_child_that_writes_garbage_is_understood_all_the_same(fake, run):
    """JRPC-21"""

    async def test() -> None:
        async with Client(fake(GARBAGE), stderr="capture", mode="handshake") as client:
            for _ in range(20):
                assert (await client.call_tool("x")).text == "fine"

    run(test())


def test_std_10_a_child_that_only_writes_garbage_is_given_up(fake, run):
    async def test() -> None:
        command = fake("""
            while True:
                os.write(1, os.urandom(100).replace(b"\\n", b"") + b"\\n")
                time.sleep(0.01)
        """)
        with pytest.raises(InitializeTimedOut):
            await Client(command, stderr="capture", init_timeout=0.5, probe_timeout=0.2).connect()

    run(test())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def growth_while(work: Awaitable[None]) -> int:
    """Tell by how much our memory grew at most while some work was done."""
    gc.collect()
    before = most = resident()
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait([task], timeout=0.005)
        most = max(most, resident())
    task.result()
    return most - before


def test_std_10_a_64_mib_line_is_skipped_and_costs_no_more_than_one_message(fake, run):
    """Our limit is 16 MiB, to which the bounds of the catalogue scale."""

    async def test() -> None:
        command = fake("""
            for line in sys.stdin:
                message = json.loads(line)
                if message.get("method") in ("initialize", "tools/call"):
                    for _ in range(64):
                        os.write(1, b"x" * 1024 * 1024)
                    os.write(1, b"\\n")
                if message.get("method") == "initialize":
                    answer(message, OPENED)
                elif message.get("method") == "tools/call":
                    answer(message, {"content": [{"type": "text", "text": "fine"}]})
        """)

        async def work() -> None:
            async with Client(command, stderr="capture", mode="handshake") as client:
                assert (await client.call_tool("x")).text == "fine"

        assert await growth_while(work()) <= 32 * MIB

    run(test())


def test_std_10_dsk_08_a_flood_on_stderr_delays_nothing_and_costs_no_memory(fake, run):
    """always:DSK-08."""

    async def test() -> None:
        command = fake("""
            for line in sys.stdin:
                message = json.loads(line)
                if message.get("method") == "initialize":
                    answer(message, OPENED)
                elif message.get("method") == "tools/call":
                    for _ in range(1024):
                        os.write(2, b"e" * 1024 * 1024)
                    answer(message, {"content": []})
                    sys.exit(7)
        """)

        async def work() -> None:
            async with Client(command, stderr="capture", mode="handshake") as client:
                await client.call_tool("x", timeout=PATIENCE)
                with pytest.raises(LinkLost, match="exited with code 7") as lost:
                    await client.call_tool("x")
                assert str(lost.value).count("e" * 4096) == 1

        assert await growth_while(work()) <= 8 * MIB

    run(test())


def test_std_10_a_child_that_stops_reading_does_not_block_the_client(fake, run):
    async def test() -> None:
        command = fake("""
            message = json.loads(sys.stdin.readline())
            answer(message, OPENED)
            time.sleep(600)
        """)
        client = Client(command, stderr="capture", mode="handshake", probe_on_timeout=False)
        await client.connect()
        with pytest.raises(TimedOut):
            await client.call_tool("x", {"text": "x" * (8 * MIB)}, timeout=0.3)
        os.kill(client._keeper.conversation.transport.pid, signal.SIGKILL)
        await client.close()

    run(test())


def test_a_server_may_end_the_session_by_closing_its_stdout(fake, run):
    """LIFE-11"""

    async def test() -> None:
        command = fake("""
            for line in sys.stdin:
                message = json.loads(line)
                if message.get("method") == "initialize":
                    answer(message, OPENED)
                elif message.get("method") == "tools/call":
                    sys.stdout.flush()
                    os.close(1)
                    time.sleep(600)
        """)
        async with Client(command, stderr="capture", mode="handshake") as client:
            with pytest.raises(LinkLost, match="closed its stdout"):
                await client.call_tool("x")
            assert client.phase is Phase.ERROR

    run(test())


def test_a_command_that_cannot_be_started_is_one_sentence(run):
    async def test() -> None:
        for command, said in [(["no-such-command-at-all"], "no such command on PATH"), (["/etc/passwd"], "chmod")]:
            with pytest.raises(ChildFailed, match=said) as failed:
                await Client(command).connect()
            assert "\n" not in str(failed.value)

    run(test())


def test_what_a_child_is_told_is_json_rpc_one_message_a_line(fake, run, tmp_path):
    """RPC-1, RPC-10"""
    heard = tmp_path / "heard"

    async def test() -> None:
        command = fake(f"""
            with open({str(heard)!r}, "wb", 0) as file:
                for line in sys.stdin.buffer:
                    file.write(line)
                    message = json.loads(line)
                    if message.get("method") == "initialize":
                        answer(message, OPENED)
                    elif message.get("method") == "tools/call":
                        answer(message, {{"content": []}})
        """)
        async with Client(command, stderr="capture", mode="handshake") as client:
            await client.call_tool("x", {"text": "line\nbreak \u2028 ünï😀 \x00"})

    run(test())
    lines = heard.read_bytes().decode("utf-8").split("\n")
    assert lines.pop() == ""
    messages = [json.loads(line) for line in lines]
    assert [message["method"] for message in messages] == ["initialize", "notifications/initialized", "tools/call"]
    assert messages[2]["params"]["arguments"] == {"text": "line\nbreak \u2028 ünï😀 \x00"}


WATCHED = """
import os
from ferrule import Server

app = Server("watched", update_interval=0)


@app.resource("note://one")
async def one() -> str:
    return "one"


@app.tool
async def pid() -> int:
    return os.getpid()


@app.tool
async def change() -> str:
    app.notify_resource_updated("note://one")
    return "changed"


@app.tool
async def die() -> str:
    os._exit(3)


app.run()
"""


def test_a_server_that_died_is_started_again_and_asked_for_its_news_again(era, run, tmp_path):
    """STDIO-11: the call it died in is lost and told so, the next one starts it anew, its news are asked for again."""

    async def test() -> None:
        script = tmp_path / "watched.py"
        script.write_text(WATCHED, encoding="utf-8")
        plan = Reconnect(first_delay=0.01, resubscribe=True)
        client = Client([sys.executable, str(script)], mode=era, **PATIENT, stderr="capture", reconnect=plan)
        async with client, client.subscribe("note://one") as news:
            pids = []
            for _ in range(3):
                pids.append((await client.call_tool("pid")).data)
                await client.call_tool("change")
                assert await asyncio.wait_for(anext(aiter(news)), PATIENCE)
                with pytest.raises(OutcomeUnknown, match="it may have run or not"):
                    await client.call_tool("die")
            assert len(set(pids)) == 3
            assert all(map(gone, pids[:2]))

    run(test())
