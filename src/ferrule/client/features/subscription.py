"""A stream of changes, in either era."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Protocol

import msgspec

from ferrule.budgets.bounds import MAX_CHANGES_WAITING, MAX_URI_LENGTH
from ferrule.client.era.contract import Params
from ferrule.client.link.conversation import RequestOptions
from ferrule.client.link.keeper import Keeper
from ferrule.errors import CallFailed, CapabilityNotSupported, LinkLost, NotConnected, PeerError, SetupError, TimedOut
from ferrule.protocol.call import Awaited, Note
from ferrule.schema.notices import (
    ACKNOWLEDGED,
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    AcknowledgedParams,
    ResourceUpdatedParams,
)
from ferrule.wire.messages import Id

logger = logging.getLogger("ferrule.client")

_read_updated = msgspec.json.Decoder(ResourceUpdatedParams).decode
_read_acknowledged = msgspec.json.Decoder(AcknowledgedParams).decode

FLAGS = {
    TOOLS_CHANGED: "toolsListChanged",
    PROMPTS_CHANGED: "promptsListChanged",
    RESOURCES_CHANGED: "resourcesListChanged",
}

PATIENCE = 5.0
"""How long a server may take to acknowledge a subscription."""


def list_kind(name: str) -> str:
    """Return the notification that tells of changes of a list: `"tools"`, `"prompts"` or `"resources"`."""
    kind = f"notifications/{name}/list_changed"
    if kind not in FLAGS:
        raise SetupError(f"there is no list {name!r} to watch: the lists are tools, prompts and resources")
    return kind


def covers(wanted: str, uri: str) -> bool:
    """Return whether a change of one resource is a change of the other: the same, or one that contains it."""
    return uri == wanted or uri.startswith(f"{wanted.rstrip('/')}/")


class ChangeSource(Protocol):
    """Where streams of changes come from: one server, or several."""

    streams: dict[str, list[Changes]]

    async def ready(self) -> None:
        """Wait until there is a conversation, if one is being opened."""

    async def want(self, uri: str) -> None:
        """Hear of a resource."""

    async def unwant(self, uri: str) -> None:
        """Hear of a resource no more."""


class Changes:
    """The changes of one resource, one after another; used as `async with client.subscribe(uri) as changes`."""

    def __init__(self, subscriptions: ChangeSource, uri: str) -> None:
        self._subscriptions = subscriptions
        self.uri = uri
        self.shown: Callable[[str], str] = str
        """Writes the URI of a change as the reader knows it."""
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue()
        self._dropping = False
        """Whether changes were dropped since the last was read."""

    async def __aenter__(self) -> Changes:
        await self._subscriptions.ready()
        self._subscriptions.streams.setdefault(self.uri, []).append(self)
        try:
            await self._subscriptions.want(self.uri)
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        try:
            await self._subscriptions.unwant(self.uri)
        except TimedOut as silence:
            logger.warning("the subscription to %s was not ended in order: %s", self.uri, silence)

    def _leave(self) -> None:
        streams = self._subscriptions.streams.get(self.uri, [])
        if self in streams:
            streams.remove(self)
        if not streams:
            self._subscriptions.streams.pop(self.uri, None)

    def tell(self, uri: str) -> None:
        """Add a change; one too many drops the oldest."""
        if self._waiting.qsize() >= MAX_CHANGES_WAITING:
            if not self._dropping:
                logger.warning("changes of %s are not read fast enough: the oldest is dropped", self.uri)
            self._dropping = True
            self._waiting.get_nowait()
        self._waiting.put_nowait(uri)

    def finish(self) -> None:
        """End the stream after the changes that wait to be read."""
        self._waiting.put_nowait(None)

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        uri = await self._waiting.get()
        if uri is None:
            self.finish()  # whoever asks again is at the end again
            raise StopAsyncIteration
        self._dropping = False
        return self.shown(uri)


class WantedUris(Counter[str]):
    """Resources that somebody wants to hear of, each with how many do."""

    def add(self, uri: str) -> bool:
        """Count one more who wants to hear of a resource. Return whether nobody did before."""
        self[uri] += 1
        return self[uri] == 1

    def drop(self, uri: str) -> bool:
        """Count one less. Return whether that was the last."""
        if uri not in self:
            return False
        self[uri] -= 1
        if self[uri] > 0:
            return False
        del self[uri]
        return True


class Subscriptions:
    """What a client wants to hear of, whichever way the era has to say so; it may outlive a conversation."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._conversation = keeper.current
        self._rescued = keeper.rescues
        self.streams: dict[str, list[Changes]] = {}
        self.uris = WantedUris()
        self.kinds: set[str] = set()
        self.tasks: set[str] = set()
        self.listened: frozenset[str] = frozenset()
        self._lock = asyncio.Lock()
        self._listen: Awaited | None = None
        self._opening: dict[Id, asyncio.Future[AcknowledgedParams]] = {}

    async def ready(self) -> None:
        """Wait until there is a conversation, if one is being opened."""
        await self._keeper.ready()

    async def want(self, uri: str) -> None:
        """Hear of a resource."""
        async with self._lock:
            self._conversation().require("resources.subscribe")
            if not self.uris.add(uri):
                return
            try:
                await self._conversation().era.subscribe(uri, self)
            except BaseException as error:
                if isinstance(error, LinkLost) and self._rescued():
                    return
                del self.uris[uri]
                raise

    async def unwant(self, uri: str) -> None:
        """Hear of a resource no more."""
        async with self._lock:
            if not self.uris.drop(uri) or self._conversation().over:
                return
            try:
                await self._conversation().era.unsubscribe(uri, self)
            except (LinkLost, NotConnected):
                logger.debug("the link is gone, and with it the subscription to %s", uri)

    async def want_kinds(self, kinds: Iterable[str]) -> None:
        """Hear of changes of lists; in the handshake era servers tell unasked."""
        async with self._lock:
            conversation = self._conversation()
            fresh = set(kinds) - self.kinds
            for kind in fresh:
                conversation.require(f"{kind.split('/')[1]}.list_changed")
            if not fresh:
                return
            self.kinds |= fresh
            try:
                await conversation.era.watch(self)
            except BaseException:
                self.kinds -= fresh
                raise

    async def want_task(self, task_id: str) -> None:
        """Hear of a task; in the handshake era servers tell unasked."""
        self.tasks.add(task_id)
        async with self._lock:
            # Whoever was first has asked for all that wait behind it.
            if task_id not in self.listened:
                try:
                    await self._conversation().era.watch(self)
                except BaseException:
                    self.tasks.discard(task_id)
                    raise

    async def unwant_task(self, task_id: str) -> None:
        """Hear of a task no more."""
        self.tasks.discard(task_id)
        async with self._lock:
            # A task that has ended tells nothing more: the subscription is given up with the last of them.
            if self.listened and not self.tasks and not self._conversation().over:
                await self.listen()

    # -- the two ways to say so, of which the era chooses one

    async def request(self, method: str, uri: str) -> None:
        """Send a request about one resource."""
        await self._conversation().ask(method, {"uri": uri}, RequestOptions(timeout=PATIENCE))

    async def request_all(self) -> None:
        """Send a request for each resource wanted; one the server refuses is wanted no more."""
        for uri in list(self.uris):
            try:
                self._conversation().require("resources.subscribe")
                await self.request("resources/subscribe", uri)
            except (PeerError, CapabilityNotSupported) as refusal:
                logger.warning("the server will not tell of %s any more: %s", uri, refusal)
                self._drop(uri)

    async def listen(self) -> None:
        """Open one subscription for everything wanted; the one before ends when this one is acknowledged."""
        conversation = self._conversation()
        tasks = frozenset(self.tasks)
        if not (self.uris or self.kinds or self.tasks):
            self._replace(None)
            self.listened = tasks
            return
        wanted: Params = {FLAGS[kind]: True for kind in sorted(self.kinds)}
        if self.uris:
            wanted["resourceSubscriptions"] = sorted(self.uris)
        if tasks:
            wanted["taskIds"] = sorted(tasks)
        acknowledged: asyncio.Future[AcknowledgedParams] = asyncio.get_running_loop().create_future()
        listen = conversation.listen(wanted, lambda request_id: self._opening.update({request_id: acknowledged}))
        listen.waiter.add_done_callback(self._over)
        try:
            _compare(wanted, await _first(listen, acknowledged))
            self.listened = tasks
        finally:
            del self._opening[listen.id]
            if self._listen is not listen:
                conversation.abandon(listen)
                listen.waiter.cancel()

    def _replace(self, listen: Awaited | None) -> None:
        before = self._listen
        self._listen = listen
        if before is not None:
            self._conversation().live().abandon(before, "replaced")
            before.waiter.cancel()

    def _over(self, waiter: asyncio.Future[Any]) -> None:
        if not waiter.cancelled():
            waiter.exception()
        if self._listen is not None and self._listen.waiter is waiter:
            self._listen = None
            self.listened = frozenset()
            if not self._rescued():
                self.end()

    async def restore(self) -> None:
        """Say again what is wanted, to a server that does not know it; what it refuses now is wanted no more."""
        async with self._lock:
            if self.uris or self.kinds or self.tasks:
                await self._conversation().era.resubscribe(self)

    def _drop(self, uri: str) -> None:
        del self.uris[uri]
        for stream in self.streams.get(uri, ()):
            stream.finish()

    def hear(self, note: Note) -> str | None:
        """Take a notification. Return the URI when it is about a resource."""
        if note.method == ACKNOWLEDGED:
            self._acknowledge(_read_acknowledged(note.params))
            return None
        if note.method != RESOURCE_UPDATED:
            return None
        uri = _read_updated(note.params).uri
        if len(uri) > MAX_URI_LENGTH:
            return None
        for wanted, streams in self.streams.items():
            if covers(wanted, uri):
                for stream in streams:
                    stream.tell(uri)
        return uri

    def _acknowledge(self, params: AcknowledgedParams) -> None:
        # The switch happens here, not where the acknowledgement is awaited: what follows it may be in the same read.
        if params.meta is None or params.meta.subscription_id is None:
            return
        identity = params.meta.subscription_id
        acknowledged = self._opening.get(identity)
        link = self._conversation().link
        if acknowledged is not None and not acknowledged.done() and link is not None:
            acknowledged.set_result(params)
            self._replace(link.session.awaited.get(identity))

    def stale(self, note: Note) -> bool:
        """Return whether a notification belongs to a subscription that is over."""
        conversation = self._conversation()
        if note.method == ACKNOWLEDGED or conversation.link is None:
            return False
        return conversation.era.is_stale(note, conversation.link.session.awaited)

    def end(self) -> None:
        """End every stream: nothing more will come."""
        self.uris.clear()
        self.kinds.clear()
        self.tasks.clear()
        self.listened = frozenset()
        for streams in self.streams.values():
            for stream in streams:
                stream.finish()


async def _first(listen: Awaited, acknowledged: asyncio.Future[AcknowledgedParams]) -> AcknowledgedParams:
    """Wait for the acknowledgement, or for whatever comes instead."""
    await asyncio.wait({listen.waiter, acknowledged}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    if acknowledged.done():
        return acknowledged.result()
    if not listen.waiter.done():
        raise TimedOut(f"the server did not acknowledge the subscription within {PATIENCE:g} s")
    await listen.waiter
    raise CallFailed("the server ended the subscription at once")


def _compare(wanted: Params, acknowledged: AcknowledgedParams) -> None:
    """Go on with less than was wanted, but say so."""
    honoured: dict[str, Any] = msgspec.to_builtins(acknowledged.notifications)
    missing = []
    for flag in FLAGS.values():
        if flag in wanted and not honoured.get(flag):
            missing.append(flag)
    uris = set(wanted.get("resourceSubscriptions", ())) - set(honoured.get("resourceSubscriptions") or ())
    if missing or uris:
        logger.warning("the server will not tell of %s", ", ".join([*missing, *sorted(uris)]))
