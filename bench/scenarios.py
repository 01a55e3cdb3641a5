"""What is measured: which requests, how many in flight, in which protocol generation, and in which order.

All servers of a group are started and warmed up first; then the rounds go through cases and contestants in turn, so
that a disturbance of the machine falls on everybody.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from bench.contestants import FERRULE, Contestant
from bench.core_ops import run_workload
from bench.figures import Window
from bench.memory import PairFailed, measure_pair
from bench.messages import LISTED_TOOLS, OPERATIONS, OWN_TOOLS, Era
from bench.results import Results
from bench.stdio import BadAnswer, Load, Server

BETWEEN_CASES = 0.15
"""Seconds of load before each window, for the caches."""

COLD_CASE = "exec to initialize"
FAILURES = (BadAnswer, PairFailed, OSError, TimeoutError, ValueError, KeyError, subprocess.SubprocessError)


@dataclass(frozen=True)
class Pace:
    """How long and how often to measure."""

    rounds: int
    seconds: float
    warm_up: float


@dataclass(frozen=True)
class LoadScenario:
    """One operation over stdio."""

    name: str
    eras: tuple[Era, ...]
    in_flight: tuple[int, ...]
    extra_tools: int = 0


LOADS = (
    LoadScenario("call", (Era.HANDSHAKE, Era.STATELESS), (1, 64)),
    LoadScenario("call_sync", (Era.HANDSHAKE,), (64,)),
    LoadScenario("echo", (Era.HANDSHAKE,), (64,)),
    LoadScenario("list", (Era.HANDSHAKE,), (1,), LISTED_TOOLS - OWN_TOOLS),
)
STDIO = (*(load.name for load in LOADS), "cold")


def case_name(era: Era, in_flight: int) -> str:
    """Name a case of a load scenario."""
    return f"{era} x{in_flight}"


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_loads(names: list[str], field: list[Contestant], pace: Pace, results: Results) -> None:
    """Run the load scenarios, those that can share their servers together."""
    wanted = [load for load in LOADS if load.name in names]
    groups = dict.fromkeys((load.extra_tools, era) for load in wanted for era in load.eras)
    for extra_tools, era in groups:
        loads = [load for load in wanted if load.extra_tools == extra_tools and era in load.eras]
        speakers = [contestant for contestant in field if era in contestant.eras]
        _run_group(loads, era, speakers, pace, results)


class Group:
    """Servers that speak one era and offer the same tools, under load in turn."""

    def __init__(self, era: Era, pace: Pace, results: Results) -> None:
        self._era = era
        self._pace = pace
        self._results = results
        self._servers: dict[str, Server] = {}

    def start(self, contestant: Contestant, load: LoadScenario) -> None:
        """Start a contestant's server and warm it up; one that fails takes no part."""
        _progress(f"{contestant.name} {self._era}: start and warm-up")
        try:
            server = Server(contestant, self._era, load.extra_tools)
        except FAILURES as error:
            self._results.fail(f"{contestant.name} {self._era}", error)
            return
        self._servers[contestant.name] = server
        self._attempt(contestant.name, load, max(load.in_flight), 0.0, self._pace.warm_up)

    def measure(self, load: LoadScenario, in_flight: int, round_number: int) -> None:
        """Measure one case of everybody."""
        case = case_name(self._era, in_flight)
        _progress(f"{load.name} {case}: round {round_number}")
        for name in list(self._servers):
            window = self._attempt(name, load, in_flight, self._pace.seconds, BETWEEN_CASES)
            if window is not None:
                self._results.add(load.name, case, name, round_number, window.row())

    def _attempt(self, name: str, load: LoadScenario, in_flight: int, seconds: float, warm_up: float) -> Window | None:
        """Put load on a server; one that fails is ended, for what it still says would fit no later request."""
        try:
            return Load(self._servers[name], OPERATIONS[load.name], in_flight).run(seconds, warm_up)
        except FAILURES as error:
            self._results.fail(f"{name} {load.name} {case_name(self._era, in_flight)}", error)
            self._servers.pop(name).close()
            return None

    def close(self) -> None:
        """End every server."""
        for server in self._servers.values():
            server.close()


def _run_group(loads: list[LoadScenario], era: Era, field: list[Contestant], pace: Pace, results: Results) -> None:
    group = Group(era, pace, results)
    try:
        for contestant in field:
            group.start(contestant, loads[0])
        for round_number in range(1, pace.rounds + 1):
            for load in loads:
                for in_flight in load.in_flight:
                    group.measure(load, in_flight, round_number)
    finally:
        group.close()


def run_cold(field: list[Contestant], pace: Pace, results: Results) -> None:
    """Start each server afresh and let it answer one initialize."""
    for round_number in range(1, pace.rounds + 1):
        _progress(f"cold: round {round_number}")
        for contestant in field:
            try:
                server = Server(contestant, Era.HANDSHAKE)
            except FAILURES as error:
                results.fail(f"{contestant.name} cold", error)
                continue
            server.close()
            row = {
                "start_ms": round(server.start_ms, 1),
                "cpu_ms": round(server.start_cpu_ms, 1),
                "rss_mib": server.start_rss_mib,
            }
            results.add("cold", COLD_CASE, contestant.name, round_number, row)


def run_memory(field: list[Contestant], pace: Pace, results: Results) -> None:
    """Let each client call its own server in one process."""
    for round_number in range(1, pace.rounds + 1):
        _progress(f"memory: round {round_number}")
        for contestant in field:
            if contestant.pair is None:
                continue
            try:
                windows = measure_pair(contestant, pace.seconds, min(pace.warm_up, 0.5))
            except FAILURES as error:
                results.fail(f"{contestant.name} memory", error)
                continue
            for in_flight, row in windows.items():
                results.add("memory", f"x{in_flight}", contestant.name, round_number, row)


def run_core_ops(workload: str, results: Results) -> None:
    """Measure our own parts in this process."""
    _progress(workload)
    results.core_ops = run_workload(workload)
    for name, component in results.core_ops["components"].items():
        row = {
            "per_s": component["throughput_msg_per_s"],
            "cpu_us": round(1e6 / component["throughput_msg_per_s"], 3),
            **{f"p{p}_us": component[f"latency_p{p}_us"] for p in (50, 95, 99)},
        }
        results.add("core_ops", name, FERRULE, 1, row)
    results.failures += [f"core_ops {name}: {why}" for name, why in results.core_ops["left_out"].items()]
