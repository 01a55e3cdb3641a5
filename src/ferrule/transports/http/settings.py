"""The options of serving over HTTP."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from ferrule.errors import SetupError
from ferrule.settings.option import (
    BYTES,
    Bytes,
    FilePath,
    MessageSize,
    Port,
    PositiveInt,
    PositiveSeconds,
    Seconds,
    check,
    pick,
    read,
    require_known,
)
from ferrule.wire.codec import MAX_MESSAGE_SIZE

Response = Literal["auto", "json", "sse"]

Window = Annotated[int, Meta(ge=65_535, le=2**31 - 1, extra={"unit": BYTES})]
"""At least what a peer may send before it has seen our settings (RFC 9113 §6.9.2), at most what a window can be."""

LIVE_PATH = "/livez"
READY_PATH = "/readyz"
HEALTH_PATHS = (LIVE_PATH, READY_PATH)
METRICS_PATH = "/metrics"
ANYONE = "*"

_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+")
_HOST = r"(?:\[[0-9a-f:.]+\]|[a-z0-9._~-]+)"
_ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{_HOST}(?::[0-9]+)?")
_NAMED_HOST = re.compile(rf"{_HOST}(?::[0-9]+)?")
_USUAL_PORT = re.compile(r"http://.*:80|https://.*:443")


class EndpointSettings(Struct, frozen=True, kw_only=True):
    """What the endpoint does with a request; times are seconds, sizes bytes."""

    path: str = "/mcp"
    """Where MCP is served."""
    response: Response = "auto"
    """JSON until something streams, or always one of the two."""
    stateless: bool = False
    """Serve the handshake era without sessions."""
    allowed_origins: Collection[str] = ()
    """Web pages that may call: exact origins such as https://app.example.com, or "*"."""
    allowed_hosts: Collection[str] | None = None
    """Host names a request may be for; None: the loopback names where bound to loopback, any elsewhere."""
    max_body_size: MessageSize = MAX_MESSAGE_SIZE
    """The longest body of a request."""
    max_sessions: PositiveInt = 20_000
    """One more makes room: a session nobody has used, or the idlest of whoever has most."""
    session_idle_timeout: PositiveSeconds = 1800.0
    """How long a session may be unused."""
    session_lifetime: PositiveSeconds = 86_400.0
    """How old a session may become."""
    max_events: PositiveInt = 1000
    """How many events are kept for one stream's lost reader."""
    max_event_bytes: Bytes = 4 * 1024 * 1024
    """How many bytes of events are kept for one stream's lost reader."""
    event_age: PositiveSeconds = 300.0
    """How long they are kept."""
    retry: Seconds = 1.0
    """How long a client should wait before it comes back for a stream."""
    quiet: PositiveSeconds = 2.0
    """A call that runs this long is answered as a stream, so that its client knows we live and can come back."""
    stream_keepalive: PositiveSeconds = 15.0
    """How often a comment shows on a silent stream that it lives."""
    max_streams: PositiveInt = 5000
    """Streams that are read at once; one more that stands open by its nature is answered 503."""
    max_stream_backlog: Bytes = 1024 * 1024
    """A stream whose reader lags this far behind is cut; a session's can be resumed."""
    sse: bool = False
    """Serve the HTTP+SSE pair of the oldest revision too."""
    sse_path: str = "/sse"
    """Where a client of the pair opens its stream."""
    messages_path: str = "/messages"
    """Where it sends its messages."""
    sse_retry: Seconds = 5.0
    """How long a client of the pair should wait before it comes back for its stream."""
    sse_grace: Seconds = 60.0
    """How long a session of the pair waits for a reader that was lost."""
    sse_max_lost: PositiveInt = 10_000
    """How many sessions of the pair may wait for a reader or for its first word; one more ends the longest waiting."""
    poll_routes: bool = False
    """Serve /mcp/sse, /mcp/messages, /mcp/sessions/create and /mcp/events too."""
    poll_timeout: Seconds = 30.0
    """How long a long poll waits for an event."""
    drain_delay: Seconds = 0.0
    """How long /readyz says no before nobody new is accepted: a load balancer needs a moment to look elsewhere."""
    health: bool = True
    """Answer /livez and /readyz: whether this process is alive, and whether to send it requests."""
    metrics: bool = True
    """Answer /metrics in the formats of Prometheus and OpenMetrics, and record what it shows."""

    def __post_init__(self) -> None:
        check(self)
        self._require_paths()
        _require_origins(self.allowed_origins)
        _require_hosts(self.allowed_hosts or ())

    def _require_paths(self) -> None:
        for name in ("path", "sse_path", "messages_path"):
            path = getattr(self, name)
            if not path.startswith("/"):
                raise SetupError(f"{name} must begin with a slash, not {path!r}")
            if not _PATH.fullmatch(path):
                raise SetupError(f"{name} must be a path as it stands in a URL, without query or blanks, not {path!r}")
            if self.health and path in HEALTH_PATHS:
                raise SetupError(f"{name} cannot be {path}, which tells of health: choose another, or health=False")
            if self.metrics and path == METRICS_PATH:
                raise SetupError(f"{name} cannot be {path}, which shows metrics: choose another, or metrics=False")
        if self.sse and len({self.path, self.sse_path, self.messages_path}) < 3:
            raise SetupError("path, sse_path and messages_path must differ from each other")


class Http2Settings(Struct, frozen=True, kw_only=True):
    """How connections that speak HTTP/2 are treated; all else is as for HTTP/1.1."""

    max_streams: PositiveInt = 100
    """How many requests one connection may have at once; one more is refused, and safe to send again."""
    window: Window = 65_535
    """How many bytes of one body may be on their way; more is faster over long distances."""

    def __post_init__(self) -> None:
        check(self)

    @classmethod
    def of(cls, given: bool | Mapping[str, object] | None) -> Http2Settings | None:
        """Read the option `http2`; None where HTTP/2 is off."""
        if given is False:
            return None
        if given is None or given is True:
            return cls()
        return read(cls, given, "http2")


class EngineSettings(Struct, frozen=True, kw_only=True):
    """How the engine treats connections; times are seconds, sizes bytes."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Port = 8000
    """The port to listen on; 0 for any that is free."""
    backlog: PositiveInt = 1024
    """How many connections the system may hold that are not accepted yet."""
    reuse_port: bool = False
    """Let several processes listen on one port; the system spreads connections over them."""
    certificate: FilePath | None = None
    """A PEM file: with it, connections are TLS."""
    private_key: FilePath | None = None
    """A PEM file, where the certificate's file does not hold the key."""
    private_key_password: str | None = None
    """What the key is encrypted with."""
    client_ca: FilePath | None = None
    """A PEM file of authorities: only peers with a certificate that one of them signed are served."""
    allow_remote: bool = False
    """Serve whoever can reach an address that is not loopback, though nothing proves who they are."""
    max_connections: PositiveInt = 16_384
    """How many connections may be open at once."""
    max_head_size: Bytes = 16 * 1024
    """The longest head of a request."""
    max_headers: PositiveInt = 100
    """How many headers a request may have."""
    max_buffered: Bytes = 32 * 1024 * 1024
    """What all unfinished bodies together may take; over it, the largest are shed with 503."""
    head_timeout: PositiveSeconds = 10.0
    """How long the head of a request may take."""
    body_timeout: PositiveSeconds = 20.0
    """How long a body may stand still; one that moves has as long as `min_body_rate` says, up to `max_body_time`."""
    max_body_time: PositiveSeconds = 120.0
    """How long any body may take."""
    min_body_rate: PositiveInt = 512
    """Bytes a second: every so many give a body one second more than `body_timeout`."""
    idle_timeout: PositiveSeconds = 75.0
    """How long a connection may stay open between two requests."""
    write_timeout: PositiveSeconds = 10.0
    """How long a peer may take nothing of what is written before its connection is cut."""
    http2: bool | Mapping[str, object] | None = None
    """Speak HTTP/2 too; as a dict, with the options of `Http2Settings`; None: where `ferrule[http2]` is installed."""
    websocket: bool | Mapping[str, object] = False
    """Serve WebSockets too, at /mcp/ws; as a dict, with the options of `WebSocketSettings`."""
    access_log: bool = False
    """Log each request."""
    server_header: str = ""
    """A `Server` header for every answer; empty for none."""

    def __post_init__(self) -> None:
        check(self)
        Http2Settings.of(self.http2)
        if self.client_ca is not None and self.certificate is None:
            raise SetupError("client_ca without a certificate; who asks for certificates must have one")


def _require_origins(origins: Collection[str]) -> None:
    """Refuse what no browser would ever send: it would let nobody in, and nothing would tell why."""
    for origin in origins:
        if origin not in (ANYONE, "null") and (not _ORIGIN.fullmatch(origin) or _USUAL_PORT.fullmatch(origin)):
            raise SetupError(
                f"allowed_origins: {origin!r} is not an origin as browsers write it: scheme and host in small letters, "
                "the port only where it is not the usual one, and no path, as in https://app.example.com; or '*'"
            )


def _require_hosts(hosts: Collection[str]) -> None:
    """Refuse what no Host header can be."""
    for host in hosts:
        if host != ANYONE and not _NAMED_HOST.fullmatch(host.lower()):
            raise SetupError(
                f"allowed_hosts: {host!r} is not a host: write mcp.example.com for every port of it, "
                "mcp.example.com:8443 for one, [::1] for an IPv6 address; or '*'"
            )


def split_options(options: Mapping[str, object], where: str = "http") -> tuple[EndpointSettings, EngineSettings]:
    """Sort keyword options into the two groups; refuses unknown ones."""
    require_known(where, options, (*EndpointSettings.__struct_fields__, *EngineSettings.__struct_fields__))
    endpoint = read(EndpointSettings, pick(EndpointSettings, options), where)
    engine = read(EngineSettings, pick(EngineSettings, options), where)
    return endpoint, engine
