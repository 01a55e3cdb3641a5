"""A real OpenTelemetry SDK that keeps its spans, and ways to find them."""

from __future__ import annotations

import asyncio
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from ferrule import Tracing

PATIENCE = 60.0
STAGES = ["received", "admitted", "started", "finished", "encoded", "written"]


class SpanRecorder:
    """Keeps the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def tracing(self, **options: Any) -> Tracing:
        """Return tracing that gives its spans here."""
        return Tracing(provider=self.provider, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans, in the order they ended."""
        return list(self._exporter.get_finished_spans())

    def clear(self) -> None:
        """Forget all spans."""
        self._exporter.clear()

    def named(self, name: str, kind: SpanKind | None = None) -> list[ReadableSpan]:
        """Return the spans of this name and kind."""
        return [span for span in self.spans if span.name == name and kind in (None, span.kind)]

    async def one(self, name: str, kind: SpanKind | None = None) -> ReadableSpan:
        """Wait until there is a span of this name and kind; return it, which must be the only one."""
        async with asyncio.timeout(PATIENCE):
            while not self.named(name, kind):
                await asyncio.sleep(0.001)
        [span] = self.named(name, kind)
        return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def stages(span: ReadableSpan) -> list[str]:
    """Return the names of a span's events."""
    return [event.name for event in span.events]


def span_id(span: ReadableSpan) -> int:
    """Return the id of a span."""
    assert span.context is not None
    return span.context.span_id


def trace_id(span: ReadableSpan) -> int:
    """Return the id of the trace of a span."""
    assert span.context is not None
    return span.context.trace_id


def parent_id(span: ReadableSpan) -> int | None:
    """Return the id of the parent of a span."""
    if span.parent is None:
        return None
    return span.parent.span_id
