"""Following a task to its end: look, answer what it asks, wait, look again; also when the way to it is lost."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from msgspec import Raw

from ferrule.budgets.bounds import MAX_QUESTIONS
from ferrule.client.features.answers import AskedOn
from ferrule.client.features.progress import ProgressRelay, contained
from ferrule.client.features.task_requests import TaskRequests, seen
from ferrule.client.link.conversation import RequestOptions
from ferrule.errors import (
    CallFailed,
    Declined,
    HttpFailed,
    InvalidAnswer,
    LinkLost,
    NotConnected,
    OutcomeUnknown,
    Refusal,
    TimedOut,
)
from ferrule.schema.rounds import InputRequest
from ferrule.schema.tasks import PROGRESS_KEY
from ferrule.schema.tasks import Task as TaskState
from ferrule.supervision.backoff import Backoff

logger = logging.getLogger("ferrule.client")

T = TypeVar("T")

LEAST_PAUSE, LONGEST_PAUSE = 0.02, 60.0
"""How many seconds are between two looks, whatever the server asks for."""

WORTH_LISTENING = 0.25
"""From how many seconds between two looks on it is worth a subscription to hear of changes at once."""

UNTOLD = Backoff(first=0.2, factor=1.5, longest=5.0, jitter=0.0)
"""How long to wait between looks where the server does not say."""

AGAIN = Backoff(first=0.1, factor=2.0, longest=5.0)
"""How long to wait before a task is looked for again that was out of reach."""

MOST_ASKED = 10 * MAX_QUESTIONS
"""How many questions a task may ask until its end."""

CLOSED_PATIENCE = 0.5
"""How many seconds a client that was closed may take to be opened again."""

LOSSES = (LinkLost, NotConnected, HttpFailed, OutcomeUnknown, TimedOut)


async def limited(work: Awaitable[T], timeout: float | None, what: str) -> T:
    """Wait for something no longer than so many seconds."""
    try:
        async with asyncio.timeout(timeout):
            return await work
    except TimeoutError:
        raise TimedOut(f"{what} did not end within {timeout:g} s") from None


class TaskWatch:
    """One wait for the end of one task; used as `async with`."""

    def __init__(self, requests: TaskRequests, task_id: str, known: TaskState | None, relay: ProgressRelay) -> None:
        self._requests = requests
        self._id = task_id
        self._known = known
        self._relay = relay
        self._news = asyncio.Event()
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._result: asyncio.Task[Raw] | None = None
        self._listens: asyncio.Task[None] | None = None
        self._told = True
        self._failure: Exception | None = None
        self._message: str | None = None
        self._done: float = 0

    async def __aenter__(self) -> TaskWatch:
        self._requests.followed.setdefault(self._id, []).append(self._news)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        waiting = self._requests.followed[self._id]
        waiting.remove(self._news)
        if not waiting:
            del self._requests.followed[self._id]
        for task in (*self._asked.values(), self._result, self._listens):
            if task is not None:
                task.cancel()
        if self._listens is not None and not self._requests.was_closed:
            with suppress(CallFailed):
                self._requests.spawn(self._requests.unwatch(self._id))

    async def states(self) -> AsyncIterator[TaskState]:
        """Yield how the task stands, again and again, to its end."""
        looks = 0
        state = self._known
        while state is None or not state.ended:
            if state is not None:
                self._react(state)
                yield state
                await self._wait(self._pause(state, looks))
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            state = await self._look()
            looks += 1
        self._tell(state)
        yield state

    def _pause(self, state: TaskState, looks: int) -> float:
        asked = state.pause
        if asked is None:
            return UNTOLD.delay(looks + 1, lambda: 0.0)
        return min(max(asked, LEAST_PAUSE), LONGEST_PAUSE)

    async def _wait(self, pause: float) -> None:
        """Wait until it is time to look again, or somebody says that there is something to see."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._news.wait()

    # -- looking

    async def _look(self) -> TaskState:
        clock = asyncio.get_running_loop().time
        lost_at = None
        losses = 0
        while True:
            try:
                return await self._requests.get(self._id)
            except LOSSES as loss:
                if lost_at is None:
                    lost_at = clock()
                losses += 1
                left = lost_at + self._patience() - clock()
                if left <= 0:
                    raise
                logger.info("the task %s is out of reach, and is looked for again: %s", self._id, loss)
                await asyncio.sleep(min(AGAIN.delay(losses, random.random), left))

    def _patience(self) -> float:
        if self._requests.comes_back:
            patience = math.inf
        else:
            patience = self._requests.patience
        if self._requests.was_closed:
            return min(patience, CLOSED_PATIENCE)
        return patience

    # -- reacting

    def _react(self, state: TaskState) -> None:
        """Report the state of the task and answer its questions; without a link, at the first look that finds one."""
        if not self._requests.comes_back:
            with suppress(CallFailed):
                self._act(state)

    def _act(self, state: TaskState) -> None:
        self._tell(state)
        self._requests.era.follow(self, state)
        if state.status != "input_required":
            return
        questions = state.input_requests or {}
        # A question is named again at each look until it is answered, and counts once.
        asked = self._asked.keys() | questions.keys()
        if len(questions) > MAX_QUESTIONS or len(asked) > MOST_ASKED:
            self._failure = InvalidAnswer(
                f"the task {self._id} asks more than {MAX_QUESTIONS} questions at once, or {MOST_ASKED} in all"
            )
            self._news.set()
            return
        for key, request in questions.items():
            if key not in self._asked:
                self._asked[key] = self._requests.spawn(self._answer(key, request))

    def listen(self, state: TaskState) -> None:
        """Subscribe to the task's changes, where it is looked at so rarely that this is worth it."""
        if (state.pause or 0.0) >= WORTH_LISTENING and self._is_deaf:
            self._listens = self._requests.spawn(self._listen())

    def fetch_result(self) -> None:
        """Wait at the server for the result: its questions come to whoever does."""
        if self._result is None or self._result.done():
            self._result = self._requests.spawn(self._fetch_result())
            self._result.add_done_callback(seen)

    @property
    def _is_deaf(self) -> bool:
        """Whether nobody tells of the task, though the server might: a new conversation has to ask for it anew."""
        if self._listens is None:
            return True
        return self._listens.done() and self._told and not self._requests.watches(self._id)

    async def _listen(self) -> None:
        """Hear of the task's changes, and look once more then: it may have changed meanwhile."""
        self._told = await self._requests.watch(self._id)
        if self._told:
            self._news.set()

    def _tell(self, state: TaskState) -> None:
        """Report progress from the state of the task, unless progress notifications come."""
        target = self._relay.target
        message = state.status_message
        if self._relay.heard or target is None or state.ended:
            return
        told = (state.meta or {}).get(PROGRESS_KEY)
        if isinstance(told, dict) and isinstance(told.get("progress"), int | float):
            done = told["progress"]
            total = told.get("total")
        else:
            done = self._done + (message != self._message)
            total = None
        if done <= self._done:
            return
        self._done = done
        self._message = message
        try:
            value = target(done, total, message)
        except Exception:
            logger.exception("a progress callback failed")
            return
        if asyncio.iscoroutine(value):
            self._requests.spawn(contained(value))

    async def _answer(self, key: str, request: InputRequest) -> None:
        """Answer one question of the task, once."""
        try:
            asked_on = AskedOn(self._id, "tools/call")
            answer = await self._requests.answer_on(asked_on, request.method, request.params)
            params = {"taskId": self._id, "inputResponses": {key: answer}}
            await self._requests.ask("tasks/update", params)
        except LOSSES:
            self._asked.pop(key, None)  # asked again when the task can be reached again
        except asyncio.CancelledError:
            self._asked.pop(key, None)
            raise
        except (Refusal, Declined) as refusal:
            self._failure = InvalidAnswer(f"the task {self._id} asks what cannot be answered: {refusal}")
        except Exception as failure:
            self._failure = failure
        self._news.set()

    async def _fetch_result(self) -> Raw:
        try:
            return await self._requests.ask("tasks/result", {"taskId": self._id}, RequestOptions())
        finally:
            self._news.set()

    async def outcome(self, state: TaskState) -> Raw:
        """Return the result of a task that has ended, or raise the error it ended with."""
        return await self._requests.era.task_outcome(self, state)

    async def fetched(self) -> Raw:
        """Return the result that was waited for already, or ask for it now."""
        if self._result is not None:
            await asyncio.wait([self._result])
            if not self._result.cancelled() and not isinstance(self._result.exception(), LOSSES):
                return self._result.result()
        return await self._requests.ask("tasks/result", {"taskId": self._id})
