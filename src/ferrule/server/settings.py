"""The options of a server."""

from __future__ import annotations

from typing import TypedDict

from msgspec import Struct

from ferrule.protocol.handshake import REVISIONS
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import Icon


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The options of a server, with their defaults."""

    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None
    capabilities: ServerCapabilities | None = None
    page_size: int = 1000
    tool_timeout: float | None = None
    init_timeout: float | None = 60.0
    keepalive_interval: float | None = 30.0
    pong_timeout: float = 10.0
    max_missed: int = 1
    max_concurrent_per_session: int = 100
    max_waiting_per_session: int = 1024
    list_changed_interval: float = 0.1
    allow_batch: bool = False
    error_profile: str = "spec"
    versions: tuple[str, ...] = tuple(REVISIONS)
    cache_ttl: float = 0.0
    cache_scope: str = "private"
    request_state_keys: tuple[str | bytes, ...] = ()
    request_state_lifetime: float = 600.0
    progress_rate: float = 1000.0
    shutdown_grace: float = 5.0


class ServerOptions(TypedDict, total=False):
    """The options of a server, as keyword arguments; see ServerSettings for their defaults."""

    title: str | None
    description: str | None
    website_url: str | None
    icons: list[Icon] | None
    capabilities: ServerCapabilities | None
    page_size: int
    tool_timeout: float | None
    init_timeout: float | None
    keepalive_interval: float | None
    pong_timeout: float
    max_missed: int
    max_concurrent_per_session: int
    max_waiting_per_session: int
    list_changed_interval: float
    allow_batch: bool
    error_profile: str
    versions: tuple[str, ...]
    cache_ttl: float
    cache_scope: str
    request_state_keys: tuple[str | bytes, ...]
    request_state_lifetime: float
    progress_rate: float
    shutdown_grace: float
