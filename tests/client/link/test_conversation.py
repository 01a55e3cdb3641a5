"""Asking in a conversation: gating, deadlines, cancelling, rounds of input, and what a misbehaving server cannot do."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from ferrule import Client
from ferrule.errors import (
    Cancelled,
    CapabilityNotSupported,
    ConnectionTimedOut,
    Declined,
    InvalidAnswer,
    PeerError,
    TimedOut,
    TooManyRounds,
)

TEXT = {"content": [{"type": "text", "text": "done"}]}
FORM = {"method": "elicitation/create", "params": {"message": "Name?", "requestedSchema": {"type": "object"}}}

URL = {"method": "elicitation/create", "params": {"message": "Go", "mode": "url", "url": "https://x.example"}}


def now() -> float:
    return asyncio.get_running_loop().time()


def complete(result):
    return {"resultType": "complete", **result}


async def calling(client, server, name="slow", **options):
    """Start a tool call and wait until the server has it; gives the task and the request."""
    count = len(server.sent("tools/call"))
    task = asyncio.create_task(client.call_tool(name, **options))
    return task, await server.heard("tools/call", count + 1)


# What the server never offered

GATED = {
    "tools/list": ("tools", lambda client: client.list_tools()),
    "tools/call": ("tools", lambda client: client.call_tool("x")),
    "resources/list": ("resources", lambda client: client.list_resources()),
    "resources/templates/list": ("resources", lambda client: client.list_resource_templates()),
    "resources/read": ("resources", lambda client: client.read_resource("x://y")),
    "subscribing": ("resources.subscribe", lambda client: client.subscribe_resource("x://y")),
    "prompts/list": ("prompts", lambda client: client.list_prompts()),
    "prompts/get": ("prompts", lambda client: client.get_prompt("x")),
    "completion/complete": ("completions", lambda client: client.complete("x", {"name": "a", "value": ""})),
    "the log level": ("logging", lambda client: client.set_log_level("info")),
    "changes of tools": ("tools.list_changed", lambda client: client.watch_lists("tools")),
    "changes of prompts": ("prompts.list_changed", lambda client: client.watch_lists("prompts")),
    "changes of resources": ("resources.list_changed", lambda client: client.watch_lists("resources")),
    "any request": ("prompts", lambda client: client.request("prompts/list")),
}


@pytest.mark.parametrize(("capability", "deed"), GATED.values(), ids=GATED)
async def test_what_the_server_did_not_declare_is_refused_without_a_byte_on_the_wire(capability, deed, era, raw):
    """CAPN-05, CAPN-08, CAPN-10, CAP-4, LIFE-7, SUBS-02"""
    flags = {"tools": {}, "resources": {}, "prompts": {}} if "." in capability else {}
    server = raw(era, capabilities=flags)
    async with Client(server, mode=era) as client:
        before = len(server.received)
        with pytest.raises(CapabilityNotSupported) as refusal:
            await deed(client)
        assert refusal.value.capability == capability
        assert len(server.received) == before


async def test_a_declaration_counts_even_when_it_is_empty(era, raw):
    """CAP-3"""
    server = raw(era, {"tools/list": {"tools": []}}, capabilities={"tools": {}})
    async with Client(server, mode=era) as client:
        assert await client.list_tools() == []


async def test_a_client_may_be_told_to_ask_all_the_same(era, raw):
    async with Client(raw(era, {"tools/list": {"tools": []}}, capabilities={}), mode=era, strict=False) as client:
        assert await client.list_tools() == []


async def test_the_oldest_revision_completes_without_a_word_for_it(raw):
    """The capability came with the next revision."""
    server = raw(version="2024-11-05", answers={"completion/complete": {"completion": {"values": ["a"]}}})
    server.answers["initialize"]["capabilities"] = {"prompts": {}}
    async with Client(server, mode="handshake") as client:
        assert (await client.complete("x", {"name": "a", "value": ""})).values == ["a"]


@pytest.mark.parametrize(
    ("wrong_era", "method"),
    [("handshake", "subscriptions/listen"), ("handshake", "server/discover"), ("stateless", "ping")]
    + [("stateless", name) for name in ("initialize", "logging/setLevel", "resources/subscribe")],
)
async def test_a_method_the_revision_does_not_have_is_refused_at_once(wrong_era, method, raw):
    """LIFE-7, PING-3"""
    server = raw(wrong_era)
    async with Client(server, mode=wrong_era) as client:
        before = len(server.received)
        with pytest.raises(CapabilityNotSupported, match=f"{method} does not exist"):
            await client.request(method)
        assert len(server.received) == before


# Deadlines


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("deed", "seconds"),
    [
        (lambda client: client.list_tools(), 5),
        (lambda client: client.read_resource("x://y"), 5),
        (lambda client: client.complete("x", {"name": "a", "value": ""}), 5),
        (lambda client: client.request("vendor/thing"), 5),
        (lambda client: client.call_tool("x"), 30),
        (lambda client: client.call_tool("x", timeout=0.5), 0.5),
        (lambda client: client.list_prompts(timeout=7), 7),
        (lambda client: client.get_prompt("x", timeout=7), 7),
        (lambda client: client.request("vendor/thing", timeout=60), 60),
    ],
)
async def test_a_request_waits_five_seconds_a_tool_thirty_or_as_told(deed, seconds, era, raw):
    """CLNT-10, COMP-01, TIME-1, SPEC-21: then it is cancelled and forgotten."""
    server = raw(era)
    async with Client(server, mode=era, probe_on_timeout=False) as client:
        with pytest.raises(TimedOut):
            await deed(client)
        assert now() == seconds
        request = server.received[-2]
        cancelled = server.received[-1]
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == request["id"]
        assert not client.pending


@pytest.mark.virtual_time
async def test_a_ping_waits_five_seconds_or_as_told(raw):
    """PING-05"""
    server = raw(answers={"ping": None})
    async with Client(server, mode="handshake") as client:
        with pytest.raises(TimedOut):
            await client.ping()
        assert now() == 5
        with pytest.raises(TimedOut):
            await client.ping(1)
        assert now() == 6


@pytest.mark.virtual_time
async def test_the_usual_times_can_be_set(era, raw):
    """CLNT-10"""
    server = raw(era)
    async with Client(server, mode=era, request_timeout=1, tool_timeout=2, probe_on_timeout=False) as client:
        with pytest.raises(TimedOut):
            await client.list_tools()
        with pytest.raises(TimedOut):
            await client.call_tool("x")
    assert now() == 3


@pytest.mark.virtual_time
async def test_a_client_may_wait_for_ever(era, raw):
    server = raw(era)
    async with Client(server, mode=era, tool_timeout=None) as client:
        task, request = await calling(client, server)
        await asyncio.sleep(100_000)
        server.answer(request, complete(TEXT))
        assert (await task).text == "done"


@pytest.mark.virtual_time
async def test_a_peer_that_still_answers_pings_is_late_not_gone(raw):
    """PING-12, ERR-4: a local failure has no code to be mistaken for a peer's."""
    server = raw()
    async with Client(server, mode="handshake") as client:
        with pytest.raises(TimedOut, match="still answers") as late:
            await client.list_tools()
        assert type(late.value) is TimedOut
        assert not hasattr(late.value, "code")
        assert not isinstance(late.value, PeerError)
        assert now() == 5
    assert [m["method"] for m in server.received[2:]] == ["tools/list", "notifications/cancelled", "ping"]


@pytest.mark.virtual_time
async def test_a_peer_that_does_not_answer_pings_is_gone(raw):
    """PING-12"""
    server = raw(answers={"ping": None})
    async with Client(server, mode="handshake", ping_timeout=2) as client:
        with pytest.raises(ConnectionTimedOut):
            await client.call_tool("x", timeout=1)
        assert now() == 3


@pytest.mark.virtual_time
async def test_an_error_answered_to_the_probe_is_a_sign_of_life(raw, refused):
    """PING-12"""
    server = raw(answers={"ping": refused(-32601, "Method not found")})
    async with Client(server, mode="handshake") as client:
        with pytest.raises(TimedOut) as late:
            await client.call_tool("x", timeout=1)
        assert type(late.value) is TimedOut


@pytest.mark.virtual_time
async def test_the_stateless_era_has_no_ping_to_probe_with(raw):
    """PING-3"""
    server = raw("stateless")
    async with Client(server, mode="stateless") as client:
        with pytest.raises(TimedOut) as late:
            await client.call_tool("x", timeout=1)
        assert type(late.value) is TimedOut
        assert now() == 1
    assert [message["method"] for message in server.received[1:]] == ["tools/call", "notifications/cancelled"]


def progress(server, request, done):
    server.tell(
        "notifications/progress", {"progressToken": request["params"]["_meta"]["progressToken"], "progress": done}
    )


@pytest.mark.virtual_time
async def test_progress_moves_the_deadline(era, raw):
    """TIME-2"""
    server = raw(era)
    async with Client(server, mode=era, tool_timeout=10) as client:
        task, request = await calling(client, server, on_progress=lambda *report: None)
        for done in range(1, 6):
            await asyncio.sleep(9)
            progress(server, request, done)
        server.answer(request, complete(TEXT))
        assert (await task).text == "done"
        assert now() == 45


@pytest.mark.virtual_time
@pytest.mark.parametrize("tool_timeout", [10, 100, None])
async def test_progress_moves_the_deadline_no_further_than_the_longest_time(tool_timeout, era, raw):
    """TIME-2"""
    server = raw(era)
    options = {"tool_timeout": tool_timeout, "max_request_time": 25, "probe_on_timeout": False}
    async with Client(server, mode=era, **options) as client:
        task, request = await calling(client, server, on_progress=lambda *report: None)
        for done in (1, 2):
            await asyncio.sleep(9)
            progress(server, request, done)
        with pytest.raises(TimedOut):
            await task
        assert now() == 25


@pytest.mark.virtual_time
async def test_progress_that_does_not_grow_moves_nothing(era, raw):
    """PROG-3"""
    server = raw(era)
    reports = []
    async with Client(server, mode=era, tool_timeout=10, probe_on_timeout=False) as client:
        task, request = await calling(client, server, on_progress=lambda *report: reports.append(report))
        for done in (3, 3, 2, float("1e-9")):
            await asyncio.sleep(2)
            progress(server, request, done)
        with pytest.raises(TimedOut):
            await task
        assert now() == 12
    assert reports == [(3, None, None)]


@pytest.mark.virtual_time
async def test_ten_thousand_late_answers_leave_nothing_behind(era, raw):
    """CORR-09"""
    server = raw(era)
    async with Client(server, mode=era, probe_on_timeout=False) as client:
        calls = [client.call_tool("x", timeout=1) for _ in range(10_000)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {TimedOut}
        assert not client.pending
        for request in server.sent("tools/call"):
            server.answer(request, complete(TEXT))
        server.answers["tools/call"] = complete(TEXT)
        assert (await client.call_tool("x")).text == "done"


# Cancelling


async def test_cancelling_the_caller_tells_the_server_once(era, raw):
    """CANC-1, CANC-01, CANC-2, CANC-5, CORR-09"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        task, request = await calling(client, server)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (notice,) = server.sent("notifications/cancelled")
        assert notice["params"]["requestId"] == request["id"]
        assert notice["params"]["reason"]
        assert not client.pending
        server.answer(request, complete(TEXT))
        server.answers["tools/call"] = complete(TEXT)
        assert (await client.call_tool("x")).text == "done"
    assert len(server.sent("notifications/cancelled")) == 1


async def test_a_call_can_be_cancelled_by_its_id(era, raw):
    """CANC-02: its caller gets the reason, and is not itself cancelled."""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        task, request = await calling(client, server)
        await client.cancel(request["id"], "changed my mind")
        with pytest.raises(Cancelled, match="changed my mind"):
            await task
        (notice,) = server.sent("notifications/cancelled")
        assert notice["params"] == {"requestId": request["id"], "reason": "changed my mind"}
        await client.cancel(request["id"])
        await client.cancel("never")
    assert len(server.sent("notifications/cancelled")) == 1


async def test_a_server_that_gives_up_is_believed(era, raw):
    """CANC-02, CANC-03"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        task, request = await calling(client, server)
        server.tell("notifications/cancelled", {"requestId": request["id"], "reason": "timeout"})
        with pytest.raises(Cancelled, match="timeout"):
            await task
        assert not client.pending


@pytest.mark.parametrize("params", [{"requestId": 999}, {"requestId": None}, {}, {"requestId": [1]}, {"reason": "x"}])
async def test_a_cancellation_that_makes_no_sense_does_no_harm(params, era, raw):
    """CANC-3"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        task, request = await calling(client, server)
        server.tell("notifications/cancelled", params)
        server.answer(request, complete(TEXT))
        assert (await task).text == "done"
    assert not server.replies()


# Answers


async def test_a_thousand_calls_answered_in_any_order_each_get_their_own(era, raw):
    """CORR-03, CORR-11"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        calls = [asyncio.create_task(client.call_tool(f"t{n}")) for n in range(1000)]
        await server.heard("tools/call", 1000)
        assert len(client.pending) == 1000
        requests = server.sent("tools/call")
        random.Random(7).shuffle(requests)
        for request in requests:
            server.answer(request, complete({"content": [{"type": "text", "text": request["params"]["name"]}]}))
        assert [(await call).text for call in calls] == [f"t{n}" for n in range(1000)]
        assert len({request["id"] for request in requests}) == 1000
        assert not client.pending


STRAY = {
    "a response to nobody": {"jsonrpc": "2.0", "id": 999, "result": {}},
    "an error to nobody": {"jsonrpc": "2.0", "id": 999, "error": {"code": -1, "message": "x"}},
    "an error without id": {"jsonrpc": "2.0", "error": {"code": -32700, "message": "x"}},
    "an error with a null id": {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "x"}},
    "our id as text": {"jsonrpc": "2.0", "id": "2", "result": {"content": []}},
}


@pytest.mark.parametrize("stray", STRAY.values(), ids=STRAY)
async def test_a_response_to_nobody_is_ignored_with_a_warning(stray, era, raw, caplog):
    """CORR-04, RPC-5, RPC-8"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        task, request = await calling(client, server)
        with caplog.at_level(logging.WARNING, "ferrule"):
            server.say(stray)
        assert "unknown request" in caplog.text
        server.answer(request, complete(TEXT))
        assert (await task).text == "done"


async def test_a_second_answer_is_ignored(era, raw):
    """CORR-09"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        task, request = await calling(client, server)
        server.answer(request, complete(TEXT))
        server.answer(request, complete({"content": []}))
        assert (await task).text == "done"


GARBAGE = [
    b"Starting up...",
    b"",
    b"{",
    b"null",
    b"42",
    b'"text"',
    b"{}",
    b"[]",
    b'{"jsonrpc":"1.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":1.5,"result":{}}',
    b'{"jsonrpc":"2.0","method":7}',
    b'{"jsonrpc":"2.0","result":{}}',
    b'{"jsonrpc":"2.0","id":77,"result":{},"error":{"code":1,"message":"both"}}',
    b"\xff\xfe",
    b"\x00\x00",
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":[]}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":true}}',
    b'{"jsonrpc":"2.0","method":"notifications/message","params":7}',
    b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":7}}',
    b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}',
    b"[" * 3000,
]


async def test_garbage_is_skipped_and_the_next_answer_still_arrives(era, raw, caplog):
    """JRPC-21: it is logged, and the server gets no answer to it."""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        client.on_notification("notifications/message", print)
        task, request = await calling(client, server)
        for line in GARBAGE:
            server.say(line)
        server.answer(request, complete(TEXT))
        assert (await task).text == "done"
    assert not server.replies()
    assert "cannot be read" in caplog.text


async def test_a_malformed_answer_fails_its_own_caller_only(era, raw):
    """JRPC-04"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        first, one = await calling(client, server)
        second, two = await calling(client, server)
        server.say({"jsonrpc": "2.0", "id": one["id"], "result": {}, "error": {"code": 1, "message": "both"}})
        with pytest.raises(InvalidAnswer, match="cannot be read"):
            await first
        server.answer(two, complete(TEXT))
        assert (await second).text == "done"


@pytest.mark.parametrize(
    "value",
    [b'{"a":NaN}', rb'{"a":"\ud83d"}', b'{"a":"\xff"}', b'{"a":' * 3000 + b"1" + b"}" * 3000],
    ids=["NaN", "half a surrogate pair", "no UTF-8", "nested too deeply"],
)
async def test_an_answer_with_an_impossible_value_fails_its_caller_at_once(era, raw, value):
    """FRM-03, FRM-05, FRM-07: a server that writes NaN, as Python's json does, is not waited for until the time-out."""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era, tool_timeout=None) as client:
        task, request = await calling(client, server)
        server.say(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":%b}}' % (request["id"], value))
        with pytest.raises(InvalidAnswer, match=r"the answer to tools/call cannot be read: Parse error"):
            await asyncio.wait_for(task, 10)
    assert not server.replies()


async def test_an_answer_over_the_limit_fails_its_caller_at_once(era, raw):
    """SIZE-06"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era, tool_timeout=None) as client:
        task, request = await calling(client, server)
        link = client._keeper.conversation.link
        link.frame_refused(16 * 2**20, link.channel, b'{"jsonrpc":"2.0","id":%d,"result":{"co' % request["id"])
        with pytest.raises(InvalidAnswer, match="Message too large: the limit is 16777216 bytes"):
            await asyncio.wait_for(task, 10)
    assert not server.replies()


async def test_a_server_of_the_stateless_era_may_ask_nothing(raw, caplog):
    """RPC-14, STDIO-6: its requests get no response."""
    server = raw("stateless", {"tools/list": complete({"tools": []})})
    async with Client(server, mode="stateless", sampling=str) as client:
        server.ask("ping")
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, "q2")
        server.ask("vendor/thing", None, "q3")
        await client.list_tools()
    assert not server.replies()


async def test_a_message_over_the_limit_is_skipped_like_any_other_garbage(era, raw):
    server = raw(era, {"tools/list": {"tools": []}})
    async with Client(server, mode=era) as client:
        link = client._keeper.conversation.link
        link.frame_refused(16 * 2**20, link.channel)
        await client.list_tools()
    assert not server.replies()


async def test_an_array_where_there_are_none_is_skipped_like_any_other_garbage(era, raw):
    server = raw(era, {"tools/list": {"tools": []}})
    async with Client(server, mode=era) as client:
        server.say([{"jsonrpc": "2.0", "id": 99, "result": {}}])
        await client.list_tools()
    assert not server.replies()


# Rounds of input


def asking(state="s", **requests):
    result = {"resultType": "input_required", "inputRequests": requests}
    return result if state is None else {**result, "requestState": state}


def rounds(*answers):
    """Answer the first call with the first of these, the second with the second, and so on."""
    left = iter(answers)
    return lambda request: next(left)


ASKED = {
    "tools/call": (lambda client: client.call_tool("x", {"a": 1}), TEXT),
    "prompts/get": (lambda client: client.get_prompt("x", {"a": "1"}), {"messages": []}),
    "resources/read": (lambda client: client.read_resource("x://y"), {"contents": []}),
}


@pytest.mark.parametrize("method", ASKED)
async def test_a_round_answers_every_question_and_asks_again_under_a_new_id(method, raw):
    """MRTR-4, MRTR-5, spec:TOOL-21"""
    deed, result = ASKED[method]
    questions = {
        "who": FORM,
        "model": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}},
        "where": {"method": "roots/list"},
    }
    server = raw("stateless", {method: rounds(asking(**questions), complete(result))})
    answers = {"elicitation": lambda p: {"name": "Ada"}, "sampling": lambda p: "Hi", "roots": ["file:///work"]}
    async with Client(server, mode="stateless", **answers) as client:
        await deed(client)
    first, second = server.sent(method)
    assert second["id"] != first["id"]
    again = second["params"]
    assert again.pop("requestState") == "s"
    assert again.pop("inputResponses") == {
        "who": {"action": "accept", "content": {"name": "Ada"}},
        "model": {
            "role": "assistant",
            "content": {"type": "text", "text": "Hi"},
            "model": "unknown",
            "stopReason": "endTurn",
        },
        "where": {"roots": [{"uri": "file:///work"}]},
    }
    assert again == first["params"]


@pytest.mark.parametrize("state", ["", " ", "{}", "null", 'quo"te\\', "\u0000\n\u2028", "ünï😀", "x" * 100_000])
async def test_the_state_comes_back_as_it_was_sent(state, raw):
    """MRTR-5"""
    server = raw("stateless", {"tools/call": rounds(asking(state, who=FORM), complete(TEXT))})
    async with Client(server, mode="stateless", elicitation=lambda p: {}) as client:
        await client.call_tool("x")
    assert server.sent("tools/call")[1]["params"]["requestState"] == state


async def test_no_state_is_sent_where_none_came(raw):
    """MRTR-5: the state of one round is not that of the next."""
    server = raw("stateless")
    server.answers["tools/call"] = rounds(asking("one", who=FORM), asking(None, who=FORM), complete(TEXT))
    async with Client(server, mode="stateless", elicitation=lambda p: {}) as client:
        await client.call_tool("x")
        server.answers["tools/call"] = complete(TEXT)
        await client.call_tool("x")
    states = [request["params"].get("requestState", "none") for request in server.sent("tools/call")]
    assert states == ["none", "one", "none", "none"]
    assert "inputResponses" not in server.sent("tools/call")[3]["params"]


async def test_the_number_of_rounds_is_limited(raw):
    """MRTR-10"""
    server = raw("stateless", {"tools/call": asking(who=FORM)})
    async with Client(server, mode="stateless", elicitation=lambda p: {}, max_rounds=3) as client:
        with pytest.raises(TooManyRounds, match="more than 3 times"):
            await client.call_tool("x")
    assert len(server.sent("tools/call")) == 4


async def test_the_last_round_allowed_may_be_the_one_that_answers(raw):
    server = raw("stateless", {"tools/call": rounds(*[asking(who=FORM)] * 3, complete(TEXT))})
    async with Client(server, mode="stateless", elicitation=lambda p: {}, max_rounds=3) as client:
        assert (await client.call_tool("x")).text == "done"


async def test_the_rounds_of_parallel_calls_do_not_mix(raw):
    """MRTR-5"""

    def answer(request):
        params = request["params"]
        if "inputResponses" not in params:
            form = {"method": "elicitation/create", "params": {**FORM["params"], "message": params["name"]}}
            return asking(f"state of {params['name']}", who=form)
        name = params["inputResponses"]["who"]["content"]["name"]
        return complete({"content": [{"type": "text", "text": f"{name} {params['requestState']}"}]})

    async def reply(params):
        await asyncio.sleep(random.random() / 100)
        return {"name": params.message}

    server = raw("stateless", {"tools/call": answer})
    async with Client(server, mode="stateless", elicitation=reply) as client:
        results = await asyncio.gather(*(client.call_tool(f"t{n}") for n in range(50)))
    assert [result.text for result in results] == [f"t{n} state of t{n}" for n in range(50)]


@pytest.mark.virtual_time
async def test_a_server_that_sheds_load_is_asked_again_a_little_later(raw):
    """MRTR-4: with no question there is nothing to answer."""
    shed = {"resultType": "input_required", "requestState": "later"}
    server = raw("stateless", {"tools/call": rounds(shed, shed, complete(TEXT))})
    async with Client(server, mode="stateless") as client:
        assert (await client.call_tool("x")).text == "done"
        assert 0 < now() < 1
    for request in server.sent("tools/call")[1:]:
        assert request["params"]["requestState"] == "later"
        assert "inputResponses" not in request["params"]


ILLEGAL_ROUNDS = {
    "no question and no state": {"resultType": "input_required"},
    "questions of another shape": {"resultType": "input_required", "inputRequests": [FORM]},
    "a question without a method": asking(who={"params": {}}),
    "a state that is no text": {"resultType": "input_required", "requestState": 7},
    "a question this client never declared": asking(who={"method": "roots/list"}),
    "a question nobody knows": asking(who={"method": "vendor/question"}),
    "a mode this client never declared": asking(
        who={"method": "elicitation/create", "params": {"message": "Go", "mode": "url", "url": "x"}}
    ),
    "a malformed question": asking(who={"method": "elicitation/create", "params": {}}),
}


@pytest.mark.parametrize("answer", ILLEGAL_ROUNDS.values(), ids=ILLEGAL_ROUNDS)
async def test_a_request_for_input_that_cannot_be_met_ends_the_call_in_one_sentence(answer, raw):
    """MRTR-10"""
    server = raw("stateless", {"tools/call": answer})
    async with Client(server, mode="stateless", elicitation=lambda p: {}) as client:
        with pytest.raises(InvalidAnswer) as refusal:
            await client.call_tool("x")
        assert "\n" not in str(refusal.value)
    assert len(server.sent("tools/call")) == 1
    assert not server.replies()


async def test_a_user_who_refuses_ends_the_call_and_the_server_is_not_asked_again(raw):
    """MRTR-10, SAMP-10"""
    model = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
    server = raw("stateless", {"tools/call": asking(model=model)})
    async with Client(server, mode="stateless", sampling=lambda p: None) as client:
        with pytest.raises(Declined):
            await client.call_tool("x")
    assert len(server.sent("tools/call")) == 1
    assert not server.replies()


async def test_a_question_that_fails_ends_its_round_and_the_other_questions(raw):
    cancelled = []

    async def reply(params):
        if params.message == "fail":
            raise ZeroDivisionError("my own mistake")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(params.message)
            raise

    def form(message):
        return {"method": "elicitation/create", "params": {**FORM["params"], "message": message}}

    server = raw("stateless", {"tools/call": asking(one=form("wait"), two=form("fail"))})
    async with Client(server, mode="stateless", elicitation=reply) as client:
        with pytest.raises(ZeroDivisionError, match="my own mistake"):
            await client.call_tool("x")
        await asyncio.sleep(0)
    assert cancelled == ["wait"]


async def test_cancelling_in_the_middle_of_a_question_asks_no_more(raw):
    server = raw("stateless", {"tools/call": asking(who=FORM)})
    asked = asyncio.Event()

    async def reply(params):
        asked.set()
        await asyncio.sleep(60)

    async with Client(server, mode="stateless", elicitation=reply) as client:
        task = asyncio.create_task(client.call_tool("x"))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(server.sent("tools/call")) == 1
    assert not server.sent("notifications/cancelled")


async def test_cancelling_a_later_round_names_that_round(raw):
    server = raw("stateless", {"tools/call": rounds(asking(who=FORM), None)})
    async with Client(server, mode="stateless", elicitation=lambda p: {}) as client:
        task = asyncio.create_task(client.call_tool("x"))
        second = await server.heard("tools/call", 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert server.sent("notifications/cancelled")[0]["params"]["requestId"] == second["id"]


@pytest.mark.parametrize("kind", ["task", "partial", "", "COMPLETE"])
async def test_a_kind_of_result_nobody_declared_is_no_answer(kind, raw):
    """RPC-17"""
    answers = {
        "tools/call": {**TEXT, "resultType": kind},
        "tools/list": {"tools": [], "resultType": kind},
        "vendor/thing": {"resultType": kind},
    }
    async with Client(raw("stateless", answers), mode="stateless") as client:
        for deed in (client.call_tool("x"), client.list_tools(), client.request("vendor/thing")):
            with pytest.raises(InvalidAnswer, match="unknown kind"):
                await deed


async def test_a_result_without_a_kind_is_complete(raw):
    """RPC-17"""
    async with Client(raw("stateless", {"tools/call": TEXT}), mode="stateless") as client:
        assert (await client.call_tool("x")).text == "done"


async def test_a_list_may_not_ask_back(raw):
    async with Client(raw("stateless", {"tools/list": asking(who=FORM)}), mode="stateless") as client:
        with pytest.raises(InvalidAnswer):
            await client.list_tools()


async def test_the_handshake_era_knows_no_kinds_of_results(raw):
    """RPC-15"""
    async with Client(raw(answers={"tools/call": {**TEXT, "resultType": "odd"}}), mode="handshake") as client:
        assert (await client.call_tool("x")).text == "done"


async def test_a_request_in_the_same_read_as_the_answer_to_discover_is_not_answered(raw):
    """RPC-14, STDIO-6: no response either before our code has seen the server's answer."""
    server = raw("stateless")

    def answer_and_ask(request):
        server.answer(request, server.discover_result())
        server.ask("ping", None, "early")
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, "early too")

    server.answers["server/discover"] = answer_and_ask
    server.answers["tools/list"] = complete({"tools": []})
    async with Client(server, sampling=str) as client:
        assert client.protocol_version == "2026-07-28"
        await client.list_tools()
    assert not server.replies()


async def test_a_server_of_the_handshake_era_is_answered_after_the_probe(raw):
    """What is not answered while the era is open is answered once it is settled."""
    server = raw("handshake")
    async with Client(server):
        server.ask("ping", None, "later")
        assert await server.until(server.replies) == [{"jsonrpc": "2.0", "id": "later", "result": {}}]
