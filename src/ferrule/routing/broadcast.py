"""What every target of a routed client is told: subscriptions, watched lists and the log level.

Rule: all connected targets are subscribed to, since a change is told by the one it happens at. Each is told again when
it is connected anew. The same change may be heard from several: a change means that it is worth to look.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ferrule.client.client import Client
from ferrule.client.features.subscription import Changes, WantedUris
from ferrule.errors import CallFailed, FerruleError, NotConnected, PeerError

logger = logging.getLogger("ferrule.routing")

Callback = Callable[[str], object]
"""Called with the URI of a resource that changed."""


class Broadcast:
    """What all targets shall know, now and whenever one is connected."""

    def __init__(self, connected: Callable[[], list[Client]]) -> None:
        self._connected = connected
        """Returns the clients of the targets that are connected now."""
        self.streams: dict[str, list[Changes]] = {}
        self.uris = WantedUris()
        self._callbacks: dict[str, list[Callback]] = {}
        self._lists: set[str] = set()
        self._level: str | None = None
        self._lock = asyncio.Lock()

    @property
    def wanted(self) -> bool:
        """Whether there is anything that a target has to be told."""
        return bool(self.uris or self._lists or self._level is not None)

    # -- resources

    async def ready(self) -> None:
        """Raise NotConnected unless a target is connected."""
        if not self._connected():
            raise NotConnected("none of the targets is connected now")

    async def subscribe(self, uri: str, callback: Callback | None) -> None:
        """Hear of a resource's changes until `unsubscribe`; the callback gets the URI."""
        await self.want(uri)
        if callback is not None:
            self._callbacks.setdefault(uri, []).append(callback)

    async def unsubscribe(self, uri: str) -> None:
        """Hear of a resource's changes no more."""
        self._callbacks.pop(uri, None)
        await self.unwant(uri)

    async def want(self, uri: str) -> None:
        """Hear of a resource."""
        async with self._lock:
            if not self.uris.add(uri):
                return
            try:
                await self._everywhere(lambda client: self._subscribe(client, uri))
            except BaseException:
                del self.uris[uri]
                raise

    async def unwant(self, uri: str) -> None:
        """Hear of a resource no more."""
        async with self._lock:
            if not self.uris.drop(uri):
                return
            for client in self._connected():
                try:
                    await client.unsubscribe_resource(uri)
                except (CallFailed, PeerError) as error:
                    logger.debug("a subscription to %s was not ended in order: %s", uri, error)

    async def _subscribe(self, client: Client, uri: str) -> None:
        async def changed(told: str) -> None:
            await self._tell(uri, told)

        if uri not in client.subscriptions:
            await client.subscribe_resource(uri, changed)

    async def _tell(self, wanted: str, uri: str) -> None:
        """Notify the subscribers of a resource that it, or one inside it, has changed."""
        for stream in self.streams.get(wanted, ()):
            stream.tell(uri)
        for callback in list(self._callbacks.get(wanted, ())):
            result = callback(uri)
            if inspect.isawaitable(result):
                await result

    # -- lists and log messages

    async def watch_lists(self, names: tuple[str, ...]) -> None:
        """Hear of changes of lists by their names."""
        await self._everywhere(lambda client: client.watch_lists(*names))
        self._lists.update(names)

    async def set_level(self, level: str) -> None:
        """Choose the least level of log messages the targets send."""
        await self._everywhere(lambda client: client.set_log_level(level))
        self._level = level

    # -- targets that come and go

    async def restore(self, client: Client) -> None:
        """Bring a target that was connected up to date, and notify everyone that changes may have been missed."""
        if self._level is not None:
            await _attempt(client.set_log_level(self._level))
        if self._lists:
            await _attempt(client.watch_lists(*self._lists))
        for uri in list(self.uris):
            await _attempt(self._subscribe(client, uri))
            await self._tell(uri, uri)

    def end(self) -> None:
        """End every stream: nothing more will come."""
        self.uris.clear()
        self._callbacks.clear()
        self._lists.clear()
        self._level = None
        for streams in self.streams.values():
            for stream in streams:
                stream.finish()

    async def _everywhere(self, action: Callable[[Client], Awaitable[Any]]) -> None:
        """Do something with every connected target; raise the first error if none of them took it."""
        await self.ready()
        ends = await asyncio.gather(*(action(client) for client in self._connected()), return_exceptions=True)
        failed = []
        for end in ends:
            if isinstance(end, FerruleError):
                failed.append(end)
            elif isinstance(end, BaseException):
                raise end
        if len(failed) == len(ends):
            raise failed[0]
        for error in failed:
            logger.warning("a target did not take what the others took: %s", error)


async def _attempt(telling: Awaitable[None]) -> None:
    """Send a target something; one that does not take it goes on without."""
    try:
        await telling
    except (CallFailed, PeerError) as error:
        logger.warning("a target could not be told what the others know: %s", error)
