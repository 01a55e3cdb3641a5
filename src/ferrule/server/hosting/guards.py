"""Handlers that know only what their caller sees; composed in once callers see different things."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ferrule.errors import Refusal
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler, Instant
from ferrule.schema.completion import PromptReference
from ferrule.server.calls.kept_results import PREFIX as KEPT
from ferrule.server.offers.catalogue import Catalogue, unknown_reference

if TYPE_CHECKING:
    from ferrule.server.offers.resources import FoundResource
    from ferrule.server.offers.tools import RegisteredTool
    from ferrule.server.server import Server


class Guards:
    """Stand in front of the handlers of one server, and let through what the caller sees."""

    def __init__(self, server: Server) -> None:
        self._tools = server.tools
        self._prompts = server.prompts
        self._resources = server.resources
        self._visibility = server.visibility
        self._subscriptions = server.subscriptions

    def handlers(self, handlers: dict[str, Handler], *, looked_into: bool) -> dict[str, Handler]:
        """Guard what runs somebody's code, or waits."""
        return {
            **handlers,
            "tools/call": partial(self._call_tool, self._tools.call_whole if looked_into else self._tools.call),
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "completion/complete": partial(self._complete, handlers["completion/complete"]),
            "subscriptions/listen": partial(self._listen, handlers["subscriptions/listen"]),
        }

    def instant(self, instant: dict[str, Instant]) -> dict[str, Instant]:
        """Guard what is answered on the spot; the lists look at who asks by themselves."""
        return {**instant, "resources/subscribe": partial(self._subscribe, instant["resources/subscribe"])}

    def tool(self, call: Call) -> RegisteredTool | None:
        """Give the tool a call names, if there is one and its caller sees it."""
        found: RegisteredTool | None = self._find(self._tools.catalogue, call.params.name, call)
        return found

    def resource(self, call: Call) -> FoundResource:
        """Find the resource a call names among those its caller sees; raises Refusal when there is none."""
        return self._found(call.params.uri, call)

    async def _call_tool(self, run: Callable[[Call, Any], Awaitable[Any]], call: Call) -> Any:
        entry = self.tool(call)
        if entry is None:
            raise self._tools.missing(call.params.name)
        return await run(call, entry)

    async def _get_prompt(self, call: Call) -> Any:
        entry = self._find(self._prompts.catalogue, call.params.name, call)
        if entry is None:
            raise self._prompts.missing(call.params.name)
        return await self._prompts.fill(call, entry)

    async def _read_resource(self, call: Call) -> Any:
        uri = call.params.uri
        # What was kept for a caller is found by that caller alone, and is in no list.
        return await self._resources.read(call, None if uri.startswith(KEPT) else self._found(uri, call))

    async def _complete(self, complete: Handler, call: Call) -> Any:
        """Complete nothing for what the caller does not see."""
        ref = call.params.ref
        if isinstance(ref, PromptReference):
            if self._find(self._prompts.catalogue, ref.name, call) is None:
                raise unknown_reference(ref)
        elif not any(self._find(catalogue, ref.uri, call) for catalogue in self._resources.catalogues):
            raise unknown_reference(ref)
        return await complete(call)

    async def _listen(self, listen: Handler, call: Call) -> Any:
        """Tell no caller of changes to what it does not see."""
        wanted = call.params.notifications
        self._subscriptions.check(wanted.resource_subscriptions or (), wanted.task_ids or ())
        uris = [uri for uri in wanted.resource_subscriptions or () if not self._hides(uri, call)]
        heard = structs.replace(wanted, resource_subscriptions=uris or None)
        call.params = structs.replace(call.params, notifications=heard)
        return await listen(call)

    def _subscribe(self, subscribe: Instant, call: Call) -> Any:
        self._subscriptions.check((call.params.uri,))
        self._found(call.params.uri, call)
        return subscribe(call)

    def _find(self, catalogue: Catalogue[Any], key: str, call: Call) -> Any:
        return self._visibility.find(call, catalogue, key)

    def _found(self, uri: str, call: Call) -> FoundResource:
        return self._visibility.find_resource(call, uri)

    def _hides(self, uri: str, call: Call) -> bool:
        """Tell whether there is something at a URI that the caller does not see."""
        try:
            self._resources.find(uri, lambda kind, entry: True)
        except Refusal:
            return False
        try:
            self._found(uri, call)
        except Refusal:
            return True
        return False
