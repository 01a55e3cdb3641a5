"""The client's methods, one after another, in both eras."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging

import pytest

import ferrule
from ferrule import Client, Context, PeerError, Server, ToolError
from ferrule.errors import AlreadyInitialized, CapabilityNotSupported, InvalidAnswer, LinkLost, NotConnected, SetupError
from ferrule.protocol.session import Phase
from ferrule.schema.completion import PromptReference, ResourceReference
from ferrule.schema.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent
from ferrule.testing import Recorder, pair
from ferrule.transports.memory import Memory

PROMISED = (
    *("connect", "initialize", "close", "reconnect", "ping", "request", "notify", "cancel", "complete"),
    *("list_tools", "iter_tools", "call_tool", "list_prompts", "iter_prompts", "get_prompt"),
    *("list_resources", "iter_resources", "list_resource_templates", "iter_resource_templates", "read_resource"),
    *("subscribe", "subscribe_resource", "unsubscribe_resource", "on_notification", "remove_notification_handler"),
    *("set_sampling_handler", "remove_sampling_handler", "add_root", "remove_root", "roots"),
    *("batch", "send_batch", "set_log_level", "on_log", "watch_lists"),
    *("on_connected", "on_disconnected", "on_error", "on_phase_change"),
    *("phase", "connection_state", "protocol_version", "server_info", "server_capabilities", "negotiated", "pending"),
    *("subscriptions", "instructions"),
)


@pytest.mark.parametrize("name", PROMISED)
def test_every_name_users_write_against_is_there(name):
    """CLNT-15"""
    assert hasattr(Client, name)


# Using what a server offers


async def test_tools_can_be_listed_and_called(era, app):
    """CLNT-04"""
    async with pair(app, era) as client:
        tools = await client.list_tools()
        assert [tool.name for tool in tools] == ["add", "fail", "count", "wait"]
        assert [tool.name async for tool in client.iter_tools()] == [tool.name for tool in tools]
        result = await client.call_tool("add", {"a": 1, "b": 2}, timeout=10)
        assert (result.text, result.data, result.structured_content) == ("3", 3, {"result": 3})
        assert isinstance(result.content[0], TextContent)
        assert not result.is_error


async def test_resources_can_be_listed_and_read(era, app):
    """CLNT-03, SPEC-09"""
    async with pair(app, era) as client:
        assert [resource.uri for resource in await client.list_resources()] == ["logo://small"]
        assert [resource.uri async for resource in client.iter_resources()] == ["logo://small"]
        assert [t.uri_template for t in await client.list_resource_templates()] == ["notes://{number}"]
        assert [t.uri_template async for t in client.iter_resource_templates()] == ["notes://{number}"]
        note = await client.read_resource("notes://7")
        assert (note.text, note.contents[0].uri) == ("note 7", "notes://7")
        logo = await client.read_resource("logo://small")
        assert (logo.blob, logo.contents[0].mime_type) == (b"png", "image/png")


async def test_prompts_can_be_listed_and_got(era, app):
    """CLNT-05"""
    async with pair(app, era) as client:
        (prompt,) = await client.list_prompts()
        assert [prompt.name async for prompt in client.iter_prompts()] == ["review"]
        assert (prompt.arguments[0].name, prompt.arguments[0].required) == ("language", True)
        filled = await client.get_prompt("review", {"language": "python"})
        assert filled.messages[0].role == "user"
        assert filled.messages[0].content.text == "Review this python code, short."


REFERENCES = {
    "a name": "review",
    "a reference": PromptReference("review"),
    "a dict": {"type": "ref/prompt", "name": "review"},
}


@pytest.mark.parametrize("ref", REFERENCES.values(), ids=REFERENCES)
async def test_an_argument_can_be_completed(ref, era, app):
    """CLNT-08, COMP-01, COMP-02"""
    async with pair(app, era) as client:
        assert (await client.complete(ref, {"name": "language", "value": "p"})).values == ["perl", "python"]


@pytest.mark.parametrize("ref", ["notes://{number}", ResourceReference("notes://{number}")])
async def test_a_completion_says_what_it_completes_and_what_is_settled(ref, era, raw):
    """COMP-2, COMP-02"""
    server = raw(era, {"completion/complete": {"completion": {"values": ["7"], "total": 9, "hasMore": True}}})
    async with Client(server, mode=era) as client:
        found = await client.complete(ref, {"name": "number", "value": "7"}, context={"year": "1999"})
        assert (found.values, found.total, found.has_more) == (["7"], 9, True)
    params = server.sent("completion/complete")[0]["params"]
    assert params["ref"] == {"type": "ref/resource", "uri": "notes://{number}"}
    assert params["argument"] == {"name": "number", "value": "7"}
    assert params["context"] == {"arguments": {"year": "1999"}}


async def test_a_ping_tells_how_long_the_answer_took(era, app):
    """CLNT-08, PING-03"""
    async with pair(app, era) as client:
        assert 0 < await client.ping() < 5
        assert 0 < await client.ping(1.0) < 5


async def test_any_request_and_any_notification_can_be_sent(era, raw):
    server = raw(era, {"vendor/thing": {"shape": [1, {"a": None}]}})
    async with Client(server, mode=era) as client:
        assert await client.request("vendor/thing", {"size": 1}) == {"shape": [1, {"a": None}]}
        await client.notify("notifications/vendor", {"a": 1})
        await client.notify("notifications/bare")
    assert server.sent("vendor/thing")[0]["params"]["size"] == 1
    assert server.sent("notifications/vendor") == [
        {"jsonrpc": "2.0", "method": "notifications/vendor", "params": {"a": 1}}
    ]
    assert server.sent("notifications/bare") == [{"jsonrpc": "2.0", "method": "notifications/bare"}]


async def test_progress_is_told_as_it_comes_and_before_the_result(era, app):
    """PROG-04, PROG-06"""
    seen = []
    async with pair(app, era) as client:
        result = await client.call_tool("count", {"to": 10}, on_progress=lambda *report: seen.append(report))
        assert result.text == "done"
        assert seen == [(n, 10, f"number {n}") for n in range(1, 11)]


async def test_progress_may_be_told_to_a_coroutine_and_a_failing_callback_harms_nothing(era, app, caplog):
    seen = []

    async def note(done, total, message):
        seen.append(done)
        raise ZeroDivisionError("in the callback")

    def break_down(done, total, message):
        raise ZeroDivisionError("at once")

    async with pair(app, era) as client:
        assert (await client.call_tool("count", {"to": 3}, on_progress=note)).text == "done"
        assert (await client.call_tool("count", {"to": 3}, on_progress=break_down)).text == "done"
    assert seen == [1, 2, 3]
    assert "in the callback" in caplog.text
    assert "at once" in caplog.text


async def test_every_progress_token_is_unique_among_running_calls(era, raw):
    """PROG-1"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        calls = [asyncio.create_task(client.call_tool("x", on_progress=print)) for _ in range(20)]
        await server.heard("tools/call", 20)
        tokens = [request["params"]["_meta"]["progressToken"] for request in server.sent("tools/call")]
        assert len(set(tokens)) == 20
        assert all(isinstance(token, int | str) for token in tokens)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_progress_of_a_call_that_has_ended_is_not_told(era, raw):
    """PROG-3"""
    server = raw(era, {"tools/call": {"content": []}})
    seen = []
    async with Client(server, mode=era) as client:
        await client.call_tool("x", on_progress=lambda *report: seen.append(report))
        token = server.sent("tools/call")[0]["params"]["_meta"]["progressToken"]
        server.tell("notifications/progress", {"progressToken": token, "progress": 1})
        server.tell("notifications/progress", {"progressToken": "nobody's", "progress": 1})
        await client.request("tools/call", {"name": "x"})
    assert seen == []


async def test_arguments_may_be_left_out(era, raw):
    """spec:TOOL-9"""
    server = raw(era, {"tools/call": {"content": []}})
    async with Client(server, mode=era) as client:
        assert (await client.call_tool("x")).content == []
    assert server.sent("tools/call")[0]["params"]["arguments"] == {}


BLOCKS = [
    ({"type": "text", "text": "hi"}, TextContent),
    ({"type": "image", "data": "aGk=", "mimeType": "image/png"}, ImageContent),
    ({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}, AudioContent),
    ({"type": "resource", "resource": {"uri": "x://y", "text": "hi"}}, EmbeddedResource),
    ({"type": "resource_link", "uri": "x://y", "name": "y", "moon": 1}, ResourceLink),
]


async def test_content_of_all_kinds_is_read(era, raw):
    """RPC-15: members of tomorrow are no reason to fail."""
    answer = {"content": [block for block, _ in BLOCKS], "moon": "full", "_meta": {"com.example/x": 1}}
    async with Client(raw(era, {"tools/call": answer}), mode=era) as client:
        result = await client.call_tool("x")
        assert [type(block) for block in result.content] == [kind for _, kind in BLOCKS]
        assert result.meta["com.example/x"] == 1


@pytest.mark.parametrize("value", [0, False, [], "", {"result": None}, {"a": 1}])
async def test_structured_content_of_any_shape_is_handed_over(value, era, raw):
    async with Client(raw(era, {"tools/call": {"content": [], "structuredContent": value}}), mode=era) as client:
        result = await client.call_tool("x")
        assert result.structured_content == value
        assert result.data == (value["result"] if value == {"result": None} else value)


async def test_a_listed_tool_is_kept_word_for_word(era, raw):
    """SCH-5, SPEC-17"""
    schema = {
        "type": "object",
        "$defs": {"x": {"$anchor": "a", "type": "string"}},
        "properties": {"a": {"anyOf": [{"$ref": "#a"}, {"type": "null"}], "x-mcp-header": "A"}},
        "if": {"required": ["a"]},
        "then": {"minProperties": 1},
        "x-vendor": [1, None],
    }
    listed = {
        "name": "strange name/ü",
        "title": "T",
        "inputSchema": schema,
        "annotations": {"title": "A", "readOnlyHint": True},
        "icons": [{"src": "https://x.example/i.png", "sizes": ["any"]}],
        "_meta": {"com.example/x": 1},
    }
    async with Client(raw(era, {"tools/list": {"tools": [listed]}}), mode=era) as client:
        (tool,) = await client.list_tools()
        assert tool.input_schema == schema
        assert (tool.name, tool.title, tool.annotations.title) == ("strange name/ü", "T", "A")
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.destructive_hint is None
        assert (tool.icons[0].src, tool.meta) == ("https://x.example/i.png", {"com.example/x": 1})


async def test_a_tool_is_shown_by_its_title_and_judged_by_hints_with_defaults(era, raw):
    """spec:TOOL-18"""
    schema = {"inputSchema": {"type": "object"}}
    listed = [
        {"name": "a", "title": "T", "annotations": {"title": "A", "readOnlyHint": True}, **schema},
        {"name": "b", "annotations": {"title": "B"}, **schema},
        {"name": "c", **schema},
    ]
    async with Client(raw(era, {"tools/list": {"tools": listed}}), mode=era) as client:
        tools = await client.list_tools()
    assert [tool.display_name for tool in tools] == ["T", "B", "c"]
    assert [tool.hints.read_only for tool in tools] == [True, False, False]
    assert [tool.hints.destructive for tool in tools] == [True, True, True]
    assert [tool.hints.idempotent for tool in tools] == [False, False, False]
    assert [tool.hints.open_world for tool in tools] == [True, True, True]


# When things go wrong


async def test_a_tool_that_fails_raises_with_its_result(era, app):
    """spec:TOOL-16"""
    async with pair(app, era) as client:
        with pytest.raises(ToolError, match="the disk is full") as failed:
            await client.call_tool("fail", {"why": "the disk is full"})
        assert failed.value.result.is_error
        assert failed.value.result.content[0].text == "the disk is full"


async def test_a_failed_result_can_be_had_without_raising(era, app):
    """spec:TOOL-16"""
    async with pair(app, era) as client:
        result = await client.call_tool("fail", {"why": "the disk is full"}, raise_on_error=False)
        assert result.is_error
        assert result.text == "the disk is full"


async def test_a_tool_that_fails_without_a_word_is_named(era, raw):
    async with Client(raw(era, {"tools/call": {"content": [], "isError": True}}), mode=era) as client:
        with pytest.raises(ToolError, match="the tool mute failed"):
            await client.call_tool("mute")


async def test_a_server_that_refuses_is_quoted(era, raw, refused):
    server = raw(era, {"tools/call": refused(-32602, "Unknown tool: x", {"tool": "x"})})
    async with Client(server, mode=era) as client:
        with pytest.raises(PeerError) as refusal:
            await client.call_tool("x")
        error = refusal.value
        assert (error.code, error.message, error.data) == (-32602, "Unknown tool: x", {"tool": "x"})
        assert error.method == "tools/call"
        assert error.not_found


@pytest.mark.parametrize(("code", "data"), [(-32002, None), (-32602, {"uri": "x://y"})])
async def test_a_missing_resource_is_known_by_the_number_of_either_era(code, data, era, raw, refused):
    """RES-5"""
    async with Client(raw(era, {"resources/read": refused(code, "no", data)}), mode=era) as client:
        with pytest.raises(PeerError) as refusal:
            await client.read_resource("x://y")
        assert refusal.value.not_found


MALFORMED = {
    "tools/list": (lambda client: client.list_tools(), {"tools": {}}),
    "tools/call": (lambda client: client.call_tool("x"), {"content": "text"}),
    "resources/list": (lambda client: client.list_resources(), {}),
    "resources/read": (lambda client: client.read_resource("x://y"), {"contents": [{}]}),
    "prompts/get": (lambda client: client.get_prompt("x"), {"messages": [{"role": "system", "content": {}}]}),
    "completion/complete": (lambda client: client.complete("x", {"name": "a", "value": ""}), {"completion": {}}),
}


@pytest.mark.parametrize("method", MALFORMED)
async def test_an_answer_of_the_wrong_shape_is_one_sentence(method, era, raw):
    deed, answer = MALFORMED[method]
    async with Client(raw(era, {method: answer}), mode=era) as client:
        with pytest.raises(InvalidAnswer, match=f"answer to {method} is malformed") as refusal:
            await deed(client)
        assert "\n" not in str(refusal.value)


TYPED = {"name": "typed", "inputSchema": {"type": "object"}}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("structured", "fits"), [({"n": 1}, True), ({"n": "one"}, False), ({}, False), (None, False), ([], False)]
)
async def test_a_structured_result_is_checked_against_its_schema(structured, fits, era, raw):
    """spec:TOOL-11, SPEC-16"""
    answer = {"content": []} if structured is None else {"content": [], "structuredContent": structured}
    server = raw(era, {"tools/list": {"tools": [{**TYPED, "outputSchema": SCHEMA}]}, "tools/call": answer})
    async with Client(server, mode=era) as client:
        await client.call_tool("typed")
        await client.list_tools()
        if fits:
            assert (await client.call_tool("typed")).structured_content == structured
        else:
            with pytest.raises(InvalidAnswer, match="does not fit its output schema"):
                await client.call_tool("typed")


async def test_a_failed_result_needs_no_structure(era, raw):
    failed = {"content": [{"type": "text", "text": "no"}], "isError": True}
    server = raw(era, {"tools/list": {"tools": [{**TYPED, "outputSchema": SCHEMA}]}, "tools/call": failed})
    async with Client(server, mode=era) as client:
        await client.list_tools()
        with pytest.raises(ToolError):
            await client.call_tool("typed")


async def test_checking_results_can_be_switched_off(era, raw):
    answers = {"tools/list": {"tools": [{**TYPED, "outputSchema": SCHEMA}]}, "tools/call": {"content": []}}
    async with Client(raw(era, answers), mode=era, validate_results=False) as client:
        await client.list_tools()
        assert (await client.call_tool("typed")).content == []


async def test_a_schema_that_is_none_is_left_alone_with_a_warning(era, raw, caplog):
    answers = {"tools/list": {"tools": [{**TYPED, "outputSchema": {"type": 7}}]}, "tools/call": {"content": []}}
    async with Client(raw(era, answers), mode=era) as client:
        await client.list_tools()
        await client.call_tool("typed")
    assert "are not checked" in caplog.text


async def test_a_schema_holds_until_the_list_changes(raw):
    server = raw(answers={"tools/list": {"tools": [{**TYPED, "outputSchema": SCHEMA}]}, "tools/call": {"content": []}})
    async with Client(server, mode="handshake") as client:
        for _ in range(2):
            await client.list_tools()
            with pytest.raises(InvalidAnswer):
                await client.call_tool("typed")
            server.tell("notifications/tools/list_changed")
            assert (await client.call_tool("typed")).content == []
        server.answers["tools/list"] = {"tools": [TYPED]}
        await client.list_tools()
        assert (await client.call_tool("typed")).content == []


# Life and death


async def test_a_client_opens_and_ends_with_its_block(era, app):
    """SESS-02, SESS-10, SESS-14, CLNT-09"""
    client = pair(app, era)
    assert client.phase is Phase.PRE_INITIALIZATION
    async with client:
        assert client.phase is Phase.INITIALIZED
        assert len(app.host.links) == 1
    assert client.phase is Phase.CLOSED
    assert not app.host.links
    for deed in (client.list_tools, client.ping, lambda: client.call_tool("add"), lambda: client.notify("x")):
        with pytest.raises(NotConnected):
            await deed()
    await client.close()
    await client.close()
    assert client.phase is Phase.CLOSED


async def test_initializing_gives_what_the_server_says_of_itself(era, app):
    """CLNT-02"""
    client = pair(app, era)
    found = await client.initialize()
    assert found.protocol_version == client.protocol_version
    assert found.server_info.name == "notes"
    assert found.capabilities.tools is not None
    assert found.instructions == "Use it well."
    await client.close()


async def test_a_client_is_opened_once(era, app):
    """SESS-17"""
    async with pair(app, era) as client:
        for again in (client.connect, client.initialize):
            with pytest.raises(AlreadyInitialized, match="initialized"):
                await again()
        with pytest.raises((AlreadyInitialized, CapabilityNotSupported)):
            await client.request("initialize")
        assert (await client.call_tool("add", {"a": 1, "b": 1})).data == 2
    assert len(app.host.links) == 0


async def test_a_client_is_opened_by_one_task_only(era, raw):
    server = raw(era, {"initialize": None, "server/discover": None})
    client = Client(server, mode=era)
    connecting = asyncio.create_task(client.connect())
    await server.until(lambda: server.received)
    with pytest.raises(AlreadyInitialized):
        await client.connect()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting


async def test_reconnecting_starts_afresh(era, raw):
    """What was pending is lost, and the ids start anew."""
    server = raw(era, {"tools/call": None})
    client = Client(server, mode=era)
    await client.connect()
    call = asyncio.create_task(client.call_tool("x"))
    await server.heard("tools/call")
    await client.reconnect()
    with pytest.raises(LinkLost):
        await call
    assert client.phase is Phase.INITIALIZED
    assert not client.pending
    opening = [message for message in server.received if message.get("id") == 1]
    assert len(opening) == 2
    assert len(server.channels) == 2
    server.answers["tools/call"] = {"content": []}
    await client.call_tool("x")
    await client.close()
    assert server.users == 0


async def test_a_lost_client_can_be_connected_again(era, raw):
    server = raw(era, {"tools/call": {"content": []}})
    client = Client(server, mode=era)
    await client.connect()
    server.die()
    with pytest.raises(LinkLost):
        await client.call_tool("x")
    await client.connect()
    await client.call_tool("x")
    await client.close()
    assert server.users == 0


async def test_a_server_that_cannot_be_reached_is_one_sentence_and_phase_error():
    """SESS-09"""
    client = Client(["/no/such/program"])
    with pytest.raises(ferrule.CarrierError, match="no such file") as failed:
        await client.connect()
    assert "\n" not in str(failed.value)
    assert client.phase is Phase.ERROR


async def test_a_question_under_way_ends_with_the_client(raw):
    server = raw()
    ended = []

    async def think(params):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(params.message)

    async with Client(server, mode="handshake", elicitation=think):
        server.ask("elicitation/create", {"message": "Name?", "requestedSchema": {"type": "object"}})
        await asyncio.sleep(0)
    assert ended == ["Name?"]


async def test_a_call_that_cannot_be_written_fails_alone(era, app):
    async with pair(app, era) as client:
        with pytest.raises(ferrule.FerruleError) as failed:
            await client.call_tool("add", {"a": object()})
        assert "\n" not in str(failed.value)
        assert not client.pending
        assert (await client.call_tool("add", {"a": 1, "b": 1})).data == 2


async def test_no_failure_is_a_group_of_failures(era, raw, refused):
    """Callers catch one class per cause."""
    server = raw(era, {"tools/call": refused(-1, "no")})
    async with Client(server, mode=era) as client:
        outcomes = await asyncio.gather(*(client.call_tool("x") for _ in range(5)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {PeerError}


# Log messages and roots


async def test_log_messages_reach_their_callback(era, app):
    """LOGG-03"""
    heard = []
    client = pair(app, era, log_level="info")
    client.on_log(lambda *message: heard.append(message))
    async with client:
        await client.call_tool("count", {"to": 1})
        await asyncio.sleep(0)
    assert heard == [("info", "counted to 1", "counter")]


async def test_the_level_can_be_set_while_running_in_either_era(era, app):
    heard = []
    client = pair(app, era)
    client.on_log(lambda level, data, logger: heard.append(data))
    async with client:
        await client.set_log_level("error")
        await client.call_tool("count", {"to": 1})
        await client.set_log_level("debug")
        await client.call_tool("count", {"to": 2})
        await asyncio.sleep(0)
        with pytest.raises(SetupError, match="log level must be one of alert, critical, debug"):
            await client.set_log_level("loud")
    assert heard == ["counted to 2"]


async def test_roots_can_be_added_and_removed_and_the_server_is_told(tmp_path):
    """ROOT-03, ROOT-4, ROOT-02, SPEC-14, CLNT-15"""
    app = Server("roots")
    told = []
    app.on_roots_changed(lambda: told.append(True))

    @app.tool
    async def where(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.list_roots()]

    async with pair(app, "handshake", roots=[tmp_path]) as client:
        assert (await client.call_tool("where")).data == [tmp_path.as_uri()]
        work = tmp_path / "work"
        work.mkdir()
        await client.add_root(work.as_uri(), name="work")
        assert [root.name for root in client.roots] == [None, "work"]
        assert (await client.call_tool("where")).data == [tmp_path.as_uri(), work.as_uri()]
        await client.remove_root(tmp_path)
        assert (await client.call_tool("where")).data == [work.as_uri()]
    assert len(told) == 2


async def test_nobody_is_told_of_roots_that_were_not_declared(era, raw):
    """ROOT-4"""
    for options in ({}, {"roots": []}):
        server = raw(era)
        async with Client(server, mode=era, **options) as client:
            await client.add_root("/work")
            assert [root.uri for root in client.roots] == ["file:///work"]
        told = len(server.sent("notifications/roots/list_changed"))
        assert told == (1 if options and era == "handshake" else 0)


async def test_roots_may_be_added_before_the_client_is_connected(era, app):
    client = pair(app, era, roots=[])
    await client.add_root("/work")
    async with client:
        assert [root.uri for root in client.roots] == ["file:///work"]


async def test_a_sampling_handler_can_be_set_and_removed(raw):
    """CLNT-15"""
    server = raw()
    async with Client(server, mode="handshake", sampling=lambda p: "first") as client:
        client.set_sampling_handler(lambda p: "second")
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1})
        assert (await server.replied())["result"]["content"]["text"] == "second"
        client.remove_sampling_handler()
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, "q2")
        assert (await server.replied("q2"))["error"]["code"] == -32601


# Both sides


async def test_what_the_server_says_of_itself_changes_nothing(era, raw):
    """META-8"""
    answers = []
    for name in ("raw", "FastMCP", "evil\n\u202e"):
        server = raw(era, {"tools/list": {"tools": []}})
        text = json.dumps(server.answers[("initialize", "server/discover")[era == "stateless"]])
        opening = json.loads(text.replace('"raw"', json.dumps(name)))
        server.answers |= {"initialize": opening, "server/discover": opening}
        async with Client(server, mode=era) as client:
            await client.list_tools()
            assert client.server_info.name == name
        answers.append(server.received)
    assert answers[0] == answers[1] == answers[2]


async def test_what_is_sent_is_json_rpc_with_rising_ids(era, app):
    """RPC-1, RPC-2, RPC-3, RPC-4, CORR-01"""
    recorder = Recorder(Memory(app))
    async with pair(recorder, era) as client:
        await client.list_tools()
        await client.call_tool("add", {"a": 1, "b": 2})
        await client.ping()
    sent = recorder.sent("client")
    assert all(message["jsonrpc"] == "2.0" for message in sent)
    assert [message["id"] for message in sent if "id" in message] == [1, 2, 3, 4]
    assert all(isinstance(message.get("params", {}), dict) for message in sent)


def test_the_methods_that_wait_are_coroutines():
    waiting = [name for name in PROMISED if inspect.iscoroutinefunction(getattr(Client, name))]
    assert set(waiting) >= {"connect", "close", "ping", "call_tool", "list_tools", "read_resource", "request"}


async def test_the_library_keeps_its_hands_off_the_root_logger(app):
    before = (list(logging.root.handlers), logging.root.level)
    async with pair(app) as client:
        await client.list_tools()
    assert (logging.root.handlers, logging.root.level) == before
