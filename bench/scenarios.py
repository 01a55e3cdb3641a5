"""What is measured over stdio, in memory and in this process: which requests, how many in flight, in which era."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bench.contestants import CONSTANT, FERRULE, SKETCH, Contestant, is_python, layered, routed
from bench.core_ops import run_sustained, run_workload
from bench.memory import measure_pair
from bench.messages import LISTED_TOOLS, OPERATIONS, OWN_TOOLS, Era, Operation
from bench.pipeline import Load
from bench.results import Results
from bench.rounds import FAILURES, Case, Pace, progress, race
from bench.stdio import Server

COLD_CASE = "exec to initialize"


@dataclass(frozen=True)
class LoadScenario:
    """One operation over stdio."""

    name: str
    eras: tuple[Era, ...]
    in_flight: tuple[int, ...]
    extra_tools: int = 0
    python_only: bool = False


LOADS = (
    LoadScenario("call", (Era.HANDSHAKE, Era.STATELESS), (1, 64)),
    LoadScenario("call_sync", (Era.HANDSHAKE,), (64,)),
    LoadScenario("echo", (Era.HANDSHAKE,), (64,)),
    LoadScenario("search", (Era.HANDSHAKE,), (1, 64), python_only=True),
    LoadScenario("list", (Era.HANDSHAKE,), (1,), LISTED_TOOLS - OWN_TOOLS),
)
STDIO = (*(load.name for load in LOADS), "cold")
IN_MEMORY = {"memory": "call", "search_memory": "search", "middleware": "call", "routed": "call"}
"""What a client asks of its own server in one process."""


def case_name(era: Era, in_flight: int) -> str:
    """Name a case of a load scenario."""
    return f"{era} x{in_flight}"


def run_loads(names: list[str], field: list[Contestant], pace: Pace, results: Results) -> None:
    """Run the load scenarios, those that can share their servers together."""
    wanted = [load for load in LOADS if load.name in names]
    groups = dict.fromkeys((load.extra_tools, load.python_only, era) for load in wanted for era in load.eras)
    for extra_tools, python_only, era in groups:
        kind = (extra_tools, python_only)
        loads = [load for load in wanted if (load.extra_tools, load.python_only) == kind and era in load.eras]
        speakers = [contestant for contestant in field if era in contestant.eras]
        if python_only:
            speakers = [one for one in speakers if is_python(one.name) and one.name not in (SKETCH, CONSTANT)]
        cases = [_case(load, era, in_flight) for load in loads for in_flight in load.in_flight]
        race(speakers, partial(Server, era=era, extra_tools=extra_tools), cases, pace, results)


def _case(load: LoadScenario, era: Era, in_flight: int) -> Case[Server]:
    operation = OPERATIONS[load.name]
    return Case(load.name, case_name(era, in_flight), lambda server: Load(server, operation, in_flight))


def run_cold(field: list[Contestant], pace: Pace, results: Results) -> None:
    """Start each server afresh and let it answer one initialize."""
    for round_number in range(1, pace.rounds + 1):
        progress(f"cold: round {round_number}")
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


def run_memory(names: list[str], field: list[Contestant], pace: Pace, results: Results) -> None:
    """Let each client call its own server in one process; middleware and routing are measured on ourselves alone."""
    ourselves = {"middleware": layered(), "routed": routed()}
    for name, operation in IN_MEMORY.items():
        if name in names:
            run_pairs(name, OPERATIONS[operation], ourselves.get(name, field), pace, results)


def run_pairs(
    scenario: str, operation: Operation, field: list[Contestant], pace: Pace, results: Results, url: str = ""
) -> None:
    """Let each client that has a driver call its own server, or the one at the URL."""
    for round_number in range(1, pace.rounds + 1):
        progress(f"{scenario}: round {round_number}")
        for contestant in field:
            if contestant.pair is None:
                continue
            try:
                windows = measure_pair(contestant, operation, pace.seconds, min(pace.warm_up, 0.5), url)
            except FAILURES as error:
                results.fail(f"{contestant.name} {scenario}", error)
                continue
            for in_flight, row in windows.items():
                results.add(scenario, f"x{in_flight}", contestant.name, round_number, row)


def run_core_ops(workload: str, results: Results) -> None:
    """Measure our own parts in this process."""
    progress(workload)
    results.core_ops = run_workload(workload)
    for name, component in results.core_ops["components"].items():
        row = {
            "per_s": component["throughput_msg_per_s"],
            "cpu_us": round(1e6 / component["throughput_msg_per_s"], 3),
            **{f"p{p}_us": component[f"latency_p{p}_us"] for p in (50, 95, 99)},
        }
        results.add("core_ops", name, FERRULE, 1, row)
    results.failures += [f"core_ops {name}: {why}" for name, why in results.core_ops["left_out"].items()]


def run_core_sustained(results: Results) -> None:
    """Let our own parts work for half a minute."""
    progress("core_ops_sustained: 30 s")
    results.sustained = run_sustained()
