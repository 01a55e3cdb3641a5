"""Types of pydantic, which read, write and describe themselves; pydantic is never imported here."""

# Only a program that has imported pydantic can hold one of its types, so it is looked for among the loaded modules.

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from ferrule.budgets.bounds import MAX_EXPLAINED_SIZE, MAX_VIOLATIONS
from ferrule.server.functions.types.stand_in import Schema, StandIn, Writer, shown, stand_in
from ferrule.validation.violations import MAX_ERRORS, Unfit, Violation, excerpt, pointer

logger = logging.getLogger("ferrule.server")

_RULES = {
    "missing": "required",
    "extra_forbidden": "additionalProperties",
    "greater_than_equal": "minimum",
    "greater_than": "exclusiveMinimum",
    "less_than_equal": "maximum",
    "less_than": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "string_too_short": "minLength",
    "string_too_long": "maxLength",
    "string_pattern_mismatch": "pattern",
    "too_short": "minItems",
    "too_long": "maxItems",
    "literal_error": "enum",
    "enum": "enum",
}
"""The words of JSON Schema for pydantic's."""

_ABOUT_TYPES = ("Unable to serialize", "Circular reference")
"""How pydantic begins to say what cannot be written; anything else comes from a function of the user's."""


def is_pydantic(type_: object) -> bool:
    """Return whether pydantic reads a class: a model, a dataclass of its own, or a class that says how."""
    if "pydantic" not in sys.modules or not isinstance(type_, type):
        return False
    return hasattr(type_, "__pydantic_validator__") or hasattr(type_, "__get_pydantic_core_schema__")


def is_model(type_: object) -> bool:
    """Return whether a class is a model of pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(type_, type) and issubclass(type_, pydantic.BaseModel)


def is_pydantic_dataclass(type_: object) -> bool:
    """Return whether a class is a dataclass that pydantic reads."""
    return is_pydantic(type_) and hasattr(type_, "__dataclass_fields__")


def is_field(value: object) -> bool:
    """Return whether a value is what `pydantic.Field` returns."""
    return type(value).__name__ == "FieldInfo" and type(value).__module__ == "pydantic.fields"


def speaks_pydantic(metadata: object) -> bool:
    """Return whether pydantic has to read a part of `Annotated`."""
    return type(metadata).__module__.partition(".")[0] == "pydantic" or hasattr(
        type(metadata), "__get_pydantic_core_schema__"
    )


def pydantic_stand_in(type_: object) -> StandIn:
    """Return a stand-in for any type that pydantic reads."""
    return stand_in(shown(type_), model_reader(type_), lambda writer: describe_model(type_, writer), keys=_keys(type_))


def _adapter(type_: object) -> Any:
    try:
        adapter = sys.modules["pydantic"].TypeAdapter(type_)
        # A class whose annotations cannot be resolved yet says so when it is first looked into.
        adapter.core_schema["type"]
        return adapter
    except Exception as error:
        # Whatever pydantic finds wrong with a type, of its own classes or another's code.
        raise TypeError(f"pydantic cannot read it: {str(error).partition(chr(10))[0]}") from error


def model_reader(type_: object) -> Callable[[Any], Any]:
    """Return the function that makes a value of the type."""
    # The JSON reading, because strict models take dates and the like as text only there.
    validate = _adapter(type_).validate_json

    def read(value: object) -> Any:
        written = msgspec.json.encode(value)
        try:
            return validate(written)
        except ValueError as refusal:
            if not hasattr(refusal, "errors"):
                raise
            error: Any = refusal  # a ValidationError of pydantic
            if len(written) > MAX_EXPLAINED_SIZE or error.error_count() > MAX_ERRORS:
                raise Unfit([_short(error)], is_complete=True) from None
            problems = []
            for problem in error.errors(include_url=False):
                problems.append(_violation(problem, value))
            raise Unfit(problems, is_complete=True) from None

    return read


def _short(error: Any) -> Violation:
    """Say of a long value how much is wrong with it: pydantic's list holds all of it."""
    count = error.error_count()
    if count > MAX_VIOLATIONS:
        return Violation("", "…", "value", f"does not fit {error.title}: {count:,} things are wrong with it")
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = pointer(first["loc"])
    return Violation(place, "…", _rule(str(first["type"])), first["msg"])


def describe_model(type_: object, writer: Writer) -> Schema:
    """Describe a type as pydantic does, its definitions among the others."""
    schema: Schema = _adapter(type_).json_schema(mode=writer.mode)
    definitions = schema.pop("$defs", {})
    names = {}
    for name, definition in definitions.items():
        names[name] = _free(name, definition, writer.definitions)
    if any(name != new for name, new in names.items()):
        schema, definitions = _renamed((schema, definitions), names)
    writer.definitions.update({names[name]: definition for name, definition in definitions.items()})
    return schema


def dump(value: object) -> Any:
    """Write a model or a dataclass of pydantic as JSON values, by the names its schema has."""
    try:
        serializer = getattr(type(value), "__pydantic_serializer__", None)
        if serializer is None:
            return sys.modules["pydantic"].TypeAdapter(type(value)).dump_python(value, mode="json")
        return serializer.to_python(value, mode="json", by_alias=True)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        if str(error).startswith(_ABOUT_TYPES):
            raise
        # What a user's own serializer says is for the log, as whatever else a handler raises.
        name = type(value).__name__
        logger.error("writing a value of type %s failed", name, exc_info=error)
        raise NotImplementedError(f"a serializer of the type {name} failed") from None


def _keys(type_: object) -> list[str]:
    """Return the members a model reads, to tell which of several is meant."""
    fields: dict[str, Any] = getattr(type_, "__pydantic_fields__", {})
    return [field.alias or name for name, field in fields.items()]


def _free(name: str, definition: Schema, taken: dict[str, Schema]) -> str:
    """Return the name itself, or a numbered one when another type has it."""
    free = name
    number = 2
    while taken.get(free, definition) != definition:
        free = f"{name}_{number}"
        number = number + 1
    return free


def _renamed(value: object, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: f"#/$defs/{names[part.removeprefix('#/$defs/')]}" if key == "$ref" else _renamed(part, names)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_renamed(part, names) for part in value)
    return value


def _rule(said: str) -> str:
    """Name the rule of JSON Schema that a kind of pydantic's errors comes closest to."""
    if said in _RULES:
        return _RULES[said]
    if said.endswith("_type"):
        return "type"
    if said.endswith("_parsing"):
        return "format"
    return "value"


def _violation(problem: dict[str, Any], value: Any) -> Violation:
    """Place one of pydantic's errors; its location also names alternatives, which are no part of the JSON."""
    steps: list[str | int] = []
    for step in problem["loc"]:
        if isinstance(value, dict):
            inside = step in value
        else:
            inside = isinstance(value, list) and isinstance(step, int)
        if inside:
            steps.append(step)
            value = value[step]
    rule = _rule(str(problem["type"]))
    if rule == "required":
        return Violation(pointer(steps), excerpt(value), rule, f'"{problem["loc"][-1]}" is a required property')
    return Violation(pointer(steps), excerpt(value), rule, problem["msg"])
