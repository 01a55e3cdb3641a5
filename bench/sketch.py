"""The flat sketch: the least a Python stdio server can do and still answer every call in a task of its own.

No sessions, no eras, no validation, no cancelling. It is not a peer but a yardstick, the floor of its rows: what the
product costs more than this on the same machine is what its features cost. A call that waits is a task and a timer, and
one of a plain function a task and a hand-over to a thread (`handover.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import uvloop
from handover import Worker
from servers.catalogue import STATIC_TEXT, STATIC_URI


class Params(msgspec.Struct, gc=False):
    """The parameters a call or a reading has; other methods' parameters are not looked at."""

    name: str = ""
    uri: str = ""
    arguments: dict[str, Any] = {}


class Incoming(msgspec.Struct, gc=False):
    """A request or a notification."""

    method: str
    id: int | str | None = None
    params: Params | None = None


class Text(msgspec.Struct, gc=False, tag_field="type", tag="text"):
    """A text block of a result."""

    text: str


class CallResult(msgspec.Struct, gc=False):
    """What a tool gave."""

    content: list[Text]
    structuredContent: dict[str, Any]


class Contents(msgspec.Struct, gc=False):
    """What one resource holds."""

    uri: str
    mimeType: str
    text: str


class ReadResult(msgspec.Struct, gc=False):
    """What was read."""

    contents: list[Contents]


class Answer(msgspec.Struct, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A response."""

    id: int | str
    result: Any


decode = msgspec.json.Decoder(Incoming).decode
encode = msgspec.json.Encoder().encode


async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def plus(a: int, b: int) -> int:
    """Add two integers, in a plain function."""
    return a + b


async def echo(text: str) -> str:
    """Return the text back."""
    return text


async def static() -> str:
    """Return a text that never changes."""
    return STATIC_TEXT


async def wait(ms: int) -> str:
    """Answer later."""
    await asyncio.sleep(ms / 1000)
    return "ok"


RESOURCES: dict[str, Callable[[], Any]] = {STATIC_URI: static}
TOOLS: dict[str, Callable[..., Any]] = {"add": add, "echo": echo, "wait": wait}


def _described(name: str, description: str) -> dict:
    fields = {
        "query": {"type": "string"},
        "limit": {"type": "integer", "default": 10},
        "exact": {"type": "boolean", "default": False},
        "labels": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
    }
    result = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": fields, "required": ["query"]},
        "outputSchema": result,
    }


def fixed_results(extra_tools: int) -> dict[str, msgspec.Raw]:
    """Encode once what never changes."""
    about = "Look something up in collection {}.\n\nGives the first entries that fit the query, as text."
    listed = [_described(name, "One of the first three.") for name in ("add", "add_sync", "echo")]
    listed += [_described(f"look_up_{number:04d}", about.format(number)) for number in range(extra_tools)]
    server = {"capabilities": {"tools": {}, "resources": {}}, "serverInfo": {"name": "flat-sketch", "version": "0"}}
    results = {
        "initialize": {"protocolVersion": "2025-11-25", **server},
        "server/discover": {"supportedVersions": ["2026-07-28"], **server},
        "tools/list": {"tools": listed},
        "ping": {},
    }
    return {method: msgspec.Raw(encode(result)) for method, result in results.items()}


READ_SIZE = 64 * 1024


def write_all(data: bytes) -> None:
    """Write to standard output, waiting for a slow reader."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(1, left) :]
        except BlockingIOError:
            select.select([], [1], [])


class Lines:
    """Requests in by the line; the answers of one turn of the loop out in one write."""

    def __init__(self, fixed: dict[str, msgspec.Raw]) -> None:
        self.loop = asyncio.get_running_loop()
        self.ended = self.loop.create_future()
        self.begin: Callable[[Coroutine[Any, Any, None]], object] = self.loop.create_task
        self.fixed = fixed
        self.tools = {**TOOLS, "add_sync": self.add_sync}
        self.worker = Worker(self.loop)
        self.parts: list[bytes] = []
        self.ready: list[bytes] = []
        self.flush_due = False

    def readable(self) -> None:
        """Read, take whole lines, keep the rest; what is answered meanwhile leaves with them."""
        data = os.read(0, READ_SIZE)
        if not data:
            self.loop.remove_reader(0)
            self.ended.set_result(None)
            return
        first, *others = data.split(b"\n")
        self.parts.append(first)
        if others:
            lines = [b"".join(self.parts), *others]
            self.parts = [lines.pop()]
            self.flush_due = True
            for line in lines:
                self.take(decode(line))
            self.flush()

    def take(self, message: Incoming) -> None:
        """Begin to answer one message."""
        if message.method == "tools/call":
            self.begin(self.call(message))
        elif message.method == "resources/read":
            self.begin(self.read(message))
        elif message.id is not None:
            self.answer(message.id, self.fixed[message.method])

    async def call(self, message: Incoming) -> None:
        """Run one tool."""
        value = await self.tools[message.params.name](**message.params.arguments)
        self.answer(message.id, CallResult([Text(str(value))], {"result": value}))

    async def read(self, message: Incoming) -> None:
        """Read one resource."""
        uri = message.params.uri
        self.answer(message.id, ReadResult([Contents(uri, "text/plain", await RESOURCES[uri]())]))

    async def add_sync(self, a: int, b: int) -> int:
        """Add two integers in a thread."""
        return await self.worker.run(plus, a, b)

    def answer(self, id: int | str, result: Any) -> None:  # noqa: A002 - the wire's word
        """Put an answer into this turn's write."""
        if not self.flush_due:
            self.flush_due = True
            self.loop.call_soon(self.flush)
        self.ready.append(encode(Answer(id, result)))

    def flush(self) -> None:
        """Write everything that is ready."""
        self.flush_due = False
        if self.ready:
            write_all(b"\n".join([*self.ready, b""]))
            self.ready.clear()


async def serve(lines_for: Callable[[dict[str, msgspec.Raw]], Lines]) -> None:
    """Answer on standard output until standard input ends."""
    lines = lines_for(fixed_results(chosen_tools()))
    os.set_blocking(0, False)
    lines.loop.add_reader(0, lines.readable)
    await lines.ended


def chosen_tools() -> int:
    """Read from the command line how many tools a list has besides the first three."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["stdio"], default="stdio")
    parser.add_argument("--tools", type=int, default=0)
    parser.add_argument("--more", action="store_true", help="no more tools, but the largest messages as well")
    return parser.parse_args().tools


if __name__ == "__main__":
    uvloop.run(serve(Lines))
