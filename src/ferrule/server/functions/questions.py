"""Questions declared as parameters: `seat: Annotated[Seat, Ask("Which seat?")]` is asked before the handler runs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import string
from collections.abc import AsyncIterator, Callable, Container, Generator, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from msgspec import Struct

from ferrule.errors import Declined, SetupError
from ferrule.server.calls.context import Context
from ferrule.server.calls.forms import Elicitation, elicit_question
from ferrule.server.functions.depends import Ask
from ferrule.server.functions.signatures import NOTHING, Parameter, Signature, read_signature

PLACE = "ctx"


class AskedParameter(Struct, frozen=True):
    """A parameter that is asked for."""

    name: str
    message: str
    schema: Any
    default: Any

    def value(self, answer: Elicitation) -> Any:
        """Return what the user said, or the default when they would not say."""
        if answer.accepted:
            return answer.data
        if self.default is NOTHING:
            raise Declined(answer.action)
        return self.default


def with_answers(fn: Callable[..., Any], content_types: tuple[type, ...], *, inline: bool) -> Callable[..., Any]:
    """Return a handler that asks for its `Ask` parameters, all in one round, and then runs; any other as it is.

    A plain function that runs `inline`, in the event loop, becomes a coroutine: only that can wait there.
    """
    signature = read_signature(fn, context_type=Context, content_types=content_types, open_ended=True)
    asked = [found for parameter in signature.parameters if (found := _asked(parameter)) is not None]
    if not asked:
        return fn
    given = {parameter.name for parameter in signature.parameters} - {each.name for each in asked}
    for each in asked:
        _check(each, given, f"{signature.name}(): parameter {each.name!r}")
    if inline and signature.is_generator:
        raise SetupError(f"{signature.name}(): a generator that runs inline cannot ask: write it as an `async def`")
    return _asking(fn, signature, asked, inline=inline)


def _asked(parameter: Parameter) -> AskedParameter | None:
    annotation = parameter.annotation
    # A default of None makes the type optional, around what is annotated.
    for part in (annotation, *get_args(annotation)):
        ask = next((each for each in getattr(part, "__metadata__", ()) if isinstance(each, Ask)), None)
        if ask is not None and get_origin(part) is Annotated:
            rest = []
            for each in part.__metadata__:
                if not isinstance(each, Ask):
                    rest.append(each)
            type_ = get_args(part)[0]
            schema = ask.schema or (Annotated[(type_, *rest)] if rest else type_)
            return AskedParameter(parameter.name, ask.message, schema, parameter.default)
    return None


def _check(asked: AskedParameter, given: Container[str], where: str) -> None:
    try:
        named = []
        for _, field, _, _ in string.Formatter().parse(asked.message):
            if field is not None:
                named.append(field)
    except ValueError as reason:
        raise SetupError(f"{where}: the text of its question cannot be read: {reason}") from None
    unknown = []
    for field in named:
        if field not in given:
            unknown.append(field)
    if unknown:
        raise SetupError(f"{where}: its question names {{{unknown[0]}}}, which is not an argument of the call")
    try:
        elicit_question(asked.message, asked.schema, asked.name)
    except (SetupError, TypeError) as reason:
        raise SetupError(f"{where}: it cannot be asked for: {reason}") from None


def _asking(
    fn: Callable[..., Any], signature: Signature, asked: Sequence[AskedParameter], *, inline: bool
) -> Callable[..., Any]:
    own = inspect.signature(fn)
    hidden = {each.name for each in asked}
    context = signature.context_parameter
    kept = []
    for parameter in own.parameters.values():
        if parameter.name not in hidden:
            kept.append(parameter)
    if context is None:
        place = next(name for name in (PLACE, "_ctx", "__ctx") if name not in own.parameters)
        extra = inspect.Parameter(place, inspect.Parameter.KEYWORD_ONLY, annotation=Context)
        rest = []
        for each in kept:
            if each.kind is each.VAR_KEYWORD:
                rest.append(each)
        kept = [*(each for each in kept if each not in rest), extra, *rest]
    else:
        place = context

    def questions(given: Mapping[str, object]) -> dict[str, tuple[str, Any]]:
        return {each.name: (each.message.format_map(given), each.schema) for each in asked}

    def filled(given: dict[str, Any], answers: Mapping[str, Elicitation]) -> inspect.BoundArguments:
        if context is None:
            del given[place]
        given |= {each.name: each.value(answers[each.name]) for each in asked}
        bound = own.bind_partial()
        bound.arguments = {name: given[name] for name in own.parameters if name in given}
        return bound

    visible = own.replace(parameters=_ordered(kept))

    async def ready(args: object, kwargs: object) -> inspect.BoundArguments:
        given = _arguments(visible, args, kwargs)
        return filled(given, await given[place].elicit_all(questions(given)))

    def ready_in_thread(args: object, kwargs: object) -> inspect.BoundArguments:
        given = _arguments(visible, args, kwargs)
        return filled(given, given[place].sync.elicit_all(questions(given)))

    ask_first = functools.wraps(fn)(_asking_first(fn, signature, ready, ready_in_thread, inline=inline))
    ask_first.__signature__ = visible  # type: ignore[attr-defined]
    return ask_first


def _asking_first(
    fn: Callable[..., Any], signature: Signature, ready: Any, ready_in_thread: Any, *, inline: bool
) -> Callable[..., Any]:
    """Make a function of the same kind, which asks and then runs the other."""

    async def wait(*args: Any, **kwargs: Any) -> Any:
        bound = await ready(args, kwargs)
        given = fn(*bound.args, **bound.kwargs)
        return await given if signature.is_async else given

    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        bound = await ready(args, kwargs)
        async with contextlib.aclosing(fn(*bound.args, **bound.kwargs)) as values:
            async for value in values:
                yield value

    def stream_in_thread(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        bound = ready_in_thread(args, kwargs)
        return (yield from fn(*bound.args, **bound.kwargs))

    def run_in_thread(*args: Any, **kwargs: Any) -> Any:
        bound = ready_in_thread(args, kwargs)
        return fn(*bound.args, **bound.kwargs)

    if signature.is_async_generator:
        return stream
    if signature.is_generator:
        return stream_in_thread
    if signature.is_async or inline:
        return wait
    return run_in_thread


def _ordered(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Without those asked for, one with a default may stand before one without: then all go by name."""
    seen = False
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.POSITIONAL_ONLY):
            if seen and parameter.default is NOTHING:
                return [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
            seen = seen or parameter.default is not NOTHING
    return parameters


def _arguments(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)
