"""A server as its handlers, extensions and lifespans see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ferrule.schema.prompts import GetPromptResult, Prompt
from ferrule.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from ferrule.schema.tools import CallToolResult, Tool


class Application(Protocol):
    """What `ctx.server` is: the names of a `Server` that make sense while it serves."""

    name: str
    version: str
    instructions: str | None

    # Options are checked where they are taken: `Server` types them.

    @property
    def add_tool(self) -> Callable[..., Tool]:
        """Offer a tool."""

    @property
    def add_resource(self) -> Callable[..., Resource | ResourceTemplate]:
        """Offer a resource, or a template when the URI has variables."""

    @property
    def add_prompt(self) -> Callable[..., Prompt]:
        """Offer a prompt."""

    def remove_tool(self, name: str) -> None:
        """Offer a tool no longer."""

    def remove_resource(self, uri: str) -> None:
        """Offer a resource or template no longer."""

    def remove_prompt(self, name: str) -> None:
        """Offer a prompt no longer."""

    def enable(self, *names: str, tags: Iterable[str] = (), kind: str | None = None) -> None:
        """Offer again what was disabled."""

    def disable(self, *names: str, tags: Iterable[str] = (), kind: str | None = None) -> None:
        """Neither list nor run what has one of these names or tags."""

    def notify_resource_updated(self, uri: str, **extra: Any) -> None:
        """Notify subscribers that a resource changed."""

    def notify_tools_changed(self) -> None:
        """Notify subscribers that the list of tools changed."""

    def notify_resources_changed(self) -> None:
        """Notify subscribers that the list of resources changed."""

    def notify_prompts_changed(self) -> None:
        """Notify subscribers that the list of prompts changed."""

    def list_tools(self) -> list[Tool]:
        """Return the tools as they are listed."""

    def list_resources(self) -> list[Resource]:
        """Return the resources as they are listed."""

    def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return the templates as they are listed."""

    def list_prompts(self) -> list[Prompt]:
        """Return the prompts as they are listed."""

    async def call_tool(
        self, name: str, arguments: Mapping[str, object] | None = None, *, raise_on_error: bool = True
    ) -> CallToolResult:
        """Call a tool in process."""

    async def read_resource(self, uri: str, context: Any = None) -> ReadResourceResult:
        """Read a resource in process."""

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Fill in a prompt in process."""

    async def stop(self, grace: float | None = None) -> None:
        """Stop serving."""
