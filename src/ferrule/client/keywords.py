"""The options of client as keyword arguments, for type checkers and editors.

Written by `make options` from the structs that declare them; nothing imports it at run time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from ferrule.balancing.breaker import BreakerSettings
from ferrule.balancing.bulkhead import BulkheadSettings
from ferrule.balancing.ejection import EjectionSettings
from ferrule.balancing.hedge import Hedge
from ferrule.balancing.policy import Balance
from ferrule.balancing.retry import RetrySettings
from ferrule.client.link.negotiation import Mode
from ferrule.client.link.reconnect import Reconnect
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.schema.model import LogLevel
from ferrule.settings.option import FilePath, NonNegativeInt, PositiveSeconds, Seconds
from ferrule.telemetry.metrics import Metrics
from ferrule.telemetry.observer import Observer
from ferrule.telemetry.tracer import Tracing
from ferrule.transports.contract import CredentialsSource
from ferrule.transports.keywords import HttpClientKeywords, TcpClientKeywords, WebSocketClientKeywords
from ferrule.transports.process.child import StderrSink


class ClientKeywords(TypedDict, total=False):
    """The options of a client."""

    mode: Mode
    """Which era to speak: whichever the server does, or one of the two."""
    protocol_version: str | None
    """The only version to speak; None for the newest both know."""
    name: str
    """What the server is told we are called."""
    version: str
    """What the server is told our version is."""
    request_timeout: Seconds | None
    """How long any request may take but a tool call; None for as long as it takes."""
    tool_timeout: Seconds | None
    """How long a tool call may take; progress starts it anew. None for as long as it takes."""
    init_timeout: Seconds | None
    """How long the server may take to open the conversation; None for what `request_timeout` says."""
    probe_timeout: Seconds
    """How long a server may take to say which era it speaks."""
    ping_timeout: Seconds
    """How long a ping may take."""
    max_request_time: Seconds | None
    """The longest a request may take in spite of progress; None for no limit."""
    probe_on_timeout: bool
    """Whether a server is asked, when a call times out, if it is still there; a silent one counts as lost."""
    reconnect: Reconnect | bool | None
    """Come back after a loss; None: where the client makes its own way to the server, not over an object given."""
    max_rounds: NonNegativeInt
    """How many rounds of questions one request may take (stateless era)."""
    max_list_items: NonNegativeInt
    """How many items a server may list, on all pages of one list together."""
    max_list_bytes: NonNegativeInt
    """How many bytes one list may take once it is read, as estimated."""
    question_rate: Annotated[float, Meta(gt=0)] | None
    """How many questions of one kind a second are answered, and in one burst; None for all."""
    root_check_interval: PositiveSeconds | None
    """How often roots are looked at that a server was told of, to tell it when one appears or goes; None for never."""
    strict: bool
    """Whether what the server did not declare, or its era does not have, is refused without asking it."""
    cache: bool
    """Whether what a server lets us keep is kept."""
    allow_batch: bool
    """Whether JSON-RPC batches are read and sent in every revision."""
    log_level: LogLevel | None
    """From which level on the server is asked for its log messages; None for what it sends unasked."""
    send_client_info: bool
    """Whether each request names the client (stateless era)."""
    sampling_tools: bool
    """Whether the sampling handler can use tools."""
    sampling_context: bool
    """Whether the sampling handler can include context of servers."""
    extensions: Mapping[str, Any] | None
    """Extensions of the protocol to declare, each with its settings."""
    tasks: bool
    """Whether a server may answer any call with a task, which is then followed to its end (stateless era)."""
    question_tasks: TaskSettings | bool
    """Whether a server may let its questions become tasks, or TaskSettings for how those are kept (handshake era)."""
    task_patience: Seconds
    """How long a task that is being followed may be out of reach."""
    validate_results: bool
    """Whether structured results are held against the output schema of their tool."""
    env: Mapping[str, str] | None
    """Environment variables of a child process, beside the harmless ones it gets anyway."""
    cwd: FilePath | None
    """The working directory of a child process."""
    stderr: StderrSink
    """Where the stderr of a child goes: on to ours, `capture` to keep its end for errors, a function, or a file."""
    headers: Mapping[str, str] | None
    """Sent with every HTTP request, and with the one that opens a WebSocket: an authorization, for one."""
    auth: CredentialsSource | None
    """Who we are, to servers over HTTP and WebSocket: OAuth(…), ClientCredentials(…), Bearer(…) and their like."""
    http: HttpClientKeywords | None
    """More options of HTTP: see HttpOptions."""
    tcp: TcpClientKeywords | None
    """Options of TCP, TLS and Unix sockets: see TcpOptions."""
    websocket: WebSocketClientKeywords | None
    """Options of WebSocket: see WebSocketOptions."""
    observer: Observer | Sequence[Observer] | None
    """Who is told of requests, links and the like: an Observer, or a list of them."""
    metrics: Metrics | None
    """Where requests, links and, among several targets, decisions are counted: those of a server, or Metrics()."""
    upstream: str
    """What the server, or all targets together, is called in metrics and spans."""
    replica: str
    """Which one it is of several targets, in spans; a client of several targets says so to each of its clients."""
    tracing: Tracing | Mapping[str, Any] | bool | None
    """Whether requests become OpenTelemetry spans, or Tracing(…); None: if the environment names an exporter."""
    balance: Balance
    """Which of several targets takes a call."""
    weights: Mapping[str, float] | None
    """How many calls a target gets compared with the others, by its name; 1 for those that are not named."""
    affinity: str | None
    """What `balance="hash"` goes by: clients with the same text use the same target. None: one of this client's own."""
    safe_tools: Collection[str]
    """The tools that may run twice: their calls are sent again after a loss, and may be hedged."""
    breaker: BreakerSettings
    """When a target that fails gets no calls, and when it is tried again."""
    ejection: EjectionSettings
    """When a target that does worse than the others gets no calls."""
    bulkhead: BulkheadSettings
    """How many calls run and wait at once, for all targets together."""
    retry: RetrySettings
    """How often calls that may run twice are sent again."""
    hedge: Hedge | None
    """When a call that may run twice is sent to a second target as well; None for never."""
    keep_payload: bool
    """Whether the params of notifications that could not be delivered are kept with them."""
