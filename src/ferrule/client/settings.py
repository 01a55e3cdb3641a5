"""The options of a client."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, get_args

from msgspec import Struct

from ferrule.client.link.opening import Mode
from ferrule.client.link.reconnect import Reconnect
from ferrule.errors import SetupError
from ferrule.protocol.handshake import REVISIONS as HANDSHAKE_REVISIONS
from ferrule.protocol.stateless import REVISIONS as STATELESS_REVISIONS
from ferrule.schema.model import LogLevel
from ferrule.schema.tasks import TASKS_EXTENSION
from ferrule.transports.options import require_number, require_types

NUMBERS = (
    "request_timeout",
    "tool_timeout",
    "init_timeout",
    "probe_timeout",
    "ping_timeout",
    "max_request_time",
    "max_rounds",
    "max_list_items",
    "max_list_bytes",
    "task_patience",
)
"""The options that may not be less than nothing."""
ANSWERS = ("sampling", "elicitation", "url_elicitation", "roots")
"""The options that say who answers the server's questions."""

if TYPE_CHECKING:
    from ferrule.runtime.tasks.settings import TaskSettings
    from ferrule.telemetry.observer import Observer, Observers


class ClientSettings(Struct, frozen=True, kw_only=True):
    """The options of a client, with their defaults; times are seconds."""

    mode: Mode = "auto"
    protocol_version: str | None = None
    name: str = "ferrule"
    version: str = "0.1.0"
    request_timeout: float | None = 5.0
    tool_timeout: float | None = 30.0
    init_timeout: float | None = None
    probe_timeout: float = 5.0
    ping_timeout: float = 5.0
    max_request_time: float | None = None
    probe_on_timeout: bool = True
    reconnect: Reconnect | bool | None = None
    """Come back after a loss; None: where the client makes its own way to the server, not over an object given."""
    max_rounds: int = 10
    max_list_items: int = 100_000
    """How many items a server may list, on all pages of one list together."""
    max_list_bytes: int = 24 * 1024 * 1024
    """How many bytes one list may take once it is read, as estimated."""
    question_rate: float | None = None
    """How many questions of one kind a second are answered, and in one burst; None for all."""
    root_check_interval: float | None = 10.0
    """How often roots are looked at that a server was told of, to tell it when one appears or goes; None for never."""
    strict: bool = True
    cache: bool = True
    allow_batch: bool = False
    log_level: str | None = None
    send_client_info: bool = True
    sampling_tools: bool = False
    sampling_context: bool = False
    extensions: Mapping[str, Any] | None = None
    tasks: bool = False
    """Whether a server may answer any call with a task, which is then followed to its end (stateless era)."""
    question_tasks: Any = False
    """Whether a server may let its questions become tasks, or TaskSettings for how those are kept (handshake era)."""
    task_patience: float = 30.0
    """How long a task that is being followed may be out of reach."""
    validate_results: bool = True
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    stderr: Any = "pass"
    headers: Mapping[str, str] | None = None
    """Sent with every HTTP request, and with the one that opens a WebSocket: an authorization, for one."""
    http: Mapping[str, Any] | None = None
    """More options of HTTP: see HttpOptions."""
    tcp: Mapping[str, Any] | None = None
    """Options of TCP, TLS and Unix sockets: see TcpOptions."""
    websocket: Mapping[str, Any] | None = None
    """Options of WebSocket: see WebSocketOptions."""
    observer: Any = None
    """Who is told of requests, links and the like: an Observer, or a list of them."""

    def __post_init__(self) -> None:
        require_types(self)
        for name in NUMBERS:
            if (value := getattr(self, name)) is not None:
                require_number(name, value)
        _require("mode", self.mode, get_args(Mode))
        if self.question_rate is not None and not self.question_rate > 0:
            raise SetupError(f"question_rate must be more than 0, or None, not {self.question_rate!r}")
        if self.root_check_interval is not None and not self.root_check_interval > 0:
            raise SetupError(f"root_check_interval must be more than 0, or None, not {self.root_check_interval!r}")
        if not isinstance(self.question_tasks, bool):
            _require_task_settings(self.question_tasks)
        if self.log_level is not None:
            require_level(self.log_level)
        if self.protocol_version is not None:
            _require("protocol version", self.protocol_version, [*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS])

    @property
    def declared_extensions(self) -> Mapping[str, Any] | None:
        """What a server is told of the extensions this client was told to use."""
        if self.tasks:
            return {TASKS_EXTENSION: {}, **(self.extensions or {})}
        return self.extensions

    @property
    def kept_questions(self) -> TaskSettings | None:
        """How questions that become tasks are kept; None where none does."""
        if isinstance(self.question_tasks, bool):
            if self.question_tasks:
                return _task_settings()()
            return None
        given: TaskSettings = self.question_tasks
        return given

    @property
    def observers(self) -> Observers | None:
        """The observers as one; raises SetupError for what is none."""
        if self.observer is None:
            return None
        from ferrule.telemetry.observer import observers_of

        return observers_of(self.observer, "Client")

    @property
    def transport_options(self) -> dict[str, Any]:
        """What the way to the server is told, whichever it is."""
        return {
            "http": _with_headers(self.http, self.headers),
            "tcp": self.tcp,
            "websocket": _with_headers(self.websocket, self.headers),
            "env": self.env,
            "cwd": self.cwd,
            "stderr": self.stderr,
        }


def read_settings(options: ClientOptions) -> ClientSettings:
    """Make settings of keyword options; raises SetupError for one that does not exist or cannot be."""
    known = ClientSettings.__struct_fields__
    for name in options:
        if name not in known:
            from ferrule.porting_hints import unknown_option

            instead = unknown_option(name, sorted((*known, *ANSWERS)))
            raise SetupError(f"Client: unknown option {name!r}{instead}")
    try:
        return ClientSettings(**options)
    except SetupError as reason:
        raise SetupError(f"Client: {reason}") from None


def _task_settings() -> type[TaskSettings]:
    from ferrule.runtime.tasks.settings import TaskSettings

    return TaskSettings


def _require_task_settings(given: Any) -> None:
    if not isinstance(given, _task_settings()):
        raise SetupError(f"question_tasks is True, False or TaskSettings(...), not {given!r}")


def _with_headers(options: Mapping[str, Any] | None, headers: Mapping[str, str] | None) -> dict[str, Any]:
    given = dict(options or {})
    if headers is not None and not isinstance(headers, Mapping):
        raise SetupError(f"headers must be names with their values, as in {{'Authorization': …}}, not {headers!r}")
    if headers:
        given["headers"] = {**given.get("headers", {}), **headers}
    return given


def require_level(level: str) -> None:
    """Refuse a log level no server knows."""
    _require("log level", level, get_args(LogLevel))


def _require(what: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise SetupError(f"there is no {what} {value!r}: it is one of {', '.join(known)}")


class ClientOptions(TypedDict, total=False):
    """The options of a client, as keyword arguments; see ClientSettings for their defaults."""

    mode: Mode
    protocol_version: str | None
    name: str
    version: str
    request_timeout: float | None
    tool_timeout: float | None
    init_timeout: float | None
    probe_timeout: float
    ping_timeout: float
    max_request_time: float | None
    probe_on_timeout: bool
    reconnect: Reconnect | bool | None
    max_rounds: int
    max_list_items: int
    max_list_bytes: int
    question_rate: float | None
    root_check_interval: float | None
    strict: bool
    cache: bool
    allow_batch: bool
    log_level: str | None
    send_client_info: bool
    sampling_tools: bool
    sampling_context: bool
    extensions: Mapping[str, Any] | None
    tasks: bool
    question_tasks: TaskSettings | bool
    task_patience: float
    validate_results: bool
    env: Mapping[str, str] | None
    cwd: str | None
    stderr: Any
    headers: Mapping[str, str] | None
    http: Mapping[str, Any] | None
    tcp: Mapping[str, Any] | None
    websocket: Mapping[str, Any] | None
    observer: Observer | Sequence[Observer] | None
