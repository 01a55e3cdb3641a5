"""What a server sent back: JSON as it came, with nothing believed of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from ferrule.wire.sse import Event

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

LONGEST_SEEN = 300
"""How many characters are shown of what a server said."""

Json = dict[str, Any]
Wanted = Callable[[Json], bool]
"""Whether a message is the one that is waited for."""


class Answer(Struct):
    """What came back for one message."""

    message: Json = {}
    """The response; empty where none came."""
    others: list[Json] = field(default_factory=list)
    """What else came while it was waited for."""
    batch: list[Any] = field(default_factory=list)
    """The responses, where they came as an array."""
    status: int = 0
    """The HTTP status; 0 for other transports."""
    headers: Mapping[str, str] = {}
    """The HTTP headers, with names in lower case."""
    body: bytes = b""
    events: list[Event] = field(default_factory=list)
    """The events of a stream, where the answer is one."""
    received: int = 0
    """How many bytes came for it, other messages included."""
    ended: bool = True
    """Whether a stream ended after the response."""

    @property
    def result(self) -> Json | None:
        """The result; None where there is none, or it is no object."""
        found = self.message.get("result")
        if isinstance(found, dict):
            return found
        return None

    @property
    def error(self) -> Json | None:
        """The error; None where there is none."""
        found = self.message.get("error")
        if isinstance(found, dict):
            return found
        return None

    @property
    def code(self) -> object:
        """The code of the error; None where there is none."""
        if self.error is None:
            return None
        return self.error.get("code")

    @property
    def kind(self) -> str:
        """The media type of an HTTP answer, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def told(self) -> str:
        """What came, in a few words."""
        words = f"HTTP {self.status} " if self.status else ""
        if self.message:
            return words + shown(self.message)
        if self.batch:
            return words + shown(self.batch)
        if self.body:
            return words + excerpt(self.body)
        return f"{words}no message".strip()


def read_json(data: bytes) -> object:
    """Read JSON that may be none; raise ValueError then."""
    try:
        return msgspec.json.decode(data)
    except UNREADABLE as reason:
        raise ValueError(str(reason)) from None


def shown(value: object) -> str:
    """Return a value as JSON, cut to what a line holds."""
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__
    return excerpt(text)


def excerpt(data: bytes) -> str:
    """Return the beginning of some bytes as text."""
    text = data[: 4 * LONGEST_SEEN].decode("utf-8", "backslashreplace").strip()
    if len(text) > LONGEST_SEEN:
        return f"{text[:LONGEST_SEEN]}…"
    return text


def is_response(message: Json) -> bool:
    """Whether a message is a response, and no request or notification."""
    return "method" not in message and ("result" in message or "error" in message)


def answers(identity: object) -> Wanted:
    """Return what tells the response to a request from the rest; an id of the wrong type is accepted, to be judged."""

    def wanted(message: Json) -> bool:
        return is_response(message) and str(message.get("id")) == str(identity)

    return wanted


def is_refusal(message: Json) -> bool:
    """Whether a message is an error for a request whose id could not be read."""
    return "error" in message and message.get("id") is None
