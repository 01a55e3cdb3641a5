"""`Middleware`: a layer with one method for each kind of call; what it does not override costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrule.protocol.call import Call, Note
from ferrule.runtime.dispatch import Handler


class Middleware:
    """What runs around calls; override what is of interest.

    Every hook is given the call and how to proceed with it, and returns the result, proceed's or another, or raises.
    Only overridden hooks are composed into a server's handlers, when it starts.
    """

    def joined(self, server: object) -> None:
        """Called with the `Server` whose calls these are."""

    async def on_request(self, call: Call, proceed: Handler) -> Any:
        """Surround every request, whatever its method."""
        return await proceed(call)

    async def on_initialize(self, call: Call, proceed: Handler) -> Any:
        """Surround the handshake; the stateless era has none."""
        return await proceed(call)

    async def on_call_tool(self, call: Call, proceed: Handler) -> Any:
        """Surround a call of a tool; the result has its failure, if any, in `is_error`."""
        return await proceed(call)

    async def on_read_resource(self, call: Call, proceed: Handler) -> Any:
        """Surround the reading of a resource."""
        return await proceed(call)

    async def on_get_prompt(self, call: Call, proceed: Handler) -> Any:
        """Surround the filling in of a prompt."""
        return await proceed(call)

    async def on_complete(self, call: Call, proceed: Handler) -> Any:
        """Surround a completion."""
        return await proceed(call)

    async def on_list_tools(self, call: Call, proceed: Handler) -> Any:
        """Surround a list of tools, which comes encoded."""
        return await proceed(call)

    async def on_list_resources(self, call: Call, proceed: Handler) -> Any:
        """Surround a list of resources, which comes encoded."""
        return await proceed(call)

    async def on_list_resource_templates(self, call: Call, proceed: Handler) -> Any:
        """Surround a list of resource templates, which comes encoded."""
        return await proceed(call)

    async def on_list_prompts(self, call: Call, proceed: Handler) -> Any:
        """Surround a list of prompts, which comes encoded."""
        return await proceed(call)

    def on_notification(self, note: Note, proceed: Callable[[Note], None]) -> None:
        """Surround a notification of the client's; a plain function, since nobody waits for it."""
        proceed(note)

    def on_error(self, call: Call, error: Exception) -> Exception | None:
        """Return what to raise instead of what a handler raised, before it is masked; None leaves it as it is."""
        return None


HOOKS = {
    "initialize": "on_initialize",
    "tools/call": "on_call_tool",
    "resources/read": "on_read_resource",
    "prompts/get": "on_get_prompt",
    "completion/complete": "on_complete",
    "tools/list": "on_list_tools",
    "resources/list": "on_list_resources",
    "resources/templates/list": "on_list_resource_templates",
    "prompts/list": "on_list_prompts",
}
"""Which hook belongs to which method; all others have `on_request` only."""
