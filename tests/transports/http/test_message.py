"""One HTTP request, and lines of headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import SetupError
from ferrule.schema.mirrored import NAME_CHARACTERS
from ferrule.transports.http.message import Headers, HttpRequest, header_lines


def test_headers_are_written_as_they_go_over_the_wire() -> None:
    assert header_lines({"Content-Type": "text/plain", "X-A": ""}) == b"content-type: text/plain\r\nx-a: \r\n"
    assert header_lines({}) == b""


@given(st.text(max_size=20), st.text(max_size=40))
def test_htp_15_no_header_we_emit_can_be_split(name: str, value: str) -> None:
    """What could end a line early is refused when it is written, name and value alike."""
    try:
        line = header_lines({name: value})
    except SetupError:
        assert not (name and NAME_CHARACTERS.issuperset(name)) or any(not " " <= c <= "~" and c != "\t" for c in value)
        return
    assert line == f"{name.lower()}: {value}\r\n".encode("ascii")
    assert line.count(b"\n") == line.count(b"\r") == 1
    assert line.count(b"\0") == 0


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "é", "a\0", "(a)"])
def test_a_name_no_header_may_have_is_refused(name: str) -> None:
    with pytest.raises(SetupError, match="header name"):
        header_lines({name: "x"})


def test_the_headers_of_a_request_are_found_by_any_spelling() -> None:
    """HTTP-8."""
    headers = Headers({b"mcp-session-id": b"abc", b"x-latin": "é".encode("latin-1")})
    assert [headers[name] for name in ("Mcp-Session-Id", "MCP-SESSION-ID", "mcp-session-id")] == ["abc"] * 3
    assert headers["X-Latin"] == "é"
    assert (len(headers), list(headers)) == (2, ["mcp-session-id", "x-latin"])
    assert "absent" not in headers
    assert headers.get("日本") is None


def test_a_request_gives_its_headers_as_text_and_absent_ones_as_nothing() -> None:
    request = HttpRequest("GET", "/mcp", "", {b"accept": b"*/*"})
    assert (request.header(b"accept"), request.header(b"origin")) == ("*/*", "")
    assert request != HttpRequest("GET", "/mcp", "", {b"accept": b"*/*"})
