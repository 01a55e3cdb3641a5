"""Observers: no-ops by default, several as one, and harmless whatever they do."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

import pytest
from event_recorder import Recorder

import ferrule.errors
from ferrule import Client, Observer, Server, SetupError
from ferrule.errors import Busy, InvalidRequest, MessageTooLarge, Refusal, ToolBusy
from ferrule.telemetry import observer as module
from ferrule.telemetry.observer import EVENTS, REASONS, Observers, observers_of, reason_of
from ferrule.testing import ERAS
from ferrule.types import ObservedRequest, Outcome
from ferrule.wire.channel import Origin


def new_request() -> ObservedRequest:
    return ObservedRequest(id=1, method="ping", transport="test", origin=Origin("test"), began=0.0)


class Broken(Observer):
    """Fails at everything."""

    def __init__(self) -> None:
        self.calls = 0

    def fail(self, *values: Any) -> None:
        self.calls += 1
        raise RuntimeError("broken observer")


for _event in EVENTS:
    setattr(Broken, _event, Broken.fail)


def test_every_method_of_an_observer_is_a_no_op() -> None:
    for event in EVENTS:
        method = getattr(Observer(), event)
        assert method(*[None for _ in inspect.signature(method).parameters]) is None


def test_several_observers_hear_the_same_in_their_order() -> None:
    first, second = Recorder(), Recorder()
    both = Observers([first, second])
    request, outcome = new_request(), Outcome(kind="ok")
    both.request_finished(request, outcome)
    assert first.events == second.events == [("request_finished", (request, outcome))]


def test_only_methods_that_somebody_overrides_are_wanted() -> None:
    class Counting(Observer):
        def request_finished(self, request: ObservedRequest, outcome: Outcome) -> None:
            """Count nothing."""

    wanted = [event for event in EVENTS if Observers([Observer(), Counting()]).wants(event)]
    assert wanted == ["request_finished"]


def test_what_an_observer_calls_its_meter_is_its_own() -> None:
    """One with a meter of OpenTelemetry's was taken for our own, and no link could be opened."""

    class Counting(Observer):
        def __init__(self) -> None:
            self.meter = object()
            self.seen: list[str] = []

        def request_finished(self, request: ObservedRequest, outcome: Outcome) -> None:
            """Note a method."""
            self.seen.append(request.method)

    counting = Counting()
    app = Server("s", observer=counting)
    app.add_tool(lambda: "", name="empty")

    async def use() -> None:
        async with Client(app) as client:
            await client.list_tools()

    asyncio.run(use())
    assert "tools/list" in counting.seen


def test_a_method_that_is_set_on_an_observer_is_called_too() -> None:
    heard: list[Any] = []
    observer = Observer()
    observer.link_opened = heard.append  # type: ignore[method-assign]
    Observers([observer]).link_opened("link")  # type: ignore[arg-type]
    assert heard == ["link"]


@pytest.mark.parametrize("era", ERAS)
def test_an_observer_that_raises_breaks_no_call_and_is_logged_once(era: Any, caplog: pytest.LogCaptureFixture) -> None:
    broken, recorder = Broken(), Recorder()

    async def main() -> None:
        app = Server("observed", observer=[broken, recorder])

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        async with Client(app, mode=era, observer=broken) as client:
            for n in range(20):
                assert (await client.call_tool("add", {"a": n, "b": 1})).data == n + 1

    asyncio.run(main())
    assert broken.calls > 100
    assert [outcome.kind for outcome in recorder.outcomes().values()].count("ok") >= 20
    records = [record for record in caplog.records if record.name == "ferrule.observer"]
    assert len(records) == 2, "one for the server and one for the client"
    assert "an observer failed in" in records[0].getMessage()
    assert records[0].exc_info is not None


def test_after_a_minute_a_failing_observer_is_logged_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    observers = Observers([Broken()])
    for _ in range(5):
        observers.request_started(new_request())
    now += 59.0
    observers.request_started(new_request())
    assert len(caplog.records) == 1
    now += 1.0
    observers.request_started(new_request())
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "5 more failures" in caplog.records[1].getMessage()


@pytest.mark.parametrize("wrong", ["recorder", 5, Observer, [Observer(), "x"], {Observer()}])
def test_what_is_no_observer_is_refused(wrong: Any) -> None:
    with pytest.raises(SetupError, match="Server: observer must be an Observer or a list of them"):
        Server("observed", observer=wrong)
    with pytest.raises(SetupError, match="Client: observer must be an Observer or a list of them"):
        Client(Server("observed"), observer=wrong)


@pytest.mark.parametrize("nobody", [None, [], ()])
def test_without_observers_there_is_nothing_to_tell(nobody: Any) -> None:
    assert observers_of(nobody, "Server") is None
    assert Server("observed", observer=nobody).host.observer is None


def test_every_refusal_has_a_reason_of_its_own() -> None:
    kinds = [kind for kind in vars(ferrule.errors).values() if isinstance(kind, type) and issubclass(kind, Refusal)]
    assert {kind for kind in kinds if kind is not Refusal} == set(REASONS)
    assert len(set(REASONS.values())) == len(REASONS)


def test_the_nearest_reason_counts() -> None:
    class Mine(Busy):
        """A kind of somebody's own."""

    assert reason_of(Mine()) == reason_of(Busy()) == "busy"
    assert reason_of(ToolBusy("x", 1, 1)) == "tool_busy"
    assert reason_of(Refusal("no")) == "refusal"
    assert reason_of(InvalidRequest(), readable=False) == "unreadable"
    assert reason_of(MessageTooLarge(5), readable=False) == "message_too_large"


def test_a_request_under_way_tells_how_long_it_has_taken() -> None:
    request = new_request()
    assert request.seconds > 0.0
    request.ended = 3.0
    assert request.seconds == 3.0
