"""One call that goes on as a task: its state, what it asks, and who is notified.

Rule: a status is changed in one place, `change`, one change after the other; what has ended never changes again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, structs

from ferrule.errors import (
    CallFailed,
    Cancelled,
    CapabilityNotSupported,
    FerruleError,
    Internal,
    InvalidRequest,
    PeerError,
    Refusal,
    StoreUnavailable,
)
from ferrule.protocol.call import Call
from ferrule.protocol.needs import Need, Question
from ferrule.protocol.tasks import input_request, related
from ferrule.runtime.dispatch import Handler, internal, need_within
from ferrule.runtime.tasks.form import describe
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.schema.model import JsonObject
from ferrule.schema.notices import LOG_MESSAGE, PROGRESS, TASK_STATUS_CHANGED
from ferrule.schema.rounds import COMPLETE
from ferrule.schema.tasks import GOING_ON, RELATED_TASK_KEY, TASK, CreateTaskResult, Task, TaskError
from ferrule.stores.contracts import StoredTask
from ferrule.supervision.scope import Scope
from ferrule.wire.codec import MAX_MESSAGE_SIZE
from ferrule.wire.messages import Notification

if TYPE_CHECKING:
    from ferrule.wire.channel import Channel


logger = logging.getLogger("ferrule.tasks")

TELL_EVERY = 0.1
"""The progress of a task is stored and reported at most once in so many seconds."""

LONGEST_MESSAGE = 500
"""Characters of a tool's own words that the status of its task repeats."""

ENVELOPE = 16 * 1024
"""Bytes of a message that are left for what is said around the result of a task."""


class OpenQuestion:
    """A question of a task that waits for its answer."""

    __slots__ = ("answer", "by", "question")

    def __init__(self, question: Question, answer: asyncio.Future[Raw]) -> None:
        self.question = question
        self.answer = answer
        self.by: Call | None = None
        """Whose way back it was sent on, while that is there."""


class Owner(Protocol):
    """The side whose tasks run, as far as a run needs it: what may be told, and how results are kept."""

    def may_tell_progress(self, call: Call) -> bool:
        """Return whether one more progress notice may go out now to the caller of a task."""

    def written(self, result: object) -> bytes:
        """Write the result of a task as it is kept."""


class Tasks(Protocol):
    """All tasks of one side, as far as one of them needs the others."""

    settings: TaskSettings

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop they run in."""

    @property
    def scope(self) -> Scope:
        """Where their work lives."""

    @property
    def holder(self) -> Owner:
        """The side they belong to."""

    async def keep(self, run: TaskRun, message: str | None) -> StoredTask:
        """Make a call a task."""

    def stop(self, run: TaskRun) -> None:
        """Stop the work of a task."""

    def changed(self, task: StoredTask) -> None:
        """Called when a task has changed."""

    def ended(self, run: TaskRun) -> None:
        """Called when a task has ended."""

    def save_later(self, task: StoredTask) -> None:
        """Save a task as soon as the store can be reached."""


class TaskRun:
    """One call, from the moment it may become a task to its end."""

    def __init__(self, tasks: Tasks, call: Call) -> None:
        self._tasks = tasks
        self.call = call
        self.work: asyncio.Task[None] | None = None
        self.held = 0
        """What the params of the call are debited with, from its answer to the end of its work."""
        self.outcome: object = Internal("The server stopped before the work began")
        """What the work came to, where it ended before it became a task."""
        self.timer: asyncio.TimerHandle | None = None
        self.questions: dict[str, OpenQuestion] = {}
        self._kept: StoredTask | None = None
        self._lock = asyncio.Lock()
        self._told_at = -math.inf
        self._late: asyncio.TimerHandle | None = None
        self._watchers: list[asyncio.Future[None]] = []
        self._attending: list[Call] = []
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- how it stands

    @property
    def is_begun(self) -> bool:
        """Whether the call has become a task."""
        return self._kept is not None

    @property
    def kept(self) -> StoredTask:
        """How the task stands."""
        assert self._kept is not None, "a call that has not become a task has no status"
        return self._kept

    @property
    def id(self) -> str:
        """The id of the task."""
        return self.kept.id

    @property
    def status(self) -> str:
        """The status of the task."""
        return self.kept.status

    def as_told(self, kind: type[Task] = Task) -> Task:
        """Return the state of the task as the revision it was started in has it."""
        return describe(self.kept, self.call.peer.revision, kind)

    def created(self) -> Task:
        """Return the answer to the call that has become a task."""
        task = self.as_told(CreateTaskResult)
        task.result_type = TASK
        return task

    async def begin(self, message: str | None = None) -> None:
        """Become a task; raises Busy when there is no room for one more."""
        if not self.is_begun:
            if message is not None:
                message = message[:LONGEST_MESSAGE]
            self._kept = await self._tasks.keep(self, message)
            self.begun.set_result(None)

    async def begin_from_handler(self, message: str | None) -> None:
        """Become a task in the midst of a call, and go on when that is answered: its answer is the first to be said."""
        await self.begin(message)
        await self.answered

    async def change(self, **members: object) -> bool:
        """Put the task into another state, and tell whoever wants to know; False when it has ended already."""
        async with self._lock:
            if self.kept.ended:
                return False
            after = structs.replace(self.kept, updated=self._tasks.settings.clock(), **members)
            try:
                kept = await self._tasks.settings.store.update(after, GOING_ON)
            except StoreUnavailable:
                kept = True
                self._tasks.save_later(after)
            if not kept:
                # Ended from elsewhere, or gone: what runs here is nobody's any more.
                ended = await self._tasks.settings.store.get(self.id, 0.0)
                after = ended or structs.replace(self.kept, status="cancelled")
                self._tasks.stop(self)
            self._kept = after
        self._announce()
        return kept

    def _announce(self) -> None:
        self._told_at = self._tasks.loop.time()
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._wake()
        if self.kept.ended:
            self._tasks.ended(self)
        if self.call.peer.revision.tasks_by_request:
            task = self.call.peer.revision.trim(self.as_told())
            self._send(Notification(TASK_STATUS_CHANGED, task))
        self._tasks.changed(self.kept)

    def _wake(self) -> None:
        waiting = self._watchers
        self._watchers = []
        for watcher in waiting:
            if not watcher.done():
                watcher.set_result(None)

    async def changed(self) -> None:
        """Wait until the task changes."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        try:
            await watcher
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    # -- its end

    async def finish(self, outcome: Any) -> None:
        """Keep what the work came to; a task that was cancelled meanwhile stays so."""
        if not isinstance(outcome, Refusal):
            try:
                written = self._tasks.holder.written(structs.replace(outcome, result_type=COMPLETE))
            except Exception as failure:  # a result may hold anything
                outcome = internal(f"writing the result of {self.kept.tool}", failure)
            else:
                if len(written) <= self._most:
                    await self._complete(outcome, written)
                    return
                # Kept, it could never be sent: whoever asks for it would be answered with an error again and again.
                outcome = Internal(
                    f"The result has {len(written):,} bytes, more than the {self._most:,} that can be sent"
                )
        refusal = self.call.peer.revision.trim(outcome)
        era = self.call.era
        error = TaskError(code=era.code(refusal), message=refusal.message, data=era.data(refusal))
        message = refusal.message[:LONGEST_MESSAGE]
        await self.change(status="failed", status_message=message, error=error, input_requests={})

    @property
    def _most(self) -> int:
        """How long an encoded result may be to fit into a message, with what is said around it."""
        link: Any = self.call.link
        most: int = min(link.options.max_message_size, MAX_MESSAGE_SIZE) - ENVELOPE
        return most

    async def _complete(self, result: Any, written: bytes) -> None:
        is_error = bool(getattr(result, "is_error", False))
        message = result.text[:LONGEST_MESSAGE] if is_error else None
        await self.change(
            status="completed", status_message=message, result=written, is_error=is_error, input_requests={}
        )

    async def cancel(self, message: str = "The task was cancelled") -> None:
        """End the task now, and its work as soon as that heeds it."""
        if await self.change(status="cancelled", status_message=message, input_requests={}):
            self._tasks.stop(self)

    async def give_up(self, why: str) -> None:
        """End the task for a reason of the server's own."""
        await self.finish(Internal(why))
        self._tasks.stop(self)

    # -- what its handler tells

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress: as the task's status, and as progress where the revision has it for tasks."""
        before = self.kept.progress
        if before is not None and progress <= before[0]:
            logger.warning("progress of a task must increase: %s after %s was dropped", progress, before[0])
            return
        words = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
        members = {"progress": (progress, total), "status_message": words[:LONGEST_MESSAGE]}
        await self._noted(members)
        token = None if self.call.meta is None else self.call.meta.progress_token
        if token is not None and self._tasks.holder.may_tell_progress(self.call):
            params: dict[str, object] = {"progressToken": token, "progress": progress}
            if total is not None:
                params["total"] = total
            if message is not None:
                params["message"] = message
            self._tell(PROGRESS, params)

    async def _noted(self, members: JsonObject) -> None:
        """Write progress down: at once, then once in a while, the last never lost."""
        loop = self._tasks.loop
        wait = self._told_at + TELL_EVERY - loop.time()
        if wait <= 0:
            await self.change(**members)
        elif not self.kept.ended:
            self._kept = structs.replace(self.kept, **members)
            if self._late is None:
                self._late = loop.call_later(wait, lambda: self._tasks.scope.spawn(self.change()))

    def log(self, params: dict[str, object]) -> None:
        """Send a log message, where tasks have them."""
        self._tell(LOG_MESSAGE, params)

    def _tell(self, method: str, params: dict[str, object]) -> None:
        if self.call.peer.revision.tasks_by_request and not self.kept.ended:
            self._send(Notification(method, {**params, "_meta": {RELATED_TASK_KEY: {"taskId": self.id}}}))

    def _send(self, notification: Notification) -> None:
        """Send where the client listens: to whoever waits for the result, else on the link's own channel."""
        link: Any = self.call.link
        channel: Channel | None = None if link.closed else link.channel
        if self._attending:
            channel = self._attending[-1].channel
        if channel is not None:
            channel.send(notification)

    # -- what its handler asks

    async def ask(self, missing: Sequence[tuple[str, Question]]) -> list[Raw]:
        """Wait for the client's answers; while any is missing, the task says that it needs input."""
        for _, question in missing:
            self.call.era.require(self.call, question)
        loop = asyncio.get_running_loop()
        asked: dict[str, OpenQuestion] = {}
        for place, question in missing:
            asked[place] = OpenQuestion(question, loop.create_future())
        self.questions.update(asked)
        try:
            if not await self._show_questions():
                raise Cancelled("the task has ended")
            answers = []
            for each in asked.values():
                answers.append(await each.answer)
            return answers
        finally:
            unanswered = False
            for place in asked:
                if self.questions.pop(place, None) is not None:
                    unanswered = True
            if unanswered:
                await self._show_questions()

    async def _show_questions(self) -> bool:
        """Set what is needed now, or that nothing is. Return False when the task has ended."""
        requests = {}
        for place, each in self.questions.items():
            requests[place] = input_request(each.question)
        status = "input_required" if requests else "working"
        return await self.change(status=status, input_requests=requests)

    async def answer(self, responses: dict[str, Raw]) -> None:
        """Take answers of the client; what was not asked, or is answered already, is ignored."""
        answered = []
        for place, raw in responses.items():
            question = self.questions.pop(place, None)
            if question is not None:
                answered.append((question, raw))
        if not answered:
            return
        await self._show_questions()
        for asked, raw in answered:
            if not asked.answer.done():
                asked.answer.set_result(raw)

    async def attend(self, call: Call) -> None:
        """Keep a caller that waits for the result until the task ends, and ask it what the task asks meanwhile."""
        asking: dict[str, asyncio.Task[None]] = {}
        self._attending.append(call)
        try:
            while not self.kept.ended:
                for place, asked in self.questions.items():
                    if asked.by is None and place not in asking:
                        asked.by = call
                        asking[place] = self._tasks.scope.spawn(self._put(call, place, asked))
                await self.changed()
        finally:
            self._attending.remove(call)
            for task in asking.values():
                task.cancel()
            self._leave_to_others(call)

    def _leave_to_others(self, call: Call) -> None:
        for asked in self.questions.values():
            if asked.by is call:
                asked.by = None
        self._wake()

    async def _put(self, call: Call, place: str, asked: OpenQuestion) -> None:
        """Ask one question on the way back of whoever waits; one that cannot be asked there waits for the next."""
        try:
            raw = await call.era.ask(call, [(place, related(asked.question, self.id))])[0]
            await self.answer({place: raw})
        except PeerError as refused:
            if not asked.answer.done():
                asked.answer.set_exception(refused)
        except CallFailed as failure:
            logger.info("a question of the task %s waits for another caller: %s", self.id, failure)
            # This caller may stay on, as one does that has only stopped sending.
            asked.by = None
            self._wake()
        except FerruleError:
            logger.exception("a question of the task %s cannot be asked", self.id)


async def carry(run: TaskRun, proceed: Handler, what: str) -> None:
    """Run the call of a task, and keep what it comes to."""
    run.outcome = await _outcome(run.call, proceed, what)
    if run.is_begun and not run.kept.ended:
        await run.finish(_of_a_task(run.outcome))


async def _outcome(call: Call, proceed: Handler, what: str) -> object:
    try:
        return await proceed(call)
    except Refusal as refusal:
        return refusal
    except CapabilityNotSupported as failure:
        return call.era.lacking(failure)
    except asyncio.CancelledError:
        return Internal("The work of the task was cancelled")
    except BaseException as error:  # a handler may raise anything; it ends its own task only
        return need_within(error) or internal(what, error)


def _of_a_task(outcome: object) -> object:
    """Return the outcome of a task; a Need, which asks the client to call again, cannot be one."""
    if isinstance(outcome, Need):
        return InvalidRequest("A task asks with ctx.elicit, ctx.ask or ctx.sample, not by ending")
    return outcome
