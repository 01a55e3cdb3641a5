"""Measure how cost grows: with tools, idle sessions, connections, calls in flight, message size and subscribers.

    python -m bench.scale [--sweep tools,size] [--only ferrule,rmcp] [--native] [--quick]
    python -m bench.scale --from bench/results/NAME.json

Writes the curves as one page, `bench/results/NAME.html`, and what they are made of beside it as JSON; `--from` draws
the page of such a file again. Without a choice Ferrule is measured, and those peers in Rust and Go that are built;
`--native` builds them first, and `--only` names others (ts-, mcp-2, …). All of it takes some ten minutes for each
contestant, `--quick` one. The least of all rounds is drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import shorten

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.contestants import (
    FERRULE,
    YARDSTICKS,
    Contestant,
    asked_for_native,
    chosen_by,
    contestants,
    http_contestants,
    native_contestants,
)
from bench.figures import Window
from bench.machine import GENERATOR_CORE, allow_many_sockets, cpu_seconds, environment, pin, resident_mib
from bench.messages import OPERATIONS, OWN_TOOLS, Era, echo_of, list_of
from bench.page import page
from bench.peers import install
from bench.pipeline import Load
from bench.places import PROJECT
from bench.plot import Chart, Points, size_word
from bench.process import time_limit
from bench.results import FOLDER, Results, stamp, write_record
from bench.rounds import FAILURES, Pace, progress
from bench.stdio import Server
from bench.streamable.fanout import FanOut, StreamingServer
from bench.streamable.lives import Exchanges
from bench.streamable.load import HttpLoad
from bench.streamable.server import HttpServer
from bench.streamable.wire import Mode

FULL = Pace(rounds=3, seconds=0.6, warm_up=1.0)
QUICK = Pace(rounds=1, seconds=0.15, warm_up=0.2)
CONNECTIONS = 32
IN_FLIGHT = 64
OPENING_LIMIT = 600.0
LONGEST_REASON = 200

CPU_OF_A_CALL = "CPU µs a call"
SESSION, STATELESS = "HTTP, 2025-11-25 with sessions", "HTTP, 2026-07-28"

Figure = tuple[str, float, float]
"""The key of a chart, where on its x axis, and how much."""

Measuring = Callable[[Contestant, tuple[int, ...], Pace], Iterator[Figure]]


def sweep_tools(contestant: Contestant, steps: tuple[int, ...], pace: Pace) -> Iterator[Figure]:
    """Start with more and more tools; list them, and call one."""
    for count in steps:
        server = Server(contestant, Era.HANDSHAKE, count)
        try:
            yield "tools_start", count, server.start_cpu_ms
            yield "tools_memory", count, server.start_rss_mib
            call = Load(server, OPERATIONS["call"], IN_FLIGHT).run(pace.seconds, pace.warm_up)
            yield "tools_call", count, call.cpu_us
            if count:
                listing = list_of(OWN_TOOLS + count)
                yield "tools_list", count, Load(server, listing, 1).run(pace.seconds, pace.warm_up).cpu_us
        finally:
            server.close()


def sweep_sessions(contestant: Contestant, steps: tuple[int, ...], pace: Pace) -> Iterator[Figure]:
    """Open more and more sessions, leave them idle, and call in some others."""
    server = HttpServer(contestant, Mode.JSON)
    try:
        HttpLoad(server, OPERATIONS["call"], CONNECTIONS).run(0.0, pace.warm_up)
        held = 0
        for count in steps:
            cpu = cpu_seconds(server.pid)
            with time_limit(OPENING_LIMIT):
                server.sessions(CONNECTIONS + count)
            if count:
                yield "sessions_open", count, (cpu_seconds(server.pid) - cpu) / (count - held) * 1e6
            held = count
            yield "sessions_memory", count, resident_mib(server.pid)
            call = HttpLoad(server, OPERATIONS["call"], CONNECTIONS).run(pace.seconds, pace.warm_up)
            yield "sessions_call", count, call.cpu_us
    finally:
        server.close()


def sweep_connections(contestant: Contestant, steps: tuple[int, ...], pace: Pace) -> Iterator[Figure]:
    """Call over more and more connections, each with one request at a time."""
    for mode, key in ((Mode.JSON, "session"), (Mode.STATELESS, "stateless")):
        if mode.era not in contestant.eras:
            continue
        server = HttpServer(contestant, mode)
        try:
            HttpLoad(server, OPERATIONS["call"], CONNECTIONS).run(0.0, pace.warm_up)
            for count in steps:
                call = HttpLoad(server, OPERATIONS["call"], count).run(pace.seconds, pace.warm_up)
                yield f"connections_{key}", count, call.cpu_us
                yield f"connections_{key}_rate", count, _rate(call)
        finally:
            server.close()


def sweep_in_flight(contestant: Contestant, steps: tuple[int, ...], pace: Pace) -> Iterator[Figure]:
    """Call over stdio with more and more calls in flight."""
    server = Server(contestant, Era.HANDSHAKE)
    try:
        Load(server, OPERATIONS["call"], IN_FLIGHT).run(0.0, pace.warm_up)
        for count in steps:
            call = Load(server, OPERATIONS["call"], count).run(pace.seconds, pace.warm_up)
            yield "in_flight_cpu", count, call.cpu_us
            yield "in_flight_rate", count, _rate(call)
    finally:
        server.close()


def sweep_size(contestant: Contestant, steps: tuple[int, ...], pace: Pace) -> Iterator[Figure]:
    """Echo larger and larger texts over stdio, one by one."""
    server = Server(contestant, Era.HANDSHAKE, more=True)
    try:
        for size in steps:
            yield "size_stdio", size, Load(server, echo_of(size), 1).run(pace.seconds, pace.warm_up).cpu_us
    finally:
        server.close()


def sweep_http_size(contestant: Contestant, steps: tuple[int, ...], pace: Pace) -> Iterator[Figure]:
    """Echo larger and larger texts over HTTP, one by one."""
    server = HttpServer(contestant, Mode.JSON, more=True)
    try:
        for size in steps:
            yield "size_http", size, Exchanges(server, echo_of(size)).run(pace.seconds, pace.warm_up).cpu_us
    finally:
        server.close()


def sweep_subscribers(contestant: Contestant, steps: tuple[int, ...], pace: Pace) -> Iterator[Figure]:
    """Tell more and more open streams of an update."""
    if not contestant.listened_to(Mode.STATELESS.era):
        return
    for count in steps:
        server = StreamingServer(contestant, Mode.STATELESS, count)
        try:
            update = FanOut(server).run(pace.seconds, pace.warm_up)
            yield "subscribers_cpu", count, update.cpu_us
            yield "subscribers_last", count, update.p50_us / 1e3
            yield "subscribers_memory", count, update.rss_mib
        finally:
            server.close()


def _rate(window: Window) -> float:
    return window.operations / window.seconds


@dataclass(frozen=True)
class Sweep:
    """Something that grows: how far, over what, and the charts it fills."""

    name: str
    heading: str
    measure: Measuring
    steps: tuple[int, ...]
    quick_steps: tuple[int, ...]
    charts: tuple[Chart, ...]
    over_http: bool = False


_sizes = partial(Chart, x_title="size of the text", y_title=CPU_OF_A_CALL, x_word=size_word)

SWEEPS = (
    Sweep(
        "tools",
        "Tools that are registered",
        sweep_tools,
        (0, 10, 100, 1000, 10_000),
        (0, 100, 1000),
        (
            Chart("tools_start", "Start, until the first answer", "extra tools", "CPU ms"),
            Chart("tools_memory", "Memory after the start", "extra tools", "MiB resident"),
            Chart("tools_list", "tools/list of all, stdio", "extra tools", "CPU µs a list"),
            Chart("tools_call", "tools/call, stdio, 64 in flight", "extra tools", CPU_OF_A_CALL),
        ),
    ),
    Sweep(
        "in_flight",
        "Calls in flight",
        sweep_in_flight,
        (1, 2, 4, 16, 64, 256, 1024),
        (1, 16, 256),
        (
            Chart("in_flight_cpu", "tools/call, stdio", "calls in flight", CPU_OF_A_CALL),
            Chart("in_flight_rate", "tools/call, stdio", "calls in flight", "answers a second", more_is_better=True),
        ),
    ),
    Sweep(
        "connections",
        "Connections",
        sweep_connections,
        (1, 4, 16, 64, 256, 1024),
        (1, 16, 256),
        (
            Chart("connections_session", SESSION, "connections", CPU_OF_A_CALL),
            Chart("connections_session_rate", SESSION, "connections", "answers a second", more_is_better=True),
            Chart("connections_stateless", STATELESS, "connections", CPU_OF_A_CALL),
            Chart("connections_stateless_rate", STATELESS, "connections", "answers a second", more_is_better=True),
        ),
        over_http=True,
    ),
    Sweep(
        "size",
        "Message size",
        sweep_size,
        (100, 1000, 10_000, 100_000, 1_000_000, 10_000_000),
        (100, 10_000, 1_000_000),
        (_sizes("size_stdio", "A text and back, stdio"),),
    ),
    Sweep(
        "http_size",
        "Message size over HTTP",
        sweep_http_size,
        (100, 1000, 10_000, 100_000, 1_000_000, 10_000_000),
        (100, 10_000, 1_000_000),
        (_sizes("size_http", "A text and back, HTTP with a session"),),
        over_http=True,
    ),
    Sweep(
        "sessions",
        "Idle sessions",
        sweep_sessions,
        (0, 100, 1000, 10_000),
        (0, 100, 1000),
        (
            Chart("sessions_call", "tools/call of 32 others", "idle sessions", CPU_OF_A_CALL),
            Chart("sessions_open", "Opening one", "idle sessions", "CPU µs a session"),
            Chart("sessions_memory", "Memory", "idle sessions", "MiB resident"),
        ),
        over_http=True,
    ),
    Sweep(
        "subscribers",
        "Subscribers",
        sweep_subscribers,
        (10, 100, 1000, 4000),
        (10, 100, 1000),
        (
            Chart("subscribers_last", "An update, until the last has heard", "open streams", "ms"),
            Chart("subscribers_cpu", "An update, for each stream", "open streams", "CPU µs a delivery"),
            Chart("subscribers_memory", "Memory", "open streams", "MiB resident"),
        ),
        over_http=True,
    ),
)
TOGETHER = {"Message size over HTTP": "Message size"}
"""Sweeps that share a heading."""


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [sweep.name for sweep in SWEEPS]
    parser.add_argument("--sweep", default=",".join(names), help=f"which of {', '.join(names)}, with commas between")
    parser.add_argument("--only", default="", help="which contestants, by how their names begin")
    parser.add_argument("--native", action="store_true", help="build the peers in Rust and Go first")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="fewer steps, one short round")
    parser.add_argument("--name", default=f"scale_{stamp()}", help="name of the files under bench/results")
    parser.add_argument("--from", dest="record", type=Path, help="draw the page of a run that was kept")
    chosen = parser.parse_args()
    chosen.sweep = [name for name in chosen.sweep.split(",") if name]
    chosen.only = [name for name in chosen.only.split(",") if name]
    unknown = [name for name in chosen.sweep if name not in names]
    if unknown:
        parser.error(f"no sweep named {', '.join(unknown)}; there are {', '.join(names)}")
    return chosen


def field_of(everyone: list[Contestant], only: list[str], *, native: bool) -> list[Contestant]:
    """Choose who is measured: those that are named, else ourselves and the peers in Rust and Go that are built."""
    compiled = native_contestants()
    if native or asked_for_native(only):
        wanted = [one for one in compiled if chosen_by(only, one.name)]
        for peer, reason in install(one.peer for one in wanted if one.peer is not None).items():
            print(f"skipped: {peer.folder}: {reason}", file=sys.stderr)
    if only:
        everyone = [one for one in [*everyone, *compiled] if chosen_by(only, one.name)]
    else:
        everyone = [one for one in everyone if one.name == FERRULE] + compiled
    return [one for one in everyone if one.ready and one.name not in YARDSTICKS]


def measure(sweep: Sweep, field: list[Contestant], pace: Pace, steps: tuple[int, ...], results: Results) -> None:
    """Measure one sweep of everybody, in turn."""
    for round_number in range(1, pace.rounds + 1):
        for contestant in field:
            progress(f"{sweep.name}: {contestant.name}, round {round_number}")
            warm = replace(pace, warm_up=pace.warm_up * contestant.warm_up)
            try:
                for key, x, y in sweep.measure(contestant, steps, warm):
                    results.add(sweep.name, key, contestant.name, round_number, {"x": x, "y": round(y, 3)})
            except FAILURES as error:
                results.fail(f"{contestant.name} {sweep.name}", error)


def curves(rows: list[dict], *, most: bool) -> dict[str, Points]:
    """Return the best of all rounds as lines by contestant, each in the order of its x axis."""
    best: dict[str, dict[float, float]] = {}
    for row in rows:
        line = best.setdefault(row["contestant"], {})
        choose = max if most else min
        line[row["x"]] = choose(line.get(row["x"], row["y"]), row["y"])
    return {name: sorted(line.items()) for name, line in best.items()}


def sections_of(rows: list[dict]) -> dict[str, list[Chart]]:
    """Return the charts that have lines, by heading."""
    sections: dict[str, list[Chart]] = {}
    for sweep in SWEEPS:
        for chart in sweep.charts:
            own = [row for row in rows if row["case"] == chart.key and row["y"] > 0]
            if own:
                drawn = replace(chart, lines=curves(own, most=chart.more_is_better))
                sections.setdefault(TOGETHER.get(sweep.heading, sweep.heading), []).append(drawn)
    return sections


def page_of(record: dict) -> str:
    """Return the page of a run."""
    machine = record["environment"]
    about = [
        "Processor time of the server alone, on one core; the load generator has another. Every answer is checked. "
        "Both axes are logarithmic; each point is the least of all rounds (of rates, the most).",
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python_version']}, revision "
        f"{machine['revision']}, {machine['date']}.",
    ]
    missing = [shorten(failure, LONGEST_REASON) for failure in record["failures"]]
    return page("How Ferrule grows", about, sections_of(record["rounds"]), missing)


def main() -> int:
    """Measure and draw, or draw again."""
    chosen = options()
    if chosen.record is not None:
        written = chosen.record.with_suffix(".html")
        written.write_text(page_of(json.loads(chosen.record.read_text())), encoding="utf-8")
        print(f"drawn in {written}")
        return 0
    pace = QUICK if chosen.quick else FULL
    if chosen.rounds is not None:
        pace = replace(pace, rounds=chosen.rounds)
    allow_many_sockets()
    pin(GENERATOR_CORE)
    results = Results()
    for sweep in [each for each in SWEEPS if each.name in chosen.sweep]:
        everyone = http_contestants() if sweep.over_http else contestants()
        field = field_of(everyone, chosen.only, native=chosen.native)
        measure(sweep, field, pace, sweep.quick_steps if chosen.quick else sweep.steps, results)
    record = {
        "benchmark": "scale",
        "timestamp": int(time.time()),
        "environment": environment(),
        "settings": {"rounds": pace.rounds, "seconds": pace.seconds, "warm_up": pace.warm_up, "only": chosen.only},
        "failures": results.failures,
        "rounds": results.rows,
    }
    kept = write_record(chosen.name, record)
    drawn = FOLDER / f"{chosen.name}.html"
    drawn.write_text(page_of(record), encoding="utf-8")
    for failure in results.failures:
        print(f"failed: {failure}", file=sys.stderr)
    print(f"kept in {kept.relative_to(PROJECT)}, drawn in {drawn.relative_to(PROJECT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
