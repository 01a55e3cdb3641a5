"""The heads of a client's requests: what is always the same is written once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.schema.mirrored import NOT_ANNOTATED, Annotated
from ferrule.schema.tools import ToolCall
from ferrule.transports.http.client.url import Place
from ferrule.transports.http.message import header_lines
from ferrule.transports.http.mirror import (
    METHOD_HEADER,
    NAME_HEADER,
    NAMED_BY,
    VERSION_HEADER,
    encode_value,
    param_headers,
    version_of,
)
from ferrule.wire.messages import Request

logger = logging.getLogger("ferrule.transports")

OURS = frozenset({"content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"})
"""Headers that say how bytes are framed, which only we can know."""

MAX_REMEMBERED = 1000

BOTH_KINDS = "application/json, text/event-stream"


class About(Struct):
    """The parts of a request that its headers may mirror."""

    name: str = ""
    arguments: Any = None
    meta: Any = None


def about(request: Request) -> About:
    """Read from a request of ours what its headers may say."""
    params = request.params
    if type(params) is ToolCall:
        return About(params.name, params.arguments, params.meta)
    if not isinstance(params, dict):
        return About()
    name = params.get(NAMED_BY.get(request.method, ""))
    return About(name if isinstance(name, str) else "", params.get("arguments"), params.get("_meta"))


class RequestHeaders:
    """Writes the heads of requests to one server."""

    def __init__(self, place: Place, proxy: Place | None, headers: Mapping[str, str]) -> None:
        self._proxy = proxy
        self._own = {name.lower(): value for name, value in headers.items()}
        if not OURS.isdisjoint(self._own):
            raise SetupError(f"the header {min(OURS & self._own.keys())} is not for you to set")
        self.settle("", "")
        self._meta: Any = None
        self._meta_version = ""
        self._remembered: dict[tuple[str, str], bytes] = {}
        self.move(place)

    def settle(self, session: str, version: str) -> None:
        """Go on with a session and the version its handshake settled on; either may be empty (handshake era)."""
        self.session = session
        self.version = version
        lines = f"mcp-session-id: {session}\r\n" if session else ""
        if version:
            lines += f"{VERSION_HEADER.lower()}: {version}\r\n"
        self.session_lines = lines.encode()
        """What names the session on each request of it."""

    def move(self, place: Place) -> None:
        """Ask another place of the same server from now on."""
        self.place = place
        target = place.target
        own = {"host": place.authority, "user-agent": "ferrule", "accept-encoding": "identity"}
        if place.credentials:
            own["authorization"] = place.credentials
        if self._proxy is not None and not place.secure:
            target = place.origin + target
            if self._proxy.credentials:
                own["proxy-authorization"] = self._proxy.credentials
        own |= self._own
        posts = {**own, "accept": BOTH_KINDS, "content-type": "application/json"}
        gets = {**own, "accept": "text/event-stream"}
        self._post = f"POST {target} HTTP/1.1\r\n".encode() + header_lines(posts)
        self._get = f"GET {target} HTTP/1.1\r\n".encode() + header_lines(gets)
        self._delete = f"DELETE {target} HTTP/1.1\r\n".encode() + header_lines(own)

    # -- whole requests

    def post(self, lines: bytes, body: bytes) -> bytes:
        """Write a POST."""
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (self._post, lines, len(body), body)

    def get(self, last_id: str = "", lines: bytes = b"") -> bytes:
        """Write a GET for a stream of the session, or for what follows an event of it."""
        resuming = b"last-event-id: %b\r\n" % last_id.encode() if last_id else b""
        return b"%b%b%b%b\r\n" % (self._get, self.session_lines, resuming, lines)

    def delete(self, lines: bytes = b"") -> bytes:
        """Write the end of the session."""
        return b"%b%b%b\r\n" % (self._delete, self.session_lines, lines)

    # -- what depends on the message

    def told(self, method: str) -> bytes:
        """Return the lines of a notification in a conversation without a session (stateless era)."""
        if not self._meta_version:
            return b""
        return header_lines({VERSION_HEADER: self._meta_version, METHOD_HEADER: encode_value(method)} if method else {})

    def mirrored(self, method: str, said: About, annotated: Annotated = NOT_ANNOTATED) -> bytes | None:
        """Mirror a request that brings its own version (stateless era); None for one that does not."""
        meta = said.meta
        if meta is not self._meta or meta is None:
            if meta is not None:
                version = version_of(meta) or ""
            else:
                version = ""
            if not version:
                return None
            if version != self._meta_version:
                self._remembered.clear()
            self._meta = meta
            self._meta_version = version
        lines = self._remembered.get((method, said.name))
        if lines is None:
            lines = self._remember(method, said.name)
        if annotated:
            lines += header_lines(param_headers(said.arguments, annotated))
        return lines

    def _remember(self, method: str, name: str) -> bytes:
        headers = {VERSION_HEADER: self._meta_version, METHOD_HEADER: encode_value(method)}
        if method in NAMED_BY:
            headers[NAME_HEADER] = encode_value(name)
        lines = header_lines(headers)
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[method, name] = lines
        return lines


def session_id(headers: dict[bytes, bytes]) -> str:
    """Read the name a server gave our session; one that cannot be sent back counts as none."""
    given = headers.get(b"mcp-session-id", b"").decode("latin-1")
    if not all("!" <= character <= "~" for character in given):
        logger.warning("the server's session id has characters it may not have, and is ignored")
        return ""
    return given
