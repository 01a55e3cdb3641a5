"""What every door for WebSockets does alike: turn requests away, link the others, look after who is in."""

from __future__ import annotations

from typing import Generic, TypeVar

from ferrule.transports.admission import Admission, process_admission
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
        """Give a link to whoever sent the request."""
        return self._acceptor.link(Origin(CARRIER, request.address, Headers(request.headers)))
