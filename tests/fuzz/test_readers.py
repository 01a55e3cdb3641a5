"""Readers of foreign text and foreign schemas, one by one: each takes time in proportion to what it reads."""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from mutate import STRINGS
from resource_oracle import ATTEMPTS, Machine

from ferrule.errors import FerruleError
from ferrule.server.offers.uri_template import UriTemplate
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.websocket.handshake import judge_answer
from ferrule.validation.checker import foreign_checker
from ferrule.validation.frontmatter import front_matter
from ferrule.wire.framing import LineFramer
from ferrule.wire.header_block import AutoFramer, HeaderFramer
from ferrule.wire.rescue import rescue, rescue_from_head
from ferrule.wire.sse import EventTooLarge, SseParser

LONG = os.environ.get("FERRULE_LONG") == "1"
SIZE = 100_000 if LONG else 20_000
ONCE = 0.0005
PER_BYTE = 1.5e-6 if LONG else 5e-6
"""Seconds of CPU for each byte, read by a program of Python step by step."""
CHECKED = 0.25
"""Seconds of CPU to compile a foreign schema and check a value with it; that is done beside the loop."""
MEMORY = 64 * 1024 * 1024

MACHINE = Machine()


def cheapest(work: Callable[[], Any], allowed: float) -> float:
    """Return the least CPU time of a few attempts; one within the allowance is enough."""
    least = float("inf")
    for _ in range(ATTEMPTS):
        before = time.process_time()
        work()
        least = min(least, time.process_time() - before)
        if least <= allowed:
            break
        gc.collect()
        MACHINE.measure()
    return least


def texts(opening: str = "", closing: str = "") -> Iterator[tuple[str, str]]:
    """Yield texts of many kinds, each of one piece again and again, or of two."""
    pieces = [piece.decode("utf-8", "surrogateescape") for piece in STRINGS.values()]
    pieces += [
        "\n",
        "\r",
        "\r\n",
        "\0",
        "'",
        '"',
        "''",
        "{",
        "[",
        "[{",
        "a:",
        "a: ",
        "- ",
        "- - ",
        "#",
        " #",
        "|\n",
        ">\n",
    ]
    pieces += [
        "<!--",
        "-->",
        "<",
        "data:",
        "data: x\n",
        "id: 1\n",
        "\n\n",
        ": \n",
        "Content-Length: 1\r\n",
        "%41",
        "{a}/",
        "a/",
    ]
    chance = random.Random("readers")
    pieces += [a + b for a, b in (chance.sample(pieces, 2) for _ in range(200 if LONG else 30))]
    for piece in pieces:
        yield repr(piece), opening + piece * (SIZE // len(piece)) + closing


def read_front_matter(text: str) -> None:
    with suppress(FerruleError, ValueError):
        front_matter(text)


def match_template(text: str) -> None:
    for template in TEMPLATES:
        template.match(text)


TEMPLATES = [
    UriTemplate("note://{a}"),
    UriTemplate("note://{a}/{b}/{+c}"),
    UriTemplate("note://x/{a}-{b}{?c,d*}"),
    UriTemplate("note://{+path}/end{/rest*}"),
]


async def _nothing(request: Any) -> Any:
    return None


ROUTES = [CustomRoute(path, ["GET"], _nothing) for path in ("/a/{b}", "/a/{b:path}/c/d", "/{a}/{b}/{c:path}/x/{d}")]


def match_route(text: str) -> None:
    for route in ROUTES:
        route.match(text)


def read_upgrade(text: str) -> None:
    with suppress(FerruleError, ValueError):
        judge_answer(text.encode("utf-8", "surrogateescape"), b"a2V5", compression=True)


def read_events(text: str) -> None:
    parser, data = SseParser(), text.encode("utf-8", "surrogateescape")
    with suppress(EventTooLarge):
        for at in range(0, len(data), 1000):
            parser.feed(data[at : at + 1000])


def cut_frames(text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    for framer in (LineFramer(), HeaderFramer(), AutoFramer()):
        with suppress(FerruleError):
            for at in range(0, len(data), 1000):
                framer.feed(data[at : at + 1000])
        framer.eof()


def rescue_id(text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    rescue(data)
    rescue_from_head(data)


READERS: dict[str, tuple[Callable[[str], None], str, str]] = {
    "front matter": (read_front_matter, "---\n", "\n---\n"),
    "front matter: a key": (read_front_matter, "---\nname: ", "\n---\n"),
    "front matter: a list": (read_front_matter, "---\nname: [", "]\n---\n"),
    "a URI": (match_template, "note://", ""),
    "a URI with an end": (match_template, "note://x/", "/end"),
    "a path": (match_route, "/a/", "/c/d"),
    "the answer to an upgrade": (read_upgrade, "HTTP/1.1 101 X\r\n", "\r\n\r\n"),
    "a header of the answer to an upgrade": (read_upgrade, "HTTP/1.1 101 X\r\nA:", "\r\n\r\n"),
    "events": (read_events, "", "\n\n"),
    "frames": (cut_frames, "", "\n"),
    "frames after a header": (cut_frames, "Content-Length: 10\r\n", "\r\n\r\n"),
    "an id": (rescue_id, '{"jsonrpc":"2.0","id":1,"method":"', '"'),
    "an id after another member": (rescue_id, '{"a":"', '","id":1'),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_time_in_proportion(reader: str) -> None:
    read, opening, closing = READERS[reader]
    dear = []
    for name, text in texts(opening, closing):
        allowed = (ONCE + PER_BYTE * len(text)) * MACHINE.factor
        took = cheapest(lambda text=text: read(text), allowed)  # type: ignore[misc]
        if took > (ONCE + PER_BYTE * len(text)) * MACHINE.factor:
            dear.append(f"{name}: {len(text)} characters take {took * 1e3:.1f} ms")
    assert not dear, "\n".join(dear)


# -- a server's schemas, and values for them


def patterns() -> Iterator[dict[str, Any]]:
    """Yield schemas whose cost is in a pattern."""
    for pattern in (
        "(a+)+$", "^(a|a)*$", "(a|aa)+b", "(.*)*x", ".*.*.*.*x", "(a{1,50}){1,50}", r"\p{L}{200}", r"(\p{L}{50}){20}",
        r"\w{500}", "[^x]{1000}", "(x+x+)+y", r"^(\d+\.)+$", "a?" * 30 + "a" * 30, "(" * 200 + "a" + ")" * 200,
        r"(a*)\1", "(?=a)(?=a)a", "(?:(?:a{10}){10}){10}",
    ):  # fmt: skip
        yield {"type": "string", "pattern": pattern}
        yield {"type": "array", "items": {"type": "string", "pattern": pattern}}
        yield {"type": "object", "patternProperties": {pattern: {"type": "string"}}}


def wide(count: int) -> Iterator[dict[str, Any]]:
    """Yield schemas of many parts."""
    yield {"anyOf": [{"type": "string", "pattern": r"\p{L}{200}"}] * count}
    yield {"anyOf": [{"type": "string", "maxLength": n} for n in range(count)]}
    yield {"allOf": [{"properties": {f"k{n}": {"type": "integer"}}} for n in range(count)]}
    yield {"enum": list(range(count))}
    yield {"required": [f"k{n}" for n in range(count)]}
    yield {"properties": {f"k{n}": {"$ref": f"#/properties/k{n + 1}"} for n in range(count)}}
    yield {"items": {"oneOf": [{"const": n} for n in range(count)]}}
    yield {"uniqueItems": True, "items": {"uniqueItems": True}}
    yield {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"items": {"$ref": "#/$defs/a"}}]}}, "$ref": "#/$defs/a"}
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(25)}
    yield {"$defs": {**doubling, "d25": {"type": "string"}}, "$ref": "#/$defs/d0"}
    doubling = {
        f"d{n}": {"anyOf": [{"items": {"$ref": f"#/$defs/d{n + 1}"}}, {"items": {"$ref": f"#/$defs/d{n + 1}"}, "x": 1}]}
        for n in range(25)
    }
    yield {"$defs": {**doubling, "d25": {"type": "string"}}, "$ref": "#/$defs/d0"}
    yield {"type": "object", "propertyNames": {"pattern": "(a+)+$"}, "additionalProperties": {"minLength": 5}}
    yield {"format": "regex", "contentMediaType": "application/json", "contentEncoding": "base64"}
    yield {"format": "idn-email"}
    yield {"multipleOf": 1e-300}
    yield {"contains": {"const": 1}, "minContains": 100_000}
    yield {"unevaluatedProperties": False, "allOf": [{"patternProperties": {f"^{n}": {}}} for n in range(count)]}


def values() -> Iterator[tuple[str, Any]]:
    """Yield values of about one size."""
    yield "one text", "a" * SIZE
    yield "one text that ends otherwise", "a" * SIZE + "!"
    yield "many texts", ["a" * 30 + "!"] * (SIZE // 32)
    yield "many numbers", list(range(SIZE // 6))
    yield "many equal lists", [[1, 2, 3]] * (SIZE // 8)
    yield "many members", {f"k{n}": n for n in range(SIZE // 12)}
    yield "many members nobody asked for", {f"z{n}": n for n in range(SIZE // 12)}
    yield "long names", {"a" * 1000 + str(n): n for n in range(SIZE // 1000)}
    deep: Any = "x"
    for _ in range(100):
        deep = [deep, deep] if len(json.dumps(deep)) < SIZE // 2 else [deep]
    yield "deep", deep
    yield "a number", 10**400
    yield "an address", "a@" + "b." * (SIZE // 2)


def check(schema: dict[str, Any], value: Any) -> None:
    """Do what a client does with a tool's output schema and its result."""
    size = len(json.dumps(value))
    with suppress(FerruleError, ValueError):
        checker = foreign_checker(schema, "here")
        if not checker.accepts(value, size):
            checker.violations(value, size)


def test_a_foreign_schema_costs_no_more_than_its_budget() -> None:
    schemas = [*patterns(), *wide(2000)]
    if LONG:
        schemas += wide(50)
    dear = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for number, schema in enumerate(schemas):
        wrapped = {"type": "object", "properties": {"result": schema}, "$defs": schema.get("$defs", {})}
        for name, value in values():
            ways = [(wrapped, {"result": value})]
            if LONG:
                ways.append((schema, value))
            for whole, given in ways:
                took = cheapest(lambda whole=whole, given=given: check(whole, given), CHECKED * MACHINE.factor)  # type: ignore[misc]
                if took > CHECKED * MACHINE.factor:
                    dear.append(f"schema {number} {str(whole)[:100]} with {name}: {took * 1e3:.0f} ms")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    assert not dear, "\n".join(dear[:40])
    assert grown < MEMORY, f"{grown / 2**20:.0f} MiB more at the worst moment"
