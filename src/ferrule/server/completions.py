"""Completion: suggestions from registered functions, or from the choices a parameter's type allows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ferrule.errors import InvalidParams
from ferrule.protocol.call import Call
from ferrule.schema.completion import CompleteResult, Completion, PromptReference
from ferrule.server.binding import Binding
from ferrule.server.catalogue import off
from ferrule.server.context import Context
from ferrule.server.threads import Bulkhead

if TYPE_CHECKING:
    from ferrule.server.server import Server

MAX_VALUES = 100


class Completer:
    """A function that suggests values; it is given what it has parameters for."""

    def __init__(self, fn: Callable[..., Any], bulkhead: Bulkhead) -> None:
        self.fn = fn
        self._bulkhead = bulkhead
        self._names = list(inspect.signature(fn).parameters)

    async def suggest(self, call: Call, context: Context) -> Any:
        """Run the function."""
        params = call.params
        known = {
            "value": params.argument.value,
            "argument": params.argument.name,
            "arguments": params.context.arguments,
            "ref": params.ref,
            "ctx": context,
            "context": params.context.arguments,
        }
        positional = [
            known.get(name, params.argument.value if at == 0 else None) for at, name in enumerate(self._names)
        ]
        if inspect.iscoroutinefunction(self.fn):
            return await self.fn(*positional)
        return await self._bulkhead.run(lambda: self.fn(*positional))


class Completions:
    """The completions of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._completers: dict[str, Completer] = {}

    def add(self, place: str, fn: Callable[..., Any]) -> None:
        """Suggest values for a prompt, a template, one parameter of them (`prompt.parameter`), or a parameter name."""
        self._completers[place] = Completer(fn, Bulkhead(self._server.threads))

    @property
    def offered(self) -> bool:
        """Whether anything can be completed."""
        return bool(self._completers) or any(_choices(binding) for binding in self._bindings())

    def _bindings(self) -> Iterable[Binding]:
        yield from (entry.binding for entry in self._server.prompts.catalogue)
        yield from (entry.binding for entry in self._server.resources.templates)

    async def complete(self, call: Call) -> CompleteResult:
        """Answer `completion/complete`."""
        if self._server.capabilities.completions is None:
            raise off("completions")
        target, binding = self._find(call)
        name = call.params.argument.name
        completer = next(
            (self._completers[place] for place in (f"{target}.{name}", target, name) if place in self._completers), None
        )
        if completer is not None:
            return CompleteResult(completion=_ranked(await completer.suggest(call, Context(call, self._server))))
        start = call.params.argument.value
        return CompleteResult(completion=_ranked([v for v in _choices(binding).get(name, ()) if v.startswith(start)]))

    def _find(self, call: Call) -> tuple[str, Binding]:
        ref = call.params.ref
        if isinstance(ref, PromptReference):
            prompt = self._server.prompts.catalogue.get(ref.name)
            if prompt is None:
                raise InvalidParams(f"Unknown prompt: {ref.name}", {"ref": {"type": "ref/prompt", "name": ref.name}})
            return ref.name, prompt.binding
        resource = self._server.resources.templates.get(ref.uri) or self._server.resources.catalogue.get(ref.uri)
        if resource is None:
            raise InvalidParams(
                f"Unknown resource template: {ref.uri}", {"ref": {"type": "ref/resource", "uri": ref.uri}}
            )
        return ref.uri, resource.binding


def _choices(binding: Binding) -> dict[str, list[str]]:
    """Give the values each parameter may have, where its type lists them; an optional one counts as well."""
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
    listed = [str(value) for value in values or ()]
    return Completion(values=listed[:MAX_VALUES], total=len(listed), has_more=len(listed) > MAX_VALUES)
