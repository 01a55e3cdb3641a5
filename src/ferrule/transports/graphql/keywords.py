"""The options of transports as keyword arguments, for type checkers and editors.

Written by `make options` from the structs that declare them; nothing imports it at run time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypedDict

from ferrule.settings.option import Bytes, FilePath, MessageSize, Port, PositiveInt, PositiveSeconds


class GraphqlKeywords(TypedDict, total=False):
    """The options of `Graphql`."""

    path: str
    """Where operations are sent, and WebSockets for subscriptions are opened."""
    port: Port
    """The port to listen on; 0 for any that is free."""
    introspection: bool
    """Whether `__schema` and `__type` are answered; the schema is the same for every server, and in the guide."""
    max_body_size: MessageSize
    """The longest body of a request, the longest message of a WebSocket, and the longest answer."""
    max_document_length: PositiveInt
    """The most characters of a document."""
    max_tokens: PositiveInt
    """The most tokens of a document."""
    max_depth: PositiveInt
    """How deep the fields of a document may be nested."""
    max_aliases: PositiveInt
    """How many fields of a document may have an alias: each of them may be one more call."""
    max_cost: PositiveInt
    """What a document may cost: a field counts once, inside a list once for each entry the list is taken to have."""
    max_operations: PositiveInt
    """How many operations may run at once over HTTP; one more is answered 503."""
    max_websockets: PositiveInt
    """How many WebSockets may be open at once."""
    max_subscriptions: PositiveInt
    """How many operations may run at once on one WebSocket."""
    init_timeout: PositiveSeconds
    """How long a WebSocket may take to send `connection_init`."""
    host: str
    """The address to listen on."""
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
    http2: bool | Mapping[str, object] | None
    """Speak HTTP/2 too; as a dict, with the options of `Http2Settings`; None: where `ferrule[http2]` is installed."""
    access_log: bool
    """Log each request."""
    server_header: str
    """A `Server` header for every answer; empty for none."""
    allowed_origins: Collection[str]
    """Web pages that may call: exact origins such as https://app.example.com, or "*"."""
    allowed_hosts: Collection[str] | None
    """Host names a request may be for; None: the loopback names where bound to loopback, any elsewhere."""
