"""How tools are run: where, how many at once, and how they learn that nobody waits."""

import asyncio
import functools
import threading
import time

import pytest

from ferrule import Context, Depends, Extension, PeerError, Server, SetupError, ToolError
from ferrule.errors import Cancelled
from ferrule.server.calls import execution
from ferrule.testing import pair


class Gate:
    """A tool's work that waits to be let go, awaited or in a thread, and counts who is inside."""

    def __init__(self):
        self.open = threading.Event()
        self.inside = self.most = 0

    def enter(self):
        self.inside += 1
        self.most = max(self.most, self.inside)

    async def awaited(self):
        self.enter()
        while not self.open.is_set():
            await asyncio.sleep(0.001)
        self.inside -= 1
        return "done"

    def threaded(self):
        self.enter()
        self.open.wait(60)
        self.inside -= 1
        return "done"

    async def full(self, count):
        while self.inside < count:
            await asyncio.sleep(0.001)


def watched(fn):
    """A decorator as many write it: a plain function around whatever there is."""

    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs)

    return inner


def crowded(kind, **options):
    gate, app = Gate(), Server("crowded")
    work = {"async": gate.awaited, "thread": gate.threaded, "wrapped": watched(gate.awaited)}[kind]
    app.add_tool("work", work, **options)
    app.add_tool("echo", lambda: "on", inline=True)
    return app, gate


@pytest.mark.parametrize("kind", ["async", "thread", "wrapped"])
async def test_a_tool_runs_no_more_often_at_once_than_it_may(era, kind):
    app, gate = crowded(kind, max_concurrent=3)
    async with pair(app, era) as client:
        calls = [asyncio.ensure_future(client.call_tool("work")) for _ in range(10)]
        await gate.full(3)
        slots = app.offers.tools.catalogue.get("work").slots
        while slots.waiting < 7:
            await asyncio.sleep(0.001)
        assert (await client.call_tool("echo")).text == "on"
        gate.open.set()
        assert [(await call).text for call in calls] == ["done"] * 10
    assert gate.most == 3
    assert (slots.taken, slots.waiting) == (0, 0)


async def test_calls_that_come_together_may_wait_for_one_flight(era):
    app, flights = Server("flights"), {}

    async def fetch(key):
        await asyncio.sleep(0.01)
        return key.upper()

    @app.tool
    async def look_up(key: str) -> str:
        if key not in flights:
            flights[key] = asyncio.ensure_future(fetch(key))
        return await flights[key]

    async with pair(app, era) as client:
        answers = await asyncio.gather(*(client.call_tool("look_up", {"key": "a"}) for _ in range(5)))
        assert [answer.text for answer in answers] == ["A"] * 5


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_over_a_full_line_a_call_is_refused_as_busy(era, wire, kind):
    app, gate = crowded(kind, max_concurrent=1, max_waiting=1)
    async with wire(app, era) as peer:
        running = [peer.ask("tools/call", {"name": "work", "arguments": {}}) for _ in range(2)]
        await gate.full(1)
        error = (await peer.call("work"))["error"]
        assert error["code"] == (-32000 if era == "handshake" else -32603)
        assert "Busy: the tool work has 1 calls running and 1 waiting" in error["message"]
        assert error["data"] == {"retryAfter": 1}
        assert (await peer.call("echo"))["result"]["content"][0]["text"] == "on"
        gate.open.set()
        for identity in running:
            assert "result" in await peer.response(identity)
        assert "result" in await peer.call("work")


async def test_the_busy_tool_has_its_number_in_the_erlmcp_profile(wire):
    app = Server("crowded", error_profile="erlmcp")
    gate = Gate()
    app.add_tool("work", gate.awaited, max_concurrent=1, max_waiting=0)
    async with wire(app) as peer:
        running = peer.ask("tools/call", {"name": "work", "arguments": {}})
        await gate.full(1)
        error = (await peer.call("work"))["error"]
        assert (error["code"], error["data"]) == (-32038, {"retryAfter": 1, "refusal": 1081})
        gate.open.set()
        await peer.response(running)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_cancelled_call_gives_its_place_in_line_away(era, kind):
    app, gate = crowded(kind, max_concurrent=1, max_waiting=1)
    async with pair(app, era) as client:
        first = asyncio.ensure_future(client.call_tool("work"))
        await gate.full(1)
        slots = app.offers.tools.catalogue.get("work").slots
        second = asyncio.ensure_future(client.call_tool("work"))
        while not slots.waiting:
            await asyncio.sleep(0.001)
        second.cancel()
        while slots.waiting:
            await asyncio.sleep(0.001)
        third = asyncio.ensure_future(client.call_tool("work"))
        gate.open.set()
        assert [(await first).text, (await third).text] == ["done", "done"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_concurrent": 0}, "max_concurrent must be at least 1 or None, not 0"),
        ({"max_concurrent": -1}, "max_concurrent must be at least 1 or None, not -1"),
        ({"max_concurrent": 1.5}, "max_concurrent must be a whole number or None, not 1.5"),
        ({"max_threads": 0}, "max_threads must be at least 1, not 0"),
        ({"max_waiting": -1}, "max_waiting must be at least 0, not -1"),
    ],
)
def test_limits_that_let_nobody_in_are_refused_at_once(options, why):
    with pytest.raises(SetupError, match=f"the tool t: {why}"):
        Server("s").add_tool("t", lambda: 1, **options)


async def test_a_server_has_as_many_threads_as_it_is_given(era):
    gate, app = Gate(), Server("narrow", max_threads=2)
    for name in ("one", "two"):
        app.add_tool(name, gate.threaded)
    async with pair(app, era) as client:
        calls = [asyncio.ensure_future(client.call_tool(name)) for name in ("one", "two", "one", "two")]
        await gate.full(2)
        while app.threads.waiting < 2:
            await asyncio.sleep(0.001)
        figures = app.threads.figures()
        assert (figures.limit, figures.busy, figures.idle, figures.waiting) == (2, 2, 0, 2)
        assert figures.longest >= 0
        gate.open.set()
        await asyncio.gather(*calls)
    assert gate.most == 2
    with pytest.raises(SetupError, match="max_threads must be at least 1"):
        Server("none", max_threads=0)


@pytest.mark.parametrize("end", ["cancel", "time-out"])
async def test_a_handler_in_a_thread_learns_that_nobody_waits(era, end):
    app, begun, ended = Server("told"), threading.Event(), []

    @app.tool(timeout=0.5 if end == "time-out" else None)
    def work(ctx: Context) -> str:
        ctx.raise_if_cancelled()
        begun.set()
        try:
            while True:
                time.sleep(0.001)
                ctx.raise_if_cancelled()
        except Cancelled as error:
            ended.append((str(error), ctx.cancelled))
            raise

    async with pair(app, era) as client:
        call = asyncio.ensure_future(client.call_tool("work"))
        assert await asyncio.to_thread(begun.wait, 10)
        if end == "cancel":
            call.cancel()
        else:
            with pytest.raises(ToolError, match="did not finish within"):
                await call
        while app.threads.busy:
            await asyncio.sleep(0.001)
    assert ended == [("the call has ended", True)]


async def test_an_abandoned_thread_is_counted_until_it_ends(era):
    app, gate = crowded("thread")
    async with pair(app, era) as client:
        call = asyncio.ensure_future(client.call_tool("work"))
        await gate.full(1)
        assert app.threads.figures().abandoned == 0
        call.cancel()
        while not app.threads.figures().abandoned:
            await asyncio.sleep(0.001)
        assert app.threads.busy == 1
        gate.open.set()
        while app.threads.busy:
            await asyncio.sleep(0.001)
        assert app.threads.figures().abandoned == 0
        assert app.threads.idle == app.threads.count


@pytest.mark.parametrize("inline", [False, True])
async def test_a_plain_function_around_a_coroutine_function_is_waited_for(era, inline):
    app, log = Server("wrapped"), []

    def database():
        log.append("open")
        yield "db"
        log.append("close")

    @app.tool(inline=inline)
    @watched
    async def ask(name: str, ctx: Context, db: str = Depends(database)) -> str:
        await asyncio.sleep(0)
        log.append("work")
        return f"{name} {db} {ctx.server.name}"

    @app.tool(inline=inline)
    @watched
    async def plain(name: str) -> int:
        return len(name)

    @app.resource("x://y", inline=inline)
    @watched
    async def read() -> str:
        return "read"

    @app.prompt(inline=inline)
    @watched
    async def say() -> str:
        return "said"

    async with pair(app, era) as client:
        assert (await client.call_tool("ask", {"name": "a"})).data == "a db wrapped"
        assert log == ["open", "work", "close"]
        assert (await client.call_tool("plain", {"name": "abc"})).data == 3
        assert (await client.read_resource("x://y")).text == "read"
        assert (await client.get_prompt("say")).messages[0].content.text == "said"


class Suggester:
    async def __call__(self, value):
        return [f"{value}!"]


@pytest.mark.parametrize("inline", [False, True])
async def test_so_are_those_that_provide_complete_answer_methods_and_hear_notifications(era, inline):
    app, heard = Server("wrapped"), asyncio.Queue()
    extension = app.extend(Extension("com.example/maps"))

    @watched
    async def database():
        return "db"

    @app.tool
    def ask(db: str = Depends(database, inline=inline)) -> str:
        return db

    @app.prompt
    def say(name: str, other: str) -> str:
        return name

    @app.completion("say.name")
    @watched
    async def suggest(value):
        return [f"{value}?"]

    app.completion("say.other")(Suggester())

    @app.method("shop/price")
    @watched
    async def price(params):
        return {"price": 3}

    @extension.notification("notifications/maps/moved")
    @watched
    async def moved(params):
        heard.put_nowait("moved")

    async with pair(app, era) as client:
        assert (await client.call_tool("ask")).data == "db"
        for argument, wanted in (("name", ["a?"]), ("other", ["a!"])):
            completed = await client.complete("say", {"name": argument, "value": "a"})
            assert completed.values == wanted
        assert (await client.request("shop/price"))["price"] == 3
        await client.notify("notifications/maps/moved")
        assert await asyncio.wait_for(heard.get(), 60) == "moved"


async def test_a_decorator_may_also_run_the_coroutine_itself(era):
    def blocking(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            return asyncio.run(fn(*args, **kwargs))

        return inner

    app = Server("blocking")

    @app.tool
    @blocking
    async def add(a: int) -> int:
        await asyncio.sleep(0)
        return a + 1

    async with pair(app, era) as client:
        assert (await client.call_tool("add", {"a": 1})).data == 2


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_a_coroutine_nobody_could_foresee_fails_the_call_and_says_what_to_write(era):
    async def work(n):
        return n

    app = Server("lambda")
    app.add_tool("work", lambda: work(1))
    async with pair(app, era) as client:
        with pytest.raises(ToolError, match="write the handler as an `async def`"):
            await client.call_tool("work")


async def test_inline_skips_the_threads(era):
    app = Server("inline")
    app.add_tool("where", lambda: threading.current_thread() is threading.main_thread(), inline=True)
    async with pair(app, era) as client:
        assert (await client.call_tool("where")).text == "true"
    assert app.threads.count == 0


@pytest.mark.parametrize("options", [{}, {"max_concurrent": 2}, {"timeout": 5}, {"result_limit": 100}])
async def test_what_is_not_used_is_not_on_the_way_of_a_call(options):
    app = Server("direct")

    @app.tool(**options)
    async def add(a: int) -> str:
        return "x" * a

    entry = app.offers.tools.catalogue.get("add")
    assert (entry.look_for_fast_path() is not None) == (options == {})
    assert (await app.call_tool("add", {"a": 2})).text == "xx"


@pytest.mark.parametrize(
    ("wanted", "version", "in_result"),
    [
        ("auto", "2025-11-25", True),
        ("auto", "2025-06-18", False),
        ("result", "2025-06-18", True),
        ("error", "2025-11-25", False),
    ],
)
async def test_bad_arguments_are_told_where_the_server_wants_them(wire, wanted, version, in_result):
    """seed:TOOL-11"""
    app = Server("strict", bad_arguments=wanted)

    @app.tool
    async def add(a: int) -> int:
        return a

    async with wire(app, version=version) as peer:
        answer = await peer.call("add", {"a": "x"})
    assert ("result" in answer) == in_result
    if not in_result:
        assert answer["error"]["code"] == -32602
        assert answer["error"]["data"]["violations"][0]["path"] == "/a"


async def test_bad_arguments_as_errors_in_the_stateless_era(wire):
    app = Server("strict", bad_arguments="error")
    app.add_tool("add", lambda a: a, schema={"type": "object", "required": ["a"]})
    async with wire(app, "stateless") as peer:
        assert (await peer.call("add"))["error"]["code"] == -32602
    with pytest.raises(SetupError, match="bad_arguments must be one of auto, error, result"):
        Server("s", bad_arguments="maybe")


async def test_a_refusal_of_a_full_line_is_no_failure_of_the_tool(era):
    app, gate = crowded("async", max_concurrent=1, max_waiting=0)
    async with pair(app, era) as client:
        first = asyncio.ensure_future(client.call_tool("work"))
        await gate.full(1)
        with pytest.raises(PeerError, match="Busy"):
            await client.call_tool("work")
        gate.open.set()
        await first


async def test_a_handler_in_a_thread_learns_that_the_server_stops(era):
    app, begun, told = Server("stopping"), threading.Event(), threading.Event()

    @app.tool
    def work(ctx: Context) -> str:
        begun.set()
        while not ctx.cancelled:
            time.sleep(0.001)
        told.set()
        return "too late"

    async with pair(app, era) as client:
        call = asyncio.ensure_future(client.call_tool("work"))
        assert await asyncio.to_thread(begun.wait, 10)
        await app.drain(0.01)
        with pytest.raises(PeerError, match="stopped before"):
            await call
        assert await asyncio.to_thread(told.wait, 10)


@pytest.fixture
def clock(monkeypatch):
    """The time that inline functions take, which a tool lets go by; a busy machine does not."""
    now = [100.0]
    monkeypatch.setattr(execution, "monotonic", lambda: now[0])
    return now


def slow_app(clock):
    app = Server("slow")

    @app.tool(inline=True)
    def nap(seconds: float) -> str:
        clock[0] += seconds
        return "awake"

    @app.tool(inline=True)
    def naps(seconds: list[float]):
        for each in seconds:
            clock[0] += each
            yield "awake"

    @app.tool(inline=True)
    def fail(seconds: float) -> str:
        clock[0] += seconds
        raise ToolError("no")

    return app


async def test_an_inline_tool_that_holds_the_loop_for_long_is_named_in_the_log(caplog, clock):
    async with pair(slow_app(clock)) as client:
        await client.call_tool("nap", {"seconds": 0.05})
        assert not caplog.records
        for _ in range(3):
            await client.call_tool("nap", {"seconds": 0.06})
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2, "each time their number has doubled"
    assert all("the tool nap is inline and held the event loop for 0.06 s" in line for line in told)
    assert "inline=True" in told[0]


async def test_an_inline_generator_is_named_for_what_it_takes_from_one_part_to_the_next(caplog, clock):
    async with pair(slow_app(clock)) as client:
        result = await client.call_tool("naps", {"seconds": [0.04, 0.04]})
        assert "awakeawake" in str(result.content)
        assert not caplog.records
        await client.call_tool("naps", {"seconds": [0.04, 0.5, 0.3]})
    (told,) = [record.getMessage() for record in caplog.records]
    assert "the tool naps is inline and held the event loop for 0.50 s" in told


async def test_an_inline_tool_that_fails_is_named_too(caplog, clock):
    async with pair(slow_app(clock)) as client:
        await client.call_tool("fail", {"seconds": 1.0}, raise_on_error=False)
    assert any("the tool fail is inline and held the event loop for 1.00 s" in line for line in caplog.messages)
