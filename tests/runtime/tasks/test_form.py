"""How a task is put into words."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import InvalidParams
from ferrule.protocol.handshake import NEWEST as HANDSHAKE
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.runtime.tasks.form import cursor_after, describe, read_cursor
from ferrule.schema.tasks import CreateTaskResult, Task
from ferrule.stores.contracts import StoredTask

TASK = StoredTask(id="t", owner="", tool="x", created=1.5, updated=2.25, ttl=60.0, poll_interval=0.5)


def test_times_are_dates_and_durations_whole_milliseconds() -> None:
    state = msgspec.to_builtins(describe(TASK, STATELESS, Task))
    assert state == {
        "taskId": "t",
        "status": "working",
        "createdAt": "1970-01-01T00:00:01.500Z",
        "lastUpdatedAt": "1970-01-01T00:00:02.250Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 500,
    }
    assert msgspec.to_builtins(HANDSHAKE.trim(describe(TASK, HANDSHAKE, CreateTaskResult))) == {
        "task": {
            **{name: value for name, value in state.items() if name not in ("ttlMs", "pollIntervalMs")},
            "ttl": 60_000,
            "pollInterval": 500,
        }
    }


def test_a_result_that_tells_of_a_failure_is_a_failure_in_the_first_kind_only() -> None:
    """TSKX-5, TASK-8"""
    failed = msgspec.structs.replace(TASK, status="completed", is_error=True, result=b"{}")
    assert describe(failed, HANDSHAKE, Task).status == "failed"
    assert describe(failed, STATELESS, Task).status == "completed"
    cancelled = msgspec.structs.replace(failed, status="cancelled")
    assert describe(cancelled, HANDSHAKE, Task).status == "cancelled"


@pytest.mark.parametrize(("total", "told"), [(4.0, {"progress": 1.0, "total": 4.0}), (None, {"progress": 1.0})])
def test_the_progress_of_a_running_task_is_in_its_meta(total: float | None, told: dict[str, float]) -> None:
    running = msgspec.structs.replace(TASK, progress=(1.0, total))
    assert list((describe(running, STATELESS, Task).meta or {}).values()) == [told]
    ended = msgspec.structs.replace(running, status="completed", result=b"{}")
    assert describe(ended, STATELESS, Task).meta is None


def test_a_new_task_shows_nothing_of_its_end() -> None:
    """TASK-5"""
    ended = msgspec.structs.replace(TASK, status="completed", result=b"{}")
    assert "result" not in msgspec.to_builtins(describe(ended, STATELESS, CreateTaskResult))


@given(st.floats(min_value=0, max_value=1e11), st.text(max_size=50))
def test_a_cursor_is_read_as_it_was_written(created: float, name: str) -> None:
    task = msgspec.structs.replace(TASK, created=created, id=name)
    assert read_cursor(cursor_after(task)) == (created, name)


@given(st.text(max_size=40))
def test_any_other_text_is_a_cursor_or_refused(text: str) -> None:
    """TSKX-13"""
    with contextlib.suppress(InvalidParams):
        assert isinstance(read_cursor(text), tuple)


def test_no_cursor_is_the_beginning() -> None:
    assert read_cursor(None) is None
    with pytest.raises(InvalidParams):
        read_cursor("")
