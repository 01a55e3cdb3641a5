"""Caching: what was said before is said again, to whom it was said."""

import gc

import pytest

from ferrule import Caching, Context, PeerError, Server, SetupError, ToolError
from ferrule.testing import pair


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def counting(layer):
    """A server whose tools count how often they run."""
    app = Server("s", middleware=[layer])
    app.runs = []

    @app.tool(annotations={"readOnlyHint": True})
    async def read(a: int = 0, b: int = 0) -> int:
        app.runs.append((a, b))
        return len(app.runs)

    @app.tool
    async def write() -> int:
        app.runs.append("write")
        return len(app.runs)

    @app.tool(annotations={"readOnlyHint": True})
    async def fail() -> int:
        app.runs.append("fail")
        raise ToolError("no")

    @app.tool(annotations={"readOnlyHint": True})
    async def ask(ctx: Context) -> str:
        app.runs.append("ask")
        return await ctx.ask("Name?", str)

    @app.resource("x://y")
    async def resource() -> str:
        app.runs.append("resource")
        return str(len(app.runs))

    return app


async def test_a_reading_tool_runs_once_until_the_time_is_over(era, wire):
    clock = Clock()
    app = counting(layer := Caching(10, clock=clock))
    async with wire(app, era, principal="ada") as peer:
        first = (await peer.call("read", {"a": 1, "b": 2}))["result"]
        assert (await peer.call("read", {"b": 2, "a": 1}))["result"] == first
        await peer.call("read", {"a": 2})
        assert app.runs == [(1, 2), (2, 0)]
        assert (layer.hits, layer.misses) == (1, 2)
        clock.now = 10.0
        await peer.call("read", {"a": 1, "b": 2})
        assert len(app.runs) == 3
        layer.clear()
        await peer.call("read", {"a": 1, "b": 2})
        assert len(app.runs) == 4


async def test_what_writes_fails_or_asked_is_not_kept(era):
    app = counting(Caching(shared=True))
    async with pair(app, era, elicitation=lambda params: {"value": "ada"}) as client:
        for _ in range(2):
            await client.call_tool("write")
            with pytest.raises(ToolError):
                await client.call_tool("fail")
            await client.call_tool("ask")
            await client.read_resource("x://y")
    assert app.runs.count("write") == app.runs.count("fail") == 2
    assert app.runs.count("ask") == (2 if era == "handshake" else 4)


async def test_tools_can_be_named_and_resources_kept(era):
    app = counting(Caching(tools={"write"}, resources=True, shared=True))
    async with pair(app, era) as client:
        for _ in range(3):
            await client.call_tool("write")
            await client.call_tool("read")
            await client.read_resource("x://y")
    assert app.runs.count("write") == 1
    assert app.runs.count((0, 0)) == 3
    assert app.runs.count("resource") == 1


async def test_no_principal_gets_what_was_said_to_another(era, wire):
    app = counting(Caching())
    async with wire(app, era, principal="ada") as ada, wire(app, era, principal="bob") as bob:
        for peer in (ada, bob, ada, bob):
            await peer.call("read")
    assert len(app.runs) == 2


async def test_unless_it_is_told_to_share(era, wire):
    app = counting(Caching(shared=True))
    async with wire(app, era, principal="ada") as ada, wire(app, era) as nobody:
        for peer in (ada, nobody):
            await peer.call("read")
    assert len(app.runs) == 1


async def test_sessions_without_a_principal_keep_to_themselves(wire):
    app = counting(Caching())
    async with wire(app) as one, wire(app) as two:
        for peer in (one, two, one, two):
            await peer.call("read")
    assert len(app.runs) == 2


async def test_only_so_many_results_are_kept(era, wire):
    app = counting(layer := Caching(max_entries=2))
    async with wire(app, era, principal="ada") as peer:
        for n in (1, 2, 3, 1):
            await peer.call("read", {"a": n})
    assert len(app.runs) == 4
    assert len(layer._kept) == 2


async def test_a_mounted_server_s_cache_knows_its_own_tools(era, wire):
    child, host = counting(Caching()), Server("host")
    host.mount(child, "c")
    async with wire(host, era, principal="ada") as peer:
        for _ in range(3):
            assert (await peer.call("c_read"))["result"]["structuredContent"] == {"result": 1}
    assert len(child.runs) == 1


async def test_a_new_session_never_gets_what_was_said_to_one_that_is_over(wire):
    """The memory of a session that ended is soon another's; what was kept for it is not."""
    app = counting(Caching())
    for _ in range(20):
        async with wire(app) as peer:
            await peer.call("read")
        del peer
        gc.collect()
    assert len(app.runs) == 20


async def test_what_is_kept_cannot_be_changed_by_who_got_it(era, wire):
    async def doubling(call, proceed):
        result = await proceed(call)
        if call.method == "tools/call":
            result.content.append(result.content[0])
        return result

    app = counting(Caching(shared=True))
    outer = Server("outer", middleware=[doubling, Caching(tools={"c_read"}, shared=True)])
    outer.mount(app, "c")
    async with wire(outer, era) as peer:
        answers = [await peer.call("c_read") for _ in range(4)]
    assert [len(answer["result"]["content"]) for answer in answers] == [2] * 4


async def test_a_shared_result_is_not_given_to_who_does_not_see_the_tool(era, wire):
    app = Server("s", middleware=[Caching(shared=True, resources=True)])

    def for_admins(ctx):
        return ctx.principal == "admin"

    @app.tool(annotations={"readOnlyHint": True}, visible=for_admins)
    async def plans() -> str:
        return "top secret"

    @app.resource("x://plans", visible=for_admins)
    async def resource() -> str:
        return "top secret"

    async def asked(principal):
        async with wire(app, era, principal=principal) as peer:
            return [await peer.call("plans"), await peer.request("resources/read", {"uri": "x://plans"})]

    assert all("top secret" in str(answer) for answer in await asked("admin"))
    assert all("error" in answer and "top secret" not in str(answer) for answer in await asked("eve"))


async def test_a_tool_that_was_switched_off_says_nothing_any_more(era, wire):
    app = counting(Caching(tools={"read"}, shared=True))
    async with wire(app, era) as peer:
        await peer.call("read")
        app.disable("read")
        assert "error" in await peer.call("read")


async def test_long_arguments_and_results_take_no_more_room_than_they_may(era, wire):
    app = Server("s", middleware=[layer := Caching(shared=True, max_bytes=10_000)])

    @app.tool(annotations={"readOnlyHint": True}, output_schema=None)
    async def some(size: int, note: str = "") -> str:
        return "x" * size

    async with wire(app, era) as peer:
        for number in range(20):
            await peer.call("some", {"size": 1000, "note": f"{number}" * 5000})
        await peer.call("some", {"size": 20_000})
    assert 0 < layer.size <= 10_000
    assert sum(len(str(key)) for key in layer._kept) < 10_000


def test_wrong_use_is_refused():
    layer = Caching()
    Server("one", middleware=[layer])
    with pytest.raises(SetupError, match="belongs to another server"):
        Server("two", middleware=[layer])
    with pytest.raises(SetupError, match="a set of names"):
        Caching(tools="read")
    with pytest.raises(SetupError, match="Caching: ttl must be at least 0, not -1"):
        Caching(-1)
    with pytest.raises(SetupError, match="max_entries"):
        Caching(max_entries=0)


@pytest.mark.parametrize("tools", [None, {"read"}])
async def test_what_is_switched_off_or_gone_says_nothing_any_more(era, tools):
    app = counting(Caching(shared=True, tools=tools, resources=True))
    async with pair(app, era) as client:
        await client.call_tool("read")
        await client.request("resources/read", {"uri": "x://y"})
        app.disable("read", "x://y")
        with pytest.raises(PeerError, match="Unknown tool"):
            await client.call_tool("read")
        with pytest.raises(PeerError, match="not found"):
            await client.request("resources/read", {"uri": "x://y"})
        app.enable("read", "x://y")
        assert (await client.call_tool("read")).data == 1
        app.remove_tool("read")
        with pytest.raises(PeerError, match="Unknown tool"):
            await client.call_tool("read")


async def test_who_does_not_see_a_tool_does_not_get_what_it_said_to_others(era, wire):
    app = counting(Caching(shared=True, resources=True))
    app.visible(lambda ctx, component: ctx.principal == "ada")
    async with wire(app, era, principal="ada") as ada, wire(app, era, principal="bob") as bob:
        assert "result" in await ada.call("read")
        assert "result" in await ada.request("resources/read", {"uri": "x://y"})
        assert "Unknown tool" in (await bob.call("read"))["error"]["message"]
        assert "error" in await bob.request("resources/read", {"uri": "x://y"})


async def test_of_a_mounted_server_it_keeps_what_the_host_lets_be_seen(era):
    app, host = counting(Caching(shared=True)), Server("host")
    app.visible(lambda ctx, component: True)
    host.mount(app, "m")
    async with pair(host, era) as client:
        assert [(await client.call_tool("m_read")).data for _ in range(2)] == [1, 1]


async def test_links_to_what_was_too_large_are_everybodys_own(era):
    app = Server("s", middleware=[Caching(shared=True, resources=True)])

    @app.tool(annotations={"readOnlyHint": True}, result_limit=10, result_policy="spill")
    async def long() -> str:
        return "x" * 100

    async with pair(app, era) as ada, pair(app, era) as bob:
        uris = [(await client.call_tool("long")).content[1].uri for client in (ada, bob)]
        assert (await ada.read_resource(uris[0])).text == (await bob.read_resource(uris[1])).text == "x" * 100
        assert uris[0] != uris[1]
        with pytest.raises(PeerError, match="not found"):
            await bob.read_resource(uris[0])
