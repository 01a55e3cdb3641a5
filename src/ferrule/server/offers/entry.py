"""What tools, resources and prompts have in common: whose they are, who sees them, and the way to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.server.calls.context import Context

if TYPE_CHECKING:
    from ferrule.server.offers.mounts import Mount
    from ferrule.server.server import Server

Detour = Callable[[Call], Awaitable[Any]]
Visible = Callable[[Context[Any]], bool]


class Recipe:
    """Makes a tool of something else than a function when it is added to a server."""

    def offer(self, server: Server, options: Any) -> Any:
        """Make the tool and offer it."""
        raise NotImplementedError


class Entry:
    """One thing a server offers."""

    __slots__ = ("context", "detour", "server", "tags", "visible", "way")

    def __init__(
        self, server: Server, *, wants_context: bool, tags: Iterable[str] | None, visible: Visible | None
    ) -> None:
        if isinstance(tags, str):
            raise SetupError(f"tags must be a set of texts, not the text {tags!r}: write tags={{{tags!r}}}")
        self.server = server
        self.context: Callable[[Call, Server], Context[Any]] | None = Context if wants_context else None
        """Makes the context of a call, where the handler or one of its providers takes one."""
        self.tags = frozenset(tags or ())
        self.visible = visible
        self.way: tuple[tuple[Mount, str], ...] = ()
        """The mounts it was reached through, outermost first, each with the key it has in the mounted server."""
        self.detour: Detour | None = None
        """How a call is answered where running the handler is not all: settled when it is offered."""
