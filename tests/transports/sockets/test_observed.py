"""Connections to our listeners, as observers are told of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import Http, Observer, Server, Tcp
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.observer import Observers
from ferrule.telemetry.recorder import MetricsRecorder
from ferrule.transports.sockets.observed import connections_of
from ferrule.types import ObservedConnection

PATIENCE = 60.0


class Doorkeeper(Observer):
    """Keeps who came, who left and who was turned away."""

    def __init__(self) -> None:
        self.inside: set[ObservedConnection] = set()
        self.refused: list[tuple[str, str]] = []
        self.changed = asyncio.Event()

    def connection_opened(self, connection: ObservedConnection) -> None:
        self.inside.add(connection)
        self.changed.set()

    def connection_closed(self, connection: ObservedConnection) -> None:
        self.inside.remove(connection)
        self.changed.set()

    def connection_refused(self, transport: str, reason: str) -> None:
        self.refused.append((transport, reason))
        self.changed.set()

    async def until(self, is_so: Any) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.parametrize(("name", "listener"), [("tcp", Tcp), ("http", Http)])
def test_who_comes_goes_and_is_turned_away_is_seen(name: str, listener: Any) -> None:
    async def main() -> None:
        keeper = Doorkeeper()
        app, ready, door = Server("observed", observer=keeper), asyncio.Event(), listener(port=0, max_connections=1)
        serving = asyncio.ensure_future(app.serve(door, ready=ready.set))
        await asyncio.wait_for(ready.wait(), PATIENCE)
        port = door.address[1]
        _, first = await asyncio.open_connection("127.0.0.1", port)
        await keeper.until(lambda: keeper.inside)
        (inside,) = keeper.inside
        assert inside.transport == name
        assert inside.address.startswith("127.0.0.1")
        reader, second = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), PATIENCE) != b""
        assert keeper.refused == [(name, "too_many_connections")]
        first.close()
        await keeper.until(lambda: not keeper.inside)
        assert inside.closed is not None
        second.close()
        await app.stop(5.0)
        await serving

    asyncio.run(main())


def test_connections_cost_nothing_where_nobody_wants_to_know() -> None:
    assert connections_of(None, "tcp") is None
    assert connections_of(Observers([Observer()]), "tcp") is None
    assert connections_of(Observers([Doorkeeper()]), "tcp") is not None


def test_metrics_alone_count_the_same_connections_without_a_value_for_each() -> None:
    metrics = Metrics()
    connections = connections_of(Observers([MetricsRecorder(metrics)]), "http")
    gauge = metrics.gauge("ferrule_connections")
    assert connections is not None
    connections.opened("one", "here")
    connections.opened("two", "here", "websocket")
    connections.replaced("one", "three")
    connections.closed("one")
    assert (gauge.labels("http").value, gauge.labels("websocket").value) == (1, 1)
    connections.closed("three")
    connections.closed("two")
    connections.closed("two")
    assert (gauge.labels("http").value, gauge.labels("websocket").value) == (0, 0)
    connections.refused("no_descriptors")
    assert metrics.counter("ferrule_connections_refused_total").labels("http", "no_descriptors").value == 1


def test_a_connection_is_reported_as_closed_once() -> None:
    keeper = Doorkeeper()
    connections = connections_of(Observers([keeper]), "tcp")
    assert connections is not None
    connections.opened("one", "here")
    connections.closed("one")
    connections.closed("one")
    connections.closed("two")
    assert keeper.inside == set()
