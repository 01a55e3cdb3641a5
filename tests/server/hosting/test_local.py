"""Calls from this process, without a client."""

import asyncio

import pytest

from ferrule import CapabilityNotSupported, Context, Server, ToolError
from ferrule.errors import InvalidParams, PromptNotFound, ResourceNotFound, ToolNotFound


def plain():
    app = Server("plain")

    @app.tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @app.tool
    def threaded(ctx: Context) -> str:
        ctx.sync.info("nobody hears")
        ctx.sync.report_progress(1)
        return ctx.sync.read_resource("notes://7").text

    @app.resource("notes://{id}")
    def note(id: str) -> str:  # noqa: A002
        return f"note {id}"

    @app.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    return app


async def test_tools_resources_and_prompts_work_without_a_carrier():
    """SRVR-09"""
    app = plain()
    assert (await app.call_tool("add", {"a": 2})).data == 3
    assert (await app.call_tool("add", {"a": 2, "b": 5})).structured_content == {"result": 7}
    assert (await app.read_resource("notes://7")).text == "note 7"
    assert (await app.get_prompt("greet", {"name": "you"})).messages[0].content.text == "Hello you"
    assert len(app.list_tools()) == 2
    assert not app.host.links


async def test_failures_are_those_a_client_would_see():
    """SRVR-09"""
    app = plain()
    with pytest.raises(ToolError, match="Invalid arguments for the tool add") as caught:
        await app.call_tool("add", {"a": "x"})
    assert caught.value.result.is_error
    assert (await app.call_tool("add", {"a": "x"}, raise_on_error=False)).is_error
    with pytest.raises(ToolNotFound, match="did you mean 'add'"):
        await app.call_tool("ad")
    with pytest.raises(ResourceNotFound):
        await app.read_resource("other://x")
    with pytest.raises(PromptNotFound):
        await app.get_prompt("nix")
    with pytest.raises(InvalidParams, match="Missing required argument 'name'"):
        await app.get_prompt("greet")


async def test_a_handler_that_asks_finds_nobody_to_ask():
    app = Server("asking")

    @app.tool
    async def ask(ctx: Context) -> str:
        return await ctx.ask("Anyone?", str)

    with pytest.raises(CapabilityNotSupported):
        await app.call_tool("ask")


async def test_steps_work_and_are_not_kept_between_calls():
    app = Server("steps")
    deeds = []

    @app.tool
    async def act(ctx: Context) -> int:
        return await ctx.step("deed", lambda: deeds.append(1) or len(deeds))

    assert [(await app.call_tool("act")).data for _ in range(2)] == [1, 2]


def test_a_thread_finds_the_loop_of_each_run():
    app = plain()
    for _ in range(2):
        assert asyncio.run(app.call_tool("threaded")).data == "note 7"


async def test_calls_may_run_side_by_side():
    app = plain()
    results = await asyncio.gather(*(app.call_tool("add", {"a": number}) for number in range(100)))
    assert [result.data for result in results] == list(range(1, 101))
