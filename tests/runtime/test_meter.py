"""What metrics alone are told of a link: the same as observers are, without a value for what is usual."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from ferrule import Client, Context, Observer, PeerError, Server, ToolError
from ferrule.errors import LinkLost
from ferrule.protocol.foreign import Foreign
from ferrule.runtime.meter import LinkMeter
from ferrule.runtime.watch import LinkWatch
from ferrule.telemetry.observer import ObservedRequest, Outcome
from ferrule.testing import ERAS
from ferrule.wire.channel import Origin
from ferrule.wire.messages import Success

SERVED = "mcp_server_operation_duration_seconds"


class Other(Observer):
    """Wants to know of requests too, so that values must be made."""

    def request_finished(self, request: ObservedRequest, outcome: Outcome) -> None:
        pass


def counts(app: Server) -> dict[tuple[str, str, str], int]:
    """Return how many requests there were, by method, tool and `error.type`."""
    found: dict[tuple[str, str, str], int] = {}
    for (method, tool, failure, _, _), histogram in app.metrics.histogram(SERVED).children.items():
        key = (method, tool, failure)
        found[key] = found.get(key, 0) + histogram.count
    return found


def new_app(**options: Any) -> Server:
    app = Server("app", metrics=True, **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def several() -> list[str]:
        return ["a", "b"]

    @app.tool
    async def fail() -> None:
        raise ToolError("no")

    @app.tool
    async def hold() -> None:
        await asyncio.Event().wait()

    return app


def test_a_server_with_metrics_alone_makes_no_values() -> None:
    async def scene() -> None:
        alone, beside = new_app(), new_app(observer=Other())
        assert isinstance(alone.link(Origin("test")).watch, LinkMeter)
        assert isinstance(beside.link(Origin("test")).watch, LinkWatch)
        assert Server("plain").link(Origin("test")).watch is None

    asyncio.run(scene())


@pytest.mark.parametrize("era", ERAS)
def test_a_value_is_made_only_of_a_request_that_did_not_end_well(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    make = LinkWatch.request

    def request(self: LinkWatch, call: Any, began: float) -> ObservedRequest:
        made.append(call.row.name)
        return make(self, call, began)

    async def scene() -> None:
        monkeypatch.setattr(LinkWatch, "request", request)
        async with Client(new_app(), mode=era) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            await client.call_tool("several")
            await client.list_tools()
            assert made == []
            with pytest.raises(ToolError):
                await client.call_tool("fail")
            assert made == ["tools/call"]

    asyncio.run(scene())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("observer", [None, Other()])
def test_requests_are_counted_by_how_they_ended(era: str, observer: Observer | None) -> None:
    async def scene() -> None:
        app = new_app(observer=observer)
        async with Client(app, mode=era) as client:
            for _ in range(3):
                await client.call_tool("add", {"a": 1, "b": 2})
            await client.call_tool("several")
            with pytest.raises(ToolError):
                await client.call_tool("fail")
            with pytest.raises(Exception, match="nknown"):
                await client.call_tool("nobody")
            with pytest.raises(Exception, match="no answer"):
                await client.call_tool("hold", timeout=0.05)
            await client.list_tools()
        found = counts(app)
        assert found["tools/call", "add", ""] == 3
        assert found["tools/call", "several", ""] == 1
        assert found["tools/call", "fail", "tool_error"] == 1
        assert found["tools/call", "hold", "cancelled"] == 1
        assert found["tools/list", "", ""] == 1
        assert found["tools/call", "", "-32602"] == 1
        assert not any(tool == "nobody" for _, tool, _ in found)
        added = [
            (labels[4], histogram)
            for labels, histogram in app.metrics.histogram(SERVED).children.items()
            if labels[1] == "add"
        ]
        ((revision, histogram),) = added
        assert revision == client.protocol_version
        assert 0 < histogram.sum < 60

    asyncio.run(scene())


def test_sessions_are_counted_and_timed_and_those_without_a_session_are_not() -> None:
    async def scene() -> None:
        app = new_app()
        sessions = app.metrics.gauge("ferrule_sessions").labels("test")
        opened = app.metrics.counter("ferrule_sessions_opened_total").labels("test")
        own = app.link(Origin("test")).watch
        assert isinstance(own, LinkMeter)
        own.ponged(alive=False, closed=True)
        own.closed(None)
        assert (sessions.value, opened.value) == (0, 0)
        shared = LinkMeter(own._observer, own._usual.transport, own._session, shared=True)
        context = copy_context()
        assert shared.opened(context) is context
        shared.closed(None)
        assert (sessions.value, opened.value) == (0, 0)
        assert own.opened(context) is context
        assert (sessions.value, opened.value) == (1, 1)
        own.closed(None)
        assert (sessions.value, opened.value) == (0, 1)
        (lasted,) = app.metrics.histogram("mcp_server_session_duration_seconds").children.values()
        assert lasted.count == 1
        assert 0 < lasted.sum < 60

    asyncio.run(scene())


def test_a_call_runs_in_the_context_of_its_link_and_its_reply_is_left_as_it_is() -> None:
    async def scene() -> None:
        meter = new_app().link(Origin("test")).watch
        assert isinstance(meter, LinkMeter)
        context = copy_context()
        call: Any = SimpleNamespace(observed=None)
        assert meter.begun(call, context) is context
        reply = Success(1, Raw(b"{}"))
        assert meter.encoded(call, reply) is reply

    asyncio.run(scene())


def test_a_call_that_waits_for_its_turn_is_timed_from_its_admission() -> None:
    async def scene() -> None:
        app = new_app(max_concurrent_per_session=1)
        begun, go_on = asyncio.Event(), asyncio.Event()

        @app.tool
        async def block() -> None:
            begun.set()
            await go_on.wait()

        async with Client(app, mode="stateless") as client:
            blocking = asyncio.create_task(client.call_tool("block"))
            await begun.wait()
            adding = asyncio.create_task(client.call_tool("add", {"a": 1, "b": 2}))
            with pytest.raises(Exception, match="no answer"):
                await client.call_tool("several", timeout=0.1)
            go_on.set()
            await asyncio.gather(blocking, adding)
        found = counts(app)
        assert found["tools/call", "block", ""] == 1
        assert found["tools/call", "add", ""] == 1
        assert found["tools/call", "", "cancelled"] == 1
        for labels, histogram in app.metrics.histogram(SERVED).children.items():
            if labels[0] == "tools/call":
                assert 0.05 < histogram.sum < 60

    asyncio.run(scene())


@pytest.mark.parametrize("era", ERAS)
def test_refusals_and_notifications_are_counted(era: str) -> None:
    async def scene() -> None:
        app = new_app()
        async with Client(app, mode=era) as client:
            with pytest.raises(PeerError):
                await client.request("vendor/nothing")
            await client.notify("notifications/roots/list_changed")
            await client.call_tool("add", {"a": 1, "b": 2})
        assert app.metrics.counter("ferrule_refusals_total").labels("unknown_method").value == 1
        assert app.metrics.counter("ferrule_notifications_total").labels("roots/list_changed").value == 1

    asyncio.run(scene())


def test_questions_of_a_server_are_counted_as_requests_of_ours() -> None:
    async def scene() -> None:
        app = new_app()

        @app.tool
        async def ask(ctx: Context) -> str:
            return str(await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}}))

        async with Client(app, mode="handshake", elicitation=lambda asked: {"name": asked.message}) as client:
            assert "Who?" in (await client.call_tool("ask")).text
        asked = app.metrics.histogram("mcp_client_operation_duration_seconds").children
        assert [(labels[0], labels[2], child.count) for labels, child in asked.items()] == [
            ("elicitation/create", "", 1)
        ]

    asyncio.run(scene())


@pytest.mark.parametrize("era", ERAS)
def test_the_result_of_another_server_is_read(era: str) -> None:
    """What our own tools write has ended well; what is passed on may say that it has not."""

    async def relay(call: Any, proceed: Any) -> Any:
        if call.method != "tools/call":
            return await proceed(call)
        written = b'{"content":[{"type":"text","text":"no"}],"isError":true}'
        return Foreign(Raw(written), call.peer.revision.version)

    async def scene() -> None:
        app = new_app(middleware=[relay])
        async with Client(app, mode=era) as client:
            with pytest.raises(ToolError):
                await client.call_tool("add", {"a": 1, "b": 2})
        assert counts(app)["tools/call", "add", "tool_error"] == 1

    asyncio.run(scene())


def test_a_request_of_ours_that_could_not_be_sent_is_counted() -> None:
    async def scene() -> None:
        app = new_app()
        meter = app.link(Origin("test")).watch
        assert isinstance(meter, LinkMeter)
        awaited: Any = SimpleNamespace(
            id=1, method="ping", channel=None, waiter=asyncio.get_running_loop().create_future()
        )
        params = {"a": 1}
        assert meter.sent(awaited, params) is params
        meter.not_sent(awaited, LinkLost("gone"))
        asked = app.metrics.histogram("mcp_client_operation_duration_seconds").children
        assert [(labels[0], labels[2], child.count) for labels, child in asked.items()] == [("ping", "lost", 1)]

    asyncio.run(scene())


def test_pings_are_counted_as_requests_of_ours() -> None:
    async def scene() -> None:
        app = new_app(keepalive_interval=0.02)
        async with Client(app, mode="handshake"):
            asked = app.metrics.histogram("mcp_client_operation_duration_seconds").children
            while not any(labels[0] == "ping" and child.count >= 2 for labels, child in asked.items()):
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scene(), 60))
