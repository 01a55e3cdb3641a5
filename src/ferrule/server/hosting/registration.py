"""ServerRegistration: what of one server is in its registry.

Rule: nothing is registered before somebody asks for the registry. Then everything that is there is registered, and
from then on whatever comes; a server whose registry nobody uses does not pay for one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ferrule.runtime.link import Link
from ferrule.runtime.sessionless import SessionlessLink
from ferrule.server.hosting.entrance import Entrance
from ferrule.server.hosting.host import Host
from ferrule.supervision.child import Ready
from ferrule.transports.contract import AnnouncedListener, NamedListener

if TYPE_CHECKING:
    from ferrule.registry.local import LocalRegistration, LocalRegistry

SERVER = "server"
TRANSPORT = "transport"
LINK = "link"


class ServerRegistration:
    """What of one server is in its registry: the server and its transports while they serve, its links while open."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._registry: LocalRegistry | None = None
        self._times_served = 0
        """How often the server is served now: once for each `serve` that runs."""
        self._server: LocalRegistration | None = None
        self._transports: dict[str, object] = {}
        """The listeners and ASGI apps that can be reached now, by name."""
        self._links: dict[Link, LocalRegistration] = {}
        self._link_number = 0

    @property
    def registry(self) -> LocalRegistry:
        """The registry, made when it is first asked for."""
        if self._registry is None:
            from ferrule.registry.local import LocalRegistry

            self._registry = LocalRegistry()
            self._host.watch_registry(self._registry.stats)
            self._register_present(self._registry)
            self._host.links.watcher = self
            self._host.on_capabilities_changed = self._update_server
        return self._registry

    async def run(self, ready: Ready) -> None:
        """Keep the registry while the server serves; when this is restarted, what is missing is registered again."""
        if self._registry is not None:
            self._register_present(self._registry)
        ready()
        await asyncio.Event().wait()

    def _register_present(self, registry: LocalRegistry) -> None:
        if self._times_served:
            self._register_server(registry)
        for name, transport in self._transports.items():
            self._register_transport(registry, name, transport)
        for link in self._host.links:
            self._register_link(registry, link, self._host.links.entrance_of(link))

    # The server

    def server_began(self) -> None:
        """Called when the server is served and its lifespan has begun."""
        self._times_served += 1
        if self._registry is not None:
            self._register_server(self._registry)

    def server_ended(self) -> None:
        """Called when the lifespan is about to end."""
        self._times_served -= 1
        if not self._times_served and self._server is not None:
            self._server.unregister()
            self._server = None

    def _register_server(self, registry: LocalRegistry) -> None:
        app = self._host.services.app
        if registry.find(SERVER, app.name) is None:
            meta = {"version": app.version}
            self._server = registry.register(SERVER, app.name, app, capabilities=self._declared(), meta=meta)

    def _declared(self) -> frozenset[str]:
        """Return the names of the capabilities the server declares."""
        capabilities = self._host.capabilities
        found = []
        for name in capabilities.__struct_fields__:
            if getattr(capabilities, name) is not None:
                found.append(name)
        return frozenset(found)

    def _update_server(self) -> None:
        """Called when what the server declares may have changed."""
        registration = self._server
        if registration is not None and self.registry.find(SERVER, registration.entry.name) is registration.entry:
            declared = self._declared()
            if declared != registration.entry.capabilities:
                registration.update(capabilities=declared)

    # Its transports

    def transport_opened(self, name: str, transport: object) -> None:
        """Called when a listener or an ASGI app can be reached."""
        self._transports[name] = transport
        if self._registry is not None:
            self._register_transport(self._registry, name, transport)

    def transport_closed(self, name: str) -> None:
        """Called when it cannot be reached any more."""
        if self._transports.pop(name, None) is not None and self._registry is not None:
            self._registry.unregister(TRANSPORT, name)

    def _register_transport(self, registry: LocalRegistry, name: str, transport: object) -> None:
        if registry.find(TRANSPORT, name) is not None:
            return
        meta = {}
        capabilities = []
        if isinstance(transport, NamedListener):
            capabilities.append(transport.carrier)
        if isinstance(transport, AnnouncedListener):
            meta["url"] = transport.url
        registry.register(TRANSPORT, name, transport, capabilities=capabilities, meta=meta)
        server = self._host.services.name
        if registry.find(SERVER, server) is not None:
            registry.bind(name, server)

    # Its links

    def link_opened(self, link: Link, entrance: object) -> None:
        """Called when there is a new link."""
        if self._registry is not None:
            self._register_link(self._registry, link, entrance)

    def link_closed(self, link: Link) -> None:
        """Called when a link is over."""
        registration = self._links.pop(link, None)
        if registration is not None:
            registration.unregister()

    def _register_link(self, registry: LocalRegistry, link: Link, entrance: object) -> None:
        if link in self._links:
            return
        self._link_number += 1
        origin = link.session.origin
        capabilities = [origin.carrier]
        if isinstance(link, SessionlessLink):
            capabilities.append("sessionless")
        meta = {"address": origin.address}
        if isinstance(entrance, Entrance):
            meta["transport"] = entrance.name
        name = f"link-{self._link_number}"
        self._links[link] = registry.register(LINK, name, link, capabilities=capabilities, meta=meta)
