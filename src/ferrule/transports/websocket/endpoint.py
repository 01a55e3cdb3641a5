"""Where an HTTP request becomes a WebSocket: judged like any other request, then handed over with its connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from ferrule.transports.http.engine.answer import Answer
from ferrule.transports.http.heads import refuse
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.websocket.channel import WebSocketChannel
from ferrule.transports.websocket.entrance import Entrance
from ferrule.transports.websocket.handshake import Agreed, UpgradeRefused, judge_request


class WebSocketDoor(Entrance[WebSocketChannel]):
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
        connection = cast("Answer", responder).connection
        if connection is None:
            # The peer is gone already.
            return
        verdict = judge_request(request, compression=self.settings.compression)
        if isinstance(verdict, Agreed):
            verdict = self.enter() or verdict
        if isinstance(verdict, UpgradeRefused):
            refuse(responder, verdict.status, verdict.why, verdict.head)
            return
        try:
            channel = self._channel(request, verdict, connection.ledger)
        except BaseException:
            self.leave()
            raise
        cast("Answer", responder).connection = None
        connection.hand_over(verdict.head, channel)

    def _channel(self, request: HttpRequest, agreed: Agreed, ledger: Any) -> WebSocketChannel:
        def left() -> None:
            if timer is not None:
                timer.cancel()
            self.channels.discard(channel)
            self.leave()
            ledger.forget(channel)

        channel = WebSocketChannel(self.link(request), self.settings, server=True, deflate=agreed.deflate, left=left)
        self.channels.add(channel)
        timer = self.watch_expiry(request, channel)
        return channel

    async def close(self, grace: float) -> None:
        """Tell every peer that we go away, and wait a while for their goodbyes."""
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
