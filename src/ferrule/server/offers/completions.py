"""Completion: suggestions from registered functions, or from the choices a parameter's type allows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from ferrule.protocol.call import Call
from ferrule.schema.completion import CompleteResult, Completion, PromptReference
from ferrule.server.calls.context import Context
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.functions.binder import Binding
from ferrule.server.functions.dependencies import Plan
from ferrule.server.functions.signatures import probe, read_provider
from ferrule.server.offers.catalogue import Catalogue, off, unknown_reference
from ferrule.server.offers.mounts import MountedContext, through
from ferrule.server.offers.prompts import RegisteredPrompt
from ferrule.server.offers.resources import RegisteredResource

if TYPE_CHECKING:
    from ferrule.server.server import Server

MAX_VALUES = 100


class Completer:
    """A function that suggests values; it is given what it has parameters for."""

    def __init__(self, fn: Callable[..., Any], bulkhead: Bulkhead, *, for_all: bool = False) -> None:
        self.fn = fn
        self._for_all = for_all
        self._bulkhead = bulkhead
        self._is_async = inspect.iscoroutinefunction(probe(fn))
        self._names = list(inspect.signature(fn).parameters)
        wants = read_provider(fn, Context, "completion")
        self._context_parameter = wants.context_parameter
        self._plan = Plan(wants.name, wants.dependencies, Context) if wants.dependencies else None

    async def suggest(self, call: Call, context: Context) -> Any:
        """Run the function."""
        if self._plan is None:
            return await self._run(call, context, {})
        async with self._plan.provided_async(context, self._bulkhead.run) as provided:
            return await self._run(call, context, provided)

    async def _run(self, call: Call, context: Context, provided: dict[str, Any]) -> Any:
        params = call.params
        known = {
            "value": params.argument.value,
            "argument": params.argument.name,
            "arguments": params.context.arguments,
            "ref": params.ref,
            "ctx": context,
            "context": params.context.arguments,
            **provided,
        }
        if self._for_all:
            # It has to find out what it is asked about, so it is given the whole of it.
            known |= {"argument": params.argument, "context": params.context}
        if self._context_parameter is not None:
            known[self._context_parameter] = context
        positional = []
        for at, name in enumerate(self._names):
            positional.append(known.get(name, params.argument.value if at == 0 else None))
        if self._is_async:
            return await self.fn(*positional)
        value = await self._bulkhead.run(lambda: self.fn(*positional))
        if isinstance(value, Coroutine):
            return await value
        return value


class Completions:
    """The completions of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._completers: dict[str, Completer] = {}

    def add(self, place: str, fn: Callable[..., Any]) -> None:
        """Suggest values for a prompt, a template, one parameter of them (`prompt.parameter`), a name, or for all."""
        self._completers[place] = Completer(fn, Bulkhead(self._server.threads), for_all=not place)

    @property
    def offered(self) -> bool:
        """Whether anything can be completed."""
        mounted = any(mount.child.completions.offered for mount in self._server.mounts)
        return bool(self._completers) or mounted or any(map(_choices, self._bindings()))

    def _bindings(self) -> Iterable[Binding]:
        yield from (entry.binding for entry in self._server.prompts.catalogue.registered.values())
        yield from (entry.binding for entry in self._server.resources.templates.registered.values())

    async def complete(self, call: Call) -> CompleteResult:
        """Answer `completion/complete`."""
        if self._server.capabilities.completions is None:
            raise off("completions")
        entry = self._find(call)
        if entry.way:
            handler = through(entry, "completion/complete", lambda call: self._suggest(call, entry))
            if handler is not None:
                return await handler(call)  # type: ignore[no-any-return]  # a completion's way gives its result
        return await self._suggest(call, entry)

    async def _suggest(self, call: Call, entry: RegisteredPrompt | RegisteredResource) -> CompleteResult:
        """Ask the function for it, here or in the server it is from, else look at what its type allows."""
        name = call.params.argument.name
        if isinstance(entry, RegisteredPrompt):
            target = entry.prompt.name
        else:
            target = entry.uri
        completer = self.completer(target, name)
        server = self._server
        for mount, key in entry.way:
            if completer is None:
                server = mount.child
                completer = server.completions.completer(key, name)
        if completer is not None:
            if server is self._server:
                context = Context(call, server)
            else:
                context = MountedContext(self._server, call, server)
            return CompleteResult(completion=_ranked(await completer.suggest(call, context)))
        start = call.params.argument.value
        choices = _choices(entry.binding).get(name, ())
        return CompleteResult(completion=_ranked([value for value in choices if value.startswith(start)]))

    def completer(self, target: str, name: str) -> Completer | None:
        """Find the function for one parameter: the nearest that was registered."""
        places = (f"{target}.{name}", target, name, "")
        return next((self._completers[place] for place in places if place in self._completers), None)

    def _find(self, call: Call) -> RegisteredPrompt | RegisteredResource:
        ref = call.params.ref
        server = self._server
        # Where callers see different things, a guard has checked already that this one sees what it asks about.
        found = _registered if server.visibility.in_use else _offered
        if isinstance(ref, PromptReference):
            prompt = found(server.prompts.catalogue, ref.name)
            if prompt is None:
                raise unknown_reference(ref)
            return prompt  # type: ignore[no-any-return]  # what the catalogue of prompts has
        resource = found(server.resources.templates, ref.uri) or found(server.resources.catalogue, ref.uri)
        if resource is None:
            raise unknown_reference(ref)
        return resource  # type: ignore[no-any-return]  # what the catalogues of resources have


def _registered(catalogue: Catalogue[Any], key: str) -> Any:
    return catalogue.registered.get(key)


def _offered(catalogue: Catalogue[Any], key: str) -> Any:
    return catalogue.get(key)


def _choices(binding: Binding) -> dict[str, list[str]]:
    """Return the values each parameter may have, where its type lists them; an optional one counts as well."""
    choices = {}
    for name, rules in binding.input_schema.get("properties", {}).items():
        kinds = rules.get("anyOf", [rules]) if isinstance(rules, dict) else []
        values = [str(value) for kind in kinds for value in kind.get("enum", ())]
        if values:
            choices[name] = values
    return choices


def _ranked(values: Any) -> Completion:
    if isinstance(values, Completion):
        return Completion(values=values.values[:MAX_VALUES], total=values.total, has_more=values.has_more)
    listed = list(map(str, values or ()))
    return Completion(values=listed[:MAX_VALUES], total=len(listed), has_more=len(listed) > MAX_VALUES)
