"""What every door for WebSockets does alike: turn requests away, link the others, look after who is in."""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from ferrule.transports.contract import Acceptor
from ferrule.transports.http.endpoint.caller import Callers, origin_of
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.heads import RETRY_AFTER
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.sockets.admission import Admission, process_admission
from ferrule.transports.verification import call_at_expiry
from ferrule.transports.websocket.handshake import UpgradeRefused
from ferrule.transports.websocket.settings import WebSocketSettings
from ferrule.wire.channel import Receiver

CARRIER = "websocket"
EXPIRED = "the credentials have expired"


class Expirable(Protocol):
    """A channel that is closed when its principal expires."""

    def expire(self, reason: str) -> None:
        """Close it: who is at the other end is not proved any more."""


ChannelT = TypeVar("ChannelT", bound=Expirable)


class Entrance(Generic[ChannelT]):
    """Judges who may open a WebSocket, and holds those that are open."""

    def __init__(self, acceptor: Acceptor, settings: WebSocketSettings, guard: Guard) -> None:
        self._acceptor, self.settings, self._guard = acceptor, settings, guard
        self.callers = Callers(acceptor.verifier, guard, CARRIER)
        name = f"the WebSocket at {settings.path}"
        self._admission = Admission(name, settings.max_connections, within=process_admission)
        self.channels: set[ChannelT] = set()
        self.draining = False

    def judge_sender(self, request: HttpRequest) -> UpgradeRefused | None:
        """Say why nobody may open a WebSocket from there, or nothing."""
        verdict = self._guard.judge(request)
        if verdict.status:
            return UpgradeRefused(verdict.status, verdict.why)
        if b"," in request.headers.get(b"origin", b""):
            return UpgradeRefused(403, "Forbidden: more than one Origin")
        return None

    def enter(self) -> UpgradeRefused | None:
        """Take a place for one more WebSocket, or say why there is none."""
        if self.draining:
            return UpgradeRefused(503, "Unavailable: the server is stopping", RETRY_AFTER)
        full = self._admission.enter()
        return UpgradeRefused(503, f"Unavailable: {full}", RETRY_AFTER) if full else None

    def leave(self) -> None:
        """Give a place back: of a WebSocket that has ended, or could not begin."""
        self._admission.leave()

    def link(self, request: HttpRequest) -> Receiver:
        """Return a link for whoever sent the request."""
        return self._acceptor.link(origin_of(request, request.identity, carrier=CARRIER))

    def watch_expiry(self, request: HttpRequest, channel: ChannelT) -> asyncio.TimerHandle | None:
        """Close a channel when the principal at its other end expires; the handle is for whoever ends it before."""
        return call_at_expiry(request.identity, lambda: channel.expire(EXPIRED))
