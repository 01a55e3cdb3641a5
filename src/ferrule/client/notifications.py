"""What a client hears of by itself: notifications, log messages, changes of lists and resources."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from ferrule.client.era.contract import Params
from ferrule.client.features.requests import Requests
from ferrule.client.features.roots import Roots
from ferrule.client.features.subscription import FLAGS, Subscriptions, covers, list_kind
from ferrule.client.features.tool_facts import ToolFacts
from ferrule.client.link.conversation import Conversation
from ferrule.client.link.inbox import Deliver, Inbox
from ferrule.client.link.keeper import Keeper
from ferrule.errors import CallFailed, LinkLost, PeerError
from ferrule.protocol.call import Note
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.notices import LOG_MESSAGE, OLD_NAMES, RESOURCE_UPDATED, TOOLS_CHANGED

logger = logging.getLogger("ferrule.client")


class Notifications:
    """What a client wants to hear of, and what a notification changes of what it knows.

    It is the `Knowledge` of the keeper: what is forgotten with a conversation, and said again in the next.
    """

    def __init__(self, keeper: Keeper, requests: Requests, tools: ToolFacts, roots: Roots) -> None:
        self._keeper = keeper
        self._requests = requests
        self._cache = requests.cache
        self._tools = tools
        self._roots = roots
        self.inbox = Inbox()
        self.subscriptions = Subscriptions(keeper)
        self._watchers: dict[str, list[Deliver]] = {}
        self._first: list[Callable[[Note], None]] = []
        self._level: str | None = None
        """The level of log messages the server was asked for."""

    # -- handlers

    def on(self, method: str, handler: object) -> None:
        """Handle a notification; a server that is asked for it is asked now."""
        self.inbox.on(method, handler)
        conversation = self._keeper.conversation
        if conversation is None or conversation.opened is None or conversation.over or conversation.closing:
            return
        if OLD_NAMES.get(method, method) in FLAGS:
            conversation.scope.spawn(self.listen_for_lists())

    def on_log(self, handler: Callable[..., Any]) -> None:
        """Call `handler(level, data, logger)` for the server's log messages."""
        self.inbox.on(LOG_MESSAGE, lambda p: handler(p.get("level"), p.get("data"), p.get("logger")))

    def hear_first(self, listener: Callable[[Note], None]) -> None:
        """Call a function with every notification before anybody else hears of it."""
        self._first.append(listener)

    def receive(self, note: Note) -> None:
        """Take a notification."""
        for listener in self._first:
            listener(note)
        conversation = self._keeper.current()
        if self.subscriptions.stale(note):
            return
        uri = self.subscriptions.hear(note)
        self._cache.drop(note.method, uri)
        if note.method == TOOLS_CHANGED:
            self._tools.changed()
        if conversation.link is not None:
            self.inbox.receive(note, conversation.link.scope)

    # -- resources, lists and log messages

    async def subscribe(self, uri: str, callback: Callable[[str], Any] | None) -> None:
        """Hear of a resource's changes until `unsubscribe`; the callback gets the URI."""
        await self._keeper.ready()
        await self.subscriptions.want(uri)
        if callback is None:
            return
        notify = callback

        def changed(params: Params) -> Any:
            if covers(uri, params["uri"]):
                return notify(params["uri"])
            return None

        self._watchers.setdefault(uri, []).append(self.inbox.on(RESOURCE_UPDATED, changed))

    async def unsubscribe(self, uri: str) -> None:
        """Hear of a resource's changes no more."""
        for watcher in self._watchers.pop(uri, ()):
            self.inbox.off(RESOURCE_UPDATED, watcher)
        await self.subscriptions.unwant(uri)

    async def watch_lists(self, names: tuple[str, ...]) -> None:
        """Hear of changes of lists by their names."""
        wanted = list(map(list_kind, names))
        await self._keeper.ready()
        await self.subscriptions.want_kinds(wanted)

    async def listen_for_lists(self) -> None:
        """Hear of the lists someone here handles changes of, as far as the server tells of them."""
        kinds = self._told_kinds()
        try:
            await self.subscriptions.want_kinds(kinds)
        except (PeerError, CallFailed) as error:
            logger.warning("the server declares %s but refuses to tell of changes: %s", ", ".join(kinds), error)

    def _told_kinds(self) -> list[str]:
        """Return the lists someone here handles changes of, as far as the server tells of them."""
        peer = None
        if self._keeper.conversation is not None:
            peer = self._keeper.conversation.peer
        if peer is None or not isinstance(peer.capabilities, ServerCapabilities):
            return []
        kinds = []
        for kind in FLAGS:
            if kind in self.inbox.methods and _tells_of(kind, peer.capabilities):
                kinds.append(kind)
        return kinds

    async def set_level(self, level: str, timeout: float | None) -> None:
        """Choose the least level of log messages the server sends."""
        conversation = await self._keeper.when_connected(timeout)
        conversation.require("logging")
        how = self._requests.plain()
        await conversation.era.set_level(level, lambda method, params: self._keeper.ask(method, params, how))
        self._level = level

    # -- what a conversation that ends takes with it

    @property
    def hears(self) -> bool:
        """Whether anybody here wants notifications."""
        return bool(self.subscriptions.uris or self.inbox.methods)

    def opened(self, conversation: Conversation) -> None:
        """Watch over the roots a server was told of."""
        self._roots.watch(conversation)

    def begin(self) -> None:
        """Forget everything: another server may answer now."""
        self.forget()
        self.forget_subscriptions()
        self._level = None
        self._tools.clear()

    def forget(self) -> None:
        """Forget what the server has taught: it need not hold in the next conversation."""
        self._cache.clear()
        self._tools.changed()

    def forget_subscriptions(self) -> None:
        """Want to hear of no resource, list or task any more."""
        self.subscriptions = Subscriptions(self._keeper)
        for watchers in self._watchers.values():
            for watcher in watchers:
                self.inbox.off(RESOURCE_UPDATED, watcher)
        self._watchers.clear()

    def end_subscriptions(self) -> None:
        """End every stream of changes."""
        self.subscriptions.end()

    async def resubscribe(self) -> None:
        """Subscribe again."""
        await self.subscriptions.restore()

    async def restore(self, *, resubscribe: bool) -> None:
        """Restore what the server knew before, and notify everyone here that changes may have been missed."""
        await self._restore_level()
        if resubscribe:
            try:
                await self.subscriptions.restore()
            except LinkLost:
                raise
            except (PeerError, CallFailed) as error:
                logger.warning("the server does not take the subscriptions it had: %s", error)
                self.subscriptions.end()
        await self.listen_for_lists()
        self.tell_missed()

    async def _restore_level(self) -> None:
        conversation = self._keeper.current()
        if self._level is None:
            return
        how = self._requests.plain()
        try:
            await conversation.era.set_level(self._level, lambda method, params: conversation.ask(method, params, how))
        except PeerError as error:
            logger.warning("the server does not take the log level it had: %s", error)

    def tell_missed(self) -> None:
        """Notify every subscriber of a change, once: there may have been one that nobody heard of."""
        for uri in list(self.subscriptions.uris):
            self._tell_of(RESOURCE_UPDATED, {"uri": uri})
        for kind in self._told_kinds():
            self._tell_of(kind, {})

    def _tell_of(self, method: str, params: Params) -> None:
        link = self._keeper.current().link
        if link is not None and link.channel is not None and not link.closed:
            self.receive(Note(method, Raw(msgspec.json.encode(params)), link.channel, link))


def _tells_of(kind: str, offered: ServerCapabilities) -> bool:
    declared = getattr(offered, kind.split("/")[1], None)
    return declared is not None and bool(declared.list_changed)
