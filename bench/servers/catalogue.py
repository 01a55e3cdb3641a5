"""What every Python server of the benchmark offers, and the command line they share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

STATIC_URI = "bench://static"
STATIC_TEXT = "The same text at every reading. " * 5
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


def options() -> argparse.Namespace:
    """Read the command line of a benchmark server."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["stdio", "http", "tcp", "ws"], default="stdio")
    parser.add_argument("--port", type=int, default=0, help="where to serve, if not on stdio")
    parser.add_argument("--mode", choices=["session-json", "session-sse", "stateless"], help="how to serve HTTP")
    parser.add_argument("--tools", type=int, default=0, help="how many extra tools to offer")
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
