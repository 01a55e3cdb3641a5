"""LocalRegistry: the registry of one process, in dictionaries."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any

from ferrule.errors import AlreadyRegistered, NoRoute, SetupError
from ferrule.registry.registry import (
    NO_META,
    SERVER,
    TRANSPORT,
    Cause,
    Change,
    Deliver,
    Ending,
    Entry,
    Event,
    RegistryStats,
    decode_snapshot,
    encode_snapshot,
    way_into,
)

logger = logging.getLogger("ferrule.registry")


class Watchers:
    """Who hears of changes: each event reaches all before the next does, also where a watcher makes changes itself."""

    def __init__(self) -> None:
        self._callbacks: dict[WatchSubscription, Callable[[Event], None]] = {}
        self._events: deque[Event] = deque()
        self._telling = False

    def __len__(self) -> int:
        return len(self._callbacks)

    @property
    def waiting_events(self) -> int:
        """How many events are still to be told."""
        return len(self._events)

    def add(self, callback: Callable[[Event], None]) -> WatchSubscription:
        """Add a watcher."""
        subscription = WatchSubscription(self)
        self._callbacks[subscription] = callback
        return subscription

    def remove(self, subscription: WatchSubscription) -> None:
        """Take a watcher out, if it is there."""
        self._callbacks.pop(subscription, None)

    def tell(self, change: Change, entry: Entry, cause: Cause) -> None:
        """Call every watcher with a change."""
        if not self._callbacks:
            return
        self._events.append(Event(change=change, entry=entry, cause=cause))
        if self._telling:
            return
        self._telling = True
        try:
            while self._events:
                self._tell_all(self._events.popleft())
        finally:
            self._telling = False

    def _tell_all(self, event: Event) -> None:
        for subscription, callback in list(self._callbacks.items()):
            if subscription not in self._callbacks:
                continue
            try:
                callback(event)
            except Exception:
                logger.exception("a watcher of the registry failed, which was ignored")


class WatchSubscription:
    """What a watcher holds."""

    __slots__ = ("_watchers",)

    def __init__(self, watchers: Watchers) -> None:
        self._watchers = watchers

    def close(self) -> None:
        """Stop watching."""
        self._watchers.remove(self)


class LocalRegistration:
    """What whoever registered something in this process holds."""

    __slots__ = ("_registry", "_until", "entry")

    def __init__(self, registry: LocalRegistry, entry: Entry, until: Ending | None) -> None:
        self._registry = registry
        self._until = until
        self.entry = entry

    def begin(self) -> None:
        """Watch for the end."""
        if self._until is not None:
            self._until.add_done_callback(self._ended)

    def _ended(self, ending: object) -> None:
        self._until = None
        self._registry.drop(self, "ended")

    def forget(self) -> None:
        """Called when the entry is gone: what it depended on holds it no longer."""
        until = self._until
        self._until = None
        if until is not None:
            until.remove_done_callback(self._ended)

    def update(self, *, capabilities: Iterable[str] | None = None, meta: Mapping[str, object] | None = None) -> None:
        """Change what is said about it; None leaves that as it is."""
        self._registry.change(self, capabilities, meta)

    def unregister(self) -> None:
        """Take it out; nothing happens where it is out already, or another has its name."""
        self._registry.drop(self, "unregistered")

    def __enter__(self) -> LocalRegistration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()


class LocalRegistry:
    """The registry of one process, in dictionaries."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, LocalRegistration]] = {}
        self._capable: dict[tuple[str, str], dict[str, LocalRegistration]] = {}
        """By kind and capability."""
        self._servers: dict[str, str] = {}
        """The server of each transport that is bound."""
        self._transports: dict[str, dict[str, None]] = {}
        """The transports of each server, in the order they were bound."""
        self._routes: dict[str, Deliver] = {}
        """What takes the data of each transport that is bound to a server that takes data."""
        self._watchers = Watchers()

    # Entries

    def register(
        self,
        kind: str,
        name: str,
        value: object,
        *,
        capabilities: Iterable[str] = (),
        meta: Mapping[str, object] | None = None,
        until: Ending | None = None,
    ) -> LocalRegistration:
        """Add an entry, which goes when `until` has ended; raise AlreadyRegistered where the name is taken."""
        if until is not None and not hasattr(until, "add_done_callback"):
            raise SetupError(f"{kind} {name!r}: until must be a task or a future, not {until!r}")
        old = self._kinds.get(kind, {}).get(name)
        if old is not None and not old.entry.is_restored:
            raise AlreadyRegistered(kind, name)
        entry = Entry(
            kind=kind,
            name=name,
            value=value,
            capabilities=frozenset(capabilities),
            meta=MappingProxyType(dict(meta)) if meta else NO_META,
            deliver=way_into(value),
        )
        if old is not None:
            self._remove(old.entry)
        registration = LocalRegistration(self, entry, until)
        self._insert(registration)
        registration.begin()
        if old is None:
            self._watchers.tell("added", entry, "registered")
        else:
            self._watchers.tell("changed", entry, "registered")
        return registration

    def unregister(self, kind: str, name: str) -> None:
        """Take an entry out, if it is there."""
        registration = self._kinds.get(kind, {}).get(name)
        if registration is not None:
            self.drop(registration, "unregistered")

    def find(self, kind: str, name: str) -> Entry | None:
        """Return an entry; None where there is none."""
        names = self._kinds.get(kind)
        if names is None:
            return None
        registration = names.get(name)
        if registration is None:
            return None
        return registration.entry

    def find_all(self, kind: str, *, capability: str | None = None) -> list[Entry]:
        """Return the entries of a kind, or those of them that have a capability, in the order they came."""
        if capability is None:
            found = self._kinds.get(kind, {})
        else:
            found = self._capable.get((kind, capability), {})
        return [registration.entry for registration in found.values()]

    def _insert(self, registration: LocalRegistration) -> None:
        entry = registration.entry
        self._kinds.setdefault(entry.kind, {})[entry.name] = registration
        for capability in entry.capabilities:
            self._capable.setdefault((entry.kind, capability), {})[entry.name] = registration
        if entry.kind == SERVER:
            self._reroute(entry)

    def _reroute(self, entry: Entry) -> None:
        """Let the transports of a server lead to what takes its data now."""
        for transport in self._transports.get(entry.name, ()):
            if entry.deliver is None:
                self._routes.pop(transport, None)
            else:
                self._routes[transport] = entry.deliver

    def _remove(self, entry: Entry) -> None:
        """Take an entry out of the look-up tables; its bindings stay."""
        _discard(self._kinds, entry.kind, entry.name)
        for capability in entry.capabilities:
            _discard(self._capable, (entry.kind, capability), entry.name)

    def drop(self, registration: LocalRegistration, cause: Cause) -> None:
        """Take an entry out with its bindings, unless another has its place."""
        entry = registration.entry
        if self._kinds.get(entry.kind, {}).get(entry.name) is not registration:
            return
        registration.forget()
        self._remove(entry)
        unbound: list[str] = []
        if entry.kind == TRANSPORT:
            self._unbind(entry.name)
        elif entry.kind == SERVER:
            unbound = self.transports_for(entry.name)
        for transport in unbound:
            self._unbind(transport)
        self._watchers.tell("gone", entry, cause)
        for transport in unbound:
            self._tell_of_transport(transport, "unbound")

    def change(
        self, registration: LocalRegistration, capabilities: Iterable[str] | None, meta: Mapping[str, object] | None
    ) -> None:
        """Change what is said about an entry, while it is there."""
        entry = registration.entry
        if self._kinds.get(entry.kind, {}).get(entry.name) is not registration:
            raise SetupError(f"{entry.kind} {entry.name!r} is not registered any more")
        changed = Entry(
            kind=entry.kind,
            name=entry.name,
            value=entry.value,
            capabilities=entry.capabilities if capabilities is None else frozenset(capabilities),
            meta=entry.meta if meta is None else MappingProxyType(dict(meta)),
            deliver=entry.deliver,
        )
        registration.entry = changed
        for capability in entry.capabilities - changed.capabilities:
            _discard(self._capable, (entry.kind, capability), entry.name)
        for capability in changed.capabilities - entry.capabilities:
            self._capable.setdefault((entry.kind, capability), {})[entry.name] = registration
        self._watchers.tell("changed", changed, "updated")

    # Bindings

    def bind(self, transport: str, server: str) -> None:
        """Let a server take what a transport brings; raise NoRoute where one of them is not registered."""
        if self.find(TRANSPORT, transport) is None:
            raise NoRoute(f"transport {transport!r} is not registered: register it before it is bound")
        entry = self.find(SERVER, server)
        if entry is None:
            raise NoRoute(f"server {server!r} is not registered: register it before a transport is bound to it")
        if self._servers.get(transport) == server:
            return
        self._unbind(transport)
        self._bind(transport, entry)
        self._tell_of_transport(transport, "bound")

    def _bind(self, transport: str, server: Entry) -> None:
        self._servers[transport] = server.name
        self._transports.setdefault(server.name, {})[transport] = None
        if server.deliver is not None:
            self._routes[transport] = server.deliver

    def unbind(self, transport: str) -> None:
        """Undo `bind`, if the transport is bound."""
        if self._unbind(transport):
            self._tell_of_transport(transport, "unbound")

    def _unbind(self, transport: str) -> bool:
        server = self._servers.pop(transport, None)
        if server is None:
            return False
        _discard(self._transports, server, transport)
        self._routes.pop(transport, None)
        return True

    def _tell_of_transport(self, transport: str, cause: Cause) -> None:
        entry = self.find(TRANSPORT, transport)
        if entry is not None:
            self._watchers.tell("changed", entry, cause)

    def server_for(self, transport: str) -> str | None:
        """Return the name of the server that a transport is bound to."""
        return self._servers.get(transport)

    def transports_for(self, server: str) -> list[str]:
        """Return the names of the transports that are bound to a server."""
        return list(self._transports.get(server, ()))

    # Data

    async def route(self, transport: str, data: bytes) -> None:
        """Hand what came from a transport to its server; raise NoRoute where there is none."""
        deliver = self._routes.get(transport)
        if deliver is None:
            raise NoRoute(self._why_no_route(transport))
        waiting = deliver(transport, data)
        if waiting is not None:
            await waiting

    def _why_no_route(self, transport: str) -> str:
        server = self._servers.get(transport)
        if server is not None:
            return f"server {server!r} takes no data: register it again with a value that can be called"
        if self.find(TRANSPORT, transport) is None:
            return f"transport {transport!r} is not registered"
        return f"transport {transport!r} is bound to no server: bind it first"

    async def respond(self, transport: str, data: bytes) -> None:
        """Hand what a server answers to the transport; raise NoRoute where there is none."""
        entry = self.find(TRANSPORT, transport)
        if entry is None:
            raise NoRoute(f"transport {transport!r} is not registered")
        if entry.deliver is None:
            raise NoRoute(f"transport {transport!r} takes no data: register it with a value that can be called")
        waiting = entry.deliver(self._servers.get(transport, ""), data)
        if waiting is not None:
            await waiting

    async def broadcast(self, server: str, data: bytes) -> int:
        """Hand data to every transport of a server; return how many took it."""
        transports = self.transports_for(server)
        sending = [self.respond(transport, data) for transport in transports]
        taken = 0
        for transport, error in zip(transports, await asyncio.gather(*sending, return_exceptions=True), strict=True):
            if error is None:
                taken += 1
            else:
                logger.warning("transport %r did not take a broadcast of server %r", transport, server, exc_info=error)
        return taken

    # The whole

    def watch(self, callback: Callable[[Event], None]) -> WatchSubscription:
        """Call back after every change."""
        if inspect.iscoroutinefunction(callback):
            raise SetupError("a watcher of a registry must be a plain function: it is called, not awaited")
        return self._watchers.add(callback)

    def stats(self) -> RegistryStats:
        """Return how much there is."""
        return RegistryStats(
            entries={kind: len(names) for kind, names in self._kinds.items()},
            bindings=len(self._servers),
            watchers=len(self._watchers),
            waiting_events=self._watchers.waiting_events,
        )

    def snapshot(self) -> bytes:
        """Return all entries, without their values, and all bindings."""
        entries = []
        for kind in self._kinds:
            entries += self.find_all(kind)
        return encode_snapshot(entries, self._servers)

    def restore(self, snapshot: bytes) -> None:
        """Add what a snapshot holds and is not there; raise SetupError for what is no snapshot."""
        saved = decode_snapshot(snapshot)
        for each in saved.entries:
            if self.find(each.kind, each.name) is None:
                entry = Entry(
                    kind=each.kind,
                    name=each.name,
                    capabilities=frozenset(each.capabilities),
                    meta=MappingProxyType(each.meta),
                    is_restored=True,
                )
                self._insert(LocalRegistration(self, entry, None))
                self._watchers.tell("added", entry, "restored")
        for transport, server in saved.bindings.items():
            known = self.find(SERVER, server)
            if known is not None and transport not in self._servers and self.find(TRANSPORT, transport) is not None:
                self._bind(transport, known)
                self._tell_of_transport(transport, "bound")


def _discard(tables: dict[Any, dict[str, Any]], key: object, name: str) -> None:
    """Take a name out of one of many tables, and the table when it is empty."""
    table = tables[key]
    del table[name]
    if not table:
        del tables[key]
