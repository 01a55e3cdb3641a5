"""What a tool gave, as its result: media are read, the promise of the output schema is checked, the size is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ferrule.protocol.call import Call
from ferrule.schema.content import CONTENT_TYPES, ResourceLink
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.kept_results import LARGEST_KEPT
from ferrule.server.calls.media import Media, holds_media, is_quick, written
from ferrule.server.calls.oversize import SizePolicy
from ferrule.server.calls.results import ToolResult, Wrap, wrapped_data
from ferrule.server.calls.services import Services
from ferrule.server.calls.streams import Progress
from ferrule.server.functions.binder import Binding, InvalidOutput, Violation, holds_just

RESULT_TYPES = (*CONTENT_TYPES, CallToolResult, ToolResult, Media, Progress)
"""What a tool may return that is not data of its own."""

TO_BE_MADE = (ToolResult, Media, list, tuple)
"""What is, or may hold, something that is still to be made or read."""

NO_DATA = Violation("", None, "required", "there is no structured content, and the output schema promises some")


class ToolResults:
    """Makes the results of one tool."""

    __slots__ = ("_binding", "_exact", "_policy", "_services", "wrap")

    def __init__(
        self, services: Services, binding: Binding, wrap: Wrap, exact: object, policy: SizePolicy | None
    ) -> None:
        self._services = services
        self._binding = binding
        self.wrap = wrap
        """Makes a result of a value that needs no check."""
        self._exact = exact
        self._policy = policy

    async def finish(self, call: Call, value: object) -> CallToolResult:
        """Make the result of what the tool gave; a value of just the declared plain type needs no check."""
        if self._is_list_of_items(value):
            result = wrapped_data(value)
        else:
            if isinstance(value, TO_BE_MADE):
                value = await self._made(call, value)
            result = self.wrapped(value)
        if self._policy is None:
            return result
        return self._policy.apply(result, lambda body, mime_type: self._keep(call, body, mime_type))

    def _is_list_of_items(self, value: object) -> bool:
        """Return whether a value is a list of just the declared class: it holds nothing that is to be looked for."""
        item_type = self._binding.item_type
        return item_type is not None and type(value) is list and holds_just(value, item_type)

    async def _made(self, call: Call, value: object) -> Any:
        """Make a whole result, and read the media, of what may be or hold such."""
        if not isinstance(value, ToolResult):
            if holds_media(value):
                return await read_media(self._services, call, value)
            return value
        if holds_media(value.content):
            given = await read_media(self._services, call, value.content)
            value = ToolResult(given, value.structured, meta=value.meta, is_error=value.is_error)
        return value.made(self._binding.wraps_output)

    def wrapped(self, value: object) -> CallToolResult:
        """Check and wrap a value with nothing in it that is still to be made or read."""
        if isinstance(value, CallToolResult):
            self._check_whole(value)
        elif isinstance(value, CONTENT_TYPES):
            self._binding.check_output(msgspec.to_builtins(value))
        elif type(value) is not self._exact:
            self._binding.check_output(value)
        return self.wrap(value)

    def _check_whole(self, result: CallToolResult) -> None:
        """Check a result the tool made itself against its output schema, unless it says that the tool failed."""
        if result.is_error or not self._binding.checks_output:
            return
        content = result.structured_content
        if isinstance(content, msgspec.Raw):
            content = msgspec.json.decode(content)
        if self._binding.wraps_output and isinstance(content, dict):
            content = content.get("result")
            if isinstance(content, msgspec.Raw):
                content = msgspec.json.decode(content)
        try:
            self._binding.check_output(content)
        except InvalidOutput as error:
            if content is None:
                raise InvalidOutput(error.name, [NO_DATA]) from None
            raise

    def _keep(self, call: Call, body: bytes, mime_type: str) -> str:
        services = self._services
        return services.kept_results.keep(services.links.owner(call), body, mime_type)


async def read_media(services: Services, call: Call, value: object) -> Any:
    """Put content blocks where media are: in place where that is quick, else in a thread."""
    owner = services.links.owner(call)

    def keep(body: Callable[[], bytes] | bytes, name: str, mime_type: str, size: int) -> ResourceLink | None:
        # What is read later takes no room, but must fit into an answer all the same.
        largest = services.kept_results.largest if isinstance(body, bytes) else LARGEST_KEPT
        if services.capabilities().resources is None or size > largest:
            return None
        uri = services.kept_results.keep(owner, body, mime_type)
        return ResourceLink(uri=uri, name=name, mime_type=mime_type, size=size)

    if is_quick(value):
        return written(value, keep)
    return await services.threads.run(lambda: written(value, keep))
