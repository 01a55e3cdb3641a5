"""A verifier that is asked is reported, whatever it does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import ANONYMOUS, Observer, Principal, RequestFacts, Unauthorized, Verifier
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.observer import Observers
from ferrule.telemetry.recorder import MetricsRecorder
from ferrule.transports.verification import Verification


class Says(Verifier):
    """Returns what it was given, or raises it."""

    timeout = 0.05

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def verify(self, facts: RequestFacts) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer


async def later() -> Principal:
    return Principal(subject="ada", issuer="issuer")


async def never() -> Principal:
    await asyncio.sleep(60)
    return Principal(subject="ada", issuer="issuer")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Principal(subject="ada", issuer="issuer"), "accepted"),
        (ANONYMOUS, "anonymous"),
        (Unauthorized("no"), "refused"),
        (ZeroDivisionError("oh"), "failed"),
        ("nonsense", "failed"),
        (later, "accepted"),
        (never, "failed"),
    ],
)
def test_each_verdict_is_reported_once(answer: Any, verdict: str) -> None:
    class Seen(Observer):
        def __init__(self) -> None:
            self.verdicts: list[tuple[str, str]] = []

        def caller_verified(self, transport: str, verdict: str) -> None:
            self.verdicts.append((transport, verdict))

    seen = Seen()
    metrics = Metrics()
    observers = Observers([seen, MetricsRecorder(metrics)])
    verification = Verification(Says(answer), transport="tcp", observer=observers)
    asyncio.run(verification.verdict(RequestFacts(transport="tcp")))
    assert seen.verdicts == [("tcp", verdict)]
    children = metrics.counter("ferrule_auth_checks_total").children
    assert {labels: child.value for labels, child in children.items()} == {(verdict, "tcp"): 1}


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Principal(subject="ada", issuer="issuer"), "accepted"),
        (Principal(subject="ada", issuer="issuer", expires=1.0), "refused"),
        (ANONYMOUS, "anonymous"),
        (Unauthorized("no"), "refused"),
        ("nonsense", "failed"),
        (later, "accepted"),
    ],
)
def test_metrics_alone_count_each_verdict_once(answer: Any, verdict: str) -> None:
    metrics = Metrics()
    verification = Verification(Says(answer), transport="tcp", observer=Observers([MetricsRecorder(metrics)]))
    asyncio.run(verification.verdict(RequestFacts(transport="tcp")))
    children = metrics.counter("ferrule_auth_checks_total").children
    assert {labels: child.value for labels, child in children.items()} == {(verdict, "tcp"): 1}


def test_nonsense_that_a_verifier_returns_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """It may be the token, or what somebody has made of it."""
    verdict = asyncio.run(Verification(Says({"token": "s3cret"})).verdict(RequestFacts(transport="http")))
    assert verdict.status == 500  # type: ignore[union-attr]
    assert "Says.verify returned a dict" in caplog.text
    assert "s3cret" not in caplog.text
