"""What one server offers: its tools, resources, prompts and completions, and who sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ferrule.schema.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from ferrule.schema.notices import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED
from ferrule.schema.tasks import TASKS_EXTENSION
from ferrule.server.calls.services import Services
from ferrule.server.middleware.stack import MiddlewareStack
from ferrule.server.offers.completions import Completions
from ferrule.server.offers.mount_point import Holder, Rule, Suggest
from ferrule.server.offers.prompts import Prompts
from ferrule.server.offers.resources import Resources
from ferrule.server.offers.tools import Tools
from ferrule.server.offers.visibility import Visibility


class Offers:
    """Everything one server offers, its own and what it mounts."""

    def __init__(
        self,
        services: Services,
        layers: MiddlewareStack,
        *,
        on_change: Callable[[], None],
        on_recompose: Callable[[], None],
    ) -> None:
        self.services = services
        self.layers = layers
        self._on_change = on_change
        """Called when something is offered, or no longer."""
        self._on_recompose = on_recompose
        self.versioned = False
        """Whether anything here has versions that a caller may choose from."""
        self.mounted: list[Offers] = []
        """What is mounted here."""
        self.mounted_in: list[Holder] = []
        self.visibility = Visibility(services, self.mounted_in, on_use=on_recompose)
        self.tools = Tools(
            services,
            layers,
            self.visibility,
            on_change=partial(self.changed, TOOLS_CHANGED),
            on_tasks=on_recompose,
            on_versions=self.use_versions,
        )
        self.resources = Resources(services, self.visibility, on_change=partial(self.changed, RESOURCES_CHANGED))
        self.prompts = Prompts(
            services,
            self.visibility,
            on_change=partial(self.changed, PROMPTS_CHANGED),
            on_versions=self.use_versions,
        )
        self.completions = Completions(services, self.visibility, self.prompts, self.resources, self.mounted)
        self.visibility.catalogues += [self.tools.catalogue, self.prompts.catalogue, *self.resources.catalogues]
        services.switch = self.visibility.switch_for
        services.read = self.resources.read_within
        services.listed = self.visibility.listed
        services.fill = self.prompts.fill_within

    def complete(self, place: str, fn: Callable[..., Any]) -> None:
        """Let a function suggest values."""
        self.completions.add(place, fn)
        self._on_change()

    def use_versions(self) -> None:
        """Let callers choose versions from now on, here and where this server is mounted."""
        if not self.versioned:
            self.versioned = True
            self._on_recompose()
        for holder in self.mounted_in:
            holder.use_versions()

    # -- as a server that mounts this one sees it

    @property
    def rules(self) -> Sequence[Rule]:
        """Who sees what, as this server says."""
        return self.visibility.rules

    @property
    def completes(self) -> bool:
        """Whether anything can be completed."""
        return self.completions.offered

    def admits(self, kind: str, key: str, tags: frozenset[str]) -> bool:
        """Return whether the tags and switches of this server alone let something be offered."""
        return self.visibility.admits(kind, key, tags)

    def completer(self, target: str, name: str) -> Suggest | None:
        """Return what suggests values for one parameter, if anything does."""
        return self.completions.completer(target, name)

    def holds(self, other: Offers) -> bool:
        """Return whether another server is mounted here, or in something that is."""
        return any(child is other or child.holds(other) for child in self.mounted)

    # -- changes

    def changed(self, kind: str) -> None:
        """Notify subscribers that a list changed."""
        self._on_change()
        self.services.changes.list_changed(kind)

    def updated(self, uri: str, extra: dict[str, Any]) -> None:
        """Notify subscribers that a resource changed, also where this server is mounted."""
        self.resources.forget(uri)
        self.services.changes.updated(uri, {"_meta": extra} if extra else {})
        for holder in self.mounted_in:
            holder.updated(uri, extra)

    # -- capabilities

    def capabilities(self, before: ServerCapabilities, tasks: dict[str, Any] | None) -> ServerCapabilities:
        """Return what is declared of what is offered now, and of what was declared before."""
        # What is switched off or removed counts: it may come back, and a capability cannot; whoever was told of one has
        # its list answered, possibly empty (MCP, server/resources, "Capabilities"). Tasks outlive the tools they ran.
        changes = ListCapability(list_changed=True)
        declared: dict[str, Any] = {}
        if self.tools.catalogue.registered or before.tools:
            declared["tools"] = changes
        if self.prompts.catalogue.registered or before.prompts:
            declared["prompts"] = changes
        if self._reads() or before.resources:
            declared["resources"] = ResourcesCapability(subscribe=True, list_changed=True)
        if self.completions.offered:
            declared["completions"] = {}
        if self._logs():
            declared["logging"] = {}
        if tasks is not None:
            declared["tasks"] = tasks
            declared["extensions"] = {TASKS_EXTENSION: {}}
        return ServerCapabilities(**declared)

    def _reads(self) -> bool:
        """Return whether there is anything to read: resources, or results that are answered with a link."""
        return self.resources.offered or any(tool.links for tool in self.tools.catalogue.registered.values())

    def _logs(self) -> bool:
        """Return whether any handler may send log messages."""
        for catalogue in self.visibility.catalogues:
            if any(entry.logs for entry in catalogue.registered.values()):
                return True
        return False
