"""Plain web requests and answers, for what a server offers beside MCP."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from ferrule.budgets.bounds import MAX_MESSAGE_WEIGHT
from ferrule.budgets.collector import decode_long
from ferrule.budgets.weight import weight
from ferrule.errors import SetupError
from ferrule.identity.principal import Principal
from ferrule.transports.http.message import Headers, HttpRequest, header_lines

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
BYTES = "application/octet-stream"
MEASURED = frozenset({"content-length", "transfer-encoding", "connection"})
"""Headers that belong to whoever writes the answer."""
MAX_FIELDS = 1000
"""Fields of a query or a form that is read."""
STATUSES = range(200, 600)
"""Those that end an exchange."""


class WebRequest:
    """What the handler of a custom route receives."""

    __slots__ = ("_request", "headers", "path_params")

    def __init__(self, request: HttpRequest, path_params: dict[str, str]) -> None:
        self._request = request
        self.path_params = path_params
        self.headers = Headers(request.headers)

    @property
    def method(self) -> str:
        """The method: `GET`, `POST` …"""
        return self._request.method

    @property
    def path(self) -> str:
        """The path as it came, without the query."""
        return self._request.path

    @property
    def query(self) -> str:
        """The query as it came."""
        return self._request.query

    @property
    def url(self) -> str:
        """The URL as far as we know it, without the query; behind a proxy, the host may be one it made up."""
        scheme = "https" if self._request.secure else "http"
        return f"{scheme}://{self._request.header(b'host')}{self._request.root}{self._request.path}"

    @property
    def query_params(self) -> dict[str, str]:
        """The query by name; of a name that came several times, the last. Raises ValueError for too many names."""
        return _fields(self._request.query)

    @property
    def address(self) -> str:
        """Where the request came from."""
        return self._request.address

    @property
    def identity(self) -> Principal | None:
        """Who is authenticated, if anyone."""
        return self._request.identity

    @property
    def principal(self) -> str | None:
        """The key of `identity`: `issuer#subject`."""
        if self._request.identity is None:
            return None
        return self._request.identity.key

    async def body(self) -> bytes:
        """Return the body."""
        return self._request.body

    async def json(self) -> Any:
        """Return the body, read as JSON; raises ValueError when it is none, or holds too many values."""
        body = self._request.body
        if weight(body) > MAX_MESSAGE_WEIGHT:
            raise ValueError(f"the body holds too many values: it would take more than {MAX_MESSAGE_WEIGHT} bytes")
        return decode_long(msgspec.json.decode, body, len(body))

    async def form(self) -> dict[str, str]:
        """Return the body, read as an HTML form (`application/x-www-form-urlencoded`).

        Raises ValueError for too many names.
        """
        return _fields(self._request.body.decode("utf-8", "replace"))


def _fields(text: str) -> dict[str, str]:
    if text.count("&") >= MAX_FIELDS:
        raise ValueError(f"more than {MAX_FIELDS} fields in a query or a form")
    return dict(parse_qsl(text, keep_blank_values=True))


class WebResponse(Struct, eq=False):
    """What the handler of a custom route may give: a body, or an async iterable of its parts, with its head."""

    content: Any = None
    status_code: int = 200
    headers: Mapping[str, str | Sequence[str]] = {}
    """By name; several values are several lines, as cookies need it."""
    media_type: str | None = None

    @property
    def streams(self) -> bool:
        """Whether the body comes in parts."""
        return isinstance(self.content, AsyncIterable)

    @property
    def body(self) -> bytes:
        """The whole body."""
        content = self.content
        if content is None:
            return b""
        if isinstance(content, bytes | bytearray):
            return bytes(content)
        if isinstance(content, str):
            return content.encode()
        return msgspec.json.encode(content)

    def head(self, always: Mapping[str, str]) -> bytes:
        """Write the headers, and of those every answer has the ones not given; refuses what no answer may have."""
        if not isinstance(self.status_code, int) or self.status_code not in STATUSES:
            raise SetupError(f"the status of an answer is from 200 to 599, not {self.status_code!r}")
        given = {}
        for name, value in self.headers.items():
            if name.lower() not in MEASURED:
                given[name.lower()] = value
        usual = {}
        for name, value in always.items():
            usual[name.lower()] = value
        if self.content is not None:
            usual["content-type"] = self.media_type or self._usual_type()
        lines = []
        for name, values in {**usual, **given}.items():
            for each in _values(values):
                lines.append(header_lines({name: each}))
        return b"".join(lines)

    def _usual_type(self) -> str:
        if isinstance(self.content, str):
            return TEXT
        if isinstance(self.content, bytes | bytearray) or self.streams:
            return BYTES
        return JSON


def respond(value: Any) -> WebResponse:
    """Make an answer of whatever a handler gave: text, bytes, anything JSON can say, nothing, or a response."""
    if isinstance(value, WebResponse):
        return value
    if value is None:
        return WebResponse(status_code=204)
    body = getattr(value, "body", None)
    raw = getattr(value, "raw_headers", None)
    if isinstance(body, bytes) and raw is not None:
        # A response of Starlette or FastAPI, known by its parts: neither is imported here.
        return WebResponse(body, value.status_code, _gathered(raw))
    return WebResponse(value)


def _values(said: str | Sequence[str]) -> Sequence[str]:
    if isinstance(said, str):
        return [said]
    return said


def _gathered(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in raw:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers
