"""Judges a carrier by every rule, and says what was found."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ferrule.testing.carrier_kit import bare_wire, bounds, delivery, life
from ferrule.testing.carrier_kit.carrier import Carrier
from ferrule.testing.carrier_kit.findings import Broken, NotApplicable
from ferrule.testing.carrier_kit.rule import Rule

PATIENCE = 60.0
"""How many seconds one rule may take before it counts as broken."""


def _rules() -> tuple[Rule, ...]:
    rules = []
    for part in (life, delivery, bounds, bare_wire):
        for found in vars(part).values():
            if isinstance(found, Rule):
                rules.append(found)
    return tuple(rules)


RULES = _rules()
"""Every rule, in the order they are judged in."""

Outcome = Literal["pass", "fail", "n/a"]


@dataclass(frozen=True)
class Verdict:
    """What one rule found: that it holds, that it does not, or that it says nothing about this carrier."""

    rule: Rule
    outcome: Outcome
    why: str = ""

    def __str__(self) -> str:
        line = f"{self.outcome:4}  {self.rule.name}: {self.rule.sentence}"
        return f"{line}\n      {self.why}" if self.why else line


@dataclass(frozen=True)
class Report:
    """What every rule found about one carrier."""

    carrier: str
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not self.broken

    @property
    def broken(self) -> tuple[Verdict, ...]:
        """The rules that do not hold."""
        broken = []
        for verdict in self.verdicts:
            if verdict.outcome == "fail":
                broken.append(verdict)
        return tuple(broken)

    def __str__(self) -> str:
        counts: Counter[Outcome] = Counter()
        for verdict in self.verdicts:
            counts[verdict.outcome] += 1
        last = f"{counts['pass']} rules hold, {counts['fail']} are broken, {counts['n/a']} do not apply"
        return "\n".join([self.carrier, *map(str, self.verdicts), last])


async def judge(carrier: Carrier, rules: Iterable[Rule] = RULES) -> Report:
    """Judge a carrier by the rules, one after another: `print(await judge(MyCarrier()))`."""
    verdicts = []
    for rule in rules:
        verdicts.append(await _judged(rule, carrier))
    return Report(carrier.name, tuple(verdicts))


async def _judged(rule: Rule, carrier: Carrier) -> Verdict:
    try:
        await prove(rule, carrier)
    except NotApplicable as reason:
        return Verdict(rule, "n/a", str(reason))
    except Exception as reason:
        why = str(reason)
        if not isinstance(reason, Broken):
            why = f"{type(reason).__name__}: {reason}"
        return Verdict(rule, "fail", why)
    return Verdict(rule, "pass")


async def prove(rule: Rule, carrier: Carrier) -> None:
    """Find out whether a rule holds: raises Broken where it does not, NotApplicable where it says nothing."""
    lacking = rule.lacking(carrier)
    if lacking:
        raise NotApplicable(lacking)
    try:
        async with asyncio.timeout(PATIENCE) as patience:
            await rule.work(carrier)
    except TimeoutError as late:
        if patience.expired():
            raise Broken(f"it came to no end within {PATIENCE:g} s") from late
        raise


def carrier_tests(*carriers: Carrier, rules: Iterable[Rule] = RULES) -> Callable[..., Any]:
    """Return a pytest test of each rule for each carrier: `test_my_carrier = carrier_tests(MyCarrier())`."""
    import pytest

    cases = []
    every = tuple(rules)
    for carrier in carriers:
        for rule in every:
            cases.append(pytest.param(carrier, rule, id=f"{carrier.name}-{rule.name}"))

    @pytest.mark.parametrize(("carrier", "rule"), cases)
    def test_carrier(carrier: Carrier, rule: Rule) -> None:
        try:
            asyncio.run(prove(rule, carrier))
        except NotApplicable as reason:
            pytest.skip(str(reason))

    return test_carrier
