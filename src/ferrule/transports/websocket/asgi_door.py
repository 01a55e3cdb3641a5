"""Where an ASGI server's WebSocket is let in: judged like one of our own engine, then carried until its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ferrule.transports.admission import Admission, process_admission
from ferrule.transports.contract import Acceptor
from ferrule.transports.http.asgi_answer import Event, Receive, Send
from ferrule.transports.http.guard import Guard
from ferrule.transports.http.message import Headers, HttpRequest
from ferrule.transports.websocket.asgi_channel import AsgiWebSocket
from ferrule.transports.websocket.door import CARRIER
from ferrule.transports.websocket.frames import NORMAL
from ferrule.transports.websocket.handshake import SUBPROTOCOL
from ferrule.transports.websocket.settings import WebSocketSettings
from ferrule.wire.channel import Origin

HTTP_ANSWER = "websocket.http.response"
"""What an ASGI server can do that lets an application refuse with a status of its own."""


class AsgiDoor:
    """Lets WebSockets in that an ASGI server offers, and looks after these."""

    def __init__(self, acceptor: Acceptor, settings: WebSocketSettings, guard: Guard) -> None:
        self._acceptor, self.settings, self._guard = acceptor, settings, guard
        self._admission = Admission(
            f"the WebSocket at {settings.path}", settings.max_connections, within=process_admission
        )
        self.channels: set[AsgiWebSocket] = set()
        self.draining = False

    async def serve(self, scope: Event, request: HttpRequest, receive: Receive, send: Send) -> None:
        """Accept a WebSocket and stay with it until its end, or say why not."""
        await receive()
        status, why = self._judge(request)
        if status:
            await refuse(scope, send, status, why)
            return
        if full := self._admission.enter():
            await refuse(scope, send, 503, f"Unavailable: {full}")
            return
        try:
            await self._carry(scope, request, receive, send)
        finally:
            self._admission.leave()

    async def _carry(self, scope: Event, request: HttpRequest, receive: Receive, send: Send) -> None:
        offered = SUBPROTOCOL in scope.get("subprotocols", ())
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if offered else None})
        link = self._acceptor.link(Origin(CARRIER, request.address, Headers(request.headers)))
        channel = AsgiWebSocket(link, self.settings, receive, send)
        self.channels.add(channel)
        try:
            await channel.run()
        finally:
            self.channels.discard(channel)

    def _judge(self, request: HttpRequest) -> tuple[int, str]:
        verdict = self._guard.judge(request)
        if verdict.status:
            return verdict.status, verdict.why
        if b"," in request.headers.get(b"origin", b""):
            return 403, "Forbidden: more than one Origin"
        if request.path != self.settings.path:
            return 404, f"Not found; WebSockets are served at {self.settings.path}"
        if b"mcp-session-id" in request.headers:
            return 409, "Conflict: a WebSocket is a session of its own and joins no other"
        if self.draining:
            return 503, "Unavailable: the server is stopping"
        return 0, ""

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


async def refuse(scope: Event, send: Send, status: int, why: str) -> None:
    """Refuse a WebSocket that was not accepted yet; a server that cannot say the status says 403."""
    if HTTP_ANSWER not in scope.get("extensions", ()):
        await send({"type": "websocket.close", "code": NORMAL, "reason": why})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8")] + ([(b"retry-after", b"1")] if status == 503 else [])
    await send({"type": f"{HTTP_ANSWER}.start", "status": status, "headers": headers})
    await send({"type": f"{HTTP_ANSWER}.body", "body": f"{why}\n".encode()})
