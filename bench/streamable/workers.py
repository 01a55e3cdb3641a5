"""What it costs to be served by two workers: a call, beside the same call to one process, and a hand-over.

The question is how many calls two workers answer on two free cores. The load generator needs a core of its own, so on a
machine of two cores the workers cannot both have one at the same time. They do not need to: workers share nothing but a
port, so each is measured by itself. 64 clients are spread over the workers, 32 each. One worker in turn has the core of
the server and answers its 32 clients, while the other is idle. Beside it one process answers all 64. The rate of two
workers is the sum of both, each as a multiple of the rate of the one process, by the CPU time of a call. The time of
the overseer and of the idle worker counts too. What is not seen this way: two cores share memory and the last cache.

`together` has both workers on the server's core at once. It is kept in the record but not judged: two processes that
know nothing of each other cost as much more there as two workers do, for they take turns on one core and its caches.

The sessions must be spread on purpose. A worker keeps the sessions that were opened over its connections, and a
connection is handed over to the worker that has its session. Sessions that are opened over one connection are all of
one worker, and all their clients end up there.

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
from bench.streamable.wire import Address, Mode, connect

SCENARIO = "http_workers"
WORKERS = 2
CLIENTS = 64
FIRST_CALL = "new connection each"
TOGETHER = f"{Mode.JSON.label} x{CLIENTS}, together"


def alone(worker: int) -> str:
    """Return the name of the case of one worker."""
    return f"{Mode.JSON.label} x{CLIENTS}, worker {worker} alone"


def contestants() -> list[Contestant]:
    """Return ourselves as one process, and as two workers."""
    own = ferrule()
    return [own, replace(own, name=OWN_WORKERS, environment={**own.environment, "BENCH_WORKERS": str(WORKERS)})]


class SpreadServer(HttpServer):
    """A server whose sessions are spread evenly over its workers; one process counts as one worker."""

    def __init__(self, contestant: Contestant) -> None:
        self.workers = int(contestant.environment.get("BENCH_WORKERS", "1"))
        super().__init__(contestant, Mode.JSON)

    def sessions(self, count: int) -> list[Address]:
        """Return so many sessions, each of the next worker in turn."""
        found = self._in_turn()
        while len(found) < count:
            # The kernel chooses a worker for every new connection.
            with connect(self.port) as connection:
                self._sessions.append(self._open(connection))
            found = self._in_turn()
        return [Address(self.port, self.mode.era, session) for session in found[:count]]

    def _in_turn(self) -> list[bytes]:
        """Return the sessions that are there, each of the next worker in turn, without those that have no match."""
        owned = [self._owned_by(worker) for worker in range(self.workers)]
        return [session for turn in zip(*owned, strict=False) for session in turn]

    def _owned_by(self, worker: int) -> list[bytes]:
        if self.workers == 1:
            return self._sessions
        # The id of a session begins with the number of its worker.
        return [session for session in self._sessions if session.startswith(b"%d." % worker)]


class WorkerLoad(HttpLoad):
    """Calls to one worker by its share of the clients; one process has all of them."""

    def __init__(self, server: SpreadServer, worker: int) -> None:
        super().__init__(server, OPERATIONS["call"], CLIENTS // server.workers)
        self._workers = server.workers
        self._worker = worker % server.workers

    def addresses(self) -> list[Address]:
        """Return the sessions of that worker."""
        return self._server.sessions(CLIENTS)[self._worker :: self._workers]


def run_workers(pace: Pace, results: Results) -> None:
    """Measure calls to one process and to two."""
    operation = OPERATIONS["call"]
    cases = [
        Case(SCENARIO, FIRST_CALL, lambda server: NewConnections(server, operation)),
        *(_alone_case(worker) for worker in range(WORKERS)),
        # The last case is the one that warms up.
        Case(SCENARIO, TOGETHER, lambda server: HttpLoad(server, operation, CLIENTS)),
    ]
    race(contestants(), SpreadServer, cases, pace, results)


def _alone_case(worker: int) -> Case[SpreadServer]:
    return Case(SCENARIO, alone(worker), lambda server: WorkerLoad(server, worker))


def rate(results: Results) -> float | None:
    """Return how many calls two workers answer on two free cores, as a multiple of what one process does on one."""
    total = 0.0
    for worker in range(WORKERS):
        cost = results.ratio(SCENARIO, alone(worker), OWN_WORKERS, FERRULE)
        if cost is None:
            return None
        total += 1 / cost.median
    return total


def hand_over(results: Results) -> float | None:
    """Return what a hand-over costs in microseconds of CPU, of both workers together."""
    workers = results.best(SCENARIO, FIRST_CALL, OWN_WORKERS).get("cpu_us")
    one = results.best(SCENARIO, FIRST_CALL, FERRULE).get("cpu_us")
    if workers is None or one is None:
        return None
    # Of `WORKERS` workers one has the session: all others hand over.
    return (workers - one) * WORKERS / (WORKERS - 1)
