"""How contestants take turns: all servers are started and warmed up first, then the rounds go through the cases.

Within a case everybody is measured right after the other, so that a disturbance of the machine falls on all of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from bench.contestants import Contestant
from bench.figures import Window
from bench.memory import PairFailed
from bench.process import BadAnswer
from bench.results import Results

BETWEEN_CASES = 0.15
"""Seconds of load before each window, for the caches; a short window has no more before it than itself."""

FAILURES = (BadAnswer, PairFailed, OSError, TimeoutError, ValueError, KeyError, subprocess.SubprocessError)


@dataclass(frozen=True)
class Pace:
    """How long and how often to measure."""

    rounds: int
    seconds: float
    warm_up: float


class Running(Protocol):
    """A contestant's server that can be put under load."""

    def close(self) -> None:
        """End it."""


class Loading(Protocol):
    """Something that puts load on a server."""

    def run(self, seconds: float, warm_up: float) -> Window:
        """Warm up and measure a window."""


R = TypeVar("R", bound=Running)


@dataclass(frozen=True)
class Case(Generic[R]):
    """One row of a table: the scenario it belongs to, its name, and the load."""

    scenario: str
    name: str
    load: Callable[[R], Loading]


def progress(text: str) -> None:
    """Tell the one who waits how far we are."""
    print(text, file=sys.stderr, flush=True)


def race(
    field: list[Contestant], start: Callable[[Contestant], R], cases: list[Case[R]], pace: Pace, results: Results
) -> None:
    """Start everybody's server, and measure every case of everybody in each round."""
    group = Group(cases, pace, results)
    try:
        for contestant in field:
            group.start(contestant, start, pace.warm_up * contestant.warm_up)
        for round_number in range(1, pace.rounds + 1):
            for case in cases:
                group.measure(case, round_number)
    finally:
        group.close()


class Group(Generic[R]):
    """Servers that serve alike, under load in turn."""

    def __init__(self, cases: list[Case[R]], pace: Pace, results: Results) -> None:
        self._warming = [case for case in cases if case.scenario == cases[0].scenario][-1]
        self._pace = pace
        self._results = results
        self._servers: dict[str, R] = {}

    def start(self, contestant: Contestant, start: Callable[[Contestant], R], warm_up: float) -> None:
        """Start a contestant's server and warm it up; one that fails takes no part."""
        case = self._warming
        progress(f"{contestant.name} {case.scenario} {case.name}: start and warm-up")
        try:
            self._servers[contestant.name] = start(contestant)
        except FAILURES as error:
            self._results.fail(f"{contestant.name} {case.scenario} {case.name}", error)
            return
        self._attempt(contestant.name, case, 0.0, warm_up)

    def measure(self, case: Case[R], round_number: int) -> None:
        """Measure one case of everybody."""
        progress(f"{case.scenario} {case.name}: round {round_number}")
        names = list(self._servers)
        if round_number % 2 == 0:
            # Whoever is always second is measured in the other's wake.
            names.reverse()
        warm_up = min(BETWEEN_CASES, self._pace.seconds)
        for name in names:
            window = self._attempt(name, case, self._pace.seconds, warm_up)
            if window is not None:
                self._results.add(case.scenario, case.name, name, round_number, window.row())

    def _attempt(self, name: str, case: Case[R], seconds: float, warm_up: float) -> Window | None:
        """Put load on a server; one that fails is ended, for what it still says would fit no later request."""
        try:
            return case.load(self._servers[name]).run(seconds, warm_up)
        except FAILURES as error:
            self._results.fail(f"{name} {case.scenario} {case.name}", error)
            self._servers.pop(name).close()
            return None

    def close(self) -> None:
        """End every server."""
        for server in self._servers.values():
            server.close()
