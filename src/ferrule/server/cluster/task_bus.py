"""TaskBus: what nodes say to each other about tasks. Each runs at one node; all of them keep it in one store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct

from ferrule.errors import Busy
from ferrule.runtime.tasks.run import TaskRun
from ferrule.server.notifications.subscriptions import Subscriptions
from ferrule.stores.contracts import Notice, StoredTask, Subscription, TaskStore
from ferrule.stores.stores import Stores
from ferrule.supervision.scope import Scope

TOPIC = "tasks"
"""What is said to the node that runs a task."""
CHANGED = "task:"
"""What is said to all nodes whose clients subscribed to a task: the topic, with its id."""


class TaskWord(Struct, frozen=True, omit_defaults=True):
    """What a node says to the one that runs a task: that it is over, or the answers to what it asked."""

    id: str
    responses: dict[str, bytes] = {}


_read = msgspec.msgpack.Decoder(TaskWord).decode


class TaskBus:
    """The tasks of a cluster, as one of its nodes hears of them; it lives as long as its scope."""

    def __init__(
        self,
        stores: Stores,
        live: Mapping[str, TaskRun],
        tell_changed: Callable[[StoredTask], None],
        subscriptions: Subscriptions,
        scope: Scope,
    ) -> None:
        self._stores = stores
        self._store: TaskStore = stores.tasks
        self._live = live
        """Tasks that run here and have not ended."""
        self._tell_changed = tell_changed
        """Notifies the subscribers of a task at this node."""
        self._subscriptions = subscriptions
        self._scope = scope
        self._heard = stores.bus.subscribe(TOPIC, self._told)
        self._watched: dict[str, Subscription] = {}
        subscriptions.on_task_watched = self._watch

    @property
    def name(self) -> str:
        """What other nodes know this one by."""
        return self._stores.bus.node

    def close(self) -> None:
        """Stop listening."""
        self._subscriptions.on_task_watched = None
        self._heard.close()
        for subscription in self._watched.values():
            subscription.close()
        self._watched.clear()

    async def lives(self, node: str) -> bool:
        """Return whether a node lives; raises Busy where nobody knows."""
        return await self._stores.nodes.find(node) is not None

    # -- to the node that runs a task

    async def answer(self, task: StoredTask, responses: dict[str, Raw]) -> None:
        """Hand the node that runs a task the answers to what it asked; raises Busy."""
        written = {name: bytes(raw) for name, raw in responses.items()}
        await self._stores.bus.deliver(task.node, TOPIC, msgspec.msgpack.encode(TaskWord(task.id, written)))

    async def cancelled(self, task: StoredTask) -> None:
        """Let the node that runs a task know that it is over."""
        await self._stores.bus.deliver(task.node, TOPIC, msgspec.msgpack.encode(TaskWord(task.id)))

    def _told(self, notice: Notice) -> None:
        word = _read(notice.body)
        run = self._live.get(word.id)
        if run is None:
            return
        if word.responses:
            responses = {name: Raw(written) for name, written in word.responses.items()}
            self._scope.spawn(run.answer(responses))
        else:
            # It finds out by itself how it stands.
            self._scope.spawn(run.change())

    # -- to whoever subscribed

    def changed(self, task: StoredTask) -> None:
        """Let nodes whose clients subscribed to a task know that it has changed."""
        self._stores.bus.publish(CHANGED + task.id, b"")

    def _watch(self, task_id: str, watched: bool) -> None:
        """Called when the first subscriber of a task has come at this node, or the last has gone."""
        if not watched:
            subscription = self._watched.pop(task_id, None)
            if subscription is not None:
                subscription.close()
        elif task_id not in self._watched:

            def look() -> None:
                self._scope.spawn(self._look(task_id))

            def heard(notice: Notice) -> None:
                if notice.sender != self.name:
                    look()

            self._watched[task_id] = self._stores.bus.subscribe(CHANGED + task_id, heard, look)
            if task_id not in self._live:
                # It may have changed before anybody here listened.
                look()

    async def _look(self, task_id: str) -> None:
        try:
            task = await self._store.get(task_id, 0.0)
        except Busy:
            return
        if task is not None:
            self._tell_changed(task)
