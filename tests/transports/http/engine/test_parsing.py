"""The head of a request, taken apart."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.transports.http.engine.parsing import CHUNKED, Unacceptable, check_beginning, parse_again, parse_head

TOKEN = st.text("abcXYZ019-_!#", min_size=1, max_size=12)
VALUE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=30).map(str.strip)
FRAMING = {"host", "content-length", "transfer-encoding", "connection", "expect", "authorization", "upgrade"}


def head(*lines: str, first: str = "POST /mcp?a=b HTTP/1.1", host: str = "Host: a") -> bytes:
    return "".join(line + "\r\n" for line in (first, host, *lines, "")).encode("latin-1")


def test_a_head_becomes_a_method_a_path_a_query_and_headers() -> None:
    found = parse_head(head("X-One:  1 \t", "content-LENGTH: 12", "Empty:"), 100)
    assert (found.method, found.path, found.query, found.length) == ("POST", "/mcp", "a=b", 12)
    assert found.headers == {b"host": b"a", b"x-one": b"1", b"content-length": b"12", b"empty": b""}
    assert found.keep_alive
    assert not found.old
    assert found.plain


def test_what_comes_several_times_is_joined() -> None:
    assert parse_head(head("Accept: a", "accept: b", "ACCEPT: c"), 100).headers[b"accept"] == b"a, b, c"


@pytest.mark.parametrize("name", ["Host", "Authorization"])
def test_what_must_come_once_is_refused_twice(name: str) -> None:
    with pytest.raises(Unacceptable, match="more than once"):
        parse_head(head(f"{name}: a", f"{name}: a"), 100)


@pytest.mark.parametrize(
    ("first", "line", "keep_alive"),
    [
        ("GET / HTTP/1.1", "X: a", True),
        ("GET / HTTP/1.1", "Connection: close", False),
        ("GET / HTTP/1.1", "Connection: x, CLOSE", False),
        ("GET / HTTP/1.1", "Connection: closed", True),
        ("GET / HTTP/1.0", "X: a", False),
        ("GET / HTTP/1.0", "Connection: Keep-Alive", True),
        ("GET / HTTP/1.0", "Connection: close", False),
    ],
)
def test_a_connection_is_kept_as_the_peer_says(first: str, line: str, keep_alive: bool) -> None:
    assert parse_head(head(line, first=first), 100).keep_alive is keep_alive


def test_chunks_have_no_length() -> None:
    assert parse_head(head("Transfer-Encoding: Chunked"), 100).length == CHUNKED


def test_only_100_continue_can_be_expected() -> None:
    assert parse_head(head("Expect: 100-Continue"), 100).expects_continue
    with pytest.raises(Unacceptable) as caught:
        parse_head(head("Expect: tea"), 100)
    assert caught.value.status == 417
    assert not parse_head(head("Expect: tea", first="GET / HTTP/1.0"), 100).expects_continue


@pytest.mark.parametrize("host", ["a", "a.b:80", "[::1]", "[::1]:8000", "127.0.0.1:", "xn--a_b"])
def test_hosts_of_every_kind_are_read(host: str) -> None:
    assert parse_head(head(host=f"Host: {host}"), 100).headers[b"host"] == host.encode()


@given(st.dictionaries(TOKEN.filter(lambda name: name.lower() not in FRAMING), VALUE, max_size=20))
def test_every_header_is_found_again(headers: dict[str, str]) -> None:
    found = parse_head(head(*(f"{name}: {value}" for name, value in headers.items())), 100).headers
    expected: dict[bytes, bytes] = {b"host": b"a"}
    for name, value in headers.items():
        key = name.lower().encode()
        expected[key] = expected[key] + b", " + value.encode() if key in expected else value.encode()
    assert found == expected


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    raw = b"GET / HTTP/1.1\r\nHost: a\r\n" + data.replace(b"\r\n\r\n", b"") + b"\r\n\r\n"
    with suppress(Unacceptable):
        found = parse_head(raw, 100)
        assert found.raw == raw
        # Nothing that ends a line, or could for another reader, is left in what was read.
        assert not any(set(part) & set(b"\r\n\0") for pair in found.headers.items() for part in pair)


@given(st.integers(1, 10**12), st.integers(0, 10**12), st.sampled_from(["Content-Length: ", "content-length: "]))
def test_a_head_read_again_is_the_head_read_anew(first: int, second: int, name: str) -> None:
    known = parse_head(head("A: 1", f"{name}{first}", "B: 2"), 100)
    raw = head("A: 1", f"{name}{second}", "B: 2")
    again, anew = parse_again(known, b"12" + raw + b"body", 2), parse_head(raw, 100)
    assert again is not None
    for field in (
        "raw",
        "method",
        "path",
        "query",
        "headers",
        "length",
        "keep_alive",
        "old",
        "plain",
        "expects_continue",
    ):
        assert getattr(again, field) == getattr(anew, field), field


@pytest.mark.parametrize(
    "line",
    ["+5", "5 ", " 5", "5\n", "-5", "0x5", "5_0", "", "5, 5", "5\r\nX: a", "12345678901234567890", "\xb2"],
)
def test_a_head_with_an_odd_length_is_never_read_again(line: str) -> None:
    known = parse_head(head("Content-Length: 10"), 100)
    assert parse_again(known, head(f"Content-Length: {line}"), 0) is None


def test_a_head_with_anything_more_is_never_read_again() -> None:
    known = parse_head(head("Content-Length: 10"), 100)
    assert parse_again(known, head("Content-Length: 10", "Transfer-Encoding: chunked"), 0) is None
    assert parse_again(known, head("X: a", "Content-Length: 10"), 0) is None
    assert parse_again(known, head("Content-Length: 10")[:-2], 0) is None


def test_a_head_without_a_body_or_with_an_expectation_is_not_remembered_by_its_length() -> None:
    for lines in (["X: a"], ["Content-Length: 0"], ["Content-Length: 5", "Expect: 100-continue"]):
        assert parse_head(head(*lines), 100).stem == b""


@pytest.mark.parametrize(
    ("part", "status"),
    [
        (b"\x16\x03\x01", 400),
        (b"GET /\r\n", 400),
        (b"GET / HTTP/1.1\n", 400),
        (b"GET / HTTP/1.1\rX", 400),
        (b"GET / HTTP/2.0\r\n", 505),
        (b"GET /" + b"a" * 9000, 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 17000, 431),
    ],
)
def test_a_beginning_that_cannot_end_well_is_refused_early(part: bytes, status: int) -> None:
    with pytest.raises(Unacceptable) as caught:
        check_beginning(part, 16384)
    assert caught.value.status == status


def test_every_beginning_of_a_good_head_is_waited_for() -> None:
    raw = head("X: a", "Content-Length: 5")
    for size in range(1, len(raw)):
        check_beginning(raw[:size], 16384)
