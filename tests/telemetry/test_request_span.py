"""One request as a span of a real SDK: its context, what is carried, and what is current."""

from __future__ import annotations

import asyncio
from contextvars import copy_context

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from span_recorder import SpanRecorder, parent_id, span_id, stages, trace_id

from ferrule.telemetry.observer import Complaints, ObservedRequest, Outcome
from ferrule.telemetry.request_span import Spans, current_trace, http_server_span, mute
from ferrule.telemetry.trace_context import NO_TRACE, TraceContext
from ferrule.wire.channel import Origin

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = TraceContext(f"00-{TRACE}-{SPAN}-01", "a=1", "user=ada")


@pytest.fixture
def recorder() -> SpanRecorder:
    return SpanRecorder()


def request() -> ObservedRequest:
    return ObservedRequest(id=1, method="tools/call", name="add", transport="test", origin=Origin("test"), began=0.0)


def test_a_received_request_is_a_child_of_the_trace_it_names(recorder: SpanRecorder) -> None:
    async def main() -> None:
        span = Spans(recorder.provider, Complaints()).received(request(), PARENT, 1_000)
        assert span is not None
        assert span.trace_id == TRACE
        span.answered(request(), Outcome(kind="ok"))
        assert recorder.spans == [], "it ends when the answer was written"
        await asyncio.sleep(0)

    asyncio.run(main())
    [ended] = recorder.spans
    assert (trace_id(ended), parent_id(ended)) == (int(TRACE, 16), int(SPAN, 16))
    assert ended.kind is SpanKind.SERVER
    assert ended.start_time == 1_000
    assert stages(ended) == ["received", "admitted", "written"]


def test_a_sent_request_is_a_child_of_what_is_current_and_carries_itself(recorder: SpanRecorder) -> None:
    spans = Spans(recorder.provider, Complaints())
    with recorder.tracer.start_as_current_span("user") as user:
        span = spans.sent(request(), NO_TRACE)
        assert span is not None
        carried = span.carried
    span.finish(request(), Outcome(kind="error", code=-32603, message="Internal error"))
    [ended] = recorder.named("tools/call add")
    assert parent_id(ended) == user.get_span_context().span_id
    assert carried.span_id == trace.format_span_id(span_id(ended))
    assert carried.sampled
    assert (ended.kind, ended.status.status_code) == (SpanKind.CLIENT, StatusCode.ERROR)
    assert ended.status.description == "Internal error"


def test_a_handler_runs_in_a_copy_of_a_context_in_which_the_span_is_current(recorder: SpanRecorder) -> None:
    span = Spans(recorder.provider, Complaints()).received(request(), PARENT, 1)
    assert span is not None
    for base in (None, copy_context()):
        inside = span.run_in(base).run(current_trace)
        assert inside is not None
        assert inside == span.carried
        assert (inside.tracestate, inside.baggage) == ("a=1", "user=ada")
    assert current_trace() is None


def test_in_a_muted_context_nothing_is_recorded(recorder: SpanRecorder) -> None:
    context = copy_context()
    context.run(mute)
    assert context.run(current_trace) is NO_TRACE
    assert not context.run(recorder.tracer.start_span, "inner").is_recording()
    assert recorder.tracer.start_span("outer").is_recording()


def test_only_the_span_of_a_server_is_an_http_server_span(recorder: SpanRecorder) -> None:
    assert http_server_span() is None
    with recorder.tracer.start_as_current_span("main"):
        assert http_server_span() is None
    with recorder.tracer.start_as_current_span("POST", kind=SpanKind.SERVER) as span:
        assert http_server_span() is span


def test_without_a_provider_there_is_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    spans = Spans(None, Complaints())
    assert spans.received(request(), PARENT, 1) is None
    assert spans.sent(request(), NO_TRACE) is None


def test_a_span_that_the_sampler_of_the_sdk_drops_is_still_carried(recorder: SpanRecorder) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    span = Spans(TracerProvider(sampler=ALWAYS_OFF), Complaints()).received(request(), PARENT, 1)
    assert span is not None
    assert span.carried.trace_id == TRACE
    assert not span.carried.sampled
    span.finish(request(), Outcome(kind="ok"))


def test_an_exporter_that_fails_is_logged_and_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

    class Broken(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("broken exporter")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    span = Spans(provider, Complaints()).sent(request(), NO_TRACE)
    assert span is not None
    span.finish(request(), Outcome(kind="ok"))
    [record] = caplog.records
    assert "an observer failed in tracing" in record.getMessage()
