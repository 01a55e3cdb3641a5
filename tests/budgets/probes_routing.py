"""Probes of a client that uses several servers, and of the targets of a router."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

from lasting import lasts_longer
from table import no_bound, period, probe

from ferrule import Client, Server
from ferrule.client import targets
from ferrule.client.client import Client as PlainClient
from ferrule.errors import SetupError
from ferrule.routing import client as routed
from ferrule.routing.client import RoutedClient
from ferrule.routing.combined import client as combined
from ferrule.routing.combined.client import CombinedClient


def known_tasks(client: Any, size: int) -> bool:
    """Return whether all of so many tasks are remembered; one that is known already pushes none out."""
    for number in range(size):
        client._remember(f"{number}", object())
    known = list(client._owners)
    client._remember(known[-1], object())
    assert list(client._owners) == known
    return len(known) == size


@probe("ferrule.routing.client.MAX_TASKS", lowered=10, clamps=True)
async def tasks_of_targets(limit: int, size: int) -> bool:
    client = Client([Server("a"), Server("b")])
    assert isinstance(client, RoutedClient)
    with mock.patch.object(routed, "MAX_TASKS", limit):
        return known_tasks(client, size)


@probe("ferrule.routing.combined.client.MAX_TASKS", lowered=10, clamps=True)
async def tasks_of_servers(limit: int, size: int) -> bool:
    client = Client({"a": Server("a"), "b": Server("b")})
    assert isinstance(client, CombinedClient)
    with mock.patch.object(combined, "MAX_TASKS", limit):
        return known_tasks(client, size)


async def never(*args: Any, **options: Any) -> None:
    await asyncio.Event().wait()


async def reaches(client: Client, seconds: float) -> bool:
    """Return whether a client still waits after so many seconds for servers that never let it connect."""
    with mock.patch.object(PlainClient, "connect", never):
        return await lasts_longer(client.connect(), seconds)


@period("ferrule.routing.replica.CONNECT_TIMEOUT")
async def a_target(lasts: float, seconds: float) -> bool:
    return await reaches(Client([Server("a"), Server("b")]), seconds)


@period("ferrule.routing.combined.members.CONNECT_TIMEOUT")
async def a_server(lasts: float, seconds: float) -> bool:
    return await reaches(Client({"a": Server("a"), "b": Server("b")}), seconds)


@probe("ferrule.client.targets.MOST_SERVERS")
async def servers_of_a_client(limit: int, size: int) -> bool:
    servers = {f"s{number}": {"url": f"http://127.0.0.1/{number}"} for number in range(size)}
    try:
        return len(targets.named_targets({"mcpServers": servers})) == size
    except SetupError:
        return False


no_bound("ferrule.routing.group.LONGEST_RETRY", "what a caller of ours is told; no target has a say in it")
