"""What an acceptor must offer beside the contract to be served over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from ferrule.errors import SetupError
from ferrule.identity.verifier import Verifier
from ferrule.telemetry.health import HealthMonitor
from ferrule.telemetry.metrics import Metrics
from ferrule.transports.contract import Acceptor
from ferrule.transports.http.endpoint.cluster import Cluster
from ferrule.transports.http.endpoint.neighbours import Neighbours
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.wire.channel import Origin, Receiver


class Monitor(Protocol):
    """What a server lets be seen of itself."""

    @property
    def health(self) -> HealthMonitor:
        """Whether it is alive, ready and healthy."""

    @property
    def metrics(self) -> Metrics:
        """Its metrics, recorded from the first time they are asked for."""


@runtime_checkable
class HttpAcceptor(Acceptor, Protocol):
    """An acceptor that also answers requests without a session, and knows what HTTP needs of its tools."""

    def sessionless_link(self, origin: Origin, version: str = "") -> Receiver:
        """Return one receiver for everyone who asks without a session: each exchange is a channel of its own.

        Requests bring their own version, or are of the one given, as if its handshake had been made.
        """

    def mirrored(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Return which arguments of a tool its HTTP headers mirror: by the header's name, the path to the argument."""

    @property
    def custom_routes(self) -> Sequence[CustomRoute]:
        """What is offered over HTTP beside MCP."""

    def replay_frames(self, link: Receiver) -> Sequence[bytes]:
        """Return the messages since a session's handshake that still hold, for another process to replay."""

    @property
    def neighbours(self) -> Neighbours | None:
        """The other workers of the server; None where there are none."""

    @property
    def cluster(self) -> Cluster | None:
        """The nodes the server is one of; None where it has no stores."""

    def monitor(self) -> Monitor:
        """Return what tells of the server's health and its metrics; made when it is first asked for."""


@runtime_checkable
class RoutedVerifier(Protocol):
    """A verifier that offers HTTP routes beside MCP, as the metadata that tells clients how to get a token."""

    def routes(self, path: str) -> Sequence[CustomRoute]:
        """Return the routes to serve beside an endpoint that is mounted at a path; they verify nobody."""


def verifier_routes(verifier: Verifier, path: str, also: Sequence[str] = ()) -> Sequence[CustomRoute]:
    """Return the routes of a server's verifier, for the endpoint at a path and others beside it."""
    found: dict[str, CustomRoute] = {}
    if isinstance(verifier, RoutedVerifier):
        # The main one comes last: what is not about one endpoint in particular is about that.
        for place in (*also, path):
            found.update({route.path: route for route in verifier.routes(place)})
    return list(found.values())


def require_http(acceptor: Acceptor) -> HttpAcceptor:
    """Return an acceptor as one that can be served over HTTP; raises SetupError for one that cannot."""
    if isinstance(acceptor, HttpAcceptor):
        return acceptor
    kind = type(acceptor).__name__
    raise SetupError(
        f"{kind} cannot be served over HTTP: it is no HttpAcceptor (sessionless_link, mirrored, "
        "custom_routes, neighbours, cluster, monitor); of a Server, give its host, or write `await app.serve(listener)`"
    )
