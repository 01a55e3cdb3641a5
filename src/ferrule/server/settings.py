"""The options of a server."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.identity.verifier import Verifier
from ferrule.protocol.handshake import REVISIONS
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import Icon

if TYPE_CHECKING:
    from ferrule.runtime.tasks.settings import TaskSettings
    from ferrule.telemetry.observer import Observer, Observers


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
    max_concurrent: int = 4096
    """How many requests without a session may run at once."""
    max_waiting: int = 4096
    list_changed_interval: float = 0.1
    update_interval: float = 0.0
    allow_batch: bool = False
    error_profile: str = "spec"
    versions: tuple[str, ...] = tuple(REVISIONS)
    cache_ttl: float = 0.0
    cache_scope: str = "private"
    request_state_keys: tuple[str | bytes, ...] = ()
    request_state_lifetime: float = 600.0
    progress_rate: float = 1000.0
    log_rate: float | None = None
    """How many log messages a second a client is sent, and in one burst; more are dropped. None: as it reads."""
    shutdown_grace: float = 5.0
    strict_version: bool = False
    inline_refs: bool = False
    """Whether the schemas of tools are written without references."""
    extensions: Mapping[str, Any] | None = None
    include_tags: Collection[str] | None = None
    """Offer only what has one of these tags."""
    exclude_tags: Collection[str] | None = None
    """Offer nothing that has one of these tags."""
    max_threads: int = 256
    """How many worker threads there may be for plain functions."""
    result_limit: int | None = None
    """How many bytes a tool's result may have; None for what fits into a message."""
    result_policy: str = "refuse"
    """What becomes of a larger one: `refuse`, `truncate` or `spill`, which keeps it for the caller to read."""
    result_ttl: float = 600.0
    """For how long a kept result can be read."""
    max_kept_bytes: int = 64 * 1024 * 1024
    """How much of all kept results together."""
    bad_arguments: str = "auto"
    """How bad arguments of a tool are told: as the revision says, always in a `result`, or always as an `error`."""
    max_subscriptions: int = 1000
    """How many resources and tasks one client may listen to."""
    tasks: TaskSettings | None = None
    """How tasks are kept; None for the defaults."""
    observer: Any = None
    """Who is told of requests, links and the like: an Observer, or a list of them."""
    auth: Verifier | None = None
    """Who decides who a caller is; None lets everybody in."""

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value >= least):
                raise SetupError(f"{name} must be a number of at least {least}, not {value!r}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise SetupError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        if self.tasks is not None:
            from ferrule.runtime.tasks.settings import TaskSettings

            if not isinstance(self.tasks, TaskSettings):
                raise SetupError(f"tasks must be a TaskSettings, not {self.tasks!r}")
        if self.auth is not None and not isinstance(self.auth, Verifier):
            raise SetupError(f"auth must be a Verifier, not {self.auth!r}")
        for name in ("include_tags", "exclude_tags"):
            if isinstance(getattr(self, name), str):
                raise SetupError(f"{name} must be a set of texts, not the text {getattr(self, name)!r}")
        unknown = [version for version in self.versions if version not in REVISIONS]
        if unknown:
            raise SetupError(f"versions must be some of {', '.join(REVISIONS)}, not {', '.join(unknown)}")

    @property
    def observers(self) -> Observers | None:
        """The observers as one; raises SetupError for what is none."""
        if self.observer is None:
            return None
        from ferrule.telemetry.observer import observers_of

        return observers_of(self.observer, "Server")


LEAST = {
    "page_size": 1,
    "tool_timeout": 0,
    "init_timeout": 0,
    "keepalive_interval": 0,
    "pong_timeout": 0,
    "max_missed": 1,
    "max_concurrent_per_session": 1,
    "max_waiting_per_session": 0,
    "max_concurrent": 1,
    "max_waiting": 0,
    "list_changed_interval": 0,
    "update_interval": 0,
    "cache_ttl": 0,
    "request_state_lifetime": 0,
    "progress_rate": 1,
    "log_rate": 1,
    "shutdown_grace": 0,
    "max_threads": 1,
    "result_limit": 1,
    "result_ttl": 0,
    "max_kept_bytes": 0,
    "max_subscriptions": 1,
}
CHOICES = {
    "error_profile": ("spec", "erlmcp"),
    "cache_scope": ("private", "public"),
    "result_policy": ("refuse", "truncate", "spill"),
    "bad_arguments": ("auto", "result", "error"),
}


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
    max_concurrent: int
    max_waiting: int
    list_changed_interval: float
    update_interval: float
    allow_batch: bool
    error_profile: str
    versions: tuple[str, ...]
    cache_ttl: float
    cache_scope: str
    request_state_keys: tuple[str | bytes, ...]
    request_state_lifetime: float
    progress_rate: float
    log_rate: float | None
    shutdown_grace: float
    strict_version: bool
    inline_refs: bool
    extensions: Mapping[str, Any] | None
    include_tags: Collection[str] | None
    exclude_tags: Collection[str] | None
    max_threads: int
    result_limit: int | None
    result_policy: str
    result_ttl: float
    max_kept_bytes: int
    bad_arguments: str
    max_subscriptions: int
    tasks: TaskSettings
    observer: Observer | Sequence[Observer] | None
    auth: Verifier | None
