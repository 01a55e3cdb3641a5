"""A hop needs a reason: how many tasks, readings, writings and copies one request costs, counted on the real thing."""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

import pytest

import ferrule.runtime.link
import ferrule.transports.memory
import ferrule.transports.stream
from ferrule import Client, Observer, Server
from ferrule.schema.methods import METHODS
from ferrule.transports.stream import StreamChannel
from ferrule.wire.channel import Origin

MIB = 1024 * 1024
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Pipe(asyncio.Transport):
    """Where a channel writes to: every write is kept as the object it was."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is room for everything."""


def new_server(**options: Any) -> Server:
    server = Server("s", **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.resource("note://one")
    async def note() -> str:
        return "one"

    @server.prompt
    async def greet(name: str) -> str:
        return f"Hello, {name}"

    return server


def connected(server: Server, *, greet: bool = True) -> tuple[StreamChannel, Pipe]:
    """A peer on a byte stream, greeted as a carrier would bring it about."""
    channel, pipe = StreamChannel(server.link(Origin("tcp"))), Pipe()
    channel.connection_made(pipe)
    if greet:
        channel.data_received(line(0, "initialize", INITIALIZE))
        channel.data_received(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        pipe.writes.clear()
    return channel, pipe


def line(identity: Any, method: str, params: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}).encode() + b"\n"


def call(identity: Any, name: str, **arguments: Any) -> bytes:
    return line(identity, "tools/call", {"name": name, "arguments": arguments})


def answers(pipe: Pipe) -> list[Any]:
    return [json.loads(part) for part in b"".join(map(bytes, pipe.writes)).splitlines()]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often a message is read and written, by whoever does it."""
    counts: Counter[str] = Counter()

    def counting(what: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def counted_work(*args: Any, **kwargs: Any) -> Any:
            counts[what] += 1
            return work(*args, **kwargs)

        return counted_work

    patched: Counter[str] = Counter()
    for module in (ferrule.runtime.link, ferrule.transports.memory, ferrule.transports.stream):
        for name, what in (("read", "read"), ("encode", "written"), ("write", "written")):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, counting(what, getattr(module, name)))
                patched[what] += 1
    assert patched == {"read": 1, "written": 2}, "somebody else reads or writes messages now: count that too"
    row = METHODS["tools/call"]
    monkeypatch.setattr(row, "decode_params", counting("params read", row.params_decoder()))
    return counts


def run(scene: Callable[[list[Any]], Coroutine[Any, Any, None]]) -> None:
    """Run a scene on a loop that writes down every task that is made."""

    async def main() -> None:
        made: list[Any] = []

        def make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
            made.append(work.__qualname__)
            return asyncio.Task(work, loop=loop, **options)

        asyncio.get_running_loop().set_task_factory(make_task)
        await scene(made)

    asyncio.run(main())


class TestTasks:
    METHODS = (
        ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, 1),
        ("resources/read", {"uri": "note://one"}, 1),
        ("prompts/get", {"name": "greet", "arguments": {"name": "you"}}, 1),
        ("ping", {}, 0),
        ("tools/list", {}, 0),
        ("resources/list", {}, 0),
        ("resources/templates/list", {}, 0),
        ("prompts/list", {}, 0),
        ("resources/subscribe", {"uri": "note://one"}, 0),
        ("nope/x", {}, 0),
        ("tools/call", {}, 0),
    )

    @pytest.mark.parametrize(("method", "params", "tasks"), METHODS)
    def test_a_call_is_one_task_and_everything_else_none(self, method: str, params: Any, tasks: int) -> None:
        """JRPC-05: whoever runs somebody's code gets a task; a list, a ping and a refusal are answered on the spot."""

        async def scene(made: list[Any]) -> None:
            channel, pipe = connected(new_server())
            made.clear()
            channel.data_received(line(1, method, params))
            assert (len(answers(pipe)) == 1) is (tasks == 0), "what needs no task is answered in the same turn"
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(answers(pipe)) == 1
            assert len(made) == tasks, made

        run(scene)

    @pytest.mark.parametrize("method", ["server/discover", "tools/list", "prompts/list", "resources/list"])
    def test_it_is_the_same_in_the_stateless_era(self, method: str) -> None:
        async def scene(made: list[Any]) -> None:
            channel, pipe = connected(new_server(), greet=False)
            channel.data_received(line(1, method, {"_meta": MODERN}))
            assert answers(pipe)[0]["result"]["resultType"] == "complete"
            assert made == []
            params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": MODERN}
            channel.data_received(line(2, "tools/call", params))
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(answers(pipe)) == 2
            assert len(made) == 1

        run(scene)

    def test_the_handshake_makes_no_task(self) -> None:
        async def scene(made: list[Any]) -> None:
            _, pipe = connected(new_server())
            assert pipe.writes == []
            assert made == []

        run(scene)

    def test_notifications_and_answers_make_no_task(self) -> None:
        async def scene(made: list[Any]) -> None:
            channel, pipe = connected(new_server())
            made.clear()
            for message in (
                {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
                {"method": "notifications/cancelled", "params": {"requestId": 1}},
                {"method": "notifications/roots/list_changed"},
                {"id": 77, "result": {}},
                {"id": 78, "error": {"code": 1, "message": "x"}},
            ):
                channel.data_received(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            await asyncio.sleep(0)
            assert made == []
            assert pipe.writes == []

        run(scene)

    def test_a_client_and_a_server_in_one_process_cost_one_task_a_call(self) -> None:
        """The caller waits for a future; the only task is the server's."""

        async def scene(made: list[Any]) -> None:
            async with Client(new_server(), mode="handshake") as client:
                await client.call_tool("add", {"a": 1, "b": 2})
                made.clear()
                for n in range(10):
                    assert (await client.call_tool("add", {"a": n, "b": n})).structured_content == {"result": 2 * n}
                await client.list_tools()
                await client.ping()
                assert len(made) == 10, made

        run(scene)


class TestReadingAndWriting:
    def test_a_message_is_read_once_and_its_answer_written_once(self, counted: Counter[str]) -> None:
        """JRPC-05: the envelope, then the params; the arguments by the tool that knows their type."""

        async def scene(made: list[Any]) -> None:
            channel, pipe = connected(new_server())
            counted.clear()
            for n in range(10):
                channel.data_received(call(n, "add", a=n, b=1))
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(answers(pipe)) == 10
            assert counted == {"read": 10, "params read": 10, "written": 10}

        run(scene)

    def test_a_list_is_written_once_and_kept(self, counted: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """The encoded page is cached: the hundredth listing costs what a ping costs."""

        async def scene(made: list[Any]) -> None:
            server = new_server()
            channel, pipe = connected(server)
            channel.data_received(line(0, "tools/list"))
            monkeypatch.setattr(server.offers.tools.catalogue, "_make", None)
            counted.clear()
            for n in range(1, 101):
                channel.data_received(line(n, "tools/list"))
            assert len({json.dumps(answer["result"]) for answer in answers(pipe)}) == 1
            assert counted == {"read": 100, "written": 100}

        run(scene)

    @pytest.mark.parametrize("method", ["ping", "tools/list"])
    def test_sixty_four_answers_of_one_read_leave_in_one_write(self, method: str) -> None:
        async def scene(made: list[Any]) -> None:
            channel, pipe = connected(new_server())
            channel.data_received(b"".join(line(n, method) for n in range(64)))
            assert len(pipe.writes) == 1
            assert [answer["id"] for answer in answers(pipe)] == list(range(64))

        run(scene)

    def test_sixty_four_calls_of_one_read_are_answered_in_one_write(self) -> None:
        """One write a turn of the loop: all handlers run in one turn, their answers leave together."""

        async def scene(made: list[Any]) -> None:
            channel, pipe = connected(new_server())
            channel.data_received(b"".join(call(n, "add", a=n, b=0) for n in range(64)))
            assert pipe.writes == []
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(pipe.writes) == 1
            assert [answer["result"]["structuredContent"]["result"] for answer in answers(pipe)] == list(range(64))

        run(scene)

    def test_a_large_answer_is_not_copied_after_it_was_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The bytes the encoder gave are the bytes the transport gets."""
        written: list[bytes] = []
        encode = ferrule.transports.stream.write

        def keeping(message: Any) -> bytes:
            written.append(encode(message))
            return written[-1]

        monkeypatch.setattr(ferrule.transports.stream, "write", keeping)

        async def scene(made: list[Any]) -> None:
            channel, pipe = connected(new_server())
            written.clear()
            channel.data_received(call(1, "echo", text="x" * MIB))
            for _ in range(5):
                await asyncio.sleep(0)
            assert any(buffer is written[0] for buffer in pipe.writes)

        run(scene)

    def test_a_large_request_is_copied_a_fixed_number_of_times(self) -> None:
        """The frame, the text of the argument, that text twice in the result: a few times its size."""

        async def scene(made: list[Any]) -> None:
            channel, pipe = connected(new_server())
            data = call(1, "echo", text="x" * 4 * MIB)
            tracemalloc.start()
            channel.data_received(data)
            for _ in range(5):
                await asyncio.sleep(0)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert len(answers(pipe)) == 1
            assert peak < 6.5 * 4 * MIB, f"{peak / (4 * MIB):.1f} times the argument"

        run(scene)


class Watching(Observer):
    """Wants to know how every request ends."""

    def request_finished(self, request: Any, outcome: Any) -> None:
        """Do nothing with it."""


def functions_of(channel: StreamChannel, data: bytes) -> list[str]:
    """Return the functions of Ferrule that one read runs through, by module and name, in order."""
    called: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("ferrule."):
            called.append(f"{name}:{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        channel.data_received(data)
    finally:
        sys.setprofile(None)
    return called


class TestObservers:
    THEIRS = ("ferrule.telemetry.", "ferrule.runtime.watch:", "ferrule.runtime.link:_finish_observed")
    MOST_HOPS = 21
    """Functions of Ferrule between the bytes of a call and its answer, where nobody observes it.

    In an empty context, as most programs have: one that holds something (decimal leaves its settings in that of whoever
    used it) is compared before and after a call, which is two functions more.
    """

    @pytest.mark.parametrize("era", ["handshake", "stateless"])
    def test_a_request_pays_for_observers_only_where_there_are_some(self, era: str) -> None:
        async def scene() -> None:
            for observer in (None, Watching()):
                channel, pipe = connected(new_server(observer=observer), greet=era == "handshake")
                arguments = {"name": "add", "arguments": {"a": 1, "b": 2}}
                params = arguments if era == "handshake" else {**arguments, "_meta": MODERN}
                channel.data_received(line(1, "tools/call", params))
                called = functions_of(channel, line(2, "tools/call", params))
                theirs = [name for name in called if name.startswith(self.THEIRS)]
                assert bool(theirs) is (observer is not None), theirs
                assert observer is not None or len(called) <= self.MOST_HOPS, (len(called), called)
                await asyncio.sleep(0)
                assert len(answers(pipe)) == 2

        Context().run(asyncio.run, scene())
