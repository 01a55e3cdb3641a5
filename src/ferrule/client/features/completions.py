"""Suggestions for the arguments of prompts and the variables of templates."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping

import msgspec

from ferrule.client.era.contract import Params
from ferrule.client.features.requests import Requests
from ferrule.client.link.keeper import Keeper
from ferrule.errors import Cancelled
from ferrule.schema.completion import Completion, CompletionContext, PromptReference, Reference, ResourceReference


class Debounce:
    """Lets the last of several questions about one field go on, and ends those before it."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Future[None]] = {}

    async def settle(self, field: Hashable, pause: float) -> None:
        """Wait until nobody asked about a field for a while; raises Cancelled once somebody asks again."""
        earlier = self._waiting.get(field)
        if earlier is not None and not earlier.done():
            earlier.set_result(None)
        mine = self._waiting[field] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(mine, pause)
        except TimeoutError:
            return
        finally:
            if self._waiting.get(field) is mine:
                del self._waiting[field]
        raise Cancelled("a later question about the same argument took the place of this one")


class Completions:
    """Asks one server for suggestions."""

    def __init__(self, keeper: Keeper, requests: Requests, timeout: float | None) -> None:
        self._keeper = keeper
        self._requests = requests
        self._timeout = timeout
        self._debounce = Debounce()

    async def complete(
        self,
        ref: Reference | Mapping[str, object] | str,
        argument: Mapping[str, str],
        context: Mapping[str, str] | None,
        timeout: float | None,
        debounce: float,
    ) -> Completion:
        """Return suggestions for an argument of a prompt (by name) or a variable of a template (by URI)."""
        if debounce > 0:
            await self._debounce.settle((str(ref), argument.get("name")), debounce)
        if timeout is None:
            timeout = self._timeout
        conversation = await self._keeper.when_connected(timeout)
        params: Params = {"ref": conversation.trim(reference_of(ref)), "argument": dict(argument)}
        if context:
            known = conversation.trim(CompletionContext(arguments=dict(context)))
            if known is not None:
                params["context"] = known
        completion: Completion = (await self._requests.ask("completion/complete", params, timeout)).completion
        return completion


def reference_of(ref: Reference | Mapping[str, object] | str) -> Reference:
    """Read what shall be completed: a prompt by its name, a template by its URI."""
    if isinstance(ref, Mapping):
        read: Reference = msgspec.convert(ref, Reference)
        return read
    if not isinstance(ref, str):
        return ref
    if "://" in ref or "{" in ref:
        return ResourceReference(ref)
    return PromptReference(ref)
