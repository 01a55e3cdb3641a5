"""Stand-ins for types that msgspec cannot read by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Protocol, Union, get_args, get_origin

Schema = dict[str, Any]
Mode = Literal["validation", "serialization"]


class Writer(Protocol):
    """What describes types in JSON Schema; the definitions are shared by all types of one schema."""

    mode: Mode
    definitions: dict[str, Schema]

    def describe(self, type_: object) -> Schema:
        """Describe a type."""

    def define(self, type_: object, make: Callable[[], Schema]) -> Schema:
        """Describe a type that may refer to itself, once, and return a reference to it."""

    def node(self, node: object) -> Schema:
        """Describe what msgspec knows of a type."""


Read = Callable[[Any], Any]
Describe = Callable[[Writer], Schema]


class StandIn(type):
    """A class that stands for a type: its JSON goes to `read`, its schema comes from `describe`."""

    read: Read
    describe: Describe
    keys: frozenset[str]
    made: type

    def __instancecheck__(cls, value: object) -> bool:
        # msgspec asks whether what was read is of the type; what `read` gives is, whatever its class.
        return True


def stand_in(name: str, read: Read, describe: Describe, *, keys: Iterable[str] = (), made: type = object) -> StandIn:
    """Make a stand-in; `keys` are the members its JSON has, `made` is the class of its values, where there is one."""
    members = {"read": staticmethod(read), "describe": staticmethod(describe)}
    return StandIn(name, (), {**members, "keys": frozenset(keys), "made": made})


def choices(values: Iterable[object]) -> Schema:
    """Describe a choice between values."""
    listed = list(values)
    for type_, name in ((str, "string"), (int, "integer")):
        if all(type(choice) is type_ for choice in listed):
            return {"type": name, "enum": listed}
    return {"enum": listed}


def either(members: Iterable[object]) -> Any:
    """Return the union of types that are known at run time only."""
    return Union[tuple(members)]  # noqa: UP007  `|` refuses some typing objects


def shown(type_: object) -> str:
    """Name a type as a person would write it."""
    if isinstance(type_, type) and not hasattr(type_, "__args__"):
        return type_.__qualname__
    if get_origin(type_) is Annotated:
        return f"Annotated[{shown(get_args(type_)[0])}, ...]"
    text = str(type_)
    for prefix in ("typing.", "builtins.", "collections.abc."):
        text = text.replace(prefix, "")
    return text
