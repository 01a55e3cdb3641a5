"""Methods of one's own: a function that gets the params of a request, a context, and its dependencies."""

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
from ferrule.server.functions.signatures import Parameter, Signature, read_signature

CONTEXT_NAMES = ("ctx", "context")
"""Names of a second parameter that is the context though it has a default."""


def answerer(services: Services, fn: Callable[..., Any]) -> Handler:
    """Return a handler that runs a user's function: in the loop when it is async, else in a thread."""
    bulkhead = Bulkhead(services.threads)
    signature = read_function(fn)
    params: Parameter | None = None
    if signature.parameters:
        params = signature.parameters[0]
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
        arguments = [given.pop(name) for name in positional]
        return run(*arguments, **given)

    async def handle(call: Call) -> Any:
        if signature.is_async:
            value = await invoke(call)
        else:
            value = await bulkhead.run(invoke, call)
        if isinstance(value, Coroutine):  # a plain function around one that is not
            value = await value
        if value is None:
            return EmptyResult()
        return value

    return handle


def read_function(fn: Callable[..., Any]) -> Signature:
    """Return the signature of a function: its first parameter takes the params, and a second one the context."""
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise SetupError(f"{_name(fn)}: name its parameters, or use functools.wraps: *args tells nothing of them")
    signature = read_signature(fn, context_type=Context, open_ended=True)
    if signature.is_generator or signature.is_async_generator:
        raise SetupError(f"{signature.name}() is a generator, and only tools may be; return the result")
    parameters = signature.parameters
    if signature.context_parameter is None and len(parameters) > 1:
        second = parameters[1]
        if second.required or second.name in CONTEXT_NAMES:
            others = parameters[:1] + parameters[2:]
            signature = structs.replace(signature, context_parameter=second.name, parameters=others)
    for spare in signature.parameters[1:]:
        if spare.required:
            raise SetupError(
                f"{signature.name}(): nothing fills the parameter {spare.name!r}: a method's function gets the params"
                " and a Context; give it a default or a Depends(...)"
            )
    return signature


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))
