"""How each carrier marks where a message ends, seen from a peer that knows bytes only."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import tempfile
from contextlib import asynccontextmanager
from typing import Any

import pytest
from every_way import every_way
from our_carriers import certificate

from ferrule import Server
from ferrule.transports.websocket.frames import FIN, MASKED, TEXT, apply_mask, frame_head

PATIENCE = 60
PING = b'{"jsonrpc":"2.0","id":"\xc3\xa9","method":"ping"}'
PONG = {"jsonrpc": "2.0", "id": "é", "result": {}}
KEY = b"\x01\x02\x03\x04"
SERVER = "from ferrule import Server; Server('framed', init_timeout=None).run()"


@asynccontextmanager
async def served(listener: Any) -> Any:
    """Let a listener serve, and end it."""
    app, ready = Server("framed", init_timeout=None), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    try:
        await asyncio.wait_for(ready.wait(), PATIENCE)
        yield listener
    finally:
        await app.stop(0.0)
        await serving


async def reach(name: str, folder: str, listener: Any) -> Any:
    """Open a plain connection to a listener."""
    if name == "unix":
        return await asyncio.open_unix_connection(f"{folder}/s")
    context = None
    if name == "tls":
        context = ssl.create_default_context(cafile=certificate()[0])
    named = "localhost" if context else None
    return await asyncio.open_connection("127.0.0.1", listener.address[1], ssl=context, server_hostname=named)


async def lines(reader: Any, writer: Any) -> None:
    """A line each, ended by one LF; several in one write, and one in several, are the same."""
    writer.write(PING + b"\n" + PING + b"\r\n" + PING[:20])
    await asyncio.sleep(0.05)
    writer.write(PING[20:] + b"\n")
    for _ in range(3):
        answer = await reader.readline()
        assert answer.endswith(b"}\n")
        assert json.loads(answer) == PONG


async def bodies(reader: Any, writer: Any) -> None:
    """The body of a request, and of its answer, as long as Content-Length says; a line feed in it means nothing."""
    body = b",\n".join(
        [
            b'{"jsonrpc":"2.0","id":"\xc3\xa9","method":"initialize","params":{"protocolVersion":"2025-11-25"',
            b'"capabilities":{}',
            b'"clientInfo":{"name":"raw","version":"1"}}}',
        ]
    )
    head = (
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert b"content-type: application/json" in answer
    length = int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    said = json.loads(await reader.readexactly(length))
    assert (said["id"], said["result"]["protocolVersion"]) == ("é", "2025-11-25")


async def frames(reader: Any, writer: Any) -> None:
    """A frame of text each; one that is not UTF-8 ends the WebSocket."""
    writer.write(
        b"GET /mcp/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    for payload in (PING, PING.replace(b"\xc3\xa9", b"\xff")):
        writer.write(frame_head(FIN | TEXT, len(payload), MASKED) + KEY + apply_mask(payload, KEY))
    first, size = await reader.readexactly(2)
    assert first == FIN | TEXT
    assert json.loads(await reader.readexactly(size)) == PONG
    first, size = await reader.readexactly(2)
    assert (first, (await reader.readexactly(size))[:2]) == (0x88, b"\x03\xef")


async def events(reader: Any, writer: Any) -> None:
    """An event each: its lines of data, then a blank line."""
    writer.write(b"GET /sse HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert b"content-type: text/event-stream" in head
    event = b""
    while b"data:" not in event or not event.endswith(b"\n\n\r\n"):
        event += await reader.readline()
    where = event.partition(b"data: ")[2].partition(b"\n")[0].decode()
    request = f"POST {where} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    host, port = writer.get_extra_info("peername")
    other_reader, other = await asyncio.open_connection(host, port)
    other.write(request.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(PING), PING))
    assert b" 202 " in await other_reader.readline()
    event = b""
    while b"result" not in event or not event.endswith(b"\n\n\r\n"):
        event += await reader.readline()
    said = event.partition(b"event: message\n")[2].partition(b"data: ")[2]
    assert json.loads(said.partition(b"\n\n")[0]) == PONG
    other.close()


CARRIERS = {"tcp": lines, "tls": lines, "unix": lines, "http": bodies, "websocket": frames, "sse": events}


@pytest.mark.parametrize("name", CARRIERS)
def test_fram_09_each_carrier_has_its_own_framing(name: str) -> None:
    """FRAM-09: lines on sockets, bodies over HTTP, frames on a WebSocket, events on a stream."""

    async def test() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with served(every_way(folder)[name].listener) as listener:
                reader, writer = await reach(name, folder, listener)
                await CARRIERS[name](reader, writer)
                writer.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def test_fram_09_stdio_is_framed_in_lines() -> None:
    """FRAM-09."""

    async def test() -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, stdin=pipe, stdout=pipe)
        await lines(process.stdout, process.stdin)
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()

    asyncio.run(asyncio.wait_for(test(), PATIENCE))
