"""The contract of whoever knows the sessions of other nodes: any node answers any session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ferrule.stores.contracts import EventLog
from ferrule.transports.http.endpoint.sessions import EndpointSession, Sessions
from ferrule.transports.http.message import HttpRequest, Responder


class ClusterEndpoint(Protocol):
    """An endpoint of this node, as the cluster uses it."""

    sessions: Sessions

    def answer(self, request: HttpRequest, responder: Responder) -> None:
        """Answer a request whose sender is verified."""


class Cluster(Protocol):
    """The nodes that serve as one."""

    events: EventLog
    """What was said on streams, also by other nodes."""

    def join(self, endpoint: ClusterEndpoint) -> None:
        """Answer requests of other nodes at an endpoint from now on."""

    async def leave(self, endpoint: ClusterEndpoint) -> Sequence[EndpointSession]:
        """Leave the sessions of an endpoint to the other nodes. Return those that could not be left."""

    def keep(self, endpoint: ClusterEndpoint, session: EndpointSession) -> Awaitable[None]:
        """Let other nodes know of a new session; done when they do, or when that has to wait."""

    def ended(self, session: EndpointSession) -> None:
        """Called when a session is over."""

    def look_for(
        self,
        endpoint: ClusterEndpoint,
        identity: str,
        request: HttpRequest,
        responder: Responder,
        not_found: Callable[[], None],
    ) -> None:
        """Answer a request of a session that is not here, wherever that is."""
