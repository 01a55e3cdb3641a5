"""The handshake era: who we are was said once, the server asks questions and tells of changes by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container

import msgspec
from msgspec import Raw

from ferrule.client.era.contract import Ask, Params, Subscriber, TaskChoice, TaskFollower
from ferrule.errors import CapabilityNotSupported, MethodNotFound, PeerError
from ferrule.protocol.call import Note, Peer, Revision
from ferrule.protocol.capabilities import server_offers
from ferrule.protocol.introduction import Introduction, OnceIntroduced
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.methods import Method
from ferrule.schema.tasks import Task, WrappedTask
from ferrule.wire.messages import Id

_read_wrapped = msgspec.json.Decoder(WrappedTask).decode

AS_TASK = "tasks.requests.tools.call"


class HandshakeEra:
    """What a client does in a session."""

    liveness = "ping"
    link_probes = True
    caches = False
    tells_roots = True
    mirrors_arguments = False

    def __init__(self) -> None:
        self.introduction: Introduction = OnceIntroduced()

    def introduced(self, tasks: bool | None) -> Introduction:
        """Return the one introduction there is: the handshake said everything."""
        return self.introduction

    def has(self, row: Method, revision: Revision) -> bool:
        """Return whether the agreed revision has a method."""
        return row.handshake and row.name not in revision.absent

    def may_ask(self, row: Method) -> bool:
        """Return False: a server asks with requests of its own."""
        return False

    def knows_kind(self, kind: str | None) -> bool:
        """Return True: results have no kinds."""
        return True

    async def set_level(self, level: str, ask: Ask) -> None:
        """Send `logging/setLevel`."""
        await ask("logging/setLevel", {"level": level})

    # -- subscriptions

    async def subscribe(self, uri: str, subscriber: Subscriber) -> None:
        """Send a request for the resource."""
        await subscriber.request("resources/subscribe", uri)

    async def unsubscribe(self, uri: str, subscriber: Subscriber) -> None:
        """Send a request for the resource."""
        await subscriber.request("resources/unsubscribe", uri)

    async def watch(self, subscriber: Subscriber) -> None:
        """Do nothing: servers tell of lists and tasks unasked."""

    async def resubscribe(self, subscriber: Subscriber) -> None:
        """Send a request for each resource."""
        await subscriber.request_all()

    def is_stale(self, note: Note, awaited: Container[Id]) -> bool:
        """Return False: notifications name no subscription."""
        return False

    # -- tasks

    def takes_tasks(self, declared: Container[str]) -> bool:
        """Return False: only a call that asks for it becomes a task."""
        return False

    def task_members(self, choice: TaskChoice) -> Params:
        """Ask for a task, and for how long it is to be kept."""
        if isinstance(choice, bool | str):
            return {"task": {}}
        return {"task": {"ttl": int(choice * 1000)}}

    def created_task(self, raw: Raw) -> Task | None:
        """Return the task inside the result."""
        try:
            return _read_wrapped(raw).task
        except (msgspec.DecodeError, RecursionError):
            return None

    def require_tasks(self, peer: Peer | None) -> None:
        """Raise CapabilityNotSupported unless the server declared that calls may become tasks."""
        if not _offers_tasks(peer):
            raise CapabilityNotSupported(AS_TASK)

    async def demands_task(
        self, refusal: PeerError, peer: Peer | None, is_listed_so: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Look the tool up: the error says no more than that there is no such method."""
        if refusal.code != MethodNotFound.code or not _offers_tasks(peer):
            return False
        return await is_listed_so()

    def follow(self, follower: TaskFollower, state: Task) -> None:
        """Ask for the result where the task has a question: it comes to whoever waits for the result."""
        if state.status == "input_required":
            follower.fetch_result()

    async def task_outcome(self, follower: TaskFollower, state: Task) -> Raw:
        """Return what `tasks/result` gives."""
        return await follower.fetched()


def _offers_tasks(peer: Peer | None) -> bool:
    """Return whether a server runs calls as tasks when it is asked to."""
    if peer is None or not peer.revision.tasks_by_request or not isinstance(peer.capabilities, ServerCapabilities):
        return False
    return server_offers(peer.capabilities, AS_TASK)
