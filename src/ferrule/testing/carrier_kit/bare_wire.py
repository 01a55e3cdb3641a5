"""Rules of the bare wire: what passes there, byte by byte, and peers that send what they should not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from ferrule.testing.carrier_kit.carrier import Carrier, Wire
from ferrule.testing.carrier_kit.findings import NotApplicable, demand, given, soon
from ferrule.testing.carrier_kit.near_side import opening
from ferrule.testing.carrier_kit.rule import Scene, rule, scene

NONSENSE = (b"\x00\xff\xfe garbage \x80\n" * 3, b'{"jsonrpc": "2.0", "id": 1, "meth', b"\n\n[]\n{}\nnull\n")


@rule("TBEH-08", needs=("wire",))
async def lines(carrier: Carrier) -> None:
    """On the bare wire every message is one line that ends with a line feed, and lines may come in any pieces."""
    async with scene(carrier) as met, _bare(met) as (reader, writer):
        _require_lines(carrier)
        greeting = b"".join(map(_line, _greeting()))
        for at in range(0, len(greeting), 7):
            writer.write(greeting[at : at + 7])
            await writer.drain()
        # The end of line of another system is white space to JSON.
        writer.write(_line(_call(2, "echo", value="a\nb\r\n\u2028"))[:-1] + b"\r\n")
        writer.write(_line(_call(3, "tell", count=20, text="\n\n")) + _line(_call(4, "echo", value=0)))
        answers = {}
        for _ in range(24):
            each = await _next(reader, carrier.patience)
            if "method" not in each:
                answers[each["id"]] = each["result"]
        demand(sorted(answers) == [1, 2, 3, 4], f"of four requests {sorted(answers)} were answered, one a line")
        demand(answers[2]["structuredContent"] == {"value": "a\nb\r\n\u2028"}, "a text was changed on its way")


@rule("TBEH-08", needs=("wire", "half-close"))
async def half_close(carrier: Carrier) -> None:
    """A peer that has said its last word still hears the answers to it, and then the end."""
    async with scene(carrier) as met, _bare(met) as (reader, writer):
        _require_lines(carrier)
        for each in (*_greeting(), _call(2, "nap", seconds=0.2), _call(3, "echo", value="x" * 1000)):
            writer.write(_line(each))
        writer.write_eof()
        heard: list[int] = []
        with suppress(EOFError):
            while True:
                heard.append((await _next(reader, carrier.patience))["id"])
        demand(sorted(heard) == [1, 2, 3], f"of three requests before the end, {sorted(heard)} were answered")


@rule("TBEH-08", needs=("wire",))
async def garbage(carrier: Carrier) -> None:
    """A peer that sends nonsense, or dies in the middle of a word, is answered or let go; nobody else notices."""
    async with scene(carrier) as met:
        for nonsense in NONSENSE:
            async with _bare(met) as (_, writer):
                writer.write(nonsense)
                with suppress(OSError):
                    await writer.drain()
                demand(await met.near.call("echo", value=1) == {"value": 1}, "another peer suffered from it")
        demand(await met.near.call("echo", value=2) == {"value": 2}, "another peer suffered from it")
        late = await met.another()
        demand(await late.call("echo", value=3) == {"value": 3}, "a peer that came later is not served")
        await late.close()


@asynccontextmanager
async def _bare(met: Scene) -> AsyncIterator[Wire]:
    reader, writer = await given(met.stand.wire, "the stand does not say how to open a bare wire")()
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _require_lines(carrier: Carrier) -> None:
    if not carrier.newline_framed:
        raise NotApplicable("messages are not framed as lines")


def _greeting() -> tuple[dict[str, Any], dict[str, Any]]:
    return {"id": 1, "method": "initialize", "params": opening()}, {"method": "notifications/initialized"}


def _call(identity: int, tool: str, **arguments: object) -> dict[str, Any]:
    return {"id": identity, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


async def _next(reader: asyncio.StreamReader, patience: float) -> dict[str, Any]:
    """Read the next line as one message; raises EOFError at the end."""
    line = await soon(reader.readline(), patience, "the next line did not come")
    if not line:
        raise EOFError
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    demand(line.endswith(b"\n") and isinstance(message, dict), f"a line is not one message: {line[:60]!r}")
    found: dict[str, Any] = message
    return found
