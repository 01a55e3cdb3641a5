"""What a server's question holds reaches the one who answers it, and a malformed question reaches nobody."""

from __future__ import annotations

import pytest

from ferrule import Client, Context, Server
from ferrule.schema.sampling import ToolChoice
from ferrule.schema.tools import Tool
from ferrule.testing import pair

HELLO = {"role": "user", "content": {"type": "text", "text": "Hi"}}
MALFORMED = {
    "no role": {"content": HELLO["content"]},
    "no content": {"role": "user"},
    "no text": {"role": "user", "content": {"type": "text"}},
    "another role": {**HELLO, "role": "system"},
    "no message": "Hi",
}


@pytest.mark.parametrize("identity", ["", "7", "../x?y=1#z", "a b\n", "é" * 500, "null", "{}"])
async def test_the_id_of_a_visit_is_handed_on_as_it_came(identity, raw):
    """ERRA-3"""
    server, seen = raw(), []

    def visit(params):
        seen.append(params.elicitation_id)
        return True

    async with Client(server, mode="handshake", url_elicitation=visit) as client:
        client.on_notification("notifications/elicitation/complete", lambda p: seen.append(p["elicitationId"]))
        question = {"mode": "url", "message": "m", "url": "https://x.example/", "elicitationId": identity}
        server.ask("elicitation/create", question)
        assert (await server.replied())["result"]["action"] == "accept"
        server.tell("notifications/elicitation/complete", {"elicitationId": identity})
        await client.ping()
    assert seen == [identity, identity]


@pytest.mark.parametrize("mode", ["auto", "required", "none"])
async def test_the_choice_of_tools_reaches_the_one_who_samples(mode, era):
    """ERRA-5"""
    app, seen = Server("agent"), []

    @app.tool
    async def ask(ctx: Context) -> str:
        tools = [Tool(name="t", input_schema={"type": "object"})]
        return (await ctx.sample("Hi", tools=tools, tool_choice=ToolChoice(mode=mode))).text

    def sample(params):
        seen.append(params.tool_choice.mode)
        return "Hello"

    async with pair(app, era, sampling=sample, sampling_tools=True) as client:
        assert (await client.call_tool("ask")).data == "Hello"
    assert seen == [mode]


@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED)
async def test_a_message_without_role_or_content_is_refused_and_nobody_is_asked(message, raw):
    """ERRA-6"""
    server, asked = raw(), []
    async with Client(server, mode="handshake", sampling=asked.append):
        server.ask("sampling/createMessage", {"messages": [HELLO, message], "maxTokens": 1})
        assert (await server.replied())["error"]["code"] == -32602
    assert asked == []


async def test_lists_are_answered_also_when_nothing_is_left_in_them(era):
    """ERRA-7"""
    app = Server("empty")
    app.add_resource("note://one", lambda: "1")
    app.add_prompt("p", lambda: "x")
    async with pair(app, era) as client:
        assert client.server_capabilities.resources is not None
        assert client.server_capabilities.prompts is not None
        app.remove_resource("note://one")
        app.remove_prompt("p")
        assert await client.list_resources() == []
        assert await client.list_prompts() == []
        assert await client.list_resource_templates() == []
