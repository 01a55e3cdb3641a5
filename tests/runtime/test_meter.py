"""What metrics alone are told of a link: the same as observers are, without a value for what is usual."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from ferrule import Client, Observer, Server, ToolError
from ferrule.protocol.foreign import Foreign
from ferrule.runtime.meter import LinkMeter
from ferrule.runtime.watch import LinkWatch
from ferrule.telemetry.observer import ObservedRequest, Outcome
from ferrule.testing import ERAS
from ferrule.wire.channel import Origin

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
        assert not any(tool == "nobody" for _, tool, _ in found)

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


def test_pings_are_counted_as_requests_of_ours() -> None:
    async def scene() -> None:
        app = new_app(keepalive_interval=0.02)
        async with Client(app, mode="handshake"):
            asked = app.metrics.histogram("mcp_client_operation_duration_seconds").children
            while not any(labels[0] == "ping" and child.count >= 2 for labels, child in asked.items()):
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scene(), 60))
