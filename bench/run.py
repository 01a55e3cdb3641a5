"""Measure Ferrule beside its peers.

    python -m bench.run [--scenario call,list] [--only ferrule,mcp-2.3.0] [--native] [--readme] [--quick] [--check]
    python -m bench.run --before CHECKOUT [--scenario call,list] [--rounds 40 --seconds 0.1] [--starts 5]

Scenarios: call, call_sync, echo, search, list, unknown, read, records, records_null, wait, progress, echo_large,
echo_escapes, cold, cold_tools, which `stdio` means together; memory, search_memory, middleware, routed, watched (one
process); core_ops_1k … core_ops_1m, and core_ops_sustained for 30 s; tcp, ws, tcp_idle, which `sockets` means together;
and over HTTP http_call, http_sse, http_list, http_connect, http_life, http_echo, http_fanout, http_sessions,
http_client, which `http` means, and http_protected, calls with tokens, http_storm, bad tokens beside a good one,
http_workers, calls to two workers, and http_stores, calls of sessions in Redis.
Without a choice everything runs, with core_ops_100k, in about forty minutes; `--quick` takes about twelve, and its
figures are coarse. `--native` lets the peers in Rust and Go take part, which are built first where cargo and go are;
`--only` does so too where it names one. `--readme` measures what the table of README.md needs, and prints it.
`--before` measures another checkout of Ferrule in turn with this one, prints what became slower or faster, and exits
with 1 where an operation costs over 10 % more than before, by twice the error of the comparison. Each window is
compared with the one beside it, and the median of those ratios counts: on a machine with other guests many short
windows (`--rounds 40 --seconds 0.1`) tell more than few long ones. One process can be 5 % slower than the next by the
luck of its memory alone: `--starts 5` starts every server five times.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.contestants import (
    FERRULE,
    OWN_BEFORE,
    Contestant,
    asked_for_native,
    before,
    chosen_by,
    contestants,
    http_contestants,
    native_contestants,
)
from bench.core_ops import SUSTAINED, WORKLOADS
from bench.floors import Verdict, judge
from bench.machine import GENERATOR_CORE, PROJECT, environment, pin
from bench.peers import install
from bench.readme import SCENARIOS as README_SCENARIOS
from bench.readme import count_packages, readme_table
from bench.results import Results, cpu_of, stamp, write_record
from bench.rounds import Pace
from bench.scenarios import IN_MEMORY, STDIO, run_cold, run_core_ops, run_core_sustained, run_loads, run_memory
from bench.sockets.scenarios import SOCKETS, run_sockets, socket_field
from bench.streamable.protected import SCENARIO as PROTECTED
from bench.streamable.protected import run_protected
from bench.streamable.scenarios import HTTP, run_http
from bench.streamable.stored import SCENARIO as STORED
from bench.streamable.stored import run_stored
from bench.streamable.storm import SCENARIO as STORM
from bench.streamable.storm import run_storm
from bench.streamable.workers import SCENARIO as WORKERS
from bench.streamable.workers import run_workers
from bench.tables import report
from bench.watched import SCENARIO as WATCHED
from bench.watched import run_watched

GROUPS = {"stdio": STDIO, "http": HTTP, "sockets": SOCKETS}
DEFAULT_SCENARIOS = [*STDIO, *IN_MEMORY, *SOCKETS, *HTTP, PROTECTED, STORM, WORKERS, STORED, WATCHED, "core_ops_100k"]
ALL_SCENARIOS = [*STDIO, *IN_MEMORY, *SOCKETS, *HTTP, PROTECTED, STORM, WORKERS, STORED, WATCHED, *WORKLOADS, SUSTAINED]

BUDGET = 1.1
"""What one operation may cost, as a multiple of what it did before."""
SURE = 2
"""How many times its error a ratio must lie above the budget to count: a busy machine makes some that only seem to."""
FULL = Pace(rounds=3, seconds=1.0, warm_up=2.0)
QUICK = Pace(rounds=1, seconds=0.25, warm_up=0.3)


@dataclass(frozen=True)
class Choice:
    """What is measured, of whom, and how long."""

    scenarios: list[str]
    pace: Pace
    only: list[str] = field(default_factory=list)
    native: bool = False
    earlier: Path | None = None


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help="the same as --scenario")
    parser.add_argument("--scenario", type=_words, default=[], help="which scenarios, with commas between")
    parser.add_argument("--only", type=_words, default=[], help="which contestants, by how their names begin")
    parser.add_argument("--native", action="store_true", help="let the peers in Rust and Go take part")
    parser.add_argument("--readme", action="store_true", help="print the table of README.md; measures just that")
    parser.add_argument("--before", type=Path, help="another checkout of this project to compare with")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--starts", type=int, default=1, help="how often all servers are started anew")
    parser.add_argument("--seconds", type=float, help="length of one window")
    parser.add_argument("--warm-up", type=float, help="seconds of load before the first window of a server")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a floor is missed")
    parser.add_argument("--name", default=f"bench_{stamp()}", help="name of the file under bench/results")
    chosen = parser.parse_args()
    usual = README_SCENARIOS if chosen.readme else DEFAULT_SCENARIOS
    named = [*chosen.scenarios, *chosen.scenario] or usual
    chosen.scenarios = [each for name in named for each in GROUPS.get(name, [name])]
    unknown = [name for name in chosen.scenarios if name not in ALL_SCENARIOS]
    if unknown:
        parser.error(f"no scenario named {', '.join(unknown)}; there are {', '.join(ALL_SCENARIOS)}")
    return chosen


def pace_of(chosen: argparse.Namespace) -> Pace:
    """Return how long to measure: the preset, where nothing else was asked for."""
    preset = QUICK if chosen.quick else FULL
    return Pace(
        preset.rounds if chosen.rounds is None else chosen.rounds,
        preset.seconds if chosen.seconds is None else chosen.seconds,
        preset.warm_up if chosen.warm_up is None else chosen.warm_up,
    )


def field_of(everyone: list[Contestant], choice: Choice) -> list[Contestant]:
    """Choose the contestants that take part; one that cannot be had is named, with the reason, and left out."""
    added = [] if choice.earlier is None else [before(choice.earlier)]
    if choice.native or asked_for_native(choice.only):
        everyone = [*everyone, *native_contestants()]
    field = [one for one in [*added, *everyone] if chosen_by(choice.only, one.name)]
    reasons = install(one.peer for one in field if one.peer is not None)
    for absent in [one for one in field if not one.ready]:
        print(f"skipped: {absent.name}: {reasons.get(absent.peer, 'it is not installed')}", file=sys.stderr)
    return [one for one in field if one.ready]


def measure(choice: Choice, results: Results) -> None:
    """Run the scenarios once, with servers started for it."""
    scenarios, pace = choice.scenarios, choice.pace
    if any(name in scenarios for name in (*STDIO, *IN_MEMORY, *SOCKETS)):
        field = field_of(contestants(), choice)
        run_loads(scenarios, field, pace, results)
        run_cold(scenarios, field, pace, results)
        run_memory(scenarios, field, pace, results)
        run_sockets(scenarios, socket_field(field), pace, results)
    if any(name in scenarios for name in HTTP):
        run_http(scenarios, field_of(http_contestants(), choice), pace, results)
    if PROTECTED in scenarios:
        run_protected(pace, results)
    if WORKERS in scenarios:
        run_workers(pace, results)
    if STORED in scenarios:
        run_stored(pace, results)
    if STORM in scenarios:
        run_storm(pace, results)
    if WATCHED in scenarios:
        run_watched(results)
    for workload in [name for name in scenarios if name in WORKLOADS]:
        run_core_ops(workload, results)
    if SUSTAINED in scenarios:
        run_core_sustained(results)


def judged(scenarios: list[str], only: list[str]) -> list[str]:
    """Return which scenarios have floors in this run: those that Ferrule took part in."""
    families = ["core_ops" if name in WORKLOADS else name for name in scenarios]
    present = not only or FERRULE.startswith(tuple(only))
    return [family for family in families if present or family == "core_ops"]


def compared(results: Results) -> str:
    """Return a table of what one operation costs now beside what it cost before, with the error of the comparison."""
    lines = ["", "| scenario | case | before, µs | now, µs | now / before | ± |", "|---|---|---|---|---|---|"]
    for scenario, case in results.cases():
        found = results.ratio(scenario, case, FERRULE, OWN_BEFORE)
        if found is not None:
            was = cpu_of(results.best(scenario, case, OWN_BEFORE))
            now = cpu_of(results.best(scenario, case, FERRULE))
            ratio = f"{found.median:.3f} | {found.error:.3f}"
            lines.append(f"| {scenario} | {case} | {was:.2f} | {now:.2f} | {ratio} |")
    return "\n".join(lines)


def regressions(results: Results) -> tuple[list[str], list[str]]:
    """Return what costs more than before by over the budget: what surely does, and what only seems to."""
    sure, doubtful = [], []
    for scenario, case in results.cases():
        ratio = results.ratio(scenario, case, FERRULE, OWN_BEFORE)
        if ratio is None or ratio.median <= BUDGET:
            continue
        told = f"{scenario} {case}: {ratio.median:.3f} times what it was before, ± {ratio.error:.3f}"
        if ratio.median - SURE * ratio.error > BUDGET:
            sure.append(told)
        else:
            doubtful.append(told)
    return sure, doubtful


def record_of(chosen: argparse.Namespace, pace: Pace, results: Results, verdicts: list[Verdict]) -> dict:
    """Return everything worth keeping of a run."""
    return {
        "workload_id": "+".join(chosen.scenarios),
        "benchmark": "side_by_side",
        "timestamp": int(time.time()),
        "environment": environment(),
        "settings": {"rounds": pace.rounds, "seconds": pace.seconds, "warm_up": pace.warm_up, "only": chosen.only},
        "best": results.summary(),
        "floors": [verdict.row() for verdict in verdicts],
        "failures": results.failures,
        "rounds": results.rows,
    }


def main() -> int:
    """Measure, print, keep; 1 for a floor that is missed with `--check`, or a regression since `--before`."""
    chosen = options()
    pace = pace_of(chosen)
    sys.path.insert(0, str(PROJECT / "src"))
    pin(GENERATOR_CORE)
    results = Results()
    choice = Choice(chosen.scenarios, pace, chosen.only, chosen.native, chosen.before)
    for _ in range(chosen.starts):
        measure(choice, results)
    verdicts = judge(results, judged(chosen.scenarios, chosen.only))
    # First of all it is kept: whatever cannot be shown, an hour of measuring is not lost.
    kept = [write_record(chosen.name, record_of(chosen, pace, results, verdicts))]
    print(report(results, verdicts))
    if chosen.before is not None:
        print(compared(results))
    if chosen.readme:
        print("\n" + readme_table(results, count_packages()))
    for record in (results.core_ops, results.sustained):
        if record is not None:
            kept.append(write_record(f"{record['workload_id']}_{stamp()}", record))
    print("\n" + "\n".join(f"kept in {path.relative_to(PROJECT)}" for path in kept))
    slower, doubtful = regressions(results)
    for each in doubtful:
        print(f"doubtful, measure it longer: {each}", file=sys.stderr)
    for each in slower:
        print(f"regression: {each}", file=sys.stderr)
    missed = chosen.check and any(verdict.met is False for verdict in verdicts)
    return 1 if missed or slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
