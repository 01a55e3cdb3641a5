"""RequestSpan: one request as an OpenTelemetry span; and Spans, which makes them. Loaded only by who traces.

Rule: nothing here is called for a request that is not sampled; `ferrule.telemetry.tracer` decides that before.
"""

from __future__ import annotations

import asyncio
import random
from contextvars import Context, copy_context
from time import time_ns
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ferrule.telemetry.observer import Complaints, ObservedRequest, Outcome
from ferrule.telemetry.span_attributes import (
    content_attributes,
    ending_attributes,
    received_attributes,
    sent_attributes,
    span_name,
)
from ferrule.telemetry.trace_context import NO_TRACE, TraceContext, trace_of

get_current = otel_context.get_current

SCOPE = "ferrule"
"""The instrumentation scope of our spans."""
RECEIVED, ADMITTED, STARTED, FINISHED, ENCODED, WRITTEN = (
    "received",
    "admitted",
    "started",
    "finished",
    "encoded",
    "written",
)
"""The stages of a request that was received, in order: each is an event of its span."""

UNSAMPLED = trace.SpanContext(
    trace_id=random.getrandbits(128) | 1,
    span_id=random.getrandbits(64) | 1,
    is_remote=False,
    trace_flags=trace.TraceFlags(0),
)
"""Current in the handlers of requests that are not traced: what they begin belongs to a trace that nobody records."""

_mute = trace.set_span_in_context(trace.NonRecordingSpan(UNSAMPLED), otel_context.Context())
_trace_context = TraceContextTextMapPropagator()
_baggage = W3CBaggagePropagator()


class RequestSpan:
    """The span of one request."""

    __slots__ = ("_complaints", "_context", "_span", "_stages")

    def __init__(self, span: trace.Span, context: otel_context.Context, complaints: Complaints) -> None:
        self._span = span
        self._complaints = complaints
        self._context = trace.set_span_in_context(span, context)
        self._stages: list[tuple[str, int]] = []

    @property
    def trace_id(self) -> str:
        """The id of its trace, in 32 hexadecimal digits."""
        return trace.format_trace_id(self._span.get_span_context().trace_id)

    def mark(self, stage: str, when: int | None = None) -> None:
        """Note that a stage was reached: now, or at a time in nanoseconds since 1970."""
        if when is None:
            when = time_ns()
        self._stages.append((stage, when))

    def run_in(self, base: Context | None) -> Context:
        """Return a context for the handler, in which this span is the current one: a copy of `base` or of ours."""
        if base is None:
            made = copy_context()
        else:
            made = base.copy()
        made.run(otel_context.attach, self._context)
        return made

    @property
    def carried(self) -> TraceContext:
        """What the peer is told, so that its span is a child of this one."""
        return carried_by(self._context)

    def show(self, arguments: bytes, result: bytes) -> None:
        """Add the arguments and the result of a tool, as JSON."""
        if not self._span.is_recording():
            return
        for name, content in content_attributes(bytes(arguments), bytes(result)).items():
            self._span.set_attribute(name, content)

    def answered(self, request: ObservedRequest, outcome: Outcome) -> None:
        """Called when a request that was received has its answer; the span ends when that has left."""
        loop = asyncio.get_running_loop()
        # A transport writes what was sent in a turn of the loop at its end, so at the begin of the next it is written.
        loop.call_soon(self._written, request, outcome)

    def _written(self, request: ObservedRequest, outcome: Outcome) -> None:
        self.mark(WRITTEN)
        self.finish(request, outcome)

    def finish(self, request: ObservedRequest, outcome: Outcome) -> None:
        """End the span."""
        try:
            self._finish(request, outcome)
        except Exception as error:
            # A processor or an exporter of somebody else's: the request goes on.
            self._complaints.add("tracing", error)

    def _finish(self, request: ObservedRequest, outcome: Outcome) -> None:
        span = self._span
        if span.is_recording():
            span.update_name(span_name(request, outcome))
            for stage, when in self._stages:
                span.add_event(stage, timestamp=when)
            ending = ending_attributes(outcome, request.round)
            for name, value in ending.items():
                span.set_attribute(name, value)
            if "error.type" in ending:
                span.set_status(trace.Status(trace.StatusCode.ERROR, outcome.message or None))
        span.end()


class Spans:
    """Makes the spans of a server or a client."""

    def __init__(self, provider: Any, complaints: Complaints, *, full_session_ids: bool = False) -> None:
        self._provider = provider
        self._complaints = complaints
        self._full_session_ids = full_session_ids
        self._tracers: dict[int, trace.Tracer] = {}
        """Our tracer by the id of its provider, of which a program has one as a rule."""

    @property
    def _tracer(self) -> trace.Tracer | None:
        provider = self._provider or trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            return None
        tracer = self._tracers.get(id(provider))
        if tracer is None:
            tracer = provider.get_tracer(SCOPE)
            self._tracers = {id(provider): tracer}
        return tracer

    # Requests that are received

    def received(self, request: ObservedRequest, parent: TraceContext, when: int) -> RequestSpan | None:
        """Begin the span of a request that came at a time; None while there is nobody to give spans to."""
        tracer = self._tracer
        if tracer is None:
            return None
        context = extracted(parent, otel_context.Context())
        links = None
        if request.transport == "http":
            links = _links(parent)
        attributes = received_attributes(request, full_session_id=self._full_session_ids)
        span = tracer.start_span(
            span_name(request), context, trace.SpanKind.SERVER, attributes, links=links, start_time=when
        )
        made = RequestSpan(span, context, self._complaints)
        made.mark(RECEIVED, when)
        made.mark(ADMITTED)
        return made

    # Requests that are sent

    def sent(self, request: ObservedRequest, parent: TraceContext) -> RequestSpan | None:
        """Begin the span of a request that is about to be sent; None while there is nobody to give spans to.

        Its parent is the one that is given, or else the current span.
        """
        tracer = self._tracer
        if tracer is None:
            return None
        context = extracted(parent, otel_context.get_current())
        attributes = sent_attributes(request)
        span = tracer.start_span(span_name(request), context, trace.SpanKind.CLIENT, attributes)
        return RequestSpan(span, context, self._complaints)


def mute() -> None:
    """Let what is begun in this context belong to no trace that is recorded."""
    otel_context.attach(_mute)


def current_trace() -> TraceContext | None:
    """Return the trace of the code that runs; None where there is none, `NO_TRACE` where it is muted."""
    context = otel_context.get_current()
    if not context:
        return None
    found = trace.get_current_span(context).get_span_context()
    if found is UNSAMPLED:
        return NO_TRACE
    if not found.is_valid:
        return None
    return carried_by(context)


def http_server_span() -> trace.Span | None:
    """Return the span of the HTTP request we are in, where somebody else makes them: an ASGI server, say."""
    context = otel_context.get_current()
    if not context:
        return None
    span = trace.get_current_span(context)
    if getattr(span, "kind", None) is trace.SpanKind.SERVER and span.get_span_context().is_valid:
        return span
    return None


def carried_by(context: otel_context.Context) -> TraceContext:
    """Return what a peer is told of a context."""
    members: dict[str, str] = {}
    _trace_context.inject(members, context)
    _baggage.inject(members, context)
    return trace_of(members.get("traceparent"), members.get("tracestate"), members.get("baggage"))


def extracted(parent: TraceContext, context: otel_context.Context) -> otel_context.Context:
    """Return a context with the trace that a peer told us of."""
    members = parent.members
    if not members:
        return context
    return _baggage.extract(members, _trace_context.extract(members, context))


def _links(parent: TraceContext) -> list[trace.Link] | None:
    """Return a link to the span of the HTTP request, unless that is the parent already."""
    outer = http_server_span()
    if outer is None:
        return None
    found = outer.get_span_context()
    if trace.format_span_id(found.span_id) == parent.span_id:
        return None
    return [trace.Link(found)]
