"""A second backend: nodes that share a log of changes as bytes, as processes share a store.

Every node has a copy of what all know, made of the log alone; values stay with the node that registered them, and data
for the others is forwarded through the hub.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ferrule.registry.local import LocalRegistration, LocalRegistry, WatchSubscription
from ferrule.registry.registry import Ending, Entry, Event, RegistryStats, way_into


class Hub:
    """What all nodes share: it hands on bytes only."""

    def __init__(self) -> None:
        self.nodes: list[HubRegistry] = []

    def publish(self, **change: Any) -> None:
        """Send a change to every node."""
        data = json.dumps(change).encode()
        for node in self.nodes:
            node.apply(json.loads(data))

    async def forward(self, node: int, kind: str, name: str, sender: str, data: bytes) -> None:
        """Hand data to the node that owns an entry."""
        waiting = self.nodes[node].deliver(kind, name, sender, data)
        if waiting is not None:
            await waiting


class HubRegistration:
    """What whoever registered something at a node holds."""

    def __init__(self, node: HubRegistry, kind: str, name: str) -> None:
        self._node = node
        self._key = (kind, name)
        self._token = node.own[self._key]

    @property
    def entry(self) -> Entry:
        """The entry as it is now."""
        found = self._node.find(*self._key)
        assert found is not None
        return found

    def update(self, *, capabilities: Iterable[str] | None = None, meta: Mapping[str, Any] | None = None) -> None:
        """Change what is said about it."""
        kept = None if capabilities is None else sorted(capabilities)
        changed = None if meta is None else dict(meta)
        self._node.hub.publish(op="update", key=list(self._key), capabilities=kept, meta=changed)

    def unregister(self) -> None:
        """Take it out, unless another has its name."""
        self.drop("unregistered")

    def drop(self, cause: str) -> None:
        """Take it out for a reason."""
        if self._node.own.get(self._key) is self._token:
            self._node.hub.publish(op="unregister", key=list(self._key), cause=cause)

    def __enter__(self) -> HubRegistration:
        return self

    def __exit__(self, *exc: object) -> None:
        self.unregister()


class HubRegistry:
    """The registry as one node sees it."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.own: dict[tuple[str, str], list[object]] = {}
        self._copy = LocalRegistry()
        self._copies: dict[tuple[str, str], LocalRegistration] = {}
        self._number = len(hub.nodes)
        hub.nodes.append(self)

    def register(
        self,
        kind: str,
        name: str,
        value: object,
        *,
        capabilities: Iterable[str] = (),
        meta: Mapping[str, Any] | None = None,
        until: Ending | None = None,
    ) -> HubRegistration:
        """Add an entry at every node."""
        known = self._copy.find(kind, name)
        if known is not None and not known.is_restored:
            self._copy.register(kind, name, value)  # raises
        token: list[object] = [value]
        self.own[kind, name] = token
        self.hub.publish(
            op="register",
            node=self._number,
            key=[kind, name],
            takes=way_into(value) is not None,
            capabilities=sorted(capabilities),
            meta=dict(meta or {}),
        )
        registration = HubRegistration(self, kind, name)
        if until is not None:
            until.add_done_callback(lambda _: registration.drop("ended"))
        return registration

    def apply(self, change: Any) -> None:
        """Learn of a change."""
        key = tuple(change["key"])
        op = change["op"]
        if op == "register":
            value: object = None
            if change["node"] == self._number:
                value = self.own[key][0]
            elif change["takes"]:
                value = self._forwarder(change["node"], *key)
            self._copies[key] = self._copy.register(
                *key, value, capabilities=change["capabilities"], meta=change["meta"]
            )
        elif op == "update":
            self._copies[key].update(capabilities=change["capabilities"], meta=change["meta"])
        elif op == "unregister":
            self.own.pop(key, None)
            self._copy.drop(self._copies.pop(key), change["cause"])
        elif op == "bind":
            self._copy.bind(*key)
        elif op == "unbind":
            self._copy.unbind(key[0])
        else:
            self._copy.restore(change["snapshot"].encode())

    def _forwarder(self, node: int, kind: str, name: str) -> Callable[[str, bytes], Awaitable[None]]:
        return lambda sender, data: self.hub.forward(node, kind, name, sender, data)

    def deliver(self, kind: str, name: str, sender: str, data: bytes) -> Awaitable[None] | None:
        """Take data for an entry of this node."""
        way = way_into(self.own[kind, name][0])
        assert way is not None
        return way(sender, data)

    def unregister(self, kind: str, name: str) -> None:
        """Take an entry out, wherever it was registered."""
        if self._copy.find(kind, name) is not None:
            self.hub.publish(op="unregister", key=[kind, name], cause="unregistered")

    def find(self, kind: str, name: str) -> Entry | None:
        """Return an entry."""
        return self._copy.find(kind, name)

    def find_all(self, kind: str, *, capability: str | None = None) -> list[Entry]:
        """Return the entries of a kind."""
        return self._copy.find_all(kind, capability=capability)

    def bind(self, transport: str, server: str) -> None:
        """Bind at every node."""
        self.hub.publish(op="bind", key=[transport, server])

    def unbind(self, transport: str) -> None:
        """Unbind at every node."""
        self.hub.publish(op="unbind", key=[transport])

    def server_for(self, transport: str) -> str | None:
        """Return the server of a transport."""
        return self._copy.server_for(transport)

    def transports_for(self, server: str) -> list[str]:
        """Return the transports of a server."""
        return self._copy.transports_for(server)

    async def route(self, transport: str, data: bytes) -> None:
        """Hand data to the server, at whichever node it is."""
        await self._copy.route(transport, data)

    async def respond(self, transport: str, data: bytes) -> None:
        """Hand data to the transport, at whichever node it is."""
        await self._copy.respond(transport, data)

    async def broadcast(self, server: str, data: bytes) -> int:
        """Hand data to every transport of a server."""
        return await self._copy.broadcast(server, data)

    def watch(self, callback: Callable[[Event], None]) -> WatchSubscription:
        """Call back after every change."""
        return self._copy.watch(callback)

    def stats(self) -> RegistryStats:
        """Return how much there is."""
        return self._copy.stats()

    def snapshot(self) -> bytes:
        """Return what all know."""
        return self._copy.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Restore at every node."""
        self.hub.publish(op="restore", key=[], snapshot=snapshot.decode())
