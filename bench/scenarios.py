"""What is measured over stdio, in memory and in this process: which requests, how many in flight, in which era."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bench.contestants import (
    CONSTANT,
    FERRULE,
    OWN_INLINE,
    STDIO_FLOORS,
    TASK_FLOORS,
    Contestant,
    is_python,
    layered,
    routed,
)
from bench.core_ops import run_sustained, run_workload
from bench.memory import measure_pair
from bench.messages import ESCAPES, LISTED_TOOLS, OPERATIONS, OWN_TOOLS, SIZES, Era, Operation, echo_of
from bench.pipeline import Load
from bench.progress import ProgressLoad
from bench.results import Results
from bench.rounds import FAILURES, Case, Pace, progress, race
from bench.stdio import Server

COLD_CASE = "exec to initialize"
MANY_TOOLS = (1000, 10_000)
BOTH = (Era.HANDSHAKE, Era.STATELESS)
HANDSHAKE = (Era.HANDSHAKE,)


@dataclass(frozen=True)
class LoadScenario:
    """One operation over stdio; scenarios of the same group are asked of the same servers."""

    name: str
    eras: tuple[Era, ...]
    in_flight: tuple[int, ...]
    group: str = ""
    extra_tools: int = 0
    python_only: bool = False
    more: bool = False
    """Whether the servers offer the further tools, and take large messages."""
    floors: tuple[str, ...] = ()
    """Which of those take part that are not in every scenario: sketches, which have four tools, a resource and nothing
    else, and ourselves with plain functions in the loop."""
    operations: tuple[tuple[str, Operation], ...] = ()
    """What is asked for, each with the name of its case; without any, the operation of the scenario's name."""
    load: type[Load] = Load

    def cases(self, era: Era) -> list[Case[Server]]:
        """Return the rows of the table."""
        asked = self.operations or (("", OPERATIONS[self.name]),)
        return [self._case(era, *each, in_flight) for each in asked for in_flight in self.in_flight]

    def _case(self, era: Era, label: str, operation: Operation, in_flight: int) -> Case[Server]:
        return Case(self.name, case_name(era, in_flight, label), lambda server: self.load(server, operation, in_flight))


def _echoes(name: str, phrase: str) -> list[LoadScenario]:
    """Return echoes of every size; the largest is a group of its own, for not every server takes it."""
    made = [(label, echo_of(size, phrase)) for label, size in SIZES.items()]
    return [
        LoadScenario(name, HANDSHAKE, (1,), "sizes", more=True, floors=STDIO_FLOORS, operations=tuple(made[:-1])),
        LoadScenario(name, HANDSHAKE, (1,), name, more=True, operations=tuple(made[-1:])),
    ]


LOADS = (
    LoadScenario("call", BOTH, (1, 2, 4, 64), floors=STDIO_FLOORS),
    LoadScenario("call_sync", HANDSHAKE, (1, 64), "plain functions", floors=(*STDIO_FLOORS, OWN_INLINE)),
    LoadScenario("echo", HANDSHAKE, (64,), floors=STDIO_FLOORS),
    LoadScenario("search", HANDSHAKE, (1, 64), "search", python_only=True),
    LoadScenario("list", HANDSHAKE, (1,), "long list", LISTED_TOOLS - OWN_TOOLS, floors=STDIO_FLOORS),
    LoadScenario("unknown", HANDSHAKE, (1, 64), "unknown", LISTED_TOOLS - OWN_TOOLS),
    LoadScenario("read", HANDSHAKE, (1, 64), "read", more=True, floors=STDIO_FLOORS),
    LoadScenario("records", HANDSHAKE, (1,), "more", more=True),
    LoadScenario("records_null", HANDSHAKE, (1,), "more", more=True),
    LoadScenario("wait", HANDSHAKE, (1, 64, 1024), "wait", more=True, floors=TASK_FLOORS),
    # Not every server keeps the order of many calls at once: two groups, so that it has its figure for one.
    LoadScenario("progress", HANDSHAKE, (1,), "progress", more=True, load=ProgressLoad),
    LoadScenario("progress", HANDSHAKE, (16,), "progress of many", more=True, load=ProgressLoad),
    *_echoes("echo_large", "x"),
    *_echoes("echo_escapes", ESCAPES),
)
STDIO = (*dict.fromkeys(load.name for load in LOADS), "cold", "cold_tools")
IN_MEMORY = {"memory": "call", "search_memory": "search", "middleware": "call", "routed": "call"}
"""What a client asks of its own server in one process."""


def case_name(era: Era, in_flight: int, label: str = "") -> str:
    """Name a case of a load scenario."""
    return f"{era} {label} x{in_flight}" if label else f"{era} x{in_flight}"


def run_loads(names: list[str], field: list[Contestant], pace: Pace, results: Results) -> None:
    """Run the load scenarios, those that can share their servers together."""
    wanted = [load for load in LOADS if load.name in names]
    for group, era in dict.fromkeys((load.group, era) for load in wanted for era in load.eras):
        loads = [load for load in wanted if load.group == group and era in load.eras]
        first = loads[0]
        speakers = [contestant for contestant in field if era in contestant.eras]
        if first.python_only:
            speakers = [one for one in speakers if is_python(one.name) and one.name not in (*STDIO_FLOORS, CONSTANT)]
        speakers = [one for one in speakers if one.name in first.floors or one.name not in (*STDIO_FLOORS, OWN_INLINE)]
        cases = [case for load in loads for case in load.cases(era)]
        start = partial(Server, era=era, extra_tools=first.extra_tools, more=first.more)
        race(speakers, start, cases, pace, results)


def run_cold(names: list[str], field: list[Contestant], pace: Pace, results: Results) -> None:
    """Start each server afresh, with its usual tools and with many, and let it answer one initialize."""
    field = [one for one in field if one.name != OWN_INLINE]
    cases = []
    if "cold" in names:
        cases.append(("cold", COLD_CASE, 0))
    if "cold_tools" in names:
        cases += [("cold_tools", f"{count} tools", count - OWN_TOOLS) for count in MANY_TOOLS]
    for scenario, case, extra_tools in cases:
        # The slowest peers take most of a minute to start with 10,000 tools.
        rounds = 1 if extra_tools > LISTED_TOOLS else pace.rounds
        for round_number in range(1, rounds + 1):
            progress(f"{scenario} {case}: round {round_number}")
            for contestant in field:
                try:
                    row = start_once(contestant, extra_tools)
                except FAILURES as error:
                    results.fail(f"{contestant.name} {scenario} {case}", error)
                    continue
                results.add(scenario, case, contestant.name, round_number, row)


def start_once(contestant: Contestant, extra_tools: int) -> dict:
    """Start a server, let it answer one initialize, and end it."""
    server = Server(contestant, Era.HANDSHAKE, extra_tools)
    server.close()
    return {
        "start_ms": round(server.start_ms, 1),
        "cpu_ms": round(server.start_cpu_ms, 1),
        "rss_mib": server.start_rss_mib,
    }


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
