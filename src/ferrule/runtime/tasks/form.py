"""How a task that is kept is put into words for a client."""

from __future__ import annotations

import base64
import binascii
import struct
from datetime import UTC, datetime
from typing import TypeVar

from msgspec import UNSET, Raw

from ferrule.errors import InvalidParams
from ferrule.protocol.call import Revision
from ferrule.schema.tasks import PROGRESS_KEY, CreateTaskResult, Task
from ferrule.stores.contracts import StoredTask

T = TypeVar("T", bound=Task)

CURSOR = struct.Struct(">d")


def describe(task: StoredTask, revision: Revision, kind: type[T]) -> T:
    """Return the state of a task as a revision has it."""
    status = task.status
    if task.is_error and status == "completed" and revision.tasks_by_request:
        status = "failed"
    bare = kind is CreateTaskResult
    return kind(
        task_id=task.id,
        status=status,
        status_message=task.status_message,
        created_at=_date(task.created),
        last_updated_at=_date(task.updated),
        ttl_ms=None if task.ttl is None else int(task.ttl * 1000),
        poll_interval_ms=int(task.poll_interval * 1000),
        input_requests=None if bare else dict(task.input_requests) or None,
        result=UNSET if bare or task.result is None else Raw(task.result),
        error=None if bare else task.error,
        meta=None if task.progress is None or task.ended else {PROGRESS_KEY: _progress(*task.progress)},
    )


def _date(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _progress(done: float, total: float | None) -> dict[str, float]:
    if total is None:
        return {"progress": done}
    return {"progress": done, "total": total}


def cursor_after(task: StoredTask) -> str:
    """Write down where a page ended."""
    return base64.urlsafe_b64encode(CURSOR.pack(task.created) + task.id.encode()).decode()


def read_cursor(cursor: str | None) -> tuple[float, str] | None:
    """Read where the page before ended; raises InvalidParams for what nobody here has written."""
    if cursor is None:
        return None
    try:
        mark = base64.b64decode(cursor, altchars=b"-_", validate=True)
        (created,) = CURSOR.unpack(mark[: CURSOR.size])
        return created, mark[CURSOR.size :].decode()
    except (binascii.Error, ValueError, struct.error):
        raise InvalidParams("Invalid cursor: it is not one this server gave") from None
