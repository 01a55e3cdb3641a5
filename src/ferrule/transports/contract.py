"""What a transport is: a way to reach one peer, or a way to be reached."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct

from ferrule.identity.verifier import Verifier
from ferrule.protocol.era import Eras
from ferrule.wire.channel import Channel, Origin, Receiver

if TYPE_CHECKING:
    from ferrule.telemetry.observer import Observers
    from ferrule.transports.sockets.bind import ListeningPlace
    from ferrule.transports.sockets.tls import TlsSettings


class Transport(Protocol):
    """Reaches one peer."""

    async def connect(self, receiver: Receiver) -> Channel:
        """Open the way to the peer; raises CarrierError with one clear sentence."""

    async def close(self, grace: float = 2.0) -> None:
        """End the way to the peer and release everything it held; harmless when called again."""


@runtime_checkable
class AddressedTransport(Transport, Protocol):
    """A transport to a server that others find at the same place: what is learnt of it holds for the next client."""

    @property
    def address(self) -> object:
        """Where the server is; its `str` names it, without credentials."""


@runtime_checkable
class NamedTransport(Transport, Protocol):
    """A transport with a word of its own, such as `tcp`; observers know the others by their class."""

    carrier: str


@runtime_checkable
class ObservedTransport(Transport, Protocol):
    """A transport that has something of its own to report, as the start and the end of a process."""

    observer: Observers | None


class Authorization(Struct, frozen=True):
    """What a request says of who sends it."""

    lines: bytes = b""
    """Lines of headers, as they go over the wire."""
    token: int = 0
    """Which token it is: each new one has the next number, so that credentials know which was refused."""


class Refused(Struct, frozen=True):
    """A request that a server refused to run."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    operation: str
    """What was asked: `tools/call 'add'`."""
    token: int
    """The number of the token it came with."""


class Credentials(Protocol):
    """What we can show one server."""

    def authorize(self, method: str, url: str) -> Authorization | None:
        """Return what a request says now; None where that has to be awaited first."""

    async def prepare(self) -> None:
        """Make `authorize` able to answer: read what is stored, renew a token; raises FerruleError."""

    async def refused(self, refusal: Refused) -> bool:
        """Called when a server answered 401 or 403. Return whether the request is worth sending again."""


@runtime_checkable
class CredentialsSource(Protocol):
    """What `Client(url, auth=…)` takes: makes the credentials for a server, the same ones for the same server."""

    def credentials(self, url: str, tls: TlsSettings) -> Credentials:
        """Return what we can show the server at an http or https URL."""


class Listener(Protocol):
    """Lets peers reach us."""

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        """Accept peers until closed or, where there is only one peer, until it is gone."""

    async def close(self, grace: float) -> None:
        """Stop accepting, let running calls end within `grace` seconds, then release everything."""


@runtime_checkable
class AnnouncedListener(Listener, Protocol):
    """A listener that can say where clients find it."""

    @property
    def url(self) -> str:
        """Where clients find us, once we listen."""


@runtime_checkable
class NamedListener(Listener, Protocol):
    """A listener with a word of its own, such as `tcp`; the others are named by their class."""

    carrier: str


@runtime_checkable
class OnceListener(Listener, Protocol):
    """A listener with one peer: when that is gone it is not served again."""

    serves_once: bool


@runtime_checkable
class BoundListener(Listener, Protocol):
    """A listener on a port: after a failure it is bound again to the port it had, also where that was any free one."""

    bound_port: int | None
    """The port to bind in place of that in its options; None for that one."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port we listen on."""


@runtime_checkable
class InheritingListener(Listener, Protocol):
    """A listener that can serve on sockets which another process has opened, and keeps when this one dies."""

    inherited: Sequence[socket.socket]
    """The listening sockets to use instead of opening some; none where it opens its own."""

    @property
    def place(self) -> ListeningPlace:
        """Where it would listen."""


@runtime_checkable
class MeteredListener(Listener, Protocol):
    """A listener that may show the metrics of the server: these are recorded before any listener serves."""

    shows_metrics: bool


class Reachable(Protocol):
    """What a peer in the same process reaches: a `Server` is one."""

    async def enter(self) -> None:
        """Start what is needed while anyone uses it; every enter is matched by a leave."""

    async def leave(self) -> None:
        """End what `enter` started, when the last user leaves."""

    def link(self, origin: Origin) -> Receiver:
        """Return a receiver for one new peer."""


class Acceptor(Reachable, Protocol):
    """What a listener serves: the host of a server is one."""

    @property
    def eras(self) -> Eras:
        """The protocol generations this acceptor speaks."""

    @property
    def verifier(self) -> Verifier:
        """Who decides who a caller is; a listener that others can reach asks it before it makes a link."""

    def busy(self, link: Receiver) -> bool:
        """Return whether calls run on a link."""

    @property
    def observer(self) -> Observers | None:
        """Who is told of connections and exchanges; None for nobody."""

    async def drain(self, grace: float) -> None:
        """Refuse new calls and wait until running ones are answered, at most `grace` seconds."""
