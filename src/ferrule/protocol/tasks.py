"""How either era speaks of tasks: whether a call may become one, and the form a task has on the wire."""

from __future__ import annotations

from enum import Enum, auto

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from ferrule.errors import InvalidParams
from ferrule.protocol.needs import Question
from ferrule.schema.model import EmptyResult
from ferrule.schema.rounds import InputRequest
from ferrule.schema.tasks import RELATED_TASK_KEY, CancelTaskResult, Task, TaskWanted, WrappedTask

_write = msgspec.json.Encoder().encode

LONGEST_TTL = 10**15
"""Milliseconds, some thirty thousand years: nobody can reckon with more, and a number may have any length."""


class TaskWish(Enum):
    """What a call says about becoming a task."""

    UNKNOWN = auto()
    """Its revision has no tasks: the call is answered as it always was."""
    NO = auto()
    """It must be answered with its own result."""
    ALLOWED = auto()
    """Either will do."""
    ASKED = auto()
    """It wants a task and nothing else."""


def wanted(raw: Raw | UnsetType) -> TaskWanted:
    """Read how a call wants to be run as a task; one that does not say leaves it to the server."""
    if raw is UNSET:
        return TaskWanted()
    try:
        given = msgspec.json.decode(raw, type=TaskWanted)
    except (msgspec.DecodeError, RecursionError) as reason:
        raise InvalidParams(f"Invalid task: {reason}") from None
    if given.ttl is None:
        return given
    if given.ttl < 0:
        raise InvalidParams("Invalid task: ttl is a number of milliseconds from 0 on")
    return structs.replace(given, ttl=min(given.ttl, LONGEST_TTL))


def related(question: Question, task_id: str) -> Question:
    """Return a question that says to which task it belongs."""
    meta = {**question.params.get("_meta", {}), RELATED_TASK_KEY: {"taskId": task_id}}
    return structs.replace(question, params={**question.params, "_meta": meta})


def input_request(question: Question) -> InputRequest:
    """Put a question into a result: there it has no id of its own, and no params where there is nothing to say."""
    params = dict(question.params)
    params.pop("elicitationId", None)
    return InputRequest(method=question.method, params=Raw(_write(params)) if params else UNSET)


# -- the first form of tasks


def first_form(task: Task) -> Task:
    """Return a task in the form tasks had first: times have other names, the outcome is asked for apart."""
    return Task(
        task_id=task.task_id,
        status=task.status,
        status_message=task.status_message,
        created_at=task.created_at,
        last_updated_at=task.last_updated_at,
        ttl=task.ttl_ms,
        poll_interval=task.poll_interval_ms,
    )


def wrapped(task: Task) -> WrappedTask:
    """Return a new task in the envelope that tasks had first."""
    return WrappedTask(task=first_form(task))


def acknowledged(cancelled: CancelTaskResult) -> EmptyResult:
    """Return an acknowledgement only: the state of the task is asked for apart."""
    return EmptyResult(result_type=cancelled.result_type, meta=cancelled.meta)
