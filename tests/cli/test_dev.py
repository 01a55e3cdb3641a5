"""What `ferrule dev` shows of messages."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from ferrule import Context, Server
from ferrule.cli.dev import MOST_CONTENT, MessageView
from ferrule.testing import pair


def said(app: Server, era: str, *, as_json: bool) -> str:
    """Return what is shown of one call of each tool."""
    stream = io.StringIO()
    app.host.observe(MessageView(stream, json=as_json))

    async def scenario() -> None:
        async with pair(app, era) as client:  # type: ignore[arg-type]
            await client.call_tool("add", {"a": 1, "b": 2})
            await client.call_tool("evil")
            await client.call_tool("fail", {"why": "x" * MOST_CONTENT}, raise_on_error=False)

    asyncio.run(scenario())
    return stream.getvalue()


def test_a_line_shows_a_request_and_its_answer(app: Server, era: str) -> None:
    lines = said(app, era, as_json=False).splitlines()
    [added] = [line for line in lines if "tools/call add" in line]
    assert '→ tools/call add {"a":1,"b":2} ⇒ ok {"content":[{"type":"text","text":"3"}]' in added
    assert added.endswith(" ms")
    [failed] = [line for line in lines if "tools/call fail" in line]
    assert "⇒ tool_error" in failed
    assert max(map(len, lines)) < 1000


def test_what_the_server_tells_and_asks_is_shown_with_its_direction() -> None:
    app = Server("talk")

    @app.tool
    async def choose(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        await ctx.info("looking")
        return str((await ctx.elicit("Which?", str)).data)

    stream = io.StringIO()
    app.host.observe(MessageView(stream))

    async def scenario() -> None:
        async with pair(app, elicitation=lambda question: {"value": "blue"}, log_level="info") as client:
            await client.call_tool("choose", on_progress=lambda *told: None)
            app.notify_tools_changed()

    asyncio.run(scenario())
    shown = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    begins = [line for line in shown if line.startswith("←")]
    assert begins[0].endswith(',"progress":1,"total":2,"message":"half"}')
    assert begins[1] == '← notifications/message {"level":"info","data":"looking"}'
    assert begins[2].startswith('← elicitation/create {"message":"Which?"')
    assert begins[3] == "← notifications/tools/list_changed"
    [answer] = [line for line in shown if line.startswith("→ elicitation/create")]
    assert '⇒ ok {"action":"accept","content":{"value":"blue"}}' in answer
    assert shown.index(answer) > shown.index(begins[2])


def test_no_line_speaks_to_the_terminal(app: Server, era: str) -> None:
    shown = said(app, era, as_json=False)
    assert not set("\x1b\x9b\u202e") & set(shown)
    assert "\\x9b2J\\u202e" in shown


def test_json_lines_are_for_programs(app: Server, era: str) -> None:
    events = [json.loads(line) for line in said(app, era, as_json=True).splitlines()]
    [call] = [event for event in events if event.get("name") == "add"]
    assert call["params"] == {"a": 1, "b": 2}
    assert call["result"]["structuredContent"] == {"result": 3}


def test_a_view_that_cannot_be_written_harms_nobody(app: Server) -> None:
    stream = io.StringIO()
    stream.close()
    app.host.observe(MessageView(stream))

    async def scenario() -> object:
        async with pair(app) as client:
            return (await client.call_tool("add", {"a": 1, "b": 2})).data

    assert asyncio.run(scenario()) == 3


@pytest.mark.parametrize("line", [b"not json", b""])
def test_contents_of_any_shape_are_shown(line: bytes) -> None:
    from ferrule.cli.dev import _value

    assert _value(line) == (line.decode() or None)
