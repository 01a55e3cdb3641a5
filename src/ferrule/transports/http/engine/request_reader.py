"""What has come on a connection, taken apart into requests.

Rule 1: no clock, no socket. Whoever owns it says when bytes come, and how long the rest may take.
Rule 2: a request whose head is byte for byte the last one's is not parsed again: clients repeat themselves.
"""

from __future__ import annotations

from typing import cast

from ferrule.budgets.allocator import allocator
from ferrule.budgets.bounds import FREE_UNFINISHED
from ferrule.transports.http.engine.body import Body, ChunkedBody, SizedBody
from ferrule.transports.http.engine.head_parser import (
    CHUNKED,
    Head,
    Unacceptable,
    check_beginning,
    parse_again,
)
from ferrule.transports.http.engine.state import EngineState

MAX_BLANK_LINES = 4
MAX_KEPT_HEAD = 2048
CHECK_EVERY = 1024
"""A head that has not come whole is looked at whenever bytes come, up to this size; from there on once for so many."""

NO_HEAD = Head(
    raw=b"",
    method="",
    path="",
    query="",
    headers={},
    length=0,
    keep_alive=False,
    old=False,
    expects_continue=False,
    plain=False,
)
"""Stands where no head is kept."""


class RequestReader:
    """The bytes of one connection that are not answered yet, and the last head that was read of them."""

    __slots__ = ("_at", "_body", "_buffer", "_checked", "_head", "_kept", "_kept_size", "engine_state")

    def __init__(self, engine_state: EngineState) -> None:
        self.engine_state = engine_state
        self._buffer = b""
        self._at = 0
        self._checked = 0
        """How many bytes of a head that has not come whole were looked at."""
        self._head = NO_HEAD
        """Of the request that is being read, where its head was read and its body was not."""
        self._kept = NO_HEAD
        self._kept_size = 0
        self._body: Body | None = None

    def _read_head(self) -> Head | None:
        """Take the next head, if it has come whole."""
        buffer = self._buffer
        at = self._at
        kept = self._kept
        head: Head | None = self._head
        if head is NO_HEAD:
            if self._kept_size and buffer.startswith(kept.raw, at):
                head = kept
            else:
                head = parse_again(kept, buffer, at)
        if head is not None:
            self._at = at + len(head.raw)
            self._checked = 0
            return head
        # RFC 9112 §2.2: empty lines before a request are ignored; so many of them are no accident.
        limit = at + 2 * MAX_BLANK_LINES
        while buffer.startswith(b"\r\n", at):
            at += 2
            if at > limit:
                raise Unacceptable(400, "empty lines instead of a request")
        self._at = at
        settings = self.engine_state.settings
        seen = max(0, self._checked - 3)
        end = buffer.find(b"\r\n\r\n", at + seen, at + settings.max_head_size) + 4
        if end < 4:
            self._check_beginning(settings.max_head_size)
            return None
        self._at = end
        self._checked = 0
        return self.engine_state.heads.parse(buffer[at:end])

    def _check_beginning(self, max_head_size: int) -> None:
        """Refuse a head that has not come whole if it can never become acceptable.

        A long one is looked at again for each CHECK_EVERY bytes only: it may come in reads of one byte.
        """
        size = len(self._buffer) - self._at
        if 0 < size <= CHECK_EVERY or size - self._checked >= CHECK_EVERY or size > max_head_size:
            self._checked = size
            check_beginning(self._buffer[self._at : self._at + max_head_size + 1], max_head_size)

    def _whole_body(self, head: Head) -> bytes | None:
        """Return the body if it has come whole and in one piece."""
        length = head.length
        at = self._at
        if length > self.engine_state.max_body_size:
            # RFC 9110 §15.5.14.
            raise Unacceptable(413, f"the body is longer than {self.engine_state.max_body_size} bytes")
        if CHUNKED < length <= len(self._buffer) - at:
            self._at = at + length
            return self._buffer[at : self._at]
        return None

    def _expect_body(self, head: Head) -> None:
        """Make ready for a body that comes piece by piece."""
        self._head = head
        if head.length == CHUNKED:
            self._body = ChunkedBody(self.engine_state.max_body_size)
        else:
            if head.length > FREE_UNFINISHED:
                allocator.large_message()
            self._body = SizedBody(head.length)

    def _read_body(self) -> bytes | None:
        """Take what has come of that body. Return it when it is whole."""
        body = cast("Body", self._body)
        self._at = body.feed(self._buffer, self._at)
        if body.done:
            return bytes(body.content)
        return None

    def _read_whole(self, data: bytes) -> Head:
        """Return the head of data that is exactly one whole request; NO_HEAD for anything else.

        What is not whole or not acceptable is read piece by piece afterwards, from the head on if that was parsed here.
        """
        engine_state = self.engine_state
        kept = self._kept
        head = parse_again(kept, data, 0) if kept.stem else None
        if head is None:
            end = data.find(b"\r\n\r\n", 0, engine_state.settings.max_head_size) + 4
            if end < 4:
                return NO_HEAD
            try:
                head = engine_state.heads.parse(data[:end])
            except Unacceptable:
                return NO_HEAD
        self._keep(head)
        length = head.length
        if len(data) != len(head.raw) + length or length > engine_state.max_body_size:
            self._head = head
            return NO_HEAD
        return head

    def _keep(self, head: Head) -> None:
        """Remember a head that may come again."""
        if head is self._kept or head.length == CHUNKED or head.expects_continue:
            return
        size = len(head.raw)
        if size <= MAX_KEPT_HEAD:
            self._kept = head
            self._kept_size = size + head.length
        else:
            self._forget_kept()

    def _forget_kept(self) -> None:
        """Let the next request go the long way, where its head is parsed."""
        self._kept = NO_HEAD
        self._kept_size = 0

    def _discard(self) -> None:
        """Throw away what has come."""
        self._buffer = b""
        self._at = 0
        self._body = None
        self._checked = 0
