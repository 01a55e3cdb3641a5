"""Probes of how long a message may be on each transport, and of what is read, remembered and repeated of it."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from msgspec import Raw
from probes_wire import MODERN, Ear, Met, introduction, written
from table import no_bound, probe

from ferrule import Client, Context, Server
from ferrule.budgets.weight import full_weight
from ferrule.errors import EncodeError, FerruleError, SetupError
from ferrule.schema import model
from ferrule.server.calls.context import text_of
from ferrule.server.hosting import builtins
from ferrule.transports.http.asgi.app import AsgiApp
from ferrule.transports.http.client.options import HttpOptions
from ferrule.transports.http.settings import EndpointSettings
from ferrule.transports.memory import Memory
from ferrule.transports.process.child import ChildProcess
from ferrule.transports.process.stdio import Stdio, StdioSettings
from ferrule.transports.tcp.settings import TcpSettings
from ferrule.transports.websocket.settings import WebSocketSettings
from ferrule.wire.channel import Origin
from ferrule.wire.codec import Rejected, read
from ferrule.wire.framing import FramingLost
from ferrule.wire.header_block import AutoFramer, HeaderFramer
from ferrule.wire.messages import Request


def long_ping(size: int) -> bytes:
    """Return a ping of so many bytes."""
    empty = written("ping", {"a": ""})
    return empty.replace(b'""', b'"%b"' % (b"x" * (size - len(empty))))


@probe("ferrule.wire.codec.MAX_MESSAGE_SIZE", lowered=10_000)
async def a_message(limit: int, size: int) -> bool:
    return not isinstance(read(long_ping(size), limit), Rejected)


async def called_over_http(served: AsgiApp, body: bytes) -> bytes:
    """Call the tool `words` of a server over HTTP; returns the answer."""
    headers = [
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        (b"mcp-protocol-version", b"2026-07-28"),
        (b"mcp-method", b"tools/call"),
        (b"mcp-name", b"words"),
        (b"host", b"127.0.0.1"),
        (b"content-length", str(len(body)).encode()),
    ]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers}
    heard: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(event: Any) -> None:
        heard.append(event)

    await served({**scope, "asgi": {"version": "3.0"}, "client": ("127.0.0.1", 1)}, receive, send)
    return b"".join(event["body"] for event in heard[1:])


WORDS_CALLED = written("tools/call", {"name": "words", "_meta": MODERN})


@probe("EndpointSettings(max_body_size=…)", lowered=2000)
async def a_body(limit: int, size: int) -> bool:
    said = ""
    app = Server("s")

    @app.tool
    def words():  # type: ignore[no-untyped-def] # and so without structured content
        return said

    served = app.asgi(max_body_size=limit)
    shortest = await called_over_http(served, WORDS_CALLED)
    asked = await called_over_http(served, WORDS_CALLED.ljust(size))
    said = "x" * (size - len(shortest))
    answered = await called_over_http(served, WORDS_CALLED)
    await served.stop()
    assert len(answered) <= limit
    assert (len(answered) == size) is (asked == shortest)
    return bool(asked == shortest)


@probe("StdioSettings(max_message_size=…)", lowered=2000)
async def a_line_of_stdin(limit: int, size: int) -> bool:
    read_fd, to_server = os.pipe()
    from_server, write_fd = os.pipe()
    with tempfile.TemporaryFile() as asked:
        asked.write(introduction("2025-11-25") + b"\n" + long_ping(size) + b"\n")
        asked.seek(0)
        os.dup2(asked.fileno(), read_fd)
        served = Stdio(max_message_size=limit, read_fd=read_fd, write_fd=write_fd)
        await served.serve(Server("s").host, lambda: None)
    answers = os.read(from_server, 100_000).splitlines()
    for fd in (read_fd, to_server, from_server, write_fd):
        os.close(fd)
    return "result" in json.loads(answers[-1])


class Heard:
    """A receiver that keeps the frames it is handed."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.refused = 0

    def channel_opened(self, channel: object) -> None: ...

    def frame_received(self, frame: bytes, channel: object) -> None:
        self.frames.append(frame)

    def frame_refused(self, max_size: int, channel: object, head: bytes = b"") -> None:
        self.refused += 1

    def end_received(self, channel: object) -> None: ...

    def channel_lost(self, channel: object, error: Exception | None) -> None: ...


@probe("ChildProcess(max_message_size=…)", lowered=2000)
async def a_line_of_a_child(limit: int, size: int) -> bool:
    heard = Heard()
    with tempfile.NamedTemporaryFile() as said:
        said.write(long_ping(size) + b"\n")
        said.flush()
        child = ChildProcess(["cat", said.name], max_message_size=limit)
        channel = await child.connect(heard)  # type: ignore[arg-type]
        await channel.wait_lost()
        await child.close()
    assert len(heard.frames) + heard.refused == 1
    return heard.refused == 0


@probe("Memory(max_message_size=…)", lowered=2000)
async def a_message_in_memory(limit: int, size: int) -> bool:
    app = Server("s")
    text = "x" * (size - len(b'{"a":""}'))
    memory = Memory(app, max_message_size=limit)
    heard = Heard()
    channel = await memory.connect(heard)  # type: ignore[arg-type]
    try:
        channel.send(Request(1, "ping", {"a": text}))
    except EncodeError:
        return False
    finally:
        await memory.close()
    return True


def settable(size: int) -> bool:
    """Return whether the longest message can be set to this, which must be the same on every transport."""
    ways: list[Any] = [
        lambda: StdioSettings(max_message_size=size),
        lambda: TcpSettings(max_message_size=size),
        lambda: WebSocketSettings(max_message_size=size),
        lambda: EndpointSettings(max_body_size=size),
        lambda: HttpOptions(max_message_size=size),
        lambda: ChildProcess(["cat"], max_message_size=size),
        lambda: Memory(Server("s"), max_message_size=size),
    ]
    taken = 0
    for way in ways:
        try:
            way()
        except SetupError:
            continue
        taken += 1
    assert taken in (0, len(ways))
    return taken > 0


@probe("ferrule.settings.option.MOST_MESSAGE_SIZE")
async def the_most(limit: int, size: int) -> bool:
    return settable(size)


@probe("ferrule.settings.option.LEAST_MESSAGE_SIZE")
async def the_least(limit: int, size: int) -> bool:
    return settable(2 * limit - size)  # as much below the limit as the size is above it


@probe("ferrule.protocol.session.MAX_ID")
async def our_ids(limit: int, size: int) -> bool:
    met = Met()
    met.link.session.next_id = size
    try:
        return met.link.session.expect("ping", None, 0.0).id == size
    except FerruleError:
        return False


@probe("ferrule.errors.MAX_QUOTE", clamps=True)
async def a_quote(limit: int, size: int) -> bool:
    return "t" * size in str(Met().say(written("tools/call", {"name": "t" * size})))


def unreadable(filling: int) -> bytes:
    """Return a request that is no JSON and has its id behind everything else."""
    return b'{"jsonrpc":"2.0","method":"ping","params":{"a":NaN,"b":"%b"},"id":7}' % (b"x" * filling)


@probe("ferrule.wire.rescue.MAX_READ_AGAIN", clamps=True)
async def a_late_id(limit: int, size: int) -> bool:
    answer = Met().say(unreadable(size - len(unreadable(0))))
    return bool(answer.get("id") == 7)


@probe("ferrule.wire.messages.HEAD_SIZE", clamps=True)
async def an_id_in_the_head(limit: int, size: int) -> bool:
    head = b'{"jsonrpc":"2.0","method":"%b","id":7,'
    filled = head % (b"m" * (size - len(head % b"")))
    answer = Met().say(filled + b'"params":{"a":NaN,"b":"%b"}}' % (b"x" * 20_000))
    return bool(answer.get("id") == 7)


class Unwritable:
    """What JSON has no form for, with a text."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __str__(self) -> str:
        return "x" * self.size


@probe("ferrule.server.calls.context.MAX_TEXT", clamps=True)
async def a_logged_value(limit: int, size: int) -> bool:
    assert len(text_of("\ud800" * size)) <= limit  # each is written as an escape
    app = Server("s")
    logged: list[Any] = []

    @app.tool
    async def work(ctx: Context) -> None:
        await ctx.info(Unwritable(size))

    async with Client(app, mode="handshake", log_level="info") as client:
        client.on_log(lambda level, data, logger: logged.append(data))
        await client.call_tool("work")
        while not logged:
            await asyncio.sleep(0)
    return logged == ["x" * size]


def length_prefixed(block: bytes) -> bool:
    """Return whether the message behind a block of headers is read."""
    try:
        return HeaderFramer().feed(block + b"{}") == [b"{}"]
    except FramingLost:
        return False


@probe("ferrule.wire.header_block.MAX_HEADER_SIZE")
async def a_header_block(limit: int, size: int) -> bool:
    block = b"Content-Length: 2\r\nX: %b\r\n\r\n"
    return length_prefixed(block % (b"x" * (size - len(block % b""))))


@probe("ferrule.wire.header_block.MAX_HEADER_NAME_SIZE")
async def a_header_name(limit: int, size: int) -> bool:
    name = b"X" * size
    frames: list[Any] = []
    framers = AutoFramer(), AutoFramer()
    framers[0].feed(name + b": a\r\n")
    for piece in (name, b": a\r\n"):
        framers[1].feed(piece)
    for framer in framers:
        frames.append(isinstance(framer.framer, HeaderFramer))
    assert frames[0] == frames[1]
    return bool(frames[0])


no_bound(
    "ferrule.budgets.collector.LONG",
    "a threshold that only chooses the faster way of two with the same outcome",
)


@contextmanager
def no_metas() -> Iterator[None]:
    """Forget the texts of `_meta` that were read before."""
    with mock.patch.dict(model._metas, clear=True), mock.patch.object(model, "_last_meta", [Raw(b""), None]):
        yield


@probe("ferrule.schema.model.MOST_METAS", clamps=True, lowered=20)
async def remembered_metas(limit: int, size: int) -> bool:
    with mock.patch.object(model, "MOST_METAS", limit), no_metas():
        met = Met("")
        for number in range(size):
            assert "result" in met.say(written("tools/list", {"_meta": {**MODERN, "n": number}}))
            assert len(model._metas) <= limit
        return len(model._metas) == size


@probe("ferrule.schema.model.HEAVIEST_META", clamps=True)
async def a_heavy_meta(limit: int, size: int) -> bool:
    with no_metas():
        light = json.dumps({**MODERN, "a": ""}, separators=(",", ":")).encode()
        more = -(-(size - full_weight(light)) // 2)
        meta = light[:-2] + b"x" * more + light[-2:]
        Met("").say(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%b}}' % meta)
        return len(model._metas) == 1


def introductions(app: Server) -> int:
    """Return how many introductions of clients a server remembers."""
    return len(app.host.dispatcher.instant["initialize"].__self__._met)  # type: ignore[attr-defined]


def introduce(app: Server, name: bytes) -> bytes:
    """Let a client with this name introduce itself; returns the text that is remembered of it."""
    params = b'{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"%b","version":"1"}}' % name
    link = app.link(Origin("test"))
    ear = Ear()
    link.channel_opened(ear)
    link.frame_received(b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":%b}' % params, ear)
    link.channel_lost(ear, None)
    return params


@probe("ferrule.server.hosting.builtins.MOST_MET", clamps=True, lowered=5)
async def remembered_introductions(limit: int, size: int) -> bool:
    app = Server("s", keepalive_interval=None)
    with mock.patch.object(builtins, "MOST_MET", limit):
        for number in range(size):
            introduce(app, b"%d" % number)
            assert introductions(app) <= limit
    return introductions(app) == size


@probe("ferrule.server.hosting.builtins.HEAVIEST_MET", clamps=True)
async def a_heavy_introduction(limit: int, size: int) -> bool:
    app = Server("s", keepalive_interval=None)
    least = full_weight(introduce(Server("s"), b""))
    introduce(app, b"x" * -(-(size - least) // 2))
    return introductions(app) == 1
