"""The options of being reached, and of reaching, over TCP, TLS and Unix sockets."""

from __future__ import annotations

from ipaddress import ip_address
from ssl import SSLContext
from typing import Any, Literal, TypeVar, get_args

from msgspec import Struct, structs

from ferrule.errors import SetupError
from ferrule.transports.options import require_message_size, require_types
from ferrule.wire.codec import MAX_MESSAGE_SIZE
from ferrule.wire.framing import AutoFramer, Framer, HeaderFramer, LineFramer

Framing = Literal["line", "content-length", "auto"]
"""One message a line, one after each Content-Length header, or whichever the peer begins with."""

OnOversize = Literal["close", "skip"]

FRAMERS: dict[str, type[LineFramer] | type[HeaderFramer] | type[AutoFramer]] = {
    "line": LineFramer,
    "content-length": HeaderFramer,
    "auto": AutoFramer,
}
BUFFER_SIZE = 64 * 1024
MAY_BE_ZERO = frozenset({"port"})
CHOICES = {"framing": get_args(Framing), "on_oversize": get_args(OnOversize)}
"""Options that are one of a few words."""


class SocketSettings(Struct, frozen=True, kw_only=True):
    """What holds for every socket, on either side; times are seconds, sizes bytes."""

    framing: Framing = "line"
    max_message_size: int = MAX_MESSAGE_SIZE
    nodelay: bool = True
    keepalive: bool = True
    """Let the system ask a silent peer whether it lives, and cut the connection within a minute if it does not."""
    buffer_size: int | None = BUFFER_SIZE
    """What the system may hold for us each way; None leaves it to the system, which suits long, wide lines."""
    write_timeout: float = 10.0
    """How long a peer may take nothing of what waits for it before the connection is cut."""

    def __post_init__(self) -> None:
        require_types(self)
        require_message_size(self.max_message_size)
        for field in structs.fields(self):
            value = getattr(self, field.name)
            words = CHOICES.get(field.name)
            if words is not None and value not in words:
                raise SetupError(f"{field.name} must be one of {', '.join(words)}, not {value!r}")
            numeric = isinstance(value, int | float) and not isinstance(value, bool)
            if numeric and not (value > 0 or (value == 0 and field.name in MAY_BE_ZERO)):
                least = "at least" if field.name in MAY_BE_ZERO else "more than"
                raise SetupError(f"{field.name} must be {least} 0, not {value!r}")

    def framer(self) -> Framer:
        """Make what cuts one peer's bytes into frames."""
        return FRAMERS[self.framing](self.max_message_size)


class ServedSettings(SocketSettings, frozen=True, kw_only=True):
    """What holds for every listening socket."""

    backlog: int = 1024
    max_connections: int = 1024
    idle_timeout: float | None = 300.0
    """How long a peer may send nothing while none of its calls run; None: for ever."""
    on_oversize: OnOversize = "close"
    """What follows a message over the limit, once it is answered."""


class TcpSettings(ServedSettings, frozen=True, kw_only=True):
    """How peers reach us over TCP or TLS."""

    host: str = "127.0.0.1"
    port: int = 5000
    reuse_port: bool = False
    """Let several processes listen on one port; the system spreads connections over them."""
    certificate: str | None = None
    """A PEM file: with it, connections are TLS."""
    private_key: str | None = None
    private_key_password: str | None = None
    client_ca: str | None = None
    """A PEM file of authorities: only peers with a certificate that one of them signed are served."""
    handshake_timeout: float = 10.0
    allow_remote: bool = False
    """Serve whoever can reach an address that is not loopback, though nothing proves who they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client_ca is not None and self.certificate is None:
            raise SetupError("tcp: client_ca without a certificate; who asks for certificates must have one")
        if not (is_loopback(self.host) or self.client_ca or self.allow_remote):
            raise SetupError(
                f"tcp: on {self.host!r} anyone who can reach this machine could call every tool; "
                "listen on 127.0.0.1, ask for certificates with client_ca=…, or say allow_remote=True"
            )


class UnixSettings(ServedSettings, frozen=True, kw_only=True):
    """How peers on this machine reach us over a Unix socket."""

    path: str
    mode: int = 0o600
    """Who may connect, as permissions of the socket's file."""


class TcpOptions(SocketSettings, frozen=True, kw_only=True):
    """How a server is reached."""

    connect_timeout: float = 5.0
    verify: bool = True
    ca: str | None = None
    """A file of certificates to trust instead of the system's."""
    cert: str | tuple[str, str] | None = None
    """Our own certificate with its key, in one PEM file or two."""
    server_name: str | None = None
    """The name the server's certificate must have, where it is not the host's."""
    context: SSLContext | None = None
    """TLS as one's own program set it up, in the place of verify, ca and cert."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context is not None and (self.ca is not None or self.cert is not None or not self.verify):
            raise SetupError("tcp: a context of your own says whom to trust already; leave out verify, ca and cert")


S = TypeVar("S", bound=SocketSettings)


def settings_from(kind: type[S], options: dict[str, Any], name: str) -> S:
    """Make settings from keyword options; refuses unknown and missing ones."""
    known = kind.__struct_fields__
    for option in options:
        if option not in known:
            raise SetupError(f"{name}: unknown option {option!r}; the options are {', '.join(sorted(known))}")
    try:
        return kind(**options)
    except TypeError as reason:
        raise SetupError(f"{name}: {reason}") from None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
