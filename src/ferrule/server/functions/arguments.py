"""Read raw JSON into the values of a handler's parameters."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import types
from collections.abc import Callable, Iterator, Set
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs
from msgspec.structs import astuple

from ferrule.budgets.bounds import MAX_EXPLAINED_SIZE, MAX_REPAIRED_SIZE, MAX_VIOLATIONS
from ferrule.budgets.weight import bounded_depth
from ferrule.server.functions.signatures import Parameter, Signature
from ferrule.server.functions.types.extra_types import convert, decode_hook
from ferrule.validation.violations import (
    InvalidArguments,
    Unfit,
    Violation,
    excerpt,
    missing,
    pointer,
    refusals,
    refused_by_type,
    short,
    unknown,
)

if TYPE_CHECKING:
    from ferrule.validation.checker import Checker

RawJson = bytes | msgspec.Raw
Values = tuple[Any, ...]
Read = Callable[[RawJson], Values]
RefusedArguments = dict[str, msgspec.ValidationError | RecursionError]

NOT_SHOWN = "…"
"""Stands for a value that is too long to be shown."""
UNHASHABLE = "holds an array or object, which a set cannot"

WHOLE_FRACTION = rb"[0-9](?:\.0|[eE])"
"""How a whole number may begin that is written as a fraction or with an exponent."""

_SHARED_DEFAULTS = (int, float, str, bytes, bool, types.NoneType)


class NoObject(InvalidArguments):
    """The arguments are no object at all: a malformed request, which no other arguments of the tool would repair."""


class TypedReader:
    """Reads arguments by the handler's annotations."""

    def __init__(self, parameters: tuple[Parameter, ...], schema: dict[str, Any]) -> None:
        self.schema = schema
        self.parameters = parameters
        self._checker: Checker | None = None
        self._is_compiled = False
        self._long: LongReader | None = None

    @functools.cached_property
    def _decode(self) -> Callable[[RawJson], msgspec.Struct]:
        return bounded_depth(msgspec.json.Decoder(_struct(self.parameters, closed=True), dec_hook=decode_hook).decode)

    def reading(self) -> Read:
        """Return the function that reads: at full speed, and once more with care where that fails.

        What it reads with is made when it first reads: many tools are listed, few are called.
        """
        decode: Callable[[RawJson], msgspec.Struct]
        recover = self._recover

        def decode_first(raw: RawJson) -> msgspec.Struct:
            nonlocal decode
            decode = self._decode
            return decode(raw)

        decode = decode_first

        def read(raw: RawJson) -> Values:
            try:
                return astuple(decode(raw))
            except (ValueError, TypeError, RecursionError):
                pass  # its message may repeat the arguments: it is let go before they are read again
            return recover(raw)

        return read

    def _recover(self, raw: RawJson) -> Values:
        if len(memoryview(raw)) > MAX_EXPLAINED_SIZE:
            if self._long is None:
                self._long = LongReader(self.parameters)
            return self._long.read(raw)
        arguments = parsed_arguments(raw)
        known = {parameter.key for parameter in self.parameters}
        repair = re.search(WHOLE_FRACTION, raw) is not None
        values, lacking, refused = _convert_each(self.parameters, arguments, repair=repair)
        strange = []
        for name in arguments:
            if name not in known:
                strange.append(name)
        if not lacking and not strange and not refused:
            return values
        shape = lacking + [unknown(name, arguments[name]) for name in strange[:MAX_VIOLATIONS]]
        explained = self._explained(arguments, refused, len(memoryview(raw)))
        raise InvalidArguments([*shape, *explained], more=len(strange[MAX_VIOLATIONS:]))

    def _explained(self, arguments: dict[str, Any], refused: RefusedArguments, size: int) -> list[Violation]:
        """Return the schema's violations for the refused arguments, and the types' own words where it has none."""
        if not refused:
            return []
        if not self._is_compiled:
            from ferrule.validation.checker import own_schema

            self._checker = own_schema(self.schema)
            self._is_compiled = True
        if self._checker is not None:
            listed = self._checker.listed(arguments, size)
        else:
            listed = None
        # pydantic says for itself all that is wrong, and knows better than a schema what it takes.
        doubtful = set()
        for name, reason in refused.items():
            if not _says_all(reason):
                doubtful.add(name)
        found = []
        for violation in listed or ():
            if violation.parameter in doubtful:
                found.append(violation)
        told = {violation.path for violation in found}
        own = _in_own_words(refused, arguments, told)
        return found + [violation for violation in own if not any(_is_about(violation.path, path) for path in told)]


class LongReader:
    """Reads long arguments that their types refused, each on its own, for no more than reading them costs.

    It repairs what a client may have meant, and names the first thing that is wrong with each argument.
    """

    def __init__(self, parameters: tuple[Parameter, ...]) -> None:
        self._parameters = parameters
        self._decoders = [msgspec.json.Decoder(parameter.type, dec_hook=decode_hook).decode for parameter in parameters]
        fields: list[tuple[str, Any, Any]] = []
        names: dict[str, str] = {}
        for number, parameter in enumerate(parameters):
            fields.append((f"p{number}", msgspec.Raw | msgspec.UnsetType, msgspec.UNSET))
            names[f"p{number}"] = parameter.key
        parts = msgspec.defstruct("Parts", fields, rename=names, forbid_unknown_fields=True, gc=False, module=__name__)
        self._split = bounded_depth(msgspec.json.Decoder(parts).decode)

    def read(self, raw: RawJson) -> Values:
        """Return the values; raises InvalidArguments."""
        try:
            parts = astuple(self._split(raw))
        except (ValueError, RecursionError) as error:
            raise _unreadable(raw, error) from None
        values: list[Any] = []
        found: list[Violation] = []
        for parameter, decode, part in zip(self._parameters, self._decoders, parts, strict=True):
            if part is not msgspec.UNSET:
                value, reason = _read_part(decode, parameter.type, part)
                values.append(value)
                if reason is not None:
                    found += _of_long(parameter.key, reason)
            elif parameter.required:
                found.append(Violation("", NOT_SHOWN, "required", f'"{parameter.key}" is a required property'))
            else:
                values.append(parameter.made_default())
        if found:
            raise InvalidArguments(found)
        return tuple(values)


def _unreadable(raw: RawJson, error: Exception) -> InvalidArguments:
    """Make the refusal of long arguments that cannot be told apart."""
    if not bytes(raw[:64] if isinstance(raw, bytes) else memoryview(raw)[:64]).lstrip().startswith(b"{"):
        return NoObject([Violation("", NOT_SHOWN, "type", 'the arguments are not of type "object"')])
    if isinstance(error, msgspec.ValidationError):
        return InvalidArguments([structs.replace(refused_by_type(error, None, ()), value=NOT_SHOWN)])
    return InvalidArguments([Violation("", NOT_SHOWN, "json", f"cannot be read as JSON: {error}")])


def _read_part(decode: Callable[[Any], Any], type_: object, part: msgspec.Raw) -> tuple[Any, Exception | None]:
    """Read one long argument as it is, else as the JSON its text holds, else with 2 for 2.0. Return it, or why not."""
    value, refused = _decoded(decode, part)
    if refused is None:
        return value, None
    if bytes(memoryview(part)[:1]) == b'"':
        content = msgspec.json.decode(part, type=str).encode()
        if content.lstrip().startswith(b'"'):
            return None, refused
        value, reason = _decoded(decode, content)
        if reason is None:
            return value, None
    else:
        content = bytes(part)
    if len(content) <= MAX_REPAIRED_SIZE and re.search(WHOLE_FRACTION, content) is not None:
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            return convert(_decode_whole_numbers(content), type_), None
    return None, refused


def _decoded(decode: Callable[[Any], Any], part: RawJson) -> tuple[Any, Exception | None]:
    try:
        return decode(part), None
    except msgspec.ValidationError as error:
        if len(str(error)) <= MAX_EXPLAINED_SIZE:
            return None, error
        # It repeats the value.
        refused = msgspec.ValidationError(short(str(error)))
        refused.__cause__ = error.__cause__
        return None, refused
    except (ValueError, RecursionError) as error:
        return None, error
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return None, msgspec.ValidationError(UNHASHABLE)


def _of_long(name: str, reason: Exception) -> list[Violation]:
    """Say why a type refuses a long argument, without repeating it."""
    if isinstance(reason, msgspec.ValidationError):
        found = refusals(reason, None, [name])[:MAX_VIOLATIONS]
        if not isinstance(reason.__cause__, Unfit):
            # Its own words say where; the value is not there to be followed.
            found = [structs.replace(found[0], message=short(str(reason)))]
        return [structs.replace(violation, value=NOT_SHOWN) for violation in found]
    if isinstance(reason, RecursionError):
        return [Violation(f"/{name}", NOT_SHOWN, "depth", "is nested too deeply")]
    return [Violation(f"/{name}", NOT_SHOWN, "json", "cannot be read as JSON")]


class SchemaReader:
    """Reads arguments by a given schema, and then by the annotations there are."""

    def __init__(self, signature: Signature, schema: dict[str, Any], checker: Checker) -> None:
        self.schema = schema
        self._checker = checker
        self._parameters = signature.parameters
        self._takes_rest = signature.takes_rest
        self._struct = _struct(signature.parameters, closed=False)
        keys = [parameter.key for parameter in signature.parameters]
        self._takes_whole = len(keys) == 1 and not self._takes_rest and keys[0] not in schema.get("properties", {})
        self._taken = {*keys, *signature.hidden, signature.context_parameter}

    def reading(self) -> Read:
        """Return the function that reads; a handler with `**kwargs` gets their dict as the last value."""
        return self._read

    def _read(self, raw: RawJson) -> Values:
        arguments = parsed_arguments(raw)
        size = len(memoryview(raw))
        if not self._checker.accepts(arguments, size):
            arguments = self._repaired(arguments, size)
        if self._takes_whole:
            arguments = {self._parameters[0].key: arguments}
        values = self._converted(arguments)
        if self._takes_rest:
            return (*values, {name: value for name, value in arguments.items() if name not in self._taken})
        return values

    def _converted(self, arguments: dict[str, Any]) -> Values:
        try:
            return astuple(convert(arguments, self._struct))
        except (ValueError, TypeError, RecursionError):
            values, lacking, refused = _convert_each(self._parameters, arguments)
        if lacking or refused:
            raise InvalidArguments([*lacking, *_in_own_words(refused, arguments)])
        return values

    def _repaired(self, arguments: dict[str, Any], size: int) -> dict[str, Any]:
        """Parse the texts that were sent for something else, where that makes them valid."""
        if size > MAX_EXPLAINED_SIZE:
            raise InvalidArguments([too_long_to_explain()])
        found = self._checker.violations(arguments, size)
        wrong = {violation.parameter for violation in found}
        parsed: dict[str, Any] = {}
        for name, text in arguments.items():
            if name in wrong:
                value = _parsed(text)
                if value is not msgspec.UNSET:
                    parsed[name] = value
        if parsed:
            still_wrong = set()
            for violation in self._checker.violations(arguments | parsed, size):
                still_wrong.add(violation.parameter)
            arguments = arguments | {name: value for name, value in parsed.items() if name not in still_wrong}
            found = self._checker.violations(arguments, size)
        if found:
            raise InvalidArguments(found)
        return arguments


def too_long_to_explain() -> Violation:
    """Say that arguments are wrong, where it would take too long to say what is."""
    return Violation(
        "", NOT_SHOWN, "schema", f"does not fit the schema; above {MAX_EXPLAINED_SIZE:,} bytes no more is said"
    )


def _struct(parameters: tuple[Parameter, ...], *, closed: bool) -> type[msgspec.Struct]:
    """Make a struct with one field a parameter, numbered because a parameter's name may not be a legal field name."""
    fields = []
    names = {}
    for number, parameter in enumerate(parameters):
        field: Any = msgspec.field()
        if isinstance(parameter.default, _SHARED_DEFAULTS):
            field = msgspec.field(default=parameter.default)
        elif not parameter.required:
            field = msgspec.field(default_factory=parameter.made_default)
        fields.append((f"p{number}", parameter.type, field))
        names[f"p{number}"] = parameter.key
    return msgspec.defstruct(
        "Arguments", fields, kw_only=True, rename=names, forbid_unknown_fields=closed, gc=False, module=__name__
    )


def parsed_arguments(raw: RawJson) -> dict[str, Any]:
    """Read arguments as plain values; raises InvalidArguments, NoObject for what could be no tool's."""
    try:
        arguments = _decode_plain(raw) if memoryview(raw) else {}
    except (ValueError, RecursionError) as error:
        text = bytes(raw)[:MAX_EXPLAINED_SIZE].decode(errors="replace")
        raise InvalidArguments([Violation("", excerpt(text), "json", f"cannot be read as JSON: {error}")]) from None
    if arguments is None:
        return {}  # how some clients write that there are none
    if not isinstance(arguments, dict):
        raise NoObject([Violation("", excerpt(arguments), "type", 'the arguments are not of type "object"')])
    return arguments


def _convert_each(
    parameters: tuple[Parameter, ...], arguments: dict[str, Any], *, repair: bool = True
) -> tuple[Values, list[Violation], RefusedArguments]:
    """Convert each argument on its own: the values, what is missing, and why each type refuses what it does."""
    values: list[Any] = []
    lacking: list[Violation] = []
    refused: RefusedArguments = {}
    for parameter in parameters:
        name = parameter.key
        if name in arguments:
            try:
                values.append(_convert(arguments[name], parameter.type, repair=repair))
            except (msgspec.ValidationError, RecursionError) as error:
                refused[name] = error
        elif parameter.required:
            lacking.append(missing(name, arguments))
        else:
            values.append(parameter.made_default())
    return tuple(values), lacking, refused


def _says_all(reason: Exception) -> bool:
    """Return whether the type of the whole argument listed all; where a part did so, other parts were not read."""
    cause = reason.__cause__
    return isinstance(cause, Unfit) and cause.is_complete and " - at `" not in str(reason)


def _is_about(path: str, other: str) -> bool:
    """Return whether one path is the other, or inside it."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def _in_own_words(
    refused: RefusedArguments, arguments: dict[str, Any], told: Set[str] = frozenset()
) -> list[Violation]:
    """Say why the types refused arguments, in their own words, except of those that were told of as a whole."""
    found: list[Violation] = []
    for name, reason in refused.items():
        if not isinstance(reason, msgspec.ValidationError):
            found.append(Violation(f"/{name}", "…", "depth", "is nested too deeply"))
        elif pointer([name]) not in told:
            found += refusals(reason, arguments[name], [name])
    return found


def _convert(value: object, type_: object, *, repair: bool) -> Any:
    """Convert a value as it is, else, to `repair` it, with 2 for 2.0, else with a text parsed as the JSON it holds."""
    try:
        return _fitted(value, type_)
    except msgspec.ValidationError as error:
        refusal = error
    for candidate in _repairs(value, repair=repair):
        try:
            return _fitted(candidate, type_)
        except msgspec.ValidationError:
            continue
    raise refusal


def _fitted(value: object, type_: object) -> Any:
    try:
        return convert(value, type_)
    except TypeError as error:
        # A set of anything may be sent lists or objects, which no set can hold.
        if "unhashable" not in str(error):
            raise
        raise msgspec.ValidationError(UNHASHABLE) from None


def _repairs(value: object, *, repair: bool) -> Iterator[object]:
    if repair:
        yield _with_whole_numbers(value)
    parsed = _parsed(value)
    if parsed is not msgspec.UNSET:
        yield parsed
        if repair:
            yield _with_whole_numbers(parsed)


def _with_whole_numbers(value: object) -> Any:
    """Write each float that is a whole number as an int: JSON Schema calls both integers."""
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        return value
    if isinstance(value, list):
        return list(map(_with_whole_numbers, value))
    if isinstance(value, dict):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    return value


def _whole(text: str) -> int | float:
    """Read a fraction, or the whole number it is."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("out of range")
    if value.is_integer():
        return int(value)
    return value


_decode_plain = bounded_depth(msgspec.json.decode)
_decode_whole_numbers = msgspec.json.Decoder(float_hook=_whole).decode


def _parsed(value: object) -> Any:
    """Return the JSON value a text holds; UNSET where there is none, or that is again a text."""
    if not isinstance(value, str):
        return msgspec.UNSET
    try:
        parsed = msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return msgspec.UNSET
    if isinstance(parsed, str):
        return msgspec.UNSET
    return parsed
