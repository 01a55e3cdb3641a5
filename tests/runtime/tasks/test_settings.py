"""The options of tasks."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule import SetupError
from ferrule.runtime.tasks.settings import LEAST_TTL, TaskSettings


@pytest.mark.parametrize(
    ("settings", "asked", "granted"),
    [
        ({}, None, 3600.0),
        ({}, 60.0, 60.0),
        ({}, 10**9, 86400.0),
        ({}, 0.0, LEAST_TTL),
        ({"ttl": None}, None, 86400.0),
        ({"ttl": None, "max_ttl": None}, None, None),
        ({"max_ttl": None}, 10**9, 10**9),
        ({"ttl": 50.0, "max_ttl": 20.0}, None, 20.0),
    ],
)
def test_a_life_is_as_long_as_asked_within_bounds(settings: Any, asked: float | None, granted: float | None) -> None:
    """TSKX-14, seed:TASK-02"""
    assert TaskSettings(**settings).lifetime(asked) == granted


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": 0},
        {"max_ttl": 0.5},
        {"poll_interval": 0},
        {"max_running": 0},
        {"max_running_per_owner": 0},
        {"access": "everyone"},
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(SetupError, match=next(iter(wrong))):
        TaskSettings(**wrong)


def test_the_least_of_each_is_accepted() -> None:
    least = TaskSettings(ttl=1.0, max_ttl=1.0, poll_interval=0.001, max_running=1, max_running_per_owner=1)
    assert least.lifetime(0.0) == 1.0


def test_each_has_a_store_of_its_own() -> None:
    assert TaskSettings().store is not TaskSettings().store
