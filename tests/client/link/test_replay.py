"""What was in flight when the link was lost: asked again where that cannot do harm, else told."""

from __future__ import annotations

import asyncio

import pytest

from ferrule import Client, OutcomeUnknown, Reconnect
from ferrule.errors import ChildFailed, ConnectionTimedOut, LinkLost, NotConnected, TimedOut, TimedOutReconnecting
from ferrule.protocol.session import Phase

STEADY = Reconnect(jitter=0)
TOOLS = {
    "resultType": "complete",
    "tools": [
        {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
        {"name": "set", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}},
        {"name": "pay", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": False}},
        {"name": "plain", "inputSchema": {"type": "object"}},
    ],
}
ASKED = {
    "resultType": "input_required",
    "requestState": "sealed",
    "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Who?"}}},
}
DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


def once_silent(then):
    """Return an answer that stays away the first time."""
    asked = []

    def answer(request):
        asked.append(request)
        return None if len(asked) == 1 else then

    return answer


def client_of(server, era, plan=STEADY, **options):
    return Client(server, mode=era, reconnect=plan, **options)


async def lose_with(server, method, work):
    """Start a request, and lose the link once the server has it."""
    task = asyncio.create_task(work)
    await server.heard(method)
    server.die(ChildFailed("gone"))
    return task


READS = {
    "tools/list": (lambda client: client.list_tools(), TOOLS),
    "resources/read": (lambda client: client.read_resource("a://b"), {"resultType": "complete", "contents": []}),
    "prompts/get": (lambda client: client.get_prompt("p"), {"resultType": "complete", "messages": []}),
    "completion/complete": (
        lambda client: client.complete("p", {"name": "a", "value": "b"}),
        {"resultType": "complete", "completion": {"values": []}},
    ),
}


@pytest.mark.virtual_time
@pytest.mark.parametrize("method", READS)
async def test_what_only_reads_is_asked_again(method, era, raw):
    ask, result = READS[method]
    server = raw(era, {method: once_silent(result)})
    async with client_of(server, era) as client:
        await (await lose_with(server, method, ask(client)))
        assert len(server.sent(method)) == 2


@pytest.mark.virtual_time
@pytest.mark.parametrize("tool", ["look", "set"])
async def test_a_tool_that_says_it_may_be_called_twice_is_called_again(tool, era, raw):
    server = raw(era, {"tools/list": TOOLS, "tools/call": once_silent(DONE)})
    async with client_of(server, era) as client:
        await client.list_tools()
        call = await lose_with(server, "tools/call", client.call_tool(tool, {"x": 1}))
        assert (await call).text == "done"
        assert [request["params"]["arguments"] for request in server.sent("tools/call")] == [{"x": 1}, {"x": 1}]


@pytest.mark.virtual_time
@pytest.mark.parametrize("tool", ["pay", "plain", "unlisted"])
async def test_any_other_tool_is_never_called_twice(tool, era, raw):
    """RES-07, CORR-10: its caller learns at once that it may have run or not."""
    server = raw(era, {"tools/list": TOOLS, "tools/call": once_silent(DONE)})
    loop = asyncio.get_running_loop()
    async with client_of(server, era) as client:
        await client.list_tools()
        call = await lose_with(server, "tools/call", client.call_tool(tool))
        began = loop.time()
        with pytest.raises(OutcomeUnknown, match=r"was sent \(gone\); it may have run or not, and was not sent again"):
            await call
        assert loop.time() == began
        assert isinstance(call.exception(), LinkLost)
        assert (await client.call_tool(tool)).text == "done"
        assert len(server.sent("tools/call")) == 2


@pytest.mark.virtual_time
async def test_a_method_nobody_knows_is_never_asked_twice(era, raw):
    server = raw(era, {"vendor/do": once_silent({"resultType": "complete"})})
    async with client_of(server, era) as client:
        with pytest.raises(OutcomeUnknown):
            await (await lose_with(server, "vendor/do", client.request("vendor/do")))
        assert len(server.sent("vendor/do")) == 1


@pytest.mark.virtual_time
async def test_nothing_is_asked_again_where_replay_is_none(era, raw):
    server = raw(era, {"tools/list": once_silent(TOOLS)})
    async with client_of(server, era, Reconnect(replay="none")) as client:
        with pytest.raises(LinkLost, match="gone") as lost:
            await (await lose_with(server, "tools/list", client.list_tools()))
        assert not isinstance(lost.value, OutcomeUnknown)
        assert await client.list_tools()


@pytest.mark.virtual_time
async def test_what_a_server_no_longer_says_of_a_tool_does_not_count(era, raw):
    tools = [{"name": "look", "inputSchema": {"type": "object"}}]
    server = raw(era, {"tools/list": TOOLS, "tools/call": None})
    async with client_of(server, era) as client:
        await client.list_tools()
        server.answers["tools/list"] = {**TOOLS, "tools": tools}
        await client.list_tools()
        with pytest.raises(OutcomeUnknown):
            await (await lose_with(server, "tools/call", client.call_tool("look")))


@pytest.mark.virtual_time
async def test_fifty_in_flight_each_end_once(era, raw):
    """CORR-10, SESS-13: the book is empty, and ids start anew."""
    server = raw(era, {"tools/list": TOOLS, "tools/call": None})
    async with client_of(server, era) as client:
        await client.list_tools()
        names = ["look", "pay"] * 25
        calls = [asyncio.create_task(client.call_tool(name)) for name in names]
        await server.heard("tools/call", 50)
        first_ids = [request["id"] for request in server.sent("tools/call")]
        server.answers["tools/call"] = DONE
        server.die(ChildFailed("gone"))
        assert not client.pending
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results[1::2]] == [OutcomeUnknown] * 25
        assert [result.text for result in results[::2]] == ["done"] * 25
        assert min(request["id"] for request in server.sent("tools/call")[50:]) <= min(first_ids)


# Calls made while there is no link


@pytest.mark.virtual_time
async def test_a_call_made_meanwhile_waits_for_the_link(era, raw):
    """TCPT-22: even one that could do harm, since it was not sent."""
    server = raw(era, {"tools/call": DONE, "vendor/do": {"resultType": "complete"}})
    async with client_of(server, era) as client:
        server.die(ChildFailed("gone"))
        calls = [client.call_tool("pay"), client.request("vendor/do"), client.ping(), client.notify("vendor/note")]
        await asyncio.gather(*calls)
        assert len(server.sent("tools/call")) == 1
        assert len(server.sent("vendor/note")) == 1


@pytest.mark.virtual_time
async def test_a_call_made_while_the_new_link_is_opened_waits_too(raw):
    server = raw(answers={"tools/call": DONE})
    async with client_of(server, "handshake") as client:
        answer, server.answers["initialize"] = server.answers["initialize"], None
        server.die(ChildFailed("gone"))
        request = await server.heard("initialize", 2)
        assert client.phase is Phase.INITIALIZING
        call = asyncio.create_task(client.call_tool("pay"))
        await asyncio.sleep(1)
        server.answer(request, answer)
        assert (await call).text == "done"


@pytest.mark.virtual_time
async def test_a_call_waits_no_longer_than_its_time_out(era, raw):
    server = raw(era, {"tools/call": DONE})
    loop = asyncio.get_running_loop()
    async with client_of(server, era, Reconnect(first_delay=3600, longest_delay=3600)) as client:
        server.die(ChildFailed("gone"))
        began = loop.time()
        with pytest.raises(TimedOutReconnecting, match=r"waited 7 s in vain: .*\(attempt 1\): gone; nothing was sent"):
            await client.call_tool("pay", timeout=7)
        assert loop.time() - began == pytest.approx(7)
        with pytest.raises(TimedOut):
            await client.list_tools()
        assert loop.time() - began == pytest.approx(12)
        assert not server.sent("tools/call")


@pytest.mark.virtual_time
@pytest.mark.parametrize("delay", [4, 9.5])
async def test_a_call_asked_again_has_only_the_rest_of_its_time(era, raw, delay):
    server = raw(era, {"tools/list": None})
    loop = asyncio.get_running_loop()
    async with client_of(server, era, Reconnect(jitter=0, first_delay=delay), probe_on_timeout=False) as client:
        call = await lose_with(server, "tools/list", client.list_tools(timeout=10))
        began = loop.time()
        with pytest.raises(TimedOut, match="no answer"):
            await call
        assert loop.time() - began == pytest.approx(10, abs=0.1)


@pytest.mark.virtual_time
async def test_calls_made_meanwhile_fail_at_once_by_option(era, raw):
    server = raw(era, {"tools/call": DONE})
    loop = asyncio.get_running_loop()
    async with client_of(server, era, Reconnect(meanwhile="fail")) as client:
        server.die(ChildFailed("gone"))
        began = loop.time()
        for call in (client.call_tool("pay"), client.list_tools(), client.ping(), client.notify("vendor/note")):
            with pytest.raises(LinkLost, match="not restored yet") as lost:
                await call
            assert not lost.value.sent
        assert loop.time() == began


@pytest.mark.virtual_time
async def test_a_caller_who_leaves_while_waiting_is_forgotten(era, raw):
    server = raw(era, {"tools/call": DONE})
    async with client_of(server, era) as client:
        server.die(ChildFailed("gone"))
        call = asyncio.create_task(client.call_tool("pay"))
        await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.sleep(5)
        assert not server.sent("tools/call")
        assert (await client.call_tool("pay")).text == "done"


@pytest.mark.virtual_time
async def test_a_batch_made_meanwhile_waits_and_one_in_flight_fails(raw):
    server = raw(version="2025-03-26")
    async with client_of(server, "handshake") as client:
        async with client.batch() as batch:
            lost = batch.request("tools/list")
        server.die(ChildFailed("gone"))
        with pytest.raises(LinkLost, match="gone"):
            await lost
        async with client.batch() as batch:
            later = batch.request("tools/list")
        sent = [message for message in server.received if isinstance(message, list)]
        server.say([{"jsonrpc": "2.0", "id": sent[-1][0]["id"], "result": {"tools": []}}])
        assert await later == {"tools": []}


class TestRounds:
    """A call of the stateless era is in nobody's hands but ours while the server's question is answered."""

    @pytest.mark.virtual_time
    @pytest.mark.parametrize("taken", [0.5, 60.0], ids=["before", "after"])
    async def test_a_link_lost_while_a_question_is_answered_is_waited_for_and_the_answer_sent(self, taken, raw):
        """SESS-12: whether the answer comes before the new link or after it."""
        server = raw("stateless", {"tools/call": self.round})

        async def user(_):
            server.die(ChildFailed("gone"))
            await asyncio.sleep(taken)
            return {"value": "Ann"}

        async with client_of(server, "stateless", elicitation=user) as client:
            assert (await client.call_tool("pay")).text == "done"
        _, second = server.sent("tools/call")
        assert second["params"]["requestState"] == "sealed"
        assert second["params"]["inputResponses"]["who"]["content"] == {"value": "Ann"}

    def round(self, request):
        return DONE if "requestState" in request["params"] else ASKED

    @pytest.mark.virtual_time
    async def test_a_round_lost_after_it_was_sent_has_an_unknown_outcome(self, raw):
        server = raw("stateless", {"tools/call": lambda request: self.round(request) if self.first(server) else None})
        async with client_of(server, "stateless", elicitation=lambda _: {"value": "Ann"}) as client:
            call = asyncio.create_task(client.call_tool("pay"))
            await server.heard("tools/call", 2)
            server.die(ChildFailed("gone"))
            with pytest.raises(OutcomeUnknown):
                await call

    def first(self, server):
        return len(server.sent("tools/call")) == 1

    async def test_a_caller_is_not_cancelled_when_the_client_is_closed(self, raw):
        server = raw("stateless", {"tools/call": ASKED})
        asked = asyncio.Event()

        async def user(_):
            asked.set()
            await asyncio.sleep(3600)

        client = client_of(server, "stateless", elicitation=user)
        await client.connect()
        call = asyncio.create_task(client.call_tool("pay"))
        await asked.wait()
        await client.close(drain=0.0)
        with pytest.raises(NotConnected, match="closed while the server's question was being answered"):
            await call


@pytest.mark.virtual_time
async def test_a_server_that_refuses_to_discover_itself_is_still_there(raw, refused):
    server = raw("stateless", {"tools/list": None})
    async with client_of(server, "stateless") as client:
        server.answers["server/discover"] = refused(-32000, "not now")
        with pytest.raises(TimedOut, match="no answer") as caught:
            await client.list_tools(timeout=5)
        assert not isinstance(caught.value, ConnectionTimedOut)
        assert not client.reconnecting
        assert len(server.sent("server/discover")) == 2


@pytest.mark.virtual_time
async def test_a_call_in_flight_waits_for_a_new_link_only_for_the_rest_of_its_time(era, raw):
    server = raw(era, {"tools/list": None})
    loop = asyncio.get_running_loop()
    async with client_of(server, era, Reconnect(jitter=0, first_delay=20)) as client:
        await asyncio.sleep(100)
        call = await lose_with(server, "tools/list", client.list_tools(timeout=10))
        began = loop.time()
        with pytest.raises(TimedOutReconnecting):
            await call
        assert loop.time() - began == pytest.approx(10, abs=0.1)
