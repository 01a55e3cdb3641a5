"""Every transport of ours is judged by every rule of the kit."""

from __future__ import annotations

import asyncio
import inspect
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
    "graphql": ("", "graphql.md"),
    "tcp": ("tcp", "tcp.md"),
    "unix": ("unix", "tcp.md"),
}
"""What a transport is called where it is judged, and the guide that tells of it."""
CARRY_MCP = [name for name in TRANSPORTS if TRANSPORTS[name].transport is not None]
"""The transports that a client of ours can reach: GraphQL carries operations, not messages of MCP."""


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


CHECKLIST = {
    "sends": ["values", "once", "order back"],
    "closes": ["closing", "draining"],
    "tells about itself": ["ready", "information"],
    "frames messages": ["lines", "crossing"],
    "enforces the limit of 16 MiB": ["limit", "sixteen mebibytes"],
    "has backpressure": ["back pressure out", "back pressure back"],
    "handles errors": ["garbage", "loss", "calls end", "recovery"],
    "releases what it held": ["release"],
}
"""The items of the seeds' checklist that a transport shows by what it does, and the rules of the kit that show them."""
SHOWN_ELSEWHERE = {
    ("stdio", "draining"): "faults/test_stdio_server.py::test_one_signal_drains_and_exits_in_peace",
    (
        "stdio",
        "back pressure back",
    ): "transports/process/test_stdio.py::test_std_03_a_client_that_does_not_read_is_not_read_either",
    **{
        (name, "lines"): "carriers/test_framing.py::test_fram_09_each_carrier_has_its_own_framing"
        for name in ("http", "streamable-http", "sse", "ws")
    },
}
"""Rules that do not apply to a transport, and the test that shows the same of it in its own way."""
RULE = {rule.name: rule for rule in RULES}


@pytest.mark.parametrize("item", CHECKLIST)
@pytest.mark.parametrize("name", CARRY_MCP)
def test_what_the_checklist_of_a_transport_asks_it_to_do_is_done(name: str, item: str) -> None:
    """TBEH-09: a rule that does not apply ticks nothing; what stands for it is named."""
    judged, _ = KNOWN_AS[name]
    for rule in CHECKLIST[item]:
        if (name, rule) not in SHOWN_ELSEWHERE:
            asyncio.run(prove(RULE[rule], JUDGED[judged]))
            continue
        file, _, test = SHOWN_ELSEWHERE[name, rule].partition("::")
        assert f"def {test}(" in (TESTS / file).read_text(encoding="utf-8")
        with pytest.raises(NotApplicable):
            asyncio.run(prove(RULE[rule], JUDGED[judged]))


@pytest.mark.parametrize("name", TRANSPORTS)
def test_the_rest_of_the_checklist_of_a_transport_is_ticked(name: str) -> None:
    """TBEH-09, TBEH-01, TEST-05: a module that can serve and close, known by name, with tests, told of in a guide."""
    kind = TRANSPORTS[name]
    listener = load(kind.listener)
    module = listener.__module__
    assert all(inspect.iscoroutinefunction(getattr(listener, deed)) for deed in ("serve", "close"))
    own_tests = module.removeprefix("ferrule.").replace(".", "/").rpartition("/")
    assert "def test_" in (TESTS / own_tests[0] / f"test_{own_tests[2]}.py").read_text(encoding="utf-8")
    _, guide = KNOWN_AS[name]
    text = (GUIDES / guide).read_text(encoding="utf-8")
    assert f'"{name}"' in text or listener.__name__ in text
    assert f"({guide})" in (GUIDES / "README.md").read_text(encoding="utf-8")
