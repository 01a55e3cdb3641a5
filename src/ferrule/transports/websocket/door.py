"""Where an HTTP request becomes a WebSocket: judged like any other request, then handed over with its connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from ferrule.transports.admission import Admission, process_admission
from ferrule.transports.contract import Acceptor
from ferrule.transports.http.answers import RETRY_AFTER, refuse
from ferrule.transports.http.engine.answering import Answer
from ferrule.transports.http.engine.connection import Connection
from ferrule.transports.http.guard import Guard
from ferrule.transports.http.message import Headers, HttpRequest, Responder
from ferrule.transports.websocket.channel import WebSocketChannel
from ferrule.transports.websocket.handshake import Agreed, Refused, judge_request
from ferrule.transports.websocket.settings import WebSocketSettings
from ferrule.wire.channel import Origin

CARRIER = "websocket"


class WebSocketDoor:
    """Turns requests of our own engine into WebSockets, and looks after these."""

    def __init__(self, acceptor: Acceptor, settings: WebSocketSettings, guard: Guard) -> None:
        self._acceptor, self.settings, self._guard = acceptor, settings, guard
        self._admission = Admission(
            f"the WebSocket at {settings.path}", settings.max_connections, within=process_admission
        )
        self.channels: set[WebSocketChannel] = set()
        self.draining = False

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        """Open a WebSocket, or say why not."""
        verdict = self._guard.judge(request)
        if verdict.status:
            refuse(responder, verdict.status, verdict.why)
        elif b"," in request.headers.get(b"origin", b""):
            refuse(responder, 403, "Forbidden: more than one Origin")
        elif not isinstance(responder, Answer) or responder.head.old:
            refuse(responder, 400, "Bad request: a WebSocket begins with HTTP/1.1")
        else:
            self._open(request, responder)

    def _open(self, request: HttpRequest, responder: Answer) -> None:
        connection = responder.connection
        if connection is None:
            # The peer is gone already.
            return
        agreed = judge_request(request, compression=self.settings.compression)
        if isinstance(agreed, Refused):
            refuse(responder, agreed.status, agreed.why, agreed.head)
        elif self.draining:
            refuse(responder, 503, "Unavailable: the server is stopping", RETRY_AFTER)
        elif full := self._admission.enter():
            refuse(responder, 503, f"Unavailable: {full}", RETRY_AFTER)
        else:
            self._hand_over(request, responder, connection, agreed)

    def _hand_over(self, request: HttpRequest, responder: Answer, connection: Connection, agreed: Agreed) -> None:
        """Let the connection go on as a WebSocket, whose place was taken; it is given back when that ends."""
        try:
            channel = self._channel(request, agreed, connection.ledger)
        except BaseException:
            self._admission.leave()
            raise
        responder.connection = None
        connection.hand_over(agreed.head, channel)

    def _channel(self, request: HttpRequest, agreed: Agreed, ledger: Any) -> WebSocketChannel:
        def leave() -> None:
            self.channels.discard(channel)
            self._admission.leave()
            ledger.forget(channel)

        link = self._acceptor.link(Origin(CARRIER, request.address, Headers(request.headers)))
        channel = WebSocketChannel(link, self.settings, server=True, deflate=agreed.deflate, left=leave)
        self.channels.add(channel)
        return channel

    async def close(self, grace: float) -> None:
        """Tell every peer that we go away, and wait a while for their goodbyes."""
        self.draining = True
        channels = list(self.channels)
        for channel in channels:
            channel.go_away()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                for channel in channels:
                    await channel.wait_lost()
        for channel in channels:
            channel.abort()
