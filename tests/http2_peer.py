"""A client of HTTP/2 that may say anything: the library h2 on a socket, with its rules for honest clients off."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATIENCE = 60.0
Pairs = Iterable[tuple[str, str]]


def request_fields(method: str = "GET", path: str = "/", *more: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the fields of an honest request, and more."""
    return [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path), *more]


def new_client(**settings: int) -> H2Connection:
    """Return the protocol of a client that checks nothing it sends."""
    config = H2Configuration(
        client_side=True,
        header_encoding="latin-1",
        validate_outbound_headers=False,
        normalize_outbound_headers=False,
        validate_inbound_headers=True,
    )
    client = H2Connection(config)
    given = {SettingCodes[name]: value for name, value in settings.items()}
    client.local_settings = Settings(client=True, initial_values=given)
    client.initiate_connection()
    return client


class Answer:
    """What came on one stream."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""
        self.whole = False
        self.reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers[":status"])


class Http2Peer:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: H2Connection) -> None:
        self.reader = reader
        self.writer = writer
        self.client = client
        self.answers: dict[int, Answer] = {}
        self.events: list[Event] = []
        self.goaway: GoAwayFrame | None = None
        """The last that came."""
        self.goaways = 0
        self.closed = False
        self._unread = b""
        self.acknowledge = True
        """Whether what comes opens the windows again."""

    @classmethod
    async def open(cls, address: tuple[str, int], tls: ssl.SSLContext | None = None, **settings: int) -> Http2Peer:
        """Connect, and say the preface."""
        name = None if tls is None else "localhost"
        reader, writer = await asyncio.open_connection(*address, ssl=tls, server_hostname=name)
        peer = cls(reader, writer, new_client(**settings))
        peer.flush()
        return peer

    async def __aenter__(self) -> Http2Peer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def flush(self) -> None:
        """Send what the protocol has to say."""
        self.writer.write(self.client.data_to_send())

    def ask(self, fields: Pairs, body: bytes | None = None, *, ends: bool = True) -> int:
        """Begin a request; gives the number of its stream."""
        number = self.client.get_next_available_stream_id()
        self.answers[number] = Answer()
        self.client.send_headers(number, fields, end_stream=ends and body is None)
        if body is not None:
            self.client.send_data(number, body, end_stream=ends)
        self.flush()
        return number

    def get(self, path: str = "/", *more: tuple[str, str]) -> int:
        return self.ask(request_fields("GET", path, *more))

    def say(self, *frames: Frame | bytes) -> None:
        """Send frames as they are, without the protocol's knowing."""
        for frame in frames:
            self.writer.write(frame if isinstance(frame, bytes) else frame.serialize())

    async def answer(self, number: int) -> Answer:
        """Wait until the answer on a stream is whole, or the stream is reset."""
        found = self.answers[number]
        await self.until(lambda: found.whole or found.reset is not None)
        return found

    async def until(self, true: Callable[[], Any]) -> None:
        """Read until something holds; fails where the connection ends before."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                assert not self.closed, f"the connection has ended: {self.goaway}"
                await self.read()

    async def until_closed(self) -> None:
        """Read until the other side closes."""
        async with asyncio.timeout(PATIENCE):
            while not self.closed:
                await self.read()

    async def read(self) -> None:
        """Read once."""
        try:
            data = await self.reader.read(65536)
        except ConnectionError:
            data = b""
        if data:
            self.hear(data)
        else:
            self.closed = True

    def hear(self, data: bytes) -> None:
        """Take bytes the server has sent, and say what the protocol answers."""
        self._unread += data
        while (frame := self._next()) is not None:
            if frame[3] == GoAwayFrame.type:
                # Not for h2, which would hear nothing more: answers may follow.
                self.goaways += 1
                self.goaway = GoAwayFrame(0)
                self.goaway.parse_body(memoryview(frame[9:]))
            else:
                for event in self.client.receive_data(frame):
                    self._note(event)
        self.flush()

    def _next(self) -> bytes | None:
        """Take the next whole frame from what was read."""
        end = 9 + int.from_bytes(self._unread[:3], "big")
        if len(self._unread) < max(end, 9):
            return None
        frame = self._unread[:end]
        self._unread = self._unread[end:]
        return frame

    def _note(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, ResponseReceived):
            self.answers[event.stream_id].headers = dict(event.headers)  # type: ignore[arg-type]
        elif isinstance(event, DataReceived):
            self.answers[event.stream_id].body += event.data
            if self.acknowledge and event.flow_controlled_length:
                self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self.answers[event.stream_id].whole = True
        elif isinstance(event, StreamReset):
            self.answers[event.stream_id].reset = int(event.error_code)
