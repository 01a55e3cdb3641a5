"""The table of README.md comes out of a run."""

from __future__ import annotations

import json
from pathlib import Path

from bench.readme import COLUMNS, SCENARIOS, count_packages, from_record, readme_table
from bench.results import Results

PROJECT = Path(__file__).resolve().parents[2]


def measured() -> Results:
    """Return a run of three contestants, one of which goes by another name over HTTP."""
    results = Results()
    for name, cost in {"ferrule": 4.72, "rmcp-3.8.0": 6.6, "mcp-2.3.0": 563.4}.items():
        results.add("call", "2025-11-25 x64", name, 1, {"cpu_us": cost})
        results.add("call", "2025-11-25 x64", name, 2, {"cpu_us": cost + 1})
    results.add("http_call", "2025-11-25 json x32", "mcp-2.3.0+httptools+uvloop", 1, {"cpu_us": 497.0})
    results.add("cold", "exec to initialize", "ferrule", 1, {"cpu_ms": 98.4, "rss_mib": 28.3})
    results.add("cold", "exec to initialize", "rmcp-3.8.0", 1, {"cpu_ms": 2.21, "rss_mib": 4.7})
    return results


def test_the_table_has_a_row_for_everyone_with_figures_and_the_least_of_the_rounds() -> None:
    head, line, *rows = readme_table(measured(), {"ferrule": 8}).splitlines()
    assert head.startswith("| | stdio, 64 in flight | stdio, one by one | HTTP, 32 connections | start | memory |")
    assert line == "|---|---|---|---|---|---|---|"
    assert rows == [
        "| Ferrule | 4.7 µs |  |  | 98 ms | 28 MiB | 8 |",
        "| `rmcp` 3.8.0 (Rust) | 6.6 µs |  |  | 2.2 ms | 5 MiB |  |",
        "| `mcp` 2.3.0 (over HTTP with httptools and uvloop) | 563 µs |  | 497 µs |  |  |  |",
    ]


def test_the_table_can_be_made_of_a_run_that_was_kept(tmp_path: Path) -> None:
    kept = tmp_path / "run.json"
    kept.write_text(json.dumps({"rounds": measured().rows}))
    assert readme_table(from_record(kept), {}) == readme_table(measured(), {})


def test_what_the_table_shows_is_what_readme_measures() -> None:
    assert {column.scenario for column in COLUMNS} == set(SCENARIOS)
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert "bench.run --readme --native" in text


def test_packages_are_counted_with_all_they_need() -> None:
    """Ferrule itself, its five dependencies, and what those need."""
    assert count_packages()["ferrule"] >= 6
