"""The options of being reached, and of reaching, over TCP, TLS and Unix sockets."""

from __future__ import annotations

from ssl import SSLContext
from typing import Literal

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.settings.option import Bytes, FilePath, MessageSize, Port, PositiveInt, PositiveSeconds, check
from ferrule.transports.verification import is_loopback
from ferrule.wire.codec import MAX_MESSAGE_SIZE
from ferrule.wire.framing import Framer, LineFramer
from ferrule.wire.header_block import AutoFramer, HeaderFramer

Framing = Literal["line", "content-length", "auto"]
"""One message a line, one after each Content-Length header, or whichever the peer begins with."""

OnOversize = Literal["close", "skip"]

FRAMERS: dict[str, type[LineFramer] | type[HeaderFramer] | type[AutoFramer]] = {
    "line": LineFramer,
    "content-length": HeaderFramer,
    "auto": AutoFramer,
}
BUFFER_SIZE = 64 * 1024
AUTHENTICATE = "ferrule/authenticate"
"""What shows a token on a connection without headers: `{"jsonrpc": "2.0", "method": …, "params": {"token": …}}`."""


class SocketSettings(Struct, frozen=True, kw_only=True):
    """What holds for every socket, on either side; times are seconds, sizes bytes."""

    framing: Framing = "line"
    """How messages are told apart: one a line, one after each Content-Length header, or as the peer begins."""
    max_message_size: MessageSize = MAX_MESSAGE_SIZE
    """The longest message that is read."""
    nodelay: bool = True
    """Send small messages at once (TCP_NODELAY)."""
    keepalive: bool = True
    """Let the system ask a silent peer whether it lives, and cut the connection within a minute if it does not."""
    buffer_size: Bytes | None = BUFFER_SIZE
    """What the system may hold for us each way; None leaves it to the system, which suits long, wide lines."""
    write_timeout: PositiveSeconds = 10.0
    """How long a peer may take nothing of what waits for it before the connection is cut."""

    def __post_init__(self) -> None:
        check(self)

    def framer(self) -> Framer:
        """Make what cuts one peer's bytes into frames."""
        return FRAMERS[self.framing](self.max_message_size)


class ServedSettings(SocketSettings, frozen=True, kw_only=True):
    """What holds for every listening socket."""

    backlog: PositiveInt = 1024
    """How many connections the system may hold that are not accepted yet."""
    max_connections: PositiveInt = 1024
    """How many peers may be connected at once."""
    idle_timeout: PositiveSeconds | None = 300.0
    """How long a peer may send nothing while none of its calls run; None: for ever."""
    on_oversize: OnOversize = "close"
    """What follows a message over the limit, once it is answered."""


class TcpSettings(ServedSettings, frozen=True, kw_only=True):
    """How peers reach us over TCP or TLS."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Port = 5000
    """The port to listen on; 0 for any that is free."""
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
    handshake_timeout: PositiveSeconds = 10.0
    """How long a peer may take for the TLS handshake."""
    allow_remote: bool = False
    """Serve whoever can reach an address that is not loopback, though nothing proves who they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client_ca is not None and self.certificate is None:
            raise SetupError("client_ca without a certificate; who asks for certificates must have one")
        if not (is_loopback(self.host) or self.client_ca or self.allow_remote):
            raise SetupError(
                f"on {self.host!r} anyone who can reach this machine could call every tool; "
                "listen on 127.0.0.1, ask for certificates with client_ca=…, "
                "or say allow_remote=True (`--allow-remote`)"
            )


class UnixSettings(ServedSettings, frozen=True, kw_only=True):
    """How peers on this machine reach us over a Unix socket."""

    path: FilePath
    """The file of the socket."""
    mode: PositiveInt = 0o600
    """Who may connect, as permissions of the socket's file."""


class TcpOptions(SocketSettings, frozen=True, kw_only=True):
    """How a server is reached."""

    connect_timeout: PositiveSeconds = 5.0
    """How long opening a connection may take."""
    verify: bool = True
    """Whether the server's certificate must be valid."""
    ca: FilePath | None = None
    """A file of certificates to trust instead of the system's."""
    cert: FilePath | tuple[FilePath, FilePath] | None = None
    """Our own certificate with its key, in one PEM file or two."""
    server_name: str | None = None
    """The name the server's certificate must have, where it is not the host's."""
    token: str | None = None
    """An access token to begin with, for a server that asks for one; never over the network without TLS."""
    context: SSLContext | None = None
    """TLS as one's own program set it up, in the place of verify, ca and cert."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context is not None and (self.ca is not None or self.cert is not None or not self.verify):
            raise SetupError("a context of your own says whom to trust already; leave out verify, ca and cert")
