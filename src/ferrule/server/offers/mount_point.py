"""Where the offers of one server appear in another: their names there, and whose calls they answer."""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct, structs

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler, composed
from ferrule.schema.completion import CompleteParams, PromptReference
from ferrule.schema.resources import ReadResourceParams, ReadResourceResult
from ferrule.schema.tools import Tool
from ferrule.server.calls.context import Context
from ferrule.server.calls.services import Services
from ferrule.server.middleware.stack import MiddlewareStack

PREFIX = r"(?!\.+\Z)[A-Za-z0-9_.\-]*"
"""Not dots alone: in a URI they are steps, which somebody on the way may take."""


class Component(Struct, frozen=True):
    """A tool, prompt, resource or resource template, as a rule sees it."""

    kind: str
    name: str
    """The name, or the URI."""
    tags: frozenset[str]
    listed: Any


Rule = Callable[[Context[Any], Component], bool]
Suggest = Callable[[Call, Context[Any]], Awaitable[Any]]


class Mounted(Protocol):
    """What a server offers, as far as its copies in another server need it."""

    services: Services
    layers: MiddlewareStack

    @property
    def rules(self) -> Sequence[Rule]:
        """Who sees what, as the mounted server says."""

    @property
    def completes(self) -> bool:
        """Whether anything of the mounted server can be completed."""

    def admits(self, kind: str, key: str, tags: frozenset[str]) -> bool:
        """Return whether the tags and switches of the mounted server alone let something be offered."""

    def completer(self, target: str, name: str) -> Suggest | None:
        """Return what suggests values for one parameter, if anything does."""


class Holder(Protocol):
    """Where a server is mounted, as it is told what changed."""

    def judge(self) -> None:
        """Called when something is seen by some callers only."""

    def protect(self) -> None:
        """Called when something needs scopes."""

    def use_versions(self) -> None:
        """Called when something has versions."""

    def updated(self, uri: str, extra: dict[str, Any]) -> None:
        """Called when a resource changed."""

    def recompose(self) -> None:
        """Called when the middleware changed."""


class MountPoint:
    """A prefix, and what is mounted under it."""

    def __init__(self, child: Mounted, prefix: str) -> None:
        from ferrule.schema.prefix import Prefix

        if not re.fullmatch(PREFIX, prefix):
            raise SetupError(f"the prefix {prefix!r} is part of names and URIs: letters, digits, '_', '-' and '.' only")
        self.child = child
        self.prefix = prefix
        self._names = Prefix(prefix)

    # -- names

    def named(self, name: str) -> str:
        """Return the name a tool or prompt of the child has in the host."""
        return self._names.named(name)

    def placed(self, uri: str) -> str:
        """Return the URI a resource of the child has in the host."""
        return self._names.placed(uri)

    def own_uri(self, uri: str) -> str:
        """Return the URI a resource of the host has in the child."""
        own = self._names.own_uri(uri)
        if own is None:
            return uri
        return own

    def shown(self, tool: Tool, name: str) -> Tool:
        """Return a tool of the child as the host lists it; a page it names is where the host has it."""
        return self._names.shown(tool, name)

    def placed_in(self, result: ReadResourceResult) -> ReadResourceResult:
        """Write the URIs of what was read as the host does; the child may keep its own copy."""
        placed = copy.copy(result)
        placed.contents = self._names.contents(result.contents)
        return placed

    # -- calls

    def speaking(self, handler: Handler, key: str) -> Handler:
        """Let a handler see calls as the child names them."""

        async def handle(call: Call) -> Any:
            original = call.params
            call.params = self._own_words(original, key)
            try:
                result = await handler(call)
            finally:
                call.params = original
            if isinstance(result, ReadResourceResult):
                return self.placed_in(result)
            return result

        return handle

    def _own_words(self, params: Any, key: str) -> Any:
        """Write params as the child would have got them."""
        if isinstance(params, CompleteParams):
            if isinstance(params.ref, PromptReference):
                named = {"name": key}
            else:
                named = {"uri": key}
            return structs.replace(params, ref=structs.replace(params.ref, **named))
        if isinstance(params, ReadResourceParams):
            return structs.replace(params, uri=self.own_uri(params.uri))
        return structs.replace(params, name=key)


MountPath = tuple[tuple[MountPoint, str], ...]
"""The mounts something was reached through, outermost first, each with the key it has in the mounted server."""


def through(mount_path: MountPath, method: str, run: Handler) -> Handler | None:
    """Surround the running of an entry with the middleware of the servers it is from; None if they have none."""
    around = [point.child.layers.around(method) for point, _ in mount_path]
    if not any(around):
        return None
    handler = run
    for (point, key), layers in zip(reversed(mount_path), reversed(around), strict=True):
        handler = point.speaking(composed(handler, layers), key)
    return handler
