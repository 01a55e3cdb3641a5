"""The members of a routed client: a client for each target, and what is known of all of them together."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ferrule.client.client import Client
from ferrule.client.link.keeper import Phases
from ferrule.client.link.reconnect import ConnectionHandler, ConnectionNotice
from ferrule.client.settings import ClientSettings
from ferrule.errors import FerruleError, LinkLost
from ferrule.protocol.session import Phase
from ferrule.routing.broadcast import Broadcast
from ferrule.routing.replica import client_maker
from ferrule.routing.router import Router
from ferrule.settings.option import require_known
from ferrule.supervision.backoff import Backoff

logger = logging.getLogger("ferrule.routing")

RECONNECT_BACKOFF = Backoff(1.0, 2.0, 30.0, jitter=0.5)
"""The delays after which a lost target is connected again without a call, while somebody wants its notifications."""


class Members:
    """The clients of a router: set up alike, told the same, and watched."""

    def __init__(self, targets: Any, answers: Mapping[str, object], options: Mapping[str, Any]) -> None:
        require_known("Client", options, (*ClientSettings.__struct_fields__, *Router.options, *answers))
        routing = {}
        for_clients = dict(answers)
        for name, value in options.items():
            if name in Router.options:
                routing[name] = value
            else:
                for_clients[name] = value
        self._make = client_maker(for_clients)
        self._setup: list[Callable[[Client], object]] = []
        """What was done with every client, and is done with one that is added."""
        self.phases = Phases()
        self.on_notice: list[ConnectionHandler] = []
        self.running = False
        self._closed = False
        self.failure: Exception = LinkLost("no target was connected yet")
        self.router = Router(targets, new_client=self._new_client, **routing, observer=options.get("observer"))
        self.broadcast = Broadcast(lambda: self.router.connected)
        settings = self.first.settings
        if settings.metrics is not None:
            self.router.record(settings.metrics, settings.upstream)

    def _new_client(self, name: str, target: object) -> Client:
        client = self._make(name, target)
        client.on_connected(lambda: self._joined(client))
        client.on_disconnected(lambda: self._left(name, client))
        for action in self._setup:
            action(client)
        return client

    @property
    def first(self) -> Client:
        """The first client that is connected; the first of all where none is."""
        connected = self.router.connected
        if connected:
            return connected[0]
        return next(iter(self.router.clients.values()))

    def each(self, action: Callable[[Client], object]) -> None:
        """Do something with every client, and later with those that are added."""
        self._setup.append(action)
        for client in self.router.clients.values():
            action(client)

    def later(self, action: Callable[[Client], object]) -> None:
        """Do something with every client that is added later."""
        self._setup.append(action)

    # -- lifetime

    async def start(self, timeout: float) -> dict[str, BaseException]:
        """Connect to every target. Return the errors of those that cannot be reached."""
        self.running = True
        self._closed = False
        return await self.router.start(timeout)

    async def close(self, drain: float) -> None:
        """Close every client; harmless when called again."""
        self.running = False
        self._closed = True
        self.broadcast.end()
        await self.router.close(drain)
        self.phases.tell(self.phase)

    @property
    def phase(self) -> Phase:
        """How far the conversations are: initialized while any target is connected."""
        if self._closed:
            return Phase.CLOSED
        for client in self.router.clients.values():
            if client.phase is Phase.INITIALIZED:
                return Phase.INITIALIZED
        if self.phases.last is Phase.INITIALIZED or self.phases.last is Phase.ERROR:
            return Phase.ERROR
        return Phase.PRE_INITIALIZATION

    def _joined(self, client: Client) -> None:
        """Called when a target is connected."""
        lost = self.phases.last is Phase.ERROR
        self.phases.tell(self.phase)
        if lost:
            self._notify(ConnectionNotice("restored"))
        if self.broadcast.wanted:
            self.router.spawn(self.broadcast.restore(client))

    def _left(self, name: str, client: Client) -> None:
        """Called when a target is lost, or its client closed."""
        if self._closed:
            return
        self.failure = LinkLost(f"the link to {name} was lost")
        if self.phase is Phase.ERROR:
            self.phases.tell(Phase.ERROR)
            self._notify(ConnectionNotice("lost", self.failure))
        if self.broadcast.wanted or client.notification_handlers:
            self.router.spawn(self._keep_connecting(name))

    async def _keep_connecting(self, name: str) -> None:
        """Connect to a target again without a call: somebody wants its notifications."""
        attempt = 0
        while True:
            attempt += 1
            await asyncio.sleep(RECONNECT_BACKOFF.delay(attempt, random.random))
            if name not in self.router.clients:
                return
            with suppress(FerruleError, OSError):
                await self.router.connect(name)
                return

    def _notify(self, notice: ConnectionNotice) -> None:
        """Call the handlers of the owner; one that fails harms nobody else."""
        for handler in tuple(self.on_notice):
            try:
                handler(notice)
            except Exception:
                logger.exception("a handler of the connection's notice %r failed", notice.what)
