"""Entrance: the acceptor of one listener, or of one ASGI app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ferrule.identity.verifier import Verifier
from ferrule.protocol.era import Eras
from ferrule.runtime.link import Link
from ferrule.runtime.sessionless import SessionlessLink
from ferrule.server.hosting.host import Host
from ferrule.wire.channel import Origin, Receiver

if TYPE_CHECKING:
    from ferrule.server.hosting.monitor import Monitor
    from ferrule.telemetry.observer import Observers
    from ferrule.transports.http.endpoint.cluster import Cluster
    from ferrule.transports.http.endpoint.neighbours import Neighbours
    from ferrule.transports.http.routes.custom import CustomRoute


class Entrance:
    """The acceptor of one listener: its links are the server's, and it knows which of them are its own."""

    mirrored: Callable[[str], Mapping[str, tuple[str, ...]]]
    busy: Callable[[Receiver], bool]
    link: Callable[[Origin], Link]
    """Returns a receiver for one new peer."""

    def __init__(self, host: Host, entrances: set[Entrance], name: str, *, hosted: bool = False) -> None:
        self._host = host
        self._entrances = entrances
        """All those of the server that are in use."""
        self.name = name
        """What the listener is called."""
        self.hosted = hosted
        """Whether it belongs to somebody else's application, which ends it: `Server.stop` does not."""
        self.on_use: Callable[[bool], object] | None = None
        """Called with True when the first user has entered, and with False when the last leaves."""
        self._users = 0
        self.closing = False
        """Whether its peers are being let go."""
        # Asked for every request, or for every session: an entrance puts nothing between.
        self.mirrored = host.offers.tools.mirrored
        self.busy = host.busy
        self.link = partial(host.link, entrance=self)

    async def enter(self) -> None:
        """Start what the server needs while anyone uses it; every enter is matched by a leave."""
        await self._host.enter()
        self._users += 1
        self._entrances.add(self)
        if self._users == 1 and self.on_use is not None:
            self.on_use(True)

    async def leave(self) -> None:
        """End what `enter` started, when the last user leaves."""
        self._users -= 1
        if not self._users:
            self._entrances.discard(self)
            self.closing = False
            if self.on_use is not None:
                self.on_use(False)
        await self._host.leave()

    @property
    def eras(self) -> Eras:
        """The protocol generations the server speaks."""
        return self._host.eras

    @property
    def verifier(self) -> Verifier:
        """Who decides who a caller is."""
        return self._host.verifier

    @property
    def custom_routes(self) -> Sequence[CustomRoute]:
        """What is offered over HTTP beside MCP."""
        return self._host.custom_routes

    def replay_frames(self, link: Receiver) -> Sequence[bytes]:
        """Return what a session's client has said since its handshake that still holds, as frames."""
        return self._host.replay_frames(link)

    @property
    def neighbours(self) -> Neighbours | None:
        """The other workers of the server."""
        return self._host.neighbours

    @property
    def cluster(self) -> Cluster | None:
        """The nodes the server is one of."""
        return self._host.cluster

    @property
    def observer(self) -> Observers | None:
        """Who is told of connections and exchanges."""
        return self._host.observer

    @property
    def unbound(self) -> set[str]:
        """The listeners of the server that should serve and cannot be reached now."""
        return self._host.unbound

    def monitor(self) -> Monitor:
        """Return what tells of the server's health and its metrics."""
        return self._host.monitor()

    def sessionless_link(self, origin: Origin, version: str = "") -> SessionlessLink:
        """Return one receiver for everyone who asks without a session."""
        return self._host.sessionless_link(origin, version, self)

    async def drain(self, grace: float) -> None:
        """Take no more calls from here, and wait until the running ones are answered, at most `grace` seconds.

        With the last entrance the server ends: then whatever else runs in it is waited for too.
        """
        self.closing = True
        if all(entrance.closing for entrance in self._entrances):
            await self._host.drain(grace)
        else:
            own = self._host.links.through(self)
            await asyncio.gather(*(link.drain(grace) for link in own))
