"""The head of a request, taken apart."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.transports.http.engine import head_parser
from ferrule.transports.http.engine.head_parser import (
    ALLOW,
    CHUNKED,
    LONGEST_RECENT,
    LONGEST_REQUEST_LINE,
    MOST_RECENT,
    RecentHeads,
    Unacceptable,
    check_beginning,
    parse_again,
    parse_head,
)

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
    with pytest.raises(Unacceptable, match="more than once") as caught:
        parse_head(head(f"{name}: a", f"{name}: a"), 100)
    assert caught.value.status == 400


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


def refusal(raw: bytes, max_headers: int = 100) -> Unacceptable:
    """Return what a head is refused with."""
    with pytest.raises(Unacceptable) as caught:
        parse_head(raw, max_headers)
    return caught.value


@pytest.mark.parametrize(
    ("first", "status", "words"),
    [
        ("GET  / HTTP/1.1", 400, "one space between"),
        ("GET / HTTP/1.1 ", 400, "one space between"),
        ("GET /", 400, "one space between"),
        ("GET / HTTP/2.0", 505, "only HTTP/1.1 and HTTP/1.0"),
        ("GET / HTTP/1.1x", 400, "does not end with a version"),
        ("GET / FTP/1.1", 400, "does not end with a version"),
        ("CONNECT a:1 HTTP/1.1", 400, "not a proxy"),
        ("GET /a#b HTTP/1.1", 400, "characters no target may have"),
        ("GET /\x7f HTTP/1.1", 400, "characters no target may have"),
        ("BREW / HTTP/1.1", 501, "unknown method"),
        ("BR(W / HTTP/1.1", 400, "not a token"),
        ("GET ftp://a/ HTTP/1.1", 400, "neither a path nor a URL"),
        ("OPTIONS * HTTP/1.1", 400, "neither a path nor a URL"),
        ("GET http://b/ HTTP/1.1", 421, "for another host"),
    ],
)
def test_a_request_line_two_readers_could_read_differently_is_refused(first: str, status: int, words: str) -> None:
    """RFC 9112 section 3."""
    found = refusal(head(first=first))
    assert found.status == status
    assert words in str(found)
    assert found.head == (ALLOW if status == 501 else b"")


def test_a_request_line_may_be_8192_bytes_long() -> None:
    assert LONGEST_REQUEST_LINE == 8192
    line = "GET /" + "a" * (8192 - len("GET / HTTP/1.1")) + " HTTP/1.1"
    assert len(parse_head(head(first=line), 100).path) == 8192 - len("GET  HTTP/1.1")
    found = refusal(head(first=line.replace("/a", "/aa")))
    assert found.status == 414
    check_beginning(line.encode()[:8192], 16384)
    check_beginning(line.encode() + b"\r\n", 16384)
    for part in (line.encode() + b"x", line.encode().replace(b"/a", b"/aa") + b"\r\n"):
        with pytest.raises(Unacceptable, match="request line is too long") as caught:
            check_beginning(part, 16384)
        assert caught.value.status == 414


def test_a_head_that_has_not_come_whole_may_be_as_long_as_the_limit() -> None:
    begun = b"GET / HTTP/1.1\r\nX: "
    check_beginning(begun + b"a" * (100 - len(begun)), 100)
    with pytest.raises(Unacceptable, match="longer than 100 bytes") as caught:
        check_beginning(begun + b"a" * (101 - len(begun)), 100)
    assert caught.value.status == 431


def test_a_lone_carriage_return_may_be_the_beginning_of_an_empty_line() -> None:
    check_beginning(b"\r", 100)
    with pytest.raises(Unacceptable, match="this is not HTTP") as caught:
        check_beginning(b"\rG", 100)
    assert caught.value.status == 400


def test_there_are_as_many_headers_as_the_limit_and_no_more() -> None:
    assert len(parse_head(head("A: 1", "B: 2"), 3).headers) == 3
    found = refusal(head("A: 1", "B: 2", "C: 3"), 3)
    assert (found.status, str(found)) == (431, "more than 3 headers")


def test_only_http_1_0_goes_without_a_host() -> None:
    """RFC 9112 section 3.2."""
    bare = b"GET /a HTTP/1.0\r\nX: a\r\n\r\n"
    found = parse_head(bare, 100)
    assert found.old
    assert not found.plain
    assert refusal(bare.replace(b"1.0", b"1.1")).status == 400


@pytest.mark.parametrize("host", ["", "a b", "a/b", "a@b", "[::1", "a:123456"])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    found = refusal(head(host=f"Host: {host}"))
    assert (found.status, str(found)) == (400, "the header Host is not a host")


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("http://a/x?y=1", "/x", "y=1"),
        ("HTTPS://A/x", "/x", ""),
        ("http://a", "/", ""),
        ("http://a?y", "/", "y"),
        ("/x?y?z", "/x", "y?z"),
    ],
)
def test_a_target_is_a_path_or_the_url_of_the_host(target: str, path: str, query: str) -> None:
    found = parse_head(head(first=f"GET {target} HTTP/1.1"), 100)
    assert (found.path, found.query) == (path, query)


@pytest.mark.parametrize(
    ("first", "lines"),
    [
        ("POST / HTTP/1.1", ["Transfer-Encoding: chunked", "Content-Length: 5"]),
        ("POST / HTTP/1.0", ["Transfer-Encoding: chunked"]),
        ("POST / HTTP/1.1", ["Transfer-Encoding: gzip"]),
        ("POST / HTTP/1.1", ["Content-Length: 12345678901234567890"]),
        ("POST / HTTP/1.1", ["Content-Length: 5 5"]),
    ],
)
def test_a_body_two_readers_could_end_differently_is_refused(first: str, lines: list[str]) -> None:
    """RFC 9112 section 6.3."""
    assert refusal(head(*lines, first=first)).status == 400


def test_a_length_has_19_digits_at_most() -> None:
    longest = "9" * 18 + "0"
    known = parse_head(head("Content-Length: 5"), 100)
    assert parse_head(head(f"Content-Length: {longest}"), 100).length == int(longest)
    again = parse_again(known, head(f"Content-Length: {longest}"), 0)
    assert again is not None
    assert again.length == int(longest)
    assert parse_again(known, head(f"Content-Length: {longest}0"), 0) is None


def test_a_wish_to_upgrade_is_read_over() -> None:
    """RFC 9110 section 7.8."""
    found = parse_head(head("Connection: upgrade", "Upgrade: h2c"), 100)
    assert found.headers[b"upgrade"] == b"h2c"
    assert found.keep_alive


def test_only_a_head_that_stays_and_has_a_body_is_plain() -> None:
    assert not parse_head(head(first="HEAD / HTTP/1.1"), 100).plain
    assert not parse_head(head("Connection: close"), 100).plain
    assert parse_head(head(), 100).plain


def test_a_length_written_in_another_way_is_not_remembered() -> None:
    for line in ("content-Length: 5", "Content-Length:5", "Content-Length:  5"):
        found = parse_head(head(line), 100)
        assert (found.length, found.stem, found.tail) == (5, b"", b"")
    found = parse_head(head("X-Content-Length: 5", "Content-Length: 5", "X: a"), 100)
    assert found.stem.endswith(b"\r\nContent-Length: ")
    assert found.tail == b"\r\nX: a\r\n\r\n"


def test_a_head_that_came_before_is_the_same_but_for_what_is_known_about_it() -> None:
    heads = RecentHeads(100)
    raw = head("Content-Length: 5", "Connection: close")
    first = heads.parse(raw)
    first.decision.take = lambda request, responder: None
    second = heads.parse(raw)
    assert (second.raw, second.method, second.path, second.query) == (raw, "POST", "/mcp", "a=b")
    assert (second.length, second.keep_alive, second.old, second.plain) == (5, False, False, False)
    assert (second.stem, second.tail, second.headers) == (first.stem, first.tail, first.headers)
    assert second.decision.take is None
    assert second.headers is not first.headers
    assert second.decision.shared is first.decision.shared
    assert len(heads) == 1
    assert first.decision.shared is not None
    first.decision.shared.take = print
    assert heads.parse(raw).decision.take is print


ID, OTHER_ID = "ooXoZ-_.0123", "pp-YZabcd.._"


@pytest.mark.parametrize("name", ["Mcp-Session-Id", "mcp-session-id"])
@pytest.mark.parametrize(
    "lines",
    [
        ("{name}: {id}",),
        ("{name}: {id}", "Content-Length: 25"),
        ("Content-Length: 25", "{name}: {id}", "X: y"),
    ],
)
def test_heads_of_two_sessions_are_one_and_each_is_read_as_if_it_were_the_first(
    lines: tuple[str, ...], name: str
) -> None:
    heads = RecentHeads(100)
    for session in (ID, OTHER_ID, ID):
        raw = head(*(line.format(name=name, id=session) for line in lines))
        found = heads.parse(raw)
        alone = parse_head(raw, 100)
        for member in alone.__struct_fields__:
            if member != "decision":
                assert getattr(found, member) == getattr(alone, member), member
        assert found.headers[b"mcp-session-id"] == session.encode()
    assert len(heads) == 1


@pytest.mark.parametrize(
    "lines",
    [
        ("Mcp-Session-Id: {id}", "Mcp-Session-Id: second"),
        ("MCP-SESSION-ID: first", "Mcp-Session-Id: {id}"),
    ],
)
def test_a_head_that_names_two_sessions_is_not_kept(lines: tuple[str, ...]) -> None:
    heads = RecentHeads(100)
    for session in (ID, OTHER_ID):
        raw = head(*(line.format(id=session) for line in lines))
        assert heads.parse(raw).headers == parse_head(raw, 100).headers
    assert len(heads) == 0


@pytest.mark.parametrize("session", ["", "a b", "a,b", "a\tb", "a:", "a" * 65, "a ", "é"])
def test_what_is_no_plain_id_of_a_session_is_no_reason_to_take_a_head_for_another(session: str) -> None:
    heads = RecentHeads(100)
    heads.parse(head(f"Mcp-Session-Id: {'x' * len(session)}"))
    raw = head(f"Mcp-Session-Id: {session}")
    for _ in range(2):
        assert heads.parse(raw).headers == parse_head(raw, 100).headers
    with pytest.raises(Unacceptable):
        heads.parse(head("Mcp-Session-Id: \0"))


def test_an_id_that_looks_like_what_is_left_out_is_kept_as_it_is() -> None:
    heads = RecentHeads(100)
    for session in (ID, "x" * len(ID), ID):
        raw = head(f"Mcp-Session-Id: {session}", "Content-Length: 2")
        assert heads.parse(raw).raw == raw
        assert heads.parse(raw).headers[b"mcp-session-id"] == session.encode()
        assert parse_again(heads.parse(raw), raw, 0) is not None


def test_no_id_of_a_session_is_remembered() -> None:
    heads = RecentHeads(100)
    heads.parse(head(f"Mcp-Session-Id: {ID}", "Content-Length: 2"))
    kept = list(heads._heads.items())
    assert len(kept) == 1
    assert ID not in repr(kept)


@pytest.mark.parametrize(
    "line",
    [
        "MCP-SESSION-ID: {id}",
        "Mcp-session-id: {id}",
        "mcp-session-id:{id}",
        "mcp-session-id:  {id}",
        "mcp-session-id: {id} ",
        "mcp-session-id: {id}" + "x" * 64,
        "X-Session-Kind: a\r\nmcp-session-id: {id}",
    ],
)
def test_no_id_of_a_session_is_remembered_however_it_is_written(line: str) -> None:
    heads = RecentHeads(100)
    raw = head(line.format(id=ID), "Content-Length: 2")
    assert heads.parse(raw).headers == parse_head(raw, 100).headers
    assert len(heads) == 0


def test_no_id_of_a_session_in_a_query_is_remembered() -> None:
    heads = RecentHeads(100)
    raw = head("Content-Length: 2", first=f"POST /messages?session_id={ID} HTTP/1.1")
    before = head_parser._request_line.cache_info()
    assert heads.parse(raw).query == f"session_id={ID}"
    assert len(heads) == 0
    assert head_parser._request_line.cache_info() == before


@pytest.mark.parametrize("line", ["Authorization: Bearer secret", "Expect: 100-continue"])
def test_a_head_of_a_session_that_is_not_kept_is_read_whole(line: str) -> None:
    heads = RecentHeads(100)
    raw = head(line, f"Mcp-Session-Id: {ID}", "Content-Length: 2")
    found = heads.parse(raw)
    alone = parse_head(raw, 100)
    assert (found.raw, found.headers, found.expects_continue) == (raw, alone.headers, alone.expects_continue)
    assert len(heads) == 0


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer secret",
        "cookie: secret=1",
        "DPoP: secret",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "X-Long: " + "a" * LONGEST_RECENT,
    ],
)
def test_secrets_long_heads_and_bodies_that_come_in_pieces_are_not_kept(line: str) -> None:
    heads = RecentHeads(100)
    raw = head(line)
    assert heads.parse(raw).raw == raw
    assert len(heads) == 0


def test_what_is_refused_is_refused_each_time() -> None:
    heads = RecentHeads(1)
    for _ in range(2):
        with pytest.raises(Unacceptable, match="more than 1 headers"):
            heads.parse(head("A: 1"))
    assert len(heads) == 0


def test_a_bounded_number_is_kept() -> None:
    heads = RecentHeads(100)
    for number in range(3 * MOST_RECENT):
        heads.parse(head(f"X: {number}"))
        assert len(heads) <= MOST_RECENT
