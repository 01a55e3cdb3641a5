"""Methods of one's own: a function that gets the params of a request, a context, and what its providers give."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import structs

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler
from ferrule.schema.model import EmptyResult
from ferrule.server.calls.context import Context
from ferrule.server.calls.services import Services
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.functions.dependencies import injected
from ferrule.server.functions.signatures import Signature, read_signature

CONTEXT_NAMES = ("ctx", "context")
"""What a second parameter with a default is called that is nevertheless the context."""


def answerer(services: Services, fn: Callable[..., Any]) -> Handler:
    """Make the handler of a method that runs a user's function: in the loop when async, else in a thread."""
    bulkhead = Bulkhead(services.threads)
    signature = read_function(fn)
    params = next(iter(signature.parameters), None)
    spare = signature.parameters[1:]
    if signature.dependencies:
        signature = injected(signature, Context, lambda: bulkhead.run)
    run = signature.fn
    context = signature.context_parameter
    positional = signature.positional

    def invoke(call: Call) -> Any:
        given = {parameter.name: parameter.made_default() for parameter in spare}
        if params is not None:
            given[params.name] = call.params
        if context is not None:
            given[context] = Context(call, services)
        return run(*list(map(given.pop, positional)), **given)

    async def handle(call: Call) -> Any:
        value = await (invoke(call) if signature.is_async else bulkhead.run(lambda: invoke(call)))
        if isinstance(value, Coroutine):  # a plain function around one that is not
            value = await value
        if value is None:
            return EmptyResult()
        return value

    return handle


def read_function(fn: Callable[..., Any]) -> Signature:
    """Read a function; whatever is called so, its first parameter takes the params, and a second one the context."""
    if any(each.kind is each.VAR_POSITIONAL for each in inspect.signature(fn).parameters.values()):
        raise SetupError(f"{_name(fn)}: name its parameters, or use functools.wraps: *args tells nothing of them")
    signature = read_signature(fn, context_type=Context, open_ended=True)
    if signature.is_generator or signature.is_async_generator:
        raise SetupError(f"{signature.name}() is a generator, and only tools may be; return the result")
    first = signature.parameters[:1]
    second = signature.parameters[1:2]
    rest = signature.parameters[2:]
    if signature.context_parameter is None and second and (second[0].required or second[0].name in CONTEXT_NAMES):
        signature = structs.replace(signature, context_parameter=second[0].name, parameters=first + rest)
    unfilled = []
    for each in signature.parameters[1:]:
        if each.required:
            unfilled.append(each.name)
    if unfilled:
        raise SetupError(
            f"{signature.name}(): nothing fills the parameter {unfilled[0]!r}: a method's function gets the params and"
            " a Context; give it a default or a Depends(...)"
        )
    return signature


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))
