"""A run on one screen: a table for each case, then the floors."""

from __future__ import annotations

from bench.contestants import BARE_LOOP, FERRULE, OWN_INLINE, TASK_FLOORS, YARDSTICKS, is_native
from bench.floors import Verdict
from bench.reported import REPORTED
from bench.results import Results, cpu_of


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _small(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _fine(value: float) -> str:
    return f"{value:,.2f}"


def _duration(microseconds: float) -> str:
    return f"{_small(microseconds)} µs" if microseconds < 1000 else f"{_small(microseconds / 1000)} ms"


TIE = 1.1
"""What two figures may differ by and count as the same: about as much as one case differs between rounds."""

COLUMNS = (
    ("per s", "per_s", _count),
    ("CPU µs", "cpu_us", _small),
    ("CPU ms", "cpu_ms", _small),
    ("% over plain", "over_plain", _fine),
    ("µs more", "more_us", _fine),
    ("wall ms", "start_ms", _small),
    ("KB/connection", "connection_kb", _fine),
    ("KB/session", "session_kb", _fine),
    ("KB/stream", "stream_kb", _fine),
    ("answering", "answering", _count),
    ("p50", "p50_us", _duration),
    ("p95", "p95_us", _duration),
    ("p99", "p99_us", _duration),
    ("MiB", "rss_mib", _small),
    ("bytes", "answer_bytes", _count),
)


def _ratio(row: dict, own: dict) -> str:
    name = "cpu_us" if "cpu_us" in row else "cpu_ms"
    # In a window that is too short for the system's clock an operation costs nothing.
    return f"{row[name] / own[name]:.2f}x" if own.get(name) else "-"


def _lines(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  "
        + row[0].ljust(widths[0])
        + "".join(cell.rjust(width + 2) for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]


def case_table(results: Results, scenario: str, case: str) -> str:
    """Show who did how well in one case, with the CPU of each as a multiple of Ferrule's."""
    best = {name: results.best(scenario, case, name) for name in results.contestants(scenario, case)}
    own = best.get(FERRULE, {})
    columns = [column for column in COLUMNS if any(row.get(column[1]) for row in best.values())]
    rows = [["", "CPU/ferrule", *(title for title, _, _ in columns)]]
    for name, row in best.items():
        cells = [show(row[key]) if key in row else "-" for _, key, show in columns]
        rows.append([name, _ratio(row, own), *cells])
    known = REPORTED.get((scenario, case))
    beside = [f"  elsewhere, CPU µs: {known}"] if known else []
    return "\n".join([f"{scenario} {case}", *_lines(rows), *beside])


def native_table(results: Results) -> str:
    """Show whether Ferrule is ahead of the best peer, beside what Python costs at least; only where Rust or Go ran.

    "With a task" is the least of the sketches in which a call can wait, "bare" the loop in which it cannot.
    """
    titles = ["beside Rust and Go, CPU µs", "ferrule", "best other", "", "times ours", "", "with a task", "bare"]
    rows = [titles]
    for scenario, case in results.cases():
        names = results.contestants(scenario, case)
        costs = {name: cpu_of(results.best(scenario, case, name)) for name in names}
        peers = [name for name in names if costs[name] and name not in (FERRULE, *YARDSTICKS)]
        if not any(is_native(name) for name in peers):
            continue
        best = min(peers, key=costs.__getitem__)
        floors = [_least(costs, TASK_FLOORS), _least(costs, (BARE_LOOP,))]
        for name, title in ((FERRULE, f"{scenario} {case}"), (OWN_INLINE, f"{scenario} {case} inline")):
            own = costs.get(name)
            if own:
                ratio = costs[best] / own
                word = "ahead" if ratio > TIE else "behind" if ratio < 1 / TIE else "tie"
                rows.append([title, _small(own), _small(costs[best]), best, f"{ratio:.2f}", word, *floors])
    return "\n".join(_lines(rows)) if len(rows) > 1 else ""


def _least(costs: dict[str, float], names: tuple[str, ...]) -> str:
    found = [costs[name] for name in names if costs.get(name)]
    return _small(min(found)) if found else "-"


def core_ops_table(record: dict) -> str:
    """Show our own parts beside the seeds' figures."""
    rows = [["", "per s", "seed", "times", "p50 µs", "p95 µs", "p99 µs"]]
    for name, part in record["components"].items():
        rate, seed = part["throughput_msg_per_s"], part["seed_per_s"]
        latencies = [f"{part[f'latency_p{p}_us']:.2f}" for p in (50, 95, 99)]
        if seed is None:
            beside = ["", ""]
        else:
            beside = [_count(seed), f"{rate / seed:.1f}x"]
        rows.append([name, _count(rate), *beside, *latencies])
    return "\n".join([record["workload_id"], *_lines(rows)])


def floor_table(verdicts: list[Verdict]) -> str:
    """Show each floor and whether it was met."""
    words = {True: "met", False: "MISSED", None: "not measured"}
    rows = [["floor", "figure", "limit", ""]]
    for verdict in verdicts:
        figure = "-" if verdict.figure is None else _small(verdict.figure)
        rows.append([verdict.text, figure, _small(verdict.limit), words[verdict.met]])
    return "\n".join(_lines(rows))


def report(results: Results, verdicts: list[Verdict]) -> str:
    """Show the whole run."""
    parts = [case_table(results, *case) for case in results.cases() if case[0] != "core_ops"]
    if results.core_ops is not None:
        parts.append(core_ops_table(results.core_ops))
    natives = native_table(results)
    if natives:
        parts.append(natives)
    if results.failures:
        parts.append("\n".join(["failed", *(f"  {line}" for line in results.failures)]))
    if verdicts:
        parts.append(floor_table(verdicts))
    return "\n\n".join(parts)
