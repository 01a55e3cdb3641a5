"""How a client's link to a server ends: lost, or by our will; how one is opened is in `test_negotiation.py`."""

import asyncio

import pytest

from ferrule import Client
from ferrule.errors import ChildFailed, LinkLost, NotConnected
from ferrule.protocol.session import Phase

TEXT = {"content": [{"type": "text", "text": "done"}]}


def now() -> float:
    return asyncio.get_running_loop().time()


def complete(result):
    return {"resultType": "complete", **result}


async def calling(client, server, name="slow", **options):
    """Start a tool call and wait until the server has it; gives the task and the request."""
    count = len(server.sent("tools/call"))
    task = asyncio.create_task(client.call_tool(name, **options))
    return task, await server.heard("tools/call", count + 1)


# The end of the link


async def test_a_lost_link_fails_every_caller_with_the_last_words_of_the_server(era, raw):
    """CORR-10, SESS-10"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        calls = [asyncio.create_task(client.call_tool(f"t{n}")) for n in range(50)]
        await server.heard("tools/call", 50)
        server.die(ChildFailed("'serve' was killed by SIGSEGV; its last words on stderr: oops"))
        for call in calls:
            with pytest.raises(LinkLost, match="its last words on stderr: oops") as lost:
                await call
            assert "\n" not in str(lost.value)
        assert not client.pending
        assert client.phase is Phase.ERROR
        with pytest.raises(LinkLost, match="oops"):
            await client.list_tools()


async def test_a_link_the_server_closes_in_order_is_lost_all_the_same(era, raw):
    """SESS-10"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era) as client:
        task, _ = await calling(client, server)
        server.die()
        with pytest.raises(LinkLost):
            await task
        assert client.phase is Phase.ERROR
        with pytest.raises(LinkLost, match="the server closed"):
            await client.call_tool("x")
    assert client.phase is Phase.CLOSED


# The end


@pytest.mark.virtual_time
async def test_a_closing_client_asks_no_more_and_waits_for_what_it_asked(era, raw):
    """SHUT-02"""
    server = raw(era, {"tools/call": None})
    client = Client(server, mode=era)
    await client.connect()
    task, request = await calling(client, server)
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(1)
    with pytest.raises(NotConnected):
        await client.call_tool("x")
    server.answer(request, complete(TEXT))
    assert (await task).text == "done"
    await closing
    assert now() == 1
    assert len(server.sent("tools/call")) == 1


@pytest.mark.virtual_time
async def test_a_closing_client_waits_no_longer_than_five_seconds(era, raw):
    """SHUT-03"""
    server = raw(era, {"tools/call": None})
    client = Client(server, mode=era)
    await client.connect()
    task, _ = await calling(client, server)
    await client.close()
    assert now() == 5
    with pytest.raises(LinkLost, match="the client was closed"):
        await task


async def test_a_closing_client_withdraws_what_it_will_not_wait_for(era, raw):
    """A server that ends in order would finish it first."""
    server = raw(era, {"tools/call": None})
    client = Client(server, mode=era)
    await client.connect()
    task, request = await calling(client, server)
    await client.close(drain=0)
    with pytest.raises(LinkLost):
        await task
    assert server.sent("notifications/cancelled")[0]["params"]["requestId"] == request["id"]


@pytest.mark.virtual_time
async def test_a_client_that_leaves_with_an_error_waits_for_nothing(era, raw):
    server = raw(era, {"tools/call": None})
    calls = []

    async def leave() -> None:
        async with Client(server, mode=era) as client:
            calls.append((await calling(client, server))[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await leave()
    assert now() == 0
    with pytest.raises(LinkLost):
        await calls[0]
