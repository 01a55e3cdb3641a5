"""What it costs to be served by two workers: a call, beside the same call to one process, and a hand-over.

The load generator needs a core of its own, so that on a machine of two cores both workers share the other one. What is
compared is therefore the CPU time of a call, that of all processes of the server together. Workers share nothing but a
port, so that on two free cores the rate is twice that of one process, divided by how much more a call costs. It costs
more because each worker finds fewer requests in one turn of its loop, and because two processes share the caches here.

A connection that comes to a worker which does not have its session is handed over once. Half of all new connections do,
with two workers: what one request over a new connection costs more than with one process is half a hand-over.
"""

from __future__ import annotations

from dataclasses import replace

from bench.contestants import FERRULE, OWN_WORKERS, Contestant, ferrule
from bench.messages import OPERATIONS
from bench.results import Results
from bench.rounds import Case, Pace, race
from bench.streamable.lives import NewConnections
from bench.streamable.load import HttpLoad
from bench.streamable.server import HttpServer
from bench.streamable.wire import Mode

SCENARIO = "http_workers"
WORKERS = 2
CONNECTIONS = 64
CALL = f"{Mode.JSON.label} x{CONNECTIONS}"
FIRST_CALL = "new connection each"


def contestants() -> list[Contestant]:
    """Return ourselves as one process, and as two workers."""
    own = ferrule()
    return [own, replace(own, name=OWN_WORKERS, environment={**own.environment, "BENCH_WORKERS": str(WORKERS)})]


def run_workers(pace: Pace, results: Results) -> None:
    """Measure calls to one process and to two."""
    operation = OPERATIONS["call"]
    cases = [
        Case(SCENARIO, FIRST_CALL, lambda server: NewConnections(server, operation)),
        Case(SCENARIO, CALL, lambda server: HttpLoad(server, operation, CONNECTIONS)),
    ]
    race(contestants(), lambda contestant: HttpServer(contestant, Mode.JSON), cases, pace, results)


def rate(results: Results) -> float | None:
    """Return how many calls two workers answer on two free cores, as a multiple of what one process does on one."""
    found = results.ratio(SCENARIO, CALL, OWN_WORKERS, FERRULE)
    return None if found is None else WORKERS / found.median


def hand_over(results: Results) -> float | None:
    """Return what a hand-over costs in microseconds of CPU, of both workers together."""
    workers = results.best(SCENARIO, FIRST_CALL, OWN_WORKERS).get("cpu_us")
    alone = results.best(SCENARIO, FIRST_CALL, FERRULE).get("cpu_us")
    if workers is None or alone is None:
        return None
    # Of `WORKERS` workers one has the session: all others hand over.
    return (workers - alone) * WORKERS / (WORKERS - 1)
