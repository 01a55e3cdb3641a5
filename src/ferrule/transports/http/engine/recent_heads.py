"""The heads that came of late on any connection: short-lived connections of one program all send the same ones.

Rule: only bytes that were judged acceptable are here, and they are judged the same wherever they come from. What
depends on the connection (`Head.known`) is never shared, and no head with credentials outlives its connection.
"""

from __future__ import annotations

from ferrule.transports.http.engine.head_parser import CHUNKED, Head, parse_head

MOST_HEADS = 128
LONGEST_HEAD = 1024
"""Bytes of a head that is kept."""
CREDENTIALS = frozenset({b"authorization", b"proxy-authorization", b"cookie", b"dpop"})


class RecentHeads:
    """Parses heads, and remembers a bounded number of them."""

    __slots__ = ("_heads", "_max_headers")

    def __init__(self, max_headers: int) -> None:
        self._max_headers = max_headers
        self._heads: dict[bytes, Head] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def find(self, raw: bytes) -> Head | None:
        """Return a head of its own for one connection; None for one that did not come of late."""
        head = self._heads.get(raw)
        if head is None:
            return None
        return _own(head)

    def parse(self, raw: bytes) -> Head:
        """Return a head of its own for one connection; raises Unacceptable."""
        found = self.find(raw)
        if found is not None:
            return found
        head = parse_head(raw, self._max_headers)
        if len(raw) > LONGEST_HEAD or not CREDENTIALS.isdisjoint(head.headers):
            return head
        if head.length == CHUNKED or head.expects_continue:
            return head
        if len(self._heads) >= MOST_HEADS:
            self._heads.clear()
        self._heads[raw] = head
        return _own(head)


def _own(head: Head) -> Head:
    """Return the same head with nothing known about it."""
    return Head(
        head.raw,
        head.method,
        head.path,
        head.query,
        head.headers.copy(),
        head.length,
        head.keep_alive,
        head.old,
        False,
        head.plain,
        head.stem,
        head.tail,
    )
