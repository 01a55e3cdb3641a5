"""What a client answers: its model, its user and its folders, in both eras by the same functions."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from ferrule import CallFailed, Client, Context, Declined, PeerError, Server, ToolError
from ferrule.client.features.answers import check_tool_use, root
from ferrule.client.features.root_access import FRESH
from ferrule.errors import InvalidParams, SetupError
from ferrule.schema.content import ImageContent, TextContent
from ferrule.schema.elicitation import ElicitResult
from ferrule.schema.roots import Root
from ferrule.schema.sampling import CreateMessageResult, SamplingMessage
from ferrule.testing import Recorder, pair
from ferrule.transports.memory import Memory

PREFERENCES = {"hints": [{"name": "small"}], "speedPriority": 0.9}


class Seat(msgspec.Struct):
    row: int
    aisle: bool = True


@dataclass
class PlainSeat:
    row: int
    aisle: bool


@pytest.fixture
def asking() -> Server:
    """A server whose tools ask."""
    app = Server("asking")

    @app.tool
    async def book(ctx: Context) -> str:
        answer = await ctx.elicit("Which seat?", Seat)
        return f"{answer.action} {answer.data}"

    @app.tool
    async def visit(ctx: Context) -> str:
        answer = await ctx.elicit("Please log in", url="https://login.example/xn--80ak6aa92e?next=1")
        return f"{answer.action} {answer.data}"

    @app.tool
    async def think(ctx: Context) -> dict[str, str | None]:
        answer = await ctx.sample("Say hi", max_tokens=7, system_prompt="Be brief", model_preferences=PREFERENCES)
        return {"text": answer.text, "model": answer.model, "stop": answer.stop_reason, "role": answer.role}

    @app.tool
    async def where(ctx: Context) -> list[str]:
        return [folder.uri for folder in await ctx.list_roots()]

    return app


# Elicitation

SEATS = {
    "the values by name": {"row": 7},
    "all of them": {"row": 7, "aisle": True},
    "a result": ElicitResult(action="accept", content={"row": 7}),
    "a result as a dict": {"action": "accept", "content": {"row": 7}},
    "a struct": Seat(7),
    "a dataclass": PlainSeat(7, True),
}


@pytest.mark.parametrize("value", SEATS.values(), ids=SEATS)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_form_may_be_filled_in_many_ways_and_its_defaults_fill_in_themselves(value, kind, era, asking):
    """ELIC-6, ELIC-7, SPEC-12"""

    async def reply(params):
        return value

    handler = reply if kind == "async" else lambda params: value
    async with pair(asking, era, elicitation=handler) as client:
        assert (await client.call_tool("book")).text == "accept Seat(row=7, aisle=True)"


def refuse(params):
    raise Declined("decline")


def leave(params):
    raise Declined("cancel")


REFUSALS = {
    "the word": (lambda p: "decline", "decline"),
    "another word": (lambda p: "cancel", "cancel"),
    "no": (lambda p: False, "decline"),
    "nothing": (lambda p: None, "decline"),
    "a result": (lambda p: ElicitResult(action="cancel", content={"row": 1}), "cancel"),
    "a dict": (lambda p: {"action": "decline", "content": {"row": 1}}, "decline"),
    "an exception": (refuse, "decline"),
    "another exception": (leave, "cancel"),
}


@pytest.mark.parametrize(("handler", "action"), REFUSALS.values(), ids=REFUSALS)
async def test_a_user_may_refuse_in_many_ways(handler, action, era, asking):
    """ELIC-7: then there is no content."""
    async with pair(asking, era, elicitation=handler) as client:
        assert (await client.call_tool("book")).text == f"{action} None"


@pytest.mark.parametrize("yes", [True, "accept"])
async def test_a_form_without_fields_needs_only_a_yes(yes, raw):
    server = raw()
    async with Client(server, mode="handshake", elicitation=lambda p: yes):
        server.ask("elicitation/create", {"message": "Go on?", "requestedSchema": {"type": "object", "properties": {}}})
        assert (await server.replied())["result"] == {"action": "accept", "content": {}}


async def test_an_answer_that_does_not_fit_the_form_is_not_sent(raw):
    """ELIC-6"""
    server = raw()
    schema = {"type": "object", "properties": {"row": {"type": "integer", "minimum": 1}}, "required": ["row"]}
    for number, content in enumerate([{"row": 0}, {"row": "seven"}, {}, {"row": 1.5}]):
        async with Client(server, mode="handshake", elicitation=lambda p, content=content: content):
            server.ask("elicitation/create", {"message": "Row?", "requestedSchema": schema}, number)
            error = (await server.replied(number))["error"]
            assert error["code"] == -32602
            assert "does not fit the requested schema" in error["message"]


FIELDS = {
    "text": ({"type": "string", "maxLength": 3, "default": "abc"}, "abc"),
    "number": ({"type": "number", "default": 0.5}, 0.5),
    "yes or no": ({"type": "boolean", "default": False}, False),
    "choice": ({"type": "string", "enum": ["a", "b"], "default": "b"}, "b"),
    "named choice of old": ({"type": "string", "enum": ["a"], "enumNames": ["A"], "default": "a"}, "a"),
    "titled choice": ({"type": "string", "oneOf": [{"const": "a", "title": "A"}], "default": "a"}, "a"),
    "choices": ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a", "b"]}, ["a", "b"]),
    "titled choices": ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "default": ["a"]}, ["a"]),
}


@pytest.mark.parametrize(("field", "default"), FIELDS.values(), ids=FIELDS)
async def test_the_defaults_of_every_kind_of_field_are_filled_in(field, default, raw):
    """ELIC-5, ELIC-6"""
    server = raw()
    schema = {"type": "object", "properties": {"field": field}, "required": ["field"]}
    async with Client(server, mode="handshake", elicitation=lambda p: {}):
        server.ask("elicitation/create", {"message": "?", "requestedSchema": schema})
        assert (await server.replied())["result"] == {"action": "accept", "content": {"field": default}}


async def test_a_request_without_a_mode_is_a_form(raw):
    """ELIC-3"""
    seen = []
    server = raw()

    async def form(params):
        seen.append(params)
        return {}

    async with Client(server, mode="handshake", elicitation=form, url_elicitation=lambda p: True):
        server.ask("elicitation/create", {"message": "Name?", "requestedSchema": {"type": "object"}})
        await server.replied()
    assert seen[0].message == "Name?"
    assert seen[0].requested_schema == {"type": "object"}


async def test_a_url_is_shown_whole_with_the_server_that_asks_and_nothing_is_opened(era, asking):
    """ELIC-7, ELIC-12, SPEC-12: consent has no content."""
    shown = []

    async def consent(params):
        shown.append((client.server_info.name, params.message, params.url))
        return {"action": "accept", "content": {"secret": 1}}

    async with pair(asking, era, url_elicitation=consent) as client:
        assert (await client.call_tool("visit")).text == "accept None"
    assert shown == [("asking", "Please log in", "https://login.example/xn--80ak6aa92e?next=1")]


@pytest.mark.parametrize(
    ("declared", "mode"), [("elicitation", "url"), ("url_elicitation", "form"), ("url_elicitation", None)]
)
async def test_a_mode_that_was_not_declared_is_refused(declared, mode, raw):
    """ELIC-2"""
    server = raw()
    question = {"message": "x", "url": "https://x.example", "elicitationId": "1", "requestedSchema": {"type": "object"}}
    async with Client(server, mode="handshake", **{declared: lambda p: True}):
        server.ask("elicitation/create", question if mode is None else {**question, "mode": mode})
        assert (await server.replied())["error"]["code"] == -32602


async def test_the_end_of_a_visit_is_told_and_an_unknown_one_is_ignored(raw):
    """ELIC-9"""
    server = raw(answers={"tools/list": {"tools": []}})
    ended = []
    async with Client(server, mode="handshake", url_elicitation=lambda p: True) as client:
        server.tell("notifications/elicitation/complete", {"elicitationId": "unknown"})
        client.on_notification("notifications/elicitation/complete", lambda p: ended.append(p["elicitationId"]))
        server.tell("notifications/elicitation/complete", {"elicitationId": "7"})
        await client.list_tools()
        await asyncio.sleep(0)
    assert ended == ["7"]
    assert not server.replies()


# Sampling

MESSAGES = {
    "text": ("Hi", "unknown", "endTurn"),
    "a block": (TextContent("Hi"), "unknown", "endTurn"),
    "blocks": ([TextContent("Hi"), ImageContent("aGk=", "image/png")], "unknown", "endTurn"),
    "a block as a dict": ({"type": "text", "text": "Hi"}, "unknown", "endTurn"),
    "members": ({"content": {"type": "text", "text": "Hi"}, "model": "m1", "stopReason": "odd"}, "m1", "odd"),
    "members with text": ({"content": "Hi", "model": "m1"}, "m1", None),
    "a result": (
        CreateMessageResult(role="assistant", content=TextContent("Hi"), model="m1", stop_reason="maxTokens"),
        "m1",
        "maxTokens",
    ),
}


@pytest.mark.parametrize(("value", "model", "stop"), MESSAGES.values(), ids=MESSAGES)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_model_may_answer_in_many_ways(value, model, stop, kind, era, asking):
    """SAMP-02, SAMP-3, SAMP-4, SPEC-13"""
    asked = []

    async def sample(params):
        asked.append(params)
        return value

    def sample_in_thread(params):
        asked.append(params)
        return value

    async with pair(asking, era, sampling=sample if kind == "async" else sample_in_thread) as client:
        said = (await client.call_tool("think")).structured_content
        assert said == {"text": "Hi", "model": model, "stop": stop, "role": "assistant"}
    (params,) = asked
    assert params.messages[0].content.text == "Say hi"
    assert (params.max_tokens, params.system_prompt) == (7, "Be brief")
    assert params.model_preferences.hints[0].name == "small"
    assert params.model_preferences.speed_priority == 0.9


async def test_a_user_who_refuses_to_sample_is_error_minus_one(raw):
    """ERR-5, SAMP-10"""
    server = raw()
    for number, handler in enumerate([lambda p: None, lambda p: False, refuse]):
        async with Client(server, mode="handshake", sampling=handler):
            server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, number)
            error = (await server.replied(number))["error"]
            assert (error["code"], "reject" in error["message"]) == (-1, True)


async def test_tools_are_for_models_that_were_declared_with_them(raw):
    """SAMP-5"""
    server = raw()
    tool = {"name": "t", "inputSchema": {"type": "object"}}
    plain = {"messages": [], "maxTokens": 1}
    async with Client(server, mode="handshake", sampling=lambda p: "Hi"):
        for number, extra in enumerate([{"tools": [tool]}, {"toolChoice": {"mode": "auto"}}, {"tools": []}]):
            server.ask("sampling/createMessage", {**plain, **extra}, number)
            assert (await server.replied(number))["error"]["code"] == -32602
    async with Client(server, mode="handshake", sampling=lambda p: p.tools[0].name, sampling_tools=True):
        server.ask("sampling/createMessage", {**plain, "tools": [tool], "toolChoice": {"mode": "required"}}, "q2")
        assert (await server.replied("q2"))["result"]["content"]["text"] == "t"


USE = {"type": "tool_use", "id": "u1", "name": "t", "input": {}}
OTHER_USE = {**USE, "id": "u2"}
RESULT = {"type": "tool_result", "toolUseId": "u1", "content": []}
OTHER_RESULT = {**RESULT, "toolUseId": "u2"}
WORDS = {"type": "text", "text": "hm"}


def talk(*turns):
    return msgspec.convert([{"role": role, "content": content} for role, content in turns], list[SamplingMessage])


GOOD_TALK = {
    "no tools": talk(("user", WORDS), ("assistant", [WORDS, WORDS])),
    "one use": talk(("user", WORDS), ("assistant", USE), ("user", RESULT)),
    "two uses": talk(("assistant", [WORDS, USE, OTHER_USE]), ("user", [OTHER_RESULT, RESULT])),
    "use after use": talk(("assistant", USE), ("user", [RESULT]), ("assistant", OTHER_USE), ("user", OTHER_RESULT)),
}

BAD_TALK = {
    "a result beside words": talk(("assistant", USE), ("user", [RESULT, WORDS])),
    "a result by the model": talk(("assistant", USE), ("assistant", RESULT)),
    "words before the result": talk(("assistant", USE), ("user", WORDS), ("user", RESULT)),
    "one result of two": talk(("assistant", [USE, OTHER_USE]), ("user", RESULT)),
    "a result of nothing": talk(("user", RESULT)),
    "another's result": talk(("assistant", USE), ("user", OTHER_RESULT)),
    "no result at all": talk(("user", WORDS), ("assistant", USE)),
}


@pytest.mark.parametrize("messages", GOOD_TALK.values(), ids=GOOD_TALK)
def test_a_talk_in_which_every_use_is_answered_at_once_is_fine(messages):
    """SAMP-6"""
    check_tool_use(messages)


@pytest.mark.parametrize("messages", BAD_TALK.values(), ids=BAD_TALK)
def test_a_talk_in_which_uses_and_results_do_not_match_is_refused(messages):
    """SAMP-6"""
    with pytest.raises(InvalidParams):
        check_tool_use(messages)


async def test_a_talk_that_does_not_match_is_refused_on_the_wire(raw):
    """SAMP-6"""
    server = raw()
    async with Client(server, mode="handshake", sampling=lambda p: "Hi", sampling_tools=True):
        messages = [{"role": "user", "content": [RESULT]}]
        server.ask("sampling/createMessage", {"messages": messages, "maxTokens": 1})
        assert (await server.replied())["error"]["code"] == -32602


@pytest.mark.parametrize("value", [7, {"content": 7}, [7], {"type": "moon"}])
async def test_a_model_that_gives_no_message_is_our_own_failure(value, raw, caplog):
    server = raw()
    async with Client(server, mode="handshake", sampling=lambda p: value):
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1})
        assert (await server.replied())["error"]["code"] == -32603
    assert "the sampling handler gave no message" in caplog.text


# Roots


@pytest.mark.parametrize("kind", ["list", "function", "coroutine function"])
async def test_roots_may_be_a_list_or_come_from_a_function(kind, era, asking, tmp_path):
    """ROOT-2, ROOT-02, SPEC-14"""
    here = tmp_path.as_uri()
    given = [tmp_path, str(tmp_path), here, Root(uri=here, name="d"), {"uri": "file://far.example/e"}]

    async def later():
        return given

    roots = {"list": given, "function": lambda: given, "coroutine function": later}[kind]
    async with pair(asking, era, roots=roots) as client:
        assert (await client.call_tool("where")).data == [here, here, here, here, "file://far.example/e"]


def test_a_root_is_the_uri_of_a_folder():
    """ROOT-3"""
    assert root("/a b/../c") == Root(uri="file:///c")
    assert root(Path("/work")).uri == "file:///work"
    assert root("here").uri == (Path.cwd() / "here").as_uri()


LEAVING = [
    "file:///a/../b",
    "file:///a/%2e%2e/b",
    "file:///a\\..\\b",
    "file:///a%5C..%5Cb",
    "file:///a%5c%2E%2e",
    "file:///a/..%5Cb",
    "file:///c:\\a/..",
]


@pytest.mark.parametrize("given", ["https://x.example", "file://[x", Root(uri="ftp://x"), {"uri": "x"}, *LEAVING])
def test_what_is_no_folder_or_leaves_it_is_no_root(given):
    """ROOT-3"""
    with pytest.raises(SetupError, match="a root is"):
        root(given)


@pytest.mark.parametrize("kind", ["list", "function"])
async def test_a_root_that_cannot_be_read_is_left_out_and_logged_once(kind, era, asking, tmp_path, caplog):
    """ROOT-3"""
    here, gone = tmp_path / "here", tmp_path / "gone"
    here.mkdir()
    given = [here, gone, "file:///null%00byte"]
    async with pair(asking, era, roots=given if kind == "list" else lambda: given) as client:
        for _ in range(3):
            assert (await client.call_tool("where")).data == [here.as_uri()]
        logged = [record.message for record in caplog.records if "cannot be read" in record.message]
        unreadable = sorted([gone.as_uri(), "file:///null%00byte"])
        assert logged == [f"the root {uri} cannot be read and is not offered" for uri in unreadable]
        gone.mkdir()
        await asyncio.sleep(FRESH + 0.05)
        assert (await client.call_tool("where")).data == [here.as_uri(), gone.as_uri()]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
async def test_a_folder_without_permission_is_no_root(era, asking, tmp_path):
    """ROOT-3"""
    (tmp_path / "closed").mkdir(mode=0o200)
    async with pair(asking, era, roots=[tmp_path, tmp_path / "closed"]) as client:
        assert (await client.call_tool("where")).data == [tmp_path.as_uri()]


@pytest.mark.parametrize("kind", ["list", "function"])
async def test_a_server_is_told_when_a_root_it_knows_goes_or_comes_back(kind, raw, tmp_path):
    """ROOT-3, ROOT-4: nothing is told before it has asked, nor while nothing changes."""
    folder = tmp_path / "folder"
    folder.mkdir()
    roots = [folder, "file://far.example/e"]
    server = raw()

    def told():
        return len(server.sent("notifications/roots/list_changed"))

    async def listed(identity):
        server.ask("roots/list", None, identity)
        return [each["uri"] for each in (await server.replied(identity))["result"]["roots"]]

    source = roots if kind == "list" else lambda: roots
    async with Client(server, mode="handshake", roots=source, root_check_interval=0.01), asyncio.timeout(60):
        await asyncio.sleep(0.1)
        assert told() == 0
        assert await listed("q1") == [folder.as_uri(), "file://far.example/e"]
        folder.rmdir()
        while told() < 1:
            await asyncio.sleep(0.01)
        assert await listed("q2") == ["file://far.example/e"]
        folder.mkdir()
        while told() < 2:
            await asyncio.sleep(0.01)
        assert await listed("q3") == [folder.as_uri(), "file://far.example/e"]
        await asyncio.sleep(0.1)
        assert told() == 2


@pytest.mark.parametrize("interval", [0, -1.0, math.nan])
def test_an_interval_that_is_none_is_refused(interval, asking):
    with pytest.raises(SetupError, match="root_check_interval must be more than 0"):
        Client(asking, root_check_interval=interval)


async def test_no_root_is_looked_at_again_without_an_interval_or_where_nobody_could_be_told(era, asking, tmp_path):
    """ROOT-4"""
    (tmp_path / "folder").mkdir()
    interval = None if era == "handshake" else 0.001
    async with pair(asking, era, roots=[tmp_path / "folder"], root_check_interval=interval) as client:
        assert (await client.call_tool("where")).data == [(tmp_path / "folder").as_uri()]
        assert not any("_watch_roots" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def test_roots_from_a_function_are_changed_there(asking):
    client = pair(asking, roots=list)
    with pytest.raises(SetupError, match="come from a function"):
        await client.add_root("/work")


async def test_a_function_for_roots_that_fails_is_our_own_failure(raw):
    """ROOT-5"""

    def broken():
        raise OSError("disk gone")

    server = raw()
    async with Client(server, mode="handshake", roots=broken):
        server.ask("roots/list")
        assert (await server.replied())["error"]["code"] == -32603


# What a client cannot answer

QUESTIONS = {
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
    "elicitation/create": {"message": "x", "requestedSchema": {"type": "object"}},
    "roots/list": None,
    "vendor/thing": None,
    "tools/list": None,
}


@pytest.mark.parametrize("method", QUESTIONS)
async def test_a_question_of_no_declared_kind_is_an_unknown_method(method, raw):
    """ROOT-5, RPC-20, SAMP-04"""
    server = raw()
    async with Client(server, mode="handshake"):
        server.ask(method, QUESTIONS[method])
        assert (await server.replied())["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sampling/createMessage", {}),
        ("sampling/createMessage", {"messages": "x", "maxTokens": 1}),
        ("elicitation/create", {}),
        ("elicitation/create", {"message": "x", "mode": "telepathy"}),
        (
            "elicitation/create",
            {"message": "x", "requestedSchema": {"type": "object", "properties": {"a": {"type": 7}}}},
        ),
    ],
)
async def test_a_malformed_question_is_refused(method, params, raw):
    server = raw()
    async with Client(server, mode="handshake", sampling=lambda p: "x", elicitation=lambda p: {}):
        server.ask(method, params)
        assert (await server.replied())["error"]["code"] == -32602


async def test_the_client_answers_pings_by_itself(raw):
    """PING-1, PING-01, PING-02, PING-03, PING-11"""
    server = raw()
    async with Client(server, mode="handshake"):
        server.ask("ping")
        assert await server.replied() == {"jsonrpc": "2.0", "id": "q1", "result": {}}
        server.ask("ping", {"odd": [1]}, 0)
        assert await server.replied(0) == {"jsonrpc": "2.0", "id": 0, "result": {}}


# How handlers run


async def test_a_slow_handler_holds_up_nothing_else(raw):
    """SAMP-03"""
    server = raw(answers={"tools/list": {"tools": []}})
    go = asyncio.Event()

    async def think(params):
        await go.wait()
        return "Hi"

    async with Client(server, mode="handshake", sampling=think) as client:
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1})
        server.ask("ping", None, "q2")
        await server.replied("q2")
        assert await client.list_tools() == []
        go.set()
        assert (await server.replied())["result"]["content"]["text"] == "Hi"


async def test_a_plain_function_runs_in_a_thread_and_may_wait(era, asking):
    threads = []

    def reply(params):
        threads.append(threading.current_thread())
        return {"row": 1}

    async with pair(asking, era, elicitation=reply) as client:
        await client.call_tool("book")
    assert threads[0] is not threading.main_thread()


async def test_a_person_who_never_answers_holds_nobody(raw):
    """The thread that waits for them is left alone, and keeps no process alive."""
    server = raw()
    answered = threading.Event()
    threads = []

    def wait(params):
        threads.append(threading.current_thread())
        answered.wait()

    async with Client(server, mode="handshake", elicitation=wait):
        server.ask("elicitation/create", {"message": "Name?", "requestedSchema": {"type": "object"}})
        while not threads:
            await asyncio.sleep(0.001)
    assert threads[0].daemon
    answered.set()


async def test_a_handler_that_fails_is_told_by_a_number_only(raw, caplog):
    server = raw()

    def broken(params):
        raise ZeroDivisionError("secret")

    async with Client(server, mode="handshake", elicitation=broken):
        server.ask("elicitation/create", {"message": "Name?", "requestedSchema": {"type": "object"}})
        error = (await server.replied())["error"]
    assert error["code"] == -32603
    assert "secret" not in str(error)
    assert "secret" in caplog.text


async def test_a_handler_that_runs_out_of_answers_does_not_hang(raw):
    server = raw()
    nothing_left = iter(())
    async with Client(server, mode="handshake", elicitation=lambda p: next(nothing_left)):
        server.ask("elicitation/create", {"message": "Name?", "requestedSchema": {"type": "object"}})
        assert (await server.replied())["error"]["code"] == -32603


async def test_a_handler_that_gives_something_odd_is_our_own_failure(raw, caplog):
    server = raw()
    async with Client(server, mode="handshake", elicitation=lambda p: "Ada"):
        server.ask("elicitation/create", {"message": "Name?", "requestedSchema": {"type": "object"}})
        assert (await server.replied())["error"]["code"] == -32603
    assert "the elicitation handler gave 'Ada'" in caplog.text


async def test_a_question_the_server_takes_back_is_dropped(raw):
    """CANC-2: nothing is answered after the cancellation."""
    server = raw(answers={"tools/list": {"tools": []}})
    ended = []

    async def think(params):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async with Client(server, mode="handshake", elicitation=think) as client:
        server.ask("elicitation/create", {"message": "Name?", "requestedSchema": {"type": "object"}})
        await asyncio.sleep(0)
        server.tell("notifications/cancelled", {"requestId": "q1"})
        await client.list_tools()
        await asyncio.sleep(0)
        assert ended == [True]
    assert not server.replies()


@pytest.mark.parametrize("tool", ["book", "think", "where", "visit"])
async def test_what_the_client_did_not_declare_is_not_asked(tool, era, asking):
    """CAPN-05, CAPN-07, ROOT-04"""
    recorder = Recorder(Memory(asking))
    async with pair(recorder, era) as client:
        with pytest.raises(PeerError) as refusal:
            await client.call_tool(tool)
        assert refusal.value.code == (-32021 if era == "stateless" else -32600)
    assert all("method" not in message for message in recorder.sent("server"))
    assert "input_required" not in str(recorder.sent("server"))


# Only so many a second


@pytest.mark.virtual_time
@pytest.mark.parametrize(("tool", "handler"), [("think", "sampling"), ("book", "elicitation")])
async def test_a_client_answers_only_so_many_questions_of_one_kind_a_second(tool, handler, era, asking):
    """SPEC-27: sampling and elicitation, each for itself."""
    asked = []

    async def answer(params):
        asked.append(handler)
        return "hi" if handler == "sampling" else {"row": 1}

    async with pair(asking, era, question_rate=2, **{handler: answer}) as client:
        for _ in range(2):
            await client.call_tool(tool)
        with pytest.raises((ToolError, CallFailed)):
            await client.call_tool(tool)
        assert len(asked) == 2
        await asyncio.sleep(0.5)
        await client.call_tool(tool)
        assert len(asked) == 3


@pytest.mark.virtual_time
async def test_a_question_too_many_is_refused_with_when_to_come_again(raw):
    """SPEC-27"""
    server = raw()
    params = {"messages": [], "maxTokens": 1}
    async with Client(server, mode="handshake", sampling=lambda p: "hi", question_rate=0.5):
        for number in (1, 2):
            server.ask("sampling/createMessage", params, number)
        assert "result" in await server.replied(1)
        assert (await server.replied(2))["error"]["data"] == {"retryAfter": 2}


@pytest.mark.parametrize("rate", [0, -1])
def test_a_rate_nothing_could_work_with_is_refused(rate, asking):
    with pytest.raises(SetupError, match="question_rate must be more than 0"):
        Client(asking, question_rate=rate)


BAD_URLS = [
    "javascript:alert(1)",
    "file:///etc/passwd",
    "nonsense",
    "",
    "//example.com/",
    "https://",
    "https:///path",
    "https://user:secret@example.com/",
    "https://user@example.com/",
    "https://example.com/a b",
    "https://example.com\\@evil.example/",
    "https://example.com:port/",
    "https://[::1/",
    "data:text/html,x",
    "https://example.com/\n",
    "https://example.com/" + "x" * 8192,
]


@pytest.mark.parametrize("url", BAD_URLS, ids=[url[:40] for url in BAD_URLS])
async def test_a_url_that_is_none_is_never_shown_to_a_user(url, raw, caplog):
    """ELIC-8: the url must be valid: absolute, of http or https, without credentials."""
    shown = []
    server = raw("handshake")
    async with Client(server, mode="handshake", url_elicitation=shown.append):
        server.ask("elicitation/create", {"mode": "url", "message": "Go", "url": url, "elicitationId": "1"})
        (reply,) = await server.until(server.replies)
    assert reply["error"]["code"] == InvalidParams.code
    assert "Invalid params: url" in reply["error"]["message"]
    assert shown == []
    assert "it is refused" in caplog.text


@pytest.mark.parametrize("url", ["https://example.com", "http://localhost:8080/x?y=1#z", "https://[::1]:8443/"])
async def test_a_url_that_is_one_is_shown(url, raw):
    """ELIC-8"""
    shown = []
    server = raw("handshake")
    async with Client(server, mode="handshake", url_elicitation=shown.append):
        server.ask("elicitation/create", {"mode": "url", "message": "Go", "url": url, "elicitationId": "1"})
        await server.until(server.replies)
    assert [each.url for each in shown] == [url]


async def test_a_round_with_a_bad_url_fails_the_call_that_led_to_it(raw):
    """ELIC-8, in the stateless era."""
    asked = {"mode": "url", "message": "Go", "url": "javascript:alert(1)"}
    round_ = {"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create", "params": asked}}}
    server = raw("stateless", {"tools/call": round_})
    async with Client(server, mode="stateless", url_elicitation=lambda params: True) as client:
        with pytest.raises(CallFailed, match="not an absolute http or https URL"):
            await client.call_tool("t")


async def test_a_round_of_too_many_questions_is_refused(raw):
    """A server cannot make a client start a task or a thread for each of a million questions."""
    asked = {"method": "roots/list"}
    server = raw("stateless", {"tools/call": {"resultType": "input_required", "inputRequests": {}}})
    server.answers["tools/call"]["inputRequests"] = {str(n): asked for n in range(101)}
    async with Client(server, mode="stateless", roots=[]) as client:
        with pytest.raises(CallFailed, match="more than 100 questions"):
            await client.call_tool("t")


async def test_a_sampling_handler_gets_every_wish_of_the_server(era):
    """SAMP-8: the limit of tokens and the preferences reach whoever runs the model, as the server wrote them."""
    app = Server("asking")

    @app.tool
    async def think(ctx: Context) -> str:
        said = await ctx.sample(
            "Think",
            max_tokens=17,
            temperature=0.5,
            stop_sequences=["END"],
            model_preferences=PREFERENCES,
            system_prompt="Be brief",
        )
        return said.text

    seen = []

    def model(params):
        seen.append(params)
        return "thought"

    async with pair(app, era, sampling=model) as client:
        assert (await client.call_tool("think")).text == "thought"
    (params,) = seen
    assert params.max_tokens == 17
    assert params.temperature == 0.5
    assert params.stop_sequences == ["END"]
    assert params.system_prompt == "Be brief"
    assert params.model_preferences.hints[0].name == "small"
    assert params.model_preferences.choose(["large-1", "small-1"]) == "small-1"
