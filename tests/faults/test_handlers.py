"""Handlers that misbehave: each fails its own call, and nothing else.

Run as a program this module is the fixture server of the fault catalogue, on stdio.
"""

import asyncio
import builtins
import contextlib
import inspect
import itertools
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pace import LONG, prompt

from ferrule import CallFailed, Client, Context, FerruleError, PeerError, Server, ToolError
from ferrule.schema.content import TextContent
from ferrule.testing import pair, run_in_virtual_time

SECRET = "secret-detail-42 /etc/hostname"
PROMPT = prompt(0.1)
PATIENT = {"probe_timeout": 60.0, "request_timeout": 60.0, "ping_timeout": 60.0}


class OwnBase(BaseException):
    """A base exception of the handler's own."""


def recurse() -> int:
    return recurse() + 1


def cycle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


FAILURES: dict[str, Callable[[], BaseException]] = {
    "exc": lambda: ValueError(SECRET),
    "recursion": lambda: RecursionError("too deep"),
    "memory": MemoryError,
    "group": lambda: ExceptionGroup("several", [ValueError(SECRET), KeyError("x")]),
    "stopasync": StopAsyncIteration,
    "stopiter": lambda: StopIteration(5),
    "systemexit": lambda: SystemExit(3),
    "keyboard": KeyboardInterrupt,
    "genexit": GeneratorExit,
    "base": lambda: OwnBase(SECRET),
    "basegroup": lambda: BaseExceptionGroup("several", [OwnBase(SECRET), SystemExit(1)]),
    "cancel": asyncio.CancelledError,
}
FAILING = ["fail", "fail_sync", "fail_stream", "fail_stream_sync"]
ORDINARY = ["exc", "recursion", "memory", "group", "stopasync", "stopiter"]
UNUSUAL = ["systemexit", "keyboard", "genexit", "base", "basegroup", "cancel"]
UNWRITABLE: dict[str, Callable[[], Any]] = {
    "surrogate": lambda: "x\ud800y",
    "nested surrogate": lambda: {"name": ["x\udcff"]},
    "nan": lambda: float("nan"),
    "infinity": lambda: [float("inf")],
    "object": object,
    "function": lambda: recurse,
    "cycle": cycle,
    "generator": lambda: (number for number in itertools.count()),
}
WRITABLE: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"\xff",
    "set": lambda: {1},
    "huge integer": lambda: 2**70,
    "listdir": lambda: os.listdir("/"),
}


def fixture(**options: Any) -> Server:
    """Make the fixture server of the catalogue."""
    app = Server("fixture", **options)
    counts = dict.fromkeys(("started", "finished", "cancelled"), 0)

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    def echo_sync(text: str) -> str:
        return text

    @app.tool
    async def sleep(ms: float) -> str:
        counts["started"] += 1
        try:
            await asyncio.sleep(ms / 1000)
        except asyncio.CancelledError:
            counts["cancelled"] += 1
            raise
        counts["finished"] += 1
        return "slept"

    @app.tool
    def block(ms: float) -> str:
        time.sleep(ms / 1000)
        return "blocked"

    @app.tool
    def burn(ms: float) -> int:
        until, rounds = time.perf_counter() + ms / 1000, 0
        while time.perf_counter() < until:
            rounds += sum(range(50))
        return rounds

    @app.tool
    async def fail(kind: str) -> str:
        if kind == "recursion":
            recurse()
        raise FAILURES[kind]()

    @app.tool
    def fail_sync(kind: str) -> str:
        if kind == "recursion":
            recurse()
        raise FAILURES[kind]()

    @app.tool
    async def fail_stream(kind: str):
        yield 1
        if kind == "recursion":
            recurse()
        raise FAILURES[kind]()

    @app.tool
    def fail_stream_sync(kind: str):
        yield 1
        if kind == "recursion":
            recurse()
        raise FAILURES[kind]()

    @app.tool
    async def give(kind: str):
        return {**UNWRITABLE, **WRITABLE}[kind]()

    @app.tool
    async def big(size: int) -> str:
        return "x" * size

    @app.tool
    async def flood(ctx: Context) -> str:
        for number in itertools.count(1):
            await ctx.report_progress(number, message="x" * 1000)
        return "never"

    @app.tool
    async def stats() -> dict[str, int]:
        return {**counts, "threads": app.threads.busy}

    offer_tampering(app)
    offer_generators(app)
    return app


def offer_generators(app: Server) -> None:
    """Add the tools that yield for ever."""

    @app.tool
    async def numbers():
        for number in itertools.count(1):
            yield number

    @app.tool
    def numbers_sync():
        yield from itertools.count(1)

    @app.tool
    async def words():
        while True:
            yield "x" * 100_000

    @app.tool
    def words_sync():
        while True:
            yield "x" * 100_000


def offer_tampering(app: Server) -> None:
    """Add the tools that meddle with the process they run in."""

    @app.tool
    async def tamper(kind: str) -> str:
        TAMPERING[kind]()
        return "done"

    @app.tool
    def start_loop() -> str:
        return asyncio.run(asyncio.sleep(0, "another loop"))

    @app.tool
    def fork() -> int:
        child = os.fork()
        return os.waitpid(child, 0)[1] if child else -1

    @app.tool
    def forget() -> str:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        subprocess.Popen(["sleep", "60"])
        os.open("/dev/null", os.O_RDONLY)
        return "forgotten"


def break_json() -> None:
    json.dumps = json.loads = lambda *given, **options: 1 / 0  # type: ignore[assignment]


def close_stdout() -> None:
    sys.stdout.close()
    os.close(1)


TAMPERING: dict[str, Callable[[], Any]] = {
    "json": break_json,
    "print": lambda: (print("stray"), sys.stdout.flush(), os.write(1, b"stray\n")),
    "stdout": close_stdout,
    "cwd": lambda: os.chdir("/"),
    "signals": lambda: [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)],
    "builtins": lambda: setattr(builtins, "print", None),
    "recursion": lambda: sys.setrecursionlimit(200),
    "environ": os.environ.clear,
}


def run(work: Any) -> Any:
    """Run an async scenario, and never wait longer than it could take."""
    return asyncio.run(asyncio.wait_for(work, 60))


async def outcome(call: Any) -> str:
    """Return how a call ended: what it says, or what kind of error it was."""
    try:
        result = await call
    except ToolError as error:
        return f"error: {error}"
    except PeerError as error:
        return f"error {error.code}: {error.message}"
    return f"fine: {result.text}"


@contextlib.asynccontextmanager
async def process(*arguments: str, **options: Any) -> AsyncIterator[Client]:
    """Talk to the fixture server in a process of its own."""
    async with Client([sys.executable, __file__, *arguments], stderr="capture", **{**PATIENT, **options}) as client:
        yield client


def patiently(attempt: Callable[[], float], limit: float) -> None:
    """Measure up to three times: a machine that is busy with something else is no fault of ours."""
    measured = []
    for _ in range(3):
        measured.append(attempt())
        if measured[-1] <= limit:
            return
    pytest.fail(f"over {limit} s each time: {measured}")


async def worst_ping(client: Client, running: list[asyncio.Future[Any]]) -> float:
    """Ping every 10 ms while something runs; gives the worst time."""
    worst = 0.0
    while not all(call.done() for call in running):
        worst = max(worst, await client.ping(timeout=60))
        await asyncio.sleep(0.01)
    return worst


# What a handler raises


@pytest.mark.parametrize("tool", FAILING)
@pytest.mark.parametrize("kind", ORDINARY)
def test_hnd_01_an_ordinary_exception_fails_its_call_only(era, tool, kind):
    async def scenario():
        async with pair(fixture(), era) as client:
            other = asyncio.ensure_future(client.call_tool("sleep", {"ms": 20}))
            started = time.process_time()
            told = await outcome(client.call_tool(tool, {"kind": kind}))
            seconds = time.process_time() - started
            assert told.startswith(("error: The tool", "error -32603"))
            assert SECRET not in told
            assert (await other).text == "slept"
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"
            return seconds

    patiently(lambda: run(scenario()), 0.1)


@pytest.mark.parametrize("tool", FAILING)
@pytest.mark.parametrize("kind", UNUSUAL)
def test_hnd_02_a_base_exception_fails_its_call_only(era, tool, kind):
    async def scenario():
        async with pair(fixture(), era) as client:
            other = asyncio.ensure_future(client.call_tool("sleep", {"ms": 20}))
            told = await outcome(client.call_tool(tool, {"kind": kind}))
            assert told.startswith(("error: The tool", "error -32603"))
            assert SECRET not in told
            assert (await other).text == "slept"
            assert (await client.call_tool("echo_sync", {"text": "on"})).text == "on"

    run(scenario())


def test_hnd_01_hnd_02_a_process_survives_everything_a_handler_raises(era):
    async def scenario():
        async with process(mode=era) as client:
            for kind, tool in itertools.product(FAILURES, FAILING):
                assert (await outcome(client.call_tool(tool, {"kind": kind}))).startswith("error")
            assert (await client.call_tool("echo", {"text": "alive"})).text == "alive"

    run(scenario())


@pytest.mark.parametrize("place", ["resource", "prompt", "completion", "method"])
@pytest.mark.parametrize("kind", ["exc", "systemexit", "keyboard", "cancel", "genexit"])
def test_hnd_02_other_handlers_fail_alone_too(era, place, kind):
    app = fixture()

    async def fail(given):
        raise FAILURES[kind]()

    app.add_resource("x://y", fail_without_arguments := lambda: _raise(kind))
    app.add_prompt("p", fail_without_arguments)
    app.add_prompt("q", lambda word: word)
    app.completion("word")(fail)
    app.method("vendor/x")(fail)

    async def scenario():
        async with pair(app, era) as client:
            calls = {
                "resource": lambda: client.read_resource("x://y"),
                "prompt": lambda: client.get_prompt("p"),
                "completion": lambda: client.complete("q", {"name": "word", "value": ""}),
                "method": lambda: client.request("vendor/x"),
            }
            assert (await outcome(calls[place]())).startswith("error -32603")
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"

    run(scenario())


def _raise(kind: str) -> Any:
    raise FAILURES[kind]()


@pytest.mark.parametrize("kind", ["exc", "group", "base", "basegroup"])
@pytest.mark.parametrize("tool", ["fail", "fail_sync"])
def test_hnd_13_the_text_of_an_error_stays_in_the_log_under_a_reference(era, tool, kind, caplog):
    async def scenario():
        async with pair(fixture(), era) as client:
            return await client.call_tool(tool, {"kind": kind}, raise_on_error=False)

    result = run(scenario())
    shown = repr(result)
    assert not [word for word in ("secret", "/etc", "hostname", "Traceback", "ValueError", __file__) if word in shown]
    reference = result.text.partition("reference ")[2].rstrip(")")
    [record] = [record for record in caplog.records if reference in record.getMessage()]
    assert SECRET in "".join(_texts(record.exc_info[1]))


def _texts(error: BaseException) -> list[str]:
    nested = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return [str(error), *(text for part in nested for text in _texts(part))]


# What a handler returns


@pytest.mark.parametrize("kind", UNWRITABLE)
def test_frm_04_a_result_that_cannot_be_written_fails_that_call_only(era, kind):
    async def scenario():
        async with pair(fixture(), era) as client:
            assert (await outcome(client.call_tool("give", {"kind": kind}))).startswith("error")
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"

    run(scenario())


@pytest.mark.parametrize("kind", WRITABLE)
def test_frm_04_odd_values_that_json_can_say_are_said(era, kind):
    async def scenario():
        async with pair(fixture(), era) as client:
            assert (await outcome(client.call_tool("give", {"kind": kind}))).startswith("fine")

    run(scenario())


@pytest.mark.parametrize("kind", ["surrogate", "nested surrogate"])
def test_frm_04_a_text_that_is_no_text_is_told_for_what_it_is(era, kind):
    """A name from os.listdir may hold half a pair: whoever wrote the tool must see that, not a number only."""

    async def scenario():
        async with pair(fixture(), era) as client:
            assert "surrogates not allowed" in await outcome(client.call_tool("give", {"kind": kind}))

    run(scenario())


def test_frm_04_a_process_and_its_writer_live_on(era):
    async def scenario():
        async with process(mode=era) as client:
            for kind in (*UNWRITABLE, *WRITABLE):
                expected = "error" if kind in UNWRITABLE else "fine"
                assert (await outcome(client.call_tool("give", {"kind": kind}))).startswith(expected)
            assert (await client.call_tool("echo", {"text": "ü"})).text == "ü"

    run(scenario())


@pytest.mark.parametrize(
    "value",
    ["a text", None, {"n": "x"}, {}, [], TextContent("block")],
    ids=["text", "none", "wrong", "empty", "list", "block"],
)
def test_hnd_10_a_result_that_breaks_its_own_schema_is_an_error_that_names_the_tool(era, value):
    app = fixture()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    @app.tool(output_schema=schema)
    async def promise():
        return value

    async def scenario():
        async with pair(app, era) as client:
            assert "The tool promise failed" in await outcome(client.call_tool("promise"))
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"

    run(scenario())


def test_hnd_10_a_million_content_items_are_refused_whole(era):
    app = fixture()
    item = TextContent("x")

    @app.tool
    async def many():
        return [item] * 1_000_000

    async def scenario():
        async with pair(app, era) as client:
            assert (await outcome(client.call_tool("many", timeout=60))).startswith("error")
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"

    run(scenario())


@pytest.mark.parametrize("where", ["memory", "stdio"])
def test_hnd_09_a_result_over_the_limit_is_refused_with_an_error(era, where):
    """always:HND-09."""

    async def scenario():
        reach = pair(fixture(), era) if where == "memory" else process(mode=era)
        async with reach as client:
            told = await outcome(client.call_tool("big", {"size": 20 << 20}, timeout=60))
            assert told.startswith("error")
            assert (await client.call_tool("big", {"size": 1 << 20}, timeout=60)).text == "x" * (1 << 20)

    run(scenario())


@pytest.mark.parametrize("where", ["memory", "stdio"])
def test_hnd_09_endless_progress_ends_with_its_call(era, where):
    async def scenario():
        reach = pair(fixture(), era) if where == "memory" else process(mode=era)
        async with reach as client:
            heard = []
            flood = asyncio.ensure_future(client.call_tool("flood", on_progress=lambda *told: heard.append(told)))
            await asyncio.sleep(0.3)
            assert await client.ping(timeout=60) < prompt(2)
            flood.cancel()
            await asyncio.sleep(0.2)
            count = len(heard)
            await asyncio.sleep(0.2)
            assert len(heard) == count
            assert count < 3000
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"

    run(scenario())


@pytest.mark.parametrize("where", ["memory", "stdio"])
@pytest.mark.parametrize("tool", ["numbers", "numbers_sync"])
def test_hnd_09_a_generator_without_end_ends_with_its_call(era, where, tool):
    app = fixture()

    async def scenario():
        reach = pair(app, era) if where == "memory" else process(mode=era)
        async with reach as client:
            heard = []
            endless = asyncio.ensure_future(client.call_tool(tool, on_progress=lambda *told: heard.append(told)))
            while not heard:
                await asyncio.sleep(0.01)
            assert await client.ping(timeout=60) < prompt(2)
            endless.cancel()
            while (await client.call_tool("stats")).data["threads"]:
                await asyncio.sleep(0.01)
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"

    run(scenario())


@pytest.mark.parametrize("tool", ["words", "words_sync"])
def test_hnd_09_a_generator_of_endless_text_is_refused_at_the_limit(era, tool):
    async def scenario():
        async with pair(fixture(), era) as client:
            told = await outcome(client.call_tool(tool, timeout=60))
            assert told.startswith(f"error: The tool {tool} failed: the result has at least")
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"

    run(scenario())


# Time


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_hnd_04_a_handler_that_hangs_meets_its_deadline_and_frees_its_slot(era, kind):
    app = fixture(tool_timeout=0.5, max_concurrent_per_session=1, max_waiting_per_session=10)
    forever = threading.Event()

    @app.tool
    async def hang() -> None:
        await asyncio.sleep(1e9)

    @app.tool
    def hang_in_thread() -> None:
        forever.wait(60)

    async def scenario():
        async with pair(app, era) as client:
            name = "hang" if kind == "async" else "hang_in_thread"
            calls = [asyncio.ensure_future(outcome(client.call_tool(name))) for _ in range(3)]
            echo = asyncio.ensure_future(client.call_tool("echo", {"text": "next"}))
            assert all("did not finish within 0.5 seconds" in told for told in await asyncio.gather(*calls))
            assert (await echo).text == "next"
            assert not next(iter(app.host.links)).session.running

    try:
        run(scenario())
    finally:
        forever.set()


def test_hnd_05_blocking_handlers_delay_neither_the_loop_nor_other_tools(era):
    async def scenario():
        async with process(mode=era) as client:
            blocked = [asyncio.ensure_future(client.call_tool("block", {"ms": 300}, timeout=60)) for _ in range(64)]
            await asyncio.sleep(0.02)
            started = time.perf_counter()
            assert (await client.call_tool("echo_sync", {"text": "free"}, timeout=60)).text == "free"
            unrelated = time.perf_counter() - started
            worst = await worst_ping(client, blocked)
            assert unrelated < prompt(0.5)
            return worst

    patiently(lambda: run(scenario()), prompt(0.05))


def test_hnd_06_a_handler_that_burns_time_leaves_others_responsive(era):
    async def scenario():
        async with process(mode=era) as client:
            burning = [asyncio.ensure_future(client.call_tool("burn", {"ms": 10_000 if LONG else 700}, timeout=60))]
            return await worst_ping(client, burning)

    patiently(lambda: run(scenario()), prompt(0.2))


ABANDONED = re.compile(r"tool 'deaf' \(request \d+\) is still running 5 s after it was cancelled; abandoning it")


def warnings_of(caplog):
    """Return what was logged as a warning or worse."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_hnd_07_a_handler_that_ignores_its_deadline_is_abandoned_and_logged(era, caplog):
    app = fixture(max_concurrent_per_session=1)
    release = asyncio.Event()

    @app.tool(timeout=2.0)
    async def deaf() -> str:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return "too late"

    async def scenario():
        clock = asyncio.get_running_loop().time
        async with pair(app, era) as client:
            assert "did not finish within 2 seconds" in await outcome(client.call_tool("deaf"))
            assert clock() < 2.1
            assert (await client.call_tool("echo", {"text": "next"})).text == "next"
            await asyncio.sleep(6)
            logged = warnings_of(caplog)
            release.set()
            await asyncio.sleep(0)
            assert [bool(ABANDONED.fullmatch(line)) for line in logged] == [True], logged
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"

    with caplog.at_level(logging.WARNING):
        run_in_virtual_time(scenario())


def test_hnd_07_a_handler_that_ignores_a_cancel_holds_no_slot(era):
    app = fixture(max_concurrent_per_session=1)
    started, release = asyncio.Event(), asyncio.Event()

    @app.tool
    async def deaf() -> str:
        started.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return "too late"

    async def scenario():
        async with pair(app, era) as client:
            call = asyncio.ensure_future(client.call_tool("deaf"))
            await started.wait()
            call.cancel()
            assert (await client.call_tool("echo", {"text": "next"})).text == "next"
            release.set()
            await asyncio.sleep(0.01)
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"

    run(scenario())


def test_hnd_07_a_handler_that_ignores_a_cancel_is_logged_as_abandoned(era, caplog):
    app = fixture()
    started, release = asyncio.Event(), asyncio.Event()

    @app.tool
    async def deaf() -> None:
        started.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    async def scenario():
        async with pair(app, era) as client:
            call = asyncio.ensure_future(client.call_tool("deaf"))
            await started.wait()
            call.cancel()
            await asyncio.sleep(6)
            logged = warnings_of(caplog)
            release.set()
            await asyncio.sleep(0)
            assert [bool(ABANDONED.fullmatch(line)) for line in logged] == [True], logged

    run_in_virtual_time(scenario())


def test_hnd_07_a_process_with_a_deaf_handler_still_ends(tmp_path):
    program = tmp_path / "deaf.py"
    program.write_text(
        inspect.cleandoc("""
        import asyncio
        from ferrule import Server

        app = Server("deaf", shutdown_grace=0.2)

        @app.tool
        async def deaf() -> None:
            while True:
                try:
                    await asyncio.sleep(1e6)
                except asyncio.CancelledError:
                    pass

        app.run()
    """)
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, program], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as server:
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        for identity, method, params in ((0, "initialize", opening), (1, "tools/call", {"name": "deaf"})):
            message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
            server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert b"ignore their cancellation" in server.stderr.read()


# Cancelling


def test_hnd_08_a_cancel_reaches_its_own_handler_at_once_and_is_never_answered(era):
    async def scenario():
        app = fixture()
        async with pair(app, era) as client:
            mine = asyncio.ensure_future(client.call_tool("sleep", {"ms": 60_000}))
            other = asyncio.ensure_future(client.call_tool("sleep", {"ms": 100}))
            await asyncio.sleep(0.01)
            [identity] = [awaited.id for awaited in client.pending if awaited.waiter is not None][:1]
            await client.notify("notifications/cancelled", {"requestId": 10**6})
            started = time.perf_counter()
            mine.cancel()
            await client.notify("notifications/cancelled", {"requestId": identity})
            while (await client.call_tool("stats")).data["cancelled"] == 0:
                await asyncio.sleep(0.001)
            seconds = time.perf_counter() - started
            assert (await other).text == "slept"
            await client.notify("notifications/cancelled", {"requestId": identity})
            assert (await client.call_tool("stats")).data == {"started": 2, "finished": 1, "cancelled": 1, "threads": 0}
            return seconds

    patiently(lambda: run(scenario()), PROMPT)


def test_hnd_08_nothing_is_answered_after_a_cancel_over_stdio():
    async def scenario():
        async with process() as client:
            for _ in range(50):
                call = asyncio.ensure_future(client.call_tool("sleep", {"ms": 5}))
                await asyncio.sleep(0.004)
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await call
            assert (await client.call_tool("echo", {"text": "in step"})).text == "in step"
            stats = (await client.call_tool("stats")).data
            assert stats["finished"] + stats["cancelled"] == stats["started"]

    run(scenario())


class Wire:
    """The fixture server in a process of its own, and every line it says."""

    def __init__(self, era: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, stderr=pipe)
        self.answered: Counter[Any] = Counter()
        self._meta: dict[str, Any] = {}
        if era == "stateless":
            prefix = "io.modelcontextprotocol/"
            self._meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
            return
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        self.send({"id": "first", "method": "initialize", "params": opening})
        self.answer_to("first")
        self.send({"method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def call(self, identity: Any, name: str, **arguments: Any) -> None:
        params = {"name": name, "arguments": arguments, "_meta": self._meta}
        self.send({"id": identity, "method": "tools/call", "params": params})

    def cancel(self, identity: Any) -> None:
        self.send({"method": "notifications/cancelled", "params": {"requestId": identity, "_meta": self._meta}})

    def answer_to(self, identity: Any) -> Any:
        """Read on until a request is answered."""
        for line in self.process.stdout:
            message = json.loads(line)
            self.answered[message["id"]] += 1
            if message["id"] == identity:
                return message["result"]
        raise EOFError(f"{identity} was never answered")

    def stats(self) -> dict[str, int]:
        identity = f"stats {self.answered.total()}"
        self.call(identity, "stats")
        return self.answer_to(identity)["structuredContent"]

    def end(self) -> Counter[Any]:
        """End its input. Return how often each request was answered; the server's own end is waited for."""
        rest, _ = self.process.communicate(timeout=60)
        self.answered.update(json.loads(line)["id"] for line in rest.splitlines())
        return self.answered


def test_hnd_08_a_cancel_before_during_after_twice_or_of_another_id_does_just_what_it_should(era):
    """Every line the server says is read: the cancelled call is never answered, each other one once."""
    wire = Wire(era)
    try:
        wire.cancel("early")
        wire.call("early", "sleep", ms=1)
        assert wire.answer_to("early")["content"][0]["text"] == "slept"
        wire.call(8, "sleep", ms=600_000)
        wire.call("8", "sleep", ms=600_000)
        wire.call("other", "sleep", ms=300)
        while wire.stats()["started"] < 4:
            pass
        for unknown in (9, "9", 8.5, None, "early"):
            wire.cancel(unknown)
        for _ in range(10):
            assert wire.stats()["cancelled"] == 0
        started = time.perf_counter()
        wire.cancel(8)
        wire.cancel(8)
        while wire.stats()["cancelled"] == 0:
            assert time.perf_counter() - started < PROMPT
        if not wire.answered["other"]:
            assert wire.answer_to("other")["content"][0]["text"] == "slept"
        wire.cancel("other")
        wire.cancel("8")
        while wire.stats()["cancelled"] == 1:
            pass
        assert wire.stats() == {"started": 4, "finished": 2, "cancelled": 2, "threads": 0}
        answered = wire.end()
    finally:
        wire.process.kill()
        wire.process.wait()
    assert (answered.pop("early"), answered.pop("other")) == (1, 1)
    assert 8 not in answered
    assert "8" not in answered
    assert set(answered.values()) == {1}


@pytest.mark.parametrize("end", ["cancel", "disconnect"])
@pytest.mark.parametrize("sync", [False, True], ids=["async", "thread"])
def test_hnd_14_asking_a_client_that_cancels_or_leaves_never_deadlocks(era, end, sync):
    app = fixture()
    ended = threading.Event()

    @app.tool
    async def ask(ctx: Context) -> str:
        try:
            return await ctx.ask("Still there?", str)
        finally:
            ended.set()

    @app.tool
    def ask_in_thread(ctx: Context) -> str:
        try:
            return ctx.sync.ask("Still there?", str)
        finally:
            ended.set()

    async def scenario():
        asked = asyncio.Event()

        async def silent(params):
            asked.set()
            await asyncio.Event().wait()

        async with pair(app, era, elicitation=silent) as client:
            call = asyncio.ensure_future(client.call_tool("ask_in_thread" if sync else "ask"))
            await asked.wait()
            if end == "cancel":
                call.cancel()
            else:
                await client.close(drain=0)
            with pytest.raises((asyncio.CancelledError, CallFailed)):
                await call
            async with asyncio.timeout(60):
                while not ended.is_set():
                    await asyncio.sleep(0.001)
            if end == "cancel":
                assert (await client.call_tool("echo", {"text": "on"})).text == "on"
        assert not app.host.links

    run(scenario())


# Meddling with the process


@pytest.mark.parametrize("kind", TAMPERING)
def test_hnd_12_a_handler_that_tampers_with_the_process_leaves_the_protocol_alive(kind):
    async def scenario():
        async with process() as client:
            assert (await client.call_tool("tamper", {"kind": kind})).text == "done"
            for text in ("still", "here ü", "x" * 100_000):
                assert (await client.call_tool("echo", {"text": text})).text == text
            assert (await client.call_tool("echo_sync", {"text": "threads too"})).text == "threads too"
            assert len(await client.list_tools()) > 5

    run(scenario())


def test_hnd_12_a_child_that_comes_back_from_a_fork_ends_there(era):
    """The child neither answers in its parent's name nor lives on with its parent's descriptors."""

    async def scenario():
        async with process(mode=era) as client:
            assert (await client.call_tool("fork")).data == 0
            assert (await client.call_tool("echo_sync", {"text": "on"})).text == "on"

    run(scenario())


def test_hnd_12_a_handler_may_run_a_loop_of_its_own(era):
    async def scenario():
        async with pair(fixture(), era) as client:
            assert (await client.call_tool("start_loop")).text == "another loop"
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"

    run(scenario())


def test_hnd_11_forgotten_threads_children_and_files_do_not_hold_up_the_end():
    async def scenario():
        async with process() as client:
            await asyncio.gather(*(client.call_tool("forget", timeout=60) for _ in range(500 if LONG else 30)))
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"
            started = time.perf_counter()
        assert time.perf_counter() - started < prompt(10)

    run(scenario())


FORGETFUL = """
    import asyncio, multiprocessing, sys, threading, time
    from ferrule import Server

    app = Server("forgetful")

    @app.tool
    async def thread() -> int:
        threading.Thread(target=time.sleep, args=(600,), name="forgotten").start()
        return 0

    @app.tool
    async def executor() -> int:
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
        return 0

    @app.tool
    async def process() -> int:
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), name="forgotten")
        child.start()
        return child.pid

    if __name__ == "__main__":
        app.run()
        print("after run", file=sys.stderr, flush=True)
"""
LASTING = {"thread": "forgotten", "executor": "asyncio_0", "process": "forgotten"}
"""What Python itself waits for before it ends, by the tool that starts one, and what it is called."""


@contextlib.contextmanager
def forgetful(command, tmp_path, tool):
    """Run a server that was called once and whose input has ended; gives its process and its log."""
    program, log = tmp_path / "forgetful.py", tmp_path / "log"
    program.write_text(inspect.cleandoc(FORGETFUL))
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    pipe, child = subprocess.PIPE, 0
    with (
        log.open("wb") as said,
        subprocess.Popen([sys.executable, *command, program], stdin=pipe, stdout=pipe, stderr=said) as server,
    ):
        try:
            for identity, method, params in ((0, "initialize", opening), (1, "tools/call", {"name": tool})):
                message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
                server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.close()
            answers = [json.loads(server.stdout.readline()) for _ in range(2)]
            child = answers[1]["result"]["structuredContent"]["result"]
            yield server, log
        finally:
            server.kill()
            if child:
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("tool", LASTING)
def test_hnd_11_ferrule_run_ends_though_python_would_wait(tmp_path, tool):
    with forgetful(["-m", "ferrule", "run"], tmp_path, tool) as (server, log):
        started = time.perf_counter()
        assert server.wait(120) == 0
        assert time.perf_counter() - started < prompt(10)
        assert f"the process ends without waiting for {LASTING[tool]}\n" in log.read_text()


@pytest.mark.parametrize("tool", LASTING)
def test_hnd_11_app_run_returns_and_names_what_python_waits_for(tmp_path, tool):
    """The process is the program's own: `run` returns to it in time, and a signal ends it as usual."""
    with forgetful([], tmp_path, tool) as (server, log):

        async def returned():
            while "after run" not in log.read_text():
                await asyncio.sleep(0.01)

        run(returned())
        assert f"Python waits for what still runs: {LASTING[tool]}\n" in log.read_text()
        assert server.poll() is None
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == -signal.SIGTERM


def test_the_fixture_refuses_what_it_does_not_know():
    async def scenario():
        async with pair(fixture()) as client:
            with pytest.raises(FerruleError):
                await client.call_tool("nix")

    run(scenario())


if __name__ == "__main__":
    fixture().run()
