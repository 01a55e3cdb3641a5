"""What every Python server of the benchmark offers, and the command line they share."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

STATIC_URI = "bench://static"
STATIC_TEXT = "The same text at every reading. " * 5
RECORDS = 1000
DESCRIPTION = "Look something up in collection {}.\n\nGives the first entries that fit the query, as text."


@dataclass
class Filter:
    """What an entry must have to be found."""

    field: str
    operator: Literal["is", "has", "above", "below"]
    value: str | float


async def search(
    query: str,
    limit: int = 10,
    sort: Literal["rank", "date"] = "rank",
    filters: list[Filter] | None = None,
) -> str:
    """Find entries."""
    chosen = " and ".join(f"{each.field} {each.operator} {each.value}" for each in filters or [])
    return f"{limit} of {query} by {sort} where {chosen}"


@dataclass
class Record:
    """One of many in a large result."""

    number: int
    name: str
    score: float
    tags: list[str]


@dataclass
class Noted(Record):
    """A record with a field that is absent in all of them."""

    note: str | None = None


@cache
def _all_records() -> list[Record]:
    return [Record(*_fields(number)) for number in range(RECORDS)]


@cache
def _all_noted() -> list[Noted]:
    return [Noted(*_fields(number)) for number in range(RECORDS)]


def _fields(number: int) -> tuple[int, str, float, list[str]]:
    return number, f"entry number {number}", number * 1.5, ["alpha", "beta", f"t{number}"]


async def records() -> list[Record]:
    """Return a thousand records."""
    return _all_records()


async def records_null() -> list[Noted]:
    """Return a thousand records without notes."""
    return _all_noted()


async def wait(ms: int) -> str:
    """Answer later."""
    await asyncio.sleep(ms / 1000)
    return "ok"


MORE = (records, records_null, wait)
"""What only some scenarios call; each server has its own `steps` beside them, for each SDK has its own context."""


def options() -> argparse.Namespace:
    """Read the command line of a benchmark server."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["stdio", "http", "tcp", "ws"], default="stdio")
    parser.add_argument("--port", type=int, default=0, help="where to serve, if not on stdio")
    parser.add_argument("--mode", choices=["session-json", "session-sse", "stateless"], help="how to serve HTTP")
    parser.add_argument("--tools", type=int, default=0, help="how many extra tools to offer")
    parser.add_argument("--more", action="store_true", help="offer the further tools too, and take large messages")
    parser.add_argument("--inline", action="store_true", help="run plain functions in the event loop, without a thread")
    return parser.parse_args()


def extra_tools(count: int) -> list[Callable[..., str]]:
    """Make tools of ordinary size: a described function with four typed parameters."""
    return [_extra_tool(number) for number in range(count)]


def _extra_tool(number: int) -> Callable[..., str]:
    def look_up(query: str, limit: int = 10, exact: bool = False, labels: list[str] | None = None) -> str:
        return query

    look_up.__name__ = f"look_up_{number:04d}"
    look_up.__doc__ = DESCRIPTION.format(number)
    return look_up
