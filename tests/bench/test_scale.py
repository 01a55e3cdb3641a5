"""Curves are the best of all rounds; who fails is told of, and all others are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from bench.contestants import Contestant, contestants
from bench.native import NativePeer
from bench.process import BadAnswer
from bench.results import Results
from bench.rounds import Pace
from bench.scale import SWEEPS, curves, field_of, measure, page_of, sections_of

from bench import native

MACHINE = {"cpu": "a CPU", "cores": 2, "python_version": "3.11", "revision": "abc", "date": "today"}


def test_a_curve_is_the_least_of_all_rounds_or_the_most_of_rates() -> None:
    rows = [{"contestant": "ferrule", "x": x, "y": y} for x, y in ((64, 6.0), (1, 30.0), (1, 28.0), (64, 5.0))]
    assert curves(rows, most=False) == {"ferrule": [(1, 28.0), (64, 5.0)]}
    assert curves(rows, most=True) == {"ferrule": [(1, 30.0), (64, 6.0)]}


def test_every_chart_has_a_key_of_its_own_and_sweeps_reach_as_far_as_they_should() -> None:
    keys = [chart.key for sweep in SWEEPS for chart in sweep.charts]
    assert len(keys) == len(set(keys))
    reach = {sweep.name: (sweep.steps[0], sweep.steps[-1]) for sweep in SWEEPS}
    assert reach == {
        "tools": (0, 10_000),
        "in_flight": (1, 1024),
        "connections": (1, 1024),
        "size": (100, 10_000_000),
        "http_size": (100, 10_000_000),
        "sessions": (0, 10_000),
        "subscribers": (10, 4000),
    }


def test_who_fails_is_told_of_and_what_it_did_before_is_drawn() -> None:
    def sweep(contestant: Contestant, steps: tuple[int, ...], pace: Pace) -> Iterator[tuple[str, float, float]]:
        for step in steps:
            if contestant.name == "weak" and step > 1:
                raise BadAnswer("it is too much")
            yield "in_flight_cpu", step, 10.0 / step

    in_flight = next(each for each in SWEEPS if each.name == "in_flight")
    results = Results()
    field = [Contestant(name, ()) for name in ("ferrule", "weak")]
    measure(replace(in_flight, measure=sweep), field, Pace(2, 0.1, 0.1), (1, 10), results)
    (chart,) = sections_of(results.rows)["Calls in flight"]
    assert chart.lines == {"ferrule": [(1, 10.0), (10, 1.0)], "weak": [(1, 10.0)]}
    made = page_of({"environment": MACHINE, "failures": results.failures, "rounds": results.rows})
    assert "weak in_flight: BadAnswer: it is too much" in made
    assert made.count("<svg viewBox") == 1


def test_without_a_choice_ferrule_is_measured_beside_what_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativePeer, "installed", lambda peer: peer.folder == "rmcp")

    def refuse(peer: NativePeer) -> None:
        raise AssertionError(f"{peer} was built")

    monkeypatch.setattr(native, "build", refuse)
    field = field_of(contestants(), [], native=False)
    assert [one.name for one in field] == ["ferrule", "rmcp-3.8.0"]
    assert [one.name for one in field_of(contestants(), ["ferrule"], native=False)] == ["ferrule"]
