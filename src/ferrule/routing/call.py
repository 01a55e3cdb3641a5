"""One call through a router: what is done with the client of a target, and where the call has been."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, Generic, TypeVar

from ferrule.client.client import Client
from ferrule.routing.replica import Replica
from ferrule.schema.tools import CallToolResult

T = TypeVar("T")
Work = Callable[Concatenate[Client, float | None, ...], Awaitable[T]]
"""What is done with a target's client, within so many seconds (None: as long as its options say), and arguments."""


class RoutedCall(Generic[T]):
    """One call that is not answered by the first target it is sent to: what holds for it, and where it has been."""

    __slots__ = ("arguments", "deadline", "key", "method", "retries", "safe", "tried", "work")

    def __init__(
        self, work: Work[T], method: str, arguments: tuple[Any, ...], key: str | None, deadline: float, *, safe: bool
    ) -> None:
        self.work = work
        self.method = method
        self.arguments = arguments
        self.key = key
        self.deadline = deadline
        self.safe = safe
        self.tried: list[Replica] = []
        self.retries = 0
        """How often it was sent again after it had been sent."""


def request_of(client: Client, left: float | None, method: str, params: Mapping[str, object] | None) -> Awaitable[Any]:
    """Send a request to the target of a client."""
    return client.request(method, params, timeout=left)


def tool_call_of(
    client: Client,
    left: float | None,
    name: str,
    arguments: Mapping[str, object] | None,
    options: Mapping[str, Any] | None,
) -> Awaitable[CallToolResult]:
    """Call a tool of the target of a client, with more options of `Client.call_tool`."""
    if options is None:
        return client.call_tool(name, arguments, timeout=left)
    return client.call_tool(name, arguments, timeout=left, **options)
