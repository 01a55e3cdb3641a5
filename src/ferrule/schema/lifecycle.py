"""How a conversation opens: initialize, discover, and what each side declares."""

from __future__ import annotations

from typing import Any

from ferrule.schema.model import CacheableResult, ClientCapabilities, Implementation, Params, Result, Value


class ListCapability(Value, frozen=True, kw_only=True):
    """A list the server offers, and whether it tells of changes."""

    list_changed: bool | None = None


class ResourcesCapability(Value, frozen=True, kw_only=True):
    """Resources, and whether they can be subscribed to."""

    subscribe: bool | None = None
    list_changed: bool | None = None


class ServerCapabilities(Value, frozen=True, kw_only=True):
    """What a server offers; a member that is present, even empty, is supported."""

    tools: ListCapability | None = None
    resources: ResourcesCapability | None = None
    prompts: ListCapability | None = None
    completions: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    tasks: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class InitializeParams(Params, kw_only=True):
    """A client's offer."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """The server's answer to the offer."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, kw_only=True):
    """What a server of the stateless era is and can do."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
