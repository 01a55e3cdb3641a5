"""The connections of a listener, reported to its observers."""

from __future__ import annotations

import time

from ferrule.telemetry.observer import CONNECTION_EVENTS, Meter, ObservedConnection, Observers, TransportMeter


class Connections:
    """Reports the connections of one listener."""

    def __init__(self, observer: Observers, transport: str) -> None:
        self._observer = observer
        self._transport = transport
        self._open: dict[object, ObservedConnection] = {}

    def opened(self, connection: object, address: str, transport: str = "") -> None:
        """Report a connection that was accepted; of another transport where it became one."""
        observed = ObservedConnection(transport=transport or self._transport, address=address, opened=time.monotonic())
        self._open[connection] = observed
        self._observer.connection_opened(observed)

    def replaced(self, connection: object, successor: object) -> None:
        """Go on with another object for a connection that was reported as open."""
        self._open[successor] = self._open.pop(connection)

    def closed(self, connection: object) -> None:
        """Report that a connection is gone; a no-op for one that was not reported as open."""
        observed = self._open.pop(connection, None)
        if observed is not None:
            observed.closed = time.monotonic()
            self._observer.connection_closed(observed)

    def refused(self, reason: str) -> None:
        """Report a connection that was turned away."""
        self._observer.connection_refused(self._transport, reason)


class CountedConnections(Connections):
    """Reports to metrics alone, which count connections: no value is made of one."""

    def __init__(self, observer: Observers, transport: str, meter: Meter) -> None:
        super().__init__(observer, transport)
        self._meter = meter
        self._usual = meter.over(transport)
        self._counted: dict[object, TransportMeter] = {}
        """Where each open connection is counted."""

    def opened(self, connection: object, address: str, transport: str = "") -> None:
        """Count a connection that was accepted."""
        meter = self._usual
        if transport:
            meter = self._meter.over(transport)
        self._counted[connection] = meter
        meter.count_connections(1)

    def replaced(self, connection: object, successor: object) -> None:
        """Go on with another object for a connection that was counted."""
        self._counted[successor] = self._counted.pop(connection)

    def closed(self, connection: object) -> None:
        """Count a connection no more; a no-op for one that was not counted."""
        meter = self._counted.pop(connection, None)
        if meter is not None:
            meter.count_connections(-1)


def connections_of(observer: Observers | None, transport: str) -> Connections | None:
    """Return what reports connections; None where nobody wants to know."""
    if observer is None or not observer.wants(*CONNECTION_EVENTS):
        return None
    if observer.meter is not None:
        return CountedConnections(observer, transport, observer.meter)
    return Connections(observer, transport)
