"""What a router decides is counted, and told to its owner and its observers."""

from __future__ import annotations

import asyncio

import pytest
from flaky import Flaky

from ferrule import Observer
from ferrule.balancing.breaker import BreakerSettings
from ferrule.balancing.bulkhead import BulkheadSettings
from ferrule.balancing.hedge import Hedge
from ferrule.errors import NoTarget, Overloaded
from ferrule.routing.decisions import Decisions, RouterEvent
from ferrule.routing.router import Router
from ferrule.telemetry.observer import observers_of

virtual_time = pytest.mark.virtual_time


class Told(Observer):
    """An observer that writes down what routers decide."""

    def __init__(self) -> None:
        self.decisions: list[tuple[str, str]] = []

    def router_decided(self, kind: str, target: str, reason: str) -> None:
        self.decisions.append((kind, target))


def test_an_owner_is_told_of_each_decision_but_not_of_picks() -> None:
    told: list[RouterEvent] = []
    decisions = Decisions()
    decisions.listen(told.append)
    decisions.tell("ejected", "a", "5 failures in a row")
    decisions.picked("a")
    assert told == [RouterEvent("ejected", "a", "5 failures in a row")]
    assert (decisions.count("ejected"), decisions.count("retried"), decisions.tells_picks) == (1, 0, False)


def test_observers_are_told_of_picks_too() -> None:
    observer = Told()
    decisions = Decisions(observers_of(observer, "Router"))
    assert decisions.tells_picks
    decisions.picked("a")
    decisions.tell("retried", "b", "lost")
    assert observer.decisions == [("picked", "a"), ("retried", "b")]


def test_observers_of_other_things_cost_nothing() -> None:
    assert not Decisions(observers_of(Observer(), "Router")).tells_picks


@virtual_time
async def test_every_decision_of_a_router_reaches_its_observer() -> None:
    targets, observer = {name: Flaky(name) for name in "abc"}, Told()
    async with Router(
        targets,
        balance="round_robin",
        breaker=BreakerSettings(failures=6),
        bulkhead=BulkheadSettings(in_flight=2, queue=0),
        hedge=Hedge(after=0.5, budget=1.0),
        observer=observer,
    ) as router:
        await router.call_tool("who")
        assert observer.decisions == [("picked", "a")]
        targets["b"].pause = 4.0
        await router.request("resources/read", {"uri": "note://who"})
        assert observer.decisions[1:] == [("picked", "b"), ("hedged", "b"), ("picked", "c")]
        observer.decisions.clear()
        for target in targets.values():
            target.pause = 1.0
        calls = [asyncio.ensure_future(router.call_tool("who")) for _ in range(2)]
        await asyncio.sleep(0.1)
        with pytest.raises(Overloaded):
            await router.call_tool("who")
        assert [kind for kind, _ in observer.decisions] == ["picked", "picked", "overloaded"]
        lost = observer.decisions[0][1]
        targets[lost].cut()
        await asyncio.gather(*calls, return_exceptions=True)
        assert observer.decisions[3:] == [("outcome_unknown", lost)]
        observer.decisions.clear()
        for _ in range(15):
            await router.call_tool("who")
        assert "retried" in [kind for kind, _ in observer.decisions]
        assert ("ejected", lost) in observer.decisions
        assert ("breaker", lost) not in observer.decisions
        observer.decisions.clear()
        for name in "abc":
            router.force_open(name)
        with pytest.raises(NoTarget):
            await router.call_tool("who")
        await router.notify("notifications/x")
        assert observer.decisions == [
            ("breaker", "a"),
            ("breaker", "b"),
            ("breaker", "c"),
            ("no_target", ""),
            ("no_target", ""),
            ("dead_letter", ""),
        ]
