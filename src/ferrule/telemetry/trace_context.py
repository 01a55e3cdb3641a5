"""TraceContext: which trace a request belongs to, in the words of W3C Trace Context and W3C Baggage. Pure.

MCP carries them in `_meta` as `traceparent`, `tracestate` and `baggage`, without a prefix (SEP-414); HTTP in headers
of the same names.

Rule: what is malformed is ignored and never fails a request (W3C Trace Context §4.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
BAGGAGE = "baggage"

VERSION = "00"
FORBIDDEN_VERSION = "ff"
LENGTH = 55
"""Characters of a `traceparent` of version 00; later versions may append more."""
MAX_TRACEPARENT = 512
MAX_TRACESTATE = 512
MAX_STATES = 32
"""Members of a `tracestate` (§3.3.1.1); one with more is ignored."""
MAX_BAGGAGE = 8_192
MAX_ITEMS = 64
"""Bytes and members of a `baggage` that have to be carried (W3C Baggage §3.3.2); one with more is ignored."""
SAMPLED = 1

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
_ITEM = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*=[ \t]*[!#-+\--:<-\[\]-~]*")
_PROPERTY = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*=[ \t]*[!#-+\--:<-\[\]-~]*)?")


class TraceContext(Struct, frozen=True, gc=False):
    """A place in a trace, and what travels with it; each text is valid or empty."""

    traceparent: str = ""
    tracestate: str = ""
    baggage: str = ""

    @property
    def trace_id(self) -> str:
        """The id of the trace in 32 hexadecimal digits; empty without one."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """The id of the span that the next ones are children of, in 16 hexadecimal digits; empty without one."""
        return self.traceparent[36:52]

    @property
    def sampled(self) -> bool:
        """Whether whoever sent it records this trace."""
        return bool(self.traceparent) and bool(int(self.traceparent[53:55], 16) & SAMPLED)

    def decided(self, *, sampled: bool) -> TraceContext:
        """Return the same place in the trace, recorded or not from here on."""
        if not self.traceparent:
            return self
        return TraceContext(f"{self.traceparent[:53]}{int(sampled):02}", self.tracestate, self.baggage)

    @property
    def members(self) -> dict[str, str]:
        """What `_meta` holds of it."""
        found = {TRACEPARENT: self.traceparent, TRACESTATE: self.tracestate, BAGGAGE: self.baggage}
        return {name: text for name, text in found.items() if text}


NO_TRACE = TraceContext()


class TraceKeys(Struct, gc=False):
    """The members of a `_meta` that speak of traces, of whatever type they are."""

    traceparent: Any = None
    tracestate: Any = None
    baggage: Any = None


_read_keys = msgspec.json.Decoder(TraceKeys).decode


def trace_in_meta(meta: bytes) -> TraceContext:
    """Return what a `_meta` says of its trace."""
    if b'"traceparent"' not in meta and b'"baggage"' not in meta:
        return NO_TRACE
    try:
        keys = _read_keys(meta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NO_TRACE
    return trace_of(keys.traceparent, keys.tracestate, keys.baggage)


def trace_in_headers(headers: Mapping[str, str]) -> TraceContext:
    """Return what the headers of an HTTP request say of its trace."""
    if TRACEPARENT not in headers:
        return NO_TRACE
    return trace_of(headers[TRACEPARENT], headers.get(TRACESTATE), headers.get(BAGGAGE))


def trace_of(traceparent: object, tracestate: object = None, baggage: object = None) -> TraceContext:
    """Return a trace context of what was given for its texts; without a valid `traceparent` there is no state."""
    parent = valid_traceparent(traceparent)
    state = ""
    if parent:
        state = valid_tracestate(tracestate)
    found = TraceContext(parent, state, valid_baggage(baggage))
    if found == NO_TRACE:
        return NO_TRACE
    return found


def valid_traceparent(given: object) -> str:
    """Return a `traceparent` in the form of version 00, or nothing (W3C Trace Context §3.2)."""
    if not isinstance(given, str) or len(given) > MAX_TRACEPARENT:
        return ""
    found = _TRACEPARENT.fullmatch(given.strip(" \t"))
    if found is None:
        return ""
    version, trace, span, flags, more = found.groups()
    if version == FORBIDDEN_VERSION or not trace.strip("0") or not span.strip("0"):
        return ""
    if version == VERSION and more:
        return ""
    if version != VERSION:
        flags = f"{int(flags, 16) & SAMPLED:02x}"  # the others may mean something else there
    return f"{VERSION}-{trace}-{span}-{flags}"


def valid_tracestate(given: object) -> str:
    """Return a `tracestate`, or nothing where any of its members is malformed (W3C Trace Context §3.3)."""
    if not isinstance(given, str) or len(given) > MAX_TRACESTATE:
        return ""
    members = _members(given)
    if len(members) > MAX_STATES:
        return ""
    for member in members:
        if not _STATE.fullmatch(member):
            return ""
    return ",".join(members)


def valid_baggage(given: object) -> str:
    """Return a `baggage`, or nothing where any of its members is malformed (W3C Baggage §3.3)."""
    if not isinstance(given, str) or len(given) > MAX_BAGGAGE:
        return ""
    members = _members(given)
    if len(members) > MAX_ITEMS:
        return ""
    for member in members:
        item, *properties = [part.strip(" \t") for part in member.split(";")]
        if not _ITEM.fullmatch(item) or not all(_PROPERTY.fullmatch(each) for each in properties):
            return ""
    return ",".join(members)


def _members(text: str) -> list[str]:
    """Return the members of a list; those that are empty are no members."""
    stripped = [member.strip(" \t") for member in text.split(",")]
    return [member for member in stripped if member]
