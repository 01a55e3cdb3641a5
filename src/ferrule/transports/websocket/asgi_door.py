"""Where an ASGI server's WebSocket is let in: judged like one of our own engine, then carried until its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ferrule.transports.http.asgi.answer import Event, Receive, Send, header_pairs
from ferrule.transports.http.endpoint.caller import denial
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.websocket.asgi import AsgiWebSocket
from ferrule.transports.websocket.entrance import Entrance
from ferrule.transports.websocket.frames import NORMAL
from ferrule.transports.websocket.handshake import JOINS_NO_OTHER, SUBPROTOCOL, UpgradeRefused

HTTP_ANSWER = "websocket.http.response"
"""What an ASGI server can do that lets an application refuse with a status of its own."""


class AsgiDoor(Entrance[AsgiWebSocket]):
    """Lets WebSockets in that an ASGI server offers, and looks after these."""

    async def serve(self, scope: Event, request: HttpRequest, receive: Receive, send: Send) -> None:
        """Accept a WebSocket and stay with it until its end, or say why not."""
        await receive()
        refused = self.judge_sender(request) or self._judge(request) or await self._verify(request) or self.enter()
        if refused is not None:
            await refuse(scope, send, refused)
            return
        try:
            await self._carry(scope, request, receive, send)
        finally:
            self.leave()

    async def _carry(self, scope: Event, request: HttpRequest, receive: Receive, send: Send) -> None:
        offered = SUBPROTOCOL in scope.get("subprotocols", ())
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if offered else None})
        channel = AsgiWebSocket(self.link(request), self.settings, receive, send)
        self.channels.add(channel)
        timer = self.watch_expiry(request, channel)
        try:
            await channel.run()
        finally:
            if timer is not None:
                timer.cancel()
            self.channels.discard(channel)

    def _judge(self, request: HttpRequest) -> UpgradeRefused | None:
        """Judge the path and the session; the ASGI server has judged the opening itself."""
        if request.path != self.settings.path:
            return UpgradeRefused(404, f"Not found; WebSockets are served at {self.settings.path}")
        if b"mcp-session-id" in request.headers:
            return JOINS_NO_OTHER
        return None

    async def _verify(self, request: HttpRequest) -> UpgradeRefused | None:
        """Find out who opens the WebSocket."""
        refusal = await self.callers.identify(request)
        if refusal is None:
            return None
        status, lines = denial(refusal)
        return UpgradeRefused(status, refusal.message, lines)

    async def close(self, grace: float) -> None:
        """Tell every peer that we go away, and wait a while until they are gone."""
        self.draining = True
        channels = list(self.channels)
        for channel in channels:
            channel.go_away()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                for channel in channels:
                    await channel.ended.wait()


async def refuse(scope: Event, send: Send, refused: UpgradeRefused) -> None:
    """Refuse a WebSocket that was not accepted yet; a server that cannot say the status says 403."""
    if HTTP_ANSWER not in scope.get("extensions", ()):
        await send({"type": "websocket.close", "code": NORMAL, "reason": refused.why})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *header_pairs(refused.head)]
    await send({"type": f"{HTTP_ANSWER}.start", "status": refused.status, "headers": headers})
    await send({"type": f"{HTTP_ANSWER}.body", "body": f"{refused.why}\n".encode()})
