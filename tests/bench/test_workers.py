"""Two workers beside one process: whose sessions they are, and what the figures mean."""

from __future__ import annotations

from contextlib import closing

from bench.contestants import FERRULE, OWN_WORKERS
from bench.results import Results
from bench.streamable.workers import (
    CLIENTS,
    FIRST_CALL,
    SCENARIO,
    SpreadServer,
    WorkerLoad,
    alone,
    contestants,
    hand_over,
    rate,
)


def results(costs: dict[str, tuple[float, float]]) -> Results:
    """Return results with the CPU of one process and of two workers, by case."""
    found = Results()
    for case, (one, workers) in costs.items():
        found.add(SCENARIO, case, FERRULE, 1, {"cpu_us": one})
        found.add(SCENARIO, case, OWN_WORKERS, 1, {"cpu_us": workers})
    return found


def test_the_rate_of_two_workers_is_the_sum_of_both() -> None:
    """A worker whose calls cost twice as much answers half as many."""
    found = rate(results({alone(0): (20, 20), alone(1): (20, 40)}))
    assert found == 1.5


def test_there_is_no_rate_without_a_figure_of_each_worker() -> None:
    assert rate(results({alone(0): (20, 20)})) is None


def test_half_of_all_new_connections_are_handed_over() -> None:
    assert hand_over(results({FIRST_CALL: (200, 290)})) == 180
    assert hand_over(Results()) is None


def test_each_worker_has_half_of_the_sessions_and_is_asked_for_its_own() -> None:
    """Sessions that are opened over one connection would all be of one worker."""
    _, two = contestants()
    with closing(SpreadServer(two)) as server:
        owners = [address.session[:2] for address in server.sessions(CLIENTS)]
        assert owners == [b"0.", b"1."] * (CLIENTS // 2)
        for worker in range(2):
            load = WorkerLoad(server, worker)
            asked = [address.session[:2] for address in load.addresses()]
            assert asked == [b"%d." % worker] * (CLIENTS // 2)
            assert load.run(0.05, 0.05).operations > 0


def test_one_process_answers_all_clients_beside_each_worker() -> None:
    one, _ = contestants()
    with closing(SpreadServer(one)) as server:
        for worker in range(2):
            assert len({address.session for address in WorkerLoad(server, worker).addresses()}) == CLIENTS
