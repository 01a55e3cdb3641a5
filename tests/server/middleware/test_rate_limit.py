"""RateLimit: so many calls a second, each for his own."""

import asyncio

import httpx
import pytest

from ferrule import Http, PeerError, RateLimit, Server, SetupError
from ferrule.errors import RateLimited
from ferrule.server.middleware.rate_limit import rate_of
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
        assert [len(quotas) for quotas in limit._quotas] == [2]


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
    with pytest.raises(SetupError, match="RateLimit: rate must be a number or a str, not None"):
        RateLimit(None)
    with pytest.raises(SetupError, match="a rate is written like 100/min or 10/s burst 50, not 'often'"):
        RateLimit("often")
    with pytest.raises(SetupError, match="write the burst into the rate: '10/s' becomes '10/s burst …'"):
        RateLimit("10/s", burst=3)
    with pytest.raises(SetupError, match=r"RateLimit: unknown rate 'tenant'.* the rates are connection, principal"):
        RateLimit({"tenant": "10/s"})
    with pytest.raises(SetupError, match="RateLimit: methods must be a set of names, not the text 'tools/call'"):
        RateLimit(1, methods="tools/call")


async def test_several_rates_are_taken_together_or_not_at_all(era, wire):
    """One that has no token left takes none of the others."""
    clock = Clock()
    limit = RateLimit({"principal": "2/min", "server": "3/min", "tool": "10/s"}, clock=clock)
    app = limited(limit)
    async with wire(app, era, principal="ada") as ada, wire(app, era, principal="bob") as bob:
        assert ["result" in await ada.call("ping") for _ in range(3)] == [True, True, False]
        # What ada asked in vain took nothing of the server's third token.
        assert "result" in await bob.call("ping")
        refused = await bob.call("ping")
        assert "Rate limit exceeded: try again in 20 s" in refused["error"]["message"]
        clock.now += 20
        assert "result" in await bob.call("ping")
        assert "error" in await ada.call("ping")


async def test_a_server_takes_rates_as_an_option(era, wire):
    app = Server("s", rate={"connection": "2/hour", "tool": "1/hour"})
    app.add_tool("ping", lambda: "pong")
    app.add_tool("other", lambda: "pong")
    app.add_resource("x://y", lambda: "")
    async with wire(app, era, principal="ada") as peer:
        assert "result" in await peer.call("ping")
        assert "error" in await peer.call("ping"), "the tool has its own rate"
        assert "result" in await peer.call("other")
        assert "error" in await peer.request("resources/read", {"uri": "x://y"}), "the connection has used up its two"
        assert "result" in await peer.request("tools/list", {})


async def test_the_rate_of_a_tool_is_for_tools(era, wire):
    app = Server("s", rate={"tool": "1/hour", "server": "100/s"})
    app.add_tool("ping", lambda: "pong")
    app.add_resource("x://y", lambda: "")
    async with wire(app, era) as peer:
        for _ in range(3):
            assert "result" in await peer.request("resources/read", {"uri": "x://y"})
        assert ["result" in await peer.call("ping") for _ in range(2)] == [True, False]


def test_a_rate_can_be_written_in_a_file_or_the_environment(monkeypatch):
    monkeypatch.setenv("FERRULE_SERVER_RATE", '{"server": "5/min"}')
    assert Server("s").settings.rate == {"server": "5/min"}
    monkeypatch.delenv("FERRULE_SERVER_RATE")
    with pytest.raises(SetupError, match="unknown rate 'tenant'"):
        Server("s", rate={"tenant": "5/min"})


def test_a_rate_is_never_refilled_where_it_is_zero():
    assert rate_of(0, 4).bucket().wait(0.0) == 0.0
    assert rate_of(0, 4).per_second == 0


@pytest.mark.parametrize(("mode", "status"), [("stateless", 429), ("handshake", 200)])
async def test_an_http_answer_says_when_to_come_again(mode, status):
    """The headers of draft-ietf-httpapi-ratelimit-headers; in the stateless era with a status of their own."""
    app = limited(RateLimit({"server": "2/min", "tool": "60/s"}))
    ready = asyncio.Event()
    listener = Http(port=0)
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    async with httpx.AsyncClient() as web:
        peer = Poster(web, listener.url, mode)
        await peer.begin()
        answers = [await peer.call("ping") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, status]
    refused = answers[-1]
    assert refused.json()["error"]["message"].startswith("Rate limit exceeded")
    assert 20 < int(refused.headers["retry-after"]) <= 30
    assert refused.headers["ratelimit-policy"] == '"server";q=2;w=60, "tool";q=60;w=1'
    assert refused.headers["ratelimit"].startswith('"server";r=0;t=')
    await app.stop()
    await asyncio.wait_for(serving, 60)


@pytest.mark.parametrize("mode", ["stateless", "handshake"])
async def test_every_http_answer_says_what_is_left(mode):
    """Also that of a request which takes nothing; of quotas that a request has nothing to do with nothing is said."""
    app = limited(RateLimit({"server": "3/min", "tool": "60/s"}))
    ready = asyncio.Event()
    listener = Http(port=0)
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    async with httpx.AsyncClient() as web:
        peer = Poster(web, listener.url, mode)
        opened = await peer.begin()
        listed = await peer.ask("tools/list", {})
        called = [await peer.call("ping") for _ in range(2)]
        listed_later = await peer.ask("tools/list", {})
    if opened is not None:
        assert opened.headers["ratelimit"] == '"server";r=3;t=0'
    assert listed.headers["ratelimit-policy"] == '"server";q=3;w=60'
    assert listed.headers["ratelimit"] == '"server";r=3;t=0'
    assert [answer.headers["ratelimit-policy"] for answer in called] == ['"server";q=3;w=60, "tool";q=60;w=1'] * 2
    assert [answer.headers["ratelimit"].partition(";t")[0] for answer in called] == ['"server";r=2', '"server";r=1']
    assert listed_later.headers["ratelimit"].startswith('"server";r=1;t=')
    await app.stop()
    await asyncio.wait_for(serving, 60)


@pytest.mark.parametrize("mode", ["stateless", "handshake"])
async def test_a_stream_of_events_says_what_is_left(mode):
    app = limited(RateLimit({"server": "3/min"}))
    ready = asyncio.Event()
    listener = Http(port=0, response="sse")
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    async with httpx.AsyncClient() as web:
        peer = Poster(web, listener.url, mode)
        await peer.begin()
        answer = await peer.call("ping")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["ratelimit"].startswith('"server";r=2;t=')
    await app.stop()
    await asyncio.wait_for(serving, 60)


async def test_a_key_of_ones_own_is_asked_about_calls_that_count_only():
    """It may not know what to make of others."""
    asked = []

    def by(call):
        asked.append(call.method)
        return call.params.name

    app = limited(RateLimit("3/min", by=by))
    ready = asyncio.Event()
    listener = Http(port=0)
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    async with httpx.AsyncClient() as web:
        peer = Poster(web, listener.url, "stateless")
        listed = await peer.ask("tools/list", {})
        called = await peer.call("ping")
    assert "ratelimit" not in listed.headers
    assert called.headers["ratelimit"].startswith('"calls";r=2;t=')
    assert asked == ["tools/call"]
    await app.stop()
    await asyncio.wait_for(serving, 60)


class Poster:
    """A client of HTTP that shows statuses and headers."""

    def __init__(self, web, url, mode):
        self.web, self.url, self.mode = web, url, mode
        self.headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}

    async def begin(self):
        if self.mode == "handshake":
            client = {"name": "t", "version": "1"}
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
            answer = await self.post({"id": 0, "method": "initialize", "params": params})
            self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
            await self.post({"method": "notifications/initialized"})
            return answer
        return None

    async def call(self, name):
        return await self.ask("tools/call", {"name": name, "arguments": {}})

    async def ask(self, method, params):
        if self.mode == "stateless":
            key = "io.modelcontextprotocol"
            params["_meta"] = {f"{key}/protocolVersion": "2026-07-28", f"{key}/clientCapabilities": {}}
            self.headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            self.headers.pop("mcp-name", None)
            if "name" in params:
                self.headers["mcp-name"] = params["name"]
        return await self.post({"id": 1, "method": method, "params": params})

    async def post(self, message):
        return await self.web.post(self.url, json={"jsonrpc": "2.0", **message}, headers=self.headers)
