"""The options of a server."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from ferrule.errors import SetupError
from ferrule.identity.verifier import Verifier
from ferrule.protocol.handshake import REVISIONS
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import Icon
from ferrule.settings.option import (
    A_YEAR,
    Bytes,
    FilePath,
    NonNegativeInt,
    PositiveInt,
    Seconds,
    check,
)
from ferrule.settings.sources import exports_traces, read_sourced
from ferrule.transports.registry import DEFAULT, TRANSPORTS

if TYPE_CHECKING:
    from ferrule.runtime.tasks.settings import TaskSettings
    from ferrule.stores.stores import Stores
    from ferrule.telemetry.observer import Observer, Observers
    from ferrule.telemetry.receipt_log import ReceiptLog, Receipts
    from ferrule.telemetry.tracer import Tracing

Rate = Annotated[float, Meta(ge=1)]
"""So many a second, and in one burst."""
Workers = Annotated[int, Meta(ge=1, le=32)]
"""How many processes serve at one address: the id of a session has one character for its process."""
WorkerAge = Annotated[float, Meta(ge=1, le=A_YEAR, extra={"unit": "seconds"})]
WorkerMemory = Annotated[int, Meta(ge=1024 * 1024, extra={"unit": "bytes"})]
ResultPolicy = Literal["refuse", "truncate", "spill"]


class RunSettings(Struct, frozen=True, kw_only=True):
    """How a program is run, where its arguments do not say."""

    file: FilePath | Sequence[str] | None = None
    """The file of `ferrule run`, with the name of its server where it has several: `server.py:app`; or a list."""
    transport: str = DEFAULT
    """How clients reach the server."""
    workers: Workers | None = None
    """How many processes serve; None for this one alone."""
    worker_max_age: WorkerAge | None = None
    """After how long a worker is replaced by a new one, or up to a fifth earlier; None for never."""
    worker_max_memory: WorkerMemory | None = None
    """How much memory a worker may hold before it is replaced by a new one; None for any."""
    worker_ready_timeout: WorkerAge = 60.0
    """How long a worker may take until it serves; it is killed then, and the one it was to replace stays."""

    def __post_init__(self) -> None:
        check(self)
        if self.workers is None and (self.worker_max_age or self.worker_max_memory):
            raise SetupError("worker_max_age and worker_max_memory are for several processes: set workers too")
        if self.transport not in TRANSPORTS:
            raise SetupError(f"transport must be one of {', '.join(TRANSPORTS)}, not {self.transport!r}")


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The options of a server, with their defaults; times are seconds, sizes bytes."""

    title: str | None = None
    """The name that hosts show to people."""
    description: str | None = None
    """What the server is for, in a sentence."""
    website_url: str | None = None
    """A page about the server."""
    icons: list[Icon] | None = None
    """Pictures that hosts show beside the name."""
    capabilities: ServerCapabilities | None = None
    """What the server declares; None for what it offers."""
    page_size: PositiveInt = 1000
    """How many items one page of a list has."""
    tool_timeout: Seconds | None = None
    """How long a tool may run that has no timeout of its own; None for as long as it takes."""
    init_timeout: Seconds | None = 60.0
    """How long a peer may take to initialize; None for as long as it takes."""
    keepalive_interval: Seconds | None = 30.0
    """How long a peer may be silent before it is pinged; None for never."""
    pong_timeout: Seconds = 10.0
    """How long it may take to answer that ping."""
    max_missed: PositiveInt = 1
    """How many pings in a row may go unanswered before the link is closed."""
    max_concurrent_per_session: PositiveInt = 100
    """How many requests of one session may run at once."""
    max_waiting_per_session: NonNegativeInt = 1024
    """How many more of one session may wait; the next is refused as busy."""
    max_concurrent: PositiveInt = 4096
    """How many requests without a session may run at once."""
    max_waiting: NonNegativeInt = 4096
    """How many more without a session may wait; the next is refused as busy."""
    list_changed_interval: Seconds = 0.1
    """How long changes of a list are collected before one notification is sent."""
    update_interval: Seconds = 0.0
    """How long updates of one resource are collected before one notification is sent."""
    allow_batch: bool = False
    """Whether JSON-RPC batches are answered in every revision, and not only in the one that has them."""
    error_profile: Literal["spec", "erlmcp"] = "spec"
    """Which numbers errors have: those of the specification, or those of erlmcp."""
    versions: Sequence[str] = tuple(REVISIONS)
    """The protocol versions of the handshake era that are spoken."""
    cache_ttl: Seconds = 0.0
    """For how long clients may keep what they read and listed (stateless era)."""
    cache_scope: Literal["private", "public"] = "private"
    """Who may share what is kept: nobody, or everybody."""
    request_state_keys: Sequence[str | bytes] = ()
    """Secrets that seal the state of a call between two rounds, the newest first; none: one is made at start."""
    request_state_lifetime: Seconds = 600.0
    """How long such a state can be used."""
    progress_rate: Rate = 1000.0
    """How many progress notifications a second a session is sent, and in one burst; more are dropped."""
    log_rate: Rate | None = None
    """How many log messages a second a client is sent, and in one burst; more are dropped. None: as it reads."""
    shutdown_grace: Seconds = 5.0
    """How long running calls may take to end when the server stops."""
    strict_version: bool = False
    """Whether a client that asks for a version we do not speak is refused, and not offered another."""
    inline_refs: bool = False
    """Whether the schemas of tools are written without references."""
    extensions: Mapping[str, Any] | None = None
    """Extensions of the protocol to declare, each with its settings."""
    include_tags: Collection[str] | None = None
    """Offer only what has one of these tags."""
    exclude_tags: Collection[str] | None = None
    """Offer nothing that has one of these tags."""
    max_threads: PositiveInt = 256
    """How many worker threads there may be for plain functions."""
    result_limit: Bytes | None = None
    """How many bytes a tool's result may have; None for what fits into a message."""
    result_policy: ResultPolicy = "refuse"
    """What becomes of a larger one: `refuse`, `truncate` or `spill`, which keeps it for the caller to read."""
    result_ttl: Seconds = 600.0
    """For how long a kept result can be read."""
    max_kept_bytes: NonNegativeInt = 64 * 1024 * 1024
    """How many bytes all kept results together may have."""
    bad_arguments: Literal["auto", "result", "error"] = "auto"
    """How bad arguments of a tool are told: as the revision says, always in a `result`, or always as an `error`."""
    max_subscriptions: PositiveInt = 1000
    """How many resources and tasks one client may listen to."""
    tasks: TaskSettings | None = None
    """How tasks are kept; None for the defaults."""
    stores: Stores | str | None = None
    """Where nodes share sessions, tasks and more: Stores.redis(…), or `redis://…`, `sqlite:PATH`, `memory:`."""
    observer: Observer | Sequence[Observer] | None = None
    """Who is told of requests, links and the like: an Observer, or a list of them."""
    tracing: Tracing | Mapping[str, Any] | bool | None = None
    """Whether requests become OpenTelemetry spans, or Tracing(…); None: if the environment names an exporter."""
    receipts: FilePath | Receipts | Mapping[str, Any] | None = None
    """The folder, or the SQLite file, in which a receipt of every request is kept, or Receipts(…)."""
    metrics: bool = False
    """Whether metrics are recorded from the start; an HTTP listener that shows them has them recorded anyway."""
    rate: Mapping[str, str] | None = None
    """How often handlers may be asked: `connection`, `principal`, `tool` and `server`, each as `"100/min"`."""
    log_format: Literal["text", "json"] | None = None
    """How Ferrule's own log is written to stderr; None leaves that to the program."""
    auth: Verifier | None = None
    """Who decides who a caller is; None lets everybody in."""

    def __post_init__(self) -> None:
        check(self)
        if self.stores is not None:
            self._require_stores()
        if self.tasks is not None:
            from ferrule.runtime.tasks.settings import TaskSettings

            if not isinstance(self.tasks, TaskSettings):
                raise SetupError(f"tasks must be a TaskSettings, not {self.tasks!r}")
        for version in self.versions:
            if version not in REVISIONS:
                raise SetupError(f"versions must be some of {', '.join(REVISIONS)}, not {version}")

    def _require_stores(self) -> None:
        from ferrule.stores.stores import require_stores

        require_stores(self.stores)

    @property
    def receipt_log(self) -> ReceiptLog | None:
        """What keeps receipts; raises SetupError for what cannot."""
        if self.receipts is None:
            return None
        from ferrule.telemetry.receipt_log import receipt_log_of

        return receipt_log_of(self.receipts, "Server")

    def observers(self, *more: Observer) -> Observers | None:
        """Return the observers as one, with more of ours and the tracer; raises SetupError for what is none."""
        tracing = self.tracing
        if tracing is None:
            tracing = exports_traces()
        if self.observer is None and not more and tracing is False:
            return None
        from ferrule.telemetry.observer import observers_of

        if tracing is False:
            return observers_of(self.observer, "Server", more=more)
        from ferrule.telemetry.tracer import tracer_of

        return observers_of(self.observer, "Server", more=more, tracer=tracer_of(tracing, "Server"))


def read_run_settings(given: Mapping[str, object]) -> RunSettings:
    """Make the settings of a run of arguments, of the environment and of the `ferrule.toml` in use."""
    return read_sourced("run", RunSettings, given, "run")


def require_texts(**given: Any) -> None:
    """Raise SetupError for what must be a text and is none."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise SetupError(f"Server: {name} must be a str, not {value!r}")
