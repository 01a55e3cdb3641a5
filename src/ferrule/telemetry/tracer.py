"""Tracer: decides which requests are traced, and makes OpenTelemetry spans of those.

The decision comes first, in this order:

1. The request says it (`traceparent` in `_meta`, or else in the headers of its HTTP request): it is sampled or not.
2. The HTTP server we run in has a span of the request: the same holds for it.
3. Chance, as often as `Tracing.ratio` says.

Rule: a request that is not sampled touches no OpenTelemetry code, but for a look at the current span where a client
asks, or where an HTTP server may have made one. What it says of its trace is passed on by clients its handler uses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from ferrule.errors import SetupError
from ferrule.schema.tools import ToolCall
from ferrule.telemetry.observer import Complaints, ObservedRequest
from ferrule.telemetry.trace_context import NO_TRACE, TraceContext, trace_in_headers, trace_in_meta, trace_of
from ferrule.wire.channel import Origin
from ferrule.wire.codec import write

if TYPE_CHECKING:
    from ferrule.telemetry.request_span import RequestSpan

_random = random.random
_carried: ContextVar[TraceContext] = ContextVar("ferrule_trace", default=NO_TRACE)
"""What the request that is being answered says of its trace, where it is not sampled."""

EMPTY = Raw(b"{}")

_read_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Tracing(Struct, frozen=True, kw_only=True):
    """How requests are traced."""

    ratio: float = 1.0
    """Which part of the traces that begin here is recorded, from 0 to 1; others go on as they began."""
    provider: Any = None
    """An OpenTelemetry TracerProvider; None for the global one."""
    follow_callers: bool = True
    """Whether a caller decides if its trace is recorded; else only `ratio` does, for a server that anybody may call."""
    contents: bool = False
    """Whether the spans of tool calls show arguments and results: they may hold secrets."""
    full_session_ids: bool = False
    """Whether spans show session ids whole, and not only how they begin: whoever knows one can use the session."""

    def __post_init__(self) -> None:
        if isinstance(self.ratio, bool) or not isinstance(self.ratio, int | float) or not 0 <= self.ratio <= 1:
            raise SetupError(f"tracing: ratio must be from 0 to 1, not {self.ratio!r}")
        if self.provider is not None and not callable(getattr(self.provider, "get_tracer", None)):
            raise SetupError(f"tracing: provider must be an OpenTelemetry TracerProvider, not {self.provider!r}")


class Incoming(Struct, frozen=True, gc=False):
    """What was decided about a request that came."""

    trace: TraceContext
    """What it says of its trace."""
    sampled: bool


class Outgoing(Struct, frozen=True, gc=False):
    """What was decided about a request of ours."""

    sampled: bool
    passed_on: TraceContext = NO_TRACE
    """What the peer is told of the trace, where there is no span of this request."""
    parent: TraceContext = NO_TRACE
    """The parent of its span; without one, that is the current span."""

    def stamped(self, params: object) -> object:
        """Return the params with what is passed on."""
        if self.passed_on is NO_TRACE:
            return params
        return with_trace(params, self.passed_on)


BEGINS = Outgoing(True)
BEGINS_NOT = Outgoing(False)


class Tracer:
    """Decides about requests, and begins their spans."""

    def __init__(self, tracing: Tracing) -> None:
        try:
            from ferrule.telemetry.request_span import Spans, current_trace, get_current, http_server_span, mute
        except ImportError as missing:
            raise SetupError(
                f"tracing needs opentelemetry-api ({missing}): pip install 'ferrule[otel]', and an OpenTelemetry SDK"
            ) from None
        self._follows = tracing.follow_callers
        self.contents = tracing.contents
        self.begun_here = Incoming(NO_TRACE, True)
        """What is decided about the first request of a trace."""
        self._complaints = Complaints()
        self.ratio = tracing.ratio
        """Which part of the traces that begin here is recorded."""
        self._spans = Spans(tracing.provider, self._complaints, full_session_ids=tracing.full_session_ids)
        self._has_context: Callable[[], object] = get_current
        self._current = current_trace
        self._http_server_span = http_server_span
        self._mute = mute

    # Requests that are received

    def begins(self) -> bool:
        """Decide about a request that says nothing of a trace."""
        return _random() < self.ratio

    def incoming(self, meta: bytes, origin: Origin) -> Incoming:
        """Decide about a request by its `_meta` and its sender."""
        found = NO_TRACE
        if meta:
            found = trace_in_meta(meta)
        if not found.traceparent and origin.carrier == "http":
            found = self._from_http(found, origin.headers)
        if found.traceparent and self._follows:
            return Incoming(found, found.sampled)
        sampled = self.begins()
        return Incoming(found.decided(sampled=sampled), sampled)

    def _from_http(self, found: TraceContext, headers: Mapping[str, str]) -> TraceContext:
        """Return the trace of the HTTP request: of the span its server made of it, or of its headers."""
        traced = NO_TRACE
        if self._http_server_span() is not None:
            traced = self._current() or NO_TRACE
        if not traced.traceparent:
            traced = trace_in_headers(headers)
        if not traced.traceparent:
            return found
        return TraceContext(traced.traceparent, traced.tracestate, found.baggage or traced.baggage)

    def received(self, request: ObservedRequest, incoming: Incoming, when: int) -> RequestSpan | None:
        """Begin the span of a sampled request that came at a time, in nanoseconds since 1970; None where that fails."""
        try:
            return self._spans.received(request, incoming.trace, when)
        except Exception as error:
            self._complaints.add("tracing", error)
            return None

    def unsampled_contexts(self) -> UnsampledContexts:
        """Return what makes the contexts of requests that are not sampled, for one link."""
        return UnsampledContexts(self._mute)

    # Requests that are sent

    def outgoing(self, params: object) -> Outgoing:
        """Decide about a request of ours by what is current, or else by its `_meta`."""
        current = None
        if self._has_context():
            current = self._current()
        if current is None:
            said = _said(params)
            if said is not NO_TRACE and said.traceparent:
                return Outgoing(said.sampled, parent=said)
            if self.begins():
                return BEGINS
            return BEGINS_NOT
        if current is NO_TRACE:
            return Outgoing(False, _carried.get())
        return Outgoing(current.sampled, current)

    def sent(self, request: ObservedRequest, parent: TraceContext) -> RequestSpan | None:
        """Begin the span of a sampled request that is about to be sent; None where that fails."""
        try:
            return self._spans.sent(request, parent)
        except Exception as error:
            self._complaints.add("tracing", error)
            return None

    def stamped(self, params: object, trace: TraceContext) -> object:
        """Return the params of a request with a trace in their `_meta`."""
        return with_trace(params, trace)


class UnsampledContexts:
    """The contexts in which the handlers of one link run whose requests are not sampled, made as seldom as can be."""

    __slots__ = ("_base", "_made", "_mute")

    def __init__(self, mute: Callable[[], None]) -> None:
        self._mute = mute
        self._base: Context | None = None
        self._made: Context | None = None

    def based_on(self, base: Context | None, trace: TraceContext = NO_TRACE) -> Context:
        """Return a context like `base`, or like ours, whose spans are not recorded, and which passes the trace on."""
        if base is None:
            base = copy_context()
        made = self._made
        if made is None or (base is not self._base and base != self._base):
            made = base.copy()
            made.run(self._mute)
            self._base = base
            self._made = made
        if trace is NO_TRACE:
            return made
        made = made.copy()
        made.run(_carried.set, trace)
        return made


def tracer_of(given: object, whose: str) -> Tracer:
    """Return what the option `tracing` of a server or client names; raises SetupError for what it may not be."""
    if given is True:
        return Tracer(Tracing())
    if isinstance(given, Mapping):
        try:
            given = Tracing(**given)
        except TypeError as reason:
            raise SetupError(f"{whose}: tracing: {reason}") from None
    if not isinstance(given, Tracing):
        raise SetupError(f"{whose}: tracing must be True, False or Tracing(…), not {given!r}")
    return Tracer(given)


# -- the `_meta` of what is sent


def _said(params: object) -> TraceContext:
    """Return what a user has written into the `_meta` of a request of ours: of one that is forwarded, say."""
    if type(params) is not dict:
        return NO_TRACE
    meta = params.get("_meta")
    if type(meta) is not dict:
        return NO_TRACE  # ours, which is written once for all requests
    return trace_of(_text(meta.get("traceparent")), _text(meta.get("tracestate")), _text(meta.get("baggage")))


def _text(value: object) -> object:
    """Return a value that may be written as JSON already."""
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    return value


def with_trace(params: object, trace: TraceContext) -> object:
    """Return the params of a request with a trace in their `_meta`."""
    said = trace.members
    if not said:
        return params
    if params is None or params is UNSET:
        return {"_meta": said}
    if isinstance(params, ToolCall):
        meta = EMPTY if params.meta is UNSET else params.meta
        return structs.replace(params, meta=_joined(meta, said))
    if not isinstance(params, Mapping):
        return params
    given = params.get("_meta")
    if isinstance(given, Raw):
        return {**params, "_meta": _joined(given, said)}
    if isinstance(given, Mapping):
        return {**params, "_meta": {**given, **said}}
    return {**params, "_meta": said}


def _joined(meta: Raw, said: Mapping[str, str]) -> Raw:
    return Raw(write({**_read_members(meta), **said}))
