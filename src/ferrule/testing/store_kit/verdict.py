"""Judges a store by every rule, and says what was found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from ferrule.testing.carrier_kit.findings import Broken, NotApplicable
from ferrule.testing.store_kit import agreement, records, sessions, streams
from ferrule.testing.store_kit.stand import StoreMaker, StoreRule

LONGEST = 60.0
"""How many seconds one rule may take before it counts as broken."""


def _rules() -> tuple[StoreRule, ...]:
    rules = []
    for module in (records, streams, sessions, agreement):
        for found in vars(module).values():
            if isinstance(found, StoreRule):
                rules.append(found)
    return tuple(rules)


RULES = _rules()
"""Every rule, in the order they are judged in."""


async def prove(rule: StoreRule, maker: StoreMaker) -> None:
    """Find out whether a rule holds: raises Broken where it does not, NotApplicable where it says nothing."""
    if rule.is_shared and rule.part in maker.lacks:
        raise NotApplicable(maker.lacks[rule.part])
    try:
        async with asyncio.timeout(LONGEST) as patience:
            await rule.work(maker)
    except TimeoutError as late:
        if patience.expired():
            raise Broken(f"it came to no end within {LONGEST:g} s") from late
        raise


async def judge(maker: StoreMaker, rules: Iterable[StoreRule] = RULES) -> dict[str, str]:
    """Judge a store by the rules. Return what is wrong by the name of the rule; nothing where all of them hold."""
    broken = {}
    for rule in rules:
        try:
            await prove(rule, maker)
        except NotApplicable:
            continue
        except Exception as reason:  # whatever a store raises breaks the rule
            broken[str(rule)] = f"{rule.sentence} {type(reason).__name__}: {reason}"
    return broken


def store_tests(*makers: StoreMaker, rules: Iterable[StoreRule] = RULES) -> Callable[..., Any]:
    """Return a pytest test of each rule for each store: `test_my_store = store_tests(MyStore())`."""
    import pytest

    cases = []
    every = tuple(rules)
    for maker in makers:
        for rule in every:
            cases.append(pytest.param(maker, rule, id=f"{maker.name}-{rule}"))

    @pytest.mark.parametrize(("maker", "rule"), cases)
    def test_store(maker: StoreMaker, rule: StoreRule) -> None:
        try:
            asyncio.run(prove(rule, maker))
        except NotApplicable as reason:
            pytest.skip(str(reason))

    return test_store
