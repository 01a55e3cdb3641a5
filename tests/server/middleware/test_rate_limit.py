"""RateLimit: so many calls a second, each for his own."""

import asyncio

import pytest

from ferrule import PeerError, RateLimit, Server, SetupError
from ferrule.errors import RateLimited
from ferrule.testing import pair


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def limited(limit, **options):
    app = Server("s", middleware=[limit], **options)

    @app.tool
    async def ping() -> str:
        return "pong"

    @app.tool
    async def other() -> str:
        return "pong"

    app.add_resource("x://y", lambda: "")
    return app


async def test_beyond_the_burst_a_call_is_refused_until_time_has_passed(era):
    """SPEC-27: calls of tools."""
    clock = Clock()
    async with pair(limited(RateLimit(2, burst=3, clock=clock)), era) as client:
        for _ in range(3):
            await client.call_tool("ping")
        with pytest.raises(PeerError, match=r"Rate limit exceeded: try again in 0.5 s") as caught:
            await client.call_tool("ping")
        assert caught.value.data == {"retryAfter": 0.5}
        assert await client.list_tools()
        await client.read_resource("x://y")
        clock.now += 0.5
        await client.call_tool("ping")
        with pytest.raises(PeerError):
            await client.call_tool("ping")


async def test_the_number_is_that_of_the_profile(wire):
    for profile, code in (("spec", -32000), ("erlmcp", -32010)):
        async with wire(limited(RateLimit(1, clock=Clock()), error_profile=profile)) as peer:
            await peer.call("ping")
            assert (await peer.call("ping"))["error"]["code"] == code


async def test_each_principal_has_his_own(era, wire):
    app = limited(RateLimit(1, clock=Clock()))
    async with wire(app, era, principal="ada") as ada, wire(app, era, principal="bob") as bob:
        assert "result" in await ada.call("ping")
        assert "error" in await ada.call("other")
        assert "result" in await bob.call("ping")
        async with wire(app, era, principal="ada") as again:
            assert "error" in await again.call("ping"), "another session of his is still he"


async def test_who_is_not_known_counts_by_session(wire):
    app = limited(RateLimit(1, clock=Clock()))
    async with wire(app) as one, wire(app) as two:
        assert "result" in await one.call("ping")
        assert "error" in await one.call("ping")
        assert "result" in await two.call("ping")


@pytest.mark.parametrize(
    ("by", "allowed"),
    [("tool", [True, True, False]), ("server", [True, False, False]), (lambda call: call.id, [True, True, True])],
)
async def test_other_ways_to_count(era, by, allowed):
    app = limited(RateLimit(1, by=by, clock=Clock()))
    async with pair(app, era) as client:
        for name, well in zip(("ping", "other", "ping"), allowed, strict=True):
            if well:
                await client.call_tool(name)
            else:
                with pytest.raises(PeerError, match="Rate limit"):
                    await client.call_tool(name)


async def test_other_methods_can_be_limited(era):
    app = limited(RateLimit(1, methods=("resources/read",), clock=Clock()))
    async with pair(app, era) as client:
        for _ in range(3):
            await client.call_tool("ping")
        await client.read_resource("x://y")
        with pytest.raises(PeerError, match="Rate limit"):
            await client.read_resource("x://y")


async def test_completions_can_be_limited(era):
    """SPEC-27, COMP-5"""
    clock = Clock()
    app = limited(RateLimit(1, methods=("completion/complete",), clock=clock))
    app.add_prompt("greet", lambda name: name)
    app.completion("name")(lambda value: ["ada"])
    async with pair(app, era) as client:
        argument = {"name": "name", "value": "a"}
        await client.complete("greet", argument)
        with pytest.raises(PeerError, match="Rate limit"):
            await client.complete("greet", argument)
        clock.now += 1
        assert (await client.complete("greet", argument)).values == ["ada"]


async def test_looks_at_tasks_can_be_limited(era):
    """SPEC-27: what is asked about tasks."""
    clock = Clock()
    app = limited(RateLimit(1, methods=("tasks/get", "tasks/result", "tasks/cancel"), clock=clock))

    @app.tool(task="required")
    async def work() -> str:
        await asyncio.sleep(3600)
        return ""

    async with pair(app, era, tasks=era == "stateless") as client:
        task = await client.start_task("work")
        await task.status()
        with pytest.raises(PeerError, match="Rate limit"):
            await task.status()
        clock.now += 1
        assert (await task.status()).status == "working"


async def test_only_so_many_are_remembered(era):
    limit = RateLimit(1, by=lambda call: call.params.name, max_keys=2, clock=Clock())
    app = Server("s", middleware=[limit])
    for name in "abc":
        app.add_tool(name, lambda: None)
    async with pair(app, era) as client:
        for name in "abc":
            await client.call_tool(name)
        assert len(limit._buckets) == 2


def test_nothing_at_all_may_be_allowed():
    assert RateLimited(float("inf")).data == {"retryAfter": 1}
    assert "no more calls" in RateLimited(float("inf")).message


def test_wrong_options_are_refused():
    with pytest.raises(SetupError, match="by must be a function of the call, or one of principal"):
        RateLimit(1, by="tenant")
    with pytest.raises(SetupError, match="burst of at least 1"):
        RateLimit(1, burst=0)
    with pytest.raises(SetupError, match="max_keys"):
        RateLimit(1, max_keys=0)
    with pytest.raises(SetupError, match="RateLimit: rate must be a number, not '10/s'"):
        RateLimit("10/s")
    with pytest.raises(SetupError, match="RateLimit: methods must be a set of names, not the text 'tools/call'"):
        RateLimit(1, methods="tools/call")
