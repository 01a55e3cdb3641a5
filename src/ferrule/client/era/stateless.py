"""The stateless era: every request says who we are, the server answers and asks in results only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from typing import Any

import msgspec
from msgspec import Raw, structs

from ferrule.client.era.contract import Ask, Subscriber, TaskChoice, TaskFollower, declared
from ferrule.errors import CapabilityNotSupported, InvalidAnswer, MissingCapability, PeerError
from ferrule.protocol.call import Note, Peer, Revision
from ferrule.protocol.introduction import AlwaysIntroduced, Introduction
from ferrule.schema.methods import Method
from ferrule.schema.model import ClientCapabilities, Implementation, RootsCapability
from ferrule.schema.notices import Notice
from ferrule.schema.rounds import COMPLETE
from ferrule.schema.tasks import TASK, TASKS_EXTENSION, Task
from ferrule.wire.messages import Id

_read_notice = msgspec.json.Decoder(Notice).decode
_read_created = msgspec.json.Decoder(Task).decode


class StatelessEra:
    """What a client does without a session; holds what it says of itself with every request."""

    liveness = "server/discover"
    link_probes = False
    caches = True
    tells_roots = False
    mirrors_arguments = True

    def __init__(
        self,
        revision: Revision,
        capabilities: ClientCapabilities,
        implementation: Implementation | None,
        log_level: str | None = None,
    ) -> None:
        self._revision = revision
        self._capabilities = capabilities
        self._implementation = implementation
        self._level = log_level
        self._by_tasks: dict[bool, Introduction] = {}
        """The introductions that say of tasks what the usual one does not."""
        self.introduction: Introduction = self._introduce(capabilities)

    def _introduce(self, capabilities: ClientCapabilities) -> Introduction:
        said = declared(capabilities, self._revision)
        if said.roots is not None:
            # Changes of roots are not told in this era.
            said = structs.replace(said, roots=RootsCapability())
        return AlwaysIntroduced(self._revision.version, said, self._implementation, self._level)

    def introduced(self, tasks: bool | None) -> Introduction:
        """Return the usual introduction, or one that says otherwise whether a task may be the answer."""
        extensions = self._capabilities.extensions or {}
        if tasks is None or tasks is (TASKS_EXTENSION in extensions):
            return self.introduction
        if tasks not in self._by_tasks:
            others = dict(extensions)
            others.pop(TASKS_EXTENSION, None)
            if tasks:
                others[TASKS_EXTENSION] = {}
            self._by_tasks[tasks] = self._introduce(structs.replace(self._capabilities, extensions=others or None))
        return self._by_tasks[tasks]

    def has(self, row: Method, revision: Revision) -> bool:
        """Return whether this era has a method."""
        return row.stateless

    def may_ask(self, row: Method) -> bool:
        """Return whether a result may ask for input."""
        return row.may_ask

    def knows_kind(self, kind: str | None) -> bool:
        """Return whether a result says that it is complete, or says nothing."""
        return kind is None or kind == COMPLETE

    async def set_level(self, level: str, ask: Ask) -> None:
        """Say the level with every request from now on."""
        self._level = level
        self._by_tasks.clear()
        self.introduction = self._introduce(self._capabilities)

    # -- subscriptions

    async def subscribe(self, uri: str, subscriber: Subscriber) -> None:
        """Open a subscription for everything wanted."""
        await subscriber.listen()

    async def unsubscribe(self, uri: str, subscriber: Subscriber) -> None:
        """Open a subscription for what is still wanted."""
        await subscriber.listen()

    async def watch(self, subscriber: Subscriber) -> None:
        """Open a subscription for everything wanted."""
        await subscriber.listen()

    async def resubscribe(self, subscriber: Subscriber) -> None:
        """Open a subscription for everything wanted."""
        await subscriber.listen()

    def is_stale(self, note: Note, awaited: Container[Id]) -> bool:
        """Return whether a notification names a subscription that is over."""
        meta = _read_notice(note.params).meta
        if meta is None or meta.subscription_id is None:
            return False
        return meta.subscription_id not in awaited

    # -- tasks

    def takes_tasks(self, declared: Container[str]) -> bool:
        """Return whether this client declares that a task may be the answer."""
        return TASKS_EXTENSION in declared

    def task_members(self, choice: TaskChoice) -> dict[str, Any]:
        """Return nothing: the introduction of a request says that it may become a task."""
        return {}

    def created_task(self, raw: Raw) -> Task | None:
        """Return the task the result is."""
        try:
            state = _read_created(raw)
        except (msgspec.DecodeError, RecursionError):
            return None
        if state.result_type != TASK:
            return None
        return state

    def require_tasks(self, peer: Peer | None) -> None:
        """Raise CapabilityNotSupported unless the server declares the extension."""
        if peer is None or peer.extension(TASKS_EXTENSION) is None:
            raise CapabilityNotSupported(TASKS_EXTENSION)

    async def demands_task(
        self, refusal: PeerError, peer: Peer | None, is_listed_so: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Read the error: it names the extension that is missing."""
        if refusal.code != MissingCapability.code:
            return False
        try:
            return TASKS_EXTENSION in refusal.data["requiredCapabilities"]["extensions"]
        except (KeyError, TypeError):
            return False

    def follow(self, follower: TaskFollower, state: Task) -> None:
        """Subscribe to the task."""
        follower.listen(state)

    async def task_outcome(self, follower: TaskFollower, state: Task) -> Raw:
        """Return the result inside the task."""
        if state.error is not None:
            raise PeerError(state.error.code, state.error.message, state.error.data, method="tools/call")
        if isinstance(state.result, Raw):
            return state.result
        raise InvalidAnswer(f"the task {state.task_id} is {state.status} and has no result")
