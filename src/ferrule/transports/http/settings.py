"""The options of serving over HTTP."""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec import Struct, structs

from ferrule.errors import SetupError
from ferrule.transports.options import require_message_size, require_types
from ferrule.wire.codec import MAX_MESSAGE_SIZE

Response = Literal["auto", "json", "sse"]

HEALTH_PATHS = ("/livez", "/readyz")
ANYONE = "*"

_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+")
_HOST = r"(?:\[[0-9a-f:.]+\]|[a-z0-9._~-]+)"
_ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{_HOST}(?::[0-9]+)?")
_NAMED_HOST = re.compile(rf"{_HOST}(?::[0-9]+)?")
_USUAL_PORT = re.compile(r"http://.*:80|https://.*:443")


class EndpointSettings(Struct, frozen=True, kw_only=True):
    """What the endpoint does with a request; times are seconds, sizes bytes."""

    path: str = "/mcp"
    response: Response = "auto"
    """JSON until something streams, or always one of the two."""
    stateless: bool = False
    """Serve the handshake era without sessions."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages that may call: exact origins such as https://app.example.com, or "*"."""
    allowed_hosts: tuple[str, ...] | None = None
    """Host names a request may be for; None: the loopback names where bound to loopback, any elsewhere."""
    max_body_size: int = MAX_MESSAGE_SIZE
    max_sessions: int = 20_000
    """One more makes room: a session nobody has used, or the idlest of whoever has most."""
    session_idle_timeout: float = 1800.0
    session_lifetime: float = 86_400.0
    max_events: int = 1000
    """How many events are kept for one stream's lost reader."""
    max_event_bytes: int = 4 * 1024 * 1024
    event_age: float = 300.0
    retry: float = 1.0
    """How long a client should wait before it comes back for a stream."""
    quiet: float = 2.0
    """A call that runs this long is answered as a stream, so that its client knows we live and can come back."""
    stream_keepalive: float = 15.0
    max_streams: int = 5000
    """Streams that are read at once; one more that stands open by its nature is answered 503."""
    max_stream_backlog: int = 1024 * 1024
    """A stream whose reader lags this far behind is cut; a session's can be resumed."""
    sse: bool = False
    """Serve the HTTP+SSE pair of the oldest revision too."""
    sse_path: str = "/sse"
    messages_path: str = "/messages"
    sse_retry: float = 5.0
    """How long a client of the pair should wait before it comes back for its stream."""
    sse_grace: float = 60.0
    """How long a session of the pair waits for a reader that was lost."""
    sse_max_lost: int = 10_000
    """How many sessions of the pair may wait for a reader or for its first word; one more ends the longest waiting."""
    poll_routes: bool = False
    """Serve /mcp/sse, /mcp/messages, /mcp/sessions/create and /mcp/events too."""
    poll_timeout: float = 30.0
    """How long a long poll waits for an event."""
    drain_delay: float = 0.0
    """How long /readyz says no before nobody new is accepted: a load balancer needs a moment to look elsewhere."""
    health: bool = True
    """Answer /livez and /readyz."""

    def __post_init__(self) -> None:
        require_types(self)
        require_message_size(self.max_body_size, "max_body_size")
        self._require_paths()
        _require_origins(self.allowed_origins)
        _require_hosts(self.allowed_hosts or ())
        if self.response not in ("auto", "json", "sse"):
            raise SetupError(f"response must be auto, json or sse, not {self.response!r}")
        _require_numbers(self, MAY_BE_ZERO)

    def _require_paths(self) -> None:
        for name in ("path", "sse_path", "messages_path"):
            path = getattr(self, name)
            if not path.startswith("/"):
                raise SetupError(f"{name} must begin with a slash, not {path!r}")
            if not _PATH.fullmatch(path):
                raise SetupError(f"{name} must be a path as it stands in a URL, without query or blanks, not {path!r}")
            if self.health and path in HEALTH_PATHS:
                raise SetupError(f"{name} cannot be {path}, which tells of health: choose another, or health=False")
        if self.sse and len({self.path, self.sse_path, self.messages_path}) < 3:
            raise SetupError("path, sse_path and messages_path must differ from each other")


class EngineSettings(Struct, frozen=True, kw_only=True):
    """How the engine treats connections; times are seconds, sizes bytes."""

    host: str = "127.0.0.1"
    port: int = 8000
    backlog: int = 1024
    reuse_port: bool = False
    """Let several processes listen on one port; the system spreads connections over them."""
    certificate: str | None = None
    """A PEM file: with it, connections are TLS."""
    private_key: str | None = None
    private_key_password: str | None = None
    max_connections: int = 16_384
    max_head_size: int = 16 * 1024
    max_headers: int = 100
    max_buffered: int = 32 * 1024 * 1024
    """What all unfinished bodies together may take; over it, the largest are shed with 503."""
    head_timeout: float = 10.0
    body_timeout: float = 20.0
    """How long a body may stand still; one that moves has as long as `min_body_rate` says, up to `max_body_time`."""
    max_body_time: float = 120.0
    min_body_rate: int = 512
    """Bytes a second: every so many give a body one second more than `body_timeout`."""
    idle_timeout: float = 75.0
    write_timeout: float = 10.0
    """How long a peer may take nothing of what is written before its connection is cut."""
    websocket: bool | dict[str, Any] = False
    """Serve WebSockets too, at /mcp/ws; as a dict, with the options of `WebSocketSettings`."""
    access_log: bool = False
    server_header: str = ""

    def __post_init__(self) -> None:
        require_types(self)
        _require_numbers(self, MAY_BE_ZERO)


def _require_origins(origins: tuple[str, ...]) -> None:
    """Refuse what no browser would ever send: it would let nobody in, and nothing would tell why."""
    for origin in origins:
        if origin not in (ANYONE, "null") and (not _ORIGIN.fullmatch(origin) or _USUAL_PORT.fullmatch(origin)):
            raise SetupError(
                f"allowed_origins: {origin!r} is not an origin as browsers write it: scheme and host in small letters, "
                "the port only where it is not the usual one, and no path, as in https://app.example.com; or '*'"
            )


def _require_hosts(hosts: tuple[str, ...]) -> None:
    """Refuse what no Host header can be."""
    for host in hosts:
        if host != ANYONE and not _NAMED_HOST.fullmatch(host.lower()):
            raise SetupError(
                f"allowed_hosts: {host!r} is not a host: write mcp.example.com for every port of it, "
                "mcp.example.com:8443 for one, [::1] for an IPv6 address; or '*'"
            )


MAY_BE_ZERO = frozenset({"drain_delay", "port", "retry", "sse_grace", "sse_retry", "poll_timeout"})


def _require_numbers(settings: Struct, may_be_zero: frozenset[str]) -> None:
    """Refuse a number nothing could work with."""
    for field in structs.fields(settings):
        value = getattr(settings, field.name)
        if field.type in (int, float) and not (value > 0 or (value == 0 and field.name in may_be_zero)):
            least = "at least 0" if field.name in may_be_zero else "more than 0"
            raise SetupError(f"{field.name} must be {least}, not {value!r}")


def split_options(options: dict[str, Any]) -> tuple[EndpointSettings, EngineSettings]:
    """Sort keyword options into the two groups; refuses unknown ones."""
    doors = {}
    for key, value in options.items():
        if key in EndpointSettings.__struct_fields__:
            doors[key] = value
    engine = {}
    for key, value in options.items():
        if key in EngineSettings.__struct_fields__:
            engine[key] = value
    unknown = []
    for key in options:
        if key not in doors and key not in engine:
            unknown.append(key)
    if unknown:
        known = ", ".join(sorted((*EndpointSettings.__struct_fields__, *EngineSettings.__struct_fields__)))
        raise SetupError(f"http: unknown option {unknown[0]!r}; the options are {known}")
    return EndpointSettings(**doors), EngineSettings(**engine)
