"""The listeners of one server: each is a child of a supervisor, which binds it again when it dies.

Rule 1: a listener that dies is bound again to the address it had, also where its port was any free one. More than
LISTENER_PLAN allows, and the server fails.
Rule 2: a listener with one peer, such as stdio, is not served again.
Rule 3: a listener that ends in order has ended; with the last of them the server ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from typing import Any

from ferrule.errors import SetupError
from ferrule.server.foreign_names import refuse_foreign
from ferrule.server.hosting.entrance import Entrance
from ferrule.server.hosting.host import Host
from ferrule.server.hosting.registration import ServerRegistration
from ferrule.settings.option import alike
from ferrule.supervision.child import Child, Ready, RestartKind
from ferrule.supervision.restart import RestartPlan
from ferrule.supervision.supervisor import Supervisor
from ferrule.transports.contract import BoundListener, Listener, NamedListener, OnceListener
from ferrule.transports.registry import TRANSPORTS, TransportKind

LISTENER_PLAN = RestartPlan()
"""How often and how soon a listener is bound again."""


class ServedListener:
    """One listener, as a child of a supervisor."""

    def __init__(
        self,
        name: str,
        listener: Listener,
        entrance: Entrance,
        registration: ServerRegistration,
        supervisor: Supervisor,
    ) -> None:
        self.name = name
        self.listener = listener
        self.entrance = entrance
        self.supervisor = supervisor
        """Whose child it is."""
        self.on_ready: Callable[[], object] | None = None
        """Called whenever it can be reached."""
        self.context: Callable[[], Context | None] = lambda: None
        """Returns the context variables of the lifespan, which handlers see."""
        self._registration = registration
        self._closing = False
        self._bound: BoundListener | None = None
        """The listener, where it is bound again to the port it had."""
        self._idle = asyncio.Event()
        """Set while it does not serve."""
        self._idle.set()
        self._opened: asyncio.Future[None] | None = None
        """What whoever started it by itself waits for."""

    def child(self) -> Child:
        """Return it as a child of a supervisor."""
        restart: RestartKind = "transient"
        if isinstance(self.listener, OnceListener) and self.listener.serves_once:
            restart = "temporary"
        return Child(self.name, self.run, restart=restart, ready_timeout=math.inf, significant=True, plan=LISTENER_PLAN)

    async def run(self, ready: Ready) -> None:
        """Serve until it is closed or its only peer is gone."""
        if not self._closing:
            self._idle.clear()
            self.entrance.closing = False
            self.entrance.unbound.add(self.name)
            try:
                await self._serve(ready)
                self.entrance.unbound.discard(self.name)
            except BaseException:
                self.entrance.unbound.add(self.name)
                raise
            finally:
                self._idle.set()
                # Nobody comes in by it now, so it keeps no other from being the last.
                self.entrance.closing = True
                self._registration.transport_closed(self.name)
        # One that was closed before it could be reached has ended in order too.
        ready()
        self._tell_opener(None)

    async def _serve(self, ready: Ready) -> None:
        context = self.context()
        if context is not None:
            context = context.copy()
        serving = self.listener.serve(self.entrance, lambda: self._is_ready(ready))
        try:
            await asyncio.get_running_loop().create_task(serving, name=f"listener {self.name}", context=context)
        except Exception as error:
            # Whoever starts a listener by itself is told that it cannot be bound; one that was bound is restarted.
            if not self._tell_opener(error):
                raise

    def _is_ready(self, ready: Ready) -> None:
        if isinstance(self.listener, BoundListener):
            self._bound = self.listener
            self._bound.bound_port = self._bound.address[1]
        self._registration.transport_opened(self.name, self.listener)
        self.entrance.unbound.discard(self.name)
        if self.on_ready is not None:
            self.on_ready()
        ready()
        self._tell_opener(None)

    def _tell_opener(self, error: Exception | None) -> bool:
        """Notify who started it by itself, the first time; return whether somebody was told."""
        opened = self._opened
        self._opened = None
        if opened is None or opened.done():
            return False
        if error is None:
            opened.set_result(None)
        else:
            opened.set_exception(error)
        return True

    async def open(self) -> None:
        """Start it beside the other children of its supervisor; raise what it raises where it cannot be bound."""
        self._opened = opened = asyncio.get_running_loop().create_future()
        self.supervisor.add(self.child())
        try:
            await opened
        except BaseException:
            self._closing = True
            await self.supervisor.remove(self.name)
            raise

    async def close(self, grace: float) -> None:
        """Let its peers go within `grace` seconds, and do not serve it again."""
        self._closing = True
        if not self._idle.is_set():
            await self.listener.close(grace)

    async def remove(self) -> None:
        """Forget it, when it does not serve any more."""
        await self._idle.wait()
        with contextlib.suppress(SetupError):  # its supervisor may have ended with it
            await self.supervisor.remove(self.name)

    def release(self) -> None:
        """Called when it is served no more: nobody waits for it, and next time it may have another port."""
        self.entrance.unbound.discard(self.name)
        if self._bound is not None:
            self._bound.bound_port = None
        self._tell_opener(SetupError(f"the server has stopped while its listener {self.name!r} was started"))


class Listeners:
    """The listeners of one server while it serves, by name."""

    def __init__(self, host: Host, registration: ServerRegistration, entrances: set[Entrance]) -> None:
        self._host = host
        self._registration = registration
        self._entrances = entrances
        self._grace = host.services.settings.shutdown_grace
        self._served: dict[str, ServedListener] = {}
        self.context: Context | None = None
        """The context variables of the lifespan, which handlers see."""

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._served))

    def __len__(self) -> int:
        return len(self._served)

    def __getitem__(self, name: str) -> Any:
        return self._find(name).listener

    def _find(self, name: str) -> ServedListener:
        served = self._served.get(name)
        if served is None:
            known = ", ".join(self._served) or "none"
            raise SetupError(f"the server {self._host.services.name!r} has no listener {name!r} now: it has {known}")
        return served

    async def start(self, transport: str, name: str | None = None, **options: object) -> Any:
        """Start one more listener by the name of its transport, and return it when it can be reached.

        Raise CarrierError where it cannot be bound.
        """
        listener = new_listener(transport, options)
        if not self._served:
            raise SetupError(
                f"the server {self._host.services.name!r} does not serve: `app.run` or `app.serve` it, and start"
                f" {transport!r} beside the listener it has then"
            )
        if name is not None and name in self._served:
            raise SetupError(f"there is a listener {name!r} already: choose another name")
        supervisor = next(iter(self._served.values())).supervisor
        served = self.add(listener, name or kind_of(transport).name, supervisor)
        try:
            await served.open()
        except BaseException:
            self.discard(served)
            raise
        return listener

    async def stop(self, name: str, grace: float | None = None) -> None:
        """Close one listener: let its running calls end, and serve it no more. The server ends with the last one."""
        served = self._find(name)
        within = self._grace
        if grace is not None:
            within = grace
        await served.close(within)
        await served.remove()
        self.discard(served)

    # What the tree of a server uses

    def add(self, listener: Listener, name: str | None, supervisor: Supervisor) -> ServedListener:
        """Give a listener a name that no other has; it is a child of `supervisor` then."""
        wanted = (name or name_of(listener)).replace("/", "-")
        chosen = wanted
        number = 1
        while chosen in self._served:
            number += 1
            chosen = f"{wanted}-{number}"
        entrance = Entrance(self._host, self._entrances, chosen)
        served = ServedListener(chosen, listener, entrance, self._registration, supervisor)
        served.context = lambda: self.context
        self._served[chosen] = served
        return served

    def under(self, supervisor: Supervisor) -> list[ServedListener]:
        """Return the listeners that are children of a supervisor."""
        return [served for served in self._served.values() if served.supervisor is supervisor]

    def discard(self, served: ServedListener) -> None:
        """Forget a listener that is served no more."""
        served.release()
        if self._served.get(served.name) is served:
            del self._served[served.name]


def kind_of(transport: str) -> TransportKind:
    """Return the kind of transport that has a name; raise SetupError for a name that none has."""
    kind = TRANSPORTS.get(transport)
    if kind is None:
        meant = alike(transport, TRANSPORTS)
        hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(TRANSPORTS)}"
        raise SetupError(f"unknown transport {transport!r}: {hint}")
    return kind


def new_listener(transport: str, options: Mapping[str, object]) -> Listener:
    """Make a listener of the name of its transport and its options."""
    kind = kind_of(transport)
    refuse_foreign(transport, options, ours=("host", "port", "auth"))
    return kind.new_listener(options)


def name_of(listener: Listener) -> str:
    """Return what a listener is called unless it is told otherwise."""
    if isinstance(listener, NamedListener):
        return listener.carrier
    return type(listener).__name__.lower()
