"""A Grafana dashboard, written from the table of metrics: one panel a metric, two for a histogram."""

from __future__ import annotations

from typing import Any

from ferrule.telemetry.table import TABLE, MetricRow

WIDTH = 12
HEIGHT = 8
COLUMNS = 2
SOURCE = {"type": "prometheus", "uid": "${source}"}
QUANTILES = (0.5, 0.95, 0.99)
HIDDEN_LABELS = ("network_transport", "mcp_protocol_version")
"""Labels that panels sum over, so that their lines can be told apart."""

Json = dict[str, Any]


def dashboard(table: tuple[MetricRow, ...] = TABLE, title: str = "Ferrule") -> Json:
    """Return a dashboard that Grafana can import, as JSON."""
    panels: list[Json] = []
    for row in table:
        for panel in _panels(row):
            number = len(panels)
            panel["id"] = number + 1
            panel["gridPos"] = {
                "x": number % COLUMNS * WIDTH,
                "y": number // COLUMNS * HEIGHT,
                "w": WIDTH,
                "h": HEIGHT,
            }
            panels.append(panel)
    return {
        "title": title,
        "uid": title.lower(),
        "tags": ["mcp"],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_source_variable(), _label_variable("job"), _label_variable("instance")]},
        "panels": panels,
    }


def _source_variable() -> Json:
    return {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _label_variable(label: str) -> Json:
    return {
        "name": label,
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values(ferrule_build_info, {label})",
        "includeAll": True,
        "multi": True,
        "refresh": 2,
    }


def _panels(row: MetricRow) -> list[Json]:
    labels = [label for label in row.labels if label not in HIDDEN_LABELS]
    if row.type == "counter":
        return [_panel(row, row.help, [(_rate(row.name, labels), _legend(labels))], "cps")]
    if row.type == "gauge":
        query = f"sum by ({', '.join(labels)}) ({row.name}{SELECTION})" if labels else f"sum({row.name}{SELECTION})"
        return [_panel(row, row.help, [(query, _legend(labels))], _unit(row.name))]
    quantiles = []
    for quantile in QUANTILES:
        inner = _rate(f"{row.name}_bucket", ["le"])
        quantiles.append((f"histogram_quantile({quantile}, {inner})", f"p{quantile * 100:g}"))
    return [
        _panel(row, f"{row.help} Quantiles.", quantiles, "s"),
        _panel(row, f"{row.help} A second.", [(_rate(f"{row.name}_count", labels), _legend(labels))], "cps"),
    ]


SELECTION = '{job=~"$job", instance=~"$instance"}'


def _rate(name: str, labels: list[str]) -> str:
    """Return a query for how fast something rises, summed over all labels but these."""
    rate = f"rate({name}{SELECTION}[$__rate_interval])"
    if labels:
        return f"sum by ({', '.join(labels)}) ({rate})"
    return f"sum({rate})"


def _legend(labels: list[str]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)


def _unit(name: str) -> str:
    if name.endswith("_seconds"):
        return "s"
    if name.endswith("_bytes"):
        return "bytes"
    return "short"


def _panel(row: MetricRow, description: str, queries: list[tuple[str, str]], unit: str) -> Json:
    targets = []
    for number, (query, legend) in enumerate(queries):
        target = {"refId": chr(ord("A") + number), "expr": query, "legendFormat": legend, "datasource": SOURCE}
        targets.append(target)
    return {
        "type": "timeseries",
        "title": row.name,
        "description": description,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
    }
