"""Metrics as text: the Prometheus format 0.0.4, and OpenMetrics 1.0 for those who ask for it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ferrule.telemetry.metrics import Histogram, Metrics

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OPENMETRICS_VERSIONS = ("", "1.0.0", "0.0.1")
LONGEST_ACCEPT = 1024
"""Characters of an `Accept` header that are read."""


def content_type_for(accept: str) -> str:
    """Return the content type of an answer to this `Accept` header (RFC 9110 §12.5.1)."""
    openmetrics = 0.0
    plain = 0.0
    for item in accept[:LONGEST_ACCEPT].lower().split(","):
        kind, parameters = _media_type(item)
        weight = _weight(parameters.get("q", "1"))
        if kind == "application/openmetrics-text" and parameters.get("version", "") in OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, weight)
        elif kind in ("text/plain", "text/*", "*/*"):
            plain = max(plain, weight)
    if openmetrics > 0 and openmetrics >= plain:
        return OPENMETRICS
    return PROMETHEUS


def _media_type(item: str) -> tuple[str, dict[str, str]]:
    kind, *rest = item.split(";")
    parameters = {}
    for part in rest:
        name, _, value = part.partition("=")
        parameters[name.strip()] = value.strip().strip('"')
    return kind.strip(), parameters


def _weight(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def expose(metrics: Metrics, content_type: str = PROMETHEUS) -> bytes:
    """Return all metrics as text of a content type."""
    openmetrics = content_type == OPENMETRICS
    lines: list[str] = []
    for metric in metrics.read():
        row = metric.row
        family = row.family if openmetrics else row.name
        lines.append(f"# HELP {family} {_escaped_help(row.help, openmetrics)}")
        lines.append(f"# TYPE {family} {row.type}")
        for values, child in metric.children.items():
            labels = _labels(row.labels, values)
            if isinstance(child, Histogram):
                lines += _histogram(row.name, labels, child)
            else:
                lines.append(f"{row.name}{_braced(labels)} {_number(child.value)}")
    if openmetrics:
        lines.append("# EOF")
    if lines:
        lines.append("")
    return "\n".join(lines).encode()


def _histogram(name: str, labels: list[str], child: Histogram) -> Iterable[str]:
    below = 0
    for edge, count in zip(child.edges, child.counts, strict=False):
        below += count
        edged = _braced([*labels, f'le="{edge!r}"'])
        yield f"{name}_bucket{edged} {below}"
    total = below + child.counts[-1]
    edged = _braced([*labels, 'le="+Inf"'])
    yield f"{name}_bucket{edged} {total}"
    yield f"{name}_sum{_braced(labels)} {_number(child.sum)}"
    yield f"{name}_count{_braced(labels)} {total}"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> list[str]:
    """Return the labels that have a value: an empty one is the same as none."""
    found = []
    for name, value in zip(names, values, strict=True):
        if value:
            escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
            found.append(f'{name}="{escaped}"')
    return found


def _braced(labels: list[str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(labels) + "}"


def _escaped_help(text: str, openmetrics: bool) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    if openmetrics:
        escaped = escaped.replace('"', '\\"')
    return escaped


def _number(value: float) -> str:
    """Return a number as both formats write it; a whole one without a fraction."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)
