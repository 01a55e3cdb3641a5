"""What the calls of one server work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ferrule.protocol.call import Call
from ferrule.protocol.handshake import Handshake
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import Params
from ferrule.schema.prompts import GetPromptResult
from ferrule.schema.resources import ReadResourceResult
from ferrule.server.calls.kept_results import KeptResults
from ferrule.server.calls.threads import Threads
from ferrule.server.hosting.links import Links
from ferrule.server.notifications.changes import ChangeNotices
from ferrule.server.notifications.subscriptions import Subscriptions
from ferrule.server.settings import ServerSettings

if TYPE_CHECKING:
    from ferrule.server.application import Application


class Switch(Protocol):
    """Switches something on or off for the caller alone."""

    def __call__(
        self, call: Call, services: Services, names: Iterable[str], tags: Iterable[str], kind: str | None, *, on: bool
    ) -> None:
        """Switch what has one of these names or tags in a server."""


class Services:
    """What the calls of one server work with: its threads, its links, what it keeps for callers.

    What is only declared here is set by those who can do it: `Offers` and `Host`.
    """

    read: Callable[[str, Callable[[], Call]], Awaitable[ReadResourceResult]]
    """Reads one of the server's own resources, for a call that is asked for when it is needed."""
    listed: Callable[[str, Call, Services], list[Any]]
    """Returns what a caller sees of one kind in a server, as it is listed there."""
    fill: Callable[[str, Mapping[str, str] | None, Call], Awaitable[GetPromptResult]]
    """Fills in one of the server's own prompts, as part of a call."""
    answer: Callable[[str, Params, Call], Awaitable[Any]]
    """Answers a request of another method as part of a call, as if the same client had sent it."""
    switch: Switch
    lifespan: Callable[[], Any]
    """Returns what the lifespan yielded; raises SetupError while it has not begun."""

    def __init__(
        self,
        app: Application,
        settings: ServerSettings,
        *,
        capabilities: Callable[[], ServerCapabilities],
    ) -> None:
        self.app = app
        """The server itself, for handlers."""
        self.settings = settings
        self.capabilities = capabilities
        """What the server declares now."""
        self.threads = Threads(settings.max_threads)
        self.kept_results = KeptResults(settings.result_ttl, settings.max_kept_bytes)
        self.subscriptions = Subscriptions(settings.max_subscriptions)
        self.changes = ChangeNotices(self.subscriptions, settings.list_changed_interval, settings.update_interval)
        self.handshake = Handshake(
            tuple(settings.versions), erlmcp_codes=settings.error_profile == "erlmcp", strict=settings.strict_version
        )
        self.links = Links(self.subscriptions, self.handshake, settings)
        self.links.on_forget = self.kept_results.forget

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.app.name

    def wants_log(self, call: Call, rank: int) -> bool:
        """Return whether the caller wants a log message of this rank."""
        return self.capabilities().logging is not None and self.links.wants_log(call, rank)
