"""The table of rules, in the order in which they are looked at."""

from __future__ import annotations

from types import ModuleType

from ferrule.check.rule import Rule
from ferrule.check.rules import (
    authorization,
    http,
    lifecycle,
    messages,
    prompts,
    resources,
    stateless,
    tools,
    utilities,
)

LAST = ("lifecycle/end", "logging/declared", "stateless/result-type", "stdio/only-messages")
"""Rules on everything that was said, beside those of `messages`: they come when all has been said."""


def rules_of(module: ModuleType) -> list[Rule]:
    """Return the rules a module defines, in its order."""
    return [value for value in vars(module).values() if isinstance(value, Rule)]


def _table() -> tuple[Rule, ...]:
    first: list[Rule] = []
    last: list[Rule] = []
    for module in (lifecycle, stateless, tools, resources, prompts, utilities, http, messages):
        for rule in rules_of(module):
            if rule.id in LAST:
                last.append(rule)
            else:
                first.append(rule)
    return (*first, *last)


RULES = _table()
"""Every rule but those of authorization."""

AUTHORIZATION = tuple(rules_of(authorization))
"""The rules for a server that lets nobody in without a token."""
