"""Choices: unions that msgspec cannot tell apart, and enums and literals of any values."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import inspect as mi

from ferrule.server.functions.types.extra_types import convert, encode_hook
from ferrule.server.functions.types.pydantic_types import is_model
from ferrule.server.functions.types.stand_in import Schema, StandIn, Writer, choices, either, shown, stand_in

_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")
"""What msgspec may hold a value to."""
_NO_TUPLES = (list, dict, set, frozenset, Literal)
_PLACE = r" - at `(?:key` in `)?\$\.?(.*)`$"
"""Where msgspec says something is wrong: at the end, where only the place of the whole union belongs."""


def union_of(members: Sequence[object]) -> Any:
    """Return one type for several: msgspec's own union where it has one, else a stand-in that tries each."""
    if Any in members:
        return Any
    whole = either(members)
    if _is_readable(whole):
        return whole
    others = []
    for member in members:
        if member not in (None, NoneType):
            others.append(member)
    tried = _alternatives(others)
    if len(others) == len(members):
        return tried
    return either((tried, None))


def _is_readable(type_: object) -> bool:
    try:
        if _reads_wrong_memory(type_):
            return False
        msgspec.json.Decoder(type_)
    except TypeError:
        return False
    return True


def _reads_wrong_memory(type_: object) -> bool:
    """Return whether msgspec must not be given a type.

    In a union of a bounded value and a tuple of fixed length, msgspec 0.22 takes the bound for the length: the process
    ends, or runs out of memory.
    """
    if get_origin(type_) not in (Union, UnionType):
        return False
    members = get_args(type_)
    if not any(map(_may_be_tuple, members)):
        return False
    # Of the whole, msgspec must not be asked even that.
    nodes = list(map(_node, members))
    has_tuple = any(isinstance(node, mi.TupleType) for node in nodes)
    return has_tuple and any(map(_is_bounded, nodes))


def _may_be_tuple(type_: object) -> bool:
    """Return whether a type may be one of tuples; few are, and msgspec takes a while to say what a type is."""
    origin = get_origin(type_)
    if origin is None and isinstance(type_, type):
        return issubclass(type_, tuple)
    return origin not in _NO_TUPLES


def _node(type_: object) -> mi.Type:
    """Return what msgspec knows of a type, without what is said about it beside that."""
    node = mi.type_info(type_)
    while isinstance(node, mi.Metadata):
        node = node.type
    return node


def _is_bounded(node: mi.Type) -> bool:
    return any(getattr(node, bound, None) is not None for bound in _BOUNDS)


def _alternatives(members: Sequence[object]) -> StandIn:
    """Return a stand-in for types that msgspec cannot tell apart: each is tried."""
    groups = _grouped(members)
    keys = list(map(known_keys, groups))

    def read(value: object) -> Any:
        reasons = []
        best = None
        most_known = -1
        for known, group in zip(keys, groups, strict=True):
            try:
                made = convert(value, group)
            except msgspec.ValidationError as error:
                reasons.append(re.sub(_PLACE, r" at \1", str(error)))
                continue
            if not isinstance(value, dict):
                return made
            # Classes ignore members they do not know, so the first that fits need not be the one that was meant.
            count = len(known & value.keys())
            if count > most_known:
                best = made
                most_known = count
        if most_known < 0:
            raise ValueError(f"fits none of the alternatives: {'; '.join(dict.fromkeys(reasons))}")
        return best

    def describe(writer: Writer) -> Schema:
        described = list(map(writer.describe, members))
        if {} in described:
            return {}
        return {"anyOf": described}

    return stand_in(" | ".join(map(shown, members)), read, describe)


def _grouped(members: Iterable[object]) -> list[Any]:
    """Put together the members that msgspec can tell apart at full speed, in the order they are written in."""
    groups: list[tuple[Any, ...]] = []
    for member in members:
        for place, group in enumerate(groups):
            if _is_readable(either((*group, member))):
                groups[place] = (*group, member)
                break
        else:
            groups.append((member,))
    return list(map(either, groups))


def known_keys(type_: Any) -> frozenset[str]:
    """Return the members an object of a type may have, as far as they have names."""
    if isinstance(type_, StandIn):
        return type_.keys
    if is_model(type_):
        return frozenset(field.alias or name for name, field in type_.__pydantic_fields__.items())
    node = mi.type_info(type_)
    nodes = [node]
    if isinstance(node, mi.UnionType):
        nodes = list(node.types)
    keys = set()
    for each in nodes:
        for field in getattr(each, "fields", ()):
            keys.add(field.encode_name)
    return frozenset(keys)


def choice_of(name: str, members: Iterable[object], text: Schema) -> StandIn:
    """Return a stand-in for a choice between values, each read from what it is written as."""
    chosen = list(members)
    written = list(map(_written, chosen))

    def read(value: object) -> Any:
        for known, member in zip(written, chosen, strict=True):
            if type(value) is type(known) and value == known:
                return member
        raise ValueError(f"Invalid choice {value!r}: it is one of {', '.join(map(repr, written))}")

    def describe(writer: Writer) -> Schema:
        return {**choices(written), **text}

    return stand_in(name, read, describe)


def _written(member: object) -> Any:
    """Return what a choice is as JSON."""
    value = member
    if isinstance(member, enum.Enum):
        value = member.value
    if isinstance(value, bytes):
        raise TypeError(f"the choice {value!r} has no JSON form: write it as text")
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=encode_hook))
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TypeError(f"the choice {value!r} has no JSON form ({error})") from error
