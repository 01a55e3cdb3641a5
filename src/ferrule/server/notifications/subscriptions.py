"""Who hears of which change; a subscriber is the same thing in either era.

Rule 1: a subscriber listens to a bounded number of things, and all of them together to a bounded number of bytes, of
which the subscribers of one principal or address hold one part in `SHARE` at most.
Rule 2: a subscriber that does not read is told of each thing once, when it reads again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any

import msgspec
from msgspec import Raw

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.budgets.bounds import MAX_ID_LENGTH, MAX_URI_LENGTH
from ferrule.budgets.shares import Shares
from ferrule.errors import Busy, InvalidParams
from ferrule.schema.model import SUBSCRIPTION_KEY
from ferrule.schema.notices import RESOURCE_UPDATED, TASK_CHANGED
from ferrule.wire.channel import Channel
from ferrule.wire.codec import encode
from ferrule.wire.messages import Id, Notification

logger = logging.getLogger("ferrule.server")

NOTHING: frozenset[str] = frozenset()
"""The URIs and tasks of a subscriber that hears of lists only; thousands share it."""

SHARE = 4
"""The subscribers of one principal, or without one of one address, hold one part in so many of all bytes at most."""
COST = 512
"""Bytes that keeping one subscription takes besides its text."""

_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(dict[str, Any]).decode


class ChangeNotice:
    """One change to be told of: encoded once, however many listen."""

    __slots__ = ("_message", "_stem", "_text", "about", "method", "params")

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        self.about = (method, params.get("uri") or params.get("taskId"))
        """What changed: of several notices about the same thing only the last matters."""
        self.method = method
        self.params = params
        if params:
            self._message = Notification(method, Raw(_write(params)))
        else:
            self._message = Notification(method)
        others = {}
        for name, value in params.items():
            if name != "_meta":
                others[name] = value
        tagged = {**others, "_meta": {**params.get("_meta", {}), SUBSCRIPTION_KEY: 0}}
        self._stem = _write(tagged).removesuffix(b"0}}")
        self._text = encode(self._message), encode(self.under(b"0")).removesuffix(b"0}}}")
        """The whole message without a subscription, and its beginning with one."""

    def under(self, tag: bytes | None) -> Notification:
        """Return the message for one subscription, whose encoded id is named at the end of it."""
        if tag is None:
            return self._message
        return Notification(self.method, Raw(b"%b%b}}" % (self._stem, tag)))

    def text_under(self, tag: bytes | None) -> bytes:
        """Return the same message encoded."""
        if tag is None:
            return self._text[0]
        return b"%b%b}}}" % (self._text[1], tag)


class Subscriber:
    """One place change notices go to: a link, one `subscriptions/listen`, or a function of this process."""

    __slots__ = (
        "_channel",
        "_held",
        "_sender",
        "_tag",
        "cost",
        "count",
        "holder",
        "kinds",
        "owner",
        "principal",
        "tasks",
        "uris",
    )

    def __init__(
        self,
        channel: Channel | None,
        kinds: Iterable[str] = (),
        uris: Iterable[str] = (),
        tag: Id | None = None,
        principal: str | None = None,
        tasks: Iterable[str] = (),
        owner: Hashable = None,
        holder: str = "",
    ) -> None:
        self._channel = channel
        if tag is None:
            self._tag = None
        else:
            self._tag = _write(tag)
        self._held: dict[Hashable, ChangeNotice] | None = None
        """Notices for a peer that does not read, one for each thing it listens to."""
        self._sender: asyncio.Task[None] | None = None
        self.kinds = frozenset(kinds)
        self.principal = principal
        """On whose behalf it listens, where that is all there is to tell subscribers apart."""
        self.owner = owner
        """What its subscriptions are counted for together with others': a link; None for itself alone."""
        self.holder = holder
        """Whose share of all bytes it takes from: a principal or an address."""
        self.cost = 0
        """Bytes that are taken for it."""
        self.count = 0
        """Subscriptions that are counted for it."""
        self.uris: set[str] | frozenset[str] = set(uris) if uris else NOTHING
        self.tasks = frozenset(tasks) if tasks else NOTHING

    def tell(self, notice: ChangeNotice) -> None:
        """Pass a notice on, under the subscription it belongs to."""
        channel = self._channel
        if channel is None:
            return
        if self._held is not None:
            self._held[notice.about] = notice
        elif channel.congested:
            self._held = {notice.about: notice}
            self._sender = asyncio.get_running_loop().create_task(self._send_held(channel))
        else:
            channel.send_broadcast(notice, self._tag)

    async def _send_held(self, channel: Channel) -> None:
        """Send what was held back as soon as the peer reads again."""
        await channel.wait_writable()
        held = self._held or {}
        self._held = None
        self._sender = None
        for notice in held.values():
            channel.send_broadcast(notice, self._tag)

    def close(self) -> None:
        """Drop what was held back."""
        if self._sender is not None:
            self._sender.cancel()
        self._sender = None
        self._held = None
        self._channel = None


class CallbackSubscriber(Subscriber):
    """A function of this process that hears of resources."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[str], None], uris: Iterable[str]) -> None:
        super().__init__(channel=None, uris=uris)
        self._call = call

    def tell(self, notice: ChangeNotice) -> None:
        """Call the function with the resource that changed; what it raises is logged."""
        uri = notice.params["uri"]
        try:
            self._call(uri)
        except Exception:
            logger.exception("a subscriber of %s failed", uri)


class Subscriptions:
    """All subscribers of one server, found by what they listen to."""

    def __init__(self, most: int = 1000, account: Account = process.subscriptions) -> None:
        self._most = most
        self._account = account
        self._counts: Shares[Hashable] = Shares()
        """How many subscriptions each owner has."""
        self._shares: Shares[str] = Shares()
        """How many bytes each principal or address holds."""
        self._by_uri: dict[str, dict[Subscriber, None]] = {}
        self._by_task: dict[str, dict[Subscriber, None]] = {}
        self._to_lists: dict[Subscriber, None] = {}
        self.on_task_watched: Callable[[str, bool], None] | None = None
        """Called when somebody listens to a task, and when nobody does any more."""

    @property
    def watched(self) -> int:
        """How many resources and tasks somebody listens to."""
        return len(self._by_uri) + len(self._by_task)

    @property
    def list_listeners(self) -> int:
        """How many subscribers listen to lists."""
        return len(self._to_lists)

    @property
    def watched_resources(self) -> int:
        """How many resources somebody listens to."""
        return len(self._by_uri)

    @property
    def watched_tasks(self) -> int:
        """How many tasks somebody listens to."""
        return len(self._by_task)

    def check(self, uris: Collection[str], tasks: Collection[str] = ()) -> None:
        """Refuse a wish that no subscriber may have, before work is spent on it."""
        if len(uris) + len(tasks) > self._most:
            raise InvalidParams(f"Too many subscriptions: a server has room for {self._most:,} of one client")
        for uri in uris:
            if len(uri) > MAX_URI_LENGTH:
                raise InvalidParams(f"The URI is too long: it may have {MAX_URI_LENGTH:,} characters")
        for task in tasks:
            if len(task) > MAX_ID_LENGTH:
                raise InvalidParams(f"The id of a task is too long: it may have {MAX_ID_LENGTH:,} characters")

    def add(self, subscriber: Subscriber) -> None:
        """Let a subscriber hear what it asked for; raises Busy where there is no room for it."""
        texts = [*subscriber.uris, *subscriber.tasks]
        if subscriber.holder:
            self._take(subscriber, max(1, len(texts)), COST + sum(map(_cost, texts)))
        self.add_to_lists(subscriber)
        for uri in subscriber.uris:
            self._by_uri.setdefault(uri, {})[subscriber] = None
        for task in subscriber.tasks:
            self._by_task.setdefault(task, {})[subscriber] = None
            if self.on_task_watched is not None:
                self.on_task_watched(task, True)

    def add_to_lists(self, subscriber: Subscriber) -> None:
        """Let a subscriber hear of the lists it asked for."""
        if subscriber.kinds:
            self._to_lists[subscriber] = None

    def remove(self, subscriber: Subscriber) -> None:
        """Let a subscriber hear nothing more."""
        subscriber.close()
        self._to_lists.pop(subscriber, None)
        for uri in subscriber.uris:
            _discard(self._by_uri, uri, subscriber)
        for task in subscriber.tasks:
            _discard(self._by_task, task, subscriber)
            if self.on_task_watched is not None and task not in self._by_task:
                self.on_task_watched(task, False)
        subscriber.uris = subscriber.tasks = NOTHING
        if subscriber.count:
            self._give(subscriber, subscriber.count, subscriber.cost)

    def subscribe(self, subscriber: Subscriber, uri: str) -> None:
        """Let a subscriber hear of one more resource; twice is once. Raises Busy where there is no room for it."""
        if uri in subscriber.uris:
            return
        self._take(subscriber, 1, _cost(uri))
        if isinstance(subscriber.uris, frozenset):
            subscriber.uris = set()
        subscriber.uris.add(uri)
        self._by_uri.setdefault(uri, {})[subscriber] = None

    def unsubscribe(self, subscriber: Subscriber, uri: str) -> None:
        """Let a subscriber hear of a resource no more."""
        if isinstance(subscriber.uris, set) and uri in subscriber.uris:
            subscriber.uris.discard(uri)
            _discard(self._by_uri, uri, subscriber)
            self._give(subscriber, 1, _cost(uri))

    def _take(self, subscriber: Subscriber, count: int, cost: int) -> None:
        """Count what a subscriber holds; raises Busy if it would be too much."""
        owner = subscriber if subscriber.owner is None else subscriber.owner
        if self._counts.held(owner) + count > self._most:
            raise Busy(f"Busy: there are {self._most:,} subscriptions of this client already; end some of them first")
        if self._shares.held(subscriber.holder) + cost > self._account.limit // SHARE or not self._account.take(cost):
            raise Busy("Busy: the subscriptions of all clients take as much room as there is; try again later")
        self._counts.take(owner, count)
        self._shares.take(subscriber.holder, cost)
        subscriber.count += count
        subscriber.cost += cost

    def _give(self, subscriber: Subscriber, count: int, cost: int) -> None:
        owner = subscriber if subscriber.owner is None else subscriber.owner
        self._counts.give(owner, count)
        self._shares.give(subscriber.holder, cost)
        self._account.give(cost)
        subscriber.count -= count
        subscriber.cost -= cost

    def subscribers(self, uri: str) -> list[Subscriber]:
        """Return the subscribers of a resource."""
        return list(self._by_uri.get(uri, ()))

    def updated(self, uri: str, extra: dict[str, Any]) -> int:
        """Notify subscribers that a resource changed; return how many were told."""
        subscribers = list(self._by_uri.get(uri, ()))
        if subscribers:
            notice = ChangeNotice(RESOURCE_UPDATED, {"uri": uri, **extra})
            for subscriber in subscribers:
                subscriber.tell(notice)
        return len(subscribers)

    def changed(self, kind: str, principal: str | None = None) -> int:
        """Notify subscribers, or those of one principal, that a list changed; return how many were told."""
        subscribers = [subscriber for subscriber in self._to_lists if kind in subscriber.kinds]
        if principal is not None:
            subscribers = [subscriber for subscriber in subscribers if subscriber.principal == principal]
        if subscribers:
            notice = ChangeNotice(kind, {})
            for subscriber in subscribers:
                subscriber.tell(notice)
        return len(subscribers)

    def listens_to_task(self, task_id: str) -> bool:
        """Return whether anyone listens to a task."""
        return task_id in self._by_task

    def tell_all(self) -> None:
        """Notify every subscriber of all it listens to: notices may have been lost."""
        found: dict[Subscriber, None] = dict(self._to_lists)
        for group in self._by_uri.values():
            found.update(group)
        for subscriber in found:
            self.tell_all_to(subscriber)

    def tell_all_to(self, subscriber: Subscriber) -> None:
        """Notify one subscriber of all it listens to."""
        if subscriber in self._to_lists:
            for kind in sorted(subscriber.kinds):
                subscriber.tell(ChangeNotice(kind, {}))
        for uri in sorted(subscriber.uris):
            subscriber.tell(ChangeNotice(RESOURCE_UPDATED, {"uri": uri}))

    def task_changed(self, task_id: str, told: Callable[[], object]) -> int:
        """Notify subscribers of the state of a task; return how many were told."""
        subscribers = list(self._by_task.get(task_id, ()))
        if subscribers:
            notice = ChangeNotice(TASK_CHANGED, _read(_write(told())))
            for subscriber in subscribers:
                subscriber.tell(notice)
        return len(subscribers)

    def __len__(self) -> int:
        groups = (*self._by_uri.values(), *self._by_task.values())
        return len({subscriber for group in groups for subscriber in group} | self._to_lists.keys())


def _cost(text: str) -> int:
    """Return the bytes that keeping a URI or the id of a task takes, at most."""
    if text.isascii():
        return len(text) + COST
    return 4 * len(text) + COST


def _discard(groups: dict[str, dict[Subscriber, None]], key: str, subscriber: Subscriber) -> None:
    group = groups.get(key)
    if group is not None:
        group.pop(subscriber, None)
        if not group:
            del groups[key]
