"""Types that msgspec does not know by itself, and the hooks by which it reads and writes them."""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import operator
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

import msgspec

from ferrule.server.functions.types import pydantic_types
from ferrule.server.functions.types.stand_in import Describe, Read, StandIn

_ADDRESSES = {"IPv4Address": "ipv4", "IPv6Address": "ipv6"}
_PLAIN = (str, int, float)
_MAKE_EMPTY = {int, float, str, bool, bytes, list, dict, set, tuple}
"""Classes whose call without arguments is the value a `defaultdict` begins with."""


class ExtraType(msgspec.Struct, frozen=True):
    """How a class that msgspec does not know is read and described."""

    read: Read
    describe: Describe


def convert(value: object, type_: object, *, strict: bool = True) -> Any:
    """Make a value of a type from JSON values; `msgspec.ValidationError` when it does not fit."""
    return msgspec.convert(value, type_, dec_hook=decode_hook, str_keys=True, strict=strict)


def decode_hook(type_: object, value: object) -> Any:
    """Make a value of a type msgspec does not know; one of just that class is taken as it is."""
    if type(value) is type_:
        return value
    found: StandIn | ExtraType | None
    if isinstance(type_, StandIn):
        found = type_
    else:
        found = extra_type(type_)
    if found is None:
        raise NotImplementedError(f"{type_!r} cannot be read from JSON")
    return found.read(value)


def encode_hook(value: object) -> Any:
    """Write a value of a type msgspec does not know."""
    class_: Any = type(value)
    return _writer_of(class_)(value)


@functools.lru_cache(maxsize=1024)
def _writer_of(class_: type) -> Callable[[Any], Any]:
    """Find how the values of a class are written: a long list has many of one."""
    if is_path(class_) or class_.__module__ == "ipaddress":
        return str
    if issubclass(class_, collections.deque):
        return list
    for plain in _PLAIN:
        if issubclass(class_, plain):
            return plain
    if issubclass(class_, re.Pattern):
        return operator.attrgetter("pattern")
    if pydantic_types.is_pydantic(class_):
        return pydantic_types.dump
    return _refuse


def _refuse(value: object) -> Any:
    if inspect.iscoroutine(value):
        raise NotImplementedError("a coroutine cannot be written as JSON: write the handler as an `async def`")
    raise NotImplementedError(f"values of type {type(value).__name__} cannot be written as JSON")


def is_path(class_: type) -> bool:
    """Return whether a class is one of paths; only a program that has imported them can have one."""
    pathlib = sys.modules.get("pathlib")
    return pathlib is not None and issubclass(class_, pathlib.PurePath)


def plain(value: object) -> Any:
    """Return a value with the names it is read by, for what msgspec would write under others: see `needs_plain`."""
    class_ = type(value)
    if pydantic_types.is_pydantic_dataclass(class_):
        return pydantic_types.dump(value)
    if isinstance(value, list | tuple | set | frozenset | collections.deque):
        return list(map(plain, value))
    attributes = getattr(class_, "__attrs_attrs__", None)
    written = {}
    if isinstance(value, Mapping):
        for key, item in value.items():
            written[key] = plain(item)
    elif attributes is not None:
        for field in attributes:
            written[field.alias] = plain(getattr(value, field.name))
    elif dataclasses.is_dataclass(class_):
        for field in dataclasses.fields(class_):
            written[field.name] = plain(getattr(value, field.name))
    else:
        return value
    return written


def needs_plain(class_: object) -> bool:
    """Return whether msgspec writes the type under other names than it reads; such values go through `plain` first.

    That is so for aliases, and for attributes that begin with `_`.
    """
    if pydantic_types.is_pydantic_dataclass(class_):
        return True
    attributes = getattr(class_, "__attrs_attrs__", ())
    return any(field.alias != field.name for field in attributes)


@functools.lru_cache(maxsize=1024)
def extra_type(type_: object) -> ExtraType | None:
    """Return how a class is read that msgspec does not know; None where we do not either."""
    class_ = get_origin(type_) or type_
    if not isinstance(class_, type):
        return None
    if class_ in CONTAINERS:
        return CONTAINERS[class_](get_args(type_))
    if pydantic_types.is_model(class_):
        describe = functools.partial(pydantic_types.describe_model, type_)
        return ExtraType(pydantic_types.model_reader(type_), describe)
    if is_path(class_):
        return _text(class_, "a path", "path")
    if class_ is re.Pattern:
        return _text(_compiled, "a regular expression", "regex")
    if class_.__module__ == "ipaddress":
        return _text(class_, "an address", _ADDRESSES.get(class_.__name__))
    for plain in _PLAIN:
        if issubclass(class_, plain):
            return _subclass(class_, plain)
    return None


def _text(make: Callable[[str], Any], what: str, format_: str | None) -> ExtraType:
    """Return how a class is read whose values are written as text."""

    def read(value: object) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"Expected {what} as `str`")
        return make(value)

    schema = {"type": "string"}
    if format_ is not None:
        schema["format"] = format_
    return ExtraType(read, lambda writer: dict(schema))


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None


def _subclass(class_: Any, plain: type) -> ExtraType:
    """Return how a user's subclass of a text or a number is read."""
    return ExtraType(lambda value: class_(convert(value, plain)), lambda writer: writer.describe(plain))


def _container(shape: object, make: Callable[[Any], Any]) -> ExtraType:
    """Return how a class is read that is made of a list or a dict."""

    def read(value: object) -> Any:
        return make(convert(value, shape))

    return ExtraType(read, lambda writer: writer.describe(shape))


def _deque(args: tuple[Any, ...]) -> ExtraType:
    if not args:
        return _container(list, collections.deque)
    return _container(list[args[0]], collections.deque)  # type: ignore[valid-type]


def _ordered(args: tuple[Any, ...]) -> ExtraType:
    return _container(_map(args), collections.OrderedDict)


def _counter(args: tuple[Any, ...]) -> ExtraType:
    if not args:
        return _container(dict[str, int], collections.Counter)
    return _container(dict[args[0], int], collections.Counter)  # type: ignore[valid-type]


def _defaulting(args: tuple[Any, ...]) -> ExtraType:
    """Return how a `defaultdict` is read: missing values are made by the class of the others, where it can."""
    factory = None
    if args:
        missing = get_origin(args[1]) or args[1]
        if missing in _MAKE_EMPTY:
            factory = missing
    return _container(_map(args), lambda value: collections.defaultdict(factory, value))


def _map(args: tuple[Any, ...]) -> Any:
    if not args:
        return dict
    return dict[args[0], args[1]]  # type: ignore[valid-type]


CONTAINERS: dict[type, Callable[[tuple[Any, ...]], ExtraType]] = {
    collections.deque: _deque,
    collections.OrderedDict: _ordered,
    collections.Counter: _counter,
    collections.defaultdict: _defaulting,
}
