"""The way to a server, on which any bytes can be sent: also those a well-behaved client never sends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Raw

from ferrule.check.answer import Answer, Json, Wanted, read_json
from ferrule.codes import ErrorCode
from ferrule.errors import FerruleError
from ferrule.transports.contract import Transport
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.messages import Id

NO_HEADERS: Mapping[str, str] = {}
MOST_FRAMES = 10_000
"""How many messages a server may send on one connection before it is left."""
MOST_BYTES = 16 * 1024 * 1024
"""How long an answer may be, with what else comes before it."""
MOST_HELD = 2 * MOST_BYTES
"""How many bytes wait to be looked at; what comes then is left out."""
MOST_NOISE = 20
"""How many frames that are no messages are kept."""


class NoAnswer(Exception):
    """A server that says nothing, or is gone, where it must say something."""

    def __init__(self, why: str, *, gone: bool = False) -> None:
        super().__init__(why)
        self.gone = gone
        """Whether the connection is lost, and not only silent."""


class Wire(Protocol):
    """A way to one server."""

    kind: str
    """`stdio`, `tcp`, `websocket`, `sse`, `memory` or `http`."""
    noise: list[bytes]
    """What came that is no message."""

    async def open(self, seconds: float) -> None:
        """Open the way; raise CarrierError where there is none."""

    async def exchange(
        self, data: bytes, wanted: Wanted, seconds: float, headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """Send some bytes and wait for the message that is wanted; raise NoAnswer where it does not come."""

    async def tell(self, data: bytes, seconds: float, headers: Mapping[str, str] = NO_HEADERS) -> Answer:
        """Send some bytes that need no answer."""

    async def close(self, grace: float) -> None:
        """Leave the server."""

    def read_rest(self) -> None:
        """Look at what came last, for what is no message."""


class Mailbox:
    """Takes what a transport reads, and keeps it until somebody looks."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        """What came, within the bounds; None for the end, which has no bound: somebody waits for it."""
        self.error: Exception | None = None
        self._held = 0

    def _put(self, frame: bytes) -> None:
        if self.frames.qsize() < MOST_FRAMES and self._held + len(frame) <= MOST_HELD:
            self.frames.put_nowait(frame)
            self._held += len(frame)

    def looked_at(self, frame: bytes | None) -> None:
        """Count a frame no more that waits no more."""
        self._held -= len(frame or b"")

    def channel_opened(self, channel: Channel) -> None:
        """Do nothing."""

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        """Keep one frame."""
        self._put(bytes(frame))
        return False

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        """Keep how a frame began that is too long."""
        self._put(head)

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        """Note why a request gets no answer."""
        self.error = error
        self.frames.put_nowait(None)

    def end_received(self, channel: Channel) -> None:
        """Do nothing: the loss follows."""

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """Note that nothing more comes."""
        self.error = error or self.error
        self.frames.put_nowait(None)


class MessageWire:
    """A way on which messages go both ways: any transport of ours but Streamable HTTP."""

    def __init__(self, transport: Transport, kind: str) -> None:
        self.kind = kind
        self.noise: list[bytes] = []
        self.transport = transport
        self._mailbox = Mailbox()
        self._channel: Channel | None = None

    async def open(self, seconds: float) -> None:
        """Open the way; raise CarrierError where there is none."""
        try:
            async with asyncio.timeout(seconds):
                self._channel = await self.transport.connect(self._mailbox)
        except TimeoutError:
            raise NoAnswer(f"no connection within {seconds:g} s") from None

    async def exchange(
        self, data: bytes, wanted: Wanted, seconds: float, headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """Send some bytes and wait for the message that is wanted; raise NoAnswer where it does not come."""
        self._send(data)
        answer = Answer()
        try:
            async with asyncio.timeout(seconds):
                while not self._take(await self._next(), wanted, answer):
                    pass
        except TimeoutError:
            raise NoAnswer(f"no answer within {seconds:g} s") from None
        return answer

    async def tell(self, data: bytes, seconds: float, headers: Mapping[str, str] = NO_HEADERS) -> Answer:
        """Send some bytes that need no answer."""
        self._send(data)
        return Answer()

    async def close(self, grace: float) -> None:
        """Leave the server."""
        await self.transport.close(grace)

    def read_rest(self) -> None:
        """Look at what came last, for what is no message."""
        while not self._mailbox.frames.empty():
            frame = self._mailbox.frames.get_nowait()
            self._mailbox.looked_at(frame)
            if frame is not None:
                self._read(frame)

    def _send(self, data: bytes) -> None:
        if self._channel is None:
            raise NoAnswer("there is no connection", gone=True)
        written: Any = Raw(data)
        self._channel.send(written)

    async def _next(self) -> bytes:
        frame = await self._mailbox.frames.get()
        self._mailbox.looked_at(frame)
        if frame is None:
            why = "the connection was closed"
            if isinstance(self._mailbox.error, FerruleError):
                why = str(self._mailbox.error)
            raise NoAnswer(why, gone=True)
        return frame

    def _take(self, frame: bytes, wanted: Wanted, answer: Answer) -> bool:
        """Look at one frame. Return whether the wait is over."""
        answer.received += len(frame)
        if answer.received > MOST_BYTES:
            raise NoAnswer(f"the server sent {MOST_BYTES} bytes, and no answer")
        value = self._read(frame)
        if isinstance(value, list):
            answer.batch = value
            return wanted({"batch": value})
        if not isinstance(value, dict):
            return False
        if wanted(value):
            answer.message = value
            return True
        if len(answer.others) >= MOST_FRAMES:
            raise NoAnswer(f"the server sent {MOST_FRAMES} messages, and no answer")
        answer.others.append(value)
        self._reply(value)
        return False

    def _read(self, frame: bytes) -> object:
        try:
            value = read_json(frame)
        except ValueError:
            value = None
        if not isinstance(value, dict | list) and len(self.noise) < MOST_NOISE:
            self.noise.append(frame[:1024])
        return value

    def _reply(self, message: Json) -> None:
        """Answer what the server asks: it is alive, and nothing else is offered."""
        if "method" not in message or not isinstance(message.get("id"), str | int):
            return
        from_us: Json = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "ping":
            from_us["result"] = {}
        else:
            from_us["error"] = {"code": ErrorCode.METHOD_NOT_FOUND, "message": "this client offers nothing"}
        channel: Any = self._channel
        channel.send(from_us)
