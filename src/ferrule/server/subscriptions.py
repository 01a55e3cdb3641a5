"""Who listens to which change, in either era: there are only listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw

from ferrule.schema.model import SUBSCRIPTION_KEY
from ferrule.schema.notices import RESOURCE_UPDATED, TASK_CHANGED
from ferrule.wire.channel import Channel
from ferrule.wire.messages import Id, Notification

NOTHING: frozenset[str] = frozenset()
"""What most listeners of thousands subscribe to; they share it."""

_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(dict[str, Any]).decode


class Notice:
    """One change to be told of: encoded once, however many listen."""

    __slots__ = ("_stem", "message", "method", "params")

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        self.method = method
        self.params = params
        self.message = Notification(method, Raw(_write(params))) if params else Notification(method)
        others = {name: value for name, value in params.items() if name != "_meta"}
        tagged = {**others, "_meta": {**params.get("_meta", {}), SUBSCRIPTION_KEY: 0}}
        self._stem = _write(tagged).removesuffix(b"0}}")

    def under(self, tag: bytes) -> Notification:
        """Give the message for one subscription, whose encoded id is named at the end of it."""
        return Notification(self.method, Raw(b"%b%b}}" % (self._stem, tag)))


class Listener:
    """One place change notices go to: a link, one `subscriptions/listen`, or a function of this process."""

    __slots__ = ("_channel", "_tag", "kinds", "principal", "tasks", "uris")

    def __init__(
        self,
        channel: Channel | None,
        kinds: Iterable[str] = (),
        uris: Iterable[str] = (),
        tag: Id | None = None,
        principal: str | None = None,
        tasks: Iterable[str] = (),
    ) -> None:
        self._channel = channel
        self._tag = None if tag is None else _write(tag)
        self.kinds = frozenset(kinds)
        self.principal = principal
        """On whose behalf it listens, where that is all there is to tell listeners apart."""
        self.uris: set[str] | frozenset[str] = set(uris) or NOTHING
        self.tasks = frozenset(tasks) or NOTHING

    def tell(self, notice: Notice) -> None:
        """Pass a notice on, under the subscription it belongs to."""
        if self._channel is not None:
            self._channel.send(notice.message if self._tag is None else notice.under(self._tag))


class Callback(Listener):
    """A function of this process that hears of resources."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[str], None], uris: Iterable[str]) -> None:
        super().__init__(None, uris=uris)
        self._call = call

    def tell(self, notice: Notice) -> None:
        """Call the function with the resource that changed."""
        self._call(notice.params["uri"])


class Subscriptions:
    """All listeners of one server, found by what they listen to."""

    def __init__(self) -> None:
        self._by_uri: dict[str, dict[Listener, None]] = {}
        self._by_task: dict[str, dict[Listener, None]] = {}
        self._to_lists: dict[Listener, None] = {}

    def add(self, listener: Listener) -> None:
        """Let a listener hear what it asked for."""
        if listener.kinds:
            self._to_lists[listener] = None
        for uri in listener.uris:
            self._by_uri.setdefault(uri, {})[listener] = None
        for task in listener.tasks:
            self._by_task.setdefault(task, {})[listener] = None

    def remove(self, listener: Listener) -> None:
        """Let a listener hear nothing more."""
        self._to_lists.pop(listener, None)
        for uri in listener.uris:
            _discard(self._by_uri, uri, listener)
        for task in listener.tasks:
            _discard(self._by_task, task, listener)
        listener.uris = listener.tasks = NOTHING

    def subscribe(self, listener: Listener, uri: str) -> None:
        """Let a listener hear of one more resource; twice is once."""
        if isinstance(listener.uris, frozenset):
            listener.uris = set()
        listener.uris.add(uri)
        self._by_uri.setdefault(uri, {})[listener] = None

    def unsubscribe(self, listener: Listener, uri: str) -> None:
        """Let a listener hear of a resource no more."""
        if isinstance(listener.uris, set):
            listener.uris.discard(uri)
        _discard(self._by_uri, uri, listener)

    def listeners(self, uri: str) -> list[Listener]:
        """Give who hears of a resource."""
        return list(self._by_uri.get(uri, ()))

    def updated(self, uri: str, extra: dict[str, Any]) -> int:
        """Tell everyone who listens that a resource changed; gives how many were told."""
        listeners = list(self._by_uri.get(uri, ()))
        if listeners:
            notice = Notice(RESOURCE_UPDATED, {"uri": uri, **extra})
            for listener in listeners:
                listener.tell(notice)
        return len(listeners)

    def changed(self, kind: str, principal: str | None = None) -> int:
        """Tell everyone who listens, or one principal, that a list changed; gives how many were told."""
        listeners = [listener for listener in self._to_lists if kind in listener.kinds]
        if principal is not None:
            listeners = [listener for listener in listeners if listener.principal == principal]
        notice = Notice(kind, {})
        for listener in listeners:
            listener.tell(notice)
        return len(listeners)

    def task_changed(self, task_id: str, told: Callable[[], Any]) -> int:
        """Tell everyone who listens to a task how it stands; gives how many were told."""
        listeners = list(self._by_task.get(task_id, ()))
        if listeners:
            notice = Notice(TASK_CHANGED, _read(_write(told())))
            for listener in listeners:
                listener.tell(notice)
        return len(listeners)

    def __len__(self) -> int:
        groups = (*self._by_uri.values(), *self._by_task.values())
        return len({listener for group in groups for listener in group} | self._to_lists.keys())


def _discard(groups: dict[str, dict[Listener, None]], key: str, listener: Listener) -> None:
    group = groups.get(key)
    if group is not None:
        group.pop(listener, None)
        if not group:
            del groups[key]
