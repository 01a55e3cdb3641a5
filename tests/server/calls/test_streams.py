"""Handlers that are generators."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass

import pytest

from ferrule import Context, Image, Progress, Server, SetupError, TimedOut, ToolError, ToolResult
from ferrule.schema.content import ImageContent, TextContent
from ferrule.server.calls.streams import FEW_TEXTS
from ferrule.testing import pair

KINDS = ["async", "thread", "inline"]


def offer(app, kind, items, **options):
    """Offer a tool `give` that yields items, in one of the three ways."""

    async def asynchronous():
        try:
            for item in items:
                yield item
        finally:
            getattr(items, "close", lambda: None)()

    def plain():
        yield from items

    app.add_tool("give", asynchronous if kind == "async" else plain, inline=kind == "inline", **options)
    return app


async def given(era, kind, items, **options):
    """Return the result and the progress a client gets."""
    heard = []
    async with pair(offer(Server("generators"), kind, items, **options), era) as client:
        result = await client.call_tool("give", on_progress=lambda *told: heard.append(told))
    return result, heard


@pytest.mark.parametrize("kind", KINDS)
async def test_progress_is_told_and_the_last_value_is_the_result(era, kind):
    items = [Progress(1, 3, "one"), Progress(2, 3), 3, {"rows": 3}]
    result, heard = await given(era, kind, items)
    assert heard == [(1, 3, "one"), (2, 3, None), (3, None, None)]
    assert result.text == '{"rows":3}'


@pytest.mark.parametrize("kind", KINDS)
async def test_texts_are_told_as_they_come_and_joined_in_the_end(era, kind):
    result, heard = await given(era, kind, ["Once ", "upon ", "a time"])
    assert heard == [(1, None, "Once "), (2, None, "upon "), (3, None, "a time")]
    assert result.content == [TextContent("Once upon a time")]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_generator_that_tells_of_its_progress_tells_nothing_else(era, kind):
    result, heard = await given(era, kind, [Progress(0.5, 1), "a", "b"])
    assert heard == [(0.5, 1, None)]
    assert result.text == "ab"


@pytest.mark.parametrize("kind", KINDS)
async def test_parts_of_several_kinds_are_several_blocks(era, kind):
    result, _ = await given(era, kind, ["see ", "this: ", Image(b"\x89PNG\r\n\x1a\n"), {"a": 1}, None])
    assert [type(block) for block in result.content] == [TextContent, ImageContent, TextContent]
    assert (result.content[0].text, result.content[2].text) == ("see this: ", '{"a":1}')


@pytest.mark.parametrize("kind", KINDS)
async def test_a_whole_result_that_is_yielded_is_the_result(era, kind):
    result, _ = await given(era, kind, ["on the way", ToolResult("whole", {"a": 1}, meta={"example.org/k": 2})])
    assert (result.text, result.data, result.meta["example.org/k"]) == ("whole", {"a": 1}, 2)


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_yielded_is_an_empty_result(era, kind):
    result, _ = await given(era, kind, [])
    assert result.content == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_that_does_not_listen_gets_the_result_all_the_same(era, kind):
    async with pair(offer(Server("quiet"), kind, [1, 2, "done"]), era) as client:
        assert (await client.call_tool("give")).text == "done"


@dataclass
class Report:
    rows: int


@pytest.mark.parametrize("inline", [True, False])
async def test_what_a_generator_returns_is_the_result_with_its_schema(era, inline):
    app = Server("returning")

    @app.tool(inline=inline)
    def count(rows: int) -> Generator[Progress | str, None, Report]:
        yield Progress(1, 2)
        yield "a note on the way"
        return Report(rows)

    @app.tool(inline=inline)
    def lie() -> Generator[Progress, None, Report]:
        yield Progress(1)
        return 5

    assert app.list_tools()[0].output_schema["properties"] == {"rows": {"type": "integer"}}
    async with pair(app, era) as client:
        assert (await client.call_tool("count", {"rows": 7})).structured_content == {"rows": 7}
        with pytest.raises(ToolError, match="lie"):
            await client.call_tool("lie")


async def test_annotated_generators_promise_nothing(era):
    app = Server("annotated")

    @app.tool
    async def words() -> AsyncIterator[str]:
        yield "a"

    @app.tool
    def more() -> Iterator[str]:
        yield "b"

    assert [tool.output_schema for tool in app.list_tools()] == [None, None]
    async with pair(app, era) as client:
        assert [(await client.call_tool(name)).text for name in ("words", "more")] == ["a", "b"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_generator_raises_is_told_like_any_failure(era, kind):
    def failing(error):
        yield 1
        raise error

    for error, said in ((ToolError("no more paper"), "no more paper"), (ValueError("secret"), "Internal error")):
        with pytest.raises(ToolError, match=said):
            await given(era, kind, failing(error))


@pytest.mark.parametrize("kind", KINDS)
async def test_bad_arguments_are_found_before_it_runs(era, kind):
    app, ran = Server("strict"), []

    async def asynchronous(n: int):
        ran.append(n)
        yield "x"

    def plain(n: int):
        ran.append(n)
        yield "x"

    app.add_tool("give", asynchronous if kind == "async" else plain, inline=kind == "inline")
    async with pair(app, era) as client:
        with pytest.raises(ToolError, match="/n"):
            await client.call_tool("give", {"n": "x"})
    assert ran == []


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_cancelling_closes_the_generator(era, kind):
    app, begun, closed = Server("closing"), asyncio.Event(), threading.Event()

    async def asynchronous(ctx: Context):
        try:
            for number in itertools.count(1):
                begun.set()
                yield number
        finally:
            closed.set()

    def plain(ctx: Context):
        try:
            for number in itertools.count(1):
                ctx.server.host.services.changes.loop.call_soon_threadsafe(begun.set)
                yield number
        finally:
            closed.set()

    app.add_tool("endless", asynchronous if kind == "async" else plain)
    async with pair(app, era) as client:
        call = asyncio.ensure_future(client.call_tool("endless", on_progress=lambda *_: None))
        await begun.wait()
        call.cancel()
        assert await asyncio.to_thread(closed.wait, 60)
        while app.threads.busy:
            await asyncio.sleep(0.001)


async def test_a_generator_in_a_thread_ends_when_its_time_is_up(era):
    app, closed = Server("late"), threading.Event()

    @app.tool(timeout=0.5)
    def endless():
        try:
            yield from itertools.count(1)
        finally:
            closed.set()

    async with pair(app, era) as client:
        with pytest.raises(ToolError, match="did not finish within"):
            await client.call_tool("endless")
        assert await asyncio.to_thread(closed.wait, 60)


@pytest.mark.parametrize("kind", KINDS)
async def test_hnd_09_a_generator_without_end_is_stopped_at_its_budget(era, kind):
    """HND-09"""
    closed = threading.Event()

    def endless(part):
        try:
            while True:
                yield part
        finally:
            closed.set()

    parts = {"x" * 1000: "may have at most 20,000", "": "parts that are empty", ("x" * 500,): "may have at most 20,000"}
    for part, reason in parts.items():
        closed.clear()
        with pytest.raises(ToolError, match=reason):
            await given(era, kind, endless(part), result_limit=20_000)
        assert closed.is_set()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_generator_without_end_that_may_be_cut_gives_its_beginning(era, kind):
    parts = ("x" * 1000 for _ in itertools.count())
    result, _ = await given(era, kind, parts, result_limit=20_000, result_policy="truncate")
    assert result.content[0].text == "x" * 20_000
    assert "Truncated" in result.content[1].text


SMALL = {"texts": "ab", "blocks": TextContent("ab"), "data": [1, 2, 3]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["refuse", "truncate", "spill"])
@pytest.mark.parametrize("part", SMALL.values(), ids=SMALL)
async def test_many_small_parts_count_what_they_are(era, kind, policy, part):
    """HND-09: what fits is whole, and of what does not, the client is told."""
    size = 2 if part in ("ab", TextContent("ab")) else 7
    options = {"result_limit": 20 * size, "result_policy": policy}
    fits, _ = await given(era, kind, ["", *[part] * 20], **options)
    assert sum(len(block.text) for block in fits.content) == 20 * size
    if policy == "refuse":
        with pytest.raises(ToolError, match="may have at most"):
            await given(era, kind, [part] * 21, **options)
    else:
        cut, _ = await given(era, kind, [part] * 21, **options)
        assert f"ferrule/{'truncated' if policy == 'truncate' else 'spilled'}" in cut.meta


async def test_ever_so_many_texts_are_one_text_in_their_order(era):
    texts = [f"{number}," for number in range(FEW_TEXTS * 2 + 7)]
    result, _ = await given(era, "async", [*texts, {"a": 1}, *texts])
    assert [block.text for block in result.content] == ["".join(texts), '{"a":1}', "".join(texts)]


async def test_a_generator_asks_and_streams_in_both_eras(era):
    app = Server("asking")

    @app.tool
    async def book(ctx: Context):
        yield Progress(1, 2, "asking")
        seat = await ctx.ask("Which seat?", int)
        yield f"seat {seat}"

    @app.tool
    def book_in_thread(ctx: Context):
        yield Progress(1, 2, "asking")
        yield f"seat {ctx.sync.ask('Which seat?', int)}"

    async with pair(app, era, elicitation=lambda question: {"value": 12}) as client:
        for name in ("book", "book_in_thread"):
            assert (await client.call_tool(name)).text == "seat 12"


async def test_a_client_that_gives_up_on_one_call_leaves_the_others_alone(era):
    app = offer(Server("patient"), "async", itertools.count(1))
    app.add_tool("echo", lambda: "on", inline=True)
    async with pair(app, era) as client:
        with pytest.raises(TimedOut):
            await client.call_tool("give", timeout=0.1)
        assert (await client.call_tool("echo")).text == "on"


def test_only_tools_may_be_generators():
    app = Server("strict")

    def lines():
        yield "a"

    with pytest.raises(SetupError, match=r"the resource 'x://y': lines\(\) is a generator, and only tools may be"):
        app.add_resource("x://y", lines)
    with pytest.raises(SetupError, match=r"the prompt lines\(\) is a generator, and only tools may be"):
        app.add_prompt(lines)
