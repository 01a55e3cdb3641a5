"""The fields of an HTTP/2 request (RFC 9113 §8), read as strictly as the head of an HTTP/1.1 request.

Rule: whoever reads the request later, here or behind us over HTTP/1.1, sees one method, one target, one host and one
length. What could be read in two ways is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hpack import Decoder, HeaderTuple, HPACKDecodingError, NeverIndexedHeaderTuple

from ferrule.transports.http.engine.head_parser import (
    BAD_TARGET,
    CHUNKED,
    HOST,
    LONGEST_REQUEST_LINE,
    ONCE,
    TARGET,
    Head,
    Unacceptable,
    read_digits,
    read_expectation,
    read_method,
)

Fields = Sequence[tuple[bytes, bytes]]

FIELD_OVERHEAD = 32
"""What each field counts beside its bytes, RFC 9113 §6.5.2."""
PSEUDO = frozenset({b":method", b":scheme", b":authority", b":path"})
"""The pseudo-header fields of a request, RFC 9113 §8.3.1; `:protocol` (RFC 8441) is not offered."""
OF_CONNECTIONS = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
"""Fields of HTTP/1.1 connections, which no message of HTTP/2 may have (RFC 9113 §8.2.2)."""
SCHEMES = frozenset({b"http", b"https"})
SECRET = frozenset({b"set-cookie", b"mcp-session-id", b"www-authenticate"})
"""Fields of answers that no table of a compressor keeps, here or at a proxy (RFC 7541 §7.1.3)."""

# RFC 9113 §8.2.1, with the characters of a token (RFC 9110 §5.6.2) and of a value (§5.5).
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_THREE_RESIZES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\x00-\x7f]){3}")
"""Dynamic table size updates, RFC 7541 §6.3."""
_VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")


class FieldDecoder(Decoder):
    """A decompressor that changes the size of its table as often as RFC 7541 §4.2 needs: each time is costly."""

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        """Return the fields of a header block; raises HPACKDecodingError."""
        if _THREE_RESIZES.match(data):
            raise HPACKDecodingError("the size of the table changes more than twice")
        return super().decode(data, raw)


def size_of(fields: Fields) -> int:
    """Return how much fields count against SETTINGS_MAX_HEADER_LIST_SIZE."""
    return sum(len(name) + len(value) + FIELD_OVERHEAD for name, value in fields)


def read_head(fields: Fields, max_size: int, max_fields: int) -> Head:
    """Read the fields of a request; raises Unacceptable."""
    if size_of(fields) > max_size:
        # RFC 6585 §5.
        raise Unacceptable(431, f"the fields are longer than {max_size} bytes")
    pseudo, headers = _sort(fields)
    if len(fields) - len(pseudo) > max_fields:
        raise Unacceptable(431, f"more than {max_fields} headers")
    method = read_method(_required(pseudo, b":method"))
    if _required(pseudo, b":scheme") not in SCHEMES:
        raise Unacceptable(400, ":scheme is neither http nor https")
    path, query = _read_path(_required(pseudo, b":path"))
    headers[b"host"] = _read_authority(pseudo.get(b":authority"), headers.get(b"host"))
    length = headers.get(b"content-length")
    return Head(
        raw=b"",
        method=method,
        path=path,
        query=query,
        headers=headers,
        length=CHUNKED if length is None else read_digits(length),
        keep_alive=True,
        old=False,
        expects_continue=read_expectation(headers, old=False),
        plain=method != "HEAD",
    )


def check_trailers(fields: Fields) -> None:
    """Refuse trailers that are malformed; others are dropped (RFC 9113 §8.1)."""
    for name, value in fields:
        _check_field(name, value)


def answer_fields(status: int, start: bytes, head: bytes) -> list[HeaderTuple]:
    """Return the fields of an answer; `start` and `head` are the lines HTTP/1.1 would write."""
    fields = [HeaderTuple(b":status", b"%d" % status)]
    lines = [*start.split(b"\r\n")[1:], *head.split(b"\r\n")]
    for line in lines:
        name, _, value = line.partition(b": ")
        if name in SECRET:
            fields.append(NeverIndexedHeaderTuple(name, value))
        elif name and name not in OF_CONNECTIONS:
            fields.append(HeaderTuple(name, value))
    return fields


def _sort(fields: Iterable[tuple[bytes, bytes]]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return the pseudo-header fields and the others, by their names."""
    pseudo: dict[bytes, bytes] = {}
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        if name in PSEUDO:
            # RFC 9113 §8.3: before all others, and each only once.
            if headers or name in pseudo:
                raise Unacceptable(400, f"{name.decode()} came twice, or after another header")
            pseudo[name] = value
        else:
            _check_field(name, value)
            headers[name] = _joined(name, headers.get(name), value)
    return pseudo, headers


def _check_field(name: bytes, value: bytes) -> None:
    """Refuse a field that no message of HTTP/2 may have."""
    if not _NAME.fullmatch(name):
        raise Unacceptable(400, "the name of a header is not a token in lower case")
    if not _VALUE.fullmatch(value):
        raise Unacceptable(400, f"the header {name.decode()} has characters it may not have")
    if name in OF_CONNECTIONS or (name == b"te" and value.lower() != b"trailers"):
        raise Unacceptable(400, f"the header {name.decode()} has no place in HTTP/2")


def _joined(name: bytes, before: bytes | None, value: bytes) -> bytes:
    """Return one value of a field that came again (RFC 9110 §5.3; of cookies, RFC 9113 §8.2.3)."""
    if before is None:
        return value
    if name in ONCE:
        raise Unacceptable(400, f"the header {name.decode()} came more than once")
    between = b"; " if name == b"cookie" else b", "
    return before + between + value


def _required(pseudo: dict[bytes, bytes], name: bytes) -> bytes:
    """Return a pseudo-header field every request has (RFC 9113 §8.3.1)."""
    value = pseudo.get(name)
    if not value:
        raise Unacceptable(400, f"{name.decode()} is missing")
    return value


def _read_path(target: bytes) -> tuple[str, str]:
    """Return the path and the query."""
    if len(target) > LONGEST_REQUEST_LINE:
        raise Unacceptable(414, "the target is too long")
    if not target.startswith(b"/"):
        raise Unacceptable(400, ":path does not begin with a slash")
    if not TARGET.fullmatch(target):
        raise Unacceptable(400, BAD_TARGET)
    path, _, query = target.partition(b"?")
    return path.decode("ascii"), query.decode("ascii")


def _read_authority(authority: bytes | None, host: bytes | None) -> bytes:
    """Return the host a request is for; where two are named they must be one (RFC 9113 §8.3.1)."""
    if authority is not None and host is not None and authority.lower() != host.lower():
        raise Unacceptable(400, ":authority and the header Host differ")
    found = host if authority is None else authority
    if found is None or not HOST.fullmatch(found):
        raise Unacceptable(400, "neither :authority nor the header Host is a host")
    return found
