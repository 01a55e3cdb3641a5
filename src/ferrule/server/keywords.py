"""The options of server as keyword arguments, for type checkers and editors.

Written by `make options` from the structs that declare them; nothing imports it at run time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from ferrule.identity.verifier import Verifier
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.schema.apps import Csp, ToolUi
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import Annotations, Icon
from ferrule.schema.prompts import PromptArgument
from ferrule.schema.tasks import TaskSupport
from ferrule.schema.tools import ToolAnnotations
from ferrule.server.hosting.lifespans import Lifespan
from ferrule.server.middleware.stack import AnyLayer
from ferrule.server.offers.entry import Visible
from ferrule.server.openapi.rules import Adjust, OpenApiRule
from ferrule.server.settings import Rate, ResultPolicy
from ferrule.settings.option import Bytes, FilePath, NonNegativeInt, PositiveInt, PositiveSeconds, Seconds
from ferrule.stores.stores import Stores
from ferrule.telemetry.observer import Observer
from ferrule.telemetry.receipt_log import Receipts
from ferrule.telemetry.tracer import Tracing


class ServerKeywords(TypedDict, total=False):
    """The options of a server."""

    title: str | None
    """The name that hosts show to people."""
    description: str | None
    """What the server is for, in a sentence."""
    website_url: str | None
    """A page about the server."""
    icons: list[Icon] | None
    """Pictures that hosts show beside the name."""
    capabilities: ServerCapabilities | None
    """What the server declares; None for what it offers."""
    page_size: PositiveInt
    """How many items one page of a list has."""
    tool_timeout: Seconds | None
    """How long a tool may run that has no timeout of its own; None for as long as it takes."""
    init_timeout: Seconds | None
    """How long a peer may take to initialize; None for as long as it takes."""
    keepalive_interval: Seconds | None
    """How long a peer may be silent before it is pinged; None for never."""
    pong_timeout: Seconds
    """How long it may take to answer that ping."""
    max_missed: PositiveInt
    """How many pings in a row may go unanswered before the link is closed."""
    max_concurrent_per_session: PositiveInt
    """How many requests of one session may run at once."""
    max_waiting_per_session: NonNegativeInt
    """How many more of one session may wait; the next is refused as busy."""
    max_concurrent: PositiveInt
    """How many requests without a session may run at once."""
    max_waiting: NonNegativeInt
    """How many more without a session may wait; the next is refused as busy."""
    list_changed_interval: Seconds
    """How long changes of a list are collected before one notification is sent."""
    update_interval: Seconds
    """How long updates of one resource are collected before one notification is sent."""
    allow_batch: bool
    """Whether JSON-RPC batches are answered in every revision, and not only in the one that has them."""
    error_profile: Literal["spec", "erlmcp"]
    """Which numbers errors have: those of the specification, or those of erlmcp."""
    versions: Sequence[str]
    """The protocol versions of the handshake era that are spoken."""
    cache_ttl: Seconds
    """For how long clients may keep what they read and listed (stateless era)."""
    cache_scope: Literal["private", "public"]
    """Who may share what is kept: nobody, or everybody."""
    request_state_keys: Sequence[str | bytes]
    """Secrets that seal the state of a call between two rounds, the newest first; none: one is made at start."""
    request_state_lifetime: Seconds
    """How long such a state can be used."""
    progress_rate: Rate
    """How many progress notifications a second a session is sent, and in one burst; more are dropped."""
    log_rate: Rate | None
    """How many log messages a second a client is sent, and in one burst; more are dropped. None: as it reads."""
    shutdown_grace: Seconds
    """How long running calls may take to end when the server stops."""
    strict_version: bool
    """Whether a client that asks for a version we do not speak is refused, and not offered another."""
    inline_refs: bool
    """Whether the schemas of tools are written without references."""
    extensions: Mapping[str, Any] | None
    """Extensions of the protocol to declare, each with its settings."""
    include_tags: Collection[str] | None
    """Offer only what has one of these tags."""
    exclude_tags: Collection[str] | None
    """Offer nothing that has one of these tags."""
    max_threads: PositiveInt
    """How many worker threads there may be for plain functions."""
    result_limit: Bytes | None
    """How many bytes a tool's result may have; None for what fits into a message."""
    result_policy: ResultPolicy
    """What becomes of a larger one: `refuse`, `truncate` or `spill`, which keeps it for the caller to read."""
    result_ttl: Seconds
    """For how long a kept result can be read."""
    max_kept_bytes: NonNegativeInt
    """How many bytes all kept results together may have."""
    bad_arguments: Literal["auto", "result", "error"]
    """How bad arguments of a tool are told: as the revision says, always in a `result`, or always as an `error`."""
    max_subscriptions: PositiveInt
    """How many resources and tasks one client may listen to."""
    tasks: TaskSettings | None
    """How tasks are kept; None for the defaults."""
    stores: Stores | str | None
    """Where nodes share sessions, tasks and more: Stores.redis(…), or `redis://…`, `sqlite:PATH`, `memory:`."""
    observer: Observer | Sequence[Observer] | None
    """Who is told of requests, links and the like: an Observer, or a list of them."""
    tracing: Tracing | Mapping[str, Any] | bool | None
    """Whether requests become OpenTelemetry spans, or Tracing(…); None: if the environment names an exporter."""
    receipts: FilePath | Receipts | Mapping[str, Any] | None
    """The folder, or the SQLite file, in which a receipt of every request is kept, or Receipts(…)."""
    metrics: bool
    """Whether metrics are recorded from the start; an HTTP listener that shows them has them recorded anyway."""
    rate: Mapping[str, str] | None
    """How often handlers may be asked: `connection`, `principal`, `tool` and `server`, each as `"100/min"`."""
    log_format: Literal["text", "json"] | None
    """How Ferrule's own log is written to stderr; None leaves that to the program."""
    auth: Verifier | None
    """Who decides who a caller is; None lets everybody in."""


class ToolKeywords(TypedDict, total=False):
    """The options of a tool."""

    name: str | None
    """What it is called by; None for the name of its function."""
    title: str | None
    """The name that hosts show to people."""
    version: str | None
    """Which version of the tool it is; of several of one name the newest is listed."""
    description: str | None
    """What it does, for the model; None for the docstring of its function."""
    annotations: ToolAnnotations | Mapping[str, object] | None
    """Hints for hosts: whether it only reads, destroys, may be repeated, reaches out."""
    icons: list[Icon] | None
    """Pictures that hosts show beside the name."""
    meta: Mapping[str, object] | None
    """The `_meta` it is listed with."""
    timeout: PositiveSeconds | None
    """How long a call may run; None for what the server says."""
    inline: bool
    """Run a plain function on the event loop, and not in a thread: for what never waits."""
    schema: Mapping[str, Any] | None
    """The JSON Schema of its arguments, in the place of the one made from its signature."""
    output_schema: Mapping[str, Any] | None
    """The JSON Schema of its structured results, in the place of the one made from its signature."""
    structured_output: bool | None
    """Whether its results are data with a schema; None for yes where the return annotation has one."""
    deprecated: bool
    """Whether hosts are told to use something else."""
    max_threads: PositiveInt
    """How many calls of a plain function may run in threads at once."""
    inline_refs: bool | None
    """Whether its schemas are written without references; None for what the server says."""
    ui: ToolUi | Mapping[str, Any] | str | None
    """The page that shows its results, by its URI; or that and who may call it."""
    max_concurrent: PositiveInt | None
    """How many calls may run at once, be they in threads or not."""
    max_waiting: NonNegativeInt
    """How many more may wait for their turn; the next is refused as busy."""
    result_limit: Bytes | None
    """How many bytes a result may have; None for what the server says."""
    result_policy: ResultPolicy | None
    """What becomes of a larger one: `refuse`, `truncate` or `spill`."""
    tags: Collection[str] | None
    """Words to switch it on and off by, together with others."""
    visible: Visible | None
    """Whether a caller sees it, asked for each call and list."""
    scopes: Collection[str]
    """Scopes a caller needs for it; one without them is told which (HTTP 403)."""
    hide_without: bool
    """Whether it does not exist for a caller without the scopes."""
    middleware: Sequence[AnyLayer]
    """What surrounds its calls, inside of the server's own middleware."""
    task: TaskSupport | bool
    """Whether a call may or must run as a task; True for that it may."""
    task_start: Literal["call", "handler"]
    """Whether a call becomes a task at once, or when its handler says so."""


class ResourceKeywords(TypedDict, total=False):
    """The options of a resource or a template."""

    name: str | None
    """What it is called; None for the name of its function."""
    title: str | None
    """The name that hosts show to people."""
    description: str | None
    """What it holds; None for the docstring of its function."""
    mime_type: str | None
    """The media type of its contents; None for what the function returns."""
    size: NonNegativeInt | None
    """How many bytes it has, where that is known."""
    annotations: Annotations | Mapping[str, object] | None
    """Hints for hosts: for whom it is, and how important."""
    icons: list[Icon] | None
    """Pictures that hosts show beside the name."""
    meta: Mapping[str, object] | None
    """The `_meta` it is listed with."""
    inline: bool
    """Run a plain function on the event loop, and not in a thread: for what never waits."""
    max_threads: PositiveInt
    """How many reads by a plain function may run in threads at once."""
    ttl: Seconds | None
    """For how many seconds clients may keep what they read; None for what the server says."""
    tags: Collection[str] | None
    """Words to switch it on and off by, together with others."""
    visible: Visible | None
    """Whether a caller sees it, asked for each read and list."""
    scopes: Collection[str]
    """Scopes a caller needs for it; one without them is told which (HTTP 403)."""
    hide_without: bool
    """Whether it does not exist for a caller without the scopes."""
    contents_meta: Mapping[str, object] | None
    """The metadata of what is read, where the result has none of its own."""


class PromptKeywords(TypedDict, total=False):
    """The options of a prompt."""

    name: str | None
    """What it is called by; None for the name of its function."""
    title: str | None
    """The name that hosts show to people."""
    version: str | None
    """Which version of the prompt it is; of several of one name the newest is listed."""
    description: str | None
    """What it is for; None for the docstring of its function."""
    arguments: Sequence[PromptArgument] | None
    """Its arguments as they are listed; None for those of its function."""
    icons: list[Icon] | None
    """Pictures that hosts show beside the name."""
    meta: Mapping[str, object] | None
    """The `_meta` it is listed with."""
    schema: Mapping[str, Any] | None
    """The JSON Schema of its arguments, in the place of the one made from its signature."""
    inline: bool
    """Run a plain function on the event loop, and not in a thread: for what never waits."""
    max_threads: PositiveInt
    """How many calls of a plain function may run in threads at once."""
    tags: Collection[str] | None
    """Words to switch it on and off by, together with others."""
    visible: Visible | None
    """Whether a caller sees it, asked for each call and list."""
    scopes: Collection[str]
    """Scopes a caller needs for it; one without them is told which (HTTP 403)."""
    hide_without: bool
    """Whether it does not exist for a caller without the scopes."""


class PageKeywords(TypedDict, total=False):
    """The options of a page."""

    csp: Csp | Mapping[str, Iterable[str]] | None
    """The origins it needs; what is not named is blocked."""
    permissions: str | Collection[str]
    """What of the browser it would like to use: camera, microphone, geolocation, clipboard_write."""
    domain: str | None
    """The origin it would like to have for its own."""
    prefers_border: bool | None
    """Whether the host should draw a border around it; None leaves that to the host."""
    name: str | None
    """What it is called; None for the name of its function."""
    title: str | None
    """The name that hosts show to people."""
    description: str | None
    """What it holds; None for the docstring of its function."""
    size: NonNegativeInt | None
    """How many bytes it has, where that is known."""
    annotations: Annotations | Mapping[str, object] | None
    """Hints for hosts: for whom it is, and how important."""
    icons: list[Icon] | None
    """Pictures that hosts show beside the name."""
    inline: bool
    """Run a plain function on the event loop, and not in a thread: for what never waits."""
    max_threads: PositiveInt
    """How many reads by a plain function may run in threads at once."""
    ttl: Seconds | None
    """For how many seconds clients may keep what they read; None for what the server says."""
    tags: Collection[str] | None
    """Words to switch it on and off by, together with others."""
    visible: Visible | None
    """Whether a caller sees it, asked for each read and list."""
    scopes: Collection[str]
    """Scopes a caller needs for it; one without them is told which (HTTP 403)."""
    hide_without: bool
    """Whether it does not exist for a caller without the scopes."""


class OpenApiKeywords(ServerKeywords, total=False):
    """The options of a server made of a web API."""

    rules: Sequence[OpenApiRule]
    """What becomes of which operations: a tool, a resource, nothing."""
    names: Mapping[str, str]
    """Names by the operation's id or by its place (`GET /pets`)."""
    adjust: Adjust | None
    """Changes the options of each tool; returns None to leave it out."""
    forward_headers: Collection[str]
    """Headers of the MCP request that go on to the API; none by default."""
    output_schemas: bool
    """Whether tools promise what the API's description promises; an answer that breaks it is a failure then."""
    scheme: str
    """The scheme of the resources' URIs."""
    max_answer: Bytes
    """How many bytes an answer of the API may have, unpacked."""
    name: str | None
    instructions: str | None
    version: str
    lifespan: Lifespan | Sequence[Lifespan] | None
    middleware: Iterable[AnyLayer]
