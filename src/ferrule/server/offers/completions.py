"""Completion: suggestions from registered functions, or from the choices a parameter's type allows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ferrule.protocol.call import Call
from ferrule.schema.completion import CompleteResult, Completion, PromptReference
from ferrule.server.calls.context import Context, MountedContext
from ferrule.server.calls.services import Services
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.functions.signatures import probe, read_provider
from ferrule.server.offers.catalogue import Catalogue, off, unknown_reference
from ferrule.server.offers.entry import Entry
from ferrule.server.offers.mount_point import Mounted, Suggest, through
from ferrule.server.offers.prompts import PromptEntry, Prompts
from ferrule.server.offers.resource_entry import ResourceEntry
from ferrule.server.offers.resources import Resources
from ferrule.server.offers.visibility import Visibility

if TYPE_CHECKING:
    from ferrule.server.functions.dependencies import Plan

E = TypeVar("E")

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
        self._plan: Plan | None = None
        if wants.dependencies:
            from ferrule.server.functions.dependencies import Plan

            self._plan = Plan(wants.name, wants.dependencies, Context)

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

    def __init__(
        self,
        services: Services,
        visibility: Visibility,
        prompts: Prompts,
        resources: Resources,
        mounts: Sequence[Mounted],
    ) -> None:
        self._services = services
        self._visibility = visibility
        self._prompts = prompts
        self._resources = resources
        self._mounts = mounts
        self._completers: dict[str, Completer] = {}

    def add(self, place: str, fn: Callable[..., Any]) -> None:
        """Suggest values for a prompt, a template, one parameter of them (`prompt.parameter`), a name, or for all."""
        self._completers[place] = Completer(fn, Bulkhead(self._services.threads), for_all=not place)

    @property
    def offered(self) -> bool:
        """Whether anything can be completed."""
        if self._completers or any(child.completes for child in self._mounts):
            return True
        return any(entry.choices() for entry in self._entries())

    def _entries(self) -> Iterator[Entry]:
        yield from self._prompts.catalogue.registered.values()
        yield from self._resources.templates.registered.values()

    async def complete(self, call: Call) -> CompleteResult:
        """Answer `completion/complete`."""
        if self._services.capabilities().completions is None:
            raise off("completions")
        entry = self._find(call)
        if entry.scopes:
            entry.admit(call, self._services)
        if entry.mount_path:
            handler = through(entry.mount_path, "completion/complete", lambda call: self._suggest(call, entry))
            if handler is not None:
                return await handler(call)  # type: ignore[no-any-return]  # a completion's handler gives its result
        return await self._suggest(call, entry)

    async def _suggest(self, call: Call, entry: PromptEntry | ResourceEntry) -> CompleteResult:
        """Ask the function for it, here or in the server it is from, else look at what its type allows."""
        name = call.params.argument.name
        if isinstance(entry, PromptEntry):
            target = entry.prompt.name
        else:
            target = entry.uri
        suggest = self.completer(target, name)
        services = self._services
        for point, key in entry.mount_path:
            if suggest is None:
                services = point.child.services
                suggest = point.child.completer(key, name)
        if suggest is not None:
            if services is self._services:
                context = Context(call, services)
            else:
                context = MountedContext(self._services, call, services)
            return CompleteResult(completion=_ranked(await suggest(call, context)))
        start = call.params.argument.value
        choices = entry.choices().get(name, ())
        fitting = []
        for value in choices:
            if value.startswith(start):
                fitting.append(value)
        return CompleteResult(completion=_ranked(fitting))

    def completer(self, target: str, name: str) -> Suggest | None:
        """Return what suggests values for one parameter: the nearest function that was registered."""
        for place in (f"{target}.{name}", target, name, ""):
            if place in self._completers:
                return self._completers[place].suggest
        return None

    def _find(self, call: Call) -> PromptEntry | ResourceEntry:
        ref = call.params.ref
        if isinstance(ref, PromptReference):
            prompt = self._known(self._prompts.catalogue, ref.name)
            if prompt is None:
                raise unknown_reference(ref)
            return prompt
        resource = self._known(self._resources.templates, ref.uri) or self._known(self._resources.catalogue, ref.uri)
        if resource is None:
            raise unknown_reference(ref)
        return resource

    def _known(self, catalogue: Catalogue[E], key: str) -> E | None:
        if self._visibility.in_use:
            # Where callers see different things, a guard has checked already that this one sees what it asks about.
            return catalogue.registered.get(key)
        return catalogue.get(key)


def _ranked(values: Any) -> Completion:
    if isinstance(values, Completion):
        return Completion(values=values.values[:MAX_VALUES], total=values.total, has_more=values.has_more)
    listed = list(map(str, values or ()))
    return Completion(values=listed[:MAX_VALUES], total=len(listed), has_more=len(listed) > MAX_VALUES)
