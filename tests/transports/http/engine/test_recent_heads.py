"""Heads that came of late, on any connection: parsed once, and nothing else of them is shared."""

from __future__ import annotations

import pytest

from ferrule.transports.http.engine.head_parser import Unacceptable
from ferrule.transports.http.engine.recent_heads import LONGEST_HEAD, MOST_HEADS, RecentHeads


def head(*lines: str) -> bytes:
    return "\r\n".join(("POST /mcp HTTP/1.1", "Host: a", *lines)).encode() + b"\r\n\r\n"


def test_a_head_that_came_before_is_the_same_but_for_what_is_known_about_it() -> None:
    heads = RecentHeads(100)
    raw = head("Content-Length: 5", "Connection: close")
    first = heads.parse(raw)
    first.known.decided = lambda request, responder: None
    second = heads.parse(raw)
    found = heads.find(raw)
    assert found is not None
    for other in (second, found):
        assert (other.raw, other.method, other.path, other.query) == (raw, "POST", "/mcp", "")
        assert (other.length, other.keep_alive, other.old, other.plain) == (5, False, False, False)
        assert (other.stem, other.tail, other.headers) == (first.stem, first.tail, first.headers)
        assert other.known.decided is None
        assert other.headers is not first.headers
    assert len(heads) == 1


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer secret",
        "cookie: secret=1",
        "DPoP: secret",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "X-Long: " + "a" * LONGEST_HEAD,
    ],
)
def test_secrets_long_heads_and_bodies_that_come_in_pieces_are_not_kept(line: str) -> None:
    heads = RecentHeads(100)
    raw = head(line)
    assert heads.parse(raw).raw == raw
    assert heads.find(raw) is None
    assert len(heads) == 0


def test_what_is_refused_is_refused_each_time() -> None:
    heads = RecentHeads(1)
    for _ in range(2):
        with pytest.raises(Unacceptable, match="more than 1 headers"):
            heads.parse(head("A: 1"))
    assert len(heads) == 0


def test_a_bounded_number_is_kept() -> None:
    heads = RecentHeads(100)
    for number in range(3 * MOST_HEADS):
        heads.parse(head(f"Mcp-Session-Id: {number}"))
        assert len(heads) <= MOST_HEADS
