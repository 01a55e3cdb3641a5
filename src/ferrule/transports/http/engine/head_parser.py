"""The head of an HTTP/1.1 request, taken apart strictly: what two readers could read differently is refused.

Rule: llhttp judges the header lines; the request line, Host and what frames the body are judged here as well, since
llhttp lets doubled spaces, fragments, other protocols' versions and a missing Host pass.
"""

from __future__ import annotations

import re
from functools import lru_cache

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Struct, field

from ferrule.transports.http.message import HeadDecision

METHODS = {name.encode(): name for name in ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH", "TRACE")}
"""Methods that are handed on (RFC 9110 §9.3, RFC 5789); whether a path has them is not for the engine to say."""

SESSION_QUERY = b"session_id="
"""In a target of HTTP+SSE, before the id of a session."""

ALLOW = b"allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
BAD_TARGET = "the target has characters no target may have"
OTHER_VERSION = "only HTTP/1.1 and HTTP/1.0 are spoken here"
LONGEST_REQUEST_LINE = 8192
"""RFC 9112 §3 wants at least 8000."""
HTTP2_LINE = b"PRI * HTTP/2.0"
CHUNKED = -1
"""The length of a body that comes in chunks."""

# token: RFC 9110 §5.6.2; request-target: RFC 9112 §3.2; HTTP-version: RFC 9112 §2.3; Host: RFC 9110 §7.2.
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
TARGET = re.compile(rb"[!\"$-~]+")
"""Visible ASCII without the fragment's mark."""
_VERSION = re.compile(rb"HTTP/[0-9]\.[0-9]")
HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]+)(?::[0-9]{0,5})?")
_ABSOLUTE = re.compile(rb"https?://([^/?]*)(/[^?]*)?(?:\?(.*))?", re.IGNORECASE)
ONCE = frozenset({b"host", b"content-length", b"transfer-encoding", b"authorization"})
"""Fields that are no lists. Two of Host are refused by RFC 9112 §3.2, two lengths by §6.3."""
_LONGEST_LENGTH = 19
MOST_RECENT = 128
"""How many heads are remembered for all connections together."""
LONGEST_RECENT = 1024
"""Bytes of a head that is remembered."""
CREDENTIALS = frozenset({b"authorization", b"proxy-authorization", b"cookie", b"dpop"})
"""Fields of heads that do not outlive their connection."""
SESSION = b"mcp-session-id"
_SESSION_LINE = re.compile(rb"\r\n(?:mcp-session-id|Mcp-Session-Id): ([0-9A-Za-z._-]{1,64})\r")
"""The field in its two usual spellings, with an id whose characters mean nothing in a head."""
_IN_SESSION = b"ession-"
"""A part of both: a short word is found more quickly than a pattern."""
_TO_SESSION = len(b"\r\nMcp-S")
"""From the beginning of the line to that part."""
_BLANK = b"x" * 64
"""Stands in place of an id in a head that is remembered; a longer id is not left out."""


class Unacceptable(Exception):
    """A request that is answered with an error, after which its connection ends."""

    def __init__(self, status: int, text: str, head: bytes = b"") -> None:
        super().__init__(text)
        self.status = status
        self.head = head


class Http2Preface(Unacceptable):
    """The first line of an HTTP/2 connection (RFC 9113 §3.4): refused like any other version where nobody speaks it."""

    def __init__(self) -> None:
        super().__init__(505, OTHER_VERSION)


class Head(Struct, frozen=True, eq=False):
    """The head of one request. It is kept for the next request with the same bytes, so nobody may change it."""

    raw: bytes
    method: str
    path: str
    query: str
    headers: dict[bytes, bytes]
    length: int
    """Of the body; CHUNKED where only its end will tell."""
    keep_alive: bool
    old: bool
    """Whether the peer speaks HTTP/1.0."""
    expects_continue: bool
    plain: bool
    """Whether the answer needs nothing special: it has a body, and the connection stays."""
    stem: bytes = b""
    """What stands before the digits of the content-length; empty where they were not found in a usual way."""
    tail: bytes = b""
    """What stands after them."""
    decision: HeadDecision = field(default_factory=HeadDecision)


def written_again(head: Head, body: bytes) -> bytes:
    """Return a request as it can be read once more."""
    if head.length != CHUNKED:
        return head.raw + body
    # The pieces it came in are not known any more: RFC 9112 §7.1, one chunk and the last.
    if not body:
        return head.raw + b"0\r\n\r\n"
    return b"%b%x\r\n%b\r\n0\r\n\r\n" % (head.raw, len(body), body)


class _Lines:
    """Collects what llhttp finds."""

    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep one header."""
        name = name.lower()
        # llhttp leaves the blanks after a value, which are no part of it (RFC 9110 §5.5).
        value = value.rstrip(b" \t")
        if name in self.headers:
            if name in ONCE:
                raise Unacceptable(400, f"the header {name.decode()} came more than once")
            # RFC 9110 §5.3: several lines of one field are one list.
            value = self.headers[name] + b", " + value
        self.headers[name] = value


def parse_head(raw: bytes, max_headers: int) -> Head:
    """Read a whole head, the empty line after it included; raises Unacceptable."""
    line = raw[: raw.index(b"\r\n")]
    if SESSION_QUERY in line:
        method, target, old = parse_request_line(line)
    else:
        method, target, old = _request_line(line)
    if raw.count(b"\n") - 2 > max_headers:
        raise Unacceptable(431, f"more than {max_headers} headers")
    headers = _read_lines(raw)
    path, query = _read_target(target, _read_host(headers, old))
    options = headers.get(b"connection", b"").lower()
    length = _read_length(headers, old)
    expects_continue = read_expectation(headers, old)
    stem = b""
    tail = b""
    # A head that is answered before its body comes is not worth remembering.
    if length > 0 and not expects_continue:
        stem, tail = _cut_at_length(raw, headers[b"content-length"])
    # RFC 9112 §9.3: HTTP/1.1 persists unless told to close, HTTP/1.0 closes unless told to keep.
    if old:
        keep_alive = _lists(options, b"keep-alive")
    else:
        keep_alive = not (options and _lists(options, b"close"))
    return Head(
        raw=raw,
        method=method,
        path=path,
        query=query,
        headers=headers,
        length=length,
        keep_alive=keep_alive,
        old=old,
        expects_continue=expects_continue,
        plain=keep_alive and not old and method != "HEAD",
        stem=stem,
        tail=tail,
    )


def parse_again(previous: Head, data: bytes, at: int) -> Head | None:
    """Read the head at a place if it is the previous one but for the digits of its content-length; None if not.

    Clients repeat themselves, and comparing is many times cheaper than parsing.
    """
    if not previous.stem or not data.startswith(previous.stem, at):
        return None
    start = at + len(previous.stem)
    end = data.find(b"\r", start, start + _LONGEST_LENGTH + 1)
    digits = data[start:end]
    if end < 0 or not digits.isdigit() or not data.startswith(previous.tail, end):
        return None
    return Head(
        data[at : end + len(previous.tail)],
        previous.method,
        previous.path,
        previous.query,
        {**previous.headers, b"content-length": digits},
        int(digits),
        previous.keep_alive,
        previous.old,
        False,
        previous.plain,
        previous.stem,
        previous.tail,
        previous.decision,
    )


def _cut_at_length(raw: bytes, digits: bytes) -> tuple[bytes, bytes]:
    """Return what stands before and after the content-length, in its two usual spellings."""
    for name in (b"\r\nContent-Length: ", b"\r\ncontent-length: "):
        stem, found, rest = raw.partition(name + digits)
        if found and rest.startswith(b"\r\n"):
            return stem + name, rest
    return b"", b""


def parse_request_line(line: bytes) -> tuple[str, bytes, bool]:
    """Return the method, the target, and whether this is HTTP/1.0; raises Unacceptable."""
    if len(line) > LONGEST_REQUEST_LINE:
        raise Unacceptable(414, "the request line is too long")
    # RFC 9112 §3 lets a recipient split at any blanks; two readers could split differently then.
    parts = line.split(b" ")
    if len(parts) != 3:
        raise Unacceptable(400, "the request line is not a method, a target and a version, with one space between")
    name, target, version = parts
    if version not in {b"HTTP/1.1", b"HTTP/1.0"}:
        if line == HTTP2_LINE:
            raise Http2Preface
        if _VERSION.fullmatch(version):
            # RFC 9110 §15.6.6.
            raise Unacceptable(505, OTHER_VERSION)
        raise Unacceptable(400, "the request line does not end with a version of HTTP")
    if not TARGET.fullmatch(target):
        raise Unacceptable(400, BAD_TARGET)
    return read_method(name), target, version == b"HTTP/1.0"


_request_line = lru_cache(256)(parse_request_line)
"""For lines that name no session."""


def read_method(name: bytes) -> str:
    """Return a method that is handed on; raises Unacceptable for any other."""
    method = METHODS.get(name)
    if method is not None:
        return method
    if name == b"CONNECT":
        raise Unacceptable(400, "this is not a proxy")
    if _TOKEN.fullmatch(name):
        # RFC 9110 §9.1: a method nobody here has implemented.
        raise Unacceptable(501, "unknown method", ALLOW)
    raise Unacceptable(400, "the method is not a token")


def check_beginning(part: bytes, max_head_size: int) -> None:
    """Refuse a head that has not come whole if it can never become acceptable."""
    line, ended, _ = part.partition(b"\r\n")
    if not ended and not (_TOKEN.match(part) or part == b"\r"):
        raise Unacceptable(400, "this is not HTTP")
    if ended:
        parse_request_line(line)
    elif len(part) - part.endswith(b"\r") > LONGEST_REQUEST_LINE:
        raise Unacceptable(414, "the request line is too long")
    # RFC 9112 §2.2: a bare CR is invalid, and a bare LF need not be taken for the end of a line.
    breaks = part.count(b"\r\n")
    if part.count(b"\n") != breaks or part.count(b"\r") - part.endswith(b"\r") != breaks:
        raise Unacceptable(400, "lines end with CR LF, and neither stands alone")
    if len(part) > max_head_size:
        # RFC 6585 §5.
        raise Unacceptable(431, f"the head is longer than {max_head_size} bytes")


def _read_lines(raw: bytes) -> dict[bytes, bytes]:
    """Read the field lines; llhttp refuses blanks before a colon (RFC 9112 §5.1) and folded lines (§5.2)."""
    lines = _Lines()
    try:
        HttpRequestParser(lines).feed_data(raw)
    except HttpParserUpgrade:
        # Asked to upgrade: RFC 9110 §7.8 lets us go on with HTTP/1.1 as if it had not been said.
        pass
    except HttpParserError as error:
        if isinstance(error.__context__, Unacceptable):
            raise error.__context__ from None
        raise Unacceptable(400, f"the head is malformed: {error}") from None
    return lines.headers


def _read_host(headers: dict[bytes, bytes], old: bool) -> bytes:
    """Read Host: HTTP/1.1 must have one, and a valid one (RFC 9112 §3.2)."""
    host = headers.get(b"host")
    if host is None:
        if old:
            return b""
        raise Unacceptable(400, "the header Host is missing")
    if not HOST.fullmatch(host):
        raise Unacceptable(400, "the header Host is not a host")
    return host


def _read_target(target: bytes, host: bytes) -> tuple[str, str]:
    """Return path and query of a target in origin-form (RFC 9112 §3.2.1) or absolute-form (§3.2.2)."""
    if target.startswith(b"/"):
        path, _, query = target.partition(b"?")
        return path.decode("ascii"), query.decode("ascii")
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise Unacceptable(400, "the target is neither a path nor a URL")
    # RFC 9112 §3.2.2 would have us ignore Host; where they differ, somebody before us may have read the other.
    if absolute[1].lower() != host.lower():
        raise Unacceptable(421, "the target is for another host")
    return (absolute[2] or b"/").decode("ascii"), (absolute[3] or b"").decode("ascii")


def _read_length(headers: dict[bytes, bytes], old: bool) -> int:
    """Return the length of the body, by the rules of RFC 9112 §6.3 that hold for requests."""
    coding = headers.get(b"transfer-encoding")
    length = headers.get(b"content-length")
    if coding is not None:
        # Both fields: RFC 9112 §6.3 item 3. HTTP/1.0 and other codings: §6.1.
        if length is not None or old or coding.lower() != b"chunked":
            raise Unacceptable(400, "transfer-encoding is chunked, in HTTP/1.1, without content-length, or absent")
        return CHUNKED
    if length is None:
        return 0
    return read_digits(length)


def read_digits(length: bytes) -> int:
    """Return the number a content-length is; one that is none is refused (RFC 9112 §6.3 item 5)."""
    if not length.isdigit() or len(length) > _LONGEST_LENGTH:
        raise Unacceptable(400, "content-length is not a number")
    return int(length)


def read_expectation(headers: dict[bytes, bytes], old: bool) -> bool:
    """Whether the peer waits for 100; HTTP/1.0 cannot, and nothing else can be expected (RFC 9110 §10.1.1)."""
    expected = headers.get(b"expect")
    if expected is None or old:
        return False
    if expected.lower() != b"100-continue":
        raise Unacceptable(417, "only 100-continue can be expected")
    return True


def _lists(value: bytes, option: bytes) -> bool:
    """Whether a Connection field names an option (RFC 9110 §7.6.1)."""
    return value == option or option in {part.strip() for part in value.split(b",")}


class RecentHeads:
    """Parses heads, and remembers a bounded number of them: the short connections of one program all send the same.

    Only bytes that were judged acceptable are here, and they are judged the same wherever they come from. What depends
    on the connection is in its own `Head.decision`, what does not in `HeadDecision.shared`. No head with credentials is
    kept, and no id of a session: heads that differ in nothing else, and have ids of the same length, are one.
    """

    __slots__ = ("_heads", "_max_headers")

    def __init__(self, max_headers: int) -> None:
        self._max_headers = max_headers
        self._heads: dict[bytes, Head] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def parse(self, raw: bytes) -> Head:
        """Return a head of its own for one connection; raises Unacceptable."""
        blank, session = _without_session(raw)
        head = self._heads.get(blank)
        if head is None:
            head = parse_head(blank, self._max_headers)
            if session and head.headers.get(SESSION) != _BLANK[: len(session)]:
                # Several lines of the field are one list, of which only the first was left out.
                return parse_head(raw, self._max_headers)
            if self._may_keep(head) and (session or SESSION not in head.headers):
                if len(self._heads) >= MOST_RECENT:
                    self._heads.clear()
                self._heads[blank] = head
        return _own(head, raw, session)

    @staticmethod
    def _may_keep(head: Head) -> bool:
        if len(head.raw) > LONGEST_RECENT or not CREDENTIALS.isdisjoint(head.headers):
            return False
        if SESSION_QUERY in head.raw:
            return False
        return head.length != CHUNKED and not head.expects_continue


def _without_session(raw: bytes) -> tuple[bytes, bytes]:
    """Return a head with a blank of the same length in place of the id of its session, and that id.

    A head that names no session, or names it in an unusual way, is returned as it is, with an empty id. What is
    acceptable does not depend on the id: its characters are plain.
    """
    at = raw.find(_IN_SESSION)
    if at < _TO_SESSION:
        return raw, b""
    line = _SESSION_LINE.match(raw, at - _TO_SESSION)
    if line is None:
        return raw, b""
    start, end = line.span(1)
    return raw[:start] + _BLANK[: end - start] + raw[end:], raw[start:end]


def _own(head: Head, raw: bytes, session: bytes) -> Head:
    """Return the same head for one connection, with the id of its session, and with what is known of it for all."""
    shared = head.decision
    headers = head.headers.copy()
    stem = head.stem
    tail = head.tail
    if not session:
        raw = head.raw
    else:
        headers[SESSION] = session
        if stem:
            stem = raw[: len(stem)]
            tail = raw[-len(tail) :]
    return Head(
        raw,
        head.method,
        head.path,
        head.query,
        headers,
        head.length,
        head.keep_alive,
        head.old,
        head.expects_continue,
        head.plain,
        stem,
        tail,
        HeadDecision(shared.take, shared),
    )
