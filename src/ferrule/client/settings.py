"""The options of a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from ferrule.client.link.negotiation import Mode
from ferrule.client.link.reconnect import Reconnect
from ferrule.errors import SetupError
from ferrule.protocol.handshake import REVISIONS as HANDSHAKE_REVISIONS
from ferrule.protocol.stateless import REVISIONS as STATELESS_REVISIONS
from ferrule.schema.model import LogLevel
from ferrule.schema.tasks import TASKS_EXTENSION
from ferrule.settings.option import FilePath, NonNegativeInt, PositiveSeconds, Seconds, check, require
from ferrule.settings.sources import exports_traces, read_sourced
from ferrule.transports.process.child import StderrSink

ANSWERS = ("sampling", "elicitation", "url_elicitation", "roots")
"""The options that say who answers the server's questions."""

ROUTING = (
    *("balance", "weights", "affinity", "safe_tools", "breaker", "ejection", "bulkhead", "retry", "hedge"),
    "keep_payload",
)
"""The options of several targets: see `RoutingSettings`."""

if TYPE_CHECKING:
    from ferrule.client.keywords import ClientKeywords
    from ferrule.runtime.tasks.settings import TaskSettings
    from ferrule.telemetry.metrics import Metrics
    from ferrule.telemetry.observer import Observer, Observers
    from ferrule.telemetry.tracer import Tracing
    from ferrule.transports.contract import CredentialsSource


class ClientSettings(Struct, frozen=True, kw_only=True):
    """The options of a client, with their defaults; times are seconds, sizes bytes."""

    mode: Mode = "auto"
    """Which era to speak: whichever the server does, or one of the two."""
    protocol_version: str | None = None
    """The only version to speak; None for the newest both know."""
    name: str = "ferrule"
    """What the server is told we are called."""
    version: str = "0.1.0"
    """What the server is told our version is."""
    request_timeout: Seconds | None = 5.0
    """How long any request may take but a tool call; None for as long as it takes."""
    tool_timeout: Seconds | None = 30.0
    """How long a tool call may take; progress starts it anew. None for as long as it takes."""
    init_timeout: Seconds | None = None
    """How long the server may take to open the conversation; None for what `request_timeout` says."""
    probe_timeout: Seconds = 5.0
    """How long a server may take to say which era it speaks."""
    ping_timeout: Seconds = 5.0
    """How long a ping may take."""
    max_request_time: Seconds | None = None
    """The longest a request may take in spite of progress; None for no limit."""
    probe_on_timeout: bool = True
    """Whether a server is asked, when a call times out, if it is still there; a silent one counts as lost."""
    reconnect: Reconnect | bool | None = None
    """Come back after a loss; None: where the client makes its own way to the server, not over an object given."""
    max_rounds: NonNegativeInt = 10
    """How many rounds of questions one request may take (stateless era)."""
    max_list_items: NonNegativeInt = 100_000
    """How many items a server may list, on all pages of one list together."""
    max_list_bytes: NonNegativeInt = 24 * 1024 * 1024
    """How many bytes one list may take once it is read, as estimated."""
    question_rate: Annotated[float, Meta(gt=0)] | None = None
    """How many questions of one kind a second are answered, and in one burst; None for all."""
    root_check_interval: PositiveSeconds | None = 10.0
    """How often roots are looked at that a server was told of, to tell it when one appears or goes; None for never."""
    strict: bool = True
    """Whether what the server did not declare, or its era does not have, is refused without asking it."""
    cache: bool = True
    """Whether what a server lets us keep is kept."""
    allow_batch: bool = False
    """Whether JSON-RPC batches are read and sent in every revision."""
    log_level: LogLevel | None = None
    """From which level on the server is asked for its log messages; None for what it sends unasked."""
    send_client_info: bool = True
    """Whether each request names the client (stateless era)."""
    sampling_tools: bool = False
    """Whether the sampling handler can use tools."""
    sampling_context: bool = False
    """Whether the sampling handler can include context of servers."""
    extensions: Mapping[str, Any] | None = None
    """Extensions of the protocol to declare, each with its settings."""
    tasks: bool = False
    """Whether a server may answer any call with a task, which is then followed to its end (stateless era)."""
    question_tasks: TaskSettings | bool = False
    """Whether a server may let its questions become tasks, or TaskSettings for how those are kept (handshake era)."""
    task_patience: Seconds = 30.0
    """How long a task that is being followed may be out of reach."""
    validate_results: bool = True
    """Whether structured results are held against the output schema of their tool."""
    env: Mapping[str, str] | None = None
    """Environment variables of a child process, beside the harmless ones it gets anyway."""
    cwd: FilePath | None = None
    """The working directory of a child process."""
    stderr: StderrSink = "pass"
    """Where the stderr of a child goes: on to ours, `capture` to keep its end for errors, a function, or a file."""
    headers: Mapping[str, str] | None = None
    """Sent with every HTTP request, and with the one that opens a WebSocket: an authorization, for one."""
    auth: CredentialsSource | None = None
    """Who we are, to servers over HTTP and WebSocket: OAuth(…), ClientCredentials(…), Bearer(…) and their like."""
    http: Mapping[str, object] | None = None
    """More options of HTTP: see HttpOptions."""
    tcp: Mapping[str, object] | None = None
    """Options of TCP, TLS and Unix sockets: see TcpOptions."""
    websocket: Mapping[str, object] | None = None
    """Options of WebSocket: see WebSocketOptions."""
    observer: Observer | Sequence[Observer] | None = None
    """Who is told of requests, links and the like: an Observer, or a list of them."""
    metrics: Metrics | None = None
    """Where requests, links and, among several targets, decisions are counted: those of a server, or Metrics()."""
    upstream: str = ""
    """What the server, or all targets together, is called in metrics and spans."""
    replica: str = ""
    """Which one it is of several targets, in spans; a client of several targets says so to each of its clients."""
    tracing: Tracing | Mapping[str, Any] | bool | None = None
    """Whether requests become OpenTelemetry spans, or Tracing(…); None: if the environment names an exporter."""

    def __post_init__(self) -> None:
        check(self)
        if not isinstance(self.question_tasks, bool):
            _require_task_settings(self.question_tasks)
        known = (*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS)
        if self.protocol_version is not None and self.protocol_version not in known:
            raise SetupError(f"protocol_version must be one of {', '.join(known)}, not {self.protocol_version!r}")

    @property
    def declared_extensions(self) -> Mapping[str, object] | None:
        """What a server is told of the extensions this client was told to use."""
        if self.tasks:
            return {TASKS_EXTENSION: {}, **(self.extensions or {})}
        return self.extensions

    @property
    def kept_questions(self) -> TaskSettings | None:
        """How questions that become tasks are kept; None where none does."""
        if self.question_tasks is True:
            return _task_settings()()
        return self.question_tasks or None

    @property
    def observers(self) -> Observers | None:
        """The observers as one, with the tracer; raises SetupError for what is none."""
        tracing = self.tracing
        if tracing is None:
            tracing = exports_traces()
        if self.observer is None and self.metrics is None and tracing is False:
            return None
        from ferrule.telemetry.observer import observers_of

        tracer = None
        if tracing is not False:
            from ferrule.telemetry.tracer import tracer_of

            tracer = tracer_of(tracing, "Client")
        found = observers_of(self.observer, "Client", more=self._recorders(), tracer=tracer)
        if found is not None:
            found.upstream = self.upstream
            found.replica = self.replica
        return found

    def _recorders(self) -> list[Observer]:
        """Return what counts in the metrics that are given."""
        if self.metrics is None:
            return []
        from ferrule.telemetry.metrics import Metrics
        from ferrule.telemetry.recorder import MetricsRecorder

        if not isinstance(self.metrics, Metrics):
            raise SetupError(f"Client: metrics must be Metrics, such as app.metrics of a server, not {self.metrics!r}")
        return [MetricsRecorder(self.metrics, upstream=self.upstream)]

    @property
    def transport_options(self) -> dict[str, Any]:
        """What the way to the server is told, whichever it is."""
        return {
            "http": _with_headers(self.http, self.headers, self.auth),
            "tcp": self.tcp,
            "websocket": _with_headers(self.websocket, self.headers, self.auth),
            "env": self.env,
            "cwd": self.cwd,
            "stderr": self.stderr,
        }


def read_settings(options: ClientKeywords) -> ClientSettings:
    """Make settings of keyword options; raises SetupError for one that does not exist or cannot be."""
    if all(name in ClientSettings.__struct_fields__ for name in options):
        return read_sourced("client", ClientSettings, options, "Client")
    from ferrule.porting_hints import CLIENT_OPTIONS

    hints = dict(CLIENT_OPTIONS)
    for name in ROUTING:
        hints[name] = f"Client([target, …], {name}=…): it is an option for several targets"
    return read_sourced("client", ClientSettings, options, "Client", beside=ANSWERS, hints=hints)


def _task_settings() -> type[TaskSettings]:
    from ferrule.runtime.tasks.settings import TaskSettings

    return TaskSettings


def _require_task_settings(given: object) -> None:
    if not isinstance(given, _task_settings()):
        raise SetupError(f"question_tasks is True, False or TaskSettings(...), not {given!r}")


def _with_headers(
    options: Mapping[str, Any] | None, headers: Mapping[str, str] | None, auth: CredentialsSource | None
) -> dict[str, Any]:
    given = dict(options or {})
    if auth is not None:
        given["auth"] = auth
    if headers is not None and not isinstance(headers, Mapping):
        raise SetupError(f"headers must be names with their values, as in {{'Authorization': …}}, not {headers!r}")
    if headers:
        given["headers"] = {**given.get("headers", {}), **headers}
    return given


def require_level(level: str) -> None:
    """Refuse a log level no server knows."""
    require("the log level", level, LogLevel)
