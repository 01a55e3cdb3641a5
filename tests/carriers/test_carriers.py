"""Every transport of ours is judged by every rule of the kit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from our_carriers import CARRIERS, OverAsgiStateless

from ferrule.testing.carrier_kit import RULES, Carrier, NotApplicable, Rule, prove
from ferrule.transports.registry import TRANSPORTS, load

MATTERS_TO_THE_DOORS = {"values", "once", "order back", "loss", "draining", "limit", "back pressure back"}
TESTS = Path(__file__).resolve().parents[1]
GUIDES = TESTS.parent / "docs" / "guides"
JUDGED = {carrier.name: carrier for carrier in CARRIERS}

KNOWN_AS = {
    "stdio": ("stdio", "stdio.md"),
    "http": ("http session", "http.md"),
    "streamable-http": ("http stateless", "http.md"),
    "sse": ("sse", "http-sse.md"),
    "ws": ("websocket", "websocket.md"),
    "tcp": ("tcp", "tcp.md"),
    "unix": ("unix", "tcp.md"),
}
"""What a transport is called where it is judged, and the guide that tells of it."""


def cases(carriers: tuple[Carrier, ...], rules: list[Rule]) -> list[Any]:
    return [pytest.param(carrier, rule, id=f"{carrier.name}-{rule}") for carrier in carriers for rule in rules]


def judge(carrier: Carrier, rule: Rule) -> None:
    try:
        asyncio.run(prove(rule, carrier))
    except NotApplicable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(("carrier", "rule"), cases(CARRIERS, list(RULES)))
def test_a_carrier_of_ours_keeps_the_rules(carrier: Carrier, rule: Rule) -> None:
    """TBEH-01, TBEH-03, TBEH-08, GUAR-02, GUAR-03, GUAR-05, GUAR-06, FRAM-10, SIZE-12, PERF-13, TEST-04."""
    judge(carrier, rule)


STATELESS_ASGI = [rule for rule in RULES if rule.name in MATTERS_TO_THE_DOORS]


@pytest.mark.parametrize(("carrier", "rule"), cases((OverAsgiStateless(),), STATELESS_ASGI))
def test_the_asgi_app_keeps_them_in_the_other_era_too(carrier: Carrier, rule: Rule) -> None:
    judge(carrier, rule)


@pytest.mark.parametrize("name", TRANSPORTS)
def test_the_checklist_of_a_transport_is_ticked(name: str) -> None:
    """TBEH-09, TBEH-01, TEST-05: a module that can serve and close, with tests, judged by rules, told of in a guide."""
    kind = TRANSPORTS[name]
    listener = load(kind.listener)
    module = listener.__module__
    assert all(asyncio.iscoroutinefunction(getattr(listener, deed)) for deed in ("serve", "close"))
    own_tests = module.removeprefix("ferrule.").replace(".", "/").rpartition("/")
    assert "def test_" in (TESTS / own_tests[0] / f"test_{own_tests[2]}.py").read_text(encoding="utf-8")
    judged, guide = KNOWN_AS[name]
    assert {"limit", "back-pressure", "peers", "wire"} & JUDGED[judged].lacks.keys() == set()
    assert (GUIDES / guide).is_file()
