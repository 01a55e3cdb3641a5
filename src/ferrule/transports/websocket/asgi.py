"""WebSockets that an ASGI server has taken apart already: it keeps the frames, the pings and the close handshake."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ferrule.budgets.bounds import FRAMES_A_TURN
from ferrule.errors import CarrierError
from ferrule.supervision.scope import Scope
from ferrule.transports.backpressure import backlog, most_waiting
from ferrule.transports.contract import Acceptor
from ferrule.transports.http.asgi.answer import Event, Receive, Send, refuse_websocket
from ferrule.transports.http.endpoint.caller import denial
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.websocket.channel import BEGINS, ENDS
from ferrule.transports.websocket.endpoint import Entrance
from ferrule.transports.websocket.frames import (
    GOING_AWAY,
    INTERNAL,
    NORMAL,
    PROTOCOL_ERROR,
    TOO_BIG,
    UNAUTHORIZED,
    UNSUPPORTED,
    Closing,
)
from ferrule.transports.websocket.handshake import JOINS_NO_OTHER, SUBPROTOCOL, UpgradeRefused
from ferrule.transports.websocket.parser import split_messages
from ferrule.transports.websocket.settings import WebSocketSettings
from ferrule.transports.websocket.settings import beside_http as settings_beside
from ferrule.wire.channel import ChannelDefaults, Receiver, Traits
from ferrule.wire.codec import encode_within
from ferrule.wire.messages import Message

logger = logging.getLogger("ferrule.transports")


class AsgiWebSocket(ChannelDefaults):
    """A channel to the peer of one WebSocket."""

    traits = Traits(watches_itself=True, closes_on_garbage=True)

    def __init__(self, receiver: Receiver, settings: WebSocketSettings, receive: Receive, send: Send) -> None:
        self._receiver = receiver
        self._settings = settings
        self._next = receive
        self._give = send
        self._outgoing: list[bytes] = []
        self._size = 0
        self._due = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closing: Closing | None = None
        self._error: Exception | None = None
        self.ended = asyncio.Event()

    def send(self, message: Message | Sequence[Message]) -> None:
        """Encode one message, or a batch, and let it leave when its turn comes."""
        if self._closing is not None:
            return
        payload = encode_within(message, self._settings.max_message_size, beside=1)
        self._outgoing.append(payload)
        self._size += len(payload)
        if self._size > most_waiting(self._settings.max_message_size):
            self.abort()
        elif self._size > self._settings.frame_buffer_size * BEGINS:
            self._room.clear()
            backlog.grew(self, self._size)
        self._due.set()

    @property
    def backlog(self) -> int:
        """How many bytes wait for the peer."""
        return self._size

    def abort(self) -> None:
        """Throw away what waits for a peer that does not read, and close."""
        backlog.drained(self)
        self._error = self._error or CarrierError(f"the peer does not read: {self._size} bytes wait for it")
        self._outgoing.clear()
        self._end(Closing(INTERNAL, "the peer does not read"))

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write."""
        await self._room.wait()

    def close(self, reason: str = "") -> None:
        """Write what was sent, then close with 1000."""
        self._end(Closing(NORMAL, reason))

    def expire(self, reason: str) -> None:
        """Write what was sent, then close with 4401: who is at the other end is not proved any more."""
        self._end(Closing(UNAUTHORIZED, reason))

    def go_away(self) -> None:
        """Write what was sent, then close with 1001: we are stopping."""
        self._end(Closing(GOING_AWAY))

    def _end(self, closing: Closing) -> None:
        self._closing = self._closing or closing
        self._due.set()

    async def run(self) -> None:
        """Carry messages both ways until either side ends it."""
        scope = Scope(asyncio.get_running_loop())
        self._receiver.channel_opened(self)
        try:
            ways = [scope.spawn(self._read()), scope.spawn(self._write())]
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            # An ASGI server may raise what it likes when the connection is gone.
            for error in filter(None, [way.exception() for way in done]):
                self._error = self._error or CarrierError(f"the WebSocket was lost: {error}")
        finally:
            self._closing = self._closing or Closing(NORMAL)
            self._room.set()
            backlog.drained(self)
            self.ended.set()
            self._receiver.channel_lost(self, self._error)
            await scope.close()

    async def _read(self) -> None:
        handed_over = 0
        while True:
            # A peer that does not take its answers is not read from either.
            await self._room.wait()
            event = await self._next()
            if event["type"] == "websocket.disconnect":
                return
            try:
                messages = self._read_event(event.get("text"), event.get("bytes"))
                for message in messages:
                    if self._closing is None:
                        self._receiver.frame_received(message, self)
                    handed_over += 1
                    if handed_over % FRAMES_A_TURN == 0:
                        await asyncio.sleep(0)
                        await self._room.wait()
            except Exception as error:
                logger.exception("the receiver failed on what it received; its channel is closed")
                self._error = self._error or error
                self._end(Closing(INTERNAL, "internal error"))

    def _read_event(self, text: str | None, binary: bytes | None) -> list[bytes]:
        """Return the messages of one text; none where it breaks a rule, which closes the WebSocket."""
        if text is None and not self._settings.accept_binary:
            self._end(Closing(UNSUPPORTED, "only text is understood"))
            return []
        if text is None:
            payload = binary or b""
        else:
            payload = text.encode()
        if len(payload) > self._settings.max_message_size:
            self._end(Closing(TOO_BIG, f"the limit is {self._settings.max_message_size} bytes"))
        elif self._settings.strict_delimiter_check and not payload.endswith(b"\n"):
            self._end(Closing(PROTOCOL_ERROR, "a text must end with a line feed"))
        else:
            return split_messages(payload)
        return []

    async def _write(self) -> None:
        try:
            while self._outgoing or self._closing is None:
                await self._due.wait()
                self._due.clear()
                payloads = self._outgoing
                self._outgoing = []
                for payload in payloads:
                    async with asyncio.timeout(self._settings.backpressure_timeout):
                        await self._give({"type": "websocket.send", "text": payload.decode() + "\n"})
                    self._size -= len(payload)
                    if self._size < self._settings.frame_buffer_size * ENDS:
                        self._room.set()
                        backlog.drained(self)
            words = self._closing.payload()[2:].decode()
            await self._give({"type": "websocket.close", "code": self._closing.code, "reason": words})
        except TimeoutError:
            self._error = CarrierError(f"the peer does not read: {self._size} bytes wait for it")


class AsgiWebSocketEndpoint(Entrance[AsgiWebSocket]):
    """Lets WebSockets in that an ASGI server offers, and looks after these."""

    async def serve(self, scope: Event, request: HttpRequest, receive: Receive, send: Send) -> None:
        """Accept a WebSocket and stay with it until its end, or say why not."""
        await receive()
        refused = self.judge_sender(request) or self._judge(request) or await self._verify(request) or self.enter()
        if refused is not None:
            await refuse_websocket(scope, send, refused.status, refused.why, refused.head)
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
        """Close every WebSocket with 1001, and wait a while until the peers are gone."""
        self.draining = True
        channels = list(self.channels)
        for channel in channels:
            channel.go_away()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                for channel in channels:
                    await channel.ended.wait()


def beside_asgi(
    given: bool | Mapping[str, object], taken: str
) -> Callable[[Acceptor, Guard], AsgiWebSocketEndpoint] | None:
    """Return what makes the endpoint of WebSockets in an ASGI app; None where there shall be none."""
    settings = settings_beside(given, taken)
    if settings is None:
        return None
    return lambda acceptor, guard: AsgiWebSocketEndpoint(acceptor, settings, guard)
