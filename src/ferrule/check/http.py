"""HTTP as a checker speaks it: every header is its own choice, one connection a request, every answer within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ferrule.check.answer import Answer, Wanted, read_json
from ferrule.check.wire import MOST_BYTES, MOST_FRAMES, MOST_NOISE, NO_HEADERS, NoAnswer
from ferrule.errors import ConnectFailed, SetupError
from ferrule.transports.http.client.url import Place, place
from ferrule.transports.sockets.dial import reaching
from ferrule.transports.sockets.tls import TlsSettings
from ferrule.wire.sse import EventTooLarge, SseParser

READ_SIZE = 64 * 1024
JSON = "application/json"
STREAM = "text/event-stream"
USUAL = {"Content-Type": JSON, "Accept": f"{JSON}, {STREAM}"}
"""The headers of a message that is posted."""
MOST_REDIRECTS = 3
LAST_WORDS = 0.5
"""How many seconds a stream may take to end after its response."""


class ReplyParser:
    """Reads one HTTP answer; httptools calls it."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.size = 0
        self.complete = False
        self._parser = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Read some bytes; raise NoAnswer where they are no HTTP."""
        self.size += len(data)
        if self.size > MOST_BYTES:
            raise NoAnswer(f"the answer is longer than {MOST_BYTES} bytes")
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as reason:
            raise NoAnswer(f"the answer is no HTTP: {reason}", gone=True) from None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        """Note the status; an answer in between (1xx) is none."""
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
        else:
            self.headers.clear()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self.parts.append(body)

    def on_message_complete(self) -> None:
        """Note the end of the answer."""
        self.complete = self.status >= 200

    def taken(self) -> bytes:
        """Return what came of the body since the last call."""
        data = b"".join(self.parts)
        self.parts.clear()
        return data


def is_any(message: object) -> bool:
    """Want the first message, whatever it is."""
    return True


class HttpWire:
    """Streamable HTTP at one URL."""

    kind = "http"

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.place: Place = place(url)
        self.noise: list[bytes] = []
        self._given = dict(headers)
        if self.place.credentials:
            self._given.setdefault("Authorization", self.place.credentials)
        self._context: ssl.SSLContext | None = None

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine."""
        return self.place.host in ("localhost", "127.0.0.1", "::1")

    async def open(self, seconds: float) -> None:
        """See that somebody listens there; raise CarrierError where nobody does."""
        if self.place.secure and self._context is None:
            self._context = TlsSettings(True, None, None).context()
        async with reaching(self.place, seconds):
            _, writer = await self._connect()
            writer.close()

    async def close(self, grace: float) -> None:
        """Do nothing: no connection is kept."""

    def read_rest(self) -> None:
        """Do nothing: every answer was read."""

    async def exchange(
        self, data: bytes, wanted: Wanted, seconds: float, headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """Post some bytes and read the answer; what it means is for the caller to say."""
        return await self.ask("POST", {**USUAL, **headers}, data, wanted, seconds)

    async def tell(self, data: bytes, seconds: float, headers: Mapping[str, str] = NO_HEADERS) -> Answer:
        """Post some bytes that need no message in return."""
        return await self.ask("POST", {**USUAL, **headers}, data, is_any, seconds)

    async def ask(self, method: str, headers: Mapping[str, str], data: bytes, wanted: Wanted, seconds: float) -> Answer:
        """Send one request and read its answer; one redirect of the whole endpoint is followed and remembered."""
        for _ in range(MOST_REDIRECTS):
            answer = await self._ask_once(method, headers, data, wanted, seconds)
            there = answer.headers.get("location", "")
            if answer.status not in (307, 308) or not there:
                break
            try:
                target = self.place.resolve(there)
            except SetupError:
                break  # it leads nowhere: the redirect itself is the answer
            if target.origin != self.place.origin:
                break
            self.place = target
        return answer

    async def head(self, method: str, headers: Mapping[str, str], seconds: float) -> Answer:
        """Send one request and read how its answer begins: the rest may never end."""
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await self._connect()
                try:
                    writer.write(self._head(method, headers, b""))
                    parser = ReplyParser()
                    while not parser.status:
                        await self._feed(reader, parser)
                finally:
                    writer.transport.abort()
        except TimeoutError:
            raise NoAnswer(f"no answer within {seconds:g} s") from None
        except OSError as reason:
            raise NoAnswer(f"the connection failed: {reason}", gone=True) from None
        return Answer(status=parser.status, headers=parser.headers)

    async def _ask_once(
        self, method: str, headers: Mapping[str, str], data: bytes, wanted: Wanted, seconds: float
    ) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await self._connect()
                try:
                    writer.write(self._head(method, headers, data) + data)
                    parser = ReplyParser()
                    answer = await self._read(reader, parser, wanted)
                    answer.received = parser.size
                    return answer
                finally:
                    writer.close()
                    with contextlib.suppress(OSError, ssl.SSLError):
                        writer.transport.abort()
        except TimeoutError:
            raise NoAnswer(f"no answer within {seconds:g} s") from None
        except OSError as reason:
            raise NoAnswer(f"the connection failed: {reason}", gone=True) from None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_connection(self.place.host, self.place.port, ssl=self._context)
        except UnicodeError:
            raise ConnectFailed(f"cannot reach {self.place}: its name is none") from None

    def _head(self, method: str, headers: Mapping[str, str], data: bytes) -> bytes:
        sent = {"Host": self.place.authority, **self._given, **headers, "Connection": "close"}
        if data or method == "POST":
            sent["Content-Length"] = str(len(data))
        lines = [f"{method} {self.place.target} HTTP/1.1"]
        for name, value in sent.items():
            lines.append(f"{name}: {value}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    async def _read(self, reader: asyncio.StreamReader, parser: ReplyParser, wanted: Wanted) -> Answer:
        while not parser.status:
            await self._feed(reader, parser)
        answer = Answer(status=parser.status, headers=parser.headers)
        if answer.kind == STREAM and answer.status == 200:
            await self._read_stream(reader, parser, wanted, answer)
            return answer
        while not parser.complete and await self._feed(reader, parser):
            pass
        answer.body = parser.taken()
        self._read_body(answer)
        return answer

    async def _feed(self, reader: asyncio.StreamReader, parser: ReplyParser) -> bool:
        """Read on. Return whether anything came."""
        data = await reader.read(READ_SIZE)
        if not data:
            if not parser.status:
                raise NoAnswer("the server closed the connection without an answer", gone=True)
            return False
        parser.feed(data)
        return True

    def _read_body(self, answer: Answer) -> None:
        if not answer.body:
            return
        with contextlib.suppress(ValueError):
            value = read_json(answer.body)
            if isinstance(value, dict):
                answer.message = value
            elif isinstance(value, list):
                answer.batch = value

    async def _read_stream(
        self, reader: asyncio.StreamReader, parser: ReplyParser, wanted: Wanted, answer: Answer
    ) -> None:
        """Read events until the message that is wanted has come, and a moment longer, to see whether they end."""
        events = SseParser(MOST_BYTES)
        answer.ended = False
        while not answer.message:
            self._read_events(events, parser, wanted, answer)
            if parser.complete or answer.message:
                break
            if not await self._feed(reader, parser):
                break
        try:
            async with asyncio.timeout(LAST_WORDS):
                while not parser.complete and await self._feed(reader, parser):
                    pass
                answer.ended = True
        except TimeoutError:
            answer.ended = False
        self._read_events(events, parser, wanted, answer)

    def _read_events(self, events: SseParser, parser: ReplyParser, wanted: Wanted, answer: Answer) -> None:
        try:
            found = events.feed(parser.taken())
        except EventTooLarge as reason:
            raise NoAnswer(str(reason)) from None
        for event in found:
            if len(answer.events) >= MOST_FRAMES:
                raise NoAnswer(f"the server sent {MOST_FRAMES} events in one stream")
            answer.events.append(event)
            if not event.data:
                continue
            try:
                value = read_json(event.data)
            except ValueError:
                if len(self.noise) < MOST_NOISE:
                    self.noise.append(event.data[:1024])
                continue
            if isinstance(value, list):
                answer.batch = value
            elif isinstance(value, dict) and wanted(value) and not answer.message:
                answer.message = value
            elif isinstance(value, dict):
                answer.others.append(value)
