"""The fields of a request are read in one way, or refused: RFC 9113 §8."""

from __future__ import annotations

import pytest
from hpack import HPACKDecodingError, NeverIndexedHeaderTuple

from ferrule.transports.http.engine.head_parser import CHUNKED, LONGEST_REQUEST_LINE, Head, Unacceptable
from ferrule.transports.http.engine.http2.fields import FieldDecoder, answer_fields, check_trailers, read_head, size_of
from ferrule.transports.http.engine.state import Starts

Pair = tuple[bytes, bytes]
HONEST: list[Pair] = [
    (b":method", b"POST"),
    (b":scheme", b"https"),
    (b":authority", b"mcp.example.com"),
    (b":path", b"/mcp?a=b"),
]


def read(*fields: Pair, max_size: int = 16384, max_fields: int = 100) -> Head:
    return read_head(fields, max_size, max_fields)


def with_fields(*more: Pair) -> Head:
    return read(*HONEST, *more)


def without(name: bytes, *instead: Pair) -> list[Pair]:
    """Return the fields of an honest request without one, and others at its place."""
    found: list[Pair] = []
    for field in HONEST:
        if field[0] == name:
            found += instead
        else:
            found.append(field)
    return found


def test_an_honest_request() -> None:
    head = with_fields((b"content-length", b"5"), (b"x", b""), (b"te", b"trailers"))
    assert (head.method, head.path, head.query, head.length) == ("POST", "/mcp", "a=b", 5)
    assert head.headers == {b"host": b"mcp.example.com", b"content-length": b"5", b"x": b"", b"te": b"trailers"}
    assert with_fields().length == CHUNKED


def test_cookies_are_joined_as_one_field_and_others_as_a_list() -> None:
    head = with_fields((b"cookie", b"a=1"), (b"x", b"1"), (b"cookie", b"b=2"), (b"x", b"2"))
    assert head.headers[b"cookie"] == b"a=1; b=2"
    assert head.headers[b"x"] == b"1, 2"


def test_host_may_stand_for_the_authority_and_beside_it_where_they_are_one() -> None:
    host = (b"host", b"MCP.example.com")
    assert read(*without(b":authority"), host).headers[b"host"] == b"MCP.example.com"
    assert with_fields(host).headers[b"host"] == b"mcp.example.com"


MALFORMED: dict[str, list[Pair]] = {
    "no method": without(b":method"),
    "no scheme": without(b":scheme"),
    "no path": without(b":path"),
    "empty path": without(b":path", (b":path", b"")),
    "no authority and no host": without(b":authority"),
    "another scheme": without(b":scheme", (b":scheme", b"ftp")),
    "path without a slash": without(b":path", (b":path", b"mcp")),
    "asterisk": without(b":path", (b":path", b"*")),
    "absolute path": without(b":path", (b":path", b"http://a/b")),
    "space in the path": without(b":path", (b":path", b"/a b")),
    "line in the path": without(b":path", (b":path", b"/a HTTP/1.1\r\nHost: b")),
    "fragment": without(b":path", (b":path", b"/a#b")),
    "8 bit path": without(b":path", (b":path", b"/\xff")),
    "method with a line": without(b":method", (b":method", b"GET / HTTP/1.1\r\n")),
    "method with a space": without(b":method", (b":method", b"GET /")),
    "connect": [(b":method", b"CONNECT"), (b":authority", b"a:1")],
    "extended connect": [*without(b":method", (b":method", b"CONNECT")), (b":protocol", b"websocket")],
    "unknown pseudo field": [*HONEST, (b":status", b"200")],
    "two methods": [*HONEST, (b":method", b"GET")],
    "pseudo field behind a header": [*without(b":path"), (b"x", b"1"), (b":path", b"/")],
    "authority with a user": without(b":authority", (b":authority", b"u@a")),
    "authority with a path": without(b":authority", (b":authority", b"a/b")),
    "authority and another host": [*HONEST, (b"host", b"other")],
    "two hosts": [*without(b":authority"), (b"host", b"a"), (b"host", b"a")],
    "upper case": [*HONEST, (b"Accept", b"a")],
    "empty name": [*HONEST, (b"", b"a")],
    "space in a name": [*HONEST, (b"a b", b"a")],
    "colon in a name": [*HONEST, (b"a:b", b"a")],
    "line in a name": [*HONEST, (b"a\r\nb", b"a")],
    "line in a value": [*HONEST, (b"a", b"b\r\nc: d")],
    "line feed in a value": [*HONEST, (b"a", b"b\nc")],
    "null in a value": [*HONEST, (b"a", b"b\0c")],
    "space before a value": [*HONEST, (b"a", b" b")],
    "tab behind a value": [*HONEST, (b"a", b"b\t")],
    "connection": [*HONEST, (b"connection", b"close")],
    "keep-alive": [*HONEST, (b"keep-alive", b"1")],
    "proxy-connection": [*HONEST, (b"proxy-connection", b"keep-alive")],
    "transfer-encoding": [*HONEST, (b"transfer-encoding", b"chunked")],
    "upgrade": [*HONEST, (b"upgrade", b"websocket")],
    "te": [*HONEST, (b"te", b"gzip")],
    "two lengths": [*HONEST, (b"content-length", b"1"), (b"content-length", b"1")],
    "length in words": [*HONEST, (b"content-length", b"one")],
    "length with a sign": [*HONEST, (b"content-length", b"+1")],
    "list of lengths": [*HONEST, (b"content-length", b"1, 1")],
    "two authorizations": [*HONEST, (b"authorization", b"a"), (b"authorization", b"b")],
}


@pytest.mark.parametrize("shape", MALFORMED)
def test_what_could_be_read_in_two_ways_is_refused(shape: str) -> None:
    with pytest.raises(Unacceptable) as caught:
        read(*MALFORMED[shape])
    assert caught.value.status == 400


def test_refusals_with_a_status_of_their_own() -> None:
    for fields, status in (
        (without(b":method", (b":method", b"BREW")), 501),
        (without(b":path", (b":path", b"/" + b"a" * LONGEST_REQUEST_LINE)), 414),
        ([*HONEST, (b"expect", b"the-unexpected")], 417),
        ([*HONEST, *[(b"a", b"b")] * 101], 431),
        ([*HONEST, (b"a", b"b" * 17000)], 431),
    ):
        with pytest.raises(Unacceptable) as caught:
            read(*fields)
        assert caught.value.status == status


def test_what_is_missing_is_named() -> None:
    for fields, reason in (
        (MALFORMED["no path"], ":path is missing"),
        (MALFORMED["empty path"], ":path is missing"),
        (MALFORMED["connect"], "this is not a proxy"),
        (without(b":path", (b":path", b"/a b")), "target"),
    ):
        with pytest.raises(Unacceptable, match=reason):
            read(*fields)


def test_fields_and_targets_may_be_as_many_and_as_long_as_the_limit() -> None:
    assert with_fields(*[(b"a", b"b")] * 100).method == "POST"
    path = b"/" + b"a" * (LONGEST_REQUEST_LINE - 1)
    assert read(*without(b":path", (b":path", path))).path == path.decode()


def test_a_peer_may_wait_for_100() -> None:
    assert not with_fields().expects_continue
    assert with_fields((b"expect", b"100-continue")).expects_continue


def test_the_size_of_fields_is_that_of_the_setting() -> None:
    assert size_of([(b"abc", b"de"), (b"", b"")]) == 5 + 64
    size = size_of(HONEST)
    assert read(*HONEST, max_size=size).path == "/mcp"
    with pytest.raises(Unacceptable):
        read(*HONEST, max_size=size - 1)


def test_the_table_of_the_compressor_is_resized_twice_at_most() -> None:
    request = b"\x82"
    for twice in (b"\x20\x3f\xe1\x1f", b"\x20", b""):
        assert list(FieldDecoder().decode(twice + request, raw=True)) == [(b":method", b"GET")]
    for often in (b"\x20\x20\x3f\xe1\x1f", b"\x3f\xe1\x1f" * 3, b"\x20" * 9):
        with pytest.raises(HPACKDecodingError):
            FieldDecoder().decode(often + request, raw=True)


def test_trailers_are_fields_without_pseudo_fields() -> None:
    check_trailers([(b"x-checksum", b"1")])
    for name in (b":path", b"Upper", b"connection"):
        with pytest.raises(Unacceptable):
            check_trailers([(name, b"a")])


def test_an_answer_has_the_lines_of_http_1_as_fields() -> None:
    start = Starts("ferrule")[404]
    head = b"content-type: text/plain\r\nmcp-session-id: secret\r\nconnection: close\r\nx: a: b\r\n"
    fields = answer_fields(404, start, head)
    names = [name for name, _ in fields]
    assert names == [b":status", b"date", b"server", b"content-type", b"mcp-session-id", b"x"]
    assert dict(fields)[b":status"] == b"404"
    assert dict(fields)[b"x"] == b"a: b"
    assert [name for name, _ in fields if isinstance(fields[names.index(name)], NeverIndexedHeaderTuple)] == [
        b"mcp-session-id"
    ]
