"""What is measured, as records: one window of load, and percentiles of what was seen in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass


def percentiles(ordered: Sequence[float]) -> dict[str, float]:
    """Pick p50, p95 and p99 of values in µs that are already in order."""
    last = len(ordered) - 1
    return {f"p{percent}_us": round(ordered[last * percent // 100], 3) for percent in (50, 95, 99)}


@dataclass(frozen=True)
class Window:
    """Load over some seconds: how many operations, at what CPU each, how long they took."""

    operations: int
    seconds: float
    cpu_us: float
    p50_us: float
    p95_us: float
    p99_us: float
    rss_mib: float
    answer_bytes: int = 0

    def row(self) -> dict[str, float]:
        """Return the window as plain numbers."""
        row = asdict(self)
        row["per_s"] = round(self.operations / self.seconds, 1)
        row["seconds"] = round(self.seconds, 3)
        row["cpu_us"] = round(self.cpu_us, 3)
        return row
