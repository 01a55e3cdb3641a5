"""Classes with fields: what their fields are, and how one is read whose fields msgspec cannot read."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import NODEFAULT
from msgspec import inspect as mi

from ferrule.server.functions.types.extra_types import convert
from ferrule.server.functions.types.stand_in import Schema, StandIn, Writer, shown, stand_in
from ferrule.validation.violations import Unfit, Violation, missing, refusals, unknown

_MARKS = {"__struct_fields__", "__attrs_attrs__", "__dataclass_fields__", "__required_keys__", "_field_defaults"}
"""What a class has of its own once its fields are known."""
_QUALIFIERS = {"Required", "NotRequired", "ReadOnly"}


class RecordField(msgspec.Struct, frozen=True):
    """One field of a class: its name there, its key in JSON, and what may stand under it."""

    name: str
    key: str
    type: Any
    required: bool
    default: Any = msgspec.field(default_factory=lambda: NODEFAULT)
    factory: Any = msgspec.field(default_factory=lambda: NODEFAULT)
    is_odd: bool = False
    """Whether more is said of it than msgspec understands."""


def record_fields(type_: object) -> Sequence[RecordField] | None:
    """Return the fields of a class that has some; None for any other type."""
    class_ = get_origin(type_) or type_
    if not isinstance(class_, type):
        return None
    if class_ is type_ and not _MARKS.isdisjoint(vars(class_)):
        return _of_class(class_)
    return _read_fields(type_, class_)


@functools.lru_cache(maxsize=1024)
def _of_class(class_: type) -> Sequence[RecordField] | None:
    """Read the fields of a class that is complete once; tools share their records, and each looks several times."""
    return _read_fields(class_, class_)


def _read_fields(type_: object, class_: type) -> Sequence[RecordField] | None:
    if issubclass(class_, msgspec.Struct):
        return _of_struct(type_)
    if hasattr(class_, "__attrs_attrs__"):
        return _of_attrs(type_, class_)
    if dataclasses.is_dataclass(class_):
        return _of_dataclass(type_, class_)
    if type(class_).__name__ == "_TypedDictMeta":
        return _of_typed_dict(type_, class_)
    if issubclass(class_, tuple) and hasattr(class_, "_field_defaults"):
        return _of_named_tuple(type_, class_)
    return None


def _of_struct(type_: Any) -> list[RecordField]:
    found: list[RecordField] = []
    for f in msgspec.structs.fields(type_):
        found.append(RecordField(f.name, f.encode_name, f.type, f.required, f.default, f.default_factory))
    return found


def _of_attrs(type_: Any, class_: Any) -> list[RecordField]:
    hints = _hints(type_)
    found: list[RecordField] = []
    for field in class_.__attrs_attrs__:
        if field.init:
            found.append(_attribute(field, hints.get(field.name, Any)))
    return found


def _attribute(field: Any, hint: Any) -> RecordField:
    default = field.default
    if type(default).__name__ == "Factory":
        return RecordField(field.alias, field.alias, hint, required=False, factory=default.factory)
    if type(default).__name__ == "_Nothing":
        return RecordField(field.alias, field.alias, hint, required=True)
    return RecordField(field.alias, field.alias, hint, required=False, default=default)


def _of_dataclass(type_: Any, class_: Any) -> list[RecordField]:
    fields = []
    for field in dataclasses.fields(class_):
        if field.init:
            fields.append(field)
    pseudo = class_.__dataclass_fields__.keys() - {field.name for field in dataclasses.fields(class_)}
    initial = []
    for name in inspect.signature(class_).parameters:
        if name in pseudo:
            initial.append(name)
    if initial:
        raise TypeError(
            f"the dataclass {class_.__name__} has the InitVar {initial[0]!r}, which no value keeps: make it a field"
        )
    hints = _hints(type_)
    return [_dataclass_field(field, hints[field.name]) for field in fields]


def _dataclass_field(field: dataclasses.Field[Any], hint: object) -> RecordField:
    if field.default is not dataclasses.MISSING:
        return RecordField(field.name, field.name, hint, required=False, default=field.default)
    if field.default_factory is not dataclasses.MISSING:
        return RecordField(field.name, field.name, hint, required=False, factory=field.default_factory)
    return RecordField(field.name, field.name, hint, required=True)


def _of_typed_dict(type_: Any, class_: Any) -> list[RecordField]:
    fields = []
    for name, hint in _hints(type_).items():
        required = name in class_.__required_keys__
        bare = hint
        said = set()
        while (qualifier := getattr(get_origin(bare), "_name", None)) in _QUALIFIERS:
            said.add(qualifier)
            bare = get_args(bare)[0]
        required = "Required" in said or (required and "NotRequired" not in said)
        fields.append(RecordField(name, name, bare, required, is_odd="ReadOnly" in said))
    return fields


def _of_named_tuple(type_: Any, class_: Any) -> list[RecordField]:
    hints = _hints(type_)
    defaults = class_._field_defaults
    found: list[RecordField] = []
    for name in class_._fields:
        found.append(RecordField(name, name, hints.get(name, Any), name not in defaults, defaults.get(name, NODEFAULT)))
    return found


def _hints(type_: object) -> dict[str, Any]:
    """Return the annotations of a class and of the classes it inherits from, with the arguments of generics put in."""
    hints: dict[str, Any] = {}
    for owner, bound in _lineage(type_):
        own = inspect.get_annotations(owner)
        found = typing.get_type_hints(owner, include_extras=True)
        hints |= {name: _filled(found[name], bound) for name in own if name in found}
    return hints


def _lineage(type_: object) -> list[tuple[Any, dict[Any, Any]]]:
    """Return the classes of a type's ancestry, the oldest first, each with what its type variables stand for."""
    class_ = get_origin(type_) or type_
    parameters = getattr(class_, "__parameters__", ())
    arguments = get_args(type_) or parameters
    bound = dict(zip(parameters, arguments, strict=False))
    found: list[tuple[Any, dict[Any, Any]]] = []
    for parent in getattr(class_, "__orig_bases__", getattr(class_, "__bases__", ())):
        origin = get_origin(parent) or parent
        if isinstance(origin, type) and origin not in (object, typing.Generic, dict, tuple):
            found += _lineage(_filled(parent, bound))
    return [*found, (class_, bound)]


def _filled(hint: Any, bound: dict[Any, Any]) -> Any:
    """Put the arguments of a generic where its type variables stand."""
    if isinstance(hint, TypeVar):
        return bound.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or not bound:
        return hint
    return hint[tuple(bound.get(parameter, parameter) for parameter in parameters)]


class Mirror:
    """Reads a class field by field; its fields are given once the whole type is known."""

    def __init__(self, type_: Any) -> None:
        self.type = type_
        self.class_: Any = get_origin(type_) or type_
        self.fields: list[RecordField] = []
        config = getattr(self.class_, "__struct_config__", None)
        self._tag_field: str | None = getattr(config, "tag_field", None)
        self._tag = getattr(config, "tag", None)
        self._closed: bool = getattr(config, "forbid_unknown_fields", False)
        self._is_named_tuple = issubclass(self.class_, tuple)
        self._is_array = self._is_named_tuple or bool(getattr(config, "array_like", False))
        self.stand_in: StandIn = stand_in(shown(type_), self.read, self.describe)

    def settle(self, fields: Sequence[RecordField]) -> None:
        """Take the fields as they can be read."""
        self.fields = list(fields)
        self.stand_in.keys = frozenset(field.key for field in fields)

    def read(self, value: object) -> Any:
        """Make an object of JSON values, or say everything that is wrong with them."""
        members = self._members(value)
        given: dict[str, Any] = {}
        problems: list[Violation] = []
        for place, field in enumerate(self.fields, start=int(self._tag_field is not None)):
            step = place if self._is_array else field.key
            if field.key in members:
                try:
                    given[field.name] = convert(members[field.key], field.type)
                except msgspec.ValidationError as error:
                    problems += refusals(error, members[field.key], [step])
            elif field.required:
                problems.append(missing(field.key, value))
        if self._closed:
            known = {*self.stand_in.keys, self._tag_field}
            problems += [unknown(key, item) for key, item in members.items() if key not in known]
        if problems:
            raise Unfit(problems)
        return self.class_(**given)

    def _members(self, value: object) -> dict[str, Any]:
        kind = "array" if self._is_array else "object"
        if not isinstance(value, list if self._is_array else dict):
            raise ValueError(f"Expected `{kind}`, got `{type(value).__name__}`")
        keys = [field.key for field in self.fields]
        if self._tag_field is not None and self._is_array:
            keys.insert(0, self._tag_field)
        if isinstance(value, list):
            if self._is_named_tuple and len(value) > len(keys):
                raise ValueError(f"Expected `array` of at most length {len(keys)}, got {len(value)}")
            value = dict(zip(keys, value, strict=False))
        if self._tag_field is not None and value.get(self._tag_field) != self._tag:
            raise ValueError(f"Invalid value {value.get(self._tag_field)!r} for {self._tag_field!r}")
        members: dict[str, Any] = value
        return members

    def describe(self, writer: Writer) -> Schema:
        """Describe the class as if msgspec could read its fields."""
        return writer.node(self._node())

    def _node(self) -> Any:
        fields = tuple(
            mi.Field(f.name, f.key, mi.type_info(f.type), f.required, f.default, f.factory) for f in self.fields
        )
        if issubclass(self.class_, msgspec.Struct):
            return mi.StructType(self.type, fields, self._tag_field, self._tag, self._is_array, self._closed)
        kind: Callable[..., Any]
        if self._is_named_tuple:
            kind = mi.NamedTupleType
        else:
            kind = mi.DataclassType
        return kind(self.type, fields)
