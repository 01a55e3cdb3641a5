"""A stream of changes, in either era."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

import msgspec

from ferrule.client.conversation import Asking, Conversation
from ferrule.errors import CallFailed
from ferrule.protocol.call import Awaited, Note
from ferrule.schema.notices import (
    ACKNOWLEDGED,
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    AcknowledgedParams,
    Notice,
    ResourceUpdatedParams,
)
from ferrule.wire.messages import Id

_read_updated = msgspec.json.Decoder(ResourceUpdatedParams).decode
_read_notice = msgspec.json.Decoder(Notice).decode
_read_acknowledged = msgspec.json.Decoder(AcknowledgedParams).decode

FLAGS = {
    TOOLS_CHANGED: "toolsListChanged",
    PROMPTS_CHANGED: "promptsListChanged",
    RESOURCES_CHANGED: "resourcesListChanged",
}


class Changes:
    """The changes of one resource, one after another; used as `async with client.subscribe(uri) as changes`."""

    def __init__(self, listening: Listening, uri: str) -> None:
        self._listening = listening
        self.uri = uri
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue()

    async def __aenter__(self) -> Changes:
        self._listening.streams.setdefault(self.uri, []).append(self)
        try:
            await self._listening.want(self.uri)
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        await self._listening.unwant(self.uri)

    def _leave(self) -> None:
        streams = self._listening.streams.get(self.uri, [])
        if self in streams:
            streams.remove(self)
        if not streams:
            self._listening.streams.pop(self.uri, None)

    def tell(self, uri: str | None) -> None:
        """Add a change; None ends the stream."""
        self._waiting.put_nowait(uri)

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        uri = await self._waiting.get()
        if uri is None:
            raise StopAsyncIteration
        return uri


class Listening:
    """What a client wants to hear of, whichever way its era has to say so."""

    def __init__(self, conversation: Callable[[], Conversation]) -> None:
        self._conversation = conversation
        self.streams: dict[str, list[Changes]] = {}
        self.uris: Counter[str] = Counter()
        self.kinds: set[str] = set()
        self._lock = asyncio.Lock()
        self._listen: Awaited | None = None
        self._acknowledged: dict[Id, asyncio.Future[AcknowledgedParams]] = {}

    async def want(self, uri: str) -> None:
        """Hear of a resource."""
        async with self._lock:
            self.uris[uri] += 1
            if self.uris[uri] > 1:
                return
            try:
                await self._say("resources/subscribe", uri)
            except BaseException:
                del self.uris[uri]
                raise

    async def unwant(self, uri: str) -> None:
        """Hear of a resource no more."""
        async with self._lock:
            self.uris[uri] -= 1
            if self.uris[uri] > 0:
                return
            del self.uris[uri]
            if self._conversation().link is not None and not self._conversation().link.closed:  # type: ignore[union-attr]
                await self._say("resources/unsubscribe", uri)

    async def want_kind(self, kind: str) -> None:
        """Hear of changes of a list; in the handshake era servers tell unasked."""
        async with self._lock:
            self.kinds.add(kind)
            if self._conversation().stateless:
                await self._relisten()

    async def _say(self, method: str, uri: str) -> None:
        conversation = self._conversation()
        if conversation.stateless:
            await self._relisten()
        else:
            await conversation.ask(method, {"uri": uri}, Asking(timeout=5.0))

    async def _relisten(self) -> None:
        """Open one subscription for everything wanted, then end the one before."""
        conversation = self._conversation()
        before, self._listen = self._listen, None
        if self.uris or self.kinds:
            wanted: dict[str, Any] = {FLAGS[kind]: True for kind in sorted(self.kinds)}
            if self.uris:
                wanted["resourceSubscriptions"] = sorted(self.uris)
            listen = conversation.start("subscriptions/listen", {"notifications": wanted}, Asking())
            acknowledged = asyncio.get_running_loop().create_future()
            self._acknowledged[listen.id] = acknowledged
            await self._first(listen, acknowledged)
            self._listen = listen
            listen.waiter.add_done_callback(self._ended)
        if before is not None:
            conversation.live().abandon(before, "replaced")
            before.waiter.cancel()

    async def _first(self, listen: Awaited, acknowledged: asyncio.Future[Any]) -> None:
        try:
            async with asyncio.timeout(5.0):
                await asyncio.wait({listen.waiter, acknowledged}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._acknowledged.pop(listen.id, None)
        if not acknowledged.done():
            await listen.waiter
            raise CallFailed("the server ended the subscription at once")

    def _ended(self, waiter: asyncio.Future[Any]) -> None:
        if not waiter.cancelled():
            waiter.exception()
        if self._listen is not None and self._listen.waiter is waiter:
            self._listen = None
            self.end()

    def hear(self, note: Note) -> str | None:
        """Take a notification; gives the URI when it tells of a resource."""
        if note.method == ACKNOWLEDGED:
            params = _read_acknowledged(note.params)
            waiting = self._acknowledged.get(params.meta.subscription_id) if params.meta else None  # type: ignore[arg-type]
            if waiting is not None and not waiting.done():
                waiting.set_result(params)
            return None
        if note.method != RESOURCE_UPDATED:
            return None
        uri = _read_updated(note.params).uri
        for stream in self.streams.get(uri, ()):
            stream.tell(uri)
        return uri

    def stale(self, note: Note) -> bool:
        """Tell whether a notice belongs to a subscription that was replaced."""
        if self._listen is None or not self._conversation().stateless or note.method == ACKNOWLEDGED:
            return False
        meta = _read_notice(note.params).meta
        tag = None if meta is None else meta.subscription_id
        return tag is not None and tag != self._listen.id

    def end(self) -> None:
        """End every stream: nothing more will come."""
        for streams in self.streams.values():
            for stream in streams:
                stream.tell(None)
