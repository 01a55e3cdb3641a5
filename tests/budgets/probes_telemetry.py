"""Probes of what is written of requests: metrics, spans, logs and receipts."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any
from unittest import mock

from table import no_bound, probe

from ferrule.schema.model import Implementation
from ferrule.telemetry import recorder
from ferrule.telemetry.logs import JsonFormatter
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.observer import ObservedRequest, Outcome
from ferrule.telemetry.receipt_log import ReceiptLog
from ferrule.telemetry.recorder import MetricsRecorder
from ferrule.telemetry.redaction import REDACTED, read_path, redact
from ferrule.telemetry.span_attributes import content_attributes, received_attributes, span_name
from ferrule.wire.channel import Origin


def request(method: str, name: str, **facts: Any) -> ObservedRequest:
    """Return a request of a client on stdio that a handler has answered after a second."""
    seen = ObservedRequest(
        id=1, method=method, name=name, transport="stdio", origin=Origin("stdio"), began=0.0, **facts
    )
    seen.started, seen.ended = 0.0, 1.0
    return seen


@probe("ferrule.telemetry.recorder.MAX_KEPT", lowered=10, clamps=True)
async def histograms(limit: int, size: int) -> bool:
    metering = MetricsRecorder(Metrics())
    with mock.patch.object(recorder, "MAX_KEPT", limit):
        for number in range(size):
            metering.request_finished(request("tools/call", f"{number}"), Outcome(kind="tool_error"))
    return len(metering._served_histograms) == size


@probe("ferrule.telemetry.logs.MAX_FACTS", clamps=True)
async def facts_of_a_record(limit: int, size: int) -> bool:
    record = logging.makeLogRecord({"msg": "said", **{f"fact{number}": number for number in range(size)}})
    line = json.loads(JsonFormatter().format(record))
    return sum(name.startswith("fact") for name in line) == size


@probe("ferrule.telemetry.redaction.MAX_DEPTH", clamps=True)
async def a_deep_argument(limit: int, size: int) -> bool:
    value: Any = "kept"
    for _ in range(size):
        value = [value]
    found = redact(value, [read_path("$.secret")])
    while isinstance(found, list):
        found = found[0]
    assert found in ("kept", REDACTED)
    return bool(found == "kept")


@probe("ferrule.telemetry.span_attributes.MAX_TEXT", clamps=True)
async def a_text_of_a_span(limit: int, size: int) -> bool:
    """The names of all that a peer writes are cut alike."""
    long = "x" * size
    asked = request("tools/call", long, revision=long)
    asked.id = long
    found = received_attributes(asked)
    kept = {len(str(found[name])) for name in ("gen_ai.tool.name", "jsonrpc.request.id", "mcp.protocol.version")}
    kept |= {len(span_name(asked)) - len("tools/call "), len(span_name(request(long, "")))}
    assert len(kept) == 1
    return kept == {size}


@probe("ferrule.telemetry.span_attributes.MAX_CONTENT", clamps=True)
async def the_content_of_a_span(limit: int, size: int) -> bool:
    kept = {len(str(text)) for text in content_attributes(b"x" * size, b"y" * size).values()}
    assert len(kept) == 1
    return kept == {size}


@probe("ferrule.telemetry.receipt_log.MAX_TEXT", clamps=True)
async def a_text_of_a_receipt(limit: int, size: int) -> bool:
    long = "x" * size
    log: Any = SimpleNamespace(is_kept_of=lambda method: True, _writer=mock.Mock())
    asked = request(long, long, peer=Implementation(name=long, version=long))
    ReceiptLog.request_recorded(log, asked, Outcome(kind="ok"), b"", b"")
    receipt = log._writer.record.call_args.args[0]
    kept = {len(text) for text in (receipt.method, receipt.target, receipt.peer.name, receipt.peer.version)}
    assert len(kept) == 1
    return kept == {size}


no_bound(
    "ferrule.telemetry.receipt_database.LARGEST_LOG",
    "to how many bytes SQLite shortens its log once what is in it was written to the file",
)
