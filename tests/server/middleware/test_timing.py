"""Timing: how many calls of what, and how long they took."""

import itertools

import pytest

from ferrule import PeerError, Server, Timing, ToolError
from ferrule.server.middleware.timing import OTHERS, Times
from ferrule.testing import pair


def timed(timing):
    app = Server("s", middleware=[timing])

    @app.tool
    async def add(a: int) -> int:
        return a

    @app.tool
    async def fail() -> int:
        raise ToolError("no")

    app.add_resource("x://y", lambda: "")
    return app


async def test_calls_are_counted_and_measured_by_method_and_name(era):
    """The clock here goes one second at each look, so each call takes one."""
    heard = []
    ticks = itertools.count()
    timing = Timing(clock=lambda: float(next(ticks)), on_time=lambda call, seconds: heard.append(seconds))
    async with pair(timed(timing), era) as client:
        timing.times.clear()
        heard.clear()
        for n in range(3):
            await client.call_tool("add", {"a": n})
        with pytest.raises(ToolError):
            await client.call_tool("fail")
        await client.read_resource("x://y")
    assert timing.times[("tools/call", "add")] == Times(count=3, failed=0, total=3.0, longest=1.0)
    assert timing.times[("tools/call", "fail")] == Times(count=1, failed=1, total=1.0, longest=1.0)
    assert timing.times[("resources/read", "x://y")].mean == 1.0
    assert len(heard) == 5
    assert set(heard) == {1.0}


async def test_names_a_caller_invents_are_not_kept(era):
    timing = Timing()
    async with pair(timed(timing), era) as client:
        for number in range(5):
            with pytest.raises(PeerError):
                await client.call_tool(f"invented{number}")
    assert timing.times[("tools/call", OTHERS)].count == 5
    assert not any("invented" in name for _, name in timing.times)


async def test_only_so_many_names_are_kept(era):
    timing = Timing(max_names=3)
    app = timed(timing)
    for number in range(9):
        app.add_tool(f"t{number}", lambda: None)
    async with pair(app, era) as client:
        for number in range(9):
            await client.call_tool(f"t{number}")
    calls = {name: times.count for (method, name), times in timing.times.items() if method == "tools/call"}
    assert sum(calls.values()) == 9
    assert len(timing.times) <= 5
    assert Times().mean == 0.0
