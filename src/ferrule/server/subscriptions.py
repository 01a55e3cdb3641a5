"""Who listens to which change, in either era: there are only listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ferrule.schema.model import SUBSCRIPTION_KEY
from ferrule.schema.notices import RESOURCE_UPDATED
from ferrule.wire.channel import Channel
from ferrule.wire.messages import Id, Notification

Send = Callable[[str, dict[str, Any]], None]


class Listener:
    """One place change notices go to: a link, one `subscriptions/listen`, or a function of this process."""

    __slots__ = ("_meta", "_send", "kinds", "uris")

    def __init__(self, send: Send, kinds: Iterable[str] = (), uris: Iterable[str] = (), tag: Id | None = None) -> None:
        self._send = send
        self._meta = None if tag is None else {SUBSCRIPTION_KEY: tag}
        self.kinds = frozenset(kinds)
        self.uris = set(uris)

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Pass a notice on, under the subscription it belongs to."""
        if self._meta is not None:
            params = {**params, "_meta": {**params.get("_meta", {}), **self._meta}}
        self._send(method, params)


def to_channel(channel: Channel) -> Send:
    """Make a listener's way out of a channel."""

    def send(method: str, params: dict[str, Any]) -> None:
        channel.send(Notification(method, params) if params else Notification(method))

    return send


class Subscriptions:
    """All listeners of one server, found by what they listen to."""

    def __init__(self) -> None:
        self._by_uri: dict[str, dict[Listener, None]] = {}
        self._by_kind: dict[str, dict[Listener, None]] = {}

    def add(self, listener: Listener) -> None:
        """Let a listener hear what it asked for."""
        for kind in listener.kinds:
            self._by_kind.setdefault(kind, {})[listener] = None
        for uri in listener.uris:
            self._by_uri.setdefault(uri, {})[listener] = None

    def remove(self, listener: Listener) -> None:
        """Let a listener hear nothing more."""
        for kind in listener.kinds:
            _discard(self._by_kind, kind, listener)
        for uri in listener.uris:
            _discard(self._by_uri, uri, listener)
        listener.uris.clear()

    def subscribe(self, listener: Listener, uri: str) -> None:
        """Let a listener hear of one more resource; twice is once."""
        listener.uris.add(uri)
        self._by_uri.setdefault(uri, {})[listener] = None

    def unsubscribe(self, listener: Listener, uri: str) -> None:
        """Let a listener hear of a resource no more."""
        listener.uris.discard(uri)
        _discard(self._by_uri, uri, listener)

    def listeners(self, uri: str) -> list[Listener]:
        """Give who hears of a resource."""
        return list(self._by_uri.get(uri, ()))

    def updated(self, uri: str, extra: dict[str, Any]) -> int:
        """Tell everyone who listens that a resource changed; gives how many were told."""
        listeners = self._by_uri.get(uri)
        if not listeners:
            return 0
        params = {"uri": uri, **extra}
        for listener in list(listeners):
            listener.tell(RESOURCE_UPDATED, params)
        return len(listeners)

    def changed(self, kind: str) -> int:
        """Tell everyone who listens that a list changed; gives how many were told."""
        listeners = list(self._by_kind.get(kind, ()))
        for listener in listeners:
            listener.tell(kind, {})
        return len(listeners)

    def __len__(self) -> int:
        everyone = {listener for group in (*self._by_uri.values(), *self._by_kind.values()) for listener in group}
        return len(everyone)


def _discard(groups: dict[str, dict[Listener, None]], key: str, listener: Listener) -> None:
    group = groups.get(key)
    if group is not None:
        group.pop(listener, None)
        if not group:
            del groups[key]
