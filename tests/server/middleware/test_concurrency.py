"""Concurrency: so many calls at once."""

import asyncio

import pytest

from ferrule import Concurrency, PeerError, Server, SetupError
from ferrule.testing import pair


class Gate:
    """A server whose tool waits to be let go, and counts."""

    def __init__(self, limit):
        self.open = asyncio.Event()
        self.running = self.most = 0
        self.app = Server("s", middleware=[limit])

        @self.app.tool
        async def work() -> int:
            self.running += 1
            self.most = max(self.most, self.running)
            await self.open.wait()
            self.running -= 1
            return 1

        @self.app.tool
        async def quick() -> int:
            return 2


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


async def test_the_next_wait_in_line_and_all_are_answered(era):
    gate = Gate(Concurrency(2))
    async with pair(gate.app, era) as client:
        calls = [asyncio.ensure_future(client.call_tool("work")) for _ in range(6)]
        await until(lambda: gate.running == 2)
        gate.open.set()
        assert [result.data for result in await asyncio.gather(*calls)] == [1] * 6
    assert gate.most == 2


async def test_beyond_the_line_a_call_is_refused(era):
    gate = Gate(Concurrency(1, max_waiting=1))
    async with pair(gate.app, era) as client:
        calls = [asyncio.ensure_future(client.call_tool("work")) for _ in range(2)]
        await until(lambda: gate.running == 1)
        with pytest.raises(PeerError, match="Busy: tools/call has 1 calls running and 1 waiting"):
            await client.call_tool("quick")
        gate.open.set()
        await asyncio.gather(*calls)
        assert (await client.call_tool("quick")).data == 2


async def test_each_tool_or_principal_may_have_a_line_of_its_own(era, wire):
    gate = Gate(Concurrency(1, by="tool", max_waiting=0))
    async with pair(gate.app, era) as client:
        call = asyncio.ensure_future(client.call_tool("work"))
        await until(lambda: gate.running == 1)
        assert (await client.call_tool("quick")).data == 2
        gate.open.set()
        await call
    other = Gate(Concurrency(1, by="principal", max_waiting=0))
    async with wire(other.app, era, principal="ada") as ada, wire(other.app, era, principal="bob") as bob:
        asked = ada.ask("tools/call", {"name": "work", "arguments": {}})
        await until(lambda: other.running == 1)
        assert "error" in await ada.call("quick")
        assert "result" in await bob.call("quick")
        other.open.set()
        await ada.response(asked)


async def test_who_gives_up_in_line_leaves_no_hole(wire):
    gate = Gate(limit := Concurrency(1))
    async with wire(gate.app) as peer:
        first = peer.ask("tools/call", {"name": "work", "arguments": {}})
        await until(lambda: gate.running == 1)
        second = peer.ask("tools/call", {"name": "work", "arguments": {}})
        third = peer.ask("tools/call", {"name": "quick", "arguments": {}})
        await until(lambda: limit._slots[None].waiting == 2)
        peer.notify("notifications/cancelled", {"requestId": second})
        await until(lambda: limit._slots[None].waiting == 1)
        gate.open.set()
        await peer.response(first)
        assert "result" in await peer.response(third)
        assert limit._slots == {}, "an empty line is forgotten"


async def test_who_gives_up_in_the_very_moment_passes_his_turn_on():
    limit = Concurrency(1)
    gate = asyncio.Event()

    class HttpExchange:
        method = "tools/call"

    async def proceed(call):
        await gate.wait()

    tasks = [asyncio.ensure_future(limit.on_request(HttpExchange, proceed)) for _ in range(3)]
    await until(lambda: None in limit._slots and limit._slots[None].waiting == 2)
    gate.set()
    tasks[0].add_done_callback(lambda _: tasks[1].cancel())
    await asyncio.wait(tasks)
    assert tasks[2].exception() is None
    assert limit._slots == {}


def test_wrong_options_are_refused():
    with pytest.raises(SetupError, match="limit must be at least 1"):
        Concurrency(0)
    with pytest.raises(SetupError, match="by must be"):
        Concurrency(1, by="planet")
