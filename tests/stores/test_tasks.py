"""What is kept of a task."""

from __future__ import annotations

import msgspec
import pytest

from ferrule.schema.rounds import InputRequest
from ferrule.schema.tasks import TaskError
from ferrule.stores.contracts import StoredTask

TASK = StoredTask(id="t", owner="ann", tool="x", created=10.0, updated=12.0, ttl=60.0, poll_interval=0.5)


@pytest.mark.parametrize(
    ("status", "ended"),
    [("working", False), ("input_required", False), ("completed", True), ("failed", True), ("cancelled", True)],
)
def test_a_task_has_ended_in_three_ways(status: str, ended: bool) -> None:
    """TSKX-5"""
    assert msgspec.structs.replace(TASK, status=status).ended is ended


def test_it_expires_after_its_time_or_never() -> None:
    assert TASK.expires == 70.0
    assert msgspec.structs.replace(TASK, ttl=None).expires is None


def test_all_of_it_can_be_written_down_and_read_again() -> None:
    """A store elsewhere keeps bytes."""
    full = msgspec.structs.replace(
        TASK,
        status="failed",
        status_message="no",
        progress=(1.0, None),
        input_requests={"k": InputRequest(method="roots/list")},
        result=b'{"content":[]}',
        error=TaskError(code=-32603, message="no", data={"a": 1}),
    )
    assert msgspec.json.decode(msgspec.json.encode(full), type=StoredTask) == full
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(full), type=StoredTask) == full
