"""Who hears of which change; a subscriber is the same thing in either era."""

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
"""The URIs and tasks of a subscriber that hears of lists only; thousands share it."""

_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(dict[str, Any]).decode


class ChangeNotice:
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


class Subscriber:
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
        """On whose behalf it listens, where that is all there is to tell subscribers apart."""
        self.uris: set[str] | frozenset[str] = set(uris) or NOTHING
        self.tasks = frozenset(tasks) or NOTHING

    def tell(self, notice: ChangeNotice) -> None:
        """Pass a notice on, under the subscription it belongs to."""
        if self._channel is not None:
            self._channel.send(notice.message if self._tag is None else notice.under(self._tag))


class CallbackSubscriber(Subscriber):
    """A function of this process that hears of resources."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[str], None], uris: Iterable[str]) -> None:
        super().__init__(channel=None, uris=uris)
        self._call = call

    def tell(self, notice: ChangeNotice) -> None:
        """Call the function with the resource that changed."""
        self._call(notice.params["uri"])


class Subscriptions:
    """All subscribers of one server, found by what they listen to."""

    def __init__(self) -> None:
        self._by_uri: dict[str, dict[Subscriber, None]] = {}
        self._by_task: dict[str, dict[Subscriber, None]] = {}
        self._to_lists: dict[Subscriber, None] = {}

    def add(self, subscriber: Subscriber) -> None:
        """Let a subscriber hear what it asked for."""
        if subscriber.kinds:
            self._to_lists[subscriber] = None
        for uri in subscriber.uris:
            self._by_uri.setdefault(uri, {})[subscriber] = None
        for task in subscriber.tasks:
            self._by_task.setdefault(task, {})[subscriber] = None

    def remove(self, subscriber: Subscriber) -> None:
        """Let a subscriber hear nothing more."""
        self._to_lists.pop(subscriber, None)
        for uri in subscriber.uris:
            _discard(self._by_uri, uri, subscriber)
        for task in subscriber.tasks:
            _discard(self._by_task, task, subscriber)
        subscriber.uris = subscriber.tasks = NOTHING

    def subscribe(self, subscriber: Subscriber, uri: str) -> None:
        """Let a subscriber hear of one more resource; twice is once."""
        if isinstance(subscriber.uris, frozenset):
            subscriber.uris = set()
        subscriber.uris.add(uri)
        self._by_uri.setdefault(uri, {})[subscriber] = None

    def unsubscribe(self, subscriber: Subscriber, uri: str) -> None:
        """Let a subscriber hear of a resource no more."""
        if isinstance(subscriber.uris, set):
            subscriber.uris.discard(uri)
        _discard(self._by_uri, uri, subscriber)

    def subscribers(self, uri: str) -> list[Subscriber]:
        """Give the subscribers of a resource."""
        return list(self._by_uri.get(uri, ()))

    def updated(self, uri: str, extra: dict[str, Any]) -> int:
        """Tell everyone who listens that a resource changed; gives how many were told."""
        subscribers = list(self._by_uri.get(uri, ()))
        if subscribers:
            notice = ChangeNotice(RESOURCE_UPDATED, {"uri": uri, **extra})
            for subscriber in subscribers:
                subscriber.tell(notice)
        return len(subscribers)

    def changed(self, kind: str, principal: str | None = None) -> int:
        """Tell everyone who listens, or one principal, that a list changed; gives how many were told."""
        subscribers = [subscriber for subscriber in self._to_lists if kind in subscriber.kinds]
        if principal is not None:
            subscribers = [subscriber for subscriber in subscribers if subscriber.principal == principal]
        notice = ChangeNotice(kind, {})
        for subscriber in subscribers:
            subscriber.tell(notice)
        return len(subscribers)

    def task_changed(self, task_id: str, told: Callable[[], Any]) -> int:
        """Tell everyone who listens to a task how it stands; gives how many were told."""
        subscribers = list(self._by_task.get(task_id, ()))
        if subscribers:
            notice = ChangeNotice(TASK_CHANGED, _read(_write(told())))
            for subscriber in subscribers:
                subscriber.tell(notice)
        return len(subscribers)

    def __len__(self) -> int:
        groups = (*self._by_uri.values(), *self._by_task.values())
        return len({subscriber for group in groups for subscriber in group} | self._to_lists.keys())


def _discard(groups: dict[str, dict[Subscriber, None]], key: str, subscriber: Subscriber) -> None:
    group = groups.get(key)
    if group is not None:
        group.pop(subscriber, None)
        if not group:
            del groups[key]
