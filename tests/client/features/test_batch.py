"""Several requests sent as one array."""

from __future__ import annotations

import asyncio

import pytest

from ferrule import Client, PeerError, Server
from ferrule.errors import AlreadyInitialized, CapabilityNotSupported, EncodeError, LinkLost, TimedOut
from ferrule.testing import Recorder, pair
from ferrule.transports.memory import Memory

BATCHING = "2025-03-26"


@pytest.fixture
def batching(raw):
    """A raw server of the revision with batches, that answers when told."""
    return raw(version=BATCHING)


def arrays(server):
    return [message for message in server.received if isinstance(message, list)]


def replies(batch, **by_method):
    return [{"jsonrpc": "2.0", "id": r["id"], "result": {"for": r["method"]}} for r in batch if "id" in r]


async def test_a_block_sends_one_array_when_it_ends(batching):
    """BATC-03, BATC-05, CLNT-08"""
    async with Client(batching, protocol_version=BATCHING) as client:
        async with client.batch() as batch:
            tools = batch.request("tools/list")
            call = batch.request("tools/call", {"name": "x"})
            batch.notify("notifications/vendor", {"n": 1})
            batch.notify("notifications/bare")
            assert batch.count == 2
            assert not arrays(batching)
        (sent,) = arrays(batching)
        assert [message["method"] for message in sent] == [
            "tools/list",
            "tools/call",
            "notifications/vendor",
            "notifications/bare",
        ]
        assert ["id" in message for message in sent] == [True, True, False, False]
        assert sent[1]["params"] == {"name": "x"}
        assert len(client.pending) == 2
        batching.say(replies(sent))
        assert await tools == {"for": "tools/list"}
        assert await call == {"for": "tools/call"}
        assert not client.pending


async def test_answers_in_any_order_and_apart_reach_their_own_callers(batching):
    """BATC-08"""
    async with Client(batching, protocol_version=BATCHING) as client:
        async with client.batch() as batch:
            futures = [batch.request(f"vendor/{n}") for n in range(20)]
        (sent,) = arrays(batching)
        answers = replies(sent)[::-1]
        batching.say(answers[:7])
        for answer in answers[7:]:
            batching.say(answer)
        assert [await future for future in futures] == [{"for": f"vendor/{n}"} for n in range(20)]


async def test_an_exception_in_the_block_sends_nothing_and_goes_on_unchanged(batching):
    """BATC-04"""
    futures = []
    error = ZeroDivisionError("mine")
    async with Client(batching, protocol_version=BATCHING) as client:

        async def work():
            async with client.batch() as batch:
                futures.append(batch.request("tools/list"))
                raise error

        with pytest.raises(ZeroDivisionError) as raised:
            await work()
        assert raised.value is error
        assert futures[0].cancelled()
        assert not client.pending
    assert not arrays(batching)


async def test_several_open_batches_do_not_mix(batching):
    """BATC-06"""
    async with Client(batching, protocol_version=BATCHING) as client:
        one, two = client.batch(), client.batch()
        async with one:
            first = one.request("vendor/1")
            async with two:
                second = two.request("vendor/2")
            third = one.request("vendor/3")
        inner, outer = arrays(batching)
        assert [message["method"] for message in inner] == ["vendor/2"]
        assert [message["method"] for message in outer] == ["vendor/1", "vendor/3"]
        batching.say(replies(outer))
        batching.say(replies(inner))
        assert [(await future)["for"] for future in (first, second, third)] == ["vendor/1", "vendor/2", "vendor/3"]


async def test_an_empty_block_sends_nothing(batching):
    async with Client(batching, protocol_version=BATCHING) as client:
        async with client.batch() as batch:
            assert batch.count == 0
        assert await client.send_batch([]) == []
    assert not arrays(batching)


async def test_a_list_of_calls_gives_a_result_or_an_error_for_each(batching):
    """BATC-07"""
    async with Client(batching, protocol_version=BATCHING) as client:
        sending = asyncio.create_task(client.send_batch([("tools/list", {}), ("vendor/bad", None), ("ping", None)]))
        (sent,) = await batching.until(lambda: arrays(batching))
        bad = {"jsonrpc": "2.0", "id": sent[1]["id"], "error": {"code": -32601, "message": "no"}}
        good = replies(sent)
        batching.say([good[0], bad, good[2]])
        first, second, third = await sending
        assert (first, third) == ({"for": "tools/list"}, {"for": "ping"})
        assert isinstance(second, PeerError)


async def test_our_own_server_answers_a_batch(app):
    """BATC-02, BATC-09, RPC-11"""
    recorder = Recorder(Memory(app))
    async with Client(recorder, protocol_version=BATCHING) as client:
        async with client.batch() as batch:
            tools = batch.request("tools/list")
            batch.notify("notifications/vendor", {"n": 1})
            added = batch.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert len((await tools)["tools"]) == 4
        assert (await added)["content"][0]["text"] == "3"
    (answers,) = [message for message in recorder.sent("server") if isinstance(message, list)]
    assert len(answers) == 2


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_other_revisions_have_no_batches(version, app):
    """BATC-09"""
    recorder = Recorder(Memory(app))
    async with Client(recorder, protocol_version=version) as client:
        with pytest.raises(CapabilityNotSupported, match=f"batches do not exist in {version}"):
            async with client.batch():
                pass
        with pytest.raises(CapabilityNotSupported):
            await client.send_batch([("ping", None)])
    assert not [message for message in recorder.sent("client") if isinstance(message, list)]


async def test_batches_can_be_allowed_where_both_sides_agree(era):
    """BATC-09"""
    app = Server("batching", allow_batch=True)

    @app.tool
    async def hello() -> str:
        return "hi"

    async with pair(app, era, allow_batch=True) as client:
        tools, called = await client.send_batch([("tools/list", {}), ("tools/call", {"name": "hello"})])
        assert tools["tools"][0]["name"] == "hello"
        assert called["content"][0]["text"] == "hi"


async def test_the_handshake_does_not_enter_a_batch(batching):
    """RPC-12"""
    async with Client(batching, protocol_version=BATCHING) as client:
        with pytest.raises(AlreadyInitialized):
            await client.send_batch([("ping", None), ("initialize", {})])
    assert not arrays(batching)


async def test_what_the_server_never_offered_does_not_enter_a_batch(raw):
    """CAPN-08"""
    server = raw(version=BATCHING, capabilities={})
    async with Client(server, protocol_version=BATCHING) as client:
        with pytest.raises(CapabilityNotSupported):
            await client.send_batch([("ping", None), ("tools/list", None)])
    assert not arrays(server)


@pytest.mark.virtual_time
async def test_a_request_of_a_batch_can_time_out_alone(batching):
    async with Client(batching, protocol_version=BATCHING, probe_on_timeout=False) as client:
        async with client.batch(timeout=2) as batch:
            slow, quick = batch.request("vendor/slow"), batch.request("vendor/quick")
        (sent,) = arrays(batching)
        batching.say(replies(sent[1:]))
        assert await quick == {"for": "vendor/quick"}
        with pytest.raises(TimedOut):
            await slow
        assert asyncio.get_running_loop().time() == 2
        assert not client.pending


async def test_a_request_nobody_waits_for_any_more_is_cancelled(batching):
    async with Client(batching, protocol_version=BATCHING) as client:
        async with client.batch() as batch:
            unwanted, wanted = batch.request("vendor/1"), batch.request("vendor/2")
        (sent,) = arrays(batching)
        unwanted.cancel()
        notice = await batching.heard("notifications/cancelled")
        assert notice["params"]["requestId"] == sent[0]["id"]
        batching.say(replies(sent))
        assert await wanted == {"for": "vendor/2"}


async def test_a_batch_that_cannot_be_written_leaves_nothing_behind(batching):
    async with Client(batching, protocol_version=BATCHING) as client:

        async def work():
            async with client.batch() as batch:
                batch.request("vendor/good")
                batch.request("vendor/bad", {"value": object()})

        with pytest.raises(EncodeError):
            await work()
        assert not client.pending


async def test_a_lost_link_fails_every_request_of_a_batch(batching):
    async with Client(batching, protocol_version=BATCHING) as client:
        sending = asyncio.create_task(client.send_batch([("ping", None), ("ping", None)]))
        await batching.until(lambda: arrays(batching))
        batching.die()
        assert [type(outcome) for outcome in await sending] == [LinkLost, LinkLost]


async def test_a_closing_client_waits_for_a_batch(batching):
    client = Client(batching, protocol_version=BATCHING)
    await client.connect()
    sending = asyncio.create_task(client.send_batch([("ping", None)]))
    (sent,) = await batching.until(lambda: arrays(batching))
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    batching.say(replies(sent))
    assert await sending == [{"for": "ping"}]
    await closing
