"""Options, held against their types before anything is opened or offered."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from msgspec import Struct, structs

from ferrule.errors import SetupError

LEAST_MESSAGE_SIZE = 1024
MOST_MESSAGE_SIZE = 100 * 1024 * 1024
"""What the longest message of a transport may be set to, in bytes."""

WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a str",
    tuple: "a list",
    list: "a list",
    Sequence: "a list",
    Collection: "a set or a list",
    Mapping: "a mapping",
    Callable: "a function",
    NoneType: "None",
}
"""The kinds of options that are looked at, beside structs; one of another kind is checked by whoever uses it."""


def require_types(settings: Struct, given: Iterable[str] | None = None) -> None:
    """Raise SetupError for an option that is not what its annotation says; of all, or of those that were given."""
    known = _kinds_of(type(settings))
    for name in known if given is None else given:
        if name in known:
            _require(name, getattr(settings, name), known[name])


def require_number(name: str, value: Any, *, least: float = 0, whole: bool = False) -> None:
    """Raise SetupError for an option that is no number, or less than it may be."""
    _require(name, value, (int,) if whole else (float,))
    if not value >= least:
        raise SetupError(f"{name} must be at least {least}, not {value!r}")


def require_message_size(size: int, name: str = "max_message_size") -> None:
    """Raise SetupError for a longest message that is no number, or outside what a transport may be set to."""
    _require(name, size, (int,))
    if not LEAST_MESSAGE_SIZE <= size <= MOST_MESSAGE_SIZE:
        raise SetupError(f"{name} must be from 1 KiB to 100 MiB, not {size} bytes")


@cache
def _kinds_of(kind: type[Struct]) -> dict[str, tuple[Any, ...]]:
    """Return the kinds each option may be of, where all of them are simple."""
    found = {field.name: _kinds(field.type) for field in structs.fields(kind)}
    return {name: kinds for name, kinds in found.items() if all(each in WORDS or _is_struct(each) for each in kinds)}


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _kinds(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (Union, UnionType):
        members = get_args(annotation)
    else:
        members = (annotation,)
    return tuple(get_origin(member) or member for member in members)


def _require(name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    if not any(_fits(value, kind) for kind in kinds):
        words = dict.fromkeys(WORDS.get(kind) or kind.__name__ for kind in kinds)
        raise SetupError(f"{name} must be {' or '.join(words)}, not {value!r}")


def _fits(value: Any, kind: Any) -> bool:
    if kind is int or kind is float:
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    if kind is str:
        return isinstance(value, str | os.PathLike)
    if kind is tuple:
        return isinstance(value, tuple | list | set | frozenset)
    if kind is list or kind is Sequence:
        return isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return isinstance(value, kind)
