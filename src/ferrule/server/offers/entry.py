"""What tools, resources and prompts have in common: whose they are, who sees them, and the way to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.server.calls.context import Context
from ferrule.server.calls.services import Services
from ferrule.server.offers.mount_point import Way

Detour = Callable[[Call], Awaitable[Any]]
Visible = Callable[[Context[Any]], bool]


class Entry:
    """One thing a server offers."""

    __slots__ = ("context", "detour", "home", "logs", "tags", "visible", "way")

    def __init__(
        self, home: Services, *, wants_context: bool, tags: Iterable[str] | None, visible: Visible | None
    ) -> None:
        if isinstance(tags, str):
            raise SetupError(f"tags must be a set of texts, not the text {tags!r}: write tags={{{tags!r}}}")
        self.home = home
        """What the calls of the server it belongs to work with."""
        self.context: Callable[[Call, Services], Context[Any]] | None = Context if wants_context else None
        """Makes the context of a call, where the handler or one of its providers takes one."""
        self.logs = False
        """Whether its handler may send log messages."""
        self.tags = frozenset(tags or ())
        self.visible = visible
        self.way: Way = ()
        """The mounts it was reached through."""
        self.detour: Detour | None = None
        """How a call is answered where running the handler is not all: settled when it is offered."""
