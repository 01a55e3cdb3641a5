"""What Ferrule must reach: each floor as a figure of a run and the limit it is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from bench.contestants import FERRULE
from bench.core_ops import PARTS, Part
from bench.messages import Era
from bench.results import Results
from bench.scenarios import COLD_CASE, case_name

BEST_PEER = "the best peer"

ONE, MANY = case_name(Era.HANDSHAKE, 1), case_name(Era.HANDSHAKE, 64)


class OwnFigureMissing(Exception):
    """Ferrule was asked for a figure and gave none."""


@dataclass(frozen=True)
class Verdict:
    """One floor in one run: `met` is None where a peer's figure is missing."""

    text: str
    limit: float
    figure: float | None
    met: bool | None

    def row(self) -> dict:
        """Give the verdict as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Floor:
    """A figure and its limit; applies to runs of its scenario only."""

    scenario: str
    text: str
    limit: float
    figure: Callable[[Results], float | None]
    at_most: bool = False

    def judge(self, results: Results) -> Verdict:
        """Hold a run to the limit."""
        try:
            figure = self.figure(results)
        except OwnFigureMissing:
            return Verdict(self.text, self.limit, None, False)
        if figure is None:
            return Verdict(self.text, self.limit, None, None)
        met = figure <= self.limit if self.at_most else figure >= self.limit
        return Verdict(self.text, self.limit, round(figure, 2), met)


def _own(results: Results, scenario: str, case: str, name: str) -> float:
    best = results.best(scenario, case, FERRULE)
    if name not in best:
        raise OwnFigureMissing
    return best[name]


def _rival(results: Results, scenario: str, case: str, rival: str, name: str) -> float | None:
    if rival == BEST_PEER:
        return results.best_peer(scenario, case, name)
    return results.best(scenario, case, rival).get(name)


def _times(scenario: str, case: str, rival: str, limit: float, what: str) -> Floor:
    """Ask that a rival's CPU per operation is at least so many times ours."""

    def figure(results: Results) -> float | None:
        own, other = _own(results, scenario, case, "cpu_us"), _rival(results, scenario, case, rival, "cpu_us")
        return None if other is None else other / own

    return Floor(scenario, f"{what}: CPU of {rival}, times ours", limit, figure)


def _cold_share(rival: str, limit: float) -> Floor:
    def figure(results: Results) -> float | None:
        own, other = _own(results, "cold", COLD_CASE, "cpu_ms"), _rival(results, "cold", COLD_CASE, rival, "cpu_ms")
        return None if other is None else own / other * 100

    return Floor("cold", f"cold start: our CPU, % of {rival}", limit, figure, at_most=True)


def _cold_memory(limit: float) -> Floor:
    text = "cold start: resident MiB"
    return Floor("cold", text, limit, lambda results: _own(results, "cold", COLD_CASE, "rss_mib"), at_most=True)


def _rate(part: Part) -> Floor:
    text = f"{part.name}, per s ({part.seed})"
    return Floor("core_ops", text, part.floor, lambda results: _own(results, "core_ops", part.name, "per_s"))


FLOORS = (
    _times("call", MANY, "mcp-2.3.0", 45, "stdio call, 64 in flight"),
    _times("call", MANY, "ts-sdk-1.32.2", 1.5, "stdio call, 64 in flight"),
    _times("call", ONE, "mcp-2.3.0", 9, "stdio call, 1 in flight"),
    _times("call", ONE, "ts-sdk-1.32.2", 1, "stdio call, 1 in flight"),
    _times("list", ONE, BEST_PEER, 60, "list of 1000 tools"),
    _cold_share("mcp-1.30.0", 30),
    _cold_memory(30),
    _times("memory", "x1", "mcp-2.3.0", 25, "in memory, 1 in flight"),
    _times("memory", "x64", "mcp-2.3.0", 25, "in memory, 64 in flight"),
    *(_rate(part) for part in PARTS),
)


def judge(results: Results, scenarios: list[str]) -> list[Verdict]:
    """Judge the floors of the scenarios that were run."""
    return [floor.judge(results) for floor in FLOORS if floor.scenario in scenarios]
