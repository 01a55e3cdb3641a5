"""What every target is told, now and when it is connected again."""

from __future__ import annotations

import asyncio

import pytest
from flaky import Flaky

from ferrule import Client, Server
from ferrule.errors import CapabilityNotSupported, LinkLost, NotConnected
from ferrule.routing.broadcast import Broadcast

pytestmark = pytest.mark.virtual_time

NOTE = "note://who"


async def connected(*targets: object) -> tuple[Broadcast, list[Client]]:
    """Return the broadcast to some targets, and their clients, connected."""
    clients = []
    for target in targets:
        client = Client(target, reconnect=False)
        await client.connect()
        clients.append(client)
    return Broadcast(lambda: clients), clients


async def close(clients: list[Client]) -> None:
    """Close some clients."""
    for client in clients:
        await client.close(0.0)


async def test_one_that_cannot_subscribe_does_not_spoil_it_for_the_others(caplog: pytest.LogCaptureFixture) -> None:
    target = Flaky("a")
    broadcast, clients = await connected(Server("bare"), target)
    told: list[str] = []
    await broadcast.subscribe(NOTE, told.append)
    assert "a target did not take what the others took" in caplog.text
    target.server.notify_resource_updated(NOTE)
    await asyncio.sleep(0.1)
    assert told == [NOTE]
    await close(clients)


async def test_what_none_of_them_takes_is_refused_and_not_wanted() -> None:
    broadcast, clients = await connected(Server("bare"), Server("bare too"))
    with pytest.raises(CapabilityNotSupported):
        await broadcast.subscribe(NOTE, None)
    assert not broadcast.wanted
    await close(clients)
    clients.clear()
    with pytest.raises(NotConnected, match="none of the targets is connected now"):
        await broadcast.subscribe(NOTE, None)


async def test_a_resource_is_subscribed_to_once_however_many_want_it() -> None:
    broadcast, clients = await connected(Flaky("a"))
    for _ in range(2):
        await broadcast.want(NOTE)
    await broadcast.restore(clients[0])
    assert broadcast.uris == {NOTE: 2}
    await broadcast.unwant(NOTE)
    assert clients[0].subscriptions == {NOTE}
    await broadcast.unwant(NOTE)
    assert clients[0].subscriptions == set()
    await broadcast.unwant(NOTE)
    assert broadcast.uris == {}
    await close(clients)


async def test_one_that_is_connected_later_is_told_all_of_it_and_what_it_refuses_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, later = Flaky("a"), Flaky("b")
    broadcast, clients = await connected(first)
    told: list[str] = []

    async def changed(uri: str) -> None:
        told.append(uri)

    await broadcast.subscribe(NOTE, changed)
    await broadcast.watch_lists(("tools",))
    broadcast._level = "error"
    assert broadcast.wanted
    added = Client(later)
    await added.connect()
    clients.append(added)
    await broadcast.restore(added)
    assert caplog.text.count("a target could not be told what the others know") == 1
    assert added.subscriptions == {NOTE}
    assert told == [NOTE]
    later.server.notify_resource_updated(NOTE)
    await asyncio.sleep(0.1)
    assert told == [NOTE, NOTE]
    broadcast.end()
    assert not broadcast.wanted
    later.server.notify_resource_updated(NOTE)
    await asyncio.sleep(0.1)
    assert told == [NOTE, NOTE]
    await close(clients)


async def test_a_subscription_that_cannot_be_ended_in_order_is_ended_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broadcast, clients = await connected(Flaky("a"))
    await broadcast.want(NOTE)

    async def lost(uri: str) -> None:
        raise LinkLost("gone")

    monkeypatch.setattr(clients[0], "unsubscribe_resource", lost)
    await broadcast.unsubscribe(NOTE)
    assert not broadcast.wanted
    await close(clients)


async def test_errors_that_are_not_ours_are_raised() -> None:
    broadcast, clients = await connected(Flaky("a"))

    async def fail(client: Client) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await broadcast._everywhere(fail)
    await close(clients)
