"""What a transport is: a way to reach one peer, or a way to be reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ferrule.identity.verifier import Verifier
from ferrule.protocol.era import Eras
from ferrule.wire.channel import Channel, Origin, Receiver

if TYPE_CHECKING:
    from ferrule.telemetry.observer import Observers
    from ferrule.transports.http.custom import CustomRoute


class Transport(Protocol):
    """Reaches one peer.

    One with `carrier`, a word such as `tcp`, is called that where observers are told of it, else by its class.
    """

    async def connect(self, receiver: Receiver) -> Channel:
        """Open the way to the peer; raises CarrierError with one clear sentence."""

    async def close(self, grace: float = 2.0) -> None:
        """End the way to the peer and release everything it held; harmless when called again."""


class Listener(Protocol):
    """Lets peers reach us."""

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        """Accept peers until closed or, where there is only one peer, until it is gone."""

    async def close(self, grace: float) -> None:
        """Stop accepting, let running calls end within `grace` seconds, then release everything."""


class Acceptor(Protocol):
    """What a listener serves: a server is one, a gateway is one."""

    async def enter(self) -> None:
        """Start what the acceptor needs while anyone uses it; every enter is matched by a leave."""

    async def leave(self) -> None:
        """End what `enter` started, when the last user leaves."""

    @property
    def eras(self) -> Eras:
        """The protocol generations this acceptor speaks."""

    @property
    def verifier(self) -> Verifier:
        """Who decides who a caller is; a listener that others can reach asks it before it makes a link."""

    def link(self, origin: Origin) -> Receiver:
        """Give a receiver for one new peer."""

    def crowd(self, origin: Origin, version: str = "") -> Receiver:
        """Give one receiver for everyone who asks without a session: each exchange is a channel of its own.

        Requests bring their own version, or are of the one given, as if its handshake had been made.
        """

    def busy(self, link: Receiver) -> bool:
        """Tell whether calls run on a link."""

    def mirrored(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Tell which arguments of a tool its HTTP headers mirror: by the header's name, the path to the argument."""

    @property
    def custom_routes(self) -> Sequence[CustomRoute]:
        """What is offered over HTTP beside MCP."""

    @property
    def observer(self) -> Observers | None:
        """Who is told of connections and exchanges; None for nobody."""

    async def drain(self, grace: float) -> None:
        """Refuse new calls and wait until running ones are answered, at most `grace` seconds."""
