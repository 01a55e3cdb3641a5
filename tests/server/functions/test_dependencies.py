"""Dependencies: what providers give, once a call, and how they tidy up."""

import asyncio
import contextlib
import functools
import sqlite3
import threading
from typing import Annotated

import pytest

from ferrule import Ask, Context, Depends, PeerError, Server, SetupError, ToolError
from ferrule.errors import InvalidParams
from ferrule.server.functions.binder import bind
from ferrule.testing import pair

LOG: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_log():
    LOG.clear()


async def database():
    LOG.append("open")
    try:
        yield "db"
    finally:
        LOG.append("close")


def settings():
    return {"limit": 3}


Limits = Annotated[dict, Depends(settings)]


class TestProviders:
    """Every kind of function can provide."""

    async def test_a_default_value_or_an_annotation_names_the_provider(self, era):
        app = Server("s")

        @app.tool
        async def by_default(n: int, db: str = Depends(database)) -> str:
            return f"{db}{n}"

        @app.tool
        async def by_annotation(n: int, limits: Limits, db: Annotated[str, Depends(database)]) -> str:
            return f"{db}{n}{limits['limit']}"

        async with pair(app, era) as client:
            assert (await client.call_tool("by_default", {"n": 1})).data == "db1"
            assert (await client.call_tool("by_annotation", {"n": 1})).data == "db13"
        assert LOG == ["open", "close"] * 2

    async def test_what_is_provided_is_no_argument(self, era):
        app = Server("s")

        @app.tool
        async def find(n: int, db: str = Depends(database), *, limits: Limits) -> str:
            return db

        async with pair(app, era) as client:
            (tool,) = await client.list_tools()
            assert tool.input_schema["properties"].keys() == {"n"}
            assert tool.input_schema["required"] == ["n"]
            with pytest.raises((ToolError, PeerError), match="db"):
                await client.call_tool("find", {"n": 1, "db": "mine"})
        assert LOG == [], "wrong arguments are found before anything is opened"

    async def test_plain_async_generator_class_partial_and_method_provide(self, era):
        class Clock:
            def now(self):
                return "now"

        class Settings:
            def __init__(self, depth: int = 2):
                self.depth = depth

        def plain():
            return "plain"

        def generator():
            yield "generator"
            LOG.append("generator closed")

        async def coroutine():
            return "coroutine"

        @contextlib.contextmanager
        def managed():
            yield "managed"
            LOG.append("managed closed")

        @contextlib.asynccontextmanager
        async def async_managed():
            yield "async managed"
            LOG.append("async managed closed")

        def greeting(word, name="you"):
            return f"{word} {name}"

        app = Server("s")

        @app.tool
        async def all_of_them(
            a: str = Depends(plain),
            b: str = Depends(generator),
            c: str = Depends(coroutine),
            d: str = Depends(managed),
            e: str = Depends(async_managed),
            f: Settings = Depends(Settings),
            g: str = Depends(Clock().now),
            h: str = Depends(functools.partial(greeting, "hi")),
        ) -> list[str]:
            return [a, b, c, d, e, str(f.depth), g, h]

        async with pair(app, era) as client:
            given = (await client.call_tool("all_of_them")).data
        assert given == ["plain", "generator", "coroutine", "managed", "async managed", "2", "now", "hi you"]
        assert LOG == ["async managed closed", "managed closed", "generator closed"], "the last opened is closed first"

    async def test_they_work_in_resources_prompts_and_completions(self, era):
        app = Server("s")

        @app.resource("note://{name}")
        async def note(name: str, db: str = Depends(database)) -> str:
            return f"{db} {name}"

        @app.prompt
        def ask(topic: str, limits: Limits) -> str:
            return f"{topic} {limits['limit']}"

        @app.completion("ask.topic")
        async def topics(value, db: str = Depends(database)):
            return [f"{db} {value}"]

        async with pair(app, era) as client:
            assert (await client.read_resource("note://a")).text == "db a"
            (prompt,) = await client.list_prompts()
            assert [argument.name for argument in prompt.arguments] == ["topic"]
            assert (await client.get_prompt("ask", {"topic": "t"})).messages[0].content.text == "t 3"
            reference = {"type": "ref/prompt", "name": "ask"}
            found = await client.complete(reference, {"name": "topic", "value": "x"})
            assert found.values == ["db x"]
        assert LOG == ["open", "close"] * 2

    async def test_a_provider_may_take_the_context_where_the_handler_does_not(self, era):
        app = Server("s")

        def who(ctx: Context):
            return ctx.server.name

        @app.tool
        async def name(whose: str = Depends(who)) -> str:
            return whose

        @app.tool
        def plain(ctx: Context, whose: str = Depends(who)) -> str:
            return f"{whose} {ctx.server.name}"

        async with pair(app, era) as client:
            assert (await client.call_tool("name")).data == "s"
            assert (await client.call_tool("plain")).data == "s s"

    async def test_an_asynchronous_provider_serves_a_plain_handler_in_its_thread(self, era):
        app = Server("s")

        @app.tool
        def work(db: str = Depends(database)) -> str:
            return f"{db} {threading.current_thread() is not threading.main_thread()}"

        async with pair(app, era) as client:
            assert (await client.call_tool("work")).data == "db True"
        assert LOG == ["open", "close"]

    async def test_plain_providers_and_a_plain_handler_share_one_thread(self, era):
        """What belongs to a thread, as an sqlite connection does, can be provided."""

        def connection():
            with contextlib.closing(sqlite3.connect(":memory:")) as opened:
                yield opened

        app = Server("s")

        @app.tool
        def count(db: sqlite3.Connection = Depends(connection)) -> int:
            return db.execute("select 41 + 1").fetchone()[0]

        async with pair(app, era) as client:
            assert (await client.call_tool("count")).data == 42

    async def test_a_plain_provider_of_a_coroutine_runs_in_a_thread_unless_inline(self, era):
        def thread():
            return threading.current_thread() is threading.main_thread()

        app = Server("s")

        @app.tool
        async def where(
            a: bool = Depends(thread, use_cache=False), b: bool = Depends(thread, use_cache=False, inline=True)
        ) -> list[bool]:
            return [a, b]

        async with pair(app, era) as client:
            assert (await client.call_tool("where")).data == [False, True]


class TestCaching:
    """A provider runs once a call."""

    async def test_who_is_needed_twice_runs_once_a_call(self, era):
        def counted():
            LOG.append("made")
            return object()

        def first(it: object = Depends(counted)):
            return it

        def second(it: object = Depends(counted)):
            return it

        app = Server("s")

        @app.tool
        async def same(a: object = Depends(first), b: object = Depends(second), c: object = Depends(counted)) -> bool:
            return a is b is c

        async with pair(app, era) as client:
            assert (await client.call_tool("same")).data is True
            assert (await client.call_tool("same")).data is True
        assert LOG == ["made", "made"]

    async def test_without_the_cache_each_wish_is_fulfilled_anew(self, era):
        def counted():
            LOG.append("made")
            return object()

        app = Server("s")

        @app.tool
        async def same(a: object = Depends(counted), b: object = Depends(counted, use_cache=False)) -> bool:
            return a is b

        async with pair(app, era) as client:
            assert (await client.call_tool("same")).data is False
        assert LOG == ["made", "made"]


class TestTidyingUp:
    """What was opened is closed, however the call ends."""

    @pytest.mark.parametrize("plain", [True, False])
    async def test_after_an_error_which_the_provider_sees_and_cannot_hide(self, era, plain):
        def watching():
            try:
                yield 1
            except ToolError as error:
                LOG.append(f"saw {error}")

        async def watching_async():
            with contextlib.suppress(ToolError):
                yield 1
            LOG.append("saw it")

        app = Server("s")

        @app.tool
        def fail(a: int = Depends(watching if plain else watching_async)) -> str:
            raise ToolError("no luck")

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="no luck"):
                await client.call_tool("fail")
        assert LOG == ["saw no luck"] if plain else LOG == ["saw it"]

    async def test_a_provider_cannot_hide_the_error_of_a_generator_either(self, era):
        def hiding():
            with contextlib.suppress(ToolError):
                yield 1

        app = Server("s")

        @app.tool
        def fail(a: int = Depends(hiding)):
            yield "part"
            raise ToolError("no luck")

        @app.tool
        async def fail_later(a: int = Depends(hiding)):
            yield "part"
            raise ToolError("no luck")

        app.add_tool("fail_inline", fail, inline=True)
        async with pair(app, era) as client:
            for name in ("fail", "fail_later", "fail_inline"):
                with pytest.raises(ToolError, match="no luck"):
                    await client.call_tool(name)

    async def test_after_a_time_out(self, era):
        app = Server("s")

        @app.tool(timeout=0.05)
        async def slow(db: str = Depends(database)) -> str:
            await asyncio.sleep(60)
            return db

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="did not finish"):
                await client.call_tool("slow")
            while "close" not in LOG:
                await asyncio.sleep(0.001)
        assert LOG == ["open", "close"]

    async def test_after_a_cancel(self, wire):
        app, closed = Server("s"), asyncio.Event()

        async def resource():
            LOG.append("open")
            try:
                yield 1
            finally:
                LOG.append("close")
                closed.set()

        @app.tool
        async def slow(a: int = Depends(resource)) -> str:
            LOG.append("run")
            await asyncio.sleep(60)
            return ""

        async with wire(app) as peer:
            asked = peer.ask("tools/call", {"name": "slow", "arguments": {}})
            while "run" not in LOG:
                await asyncio.sleep(0.001)
            peer.notify("notifications/cancelled", {"requestId": asked})
            await closed.wait()
        assert LOG == ["open", "run", "close"]

    async def test_after_a_cancel_while_a_thread_still_opens_it(self, wire):
        app, closed = Server("s"), threading.Event()
        begun, go_on = threading.Event(), threading.Event()

        def resource():
            begun.set()
            go_on.wait(60)
            LOG.append("open")
            try:
                yield 1
                LOG.append("commit")
            finally:
                LOG.append("close")
                closed.set()

        @app.tool
        async def use(a: int = Depends(resource)) -> str:
            LOG.append("run")
            return ""

        async with wire(app) as peer:
            asked = peer.ask("tools/call", {"name": "use", "arguments": {}})
            while not begun.is_set():
                await asyncio.sleep(0.001)
            peer.notify("notifications/cancelled", {"requestId": asked})
            while peer.link.session.running:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            go_on.set()
            while not closed.is_set():
                await asyncio.sleep(0.001)
        assert LOG == ["open", "close"]

    async def test_a_thread_that_still_runs_keeps_what_it_was_given(self, wire):
        app, closed = Server("s"), asyncio.Event()
        begun, go_on = threading.Event(), threading.Event()

        async def resource():
            try:
                yield 1
            finally:
                LOG.append("close")
                closed.set()

        @app.tool
        def stubborn(a: int = Depends(resource)) -> str:
            begun.set()
            go_on.wait(60)
            LOG.append("thread ends")
            return ""

        async with wire(app) as peer:
            asked = peer.ask("tools/call", {"name": "stubborn", "arguments": {}})
            while not begun.is_set():
                await asyncio.sleep(0.001)
            peer.notify("notifications/cancelled", {"requestId": asked})
            for _ in range(5):
                await asyncio.sleep(0)
            go_on.set()
            await closed.wait()
        assert LOG == ["thread ends", "close"]

    @pytest.mark.parametrize("plain", [True, False])
    async def test_when_a_question_interrupts_the_handler(self, era, plain):
        """In the stateless era a later round runs the providers again."""
        app = Server("s")

        if plain:

            def provider():
                LOG.append("open")
                try:
                    yield "db"
                finally:
                    LOG.append("close")

            @app.tool
            def ask(ctx: Context, db: str = Depends(provider)) -> str:
                return f"{db} {ctx.sync.ask('Name?', str)}"
        else:

            @app.tool
            async def ask(ctx: Context, db: str = Depends(database)) -> str:
                return f"{db} {await ctx.ask('Name?', str)}"

        async with pair(app, era, elicitation=lambda params: {"value": "ada"}) as client:
            assert (await client.call_tool("ask")).data == "db ada"
        assert ["open", "close"] * (1 if era == "handshake" else 2) == LOG

    async def test_a_provider_may_ask_the_user(self, era):
        app = Server("s")

        async def name(ctx: Context):
            return await ctx.ask("Name?", str)

        @app.tool
        async def greet(whose: str = Depends(name)) -> str:
            return f"Hello {whose}"

        async with pair(app, era, elicitation=lambda params: {"value": "ada"}) as client:
            assert (await client.call_tool("greet")).data == "Hello ada"

    async def test_questions_declared_as_parameters_go_with_dependencies(self, era):
        app = Server("s")

        @app.tool
        async def book(seat: Annotated[int, Ask("Which seat?")], city: str, db: str = Depends(database)) -> str:
            return f"{city} {seat} {db}"

        async with pair(app, era, elicitation=lambda params: {"value": 12}) as client:
            (tool,) = await client.list_tools()
            assert tool.input_schema["properties"].keys() == {"city"}
            assert (await client.call_tool("book", {"city": "Rome"})).data == "Rome 12 db"

    async def test_a_provider_may_refuse_the_call(self, era):
        app = Server("s")

        def admin(ctx: Context):
            if ctx.principal is None:
                raise InvalidParams("log in first")

        @app.tool
        async def secret(_who: None = Depends(admin)) -> str:
            return "gold"

        async with pair(app, era) as client:
            with pytest.raises(PeerError, match="log in first"):
                await client.call_tool("secret")


class TestStreams:
    """A handler that yields keeps what it was given until its last value."""

    async def test_an_asynchronous_generator_is_tidied_up_after_its_end(self):
        async def stream(n: int, db: str = Depends(database)):
            for number in range(n):
                yield f"{db}{number}"
            LOG.append("end")

        binding = bind(stream, context_type=Context)
        assert binding.signature.is_async_generator
        assert [value async for value in binding.invoke(b'{"n":2}')] == ["db0", "db1"]
        assert LOG == ["open", "end", "close"]

    @pytest.mark.parametrize("inline", [True, False])
    async def test_generators_of_both_kinds_as_tools(self, era, inline):
        def plain():
            LOG.append("open")
            yield "p"
            LOG.append("close")

        app = Server("s")

        @app.tool(inline=inline)
        def numbers(n: int, word: str = Depends(plain)):
            for number in range(n):
                yield f"{word}{number} "
            LOG.append("end")

        @app.tool
        async def words(db: str = Depends(database), word: str = Depends(plain)):
            yield f"{db}{word}"

        async with pair(app, era) as client:
            assert (await client.call_tool("numbers", {"n": 2})).text == "p0 p1 "
            assert LOG == ["open", "end", "close"]
            assert (await client.call_tool("words")).text == "dbp"
        assert LOG[3:] == ["open", "open", "close", "close"]

    async def test_one_that_is_left_early_is_tidied_up_too(self):
        async def stream(db: str = Depends(database)):
            try:
                while True:
                    yield db
            finally:
                LOG.append("left")

        values = bind(stream, context_type=Context).invoke(b"{}")
        assert await anext(values) == "db"
        await values.aclose()
        assert LOG == ["open", "left", "close"]


class TestMistakes:
    """Wrong providers are found when the handler is registered, with the chain that leads to them."""

    def test_providers_that_need_each_other(self):
        def first(): ...

        def second(it=Depends(first)): ...

        first.__defaults__ = (Depends(second),)
        first.__code__ = (lambda it: None).__code__
        app = Server("s")
        with pytest.raises(SetupError, match=r"need each other: tool\(\) → first\(\) → second\(\) → first\(\)"):

            @app.tool
            def tool(a=Depends(first)): ...

    def test_a_parameter_nothing_fills(self):
        def inner(connection: str): ...

        def outer(it=Depends(inner)): ...

        app = Server("s")
        with pytest.raises(SetupError, match=r"tool\(\) → outer\(\) → inner\(\): nothing fills .* 'connection'"):

            @app.tool
            def tool(a=Depends(outer)): ...

    def test_what_is_no_function(self):
        with pytest.raises(SetupError, match="without calling it"):
            Depends(settings())

    def test_a_plain_generator_with_an_asynchronous_provider(self):
        app = Server("s")
        with pytest.raises(SetupError, match="must be an `async def`"):

            @app.tool
            def stream(a=Depends(database)):
                yield a

    def test_a_kept_resource_whose_provider_looks_at_the_caller(self):
        app = Server("s")

        def who(ctx: Context): ...

        with pytest.raises(SetupError, match="cannot take a Context"):

            @app.resource("note://one", ttl=5)
            def note(a=Depends(who)) -> str: ...
