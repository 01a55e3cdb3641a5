"""The words of tasks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferrule.budgets.bounds import MAX_NAME_LENGTH
from ferrule.schema.methods import METHODS
from ferrule.schema.notices import NOTICES
from ferrule.schema.tasks import ENDED, GOING_ON, Task, WrappedTask

BARE = {"taskId": "t", "status": "working"}


def read(state: dict[str, Any]) -> Task:
    return msgspec.convert(state, Task)


def test_every_status_goes_on_or_has_ended() -> None:
    assert frozenset({"working", "input_required"}) == GOING_ON
    assert frozenset({"completed", "failed", "cancelled"}) == ENDED


@pytest.mark.parametrize(
    ("more", "pause"),
    [({}, None), ({"pollInterval": 500}, 0.5), ({"pollIntervalMs": 1500.0}, 1.5), ({"pollIntervalMs": 0}, 0.0)],
)
def test_the_pause_is_read_from_either_form(more: Any, pause: float | None) -> None:
    assert read({**BARE, **more}).pause == pause


def test_both_forms_are_read_by_one_struct() -> None:
    first = {**BARE, "createdAt": "c", "lastUpdatedAt": "u", "ttl": None, "pollInterval": 1}
    second = {**BARE, "createdAt": "c", "lastUpdatedAt": "u", "ttlMs": 5, "resultType": "task", "future": 1}
    assert read(first).ttl is None
    assert read(second).ttl_ms == 5
    assert msgspec.convert({"task": first}, WrappedTask).task == read(first)


def test_a_status_nobody_knows_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        read({"taskId": "t", "status": "sleeping"})


def test_the_methods_exist_in_their_eras() -> None:
    """TSKX-1, TASK-17"""
    eras = {name: (row.handshake, row.stateless) for name, row in METHODS.items() if name.startswith("tasks/")}
    assert eras == {
        "tasks/get": (True, True),
        "tasks/result": (True, False),
        "tasks/list": (True, False),
        "tasks/update": (False, True),
        "tasks/cancel": (True, True),
    }
    assert {"notifications/tasks", "notifications/tasks/status"} <= NOTICES


def test_the_id_that_a_server_gives_a_task_is_no_longer_than_one_in_a_request() -> None:
    """Clients remember the ids of tasks: ten thousand long ones would be gigabytes."""
    longest = "x" * MAX_NAME_LENGTH
    assert read({**BARE, "taskId": longest}).task_id == longest
    with pytest.raises(msgspec.ValidationError, match="length <= 1024"):
        read({**BARE, "taskId": longest + "x"})
