"""Tasks: calls whose work goes on after they were answered, and how it is asked about."""

from __future__ import annotations

from typing import Any, Literal, get_args

from msgspec import UNSET, Raw, Struct, UnsetType

from ferrule.schema.model import Model, Name, Params, Result
from ferrule.schema.rounds import InputRequest

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
"""What a client of the stateless era declares when it can be answered with a task."""

RELATED_TASK_KEY = "io.modelcontextprotocol/related-task"
"""In `_meta`: the task a message belongs to (handshake era)."""

PROGRESS_KEY = "ferrule/progress"
"""In `_meta` of a task: how far it is in numbers, for which the stateless era has no member."""

TASK = "task"
"""The kind of a result that is a task instead of the answer (stateless era)."""

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]
ENDED = frozenset({"completed", "failed", "cancelled"})
"""A task in one of these never changes again."""
GOING_ON = frozenset(get_args(TaskStatus)) - ENDED

TaskSupport = Literal["optional", "required", "forbidden"]


class TaskError(Model, kw_only=True):
    """The error a task failed with, as the call itself would have been refused."""

    code: int
    message: str
    data: Any = None


class Task(Result, kw_only=True):
    """How a task stands; the two eras name the times differently, and only the stateless one adds the outcome."""

    task_id: Name
    status: TaskStatus
    status_message: str | None = None
    created_at: str = ""
    last_updated_at: str = ""
    ttl: float | int | UnsetType | None = UNSET
    poll_interval: float | int | None = None
    ttl_ms: float | int | UnsetType | None = UNSET
    poll_interval_ms: float | int | None = None
    input_requests: dict[str, InputRequest] | None = None
    result: Raw | UnsetType = UNSET
    error: TaskError | None = None

    @property
    def ended(self) -> bool:
        """Whether the task has come to its end, well or not."""
        return self.status in ENDED

    @property
    def pause(self) -> float | None:
        """How many seconds the server wants to be left alone between two looks."""
        given = self.poll_interval_ms if self.poll_interval_ms is not None else self.poll_interval
        return None if given is None else given / 1000


class CreateTaskResult(Task, kw_only=True):
    """The answer to a call that became a task."""


class CancelTaskResult(Task, kw_only=True):
    """The answer to a cancellation: the task as it is now, or a mere acknowledgement."""


class WrappedTask(Result, kw_only=True):
    """The answer to a call that became a task, in the form of the handshake era."""

    task: Task


class ListTasksResult(Result, kw_only=True):
    """One page of tasks (handshake era)."""

    tasks: list[Task]
    next_cursor: str | None = None


class TaskParams(Params, kw_only=True):
    """Which task."""

    task_id: Name


class UpdateTaskParams(TaskParams, kw_only=True):
    """Answers to what a task has asked (stateless era)."""

    input_responses: dict[Name, Raw]


class TaskWanted(Struct):
    """What a request of the handshake era says about the task it wants to become; times are milliseconds."""

    ttl: float | int | None = None
