"""What a run has measured, and the best of it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.contestants import FERRULE, YARDSTICKS

FOLDER = Path(__file__).resolve().parent / "results"

NOT_COMPARED = frozenset({"round", "operations", "seconds"})


@dataclass(frozen=True)
class Ratio:
    """One contestant's CPU time as a multiple of another's."""

    median: float
    """Of all pairs of windows that were measured one after the other."""
    error: float
    """The standard error of that median."""


@dataclass
class Results:
    """Every window of a run, by scenario, case and contestant."""

    rows: list[dict] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    core_ops: dict | None = None
    sustained: dict | None = None

    def add(self, scenario: str, case: str, contestant: str, round_number: int, row: dict) -> None:
        """Keep one window."""
        where = {"scenario": scenario, "case": case, "contestant": contestant, "round": round_number}
        self.rows.append({**where, **row})

    def fail(self, where: str, error: Exception) -> None:
        """Keep what went wrong, so that a missing figure has a reason."""
        self.failures.append(f"{where}: {type(error).__name__}: {error}")

    def cases(self) -> list[tuple[str, str]]:
        """List scenarios and cases in the order they were measured."""
        return list(dict.fromkeys((row["scenario"], row["case"]) for row in self.rows))

    def contestants(self, scenario: str, case: str) -> list[str]:
        """List who has figures in a case."""
        rows = self._of(scenario, case)
        return list(dict.fromkeys(row["contestant"] for row in rows))

    def best(self, scenario: str, case: str, contestant: str) -> dict:
        """Return the best of all rounds, figure by figure: the highest rate, the least of all else."""
        rows = [row for row in self._of(scenario, case) if row["contestant"] == contestant]
        names = [name for name in rows[0] if isinstance(rows[0][name], (int, float))] if rows else []
        return {
            name: (max if name == "per_s" else min)(row[name] for row in rows)
            for name in names
            if name not in NOT_COMPARED
        }

    def ratio(self, scenario: str, case: str, contestant: str, other: str) -> Ratio | None:
        """Compare two contestants, window by window: whatever disturbs the machine disturbs both of a pair."""
        ours = self._cpu_times(scenario, case, contestant)
        theirs = self._cpu_times(scenario, case, other)
        ratios = [now / was for now, was in zip(ours, theirs, strict=False) if was]
        if not ratios:
            return None
        middle = statistics.median(ratios)
        away = statistics.median(abs(each - middle) for each in ratios)
        # A median errs 1.253 times as much as a mean, and a standard deviation is 1.483 median deviations (normal law).
        return Ratio(middle, 1.253 * 1.483 * away / len(ratios) ** 0.5)

    def _cpu_times(self, scenario: str, case: str, contestant: str) -> list[float]:
        rows = [row for row in self._of(scenario, case) if row["contestant"] == contestant]
        return [cpu_of(row) for row in rows if cpu_of(row)]

    def best_peer(
        self, scenario: str, case: str, figure: str, among: Callable[[str], bool] | None = None
    ) -> float | None:
        """Return the least of a figure among the peers, or among some of them."""
        peers = [name for name in self.contestants(scenario, case) if name not in (FERRULE, *YARDSTICKS)]
        peers = [name for name in peers if among is None or among(name)]
        return min((self.best(scenario, case, peer)[figure] for peer in peers), default=None)

    def _of(self, scenario: str, case: str) -> list[dict]:
        return [row for row in self.rows if row["scenario"] == scenario and row["case"] == case]

    def summary(self) -> list[dict]:
        """Return the best of each case and contestant, for the record."""
        return [
            {"scenario": scenario, "case": case, "contestant": name, **self.best(scenario, case, name)}
            for scenario, case in self.cases()
            for name in self.contestants(scenario, case)
        ]


def cpu_of(row: dict) -> float:
    """Return the CPU microseconds of a row, of one operation or of a start; 0 where it tells of none."""
    return row.get("cpu_us") or row.get("cpu_ms", 0) * 1000


def write_record(name: str, record: dict) -> Path:
    """Write a record as `<name>.json` into the folder of results."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def stamp() -> str:
    """Return the moment in a form for file names."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime())
