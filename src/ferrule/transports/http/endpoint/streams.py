"""Streams that outlive their sockets: numbered events to one reader at a time, kept for a reader that was lost.

Rule 1: an event's id names its stream, so that nothing of another stream is ever replayed (MCP 2025-11-25
basic/transports, Resumability and Redelivery).
Rule 2: an event is numbered and kept before it is written; a reader that comes back has missed nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable
from functools import partial
from typing import Protocol

from ferrule.budgets.shares import Shares
from ferrule.stores.contracts import EventLog
from ferrule.transports.http.endpoint.exchange import COMMENT
from ferrule.transports.http.endpoint.keepalive import Keepalive, OpenStream
from ferrule.transports.http.heads import STREAM_HEAD
from ferrule.transports.http.message import Responder
from ferrule.transports.http.settings import EndpointSettings


class Keeper(Hashable, Protocol):
    """What keeps streams or events for a reader, and lets go of them where others need the room."""

    def forget_oldest(self) -> None:
        """Keep the oldest no more."""


class EndpointStreams:
    """What all streams of one endpoint share."""

    __slots__ = ("finished", "keepalive", "log", "now", "retry", "settings", "undelivered")

    def __init__(self, log: EventLog, keepalive: Keepalive, settings: EndpointSettings) -> None:
        self.log = log
        self.keepalive = keepalive
        self.settings = settings
        self.retry = b"retry: %d\n" % round(settings.retry * 1000)
        """When a reader that was sent away may come back."""
        self.now = 0.0
        """When the keepalive last ticked: exact enough to tell old events from new ones."""
        self.finished: Shares[Keeper] = Shares()
        """How many ended streams each session keeps for readers that lost the end."""
        self.undelivered: Shares[Keeper] = Shares()
        """Bytes that wait for clients that have opened no stream for them yet."""

    @property
    def full(self) -> bool:
        """Whether no more streams may be opened that stand open by their nature."""
        return self.keepalive.open_streams >= self.settings.max_streams


class Stream:
    """Server-sent events with ids, to whoever reads the stream now."""

    __slots__ = (
        "_key",
        "_number",
        "_primed",
        "_responder",
        "_shared",
        "bucket",
        "ended",
        "expires",
        "last_read",
        "name",
    )

    def __init__(self, shared: EndpointStreams, key: str, name: str, *, primed: bool) -> None:
        self._shared = shared
        self._key = key
        self.name = name
        self._primed = primed
        self._number = 0
        self._responder: Responder | None = None
        self.ended = False
        self.last_read = shared.now
        """When the last reader went away."""
        self.bucket: set[OpenStream] | None = None
        self.expires = math.inf
        """When the credentials of the reader end."""

    @property
    def attached(self) -> bool:
        """Whether somebody reads the stream now."""
        return self._responder is not None and not self._responder.gone

    def _numbered(self, body: bytes) -> bytes:
        self._number += 1
        event = b"id: %b-%d\ndata: %b\n\n" % (self.name.encode(), self._number, body)
        self._shared.log.append(self._key, self._number, event, self._shared.now)
        return event

    def _priming(self) -> bytes:
        """Return the event that gives a reader an id to come back with before there is anything to say (MCP 2025-11-25
        basic/transports, Sending Messages to the Server, item 6)."""
        return b"id: %b-%d\n%bdata:\n\n" % (self.name.encode(), self._number, self._shared.retry)

    def attach(self, responder: Responder, head: bytes, missed: bytes = b"", *, expires: float = math.inf) -> None:
        """Let somebody read the stream from here on, after what it has missed, until its credentials expire."""
        self.expires = expires
        if self._responder is not None:
            self._responder.finish()
        self._responder = responder
        responder.watch(partial(self._lost, responder))
        responder.begin(200, STREAM_HEAD + head, COMMENT)
        first = missed or (self._priming() if self._primed else b"")
        if first:
            responder.write(first)
        self._shared.keepalive.ended(self)
        self._shared.keepalive.streams(self)

    async def missed(self, number: int) -> bytes | None:
        """Return what was said after an event; None when that is not known any more."""
        if number == self._number:
            return b""
        events = await self._shared.log.after(self._key, number)
        if not events:
            return None
        # What was said while we waited for the log is missed too.
        if number + len(events) >= self._number:
            return b"".join(events)
        return await self.missed(number)

    def send(self, body: bytes) -> None:
        """Send one event."""
        event = self._numbered(body)
        responder = self._responder
        if responder is None:
            return
        if responder.backlog > self._shared.settings.max_stream_backlog:
            self._shared.keepalive.cuts += 1
            responder.abort()
            self.detach()
        else:
            responder.write(event)

    def finish(self, body: bytes | None = None) -> None:
        """Send a last event, if there is one, and end the stream."""
        if body is not None:
            self.send(body)
        self.ended = True
        if self._responder is not None:
            responder = self._responder
            self.detach()
            responder.finish()

    def answer_whole(self, responder: Responder, head: bytes, body: bytes) -> None:
        """Send the whole stream at once, to a reader that has just come."""
        priming = self._priming() if self._primed else b""
        self.ended = True
        responder.reply(200, STREAM_HEAD + head, priming + self._numbered(body))

    def release(self) -> None:
        """Send the reader away; the stream goes on, and the reader comes back for the rest."""
        if self._responder is not None and self._primed:
            responder = self._responder
            self.detach()
            responder.write(self._shared.retry + b"\n")
            responder.finish()

    def _lost(self, responder: Responder) -> None:
        """Called when a reader is gone; another may have taken its place."""
        if responder is self._responder:
            self.detach()

    def detach(self) -> None:
        """Let nobody read the stream any more; what is said is kept."""
        self._responder = None
        self.last_read = self._shared.now
        self._shared.keepalive.ended(self)

    def send_keepalive(self) -> None:
        """Send a comment on a silent stream, for its reader and the proxies between."""
        if self._responder is not None and self._responder.backlog == 0:
            self._responder.write(COMMENT)

    def expire(self) -> None:
        """Send the reader away: who it is is not proved any more. It comes back with a new proof."""
        responder = self._responder
        if responder is not None:
            self.detach()
            responder.finish()

    def forget(self) -> None:
        """End the stream and forget what was said on it."""
        self.finish()
        self._shared.log.forget(self._key)

    async def wait_writable(self) -> None:
        """Return at once unless the reader reads slower than we write; without one, let others run."""
        if self._responder is not None:
            await self._responder.wait_writable()
        else:
            await asyncio.sleep(0)
