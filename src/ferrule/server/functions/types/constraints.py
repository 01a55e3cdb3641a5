"""What `Annotated` says of a type: bounds, lengths, patterns and texts, in the words of any library."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import re
from collections.abc import Callable, Iterable, Sized
from typing import Annotated, Any, get_origin

import msgspec

from ferrule.server.functions.types.extra_types import convert
from ferrule.server.functions.types.pydantic_types import is_field, speaks_pydantic
from ferrule.server.functions.types.stand_in import Schema, StandIn, Writer, shown, stand_in

RULES = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
TEXTS = ("title", "description", "examples", "extra_json_schema")
KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}

_ORDERED = (int, float, decimal.Decimal, datetime.date, datetime.time, datetime.timedelta)
_COUNTED = (int, float, decimal.Decimal)
_TESTS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": (">=", lambda value, bound: value >= bound),
    "gt": (">", lambda value, bound: value > bound),
    "le": ("<=", lambda value, bound: value <= bound),
    "lt": ("<", lambda value, bound: value < bound),
    "multiple_of": ("that's a multiple of", lambda value, bound: value % bound == 0),
    "min_length": ("of length >=", lambda value, bound: len(value) >= bound),
    "max_length": ("of length <=", lambda value, bound: len(value) <= bound),
    "pattern": ("matching regex", lambda value, bound: re.search(bound, str(value)) is not None),
}


class Constraints(msgspec.Struct):
    """Everything that the metadata of one `Annotated` says."""

    rules: dict[str, Any] = msgspec.field(default_factory=dict)
    texts: dict[str, Any] = msgspec.field(default_factory=dict)
    checks: list[Callable[[Any], Any]] = msgspec.field(default_factory=list)
    foreign: bool = False
    """Whether something is said that only pydantic understands."""
    native: bool = True
    """Whether all is said in the words of msgspec, or is a mere description."""

    def add(self, item: object) -> None:
        """Read one part of the metadata."""
        if isinstance(item, msgspec.Meta):
            self.rules |= _given(item, RULES)
            self.texts |= _given(item, TEXTS)
        elif isinstance(item, str):
            self.texts.setdefault("description", item)
        elif is_field(item):
            self._add_field(item)
        elif type(item).__module__ == "annotated_types":
            self._add_annotated(item)
        elif isinstance(text := getattr(item, "documentation", None), str):
            self.texts.setdefault("description", text)
        elif speaks_pydantic(item):
            self._add_foreign(item)

    def _add_field(self, field: Any) -> None:
        self.texts |= _given(field, ("title", "description", "examples"))
        if isinstance(field.json_schema_extra, dict):
            self.texts["extra_json_schema"] = field.json_schema_extra
        self.native = self.native and not self.texts.keys() - {"description"}
        self.foreign = self.foreign or field.discriminator is not None
        for item in field.metadata:
            self.add(item)

    def _add_annotated(self, item: Any) -> None:
        self.native = False
        self.rules |= _given(item, RULES)
        if type(item).__name__ == "Predicate":
            self.checks.append(item.func)

    def _add_foreign(self, item: object) -> None:
        """Read what pydantic says in words we share; whatever else it says makes the whole type its own."""
        members = vars(item) if hasattr(item, "__dict__") else {}
        if dataclasses.is_dataclass(item):
            members = {}
            for field in dataclasses.fields(item):
                members[field.name] = getattr(item, field.name)
        said = {}
        for name, value in members.items():
            if value is not None:
                said[name] = value
        self.native = False
        if not said or said.keys() - set(RULES):
            self.foreign = True
        self.rules |= {name: value for name, value in said.items() if name in RULES}


def read_metadata(metadata: Iterable[object]) -> Constraints:
    """Read the metadata of an `Annotated`."""
    found = Constraints()
    for item in metadata:
        found.add(item)
    return found


def description_of(metadata: Iterable[object]) -> str | None:
    """Return the text among the metadata of an `Annotated`."""
    text = read_metadata(metadata).texts.get("description")
    if isinstance(text, str):
        return text
    return None


def _given(item: object, names: Iterable[str]) -> dict[str, Any]:
    found = {name: getattr(item, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def constrained(type_: object, said: Constraints) -> Any:
    """Return a type that keeps to its constraints: by msgspec where it can, else by a check of our own."""
    texts = [msgspec.Meta(**said.texts)] if said.texts else []
    if "pattern" in said.rules:
        said.rules["pattern"] = _pattern(said.rules["pattern"])
    if not said.rules and not said.checks:
        return Annotated[type_, *texts] if texts else type_
    try:
        if said.checks:
            raise TypeError("a check of one's own is not a rule of msgspec")
        held: Any = Annotated[type_, msgspec.Meta(**said.rules)]
        msgspec.json.Decoder(held)
    except (TypeError, ValueError):
        if misplaced := [rule for rule in said.rules if not _can_hold(type_, rule)]:
            raise TypeError(f"Can only set `{misplaced[0]}` on {_KINDS[misplaced[0]]}, not on {shown(type_)}") from None
        held = _checked(type_, dict(said.rules), list(said.checks))
    return Annotated[held, *texts] if texts else held


_KINDS = dict.fromkeys(("ge", "gt", "le", "lt"), "a number, a date or a time") | {
    "multiple_of": "a number",
    "min_length": "what has a length",
    "max_length": "what has a length",
    "pattern": "a text",
}


def _pattern(given: object) -> str:
    text = str(getattr(given, "pattern", given))
    try:
        re.compile(text)
    except re.error as error:
        raise TypeError(f"the pattern {text!r} is not a valid regular expression: {error}") from None
    return text


def _can_hold(type_: object, rule: str) -> bool:
    class_ = type_.made if isinstance(type_, StandIn) else get_origin(type_) or type_
    if not isinstance(class_, type):
        return False
    if rule == "pattern":
        return issubclass(class_, str)
    if rule in {"min_length", "max_length"}:
        return issubclass(class_, Sized)
    return issubclass(class_, _COUNTED if rule == "multiple_of" else _ORDERED)


def _checked(type_: object, rules: dict[str, Any], checks: list[Callable[[Any], Any]]) -> StandIn:
    name = shown(type_)

    def read(value: object) -> Any:
        made = convert(value, type_)
        for rule, bound in rules.items():
            words, holds = _TESTS[rule]
            if not holds(made, bound):
                raise ValueError(f"Expected `{name}` {words} {bound}")
        for check in checks:
            if not check(made):
                raise ValueError(f"Expected `{name}` that fits {getattr(check, '__name__', 'its check')}")
        return made

    return stand_in(name, read, lambda writer: _described(type_, rules, writer))


def _described(type_: object, rules: dict[str, Any], writer: Writer) -> Schema:
    """Describe the type with the rules that JSON Schema has a word for."""
    schema = writer.describe(type_)
    places = [schema, *schema.get("anyOf", ())]
    for place in places:
        kind = place.get("type")
        for rule, bound in rules.items():
            if kind in {"integer", "number"} and rule in KEYWORDS:
                if isinstance(bound, int):
                    place[KEYWORDS[rule]] = bound
                else:
                    place[KEYWORDS[rule]] = float(bound)
            elif kind in LENGTHS and rule in {"min_length", "max_length"}:
                place[f"{rule[:3]}{LENGTHS[kind]}"] = bound
            elif kind == "string" and rule == "pattern":
                place["pattern"] = bound
    return schema
