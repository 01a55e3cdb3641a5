"""Probes of what the middleware that comes with Ferrule remembers, lets wait and writes."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from probes_wire import Ear, introduction, written
from table import period, probe

from ferrule import Client, PeerError, Server
from ferrule.schema.tools import ToolAnnotations
from ferrule.server.middleware.cache import Caching
from ferrule.server.middleware.concurrency import Concurrency
from ferrule.server.middleware.logs import HIDDEN, Logging
from ferrule.server.middleware.rate_limit import RateLimit
from ferrule.server.middleware.timing import OTHERS, Timing
from ferrule.wire.channel import Origin


def echoing(layer: object, text: str = "x", **options: Any) -> Server:
    """Return a server with a layer and a tool that takes anything."""
    app = Server("s", middleware=[layer], **options)

    @app.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def echo(value: Any = None) -> Any:
        return text

    return app


@probe("RateLimit(max_keys=…)", lowered=5, clamps=True)
async def remembered_callers(limit: int, size: int) -> bool:
    callers = iter(range(10**9))
    layer = RateLimit("1/min", by=lambda call: next(callers), max_keys=limit)
    async with Client(echoing(layer), mode="handshake") as client:
        for _ in range(size):
            await client.call_tool("echo")
    return sum(map(len, layer._quotas)) == size


@probe("Concurrency(max_waiting=…)", lowered=3)
async def calls_in_turn(limit: int, size: int) -> bool:
    app = Server("s", middleware=[Concurrency(2, max_waiting=limit)], max_concurrent_per_session=10**6)

    @app.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    async with Client(app, mode="handshake", tool_timeout=None) as client:
        calls = [asyncio.ensure_future(client.call_tool("wait")) for _ in range(2 + size)]
        for _ in range(100):  # the loop turns now and then between calls
            await asyncio.sleep(0)
        refusals = [call.exception() for call in calls if call.done()]
        assert all(isinstance(refusal, PeerError) and "Busy" in str(refusal) for refusal in refusals)
        assert len(refusals) == max(0, size - limit)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
    return not refusals


@period("Caching(ttl=…)", lowered=60.0)
async def a_cached_result(lasts: float, seconds: float) -> bool:
    layer = Caching(lasts, clock=asyncio.get_running_loop().time)
    async with Client(echoing(layer), mode="handshake") as client:
        await client.call_tool("echo")
        await asyncio.sleep(seconds)
        await client.call_tool("echo")
    return layer.hits == 1


@probe("Caching(max_entries=…)", lowered=5, clamps=True)
async def cached_results(limit: int, size: int) -> bool:
    layer = Caching(max_entries=limit)
    async with Client(echoing(layer), mode="handshake") as client:
        for number in range(size):
            await client.call_tool("echo", {"value": number})
    assert layer.entries <= limit
    return layer.entries == size


@probe("Caching(max_bytes=…)", lowered=10_000, clamps=True)
async def bytes_of_cached_results(limit: int, size: int) -> bool:
    shortest = Caching()
    async with Client(echoing(shortest, ""), mode="handshake") as client:
        await client.call_tool("echo")
    half = (size - 2 * shortest.size) // 2
    layer = Caching(max_bytes=limit)
    texts = iter(("x" * half, "x" * (size - 2 * shortest.size - half)))
    app = Server("s", middleware=[layer])

    @app.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def echo(value: Any = None) -> Any:
        return next(texts)

    async with Client(app, mode="handshake") as client:
        for number in range(2):
            await client.call_tool("echo", {"value": number})
            assert layer.size <= limit
    return layer.size == size


@probe("Timing(max_names=…)", lowered=5, clamps=True)
async def timed_names(limit: int, size: int) -> bool:
    layer = Timing(max_names=limit)
    app = Server("s", middleware=[layer])
    app.add_resource("a://{name}", lambda name: "x")
    async with Client(app, mode="handshake") as client:
        layer.times.clear()  # of the handshake
        for number in range(size):
            await client.read_resource(f"a://{number}")
    names = [name for _, name in layer.times if name != OTHERS]
    assert len(names) <= limit
    return len(names) == size


class Lines(logging.Handler):
    """Keeps the records of a logger of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []
        self.logger = logging.Logger("lines")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


async def logged(arguments: Any, max_payload: int = 10**9) -> str:
    """Return what is logged of the arguments of a call."""
    lines = Lines()
    layer = Logging(lines.logger, payloads=True, max_payload=max_payload)
    async with Client(echoing(layer), mode="handshake") as client:
        await client.call_tool("echo", arguments)
    return str(lines.records[-1].arguments)


@probe("Logging(max_payload=…)", lowered=1000, clamps=True)
async def logged_characters(limit: int, size: int) -> bool:
    empty = {"value": ""}
    arguments = {"value": "x" * (size - len(json.dumps(empty, separators=(",", ":"))))}
    return await logged(arguments, limit) == json.dumps(arguments, separators=(",", ":"))


@probe("ferrule.server.middleware.logs.MAX_READ", clamps=True)
async def arguments_read_for_the_log(limit: int, size: int) -> bool:
    arguments = {"value": "x" * (min(size, 2 * limit) - len(b'{"value":""}'))}
    return "bytes)" not in await logged(arguments)


@probe("ferrule.server.middleware.logs.MAX_FACT", clamps=True)
async def a_fact_of_a_line(limit: int, size: int) -> bool:
    lines = Lines()
    app = Server("s", middleware=[Logging(lines.logger)])
    app.add_resource("a://{name}", lambda name: "x")
    length = min(size, 4000)  # an id that is longer is refused
    uri = "a://".ljust(length, "b")
    ear = Ear()
    link = app.link(Origin("test", principal="p" * length))
    link.channel_opened(ear)
    link.frame_received(introduction("2025-11-25"), ear)
    link.frame_received(written("resources/read", {"uri": uri}, "i" * length), ear)
    while len(ear.heard) < 2:
        await asyncio.sleep(0)
    link.channel_lost(ear, None)
    record = lines.records[-1]
    facts = [record.target == uri, record.request_id == "i" * length, record.principal == "p" * length]
    assert len(set(facts)) == 1
    return bool(facts[0])


@probe("ferrule.server.middleware.logs.MAX_DEPTH", clamps=True)
async def a_level_that_is_logged(limit: int, size: int) -> bool:
    levels = min(size, 500)
    value: Any = "deep"
    for _ in range(levels - 1):
        value = [value]
    shown = await logged({"value": value})
    assert (HIDDEN in shown) is ("deep" not in shown)
    return levels == size and "deep" in shown
