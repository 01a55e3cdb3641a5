"""What an option may be, read from the annotation of its field; and the refusals of what it may not be.

Rule: a bound stands in the type (`Seconds`, `PositiveInt`), so that an option is declared in one line.
"""

from __future__ import annotations

import builtins
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from sys import modules
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Meta, Struct, structs

from ferrule.errors import SetupError

S = TypeVar("S", bound=Struct)

SECONDS = "seconds"
BYTES = "bytes"

PositiveInt = Annotated[int, Meta(ge=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, extra={"unit": SECONDS})]
PositiveSeconds = Annotated[float, Meta(gt=0, extra={"unit": SECONDS})]
A_YEAR = 365 * 24 * 3600
FiniteSeconds = Annotated[float, Meta(gt=0, le=A_YEAR, extra={"unit": SECONDS})]
"""A time that ends."""
Bytes = Annotated[int, Meta(ge=1, extra={"unit": BYTES})]
LEAST_MESSAGE_SIZE = 1024
MOST_MESSAGE_SIZE = 100 * 1024 * 1024
MessageSize = Annotated[int, Meta(ge=LEAST_MESSAGE_SIZE, le=MOST_MESSAGE_SIZE, extra={"unit": BYTES})]
"""What the longest message of a transport may be set to."""
Port = Annotated[int, Meta(ge=0, le=65535)]
"""A port; 0 for any that is free."""
Fraction = Annotated[float, Meta(ge=0, le=1)]
FilePath = str | os.PathLike[str]

WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a str",
    os.PathLike: "a path",
    bytes: "bytes",
    tuple: "a list",
    list: "a list",
    Sequence: "a list",
    Collection: "a set or a list",
    Mapping: "a mapping",
    Callable: "a function",
    NoneType: "None",
}
LISTS = (tuple, list, Sequence, Collection)
SCALARS = (bool, int, float, str, bytes, os.PathLike)
SIZES = ((1024 * 1024, "MiB"), (1024, "KiB"))

SHORT_NAME = 5
CLOSE_SHORT = 0.7
CLOSE = 0.8
"""How alike the misspelled name of an option and ours must be, from 0 to 1: `prot` is port, `subscriptions` nothing."""
LONGEST_NAME = 100
"""A longer name is no misspelled one, and comparing it would take long."""


# -- what an option may be


class Kind(Struct, frozen=True):
    """One kind of value an option may have: a whole number of at least 1, one of three words."""

    base: Any
    """The class; Literal for one of a few words."""
    choices: tuple[object, ...] = ()
    items: tuple[Any, ...] = ()
    """The scalars a list may hold; empty for anything."""
    bounds: Meta | None = None

    @property
    def words(self) -> str:
        """This kind, without its bounds, as an error names it."""
        if self.base is Literal:
            # Sorted: Python keeps one object for all Literals of the same words, in whichever order came first.
            return "one of " + ", ".join(sorted(map(str, self.choices)))
        return WORDS.get(self.base) or self.base.__name__

    @property
    def bounded(self) -> str:
        """This kind with its bounds, as an error names it."""
        if self.bounds is None:
            return self.words
        unit = _unit(self.bounds)
        if self.bounds.gt is not None and self.bounds.le is not None:
            return f"more than {_measured(self.bounds.gt, '')} and at most {_measured(self.bounds.le, unit)}"
        if self.bounds.gt is not None:
            return f"more than {_measured(self.bounds.gt, unit)}"
        if self.bounds.le is not None:
            return f"from {_measured(self.bounds.ge, unit)} to {_measured(self.bounds.le, unit)}"
        return f"at least {_measured(self.bounds.ge, unit)}"

    def takes(self, value: object) -> bool:
        """Whether a value is of this kind, its bounds left aside."""
        base = self.base
        if base is Any or base is object:
            return True
        if base is Literal:
            return value in self.choices
        if base is int or base is float:
            return isinstance(value, (int, base)) and not isinstance(value, bool)
        if base is str:
            return isinstance(value, str | os.PathLike)
        if base in LISTS:
            return isinstance(value, Collection) and self.takes_list(value) and self._takes_items(value)
        return isinstance(value, base)

    def takes_list(self, value: object) -> bool:
        """Whether a value is a list of this kind, whatever it holds."""
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection):
            return False
        return isinstance(value, Sequence) or self.base not in (list, Sequence)

    def _takes_items(self, values: Collection[object]) -> bool:
        if not self.items:
            return True
        return all(isinstance(value, self.items) for value in values)

    def admits(self, value: object) -> bool:
        """Whether a value of this kind is within its bounds; a NaN is not."""
        if self.bounds is None or not isinstance(value, int | float):
            return True
        if self.bounds.gt is not None and not value > self.bounds.gt:
            return False
        if self.bounds.ge is not None and not value >= self.bounds.ge:
            return False
        return self.bounds.le is None or value <= self.bounds.le


Kinds = tuple[Kind, ...]


def settable(kind: Kind) -> bool:
    """Whether a file or the environment can give values of a kind: a scalar, a word, a list of them or a mapping."""
    return kind.base in (Literal, bool, int, float, str, os.PathLike, Mapping) or bool(kind.items)


def require(name: str, value: object, annotation: object) -> None:
    """Raise SetupError for a value that is not what an annotation says."""
    require_kind(name, value, kinds_of(annotation))


def require_kind(name: str, value: object, kinds: Kinds) -> None:
    """Raise SetupError for a value that is of none of these kinds, or out of bounds."""
    fitting = []
    for kind in kinds:
        if kind.takes(value):
            fitting.append(kind)
    if not fitting:
        words = dict.fromkeys(_words(kind, value) for kind in kinds)
        raise SetupError(f"{name} must be {' or '.join(words)}, not {value!r}{_as_list(value, kinds)}")
    for kind in fitting:
        if kind.admits(value):
            return
    allowed = dict.fromkeys(kind.bounded for kind in kinds)
    in_bytes = " bytes" if _unit(fitting[0].bounds) == BYTES else ""
    raise SetupError(f"{name} must be {' or '.join(allowed)}, not {value!r}{in_bytes}")


def _words(kind: Kind, value: object) -> str:
    """Return the words for a kind; where a list of it holds something else, also what it may hold."""
    if kind.items and kind.takes_list(value):
        return f"{kind.words} of {' or '.join(item.__name__ for item in kind.items)}"
    return kind.words


def _as_list(value: object, kinds: Kinds) -> str:
    """Return how a lone str is written as the list that was wanted, as the end of a sentence."""
    if isinstance(value, str) and any(kind.base in LISTS for kind in kinds):
        return f": write [{value!r}]"
    return ""


def kinds_of(annotation: object) -> Kinds:
    """Return the kinds of an annotation."""
    if get_origin(annotation) in (Union, UnionType):
        found: list[Kind] = []
        for member in get_args(annotation):
            found.extend(kinds_of(member))
        return tuple(found)
    if get_origin(annotation) is Annotated:
        base, *notes = get_args(annotation)
        for note in notes:
            if isinstance(note, Meta):
                return (Kind(get_origin(base) or base, bounds=note),)
        return kinds_of(base)
    return (_plain_kind(annotation),)


def _plain_kind(annotation: object) -> Kind:
    base = get_origin(annotation) or annotation
    if base is Literal:
        return Kind(Literal, choices=get_args(annotation))
    if base in LISTS:
        return Kind(base, items=_scalars(get_args(annotation)))
    if not isinstance(base, type) or not _is_checkable(base):
        # What cannot be looked at here is checked by whoever uses it.
        return Kind(object)
    return Kind(base)


def _is_checkable(kind: type) -> bool:
    """Whether `isinstance` works: not with a protocol, unless it was made for that, nor with `typing.IO`."""
    if kind.__module__ == "typing":
        return False
    return not getattr(kind, "_is_protocol", False) or getattr(kind, "_is_runtime_protocol", False)


def _scalars(arguments: Iterable[object]) -> tuple[Any, ...]:
    found: list[Any] = []
    for argument in arguments:
        if argument is Ellipsis:
            continue
        for kind in kinds_of(argument):
            if kind.base not in SCALARS:
                return ()
            found.append(kind.base)
    return tuple(found)


def _unit(bounds: Meta | None) -> str:
    if bounds is None or not bounds.extra:
        return ""
    unit: str = bounds.extra.get("unit", "")
    return unit


def _measured(number: float | None, unit: str) -> str:
    assert number is not None
    if unit == BYTES:
        for size, name in SIZES:
            if number >= size and number % size == 0:
                return f"{number // size} {name}"
        return f"{number} {'byte' if number == 1 else 'bytes'}"
    if unit:
        return f"{number:g} {unit}"
    return f"{number}"


# -- the options of a struct


class _Names(dict[str, Any]):
    """The names an annotation may use; one that is imported for type checkers only stands for anything."""

    def __init__(self, module: str) -> None:
        super().__init__(vars(builtins))
        self.update(vars(modules[module]))

    def __missing__(self, name: str) -> Any:
        return object


@cache
def kinds_of_option(struct: type[Struct], name: str) -> Kinds:
    """Return the kinds of a field of a struct."""
    for owner in struct.__mro__:
        written = inspect.get_annotations(owner).get(name)
        if written is not None:
            # The text of an annotation in our own source; nothing from outside gets here.
            read = eval(written, {}, _Names(owner.__module__)) if isinstance(written, str) else written  # noqa: S307
            return kinds_of(read)
    raise KeyError(name)


def check(settings: Struct, where: str = "") -> None:
    """Raise SetupError for an option that is not what its annotation says; one left at its default is right."""
    for name, value in _changed(settings):
        require_kind(f"{where}{name}", value, kinds_of_option(type(settings), name))


def _changed(settings: Struct) -> Iterator[tuple[str, object]]:
    names = settings.__struct_fields__
    defaults = settings.__struct_defaults__
    required = len(names) - len(defaults)
    values = structs.astuple(settings)
    yield from zip(names[:required], values[:required], strict=True)
    for name, value, default in zip(names[required:], values[required:], defaults, strict=True):
        if value is not default:
            yield name, value


def read(
    struct: type[S],
    given: Mapping[str, object],
    where: str,
    *,
    beside: Iterable[str] = (),
    hints: Mapping[str, str] | None = None,
) -> S:
    """Make settings of keyword options; raises SetupError, which names where, for one that is not there or cannot be.

    `beside` are options that are taken elsewhere, and `hints` what to write for names of other libraries.
    """
    if given:
        require_known(where, given, (*struct.__struct_fields__, *beside), hints)
    try:
        return struct(**given)
    except (SetupError, TypeError) as reason:
        raise SetupError(f"{where}: {reason}") from None


def pick(struct: type[Struct], given: Mapping[str, object]) -> dict[str, Any]:
    """Return those of some options that are fields of a struct."""
    found = {}
    for name, value in given.items():
        if name in struct.__struct_fields__:
            found[name] = value
    return found


def require_known(
    where: str,
    given: Iterable[str],
    known: Iterable[str],
    hints: Mapping[str, str] | None = None,
    *,
    what: str = "option",
) -> None:
    """Raise SetupError for an option there is not; the error says what to write instead, and which there are."""
    names = set(known)
    for name in given:
        if name not in names:
            raise SetupError(f"{where}: unknown {what} {name!r}{_instead(name, sorted(names), hints or {}, what)}")


def _instead(name: str, known: Sequence[str], hints: Mapping[str, str], what: str) -> str:
    if name in hints:
        return f"; instead of {name}=… write {hints[name]}"
    if len(name) <= SHORT_NAME:
        meant = alike(name, known, CLOSE_SHORT)
    else:
        meant = alike(name, known, CLOSE)
    if meant:
        return f"; did you mean {meant!r}?"
    return f"; the {what}s are {', '.join(known)}"


def alike(name: str, known: Iterable[str], closeness: float = 0.6) -> str:
    """Return what is spelled most like a name, or nothing; a name may come from a peer, and be as long as a message."""
    if len(name) > LONGEST_NAME:
        return ""
    import difflib

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=closeness)
    if found:
        return found[0]
    return ""
