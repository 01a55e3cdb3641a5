"""The opening handshake of a WebSocket (RFC 6455 §4): an HTTP request to leave HTTP, judged strictly, and its answer.

Rule: pure. What has two readings is refused.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from hashlib import sha1

from msgspec import Struct

from ferrule.errors import ConnectFailed, HttpFailed
from ferrule.transports.http.message import HttpRequest, header_lines
from ferrule.transports.websocket.deflate import OFFER, Deflate, accept_answer, accept_offer

VERSION = b"13"
SUBPROTOCOL = "mcp"
MAX_ANSWER_HEAD = 16 * 1024
NOT_HTTP = "the answer is not HTTP; is there a WebSocket at this URL?"
HINTS = {
    400: "; is there a WebSocket at this path? The usual one is /mcp/ws",
    401: "; give an authorization as headers=…",
    404: "; is the path right? The usual one is /mcp/ws",
    503: "; it is full or stopping, try again later",
}
"""What to do about a refusal."""
SUPPORTED = header_lines({"Sec-WebSocket-Version": VERSION.decode()})
UPGRADE = header_lines({"Upgrade": "websocket", "Connection": "Upgrade"})
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2})(?: [^\r\n]*)?")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\r\n\0]*)")


class UpgradeRefused(Struct, frozen=True):
    """Why a request does not become a WebSocket."""

    status: int
    why: str
    head: bytes = b""


JOINS_NO_OTHER = UpgradeRefused(409, "Conflict: a WebSocket is a session of its own and joins no other")


class Agreed(Struct, frozen=True):
    """What the two sides agreed on, and what a server answers to say so."""

    head: bytes
    subprotocol: str = ""
    deflate: Deflate | None = None


def accept_value(key: bytes) -> bytes:
    """Return what a server answers to a key, to show that it speaks this protocol."""
    return b64encode(sha1(key + _GUID).digest())  # noqa: S324 - RFC 6455 §4.2.2 wants this one


def judge_request(
    request: HttpRequest, *, compression: bool, subprotocol: str = SUBPROTOCOL
) -> Agreed | UpgradeRefused:
    """Judge a request that may want to become a WebSocket, by RFC 6455 §4.2.1."""
    headers = request.headers
    upgrades = _tokens(headers.get(b"upgrade", b""))
    if b"websocket" not in upgrades or b"upgrade" not in _tokens(headers.get(b"connection", b"")):
        return UpgradeRefused(426, "Upgrade required: this is a WebSocket", UPGRADE)
    if request.method != "GET" or upgrades.count(b"websocket") > 1:
        return UpgradeRefused(400, "Bad request: a WebSocket is opened with GET and one Upgrade")
    if request.body or b"content-length" in headers or b"transfer-encoding" in headers:
        return UpgradeRefused(400, "Bad request: an upgrade has no body")
    if headers.get(b"sec-websocket-version") != VERSION:
        # RFC 6455 §4.4: the answer names the version we speak.
        return UpgradeRefused(400, "Bad request: Sec-WebSocket-Version must be 13", SUPPORTED)
    key = headers.get(b"sec-websocket-key", b"")
    if not _is_key(key):
        return UpgradeRefused(400, "Bad request: Sec-WebSocket-Key must be 16 bytes in base64")
    if b"mcp-session-id" in headers:
        return JOINS_NO_OTHER
    return _agree(headers, key, compression, subprotocol)


def _agree(headers: Mapping[bytes, bytes], key: bytes, compression: bool, spoken: str) -> Agreed:
    answer = {"Sec-WebSocket-Accept": accept_value(key).decode()}
    offered = []
    for name in headers.get(b"sec-websocket-protocol", b"").split(b","):
        offered.append(name.strip())
    subprotocol = spoken if spoken.encode() in offered else ""
    head = UPGRADE
    if subprotocol:
        # Spelled as in RFC 6455 §4.2.2: the GraphQL client gql 4.4 does not find it in small letters.
        head += f"Sec-WebSocket-Protocol: {subprotocol}\r\n".encode()
    offers = headers.get(b"sec-websocket-extensions", b"").decode("latin-1")
    chosen = accept_offer(offers) if compression else None
    if chosen is None:
        return Agreed(head + header_lines(answer), subprotocol)
    return Agreed(head + header_lines({**answer, "Sec-WebSocket-Extensions": chosen[0]}), subprotocol, chosen[1])


def _tokens(header: bytes) -> list[bytes]:
    return [token.strip() for token in header.lower().split(b",")]


def _is_key(key: bytes) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except NotBase64:
        return False


def write_request(
    target: str, host: str, key: bytes, headers: Mapping[str, str], *, compression: bool, more: bytes = b""
) -> bytes:
    """Write the request that asks a server for a WebSocket (RFC 6455 §4.1); `more` is lines as they are sent."""
    lines = {
        "Host": host,
        "Sec-WebSocket-Version": VERSION.decode(),
        "Sec-WebSocket-Key": key.decode(),
        "Sec-WebSocket-Protocol": SUBPROTOCOL,
        **headers,
    }
    if compression:
        lines["Sec-WebSocket-Extensions"] = OFFER
    return f"GET {target} HTTP/1.1\r\n".encode("ascii") + UPGRADE + header_lines(lines) + more + b"\r\n"


def judge_answer(head: bytes, key: bytes, *, compression: bool) -> Agreed:
    """Judge a server's answer by the end of RFC 6455 §4.1.

    Raises HttpFailed where it stays with HTTP, ConnectFailed where it is nonsense.
    """
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    status = _STATUS.fullmatch(first)
    headers: dict[bytes, bytes] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise ConnectFailed(NOT_HTTP)
        name = found[1].lower()
        value = found[2].strip(b" \t")
        headers[name] = headers[name] + b", " + value if name in headers else value
    if status is None:
        raise ConnectFailed(NOT_HTTP)
    if status[1] != b"101":
        named = {name.decode(): value.decode("latin-1") for name, value in headers.items()}
        number = int(status[1])
        words = first[9:].decode("latin-1")
        raise HttpFailed(f"the server refuses the WebSocket with {words}{HINTS.get(number, '')}", number, named)
    if _tokens(headers.get(b"upgrade", b"")) != [b"websocket"] or b"upgrade" not in _tokens(
        headers.get(b"connection", b"")
    ):
        raise ConnectFailed("the server upgrades to something that is no WebSocket")
    if headers.get(b"sec-websocket-accept") != accept_value(key):
        raise ConnectFailed("the server's Sec-WebSocket-Accept does not belong to our key; does something cache it?")
    subprotocol = headers.get(b"sec-websocket-protocol", b"").decode("latin-1")
    if subprotocol not in ("", SUBPROTOCOL):
        raise ConnectFailed(f"the server chose the subprotocol {subprotocol!r}, which was not offered")
    return Agreed(b"", subprotocol, _agreed_deflate(headers, compression))


def _agreed_deflate(headers: Mapping[bytes, bytes], compression: bool) -> Deflate | None:
    extensions = headers.get(b"sec-websocket-extensions", b"").decode("latin-1")
    if not extensions:
        return None
    deflate = accept_answer(extensions) if compression else None
    if deflate is None:
        raise ConnectFailed(f"the server chose the extension {extensions!r}, which was not offered so")
    return deflate
