"""Where an HTTP request becomes a WebSocket: judged like any other request, then handed over with its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Generic, Protocol, TypeVar, cast

from ferrule.transports.contract import Acceptor
from ferrule.transports.http.endpoint.caller import Callers, origin_of
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.engine.answer import Answer
from ferrule.transports.http.engine.connection import Connection
from ferrule.transports.http.engine.state import EngineState
from ferrule.transports.http.heads import RETRY_AFTER, refuse
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.sockets.admission import Admission, process_admission
from ferrule.transports.verification import CallerWatch
from ferrule.transports.websocket.channel import WebSocketChannel
from ferrule.transports.websocket.handshake import SUBPROTOCOL, Agreed, UpgradeRefused, judge_request
from ferrule.transports.websocket.settings import WebSocketSettings
from ferrule.transports.websocket.settings import beside_http as settings_beside
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

    def __init__(
        self,
        acceptor: Acceptor,
        settings: WebSocketSettings,
        guard: Guard,
        *,
        subprotocol: str = SUBPROTOCOL,
        new_link: Callable[[HttpRequest], Receiver] | None = None,
    ) -> None:
        self._acceptor = acceptor
        self._new_link = new_link
        """Makes what another subprotocol than MCP's has as its receiver."""
        self._subprotocol = subprotocol
        self.settings = settings
        self._guard = guard
        self.callers = Callers(acceptor.verifier, guard, CARRIER, observer=acceptor.observer)
        name = f"the WebSocket at {settings.path}"
        self._admission = Admission(name, settings.max_connections, within=process_admission)
        self.channels: set[ChannelT] = set()
        self.draining = False

    @property
    def path(self) -> str:
        """Where WebSockets are opened."""
        return self.settings.path

    def judge_sender(self, request: HttpRequest) -> UpgradeRefused | None:
        """Return why nobody may open a WebSocket from there, None where they may."""
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
        if full:
            if self._acceptor.observer is not None:
                self._acceptor.observer.connection_refused(CARRIER, "too_many_connections")
            return UpgradeRefused(503, f"Unavailable: {full}", RETRY_AFTER)
        return None

    def leave(self) -> None:
        """Free a place: of a WebSocket that has ended, or could not begin."""
        self._admission.leave()

    def link(self, request: HttpRequest) -> Receiver:
        """Return a link for whoever sent the request."""
        if self._new_link is not None:
            return self._new_link(request)
        return self._acceptor.link(origin_of(request, request.identity, carrier=CARRIER))

    def watch_expiry(self, request: HttpRequest, channel: ChannelT) -> CallerWatch | None:
        """Close a channel when the principal at its other end expires; the watch is for whoever ends it before."""
        return self.callers.watch(request, lambda: channel.expire(EXPIRED))


class WebSocketEndpoint(Entrance[WebSocketChannel]):
    """Turns requests of our own engine into WebSockets, and looks after these."""

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        """Open a WebSocket, or say why not."""
        refused = self.judge_sender(request)
        if refused is not None:
            refuse(responder, refused.status, refused.why)
        elif not isinstance(responder, Answer) or responder.head.old:
            refuse(responder, 400, "Bad request: a WebSocket begins with HTTP/1.1")
        else:
            self.callers.admit(request, responder, self._open)

    def _open(self, request: HttpRequest, responder: Responder) -> None:
        connection = cast("Connection | None", cast("Answer", responder).connection)
        if connection is None:
            # The peer is gone already.
            return
        verdict = judge_request(request, compression=self.settings.compression, subprotocol=self._subprotocol)
        if isinstance(verdict, Agreed):
            verdict = self.enter() or verdict
        if isinstance(verdict, UpgradeRefused):
            refuse(responder, verdict.status, verdict.why, verdict.head)
            return
        try:
            channel = self._channel(request, verdict, connection.engine_state)
        except BaseException:
            self.leave()
            raise
        cast("Answer", responder).connection = None
        connection.hand_over(verdict.head, channel)

    def _channel(self, request: HttpRequest, agreed: Agreed, engine_state: EngineState) -> WebSocketChannel:
        def left() -> None:
            if timer is not None:
                timer.cancel()
            self.channels.discard(channel)
            self.leave()
            engine_state.forget(channel)

        channel = WebSocketChannel(self.link(request), self.settings, server=True, deflate=agreed.deflate, left=left)
        self.channels.add(channel)
        timer = self.watch_expiry(request, channel)
        return channel

    async def close(self, grace: float) -> None:
        """Close every WebSocket with 1001, and wait a while for the peers' close frames."""
        self.draining = True
        await self.callers.close()
        channels = list(self.channels)
        for channel in channels:
            channel.go_away()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                for channel in channels:
                    await channel.wait_lost()
        for channel in channels:
            channel.abort()


def beside_http(
    given: bool | Mapping[str, object], taken: str
) -> Callable[[Acceptor, Guard], WebSocketEndpoint] | None:
    """Return what makes the endpoint of WebSockets at the port of an `Http`; None where there shall be none."""
    settings = settings_beside(given, taken)
    if settings is None:
        return None
    return lambda acceptor, guard: WebSocketEndpoint(acceptor, settings, guard)
