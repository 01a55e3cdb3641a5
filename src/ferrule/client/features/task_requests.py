"""What a client asks about the tasks its calls became, and what it hears of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from ferrule.client.era.contract import ClientEra, Params
from ferrule.client.features.answers import QuestionHandlers
from ferrule.client.features.requests import Requests
from ferrule.client.features.subscription import Subscriptions
from ferrule.client.features.tool_facts import ToolFacts
from ferrule.client.link.conversation import RequestOptions
from ferrule.client.link.keeper import Keeper
from ferrule.client.notifications import Notifications
from ferrule.errors import CallFailed, InvalidAnswer, PeerError
from ferrule.protocol.call import Note
from ferrule.schema.methods import METHODS
from ferrule.schema.notices import TASK_CHANGED, TASK_STATUS_CHANGED
from ferrule.schema.tasks import Task as TaskState

logger = logging.getLogger("ferrule.client")

T = TypeVar("T")


class TaskNotice(Struct, rename="camel"):
    """Which task a notification is about."""

    task_id: str = ""


_read_notice = msgspec.json.Decoder(TaskNotice).decode
_read_state = METHODS["tasks/get"].result_decoder()


class TaskRequests:
    """Asks about tasks and hears of them, for calls that wait for one."""

    def __init__(
        self,
        keeper: Keeper,
        requests: Requests,
        notifications: Notifications,
        tools: ToolFacts,
        answering: QuestionHandlers,
        patience: float,
    ) -> None:
        self._keeper = keeper
        self._requests = requests
        self._notifications = notifications
        self.judged = tools.judged
        self.answer_on = answering.answer_on
        self.patience = patience
        """How long a task that is being followed may be out of reach."""
        self.followed: dict[str, list[asyncio.Event]] = {}
        """Who waits for news of which task."""
        notifications.hear_first(self._heard)

    async def ask(self, method: str, params: Params, how: RequestOptions | None = None) -> Raw:
        """Send a request about a task."""
        return await self._keeper.ask(method, params, structs.replace(how or self._requests.plain(), tasks=True))

    async def get(self, task_id: str) -> TaskState:
        """Look how a task stands."""
        raw = await self.ask("tasks/get", {"taskId": task_id})
        try:
            state: TaskState = _read_state(raw)
        except (msgspec.DecodeError, RecursionError) as reason:
            raise InvalidAnswer(f"the server's answer to tasks/get is malformed: {reason}") from None
        return state

    async def cancel(self, task_id: str) -> None:
        """Ask the server to end a task."""
        await self.ask("tasks/cancel", {"taskId": task_id})

    def cancel_unheard(self, task_id: str) -> None:
        """Cancel a task nobody else knows of, without waiting for the answer."""
        with suppress(CallFailed):
            how = RequestOptions(tasks=True)
            awaited = self._keeper.current().start("tasks/cancel", {"taskId": task_id}, how)
            awaited.waiter.add_done_callback(seen)

    def pages(self, timeout: float | None) -> AsyncIterator[TaskState]:
        """Yield the tasks of this session or principal, page by page (handshake era)."""
        return self._requests.pages("tasks/list", "tasks", timeout)

    # -- following

    @property
    def era(self) -> ClientEra:
        """The rules of the era that was settled on."""
        return self._keeper.current().era

    @property
    def was_closed(self) -> bool:
        """Whether this client was closed by its own will."""
        conversation = self._keeper.conversation
        return conversation is not None and conversation.closing

    @property
    def comes_back(self) -> bool:
        """Whether a new conversation is being opened in place of a lost one."""
        return self._keeper.reconnection.active

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start something that lives as long as the conversation."""
        try:
            return self._keeper.current().scope.spawn(work)
        except CallFailed:
            work.close()
            raise

    @property
    def _subscriptions(self) -> Subscriptions:
        return self._notifications.subscriptions

    def watches(self, task_id: str) -> bool:
        """Whether the server tells of a task now."""
        return task_id in self._subscriptions.listened

    async def watch(self, task_id: str) -> bool:
        """Hear of a task's changes. Return whether the server tells of them."""
        try:
            await self._subscriptions.want_task(task_id)
        except (PeerError, CallFailed) as error:
            logger.debug("the server does not tell of the task %s: %s", task_id, error)
            return False
        return True

    async def unwatch(self, task_id: str) -> None:
        """Hear of a task's changes no more."""
        try:
            await self._subscriptions.unwant_task(task_id)
        except (PeerError, CallFailed) as error:
            logger.debug("the subscription to the task %s was not ended in order: %s", task_id, error)

    def _heard(self, note: Note) -> None:
        if not self.followed or note.method not in (TASK_CHANGED, TASK_STATUS_CHANGED):
            return
        try:
            task_id = _read_notice(note.params).task_id
        except msgspec.DecodeError:
            return
        for news in self.followed.get(task_id, ()):
            news.set()


def seen(ended: asyncio.Future[Any]) -> None:
    """Take note of how something ended that nobody may wait for any more."""
    if not ended.cancelled():
        ended.exception()
