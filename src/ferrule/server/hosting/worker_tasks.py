"""The tasks of other workers: the id of a task names the worker that runs it, which is asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.runtime.tasks.form import describe
from ferrule.runtime.tasks.tasks import Tasks
from ferrule.schema.tasks import Task
from ferrule.server.calls.services import Services
from ferrule.server.notifications.changes import Change
from ferrule.stores.contracts import StoredTask
from ferrule.stores.records import decode_task, encode_task

if TYPE_CHECKING:
    from ferrule.transports.http.endpoint.neighbours import Neighbours

# What one worker asks another.
GET = "task"
CANCEL = "cancel task"
ANSWER = "answer task"
PAGE = "tasks"


class Answers(Struct, frozen=True):
    """What a client answered to the questions of a task, as JSON."""

    task_id: str
    responses: dict[str, bytes]


class PageAsked(Struct, frozen=True):
    """Which tasks of an owner are wanted: those after one, at most so many."""

    owner: str
    after: tuple[float, str] | None
    limit: int


_encode = msgspec.msgpack.Encoder().encode
_read_answers = msgspec.msgpack.Decoder(Answers).decode
_read_asked = msgspec.msgpack.Decoder(PageAsked).decode
_read_page = msgspec.msgpack.Decoder(list[bytes]).decode


class WorkerTasks:
    """Asks other workers about their tasks, and answers about ours; see `TaskPeers`."""

    def __init__(self, tasks: Tasks, services: Services, neighbours: Neighbours) -> None:
        self._tasks = tasks
        self._subscriptions = services.subscriptions
        self._neighbours = neighbours
        self.mark = neighbours.mark
        services.changes.on_task = self._changed_elsewhere
        self._relay = services.changes.task_changed
        neighbours.on_question(GET, self._give)
        neighbours.on_question(CANCEL, self._cancel)
        neighbours.on_question(ANSWER, self._answer)
        neighbours.on_question(PAGE, self._give_page)

    # -- asking others

    async def get(self, task_id: str) -> StoredTask | None:
        """Return a task of another worker; None where none has it."""
        found = await self._neighbours.ask(task_id, GET, task_id.encode())
        return _decoded(found)

    async def cancel(self, task_id: str) -> StoredTask | None:
        """Cancel a task of another worker and return it; None where none runs it."""
        cancelled = await self._neighbours.ask(task_id, CANCEL, task_id.encode())
        return _decoded(cancelled)

    async def answer(self, task_id: str, responses: dict[str, Raw]) -> None:
        """Send the answers to the questions of a task to the worker that runs it."""
        written = {name: bytes(response) for name, response in responses.items()}
        await self._neighbours.ask(task_id, ANSWER, _encode(Answers(task_id, written)))

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int) -> list[StoredTask]:
        """Return tasks of one owner that other workers have, in no order."""
        asked = _encode(PageAsked(owner, after, limit))
        pages = await self._neighbours.ask_all(PAGE, asked)
        found: list[StoredTask] = []
        for page in pages:
            for content in _read_page(page):
                found.append(decode_task(content))
        return found

    def changed(self, task_id: str) -> None:
        """Notify other workers that a task of ours changed: somebody may listen to it there."""
        self._relay(task_id)

    def _changed_elsewhere(self, change: Change) -> None:
        if self._subscriptions.listens_to_task(change.task):
            self._tasks.scope.spawn(self._tell(change.task))

    async def _tell(self, task_id: str) -> None:
        task = await self.get(task_id)
        if task is not None:
            self._subscriptions.task_changed(task_id, lambda: describe(task, STATELESS, Task))

    # -- answering others

    async def _give(self, content: bytes) -> bytes | None:
        task = await self._tasks.kept(content.decode())
        if task is None:
            return None
        return encode_task(task)

    async def _cancel(self, content: bytes) -> bytes | None:
        run = self._tasks.live.get(content.decode())
        if run is None:
            return None
        await run.cancel()
        return encode_task(run.kept)

    async def _answer(self, content: bytes) -> None:
        answers = _read_answers(content)
        run = self._tasks.live.get(answers.task_id)
        if run is not None:
            responses = {name: Raw(response) for name, response in answers.responses.items()}
            await run.answer(responses)

    async def _give_page(self, content: bytes) -> bytes:
        asked = _read_asked(content)
        tasks = await self._tasks.page(asked.owner, asked.after, asked.limit)
        return _encode([encode_task(task) for task in tasks])


def _decoded(content: bytes | None) -> StoredTask | None:
    if content is None:
        return None
    return decode_task(content)
