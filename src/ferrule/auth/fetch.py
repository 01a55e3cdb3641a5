"""Fetching what somebody else named: keys, metadata, tokens. Bounded, and only from where it may be fetched.

Rule 1: the address that was judged is the address that is connected; the name is only for TLS and `Host`.
Rule 2: a redirect is followed only for GET, within its origin, twice at most, and judged anew.
Rule 3: nothing of an answer is read beyond its bounds: 64 KiB, 5 seconds, no compression.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urljoin

import msgspec
from msgspec import Struct

from ferrule.auth.address import AddressRefused, AddressRules, Destination
from ferrule.errors import FerruleError
from ferrule.transports.http.client.connection import ConnectionCut, HttpConnection
from ferrule.transports.http.message import header_lines
from ferrule.transports.sockets.dial import dial
from ferrule.transports.sockets.tls import TlsSettings, explain

MAX_SIZE = 64 * 1024
TIMEOUT = 5.0
MAX_REDIRECTS = 2
REDIRECTS = frozenset({301, 302, 303, 307, 308})

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host."""


class FetchFailed(FerruleError):
    """Nothing came of it: nobody answered, or what came is not what was asked for."""


class Fetched(Struct, frozen=True):
    """An answer, whatever its status is."""

    url: str
    """Where it came from in the end."""
    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes

    def document(self) -> dict[str, Any]:
        """Return the JSON object that came; raises FetchFailed where it is none."""
        try:
            found = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise FetchFailed(f"{self.url} answered HTTP {self.status} with something that is not JSON") from None
        if not isinstance(found, dict):
            raise FetchFailed(f"{self.url} answered HTTP {self.status} with JSON that is not an object")
        return found


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host as the system knows them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Fetcher:
    """Fetches documents by URL. Raises AddressRefused before connecting, FetchFailed after."""

    def __init__(
        self,
        rules: AddressRules,
        *,
        tls: TlsSettings | None = None,
        timeout: float = TIMEOUT,
        max_size: int = MAX_SIZE,
        resolve: Resolve = resolve_by_system,
    ) -> None:
        self.rules = rules
        self._tls = tls or TlsSettings(True, None, None)
        self._timeout = timeout
        self._max_size = max_size
        self._resolve = resolve
        self._context: ssl.SSLContext | None = None

    async def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, redirects: int = MAX_REDIRECTS
    ) -> Fetched:
        """Get a document; a few redirects within its origin are followed, without the headers given."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._get(url, headers or {}, redirects)
        except TimeoutError:
            raise FetchFailed(f"{_named(url)} did not answer within {self._timeout:g} s") from None

    async def _get(self, url: str, headers: Mapping[str, str], redirects: int) -> Fetched:
        origin = self.rules.judge_url(url).origin
        for _ in range(redirects + 1):
            answer = await self._exchange("GET", url, {"accept": "application/json", **headers}, b"")
            if answer.status not in REDIRECTS:
                return answer
            url = _next_url(url, answer)
            if self.rules.judge_url(url).origin != origin:
                raise AddressRefused(f"{origin} redirects to another origin, which is not followed")
            headers = {}
        raise FetchFailed(f"{origin} redirects again and again")

    async def post_form(self, url: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Fetched:
        """Post a form, as token endpoints want it; redirects are not followed."""
        body = urlencode(fields).encode()
        kind = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        return await self._post(url, {**kind, **(headers or {})}, body)

    async def post_json(
        self, url: str, document: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Fetched:
        """Post a JSON document, as registration endpoints want it; redirects are not followed."""
        kind = {"content-type": "application/json", "accept": "application/json"}
        return await self._post(url, {**kind, **(headers or {})}, msgspec.json.encode(document))

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> Fetched:
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._exchange("POST", url, headers, body)
        except TimeoutError:
            raise FetchFailed(f"{_named(url)} did not answer within {self._timeout:g} s") from None
        if answer.status in REDIRECTS:
            raise FetchFailed(f"{_named(url)} redirects a POST, which is not followed")
        return answer

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Fetched:
        there = self.rules.judge_url(url)
        addresses = await self._addresses(there)
        exchange = _Exchange(self._max_size)
        connection = await self._connect(there, addresses, exchange)
        try:
            if not connection.usable:
                raise ConnectionCut("the server closed the connection")
            connection.send(_request(method, there, headers, body), exchange)
            await exchange.done
        except ConnectionCut as reason:
            raise FetchFailed(f"{there.origin} gave no whole answer: {reason}") from None
        finally:
            connection.abort()
        texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers.items()}
        return Fetched(url.partition("?")[0], exchange.status, texts, bytes(exchange.body))

    async def _addresses(self, there: Destination) -> list[str]:
        try:
            found = list(await self._resolve(there.host, there.port))
        except (OSError, UnicodeError):
            # The second is for a name that no host can have, such as one with a part of more than 63 characters.
            found = []
        if not found:
            raise FetchFailed(f"{there.origin}: there is no host of this name")
        self.rules.judge_addresses(there, found)
        return found

    async def _connect(self, there: Destination, addresses: list[str], owner: _Exchange) -> HttpConnection:
        context = None
        if there.scheme == "https":
            if self._context is None:
                self._context = self._tls.context()
            context = self._context
        failure: OSError | None = None
        for address in dict.fromkeys(addresses):
            try:
                _, connection = await dial(lambda: HttpConnection(owner), address, there.port, context, there.host)
                return connection
            except OSError as error:
                failure = error
        assert failure is not None
        raise FetchFailed(f"{there.origin} cannot be reached: {explain(failure)}") from failure


class _Exchange:
    """Owns one connection and reads the one answer on it."""

    def __init__(self, max_size: int) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._max_size = max_size

    def head_received(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Called with the head of the answer."""
        self.status = status
        self.headers = headers
        if headers.get(b"content-encoding", b"identity") != b"identity":
            self.lost(ConnectionCut("it is compressed, which we did not ask for"))

    def body_received(self, data: bytes) -> None:
        """Take a part of the answer."""
        if len(self.body) + len(data) > self._max_size:
            self.lost(ConnectionCut(f"it is longer than {self._max_size} bytes"))
        else:
            self.body += data

    def ended(self) -> None:
        """Called when the answer is complete."""
        if not self.done.done():
            self.done.set_result(None)

    def lost(self, error: Exception) -> None:
        """Called when no more of it will come."""
        if not self.done.done():
            self.done.set_exception(error)

    def let_go(self) -> None:
        """Nobody wants the answer any more."""

    def freed(self, connection: HttpConnection) -> None:
        """Called when the connection could be used again; we do not."""

    def gone(self, connection: HttpConnection) -> None:
        """Called when the connection is of no use any more; whoever waits was told."""


def _next_url(url: str, answer: Fetched) -> str:
    """Return where an answer redirects to."""
    where = answer.headers.get("location", "")
    if not where:
        raise FetchFailed(f"{answer.url} redirects to nowhere")
    try:
        return urljoin(url, where)
    except ValueError:
        raise AddressRefused(f"{answer.url} redirects to something that is not a URL") from None


def _request(method: str, there: Destination, headers: Mapping[str, str], body: bytes) -> bytes:
    host = there.origin.partition("://")[2]
    own = {"host": host, "user-agent": "ferrule", "accept-encoding": "identity", "connection": "close"}
    if method == "POST":
        own["content-length"] = str(len(body))
    return f"{method} {there.target} HTTP/1.1\r\n".encode() + header_lines({**own, **headers}) + b"\r\n" + body


def _named(url: str) -> str:
    return url.partition("?")[0]
