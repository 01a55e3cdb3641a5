"""What is wrong with a JSON value: where, by which rule, and in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import structs

from ferrule.budgets.bounds import MAX_VIOLATIONS
from ferrule.errors import FerruleError, SetupError, quoted

MAX_LISTED = 256
MAX_ERRORS = 64
"""Errors up to which a validator is asked for all of them: it makes every one before it hands out the first, and each
takes microseconds."""
SHOWN_LENGTH = 200

_MSGSPEC_RULES = {
    r"Expected `\w+` >= ": "minimum",
    r"Expected `\w+` > ": "exclusiveMinimum",
    r"Expected `\w+` <= ": "maximum",
    r"Expected `\w+` < ": "exclusiveMaximum",
    r"Expected `\w+` that's a multiple": "multipleOf",
    r"Expected `\w+` matching": "pattern",
    r"Expected `str` of length >=": "minLength",
    r"Expected `str` of length <=": "maxLength",
    r"Expected `\w+` that fits": "value",
    r"Expected `": "type",
    r"Object missing": "required",
    r"Object contains": "additionalProperties",
}
"""How msgspec says that a rule is broken, in the words of JSON Schema."""


class TooCostly(SetupError):
    """A schema that would cost more to compile or to use than it may."""


class Violation(msgspec.Struct, frozen=True):
    """One thing that is wrong: where (a JSON pointer), with which value, by which rule, and in words."""

    path: str
    value: Any
    rule: str
    message: str

    @property
    def parameter(self) -> str | None:
        """The first step of the path."""
        if self.path:
            return self.path[1:].partition("/")[0].replace("~1", "/").replace("~0", "~")
        return None


class _Invalid(FerruleError):
    """A value breaks its schema."""

    def __init__(self, heading: str, violations: Sequence[Violation], most: int = MAX_LISTED, more: int = 0) -> None:
        self.violations = tuple(violations[:most])
        self.omitted = len(violations) - len(self.violations) + more
        lines = []
        for found in self.violations:
            lines.append(f"{found.path or '(root)'}: {found.message} [{found.rule}]")
        if self.omitted:
            lines.append(f"and {self.omitted} more")
        super().__init__("\n".join(filter(None, [heading, *lines])))


class InvalidArguments(_Invalid):
    """The arguments of a call do not fit its handler."""

    def __init__(self, violations: Sequence[Violation], more: int = 0) -> None:
        super().__init__("", violations, MAX_VIOLATIONS, more)


class InvalidOutput(_Invalid):
    """A handler returned what its output schema does not allow."""

    def __init__(self, name: str, violations: Sequence[Violation]) -> None:
        super().__init__(f"{name} returned a value that does not fit its output schema:", violations)
        self.name = name


class Unfit(ValueError):
    """A value that its type refuses, with what is wrong with it; paths begin at the value."""

    def __init__(self, violations: Sequence[Violation], *, is_complete: bool = False) -> None:
        self.violations = tuple(violations)
        self.is_complete = is_complete
        super().__init__("; ".join(f"{found.path}: {found.message}".removeprefix(": ") for found in violations))


def pointer(steps: Iterable[str | int]) -> str:
    """Write a place in a JSON value as a JSON pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def excerpt(value: object) -> object:
    """Return a JSON value as it is, or the beginning of its text when it is long."""
    try:
        text = msgspec.json.encode(value)
    except RecursionError:
        return "…"
    if len(text) <= SHOWN_LENGTH:
        return value
    return text[:SHOWN_LENGTH].decode(errors="ignore") + "…"


def descend(value: object, steps: Iterable[str]) -> object:
    """Follow the steps of a JSON pointer; None where they lead nowhere."""
    for step in steps:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def missing(name: str, value: object) -> Violation:
    """Return the violation of an object that lacks a member."""
    return Violation("", excerpt(value), "required", f'"{name}" is a required property')


def unknown(name: str, value: object, above: Sequence[str | int] = ()) -> Violation:
    """Return the violation of a member that has no place in its object."""
    name = quoted(name)
    return Violation(pointer([*above, name]), excerpt(value), "additionalProperties", f'"{name}" is not expected here')


def refused_by_type(error: msgspec.ValidationError, value: object, start: Sequence[str | int]) -> Violation:
    """Turn msgspec's refusal of the `value` at `start` into a violation, as deep as its message tells."""
    # It may repeat a text of the peer's, in which matching takes quadratic time.
    text = short(str(error))
    found = re.fullmatch(r"(.*) - at (?:`key` in )?`\$(.*)`", text, re.DOTALL)
    message, places = found.groups() if found else (text, "")
    steps = list(start)
    for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+|\.{3})\]", places):
        inner = descend(value, [name or index])
        if inner is None:
            break
        value = inner
        steps.append(name or int(index))
    return Violation(pointer(steps), excerpt(value), _rule_of(message), short(message))


def _rule_of(message: str) -> str:
    """Return the rule of JSON Schema that a message of msgspec is about."""
    for beginning, rule in _MSGSPEC_RULES.items():
        if re.match(beginning, message):
            return rule
    return "value"


def refusals(error: msgspec.ValidationError, value: object, start: Sequence[str | int]) -> list[Violation]:
    """List all that a type has against the `value` at `start`."""
    place = refused_by_type(error, value, start)
    # Under the keys of an object msgspec does not tell which one, so nothing below it can be placed.
    if not isinstance(error.__cause__, Unfit) or "[...]" in str(error):
        return [place]
    below = []
    for found in error.__cause__.violations:
        below.append(structs.replace(found, path=place.path + found.path))
    return below


def short(text: str) -> str:
    """Return a text, or its beginning and its end when it is long."""
    if len(text) <= 2 * SHOWN_LENGTH:
        return text
    return f"{text[:SHOWN_LENGTH]} … {text[-SHOWN_LENGTH // 2 :]}"
