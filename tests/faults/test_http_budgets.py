"""What a hostile peer of an HTTP server holds: bodies, answers, sessions and events, over all its connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from http_mcp import MIB, Answer, Bystander, Client, Process, Way, serving
from pace import prompt

PATIENCE = 180.0
SMALL = 4096
"""A receive buffer that fills at once."""
MOST = 64.0
"""MiB a server may take more than before, whatever is asked of it."""
SLACK = 24.0
"""MiB the allocator may keep of what was given back."""
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def run(work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    asyncio.run(asyncio.wait_for(work(*args), PATIENCE))


def most(server: Process) -> float:
    """Return the most memory the server ever had, in MiB."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


async def warmed(server: Process, era: str) -> float:
    """Let a server do once what it will do often. Return how much memory it has then."""
    async with Client(server.port, era) as client:
        for _ in range(20):
            assert (await client.call("echo", text="warm")).text == "warm"
        assert (await client.call("echo", text="x" * MIB)).text
    await asyncio.sleep(0.3)
    return server.rss()


async def let_go(server: Process, before: float) -> None:
    """Wait until the server has given back what it took: five seconds, with room for the machine."""
    until = time.monotonic() + prompt(5.0)
    while server.rss() - before > SLACK:
        assert time.monotonic() < until, f"{server.rss() - before:.0f} MiB are still held"
        await asyncio.sleep(0.1)


def head(era: str, size: int, session: str = "") -> bytes:
    """Write the head of a POST of so many bytes."""
    headers = dict(HEADERS)
    if era == "stateless":
        headers |= {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
    elif session:
        headers["Mcp-Session-Id"] = session
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {size}\r\n\r\n".encode()


async def feed(way: Way, part: bytes) -> None:
    """Send a part of a body to a server that may have hung up."""
    if way.writer.transport.is_closing() or way.reader.at_eof():
        return
    with contextlib.suppress(OSError):
        way.writer.write(part)
        await asyncio.wait_for(way.writer.drain(), 5.0)


def test_bodies_that_trickle_in_take_a_bounded_share_of_memory(era: str) -> None:
    """BUD-09: 60 connections send 8 MB each, a little at a time; nobody else waits, and all is given back."""

    async def trickle(server: Process) -> None:
        before = await warmed(server, era)
        async with Bystander(server.port, era) as bystander:
            ways = [await Way.open(server.port) for _ in range(60)]
            for way in ways:
                way.writer.write(head(era, 8_000_000))
            for _ in range(122):
                await asyncio.gather(*(feed(way, b"x" * 65_536) for way in ways))
            assert most(server) - before < MOST
            assert bystander.worst < prompt(1.0)
            for way in ways:
                way.writer.transport.abort()
            await let_go(server, before)

    with serving() as server:
        run(trickle, server)


def test_events_of_slow_readers_are_bounded_together_with_what_they_have_not_taken() -> None:
    """100 streams of sessions, 2 MB each, that nobody reads: kept for their return, and waiting to be written."""

    async def stall(server: Process) -> None:
        before = await warmed(server, "handshake")
        async with contextlib.AsyncExitStack() as stack:
            ways: list[Way] = []
            for number in range(100):
                client = await stack.enter_async_context(Client(server.port))
                await client.begin_call("flood", receive_buffer=SMALL, name=f"{number}", count=1, size=2_000_000)
                ways += client.ways
                client.ways[-1].reader._transport.pause_reading()  # type: ignore[attr-defined]
                assert (await client.call("echo", text="here")).text == "here"
            assert most(server) - before < MOST
            for way in ways:
                way.writer.transport.abort()

    with serving() as server:
        run(stall, server)


def test_a_body_can_be_sent_while_others_hold_all_there_is_for_bodies(era: str) -> None:
    """Whoever holds most is shed: three bodies that never end keep nobody out."""

    async def squat(server: Process) -> None:
        async with Client(server.port, era) as client:
            ways = [await Way.open(server.port) for _ in range(6)]
            for way in ways:
                way.writer.write(head(era, 16_000_000))
                for _ in range(200):
                    await feed(way, b"x" * 65_536)
            text = "x" * 2_000_000
            assert (await client.call("echo", text=text)).text == text
            for way in ways:
                await way.close()

    with serving() as server:
        run(squat, server)


def test_a_flood_of_handshakes_ends_nobody_elses_session() -> None:
    """BUD-14: one connection opens more sessions than are kept; those in use stay, and memory is bounded."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()

    async def flood(server: Process) -> None:
        before = await warmed(server, "handshake")
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client(server.port)) for _ in range(20)]
            way = await Way.open(server.port)
            request = head("handshake", len(body)) + body
            for _ in range(60):
                way.writer.write(request * 100)
                found = 0
                while found < 100:
                    found += (await way.reader.readuntil(b'"id":1')).count(b'"id":1')
            assert most(server) - before < MOST
            for client in clients:
                assert (await client.call("echo", text="still here")).text == "still here"
            await way.close()

    with serving({"max_sessions": 2000}) as server:
        run(flood, server)


def test_a_flood_of_events_pushes_out_nobody_elses() -> None:
    """BUD-13: another session's reader still finds what it missed."""

    async def flood(server: Process) -> None:
        async with Client(server.port) as quiet, Client(server.port) as loud, Client(server.port) as louder:
            before = server.rss()
            missed: Answer = await quiet.begin_call("flood", name="quiet", count=3, size=10)
            await (await missed.head()).until(1)
            for number in range(32):
                flooding = louder if number % 2 else loud
                answer = await flooding.call("flood", name=f"loud {number}", count=4, size=900_000)
                assert answer.is_stream
            assert server.rss() - before < MOST
            first = next(event.id for event in missed.events if event.data)
            resumed = await (await quiet.get(first)).whole()
            assert [message["params"]["data"]["n"] for message in resumed.messages[:-1]] == [1, 2]
            assert resumed.text == "quiet"

    with serving() as server:
        run(flood, server)
