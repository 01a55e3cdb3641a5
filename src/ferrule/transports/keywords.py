"""The options of transports as keyword arguments, for type checkers and editors.

Written by `make options` from the structs that declare them; nothing imports it at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from ssl import SSLContext
from typing import Literal, TypedDict

from ferrule.settings.option import (
    Bytes,
    FilePath,
    Fraction,
    MessageSize,
    NonNegativeInt,
    Port,
    PositiveInt,
    PositiveSeconds,
    Seconds,
)
from ferrule.transports.contract import CredentialsSource
from ferrule.transports.http.settings import Window


class StdioKeywords(TypedDict, total=False):
    """The options of `Stdio`."""

    max_message_size: MessageSize
    """The longest message that is read."""
    grace: Seconds
    """How long running calls may take to end after the client has closed our input."""
    json_only: bool
    """Whether lines that cannot be JSON are passed over."""
    read_fd: NonNegativeInt | None
    """A descriptor to read from, in the place of stdin."""
    write_fd: NonNegativeInt | None
    """A descriptor to write to, in the place of stdout."""


class WebSocketKeywords(TypedDict, total=False):
    """The options of WebSockets beside HTTP."""

    max_message_size: MessageSize
    """The longest message that is read."""
    validate_utf8: bool
    """Whether text that is not UTF-8 closes the WebSocket with 1007."""
    strict_delimiter_check: bool
    """Whether every text must end with a line feed; many peers send one message a text without it."""
    accept_binary: bool
    """Whether binary messages are read as if they were text, instead of closing with 1003."""
    compression: bool
    """Whether permessage-deflate is offered and accepted."""
    frame_buffer_size: Bytes
    """What may wait for the peer: over 80 % of it backpressure begins, below 50 % it ends."""
    backpressure_timeout: PositiveSeconds
    """How long a peer may take nothing of what waits for it before the WebSocket is closed with 1011."""
    on_backpressure: Callable[[str, int], None] | None
    """Called when backpressure begins and ends."""
    ping_interval: PositiveSeconds | None
    """How often the peer is pinged; None for never."""
    pong_timeout: PositiveSeconds
    """How long it may take to answer."""
    fragment_timeout: PositiveSeconds
    """How long the last part of a message may be awaited, from its first."""
    fragment_timeout_code: PositiveInt
    """The code a WebSocket is closed with whose message was not finished in time."""
    close_timeout: PositiveSeconds
    """How long the answer to our close may take before the connection is cut."""
    path: str
    """Where WebSockets are opened."""
    max_connections: PositiveInt
    """How many WebSockets may be open at once."""


class Http2Keywords(TypedDict, total=False):
    """The options of HTTP/2."""

    max_streams: PositiveInt
    """How many requests one connection may have at once; one more is refused, and safe to send again."""
    window: Window
    """How many bytes of one body may be on their way; more is faster over long distances."""


class HttpKeywords(TypedDict, total=False):
    """The options of `Http`."""

    path: str
    """Where MCP is served."""
    response: Literal["auto", "json", "sse"]
    """JSON until something streams, or always one of the two."""
    stateless: bool
    """Serve the handshake era without sessions."""
    allowed_origins: Collection[str]
    """Web pages that may call: exact origins such as https://app.example.com, or "*"."""
    allowed_hosts: Collection[str] | None
    """Host names a request may be for; None: the loopback names where bound to loopback, any elsewhere."""
    max_body_size: MessageSize
    """The longest body of a request."""
    max_sessions: PositiveInt
    """One more makes room: a session nobody has used, or the idlest of whoever has most."""
    session_idle_timeout: PositiveSeconds
    """How long a session may be unused."""
    session_lifetime: PositiveSeconds
    """How old a session may become."""
    max_events: PositiveInt
    """How many events are kept for one stream's lost reader."""
    max_event_bytes: Bytes
    """How many bytes of events are kept for one stream's lost reader."""
    event_age: PositiveSeconds
    """How long they are kept."""
    retry: Seconds
    """How long a client should wait before it comes back for a stream."""
    quiet: PositiveSeconds
    """A call that runs this long is answered as a stream, so that its client knows we live and can come back."""
    stream_keepalive: PositiveSeconds
    """How often a comment shows on a silent stream that it lives."""
    max_streams: PositiveInt
    """Streams that are read at once; one more that stands open by its nature is answered 503."""
    max_stream_backlog: Bytes
    """A stream whose reader lags this far behind is cut; a session's can be resumed."""
    sse: bool
    """Serve the HTTP+SSE pair of the oldest revision too."""
    sse_path: str
    """Where a client of the pair opens its stream."""
    messages_path: str
    """Where it sends its messages."""
    sse_retry: Seconds
    """How long a client of the pair should wait before it comes back for its stream."""
    sse_grace: Seconds
    """How long a session of the pair waits for a reader that was lost."""
    sse_max_lost: PositiveInt
    """How many sessions of the pair may wait for a reader or for its first word; one more ends the longest waiting."""
    poll_routes: bool
    """Serve /mcp/sse, /mcp/messages, /mcp/sessions/create and /mcp/events too."""
    poll_timeout: Seconds
    """How long a long poll waits for an event."""
    drain_delay: Seconds
    """How long /readyz says no before nobody new is accepted: a load balancer needs a moment to look elsewhere."""
    health: bool
    """Answer /livez and /readyz: whether this process is alive, and whether to send it requests."""
    metrics: bool
    """Answer /metrics in the formats of Prometheus and OpenMetrics, and record what it shows."""
    host: str
    """The address to listen on."""
    port: Port
    """The port to listen on; 0 for any that is free."""
    backlog: PositiveInt
    """How many connections the system may hold that are not accepted yet."""
    reuse_port: bool
    """Let several processes listen on one port; the system spreads connections over them."""
    certificate: FilePath | None
    """A PEM file: with it, connections are TLS."""
    private_key: FilePath | None
    """A PEM file, where the certificate's file does not hold the key."""
    private_key_password: str | None
    """What the key is encrypted with."""
    client_ca: FilePath | None
    """A PEM file of authorities: only peers with a certificate that one of them signed are served."""
    allow_remote: bool
    """Serve whoever can reach an address that is not loopback, though nothing proves who they are."""
    max_connections: PositiveInt
    """How many connections may be open at once."""
    max_head_size: Bytes
    """The longest head of a request."""
    max_headers: PositiveInt
    """How many headers a request may have."""
    max_buffered: Bytes
    """What all unfinished bodies together may take; over it, the largest are shed with 503."""
    head_timeout: PositiveSeconds
    """How long the head of a request may take."""
    body_timeout: PositiveSeconds
    """How long a body may stand still; one that moves has as long as `min_body_rate` says, up to `max_body_time`."""
    max_body_time: PositiveSeconds
    """How long any body may take."""
    min_body_rate: PositiveInt
    """Bytes a second: every so many give a body one second more than `body_timeout`."""
    idle_timeout: PositiveSeconds
    """How long a connection may stay open between two requests."""
    write_timeout: PositiveSeconds
    """How long a peer may take nothing of what is written before its connection is cut."""
    http2: bool | Http2Keywords | None
    """Speak HTTP/2 too; as a dict, with the options of `Http2Settings`; None: where `ferrule[http2]` is installed."""
    websocket: bool | WebSocketKeywords
    """Serve WebSockets too, at /mcp/ws; as a dict, with the options of `WebSocketSettings`."""
    access_log: bool
    """Log each request."""
    server_header: str
    """A `Server` header for every answer; empty for none."""


class AsgiKeywords(TypedDict, total=False):
    """The options of an ASGI app, beside its path and WebSockets."""

    response: Literal["auto", "json", "sse"]
    """JSON until something streams, or always one of the two."""
    stateless: bool
    """Serve the handshake era without sessions."""
    allowed_origins: Collection[str]
    """Web pages that may call: exact origins such as https://app.example.com, or "*"."""
    allowed_hosts: Collection[str] | None
    """Host names a request may be for; None: the loopback names where bound to loopback, any elsewhere."""
    max_body_size: MessageSize
    """The longest body of a request."""
    max_sessions: PositiveInt
    """One more makes room: a session nobody has used, or the idlest of whoever has most."""
    session_idle_timeout: PositiveSeconds
    """How long a session may be unused."""
    session_lifetime: PositiveSeconds
    """How old a session may become."""
    max_events: PositiveInt
    """How many events are kept for one stream's lost reader."""
    max_event_bytes: Bytes
    """How many bytes of events are kept for one stream's lost reader."""
    event_age: PositiveSeconds
    """How long they are kept."""
    retry: Seconds
    """How long a client should wait before it comes back for a stream."""
    quiet: PositiveSeconds
    """A call that runs this long is answered as a stream, so that its client knows we live and can come back."""
    stream_keepalive: PositiveSeconds
    """How often a comment shows on a silent stream that it lives."""
    max_streams: PositiveInt
    """Streams that are read at once; one more that stands open by its nature is answered 503."""
    max_stream_backlog: Bytes
    """A stream whose reader lags this far behind is cut; a session's can be resumed."""
    sse: bool
    """Serve the HTTP+SSE pair of the oldest revision too."""
    sse_path: str
    """Where a client of the pair opens its stream."""
    messages_path: str
    """Where it sends its messages."""
    sse_retry: Seconds
    """How long a client of the pair should wait before it comes back for its stream."""
    sse_grace: Seconds
    """How long a session of the pair waits for a reader that was lost."""
    sse_max_lost: PositiveInt
    """How many sessions of the pair may wait for a reader or for its first word; one more ends the longest waiting."""
    poll_routes: bool
    """Serve /mcp/sse, /mcp/messages, /mcp/sessions/create and /mcp/events too."""
    poll_timeout: Seconds
    """How long a long poll waits for an event."""
    drain_delay: Seconds
    """How long /readyz says no before nobody new is accepted: a load balancer needs a moment to look elsewhere."""
    health: bool
    """Answer /livez and /readyz: whether this process is alive, and whether to send it requests."""
    metrics: bool
    """Answer /metrics in the formats of Prometheus and OpenMetrics, and record what it shows."""


class WebSocketListenerKeywords(TypedDict, total=False):
    """The options of `WebSocket`."""

    max_message_size: MessageSize
    """The longest message that is read."""
    validate_utf8: bool
    """Whether text that is not UTF-8 closes the WebSocket with 1007."""
    strict_delimiter_check: bool
    """Whether every text must end with a line feed; many peers send one message a text without it."""
    accept_binary: bool
    """Whether binary messages are read as if they were text, instead of closing with 1003."""
    compression: bool
    """Whether permessage-deflate is offered and accepted."""
    frame_buffer_size: Bytes
    """What may wait for the peer: over 80 % of it backpressure begins, below 50 % it ends."""
    backpressure_timeout: PositiveSeconds
    """How long a peer may take nothing of what waits for it before the WebSocket is closed with 1011."""
    on_backpressure: Callable[[str, int], None] | None
    """Called when backpressure begins and ends."""
    ping_interval: PositiveSeconds | None
    """How often the peer is pinged; None for never."""
    pong_timeout: PositiveSeconds
    """How long it may take to answer."""
    fragment_timeout: PositiveSeconds
    """How long the last part of a message may be awaited, from its first."""
    fragment_timeout_code: PositiveInt
    """The code a WebSocket is closed with whose message was not finished in time."""
    close_timeout: PositiveSeconds
    """How long the answer to our close may take before the connection is cut."""
    path: str
    """Where WebSockets are opened."""
    max_connections: PositiveInt
    """How many WebSockets may be open at once."""
    host: str
    """The address to listen on."""
    port: Port
    """The port to listen on; 0 for any that is free."""
    backlog: PositiveInt
    """How many connections the system may hold that are not accepted yet."""
    reuse_port: bool
    """Let several processes listen on one port; the system spreads connections over them."""
    certificate: FilePath | None
    """A PEM file: with it, connections are TLS."""
    private_key: FilePath | None
    """A PEM file, where the certificate's file does not hold the key."""
    private_key_password: str | None
    """What the key is encrypted with."""
    client_ca: FilePath | None
    """A PEM file of authorities: only peers with a certificate that one of them signed are served."""
    allow_remote: bool
    """Serve whoever can reach an address that is not loopback, though nothing proves who they are."""
    max_head_size: Bytes
    """The longest head of a request."""
    max_headers: PositiveInt
    """How many headers a request may have."""
    max_buffered: Bytes
    """What all unfinished bodies together may take; over it, the largest are shed with 503."""
    head_timeout: PositiveSeconds
    """How long the head of a request may take."""
    body_timeout: PositiveSeconds
    """How long a body may stand still; one that moves has as long as `min_body_rate` says, up to `max_body_time`."""
    max_body_time: PositiveSeconds
    """How long any body may take."""
    min_body_rate: PositiveInt
    """Bytes a second: every so many give a body one second more than `body_timeout`."""
    idle_timeout: PositiveSeconds
    """How long a connection may stay open between two requests."""
    write_timeout: PositiveSeconds
    """How long a peer may take nothing of what is written before its connection is cut."""
    access_log: bool
    """Log each request."""
    server_header: str
    """A `Server` header for every answer; empty for none."""
    allowed_origins: Collection[str]
    """Web pages that may call: exact origins such as https://app.example.com, or "*"."""
    allowed_hosts: Collection[str] | None
    """Host names a request may be for; None: the loopback names where bound to loopback, any elsewhere."""


class ListenerKeywords(TypedDict, total=False):
    """The options most transports have, for one whose name is not written in the program."""

    path: str
    """Where MCP is served."""
    host: str
    """The address to listen on."""
    port: Port
    """The port to listen on; 0 for any that is free."""


class TcpKeywords(TypedDict, total=False):
    """The options of `Tcp`."""

    framing: Literal["line", "content-length", "auto"]
    """How messages are told apart: one a line, one after each Content-Length header, or as the peer begins."""
    max_message_size: MessageSize
    """The longest message that is read."""
    nodelay: bool
    """Send small messages at once (TCP_NODELAY)."""
    keepalive: bool
    """Let the system ask a silent peer whether it lives, and cut the connection within a minute if it does not."""
    buffer_size: Bytes | None
    """What the system may hold for us each way; None leaves it to the system, which suits long, wide lines."""
    write_timeout: PositiveSeconds
    """How long a peer may take nothing of what waits for it before the connection is cut."""
    backlog: PositiveInt
    """How many connections the system may hold that are not accepted yet."""
    max_connections: PositiveInt
    """How many peers may be connected at once."""
    idle_timeout: PositiveSeconds | None
    """How long a peer may send nothing while none of its calls run; None: for ever."""
    on_oversize: Literal["close", "skip"]
    """What follows a message over the limit, once it is answered."""
    host: str
    """The address to listen on."""
    port: Port
    """The port to listen on; 0 for any that is free."""
    reuse_port: bool
    """Let several processes listen on one port; the system spreads connections over them."""
    certificate: FilePath | None
    """A PEM file: with it, connections are TLS."""
    private_key: FilePath | None
    """A PEM file, where the certificate's file does not hold the key."""
    private_key_password: str | None
    """What the key is encrypted with."""
    client_ca: FilePath | None
    """A PEM file of authorities: only peers with a certificate that one of them signed are served."""
    handshake_timeout: PositiveSeconds
    """How long a peer may take for the TLS handshake."""
    allow_remote: bool
    """Serve whoever can reach an address that is not loopback, though nothing proves who they are."""


class UnixKeywords(TypedDict, total=False):
    """The options of `Unix`."""

    framing: Literal["line", "content-length", "auto"]
    """How messages are told apart: one a line, one after each Content-Length header, or as the peer begins."""
    max_message_size: MessageSize
    """The longest message that is read."""
    nodelay: bool
    """Send small messages at once (TCP_NODELAY)."""
    keepalive: bool
    """Let the system ask a silent peer whether it lives, and cut the connection within a minute if it does not."""
    buffer_size: Bytes | None
    """What the system may hold for us each way; None leaves it to the system, which suits long, wide lines."""
    write_timeout: PositiveSeconds
    """How long a peer may take nothing of what waits for it before the connection is cut."""
    backlog: PositiveInt
    """How many connections the system may hold that are not accepted yet."""
    max_connections: PositiveInt
    """How many peers may be connected at once."""
    idle_timeout: PositiveSeconds | None
    """How long a peer may send nothing while none of its calls run; None: for ever."""
    on_oversize: Literal["close", "skip"]
    """What follows a message over the limit, once it is answered."""
    path: FilePath
    """The file of the socket."""
    mode: PositiveInt
    """Who may connect, as permissions of the socket's file."""


class HttpClientKeywords(TypedDict, total=False):
    """The options of reaching a server over HTTP."""

    headers: Mapping[str, str]
    """Sent with every request; an authorization goes here."""
    connect_timeout: PositiveSeconds
    """How long opening a connection may take."""
    pool_size: PositiveInt
    """How many connections are kept for ordinary requests; more requests than that wait."""
    max_streams: PositiveInt
    """How many connections there may be besides, for streams that stay open and for what cannot wait."""
    max_waiting: NonNegativeInt | None
    """How many requests may wait for a connection; the next is refused. None for any number."""
    retry: Literal["safe", "all", "never"]
    """Send again what failed: only where nothing can happen twice, always, or never."""
    retry_statuses: Collection[int]
    """The HTTP statuses after which a request may be sent again at all."""
    max_retries: NonNegativeInt
    """How often a request is sent again."""
    retry_delay: Seconds
    """How long to wait before the first time; each wait is twice the one before."""
    max_retry_delay: Seconds
    """The longest wait."""
    jitter: Fraction
    """How much of each wait is taken away at random: 0 none, 1 all."""
    proxy: str | bool
    """A proxy's URL; True asks HTTP_PROXY, HTTPS_PROXY and NO_PROXY; False means none."""
    verify: bool
    """Whether the server's certificate must be valid."""
    ca: FilePath | None
    """A file of certificates to trust instead of the system's."""
    cert: FilePath | tuple[FilePath, FilePath] | None
    """Our own certificate with its key, in one PEM file or two."""
    max_message_size: MessageSize
    """The longest message that is read."""
    renew_timeout: PositiveSeconds
    """How long a server that forgot our session may take to open a new one."""
    auth: CredentialsSource | None
    """Who we are: OAuth(…), Bearer(…) and their like; it is asked for each request, and told of refusals."""
    chance: Callable[[], float]
    """Where jitter comes from: gives numbers from 0 to 1."""


class TcpClientKeywords(TypedDict, total=False):
    """The options of reaching a server over TCP or a Unix socket."""

    framing: Literal["line", "content-length", "auto"]
    """How messages are told apart: one a line, one after each Content-Length header, or as the peer begins."""
    max_message_size: MessageSize
    """The longest message that is read."""
    nodelay: bool
    """Send small messages at once (TCP_NODELAY)."""
    keepalive: bool
    """Let the system ask a silent peer whether it lives, and cut the connection within a minute if it does not."""
    buffer_size: Bytes | None
    """What the system may hold for us each way; None leaves it to the system, which suits long, wide lines."""
    write_timeout: PositiveSeconds
    """How long a peer may take nothing of what waits for it before the connection is cut."""
    connect_timeout: PositiveSeconds
    """How long opening a connection may take."""
    verify: bool
    """Whether the server's certificate must be valid."""
    ca: FilePath | None
    """A file of certificates to trust instead of the system's."""
    cert: FilePath | tuple[FilePath, FilePath] | None
    """Our own certificate with its key, in one PEM file or two."""
    server_name: str | None
    """The name the server's certificate must have, where it is not the host's."""
    token: str | None
    """An access token to begin with, for a server that asks for one; never over the network without TLS."""
    context: SSLContext | None
    """TLS as one's own program set it up, in the place of verify, ca and cert."""


class WebSocketClientKeywords(TypedDict, total=False):
    """The options of reaching a server over WebSocket."""

    max_message_size: MessageSize
    """The longest message that is read."""
    validate_utf8: bool
    """Whether text that is not UTF-8 closes the WebSocket with 1007."""
    strict_delimiter_check: bool
    """Whether every text must end with a line feed; many peers send one message a text without it."""
    accept_binary: bool
    """Whether binary messages are read as if they were text, instead of closing with 1003."""
    compression: bool
    """Whether permessage-deflate is offered and accepted."""
    frame_buffer_size: Bytes
    """What may wait for the peer: over 80 % of it backpressure begins, below 50 % it ends."""
    backpressure_timeout: PositiveSeconds
    """How long a peer may take nothing of what waits for it before the WebSocket is closed with 1011."""
    on_backpressure: Callable[[str, int], None] | None
    """Called when backpressure begins and ends."""
    ping_interval: PositiveSeconds | None
    """How often the peer is pinged; None for never."""
    pong_timeout: PositiveSeconds
    """How long it may take to answer."""
    fragment_timeout: PositiveSeconds
    """How long the last part of a message may be awaited, from its first."""
    fragment_timeout_code: PositiveInt
    """The code a WebSocket is closed with whose message was not finished in time."""
    close_timeout: PositiveSeconds
    """How long the answer to our close may take before the connection is cut."""
    headers: Mapping[str, str]
    """Sent with the opening request; an authorization goes here."""
    connect_timeout: PositiveSeconds
    """How long opening a connection may take."""
    verify: bool
    """Whether the server's certificate must be valid."""
    ca: FilePath | None
    """A file of certificates to trust instead of the system's."""
    cert: FilePath | tuple[FilePath, FilePath] | None
    """Our own certificate with its key, in one PEM file or two."""
    auth: CredentialsSource | None
    """Who we are: OAuth(…), Bearer(…) and their like; it is asked before a WebSocket is opened."""
