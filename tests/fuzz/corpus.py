"""Inputs that were found to cost too much, each class once, as a generator: the harness began where these end.

Each is judged as any other input is: by its CPU time, the longest turn, what it leaves behind and what it is answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fuzz_wires import ws_frame
from grammar import META
from mutate import NONCE, Case

KIB = 1024
MIB = 1024 * KIB

LINES = ("tcp",)
STDIO = ("stdio",)
EVERY = ("memory", "tcp", "content-length", "stdio", "websocket", "http", "asgi", "asgi websocket")


class Known(NamedTuple):
    """A class of hostile input."""

    name: str
    make: Callable[[bool], Case]
    """Makes it, for the stateless era or the other."""
    wires: tuple[str, ...] = EVERY
    tools: int = 0
    """How many tools the server has beside the usual."""
    kept: bool = False
    """Whether what it leaves behind is looked at in short runs too."""


def request(method: str, params: str, *, modern: bool, identity: str = '"call-1"') -> Case:
    """Return a request whose params are a JSON text without its braces."""
    if modern:
        params = f'"_meta":{json.dumps(META)}{"," if params else ""}{params}'
    frame = f'{{"jsonrpc":"2.0","id":{identity},"method":"{method}","params":{{{params}}}}}'
    try:
        mirrored = json.loads(f"{{{params}}}") if len(params) < 10_000 else {}
    except ValueError:
        mirrored = {}
    return Case(method, frame.encode(), requests=1, method=method, params=mirrored)


def call(tool: str, arguments: str, modern: bool) -> Case:
    """Return a call of a tool with arguments that are a JSON text."""
    case = request("tools/call", f'"name":"{tool}","arguments":{arguments}', modern=modern)
    return case._replace(params={"name": tool, "_meta": META})


def elements(item: bytes, size: int) -> Callable[[bool], Case]:
    """Make an array of elements that are no messages: one answer, or none at all."""
    text = b"[" + (item + b",") * (size // (len(item) + 1)) + item + b"]"
    return lambda modern: Case("elements", text, requests=1, sure=False)


def lines(line: bytes, size: int) -> Callable[[bool], Case]:
    """Make a flood of lines that are no messages; a few may be answered."""
    text = (line + b"\n") * (size // (len(line) + 1))
    return lambda modern: Case("lines", text, messages=20, requests=20, sure=False, raw=True)


def stray_lines(line: bytes) -> Callable[[bool], Case]:
    """Make lines that are no messages for a carrier that goes on after any number of them: each counts as one."""
    count = 2000
    return lambda modern: Case("lines", (line + b"\n") * count, count, count, sure=False, raw=True)


def ws_flood(payload: bytes, size: int, first: int = 0x81) -> Callable[[bool], Case]:
    """Make a flood of WebSocket frames that are no messages."""
    frame = ws_frame(payload, masked=True, first=first)
    count = size // len(frame)
    return lambda modern: Case("frames", frame * count, 20, 20, sure=False, raw=True, units=count)


def opening(member: str) -> Callable[[bool], Case]:
    """Make an `initialize` with a long member; each time another one."""

    def make(modern: bool) -> Case:
        filler = json.dumps("x" * (2 * MIB))[1:-1]
        text = NONCE.decode() + filler
        info = '"name":"c","version":"1"'
        capabilities = ""
        if member == "clientInfo":
            info = f'"name":"{text}","version":"1"'
        elif member == "capabilities":
            capabilities = f'"experimental":{{"{text}":{{}}}}'
        else:
            info += f',"x":"{text}"'
        params = f'"protocolVersion":"2025-11-25","capabilities":{{{capabilities}}},"clientInfo":{{{info}}}'
        return request("initialize", params, modern=modern)

    return make


def long_text(size: int) -> str:
    """Return a long text, each time another one."""
    return NONCE.decode() + "x" * size


def known() -> Iterator[Known]:
    """Yield every class."""
    # 1: elements of a batch
    yield Known("a batch of ones", elements(b"1", 200 * KIB))
    yield Known("a batch of objects", elements(b"{}", 200 * KIB))
    yield Known("a batch of lists", elements(b"[]", 200 * KIB))
    yield Known("a batch of strings", elements(b'""', 200 * KIB))
    yield Known("a batch of half messages", elements(b'{"jsonrpc":"2.0"}', 200 * KIB))
    yield Known("a batch of answers nobody asked for", elements(b'{"jsonrpc":"2.0","id":1,"result":{}}', 200 * KIB))
    # 2: what a peer says of itself
    yield Known("initialize with a name of 2 MiB", opening("clientInfo"), kept=True)
    yield Known("initialize with capabilities of 2 MiB", opening("capabilities"), kept=True)
    yield Known("initialize with an unknown member of 2 MiB", opening("x"), kept=True)
    # 3 and 4: lines that are no messages
    yield Known("lines of 1", lines(b"1", 256 * KIB), LINES)
    yield Known("lines of {}", lines(b"{}", 256 * KIB), LINES)
    yield Known("lines of junk", lines(b"junk", 256 * KIB), LINES)
    yield Known("lines of headers", lines(b"X-Header: 1", 256 * KIB), LINES)
    yield Known("blank lines", lines(b"", 256 * KIB), LINES)
    yield Known("lines of spaces", lines(b" ", 256 * KIB), LINES)
    yield Known("stray lines of 1", stray_lines(b"1"), STDIO)
    yield Known("stray lines of {}", stray_lines(b"{}"), STDIO)
    yield Known("stray lines of junk", stray_lines(b"junk"), STDIO)
    yield Known("stray blank lines", stray_lines(b""), STDIO)
    yield Known(
        "answers nobody asked for",
        lambda modern: Case(
            "answers", b'{"jsonrpc":"2.0","id":1,"result":{}}\n' * 5000, messages=5000, requests=0, raw=True
        ),
        LINES,
    )
    yield Known("a WebSocket of 1", ws_flood(b"1", 256 * KIB), ("websocket",))
    yield Known("a WebSocket of nothing", ws_flood(b"", 256 * KIB), ("websocket",))
    yield Known(
        "a WebSocket of many lines of 1",
        lambda modern: Case(
            "lines", ws_frame(b"1\n" * (128 * KIB), masked=True), messages=20, requests=20, sure=False, raw=True
        ),
        ("websocket",),
    )
    # 7: subscriptions
    yield Known(
        "a subscription to a URI of 1 MiB",
        lambda modern: request("resources/subscribe", f'"uri":"note://{long_text(MIB)}"', modern=modern),
    )
    yield Known(
        "a resource with a URI of 1 MiB",
        lambda modern: request("resources/read", f'"uri":"note://{long_text(MIB)}"', modern=modern),
    )
    # 8: arguments that do not fit, names nobody knows
    yield Known("1 MiB of {} for a str", lambda modern: call("say", f'{{"text":[{"{}," * (300 * KIB)}{{}}]}}', modern))
    yield Known("1 MiB of {} for ints", lambda modern: call("count", f'{{"numbers":[{"{}," * (300 * KIB)}1]}}', modern))
    yield Known(
        "1 MiB of {} for records", lambda modern: call("order", f'{{"items":[{"{}," * (300 * KIB)}1]}}', modern)
    )
    yield Known(
        "1 MiB of {} for a schema", lambda modern: call("check", f'{{"value":[{"{}," * (300 * KIB)}1]}}', modern)
    )
    yield Known(
        "50,000 arguments nobody asked for",
        lambda modern: call("say", "{" + ",".join(f'"k{n}":1' for n in range(50_000)) + "}", modern),
    )
    yield Known(
        "an unknown tool among 1,000", lambda modern: call("tool_5_of_many_with_a_lon", "{}", modern), tools=1000
    )
    yield Known("an unknown tool of 1 MiB among 1,000", lambda modern: call("x" * MIB, "{}", modern), tools=1000)
    yield Known(
        "an unknown prompt of 1 MiB",
        lambda modern: request("prompts/get", f'"name":"{long_text(MIB)}"', modern=modern),
    )
    yield Known("an unknown method of 1 MiB", lambda modern: request(f"x{long_text(MIB)}", "", modern=modern))
    yield Known("4 KB of {} for records", lambda modern: call("order", f'{{"items":[{"{}," * 1290}1]}}', modern))
    yield Known("4 KB of [] for ints", lambda modern: call("count", f'{{"numbers":[{"[]," * 1290}1]}}', modern))
    yield Known(
        "4 KB of 1 for the texts of a record",
        lambda modern: call("order", f'{{"items":[{{"name":"a","amount":1,"tags":[{"1," * 1900}1]}}]}}', modern),
    )
    yield Known(
        "4 KB of arguments nobody asked for",
        lambda modern: call("say", "{" + ",".join(f'"k{n}":1' for n in range(450)) + "}", modern),
    )
    yield Known(
        "60 KB of lists beside a fraction for records",
        lambda modern: call("order", f'{{"items":[1.0,{("[" * 100 + "]" * 100 + ",") * 300}1]}}', modern),
    )
    yield Known(
        "60 KB of fractions for ints", lambda modern: call("count", f'{{"numbers":[{"1.0," * 15_000}2]}}', modern)
    )
    yield Known(
        "a head of 15 KB byte by byte",
        lambda modern: Case(
            "head", b"GET /mcp HTTP/1.1\r\nX: " + b"a" * 15_000, sure=False, raw=True, piece=1, alone=True
        ),
        ("http",),
    )
    # fields that are kept or told
    yield Known("an id of 1 MiB", lambda modern: request("ping", "", modern=modern, identity=f'"{long_text(MIB)}"'))
    yield Known("an id of 100,000 digits", lambda modern: request("ping", "", modern=modern, identity="9" * 100_000))
    yield Known(
        "a _meta of 1 MiB",
        lambda modern: request("tools/list", f'"_meta":{{"progressToken":1,"x":"{long_text(MIB)}"}}', modern=False),
    )
    yield Known(
        "a progress token of 1 MiB",
        lambda modern: request("tools/list", f'"_meta":{{"progressToken":"{long_text(MIB)}"}}', modern=False),
    )
    yield Known(
        "a cursor of 1 MiB", lambda modern: request("tools/list", f'"cursor":"{long_text(MIB)}"', modern=modern)
    )
    yield Known(
        "a log level of 1 MiB", lambda modern: request("logging/setLevel", f'"level":"{long_text(MIB)}"', modern=modern)
    )
    yield Known(
        "a cancelled request of 1 MiB",
        lambda modern: Case(
            "cancelled",
            f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"{long_text(MIB)}"}}}}'.encode(),
        ),
    )
    for name, text in (("newlines", r"\n"), ("letters and newlines", r"a\n"), ("zeros", r"\u0000")):
        yield Known(
            f"an error with 1,300 {name} in its text",
            lambda modern, text=text: Case(  # type: ignore[misc]
                "error",
                b'{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"%b"}}' % (text.encode() * 1300),
            ),
        )
    yield Known(
        "an id of line separators whose answer is a frame of 0x0A0A bytes",
        lambda modern: request("unknown", "", modern=modern, identity=f'"{chr(0x2028) * 818}"'),
        ("websocket",),
    )
    yield Known(
        "a notification with newlines and escape codes in its name",
        lambda modern: Case("notification", b'{"jsonrpc":"2.0","method":"a\\n\\u001b[31mb","params":{}}'),
    )
    yield Known(
        "an error with newlines and escape codes in its text",
        lambda modern: Case(
            "error", b'{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"a\\n\\u001b[31mb","data":{"x":"\\n"}}}'
        ),
    )
    yield Known("100,000 levels", lambda modern: Case("deep", b"[" * 100_000, requests=1, sure=False))
    yield Known("100,000 levels of objects", lambda modern: Case("deep", b'{"a":' * 100_000, requests=1, sure=False))
    yield Known("1 MiB of spaces", lambda modern: Case("spaces", b" " * MIB + b"1", requests=1, sure=False))


CORPUS = {each.name: each for each in known()}


def _answer(method: str, result: bytes) -> Case:
    return Case(method, b'{"jsonrpc":"2.0","id":987654321,"result":%b}' % result, method=method)


def _tool(schema: bytes) -> bytes:
    return b'{"tools":[{"name":"text","inputSchema":{"type":"object"},"outputSchema":%b}]}' % schema


CLIENT_CORPUS: dict[str, Case] = {
    "a batch of ones": elements(b"1", 200 * KIB)(False),
    "a batch of objects": elements(b"{}", 200 * KIB)(False),
    "an id that is no text": Case("id", b'{"jsonrpc":"2.0","id":"%b","result":{}}' % (b"\xff" * 300_000)),
    "a time of 300,000 digits": _answer("resources/read", b'{"contents":[],"ttlMs":-%b}' % (b"9" * 300_000)),
    "a name that is no text": _answer("tools/list", b'{"tools":[{"name":"\xff","inputSchema":{}}]}'),
    "a version that is no text": _answer("initialize", b'{"protocolVersion":"\xff","capabilities":{}}'),
    "a schema of patterns": _answer("tools/list", _tool(b'{"anyOf":[%b{}]}' % (rb'{"pattern":"\\p{L}{200}"},' * 700))),
    "a schema of fractions": _answer("tools/list", _tool(b'{"enum":[%b1]}' % (b"1.5," * 10_000))),
    "an update of a URI of 1 MiB": Case(
        "update",
        b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:%b"}}' % (b"x" * MIB),
    ),
    "server info of 2 MiB": _answer(
        "initialize",
        b'{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"%b","version":"1"}}'
        % (b"x" * 2 * MIB),
    ),
}
"""Answers of a server, and what it sends unasked, that were found to cost too much or to break something."""
