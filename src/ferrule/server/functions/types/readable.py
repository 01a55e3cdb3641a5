"""Rewrite the types of annotations into types that msgspec can read, at full speed wherever it can."""

from __future__ import annotations

import collections.abc
import enum
import sys
import types
import typing
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import structs

from ferrule.server.functions.types import pydantic_types
from ferrule.server.functions.types.extra_types import CONTAINERS, convert, needs_plain
from ferrule.server.functions.types.records import Mirror, RecordField, record_fields
from ferrule.server.functions.types.stand_in import StandIn, either, shown, stand_in
from ferrule.server.functions.types.unions import choice_of, union_of

_UNIONS = (Union, types.UnionType)
_SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping, collections.OrderedDict)
_UNHASHABLE = (list, dict, set, bytearray, collections.abc.Mapping, collections.abc.Sequence, collections.deque)
_NO_KEYS = (list, tuple, set, frozenset, dict, bool, collections.deque)
_PLAIN = (str, int, bool, float)
_PLAIN_CHOICES = (str, int, bool, types.NoneType)
_OWN = (*_PLAIN, types.NoneType)

_read_as_they_are: set[object] = set()
"""Shapes of the types that were found to need no rewriting."""


def readable(type_: object) -> Any:
    """Return a type that reads the same values; `TypeError` with the reason for one that no JSON can be read into."""
    if is_plain(type_):
        return type_
    shape = shape_of(type_)
    if shape in _read_as_they_are:
        return type_
    made = _Rewriting().whole(type_)
    if shape is not None and made is type_:
        _read_as_they_are.add(shape)
    return made


def is_plain(type_: object) -> bool:
    """Return whether a type is a class of Python's own that msgspec reads as it is: most parameters have one."""
    return type(type_) is type and type_ in _PLAIN


def shape_of(type_: object) -> object | None:
    """Return a key for a type made of Python's own classes alone, to keep what was found out about it; else None.

    The type itself is no key: unions are equal whatever the order of their members, and their schemas are not.
    """
    if type(type_) is type:
        return type_ if type_ in _OWN else None
    origin = get_origin(type_)
    if origin in _UNIONS:
        origin = Union
    elif origin not in (list, dict):
        return None
    shape = [origin]
    for part in get_args(type_):
        inner = shape_of(part)
        if inner is None:
            return None
        shape.append(inner)
    return tuple(shape)


def mentions(type_: object, wanted: object) -> bool:
    """Return whether a type has anywhere inside it a class that `wanted` says yes to."""
    return _mentions(type_, wanted, set())


def _mentions(type_: Any, wanted: Any, seen: set[Any]) -> bool:
    if id(type_) in seen:
        return False
    seen.add(id(type_))
    if isinstance(type_, type) and wanted(type_):
        return True
    inner = [field.type for field in record_fields(type_) or ()]
    return any(_mentions(part, wanted, seen) for part in (*get_args(type_), *inner))


class _Rewriting:
    """Rewrites one type; classes whose fields cannot be read as they are get a mirror."""

    def __init__(self) -> None:
        self._mirrors: dict[Any, Mirror] = {}
        self._aliases: dict[Any, _Alias] = {}
        self._seen: set[Any] = set()
        self._grew = False

    def whole(self, type_: object) -> Any:
        # A class met inside itself is taken for one that needs no mirror, so what was rewritten before a mirror was
        # found to be needed is rewritten again, until none is new.
        while True:
            self._grew, self._seen = False, set()
            rewritten = self.rewrite(type_)
            if not self._grew:
                break
        for class_, mirror in list(self._mirrors.items()):
            mirror.settle(list(map(self._field, record_fields(class_) or ())))
        return rewritten

    def _field(self, field: RecordField) -> RecordField:
        return structs.replace(field, type=self.rewrite(field.type))

    def rewrite(self, type_: object) -> Any:
        origin = get_origin(type_)
        if origin is Annotated:
            return self._annotated(type_)
        if origin in _UNIONS:
            return self._union(type_)
        if origin is Literal:
            return _literal(type_)
        if type(origin or type_).__name__ == "TypeAliasType":
            return self._alias(type_)
        if isinstance(type_, typing.NewType):
            inner = self.rewrite(type_.__supertype__)
            if inner is type_.__supertype__:
                return type_
            return inner
        if isinstance(type_, TypeVar):
            return self._variable(type_)
        if getattr(origin, "_name", None) == "ReadOnly":
            return self.rewrite(get_args(type_)[0])
        if origin is not None and record_fields(type_) is None:
            return self._generic(type_, origin)
        return self._class(type_)

    def _annotated(self, type_: object) -> Any:
        from ferrule.server.functions.types.constraints import constrained, read_metadata

        inner, *metadata = get_args(type_)
        said = read_metadata(metadata)
        if said.foreign:
            return pydantic_types.pydantic_stand_in(type_)
        if get_origin(inner) in _UNIONS and (said.rules or said.checks):
            return self._constrained_union(inner, said)
        made = self.rewrite(inner)
        if made is inner and said.native:
            return type_
        return constrained(made, said)

    def _constrained_union(self, union: Any, said: Any) -> Any:
        """Put the constraints of a union on those of its members that can keep to them."""
        from ferrule.server.functions.types.constraints import constrained

        bare = structs.replace(said, texts={})
        members = []
        refusals = []
        for member in get_args(union):
            made = self.rewrite(member)
            try:
                members.append(made if member is types.NoneType else constrained(made, bare))
            except TypeError as error:
                refusals.append(error)
                members.append(made)
        if len(refusals) + (types.NoneType in get_args(union)) == len(members):
            raise refusals[0]
        return constrained(union_of(members), structs.replace(said, rules={}, checks=[]))

    def _union(self, type_: object) -> Any:
        members = get_args(type_)
        others = tuple(member for member in members if member is not types.NoneType)
        if len(others) > 1 and all(map(pydantic_types.is_pydantic, others)):
            read_by_pydantic = pydantic_types.pydantic_stand_in(either(others))
            if others == members:
                return read_by_pydantic
            return either((read_by_pydantic, None))
        made = list(map(self.rewrite, members))
        if all(one is other for one, other in zip(made, members, strict=True)):
            found = union_of(members)
            if get_origin(found) in _UNIONS and get_args(found) == members:
                return type_
            return found
        return union_of(made)

    def _alias(self, type_: Any) -> Any:
        if type_ in self._aliases:
            self._aliases[type_].used = True
            return self._aliases[type_].stand_in
        origin = get_origin(type_) or type_
        names = {origin.__name__: origin, **vars(sys.modules.get(origin.__module__, types))}
        holder = types.SimpleNamespace(__annotations__={"it": origin.__value__})
        value = typing.get_type_hints(holder, names, include_extras=True)["it"]
        if arguments := get_args(type_):
            value = value[arguments]
        alias = self._aliases[type_] = _Alias(type_)
        alias.target = self.rewrite(value)
        if alias.used:
            return alias.stand_in
        del self._aliases[type_]
        return alias.target

    def _variable(self, type_: TypeVar) -> Any:
        if type_.__constraints__:
            return self.rewrite(either(type_.__constraints__))
        bound = type_.__bound__
        if bound is None or (made := self.rewrite(bound)) is bound:
            return type_
        return made

    def _generic(self, type_: Any, origin: Any) -> Any:
        arguments = get_args(type_)
        _refuse_keys(type_, origin, arguments)
        made = [self.rewrite(part) if _is_type(part) else part for part in arguments]
        if origin is collections.abc.Iterable:
            return list[made[0]]  # type: ignore[valid-type]
        if origin in CONTAINERS:
            # msgspec tells a schema only the class, and not what is in it.
            found = CONTAINERS[origin](tuple(made))
            return stand_in(shown(type_), found.read, found.describe, made=origin)
        if all(one is other for one, other in zip(made, arguments, strict=True)):
            return type_
        return origin[tuple(made)]

    def _class(self, type_: object) -> Any:
        if type_ is object:
            return Any
        if type_ is typing.LiteralString:
            return str
        if type_ in (typing.Never, typing.NoReturn):
            raise TypeError("no value is of the type Never, so nothing can be sent")
        if isinstance(type_, enum.EnumMeta):
            return _enum(type_)
        if pydantic_types.is_pydantic(get_origin(type_) or type_):
            if pydantic_types.is_model(type_):
                return type_
            return pydantic_types.pydantic_stand_in(type_)
        return self._record(type_)

    def _record(self, type_: object) -> Any:
        if type_ in self._mirrors:
            return self._mirrors[type_].stand_in
        if type_ in self._seen:
            return type_
        try:
            fields = record_fields(type_)
        except NameError as error:
            raise TypeError(f"a field of {shown(type_)} has an annotation that cannot be resolved: {error}") from error
        if fields is None:
            return type_
        self._seen.add(type_)
        if needs_plain(get_origin(type_) or type_) or not all(self._is_kept(type_, field) for field in fields):
            self._mirrors[type_] = Mirror(type_)
            self._grew = True
            return self._mirrors[type_].stand_in
        return type_

    def _is_kept(self, owner: object, field: RecordField) -> bool:
        try:
            return self.rewrite(field.type) is field.type and not field.is_odd
        except TypeError as error:
            raise TypeError(f"the field {field.name!r} of {shown(owner)}: {error}") from error


class _Alias:
    """A named type that may be a part of itself."""

    def __init__(self, type_: object) -> None:
        self.target: Any = None
        self.used = False
        self.stand_in: StandIn = stand_in(
            shown(type_),
            lambda value: convert(value, self.target),
            lambda writer: writer.define(type_, lambda: writer.describe(self.target)),
        )


def _is_type(part: object) -> bool:
    return part is not ... and not isinstance(part, list | tuple)


def _literal(type_: object) -> Any:
    values = get_args(type_)
    if all(type(value) in _PLAIN_CHOICES for value in values):
        return type_
    return choice_of(shown(type_), values, {})


def _enum(type_: Any) -> Any:
    values = [member.value for member in type_]
    if not values:
        raise TypeError(f"the enum {type_.__name__} has no members, so nothing can be sent")
    if all(isinstance(value, str) for value in values) or all(isinstance(value, int) for value in values):
        return type_
    return choice_of(type_.__name__, list(type_), {})


def _refuse_keys(type_: object, origin: object, arguments: tuple[Any, ...]) -> None:
    """Refuse sets of what has no hash, and maps whose keys are no text."""
    if not arguments:
        return
    first = get_origin(arguments[0]) or arguments[0]
    if not isinstance(first, type):
        return
    if origin in _SETS and (first in _UNHASHABLE or first.__hash__ is None):
        raise TypeError(f"the items of {shown(type_)} have no hash: use list[...], or items that are hashable")
    if origin in _MAPS and (first in _NO_KEYS or first.__hash__ is None or record_fields(first) is not None):
        raise TypeError(f"the keys of a JSON object are text, and those of {shown(type_)} are not")
