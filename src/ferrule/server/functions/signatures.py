"""Read what a handler asks for: its parameters, its context, its return type and its docstring."""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, Optional, Union, get_args, get_origin
from weakref import WeakKeyDictionary

import msgspec
from msgspec import structs

from ferrule.errors import SetupError
from ferrule.server.functions.depends import Dependency, dependency_of
from ferrule.server.functions.docstrings import split_docstring
from ferrule.server.functions.types.pydantic_types import is_field
from ferrule.server.functions.types.readable import shape_of

NOTHING: Final = inspect.Parameter.empty


class Parameter(msgspec.Struct, frozen=True):
    """One argument a caller may send."""

    name: str
    annotation: Any
    default: Any = NOTHING
    description: str | None = None
    alias: str | None = None
    """What a caller calls it, if not by its name."""
    factory: Callable[[], Any] | None = None
    """What makes its default."""
    type: Any = Any
    """The annotation as JSON is read into it."""

    @property
    def key(self) -> str:
        """The name a caller sends it under."""
        return self.alias or self.name

    @property
    def required(self) -> bool:
        """Whether a call without it is refused."""
        return self.default is NOTHING and self.factory is None

    def made_default(self) -> Any:
        """Return the default, a container fresh each time so that no call sees what another one put into it."""
        if self.factory is not None:
            return self.factory()
        if isinstance(self.default, list | dict | set | bytearray):
            return copy.deepcopy(self.default)
        return self.default


class Signature(msgspec.Struct, frozen=True):
    """What a handler is called, what it takes and how it runs."""

    fn: Callable[..., Any]
    name: str
    description: str | None
    is_async: bool
    is_generator: bool
    is_async_generator: bool
    context_parameter: str | None
    parameters: tuple[Parameter, ...]
    positional: tuple[str, ...]
    hidden: dict[str, Any]
    takes_rest: bool
    returns: Any
    dependencies: dict[str, Dependency] = {}
    wraps_async: bool = False
    """Whether it is a plain function around a coroutine function, as decorators make: it may return a coroutine."""
    made: dict[str, Any] | None = None
    """What was made of it, for all functions that share it; None where it is not cached."""

    def once(self, what: str, make: Callable[[Signature], Any]) -> Any:
        """Return what is made of this signature, made once for all functions that share it."""
        if self.made is None:
            return make(self)
        if what not in self.made:
            self.made[what] = make(self)
        return self.made[what]


class Provider(msgspec.Struct, frozen=True):
    """What a provider of dependencies asks for."""

    name: str
    context_parameter: str | None
    dependencies: dict[str, Dependency]
    unfilled: list[str]
    """Parameters that nothing can fill."""


def read_signature(
    fn: Callable[..., Any],
    *,
    context_type: type | None = None,
    content_types: tuple[type, ...] = (),
    hidden: frozenset[str] = frozenset(),
    open_ended: bool = False,
    name: str | None = None,
) -> Signature:
    """Read a callable's signature; `open_ended` allows `*args` and `**kwargs`."""
    name = name or _name_of(fn)
    _require_function(fn, name)
    description, texts = split_docstring(_docstring_of(fn))
    options = ReadOptions(context_type, content_types, hidden, open_ended, texts)
    signature = _cached_signature(fn, options)
    if signature is None:
        signature = _read_whole(fn, name, options)
    return structs.replace(signature, fn=fn, name=name, description=description)


def _read_whole(fn: Callable[..., Any], name: str, options: ReadOptions) -> Signature:
    """Read all of a signature but the function itself, and cache it."""
    own = _own_signature(fn, name)
    offered = _offered(fn, own, name)
    fillable = _fillable(offered, name, options.open_ended)
    if missing := options.hidden - {raw.name for raw in fillable}:
        raise SetupError(f"{name}() has no parameter {', '.join(sorted(missing))} to hide")
    scope = Scope(_underlying(fn), options.content_types, options.context_type)
    shown = [raw for raw in fillable if raw.name not in options.hidden]
    annotations, wishes = _annotations(shown, scope, f"{name}(): parameter")
    context = _context_among(annotations, wishes, options.context_type, name)
    parameters = []
    for raw in shown:
        if raw.name != context and raw.name not in wishes:
            parameters.append(_parameter(raw, annotations[raw.name], options.texts, name))
    _refuse_equal_keys(parameters, name)
    kind = probe(fn)
    is_async = inspect.iscoroutinefunction(kind)
    signature = Signature(
        fn=_no_function,
        name="",
        description=None,
        is_async=is_async,
        is_generator=inspect.isgeneratorfunction(kind),
        is_async_generator=inspect.isasyncgenfunction(kind),
        context_parameter=context,
        parameters=tuple(parameters),
        positional=tuple(raw.name for raw in fillable if raw.kind is not raw.KEYWORD_ONLY),
        hidden={raw.name: raw.default for raw in fillable if raw.name in options.hidden},
        takes_rest=any(raw.kind is raw.VAR_KEYWORD for raw in offered),
        returns=_resolve(own.return_annotation, scope, f"{name}(): the return type"),
        dependencies=wishes,
        wraps_async=not is_async and hasattr(kind, "__wrapped__") and inspect.iscoroutinefunction(inspect.unwrap(kind)),
    )
    return _cache_signature(fn, options, scope, signature)


def _no_function() -> None:
    """Stand for the function of a signature that many may have."""


def read_provider(fn: Callable[..., Any], context_type: type | None, whose: str) -> Provider:
    """Read what a provider asks for; `whose` says in errors who needs it."""
    name = _name_of(fn)
    _require_function(fn, name)
    offered = []
    for raw in _offered(fn, _own_signature(fn, name), name):
        if raw.kind not in (raw.VAR_POSITIONAL, raw.VAR_KEYWORD):
            offered.append(raw)
    scope = Scope(_underlying(fn), (), context_type)
    annotations, wishes = _annotations(offered, scope, f"{whose} → {name}(): parameter")
    context = _context_among(annotations, wishes, context_type, name)
    unfilled = []
    for raw in offered:
        if raw.default is NOTHING and raw.name not in {context, *wishes}:
            unfilled.append(raw.name)
    return Provider(name, context, wishes, unfilled)


def _annotations(
    offered: Sequence[inspect.Parameter], scope: Scope, where: str
) -> tuple[dict[str, Any], dict[str, Dependency]]:
    """Resolve the annotations of parameters, and find the wishes for providers among them."""
    annotations = {}
    wishes = {}
    for raw in offered:
        name = raw.name
        annotation = annotations[name] = _resolve(raw.annotation, scope, f"{where} {name!r}")
        wish = dependency_of(raw.default, annotation)
        if wish is not None:
            wishes[name] = wish
    return annotations, wishes


def _require_function(fn: object, name: str) -> None:
    if isinstance(fn, classmethod):
        raise SetupError(f"{name} is an unbound classmethod: register it through its class, as in Class.{name}")
    if not callable(fn):
        raise SetupError(f"a function is wanted here, not {fn!r}")


def _own_signature(fn: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise SetupError(f"{name}: its signature cannot be read ({error}); wrap it in a function") from error


def _offered(fn: Callable[..., Any], own: inspect.Signature, name: str) -> list[inspect.Parameter]:
    """Return the parameters a call may still fill: what a partial presets is not offered again."""
    offered = list(own.parameters.values())
    _refuse_unbound_method(fn, offered, name)
    preset: set[str] = set()
    while isinstance(fn, functools.partial):
        preset |= fn.keywords.keys()
        fn = fn.func
    if not preset:
        return offered
    found: list[inspect.Parameter] = []
    for parameter in offered:
        if parameter.name not in preset:
            found.append(parameter)
    return found


def _refuse_unbound_method(fn: Callable[..., Any], offered: Sequence[inspect.Parameter], name: str) -> None:
    owner = getattr(fn, "__qualname__", "").rpartition(".")[0]
    first = offered[0] if offered else None
    if not inspect.isfunction(fn) or first is None or not owner or owner.endswith("<locals>"):
        return
    if first.name in {"self", "cls"} and first.annotation is NOTHING:
        raise SetupError(f"{name}() is a method without its object: register the bound method, as in object.{name}")


def _fillable(offered: Sequence[inspect.Parameter], name: str, open_ended: bool) -> list[inspect.Parameter]:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for parameter in offered:
        if parameter.kind in stars and not open_ended:
            raise SetupError(
                f"{name}(): parameter {stars[parameter.kind]}{parameter.name} has no schema:"
                " name each parameter, or give schema={...}"
            )
    return [parameter for parameter in offered if parameter.kind not in stars]


def _parameter(raw: inspect.Parameter, annotation: object, texts: dict[str, str], name: str) -> Parameter:
    where = f"{name}(): parameter {raw.name!r}"
    if type(raw.default).__module__ in {"dataclasses", "msgspec._core"} and type(raw.default).__name__ == "Field":
        raise SetupError(f"{where} has a field() of a class as its default: write the default itself")
    if annotation is NOTHING:
        annotation = Any
    default = raw.default
    field = _field_among(annotation)
    if is_field(raw.default):
        default = NOTHING
        field = raw.default
        annotation = Annotated[annotation, field]
    alias = None
    factory = None
    if field is not None:
        alias = _alias(field, where)
        factory = field.default_factory
        if default is NOTHING and factory is None and not field.is_required():
            default = field.default
    description = _annotated_text(annotation) or texts.get(raw.name)
    if default is None and annotation is not Any:
        annotation = Union[annotation, None]  # noqa: UP007  `|` refuses some typing objects
    return Parameter(raw.name, annotation, default, description, alias, factory if default is NOTHING else None)


def _field_among(annotation: object) -> Any:
    """Return the `pydantic.Field` inside `Annotated`, if any."""
    return next((item for item in getattr(annotation, "__metadata__", ()) if is_field(item)), None)


def _alias(field: Any, where: str) -> str | None:
    if field.validation_alias is not None:
        alias = field.validation_alias
    else:
        alias = field.alias
    if alias is not None and not isinstance(alias, str):
        raise SetupError(f"{where} has several aliases: an argument has one name, so write alias='...'")
    return alias


def _annotated_text(annotation: object) -> str | None:
    """Return the description inside `Annotated`: a text, a `msgspec.Meta`, a `pydantic.Field` or a `Doc`."""
    if type(annotation) is type:
        return None
    if get_origin(annotation) in (Union, types.UnionType):
        return next(filter(None, map(_annotated_text, get_args(annotation))), None)
    metadata = getattr(annotation, "__metadata__", ())
    if not metadata:
        return None
    from ferrule.server.functions.types.constraints import description_of

    return description_of(metadata)


def _refuse_equal_keys(parameters: Sequence[Parameter], name: str) -> None:
    keys: dict[str, str] = {}
    for parameter in parameters:
        if (other := keys.setdefault(parameter.key, parameter.name)) != parameter.name:
            raise SetupError(
                f"{name}(): parameters {other!r} and {parameter.name!r} are both sent as {parameter.key!r}:"
                " change one alias"
            )


def _context_among(
    annotations: dict[str, Any], wishes: dict[str, Dependency], context_type: type | None, name: str
) -> str | None:
    if context_type is None:
        return None
    found = []
    for parameter, annotation in annotations.items():
        if parameter not in wishes and _is_context(annotation, context_type):
            found.append(parameter)
    if len(found) > 1:
        raise SetupError(f"{name}() takes two contexts, {found[0]!r} and {found[1]!r}: keep one")
    return found[0] if found else None


def _is_context(annotation: object, context_type: type) -> bool:
    if type(annotation) is type:
        return issubclass(annotation, context_type)
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        members = []
        for member in get_args(annotation):
            if member is not types.NoneType:
                members.append(member)
        return len(members) == 1 and _is_context(members[0], context_type)
    plain = get_origin(annotation) or annotation
    return isinstance(plain, type) and issubclass(plain, context_type)


PYTHONS_OWN = frozenset({"str", "int", "float", "bool", "None", "list", "dict"})


class Scope:
    """The names that the annotations of a function may use."""

    def __init__(self, function: object, content_types: tuple[type, ...], context_type: type | None) -> None:
        self.globals: dict[str, Any] = getattr(function, "__globals__", {})
        self.locals: dict[str, Any] = {}
        """What goes before them."""
        self.known = _by_name(content_types, context_type)
        """What goes after them: these resolve even when imported for type checking only."""
        for parameter in getattr(function, "__type_params__", ()):
            self.locals[parameter.__name__] = parameter
        code = getattr(function, "__code__", None)
        names = code.co_freevars if code else ()
        for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
            # A cell is empty while the class it names is still being defined.
            with contextlib.suppress(ValueError):
                self.locals[name] = cell.cell_contents

    def before_globals(self) -> dict[str, Any]:
        """Return all names beside the globals, for who looks among those last."""
        names = {name: type_ for name, type_ in self.known.items() if name not in self.globals}
        return names | self.locals

    def plain_class(self, annotation: object) -> type | None:
        """Return the class that an annotation is, or is the bare name of; None for whatever has to be resolved."""
        if isinstance(annotation, str):
            found = self.meaning(annotation)
        else:
            found = annotation
        if type(found) is not type or found is NOTHING:
            return None
        return found

    def meaning(self, name: str) -> Any:
        """Return what a name stands for, or `NOTHING`."""
        found = self.locals.get(name, NOTHING)
        if found is NOTHING:
            found = self.globals.get(name, NOTHING)
        if found is NOTHING:
            found = self.known.get(name, NOTHING)
        if found is NOTHING:
            found = vars(builtins).get(name, NOTHING)
        return found

    def leaves_to_python(self, text: str) -> bool:
        """Return whether a text names only classes that are Python's own, and that are called so here."""
        names = set(re.findall(r"\w+", text))
        if not names <= PYTHONS_OWN:
            return False
        return self.globals.keys().isdisjoint(names) and self.locals.keys().isdisjoint(names)


@functools.cache
def _by_name(content_types: tuple[type, ...], context_type: type | None) -> dict[str, type]:
    known = {type_.__name__: type_ for type_ in content_types}
    if context_type is not None:
        known[context_type.__name__] = context_type
    return known


_resolved: dict[str, Any] = {}
"""What texts mean that use names of Python's own alone, as most annotations do."""


def _resolve(annotation: object, scope: Scope, where: str) -> Any:
    if annotation is NOTHING:
        return NOTHING
    plain = scope.plain_class(annotation)
    if plain is not None:
        return plain
    if not isinstance(annotation, str) or not scope.leaves_to_python(annotation):
        return _evaluated(annotation, scope, where)
    if annotation not in _resolved:
        _resolved[annotation] = _evaluated(annotation, scope, where)
    return _resolved[annotation]


def _evaluated(annotation: object, scope: Scope, where: str) -> Any:
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, scope.globals, scope.before_globals(), include_extras=True)["it"]
    except (NameError, SyntaxError, TypeError, AttributeError) as error:
        raise SetupError(
            f"{where}: the annotation {annotation!r} cannot be resolved ({error});"
            " its names must exist in the module at run time, not only under TYPE_CHECKING or inside a function"
        ) from error


# A cache of signatures by code object.

_CHANGING = ("__wrapped__", "__signature__", "__partialmethod__", "_partialmethod", "_is_coroutine_mark")
"""By what a function may say that it takes, or is, something else than its code."""
_CONSTANTS = frozenset({str, int, float, bool, bytes, types.NoneType})
_LASTING = (str, int, float, bool, list, dict, object, None, types.NoneType, Any, Literal, Optional, Union)


class ReadOptions(msgspec.Struct, frozen=True):
    """How a signature is read, and what the docstring says of its parameters."""

    context_type: type | None
    content_types: tuple[type, ...]
    hidden: frozenset[str]
    open_ended: bool
    texts: dict[str, str]


class CachedSignature(msgspec.Struct, frozen=True):
    """What was read of one function, for other functions of the same code; a program makes thousands of those.

    Rule: nothing is kept that may change, nor what is a user's and would live on by this. So defaults are
    constants, and annotations are made of Python's own classes, the context and the content types.
    """

    options: ReadOptions
    defaults: tuple[object, ...]
    keyword_defaults: dict[str, object]
    annotations: dict[str, Any]
    meanings: dict[str, Any]
    """What the words stand for that are in annotations written as text."""
    signature: Signature

    def applies_to(self, fn: Any, options: ReadOptions) -> bool:
        """Return whether it holds for another function of this code: wherever they may differ, they are the same."""
        if options != self.options:
            return False
        keywords = fn.__kwdefaults__ or {}
        annotations = fn.__annotations__
        if keywords.keys() != self.keyword_defaults.keys() or annotations.keys() != self.annotations.keys():
            return False
        given = (*(fn.__defaults__ or ()), *map(keywords.get, self.keyword_defaults))
        known = (*self.defaults, *self.keyword_defaults.values())
        if len(given) != len(known) or not all(map(operator.is_, given, known)):
            return False
        for name, annotation in annotations.items():
            if not _is_same(annotation, self.annotations[name]):
                return False
        scope = Scope(fn, options.content_types, options.context_type)
        return all(scope.meaning(word) is meaning for word, meaning in self.meanings.items())


_cache: WeakKeyDictionary[Any, CachedSignature] = WeakKeyDictionary()
"""What was read last of a function, by its code object."""


def _is_same(annotation: object, other: object) -> bool:
    if annotation is other:
        return True
    if isinstance(annotation, str) or isinstance(other, str):
        return annotation == other
    # Types that are equal may be written in another order.
    shape = shape_of(annotation)
    return shape is not None and shape == shape_of(other)


def _is_plain_function(fn: object) -> bool:
    """Return whether the code, defaults and annotations of a function are all that is read of it."""
    if type(fn) is not types.FunctionType or any(hasattr(fn, name) for name in _CHANGING):
        return False
    try:
        hash(fn.__code__)
    except TypeError:  # whoever writes code may put constants into it that have no hash
        return False
    return True


def _cached_signature(fn: Any, options: ReadOptions) -> Signature | None:
    """Return what was read before of a function of the same code, if that holds for this one."""
    if not _is_plain_function(fn):
        return None
    cached = _cache.get(fn.__code__)
    if cached is None or not cached.applies_to(fn, options):
        return None
    return cached.signature


def _cache_signature(fn: Any, options: ReadOptions, scope: Scope, signature: Signature) -> Signature:
    """Keep what was read of a function where it may hold for others of its code; return it as it is kept."""
    if not _is_plain_function(fn) or signature.positional[:1] in (("self",), ("cls",)):
        return signature
    keywords = dict(fn.__kwdefaults__ or {})
    defaults = fn.__defaults__ or ()
    if not _CONSTANTS.issuperset(map(type, (*defaults, *keywords.values()))):
        return signature
    meanings: dict[str, Any] = {}
    for annotation in fn.__annotations__.values():
        if isinstance(annotation, str):
            for word in re.findall(r"\w+", annotation):
                meanings[word] = scope.meaning(word)
        elif shape_of(annotation) is None and not _lasts(annotation, scope):
            return signature
    if not all(meaning is NOTHING or _lasts(meaning, scope) for meaning in meanings.values()):
        return signature
    signature = structs.replace(signature, made={})
    _cache[fn.__code__] = CachedSignature(options, defaults, keywords, dict(fn.__annotations__), meanings, signature)
    return signature


def _lasts(annotation: object, scope: Scope) -> bool:
    """Return whether an annotation, or a name in one, is of what lives as long as the process."""
    return any(annotation is each for each in (*_LASTING, *scope.known.values()))


def _underlying(fn: object) -> Any:
    """Return the Python function behind partials, methods, wrappers, classes and callable objects."""
    while not inspect.isfunction(fn) or hasattr(fn, "__wrapped__"):
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, types.MethodType | staticmethod):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif inspect.isclass(fn):
            return fn.__init__
        elif inspect.isfunction(call := vars(type(fn)).get("__call__")):
            fn = call
        else:
            return fn
    return fn


def _without_partial(fn: object) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def probe(fn: object) -> Any:
    """Return the function that shows whether a call returns a coroutine or a generator."""
    fn = _without_partial(fn)
    if inspect.isroutine(fn) or inspect.isclass(fn):
        if isinstance(fn, staticmethod):
            return fn.__func__
        return fn
    return type(fn).__call__


def takes(fn: Callable[..., Any], count: int) -> bool:
    """Return whether a function can be called with so many positional arguments."""
    try:
        inspect.signature(fn).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # what is written in C may not say what it takes
        return True
    return True


def _name_of(fn: object) -> str:
    fn = _without_partial(fn)
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def _docstring_of(fn: object) -> str | None:
    fn = _without_partial(fn)
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return fn.__doc__ if isinstance(fn.__doc__, str) else inspect.getdoc(fn)
    return type(fn).__call__.__doc__ or type(fn).__doc__
