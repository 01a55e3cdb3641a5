"""The composing half of a server: middleware, mounted servers, what is switched on and off, tools made of others."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ferrule.errors import SetupError
from ferrule.protocol.capabilities import server_offers
from ferrule.runtime.dispatch import Dispatcher
from ferrule.schema.apps import APPS
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.server.extensions.extension import Extensions
from ferrule.server.hosting.builtins import Builtins
from ferrule.server.hosting.link_state import Links
from ferrule.server.middleware.hooks import Middleware
from ferrule.server.middleware.stack import AnyLayer, MiddlewareStack, checked
from ferrule.server.notifications.changes import ChangeNotices
from ferrule.server.offers.mounts import Mount
from ferrule.server.offers.tools import RegisteredTool, Tools
from ferrule.server.offers.visibility import Rule, Visibility

if TYPE_CHECKING:
    from ferrule.runtime.tasks.tasks import Tasks
    from ferrule.server.server import Server

logger = logging.getLogger("ferrule.server")

AddedLayer = TypeVar("AddedLayer", bound=AnyLayer)
AddedRule = TypeVar("AddedRule", bound=Rule)


class Composition:
    """The composing half of a server."""

    name: str
    changes: ChangeNotices
    links: Links
    tools: Tools
    visibility: Visibility
    extensions: Extensions
    _capabilities: ServerCapabilities | None
    _own_handlers: dict[str, Any]

    def __init__(self) -> None:
        self.layers = MiddlewareStack()
        self.mounts: list[Mount] = []
        self.mounted_in: list[Mount] = []
        self._dispatcher: Dispatcher | None = None
        self._tasks: Tasks | None = None

    # -- middleware

    def middleware(self, layer: AddedLayer) -> AddedLayer:
        """Run something around calls: a `Middleware`, or an `async def layer(call, proceed)`."""
        checked(layer, "app.middleware")
        self.layers.add(layer)
        if isinstance(layer, Middleware):
            layer.joined(self._server())
        self.recompose()
        for mount in self.mounted_in:
            mount.recompose()
        return layer

    add_middleware = middleware

    @property
    def dispatcher(self) -> Dispatcher:
        """The handlers of this server, composed once with its middleware."""
        if self._dispatcher is None:
            builtins = Builtins(self._server())
            around = self.layers.around
            handlers = {**builtins.handlers(looked_into=bool(around("tools/call"))), **self._own_handlers}
            # A tool's own errors never get here: they become results, and are mended where that happens.
            mended = {}
            for n, h in handlers.items():
                mended[n] = h if n == "tools/call" else self.layers.mending(h)
            notes, others = self.layers.listening({**builtins.notes(), **self.extensions.notes})
            self._dispatcher = Dispatcher(mended, builtins.instant(), notes, around, other_notes=others)
            if around("tools/call"):
                self._dispatcher.handlers["tools/call"] = self.tools.telling(self._dispatcher.handlers["tools/call"])
            if self.tools.know_tasks:
                self._run_as_tasks(self._dispatcher)
        return self._dispatcher

    def _run_as_tasks(self, dispatcher: Dispatcher) -> None:
        """Let calls of tools become tasks; a server without such tools does not even ask."""
        from ferrule.server.calls.tasks import TaskCalls

        server = self._server()
        declared = server.settings.capabilities
        if declared is None or server_offers(declared, "tasks.requests.tools.call"):
            dispatcher.handlers["tools/call"] = TaskCalls(server, dispatcher.handlers["tools/call"])

    @property
    def tasks(self) -> Tasks:
        """The calls that go on after they were answered; what keeps them is made when they are first spoken of."""
        if self._tasks is None:
            from ferrule.runtime.tasks.tasks import Tasks
            from ferrule.server.calls.tasks import ToolTasks

            self._tasks = Tasks(ToolTasks(self._server()), self._server().settings.tasks)
        return self._tasks

    def recompose(self) -> None:
        """Put together anew what is declared and who answers what, also for those who are connected."""
        self._capabilities = self._dispatcher = None
        for link in self.links:
            link.dispatcher = self.dispatcher

    # -- other servers

    def mount(self, server: Server, prefix: str = "", *, namespace: str = "") -> Server:
        """Offer all that another server offers, now and later: `weather` makes `weather_tool` and `x://weather/…`.

        `namespace` is the name FastMCP has for `prefix`.
        """
        self._mount(server, prefix or namespace, live=True)
        return server

    def import_server(self, server: Server, prefix: str = "") -> Server:
        """Offer all that another server offers now; what it adds or removes later is not followed."""
        self._mount(server, prefix, live=False)
        return server

    def _mount(self, other: Server, prefix: str, *, live: bool) -> None:
        if isinstance(other, str):
            raise SetupError(f"mount takes the server first: app.mount(server, prefix={other!r})")
        mount = Mount(self._server(), other, prefix)
        self._server().check_startable(other)
        if other.settings.auth is not None and other.settings.auth is not self._server().settings.auth:
            logger.warning("the auth of %r is not asked in %r: callers are verified by the host", other.name, self.name)
        mount.begin(live=live)
        self.mounts.append(mount)
        if APPS in other.extensions:
            self._server().apps()
        if other.visibility.judges:
            self.visibility.judge()

    def unmount(self, server: Server) -> None:
        """Offer nothing of another server any more; its lifespan ends when this server's does."""
        found = [mount for mount in self.mounts if mount.child is server]
        if not found:
            raise SetupError(f"the server {server.name!r} is not mounted in {self.name!r}")
        for mount in found:
            self.mounts.remove(mount)
            mount.end()

    # -- who sees what

    def enable(self, *names: str, tags: Iterable[str] = (), kind: str | None = None) -> None:
        """Offer again what was disabled, by name, URI or tag; from any thread."""
        self._switch(names, tags, kind, on=True)

    def disable(self, *names: str, tags: Iterable[str] = (), kind: str | None = None) -> None:
        """Neither list nor run, by name, URI or tag, until it is enabled again; from any thread."""
        self._switch(names, tags, kind, on=False)

    def _switch(self, names: Sequence[str], tags: Iterable[str], kind: str | None, *, on: bool) -> None:
        self.visibility.check(names, tags, kind)
        # In the loop, where no call is between two looks at the table.
        self.changes.soon(lambda: self.visibility.switch(names, tags, kind, on=on))

    def visible(self, rule: AddedRule) -> AddedRule:
        """Let a function of (context, component) say who sees what; what one does not see, one cannot use."""
        self.visibility.add_rule(rule)
        return rule

    # -- tools made of others

    def get_tool(self, name: str) -> RegisteredTool:
        """Return one of the tools, for `transformed`."""
        entry = self.tools.catalogue.registered.get(name)
        if entry is None:
            raise SetupError(f"there is no tool {name!r}{self.tools.catalogue.hint(name)}")
        return entry

    def _server(self) -> Server:
        return self  # type: ignore[return-value]  # only a Server has this half
