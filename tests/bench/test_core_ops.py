"""The benchmark of our own parts measures what the seeds publish figures for, and keeps it in their layout."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.contestants import FERRULE, OWN_BEFORE

from bench import core_ops, results, run, scenarios

PROJECT = Path(__file__).resolve().parents[2]
LONG = bool(os.environ.get("FERRULE_LONG"))


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """The record of the smallest workload."""
    return core_ops.run_workload("core_ops_1k")


MEASURED = {
    "registry": "PERF-01",
    "queue": "PERF-02",
    "pool": "PERF-11",
    "session": "PERF-07",
    "decode a message": "PERF-05",
    "read a resource": "PERF-08",
    "notify a subscriber": "PERF-09",
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_part_has_its_own_figure_beside_the_published_one(record: dict[str, Any], name: str) -> None:
    """PERF-01, PERF-02, PERF-05, PERF-07, PERF-08, PERF-09, PERF-11."""
    part = record["components"][name]
    assert part["seed"] == MEASURED[name]
    assert part["throughput_msg_per_s"] > 1000
    assert part["operations"] == 1000
    assert 0 < part["latency_p50_us"] <= part["latency_p95_us"] <= part["latency_p99_us"] <= part["latency_max_us"]


def test_the_four_parts_together_are_the_core_operations(record: dict[str, Any]) -> None:
    """PERF-03: operations per second of registry, queue, pool and session together."""
    parts = [record["components"][name] for name in ("registry", "queue", "pool", "session")]
    assert record["operations"] == 4000
    seconds = sum(part["operations"] / part["throughput_msg_per_s"] for part in parts)
    assert record["throughput_msg_per_s"] == pytest.approx(4000 / seconds, rel=0.01)
    assert record["seed_per_s"] == 2_690_000
    assert record["left_out"] == {}


def test_the_workloads_are_the_published_ones() -> None:
    """PERF-11: 1k by one worker, 10k by 10, 100k and 1M by 100."""
    found = {name: (load.operations, load.workers) for name, load in core_ops.WORKLOADS.items()}
    assert found == {
        "core_ops_1k": (1_000, 1),
        "core_ops_10k": (10_000, 10),
        "core_ops_100k": (100_000, 100),
        "core_ops_1m": (1_000_000, 100),
    }


def test_a_record_tells_of_latency_memory_cpu_and_the_machine(record: dict[str, Any]) -> None:
    """PERF-11."""
    assert record["workload_id"] == "core_ops_1k"
    assert record["workers"] == 1
    for name in ("latency_p50_us", "latency_p95_us", "latency_p99_us", "memory_start_mib", "memory_end_mib"):
        assert record[name] > 0
    assert record["cpu_percent_avg"] > 0
    assert {"os", "arch", "cpu", "cores", "memory_gib", "python_version"} <= record["environment"].keys()


def test_many_workers_share_the_operations() -> None:
    parts = {part.name: part for part in core_ops.PARTS}
    done = []

    async def note() -> None:
        done.append(1)

    core_ops._run(note, 105, 10)
    assert len(done) == 105
    assert core_ops.measure_part(parts["pool"], 50, 10)["operations"] == 50


def test_results_are_kept_under_the_name_of_the_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """PERF-10: bench/results/core_ops_<size>_<time>.json."""
    assert results.FOLDER == PROJECT / "bench" / "results"
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(run, "PROJECT", tmp_path)
    monkeypatch.setattr(run, "pin", lambda core: None)
    monkeypatch.setattr(scenarios, "run_workload", lambda workload: {**record, "workload_id": workload})
    monkeypatch.setattr(sys, "argv", ["bench.run", "core_ops_100k"])
    assert run.main() == 0
    capsys.readouterr()
    (kept,) = tmp_path.glob("core_ops_100k_*.json")
    assert json.loads(kept.read_text())["workload_id"] == "core_ops_100k"


def test_operations_are_sustained_for_half_a_minute() -> None:
    """PERF-04: 30 s with FERRULE_LONG, a moment else; the last tenth is as fast as the whole, and memory stays."""
    seconds = core_ops.SUSTAINED_SECONDS if LONG else 0.5
    sustained = core_ops.run_sustained(seconds)
    assert sustained["duration_s"] >= seconds
    assert sustained["throughput_msg_per_s"] * sustained["duration_s"] == pytest.approx(
        sustained["operations"], rel=0.05
    )
    assert sustained["seed_per_s"] == 372_000
    if LONG:
        assert sustained["last_tenth_msg_per_s"] > 0.5 * sustained["throughput_msg_per_s"]
        assert sustained["memory_delta_mib"] < 16


@pytest.mark.parametrize(("now", "code"), [(10.9, 0), (11.1, 1)])
def test_a_tenth_more_than_before_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], now: float, code: int
) -> None:
    """PERF-12: `--before` exits with 1 where an operation costs over 10 % more."""

    def measure(choice: object, into: results.Results) -> None:
        into.add("call", "x1", OWN_BEFORE, 1, {"cpu_us": 10.0, "per_s": 1.0})
        into.add("call", "x1", FERRULE, 1, {"cpu_us": now, "per_s": 1.0})

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(run, "PROJECT", tmp_path)
    monkeypatch.setattr(run, "pin", lambda core: None)
    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "report", lambda *given: "")
    monkeypatch.setattr(run, "judge", lambda *given: [])
    monkeypatch.setattr(sys, "argv", ["bench.run", "call", "--before", str(tmp_path)])
    assert run.main() == code
    assert ("regression: call x1" in capsys.readouterr().err) is bool(code)


def test_a_ratio_that_may_be_chance_is_doubtful_and_fails_nothing() -> None:
    """A median of 1.2 that errs by 0.3 says nothing; one that errs by 0.01 does."""
    kept = results.Results()
    for number, (wild, steady) in enumerate(zip((8, 12, 20, 9), (12, 12.1, 11.9, 12), strict=True), 1):
        for case, now in (("wild", wild), ("steady", steady)):
            kept.add("call", case, OWN_BEFORE, number, {"cpu_us": 8.0 if case == "wild" else 10.0})
            kept.add("call", case, FERRULE, number, {"cpu_us": float(now)})
    sure, doubtful = run.regressions(kept)
    assert [each.split(":")[0] for each in sure] == ["call steady"]
    assert [each.split(":")[0] for each in doubtful] == ["call wild"]


def test_every_scenario_is_in_the_repository_and_told_of() -> None:
    """TEST-12: `make bench` runs them, and the page of results says what each asks for."""
    page = (PROJECT / "bench" / "results" / "README.md").read_text(encoding="utf-8")
    named = [name for name in run.ALL_SCENARIOS if not name.startswith("core_ops") and f"`{name}`" not in page]
    assert named == []
    assert "core_ops_" in page
    assert "bench/run.py" in (PROJECT / "Makefile").read_text(encoding="utf-8")
