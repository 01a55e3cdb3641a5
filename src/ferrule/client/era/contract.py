"""What a client does differently in each era of the protocol.

Rule: no other module of the client asks which era was settled on; it asks the era.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from typing import Any, Literal, Protocol

from msgspec import Raw, structs

from ferrule.errors import PeerError
from ferrule.protocol.call import Note, Peer, Revision
from ferrule.protocol.introduction import Introduction
from ferrule.schema.methods import Method
from ferrule.schema.model import ClientCapabilities
from ferrule.schema.tasks import Task
from ferrule.wire.messages import Id

Params = dict[str, Any]
"""The params of a request, by name."""

Ask = Callable[[str, Params], Awaitable[Raw]]
"""Sends a request and waits for its result."""

TaskChoice = Literal["auto"] | bool | float
"""Whether a call becomes a task: as the server has it, yes, no, or yes and to be kept for so many seconds."""


class Subscriber(Protocol):
    """The two ways to tell a server which changes are wanted."""

    async def request(self, method: str, uri: str) -> None:
        """Send a request about one resource."""

    async def request_all(self) -> None:
        """Send a request for each resource wanted; one the server refuses is wanted no more."""

    async def listen(self) -> None:
        """Open one subscription for everything wanted; the one before ends when this one is acknowledged."""


class TaskFollower(Protocol):
    """What can be done to hear of a task that is followed."""

    def listen(self, state: Task) -> None:
        """Subscribe to the task's changes, where that is worth it."""

    def fetch_result(self) -> None:
        """Wait at the server for the result: the task's questions come to whoever does."""

    async def fetched(self) -> Raw:
        """Return the result the server was asked for."""


class ClientEra(Protocol):
    """The decisions of one protocol generation, for one conversation."""

    introduction: Introduction
    """How requests say who sends them."""

    @property
    def liveness(self) -> str:
        """The method that every server answers."""

    @property
    def link_probes(self) -> bool:
        """Whether a link finds out by itself, with pings, that a server is silent."""

    @property
    def caches(self) -> bool:
        """Whether results say how long they may be kept."""

    @property
    def tells_roots(self) -> bool:
        """Whether a server is told that the roots changed."""

    @property
    def mirrors_arguments(self) -> bool:
        """Whether headers repeat arguments of a tool, where the transport has headers."""

    def introduced(self, tasks: bool | None) -> Introduction:
        """Return how a request says who sends it; `tasks` says whether this one may be answered with a task."""

    def has(self, row: Method, revision: Revision) -> bool:
        """Return whether a method exists."""

    def may_ask(self, row: Method) -> bool:
        """Return whether a server may answer a method by asking for input."""

    def knows_kind(self, kind: str | None) -> bool:
        """Return whether a result of this kind is complete."""

    async def set_level(self, level: str, ask: Ask) -> None:
        """Choose the least level of log messages the server sends."""

    # -- subscriptions

    async def subscribe(self, uri: str, subscriber: Subscriber) -> None:
        """Subscribe to changes of a resource."""

    async def unsubscribe(self, uri: str, subscriber: Subscriber) -> None:
        """End the subscription to changes of a resource."""

    async def watch(self, subscriber: Subscriber) -> None:
        """Subscribe to changes of lists or tasks, where the server does not send them unasked."""

    async def resubscribe(self, subscriber: Subscriber) -> None:
        """Subscribe again, at a server that knows nothing of it."""

    def is_stale(self, note: Note, awaited: Container[Id]) -> bool:
        """Return whether a notification belongs to a subscription that is over."""

    # -- tasks

    def takes_tasks(self, declared: Container[str]) -> bool:
        """Return whether any call may be answered with a task, given the extensions this client declares."""

    def task_members(self, choice: TaskChoice) -> Params:
        """Return the members of the params of a call that is to become a task."""

    def created_task(self, raw: Raw) -> Task | None:
        """Return the task a call was answered with; None for any other answer."""

    def require_tasks(self, peer: Peer | None) -> None:
        """Raise CapabilityNotSupported where the server runs no call as a task."""

    async def demands_task(
        self, refusal: PeerError, peer: Peer | None, is_listed_so: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Return whether a call was refused only because it was not a task."""

    def follow(self, follower: TaskFollower, state: Task) -> None:
        """See to it that changes and questions of a task are heard of."""

    async def task_outcome(self, follower: TaskFollower, state: Task) -> Raw:
        """Return the result of a task that has ended, or raise the error it ended with."""


def declared(capabilities: ClientCapabilities, revision: Revision, without: Container[str] = ()) -> ClientCapabilities:
    """Return what is declared under a revision; extensions are agreed on beside the revisions, not by them."""
    extensions = {}
    for name, settings in (capabilities.extensions or {}).items():
        if name not in without:
            extensions[name] = settings
    trimmed: ClientCapabilities = structs.replace(revision.trim(capabilities), extensions=extensions or None)
    return trimmed
