"""Turn a handler function into something callable from raw JSON.

What describes a handler is compiled when it is registered, what runs it when it is first called. A call is one decode
of the raw arguments straight into a struct made from the signature, and then the function itself.
"""

from __future__ import annotations

import collections.abc
import functools
import math
import types
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Never, NoReturn, Protocol, Self, get_args, get_origin

import msgspec
from msgspec import structs

from ferrule.server.calls.results import has_nonfinite
from ferrule.server.functions.arguments import RawJson, Read, SchemaReader, TypedReader
from ferrule.server.functions.schemas import arguments_schema, schema_of, unsupported, wrapped_schema
from ferrule.server.functions.signatures import NOTHING, Parameter, Signature, read_signature
from ferrule.server.functions.types.extra_types import convert, encode_hook, needs_plain, plain
from ferrule.server.functions.types.readable import is_plain, mentions, readable
from ferrule.validation.violations import InvalidArguments, InvalidOutput, Violation

if TYPE_CHECKING:
    from ferrule.server.functions.dependencies import InThread
    from ferrule.validation.checker import Checker

__all__ = ["Binding", "InvalidArguments", "InvalidOutput", "Signature", "Violation", "bind", "names", "schema_of"]

_encode = msgspec.json.Encoder(decimal_format="number").encode
_UNDESCRIBED = (NOTHING, Any, object, None, types.NoneType, Never, NoReturn)


class Invoke(Protocol):
    """Calls a handler with raw JSON; `hidden` fills the parameters that are kept from the caller."""

    def __call__(self, raw: RawJson, context: object = None, hidden: Mapping[str, object] = ...) -> Any: ...


class Binding:
    """A handler, ready to be called with raw JSON arguments."""

    def __init__(self, signature: Signature, reader: TypedReader | SchemaReader, output: _Output) -> None:
        self.signature = signature
        self.input_schema = reader.schema
        self._reader = reader
        self.output_schema = output.schema
        self.wraps_output = output.wraps
        self._output = output

    @functools.cached_property
    def invoke(self) -> Invoke:
        """What calls the function; made for the first call, for many tools are listed and few are called."""
        return _invoke(self.signature, self._reader.reading())

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.signature.name

    @property
    def description(self) -> str | None:
        """The prose of its docstring."""
        return self.signature.description

    @property
    def is_async(self) -> bool:
        """Whether `invoke` returns a coroutine."""
        return self.signature.is_async

    @property
    def streams(self) -> bool:
        """Whether `invoke` returns a generator."""
        return self.signature.is_generator or self.signature.is_async_generator

    @property
    def context_parameter(self) -> str | None:
        """The name of the parameter that takes the context."""
        return self.signature.context_parameter

    def choices(self) -> dict[str, list[str]]:
        """Return the values each parameter may have, where its type lists them; an optional one counts as well."""
        choices: dict[str, list[str]] = {}
        for name, rules in self.input_schema.get("properties", {}).items():
            if not isinstance(rules, dict):
                continue
            values: list[str] = []
            for kind in rules.get("anyOf", [rules]):
                values.extend(map(str, kind.get("enum", ())))
            if values:
                choices[name] = values
        return choices

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters a caller may fill."""
        return tuple(parameter.key for parameter in self.signature.parameters)

    @property
    def required(self) -> tuple[str, ...]:
        """The names a caller must fill."""
        return tuple(self.input_schema.get("required", ()))

    @property
    def takes_nothing(self) -> bool:
        """Whether its function is called with nothing at all."""
        signature = self.signature
        filled = signature.positional or signature.parameters or signature.hidden or signature.takes_rest
        return not filled and signature.context_parameter is None

    @property
    def returns(self) -> Any:
        """The return annotation."""
        return self.signature.returns

    @property
    def to_plain(self) -> Callable[[Any], Any] | None:
        """What its values go through before they are written, if anything."""
        return plain if self._output.needs_plain else None

    @property
    def checks_output(self) -> bool:
        """Whether `check_output` has anything to compare with."""
        return self.output_schema is not None

    @property
    def item_type(self) -> type | None:
        """The class of all items where a list of just that class is declared, and written as it is."""
        item_type = self._output.items
        if item_type is None or issubclass(item_type, Mapping):
            return None  # a mapping may hold content
        return item_type

    def check_output(self, value: object) -> None:
        """Raise `InvalidOutput` when the handler's value does not fit the output schema."""
        self._output.check(value, self.signature.name)


def bind(
    fn: Callable[..., Any],
    *,
    context_type: type | None = None,
    schema: Mapping[str, object] | None = None,
    output_schema: Mapping[str, object] | None = None,
    hidden: frozenset[str] = frozenset(),
    content_types: tuple[type, ...] = (),
    name: str | None = None,
    in_thread: InThread | None = None,
    describe_output: bool = True,
) -> Binding:
    """Compile a function for calls with raw JSON; `SetupError` when it cannot be called so.

    `in_thread` makes what runs the plain functions among a coroutine's providers.
    """
    signature = read_signature(
        fn,
        context_type=context_type,
        content_types=content_types,
        hidden=hidden,
        open_ended=schema is not None,
        name=name,
    )
    if signature.dependencies:
        from ferrule.server.functions.dependencies import injected

        signature = injected(signature, context_type, in_thread)
    reader = signature.once("reader", _typed_reader)
    signature = structs.replace(signature, parameters=reader.parameters)
    if schema is not None:
        from ferrule.validation.checker import given_schema

        reader = SchemaReader(signature, *given_schema(schema, f"{signature.name}(): schema"))
    if output_schema is not None:
        output = _Output.given(output_schema, f"{signature.name}(): output schema", content_types)
    elif describe_output:
        output = signature.once("output", lambda whole: _Output.declared(whole, content_types))
    else:
        output = _Output(content_types)
    return Binding(signature, reader, output)


def _typed_reader(signature: Signature) -> TypedReader:
    """Find how JSON is read into the parameters, and describe it."""
    signature = structs.replace(signature, parameters=tuple(_read(one, signature) for one in signature.parameters))
    return TypedReader(signature.parameters, arguments_schema(signature))


def _read(parameter: Parameter, signature: Signature) -> Parameter:
    """Find how JSON is read into a parameter."""
    try:
        return structs.replace(parameter, type=readable(parameter.annotation))
    except (TypeError, NameError) as error:
        raise unsupported(signature.name, parameter, error) from error


def _invoke(signature: Signature, read: Read) -> Invoke:
    """Choose the cheapest way to place the values in a call."""
    fn = signature.fn
    places = list(signature.positional)
    context = signature.context_parameter
    expected = [parameter.name for parameter in signature.parameters]
    if [name for name in places if name != context] != expected or signature.hidden or signature.takes_rest:
        return _invoke_by_name(signature, read)
    if context is None:

        def invoke(raw: RawJson, context: object = None, hidden: Mapping[str, object] = {}) -> Any:
            return fn(*read(raw))

    elif context not in places:
        return _invoke_by_name(signature, read)
    else:
        place = places.index(context)

        def invoke(raw: RawJson, context: object = None, hidden: Mapping[str, object] = {}) -> Any:
            values = read(raw)
            return fn(*values[:place], context, *values[place:])

    return invoke


def _invoke_by_name(signature: Signature, read: Read) -> Invoke:
    fn = signature.fn
    positional = signature.positional
    context_parameter = signature.context_parameter
    names = [parameter.name for parameter in signature.parameters]
    defaults = {}
    for name, value in signature.hidden.items():
        if value is not NOTHING:
            defaults[name] = value

    def invoke(raw: RawJson, context: object = None, hidden: Mapping[str, object] = {}) -> Any:
        values = read(raw)
        # The caller's own names come first, so that none of them can replace a hidden value or the context.
        given = dict(values[-1]) if signature.takes_rest else {}
        given.update(zip(names, values, strict=False))
        given.update(defaults)
        given.update(hidden)
        if context_parameter is not None:
            given[context_parameter] = context
        if missing := [name for name in signature.hidden if name not in given]:
            raise TypeError(f"{signature.name}() was invoked without its hidden parameter {missing[0]!r}")
        return fn(*list(map(given.pop, positional)), **given)

    return invoke


class _Output:
    """What a handler's values must look like."""

    def __init__(self, content_types: tuple[type, ...]) -> None:
        self.schema: dict[str, Any] | None = None
        self.wraps = False
        self._content_types = content_types
        self._declared: Any = Any
        self.items: type | None = None
        self._type: Any = Any
        self.needs_plain = False
        self._checker: Checker | None = None

    @classmethod
    def given(cls, schema: Mapping[str, object], place: str, content_types: tuple[type, ...]) -> Self:
        """Return what values must look like by a schema that was written by hand."""
        from ferrule.validation.checker import given_schema

        made = cls(content_types)
        made.schema, made._checker = given_schema(schema, place, of_object=False)
        return made

    @classmethod
    def declared(cls, signature: Signature, content_types: tuple[type, ...]) -> Self:
        """Return what values must look like by the return annotation."""
        made = cls(content_types)
        if _is_described(signature, content_types):
            made._describe(_given_by(signature))
        return made

    def _describe(self, type_: object) -> None:
        try:
            made = readable(type_)
            self.schema, self.wraps = wrapped_schema(made)
            self.needs_plain = not is_plain(type_) and mentions(type_, needs_plain)
        except (TypeError, NameError):
            # A type without a JSON form still has a text form, so it is offered as an unstructured result.
            return
        self._declared = type_
        if not self.needs_plain:
            self.items = _item_type(type_)
        self._type = made

    def check(self, value: object, name: str) -> None:
        """Raise `InvalidOutput`, which names the handler, when a value does not fit."""
        if type(value) is self._declared and (type(value) is not float or math.isfinite(value)):
            return
        if self.schema is None or isinstance(value, self._content_types):
            return
        if type(value) is list and self.items is not None and holds_just(value, self.items):
            return
        # Instances of the declared classes are taken as they are.
        if self._type is not Any and not self.needs_plain and self._takes(value):
            return
        builtins = self._written(value, name)
        if self._type is not Any and self._takes(builtins):
            return
        if self._checker is None:
            from ferrule.validation.checker import own_schema

            self._checker = own_schema(self.schema)
        whole = {"result": builtins} if self.wraps else builtins
        if self._checker:
            text = _encode(whole)
            found = self._checker.violations(msgspec.json.decode(text), len(text))
        else:
            found = []
        if found and has_nonfinite(builtins):
            found = [Violation(found[0].path, None, "json", "contains NaN or infinity, which JSON has no form for")]
        if found:
            raise InvalidOutput(name, found)

    def _written(self, value: object, name: str) -> Any:
        try:
            written = plain(value) if self.needs_plain else value
            # A decimal number is written as a number, and no text to be checked as one.
            return msgspec.to_builtins(written, builtin_types=(Decimal,), str_keys=True, enc_hook=encode_hook)
        except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
            violation = Violation("", type(value).__name__, "json", f"cannot be written as JSON: {error}")
            raise InvalidOutput(name, [violation]) from error

    def _takes(self, value: object) -> bool:
        try:
            convert(value, self._type)
        except (ValueError, TypeError, NotImplementedError, RecursionError):
            return False
        return not (isinstance(value, float) and not math.isfinite(value))


def holds_just(values: list[Any], item_type: type) -> bool:
    """Return whether all items of a list are of just one class."""
    return list(map(type, values)).count(item_type) == len(values)


def _item_type(declared: object) -> type | None:
    """Return the class whose instances need no look, where a list of them is declared."""
    if get_origin(declared) is not list:
        return None
    (item,) = get_args(declared)
    if isinstance(item, type) and get_origin(item) is None:
        return item
    return None


def _given_by(signature: Signature) -> Any:
    """Return the type of what a call returns in the end: of a coroutine's or a generator's return value."""
    annotation = signature.returns
    if signature.is_async_generator:
        return NOTHING
    if signature.is_generator:
        if get_origin(annotation) is collections.abc.Generator:
            returned = get_args(annotation)[2:]
        else:
            returned = ()
        return returned[0] if returned else NOTHING
    if get_origin(annotation) in (collections.abc.Awaitable, collections.abc.Coroutine):
        return get_args(annotation)[-1]
    return annotation


def _is_described(signature: Signature, content_types: tuple[type, ...]) -> bool:
    annotation = _given_by(signature)
    return annotation not in _UNDESCRIBED and not names(annotation, content_types)


def names(annotation: object, wanted: tuple[type, ...]) -> bool:
    """Return whether an annotation names one of some types, anywhere in it."""
    if type(annotation) is type:
        return issubclass(annotation, wanted)
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, wanted):
        return True
    return any(names(part, wanted) for part in get_args(annotation))
