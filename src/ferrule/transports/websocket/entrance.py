"""What every door for WebSockets does alike: turn requests away, link the others, look after who is in."""

from __future__ import annotations

from typing import Generic, TypeVar

from ferrule.transports.contract import Acceptor
from ferrule.transports.http.answers import RETRY_AFTER
from ferrule.transports.http.guard import Guard
from ferrule.transports.http.message import Headers, HttpRequest
from ferrule.transports.websocket.handshake import UpgradeRefused
from ferrule.transports.websocket.settings import WebSocketSettings
from ferrule.wire.channel import Origin, Receiver

CARRIER = "websocket"

ChannelT = TypeVar("ChannelT")


class Entrance(Generic[ChannelT]):
    """Judges who may open a WebSocket, and holds those that are open."""

    def __init__(self, acceptor: Acceptor, settings: WebSocketSettings, guard: Guard) -> None:
        self._acceptor, self.settings, self._guard = acceptor, settings, guard
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

    def judge_room(self) -> UpgradeRefused | None:
        """Say why nobody can open a WebSocket now, or nothing."""
        if self.draining:
            return UpgradeRefused(503, "Unavailable: the server is stopping", RETRY_AFTER)
        if len(self.channels) >= self.settings.max_connections:
            return UpgradeRefused(503, f"Unavailable: {self.settings.max_connections} WebSockets are open", RETRY_AFTER)
        return None

    def link(self, request: HttpRequest) -> Receiver:
        """Give a link to whoever sent the request."""
        return self._acceptor.link(Origin(CARRIER, request.address, Headers(request.headers)))
