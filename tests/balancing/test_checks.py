"""An option out of its bounds is refused with its name, its bounds and what it was."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ferrule.balancing.checks import require_number, require_time, require_whole
from ferrule.errors import SetupError


@pytest.mark.parametrize("value", [0, 0.5, 1])
def test_a_number_within_its_bounds_passes(value: float) -> None:
    assert require_number("x", value, most=1.0) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2, "x must be from 0 to 1, not 2"),
        (-0.1, "x must be from 0 to 1, not -0.1"),
        (math.nan, "x must be from 0 to 1, not nan"),
        ("1", "x must be a number, not '1'"),
        (True, "x must be a number, not True"),
        (None, "x must be a number, not None"),
    ],
)
def test_another_is_refused(value: Any, text: str) -> None:
    with pytest.raises(SetupError, match=text):
        require_number("x", value, most=1.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "x must be at least 1, not 0"), (1.5, "x must be a whole number, not 1.5"), (False, "whole")],
)
def test_a_whole_number_is_at_least_one(value: Any, text: str) -> None:
    require_whole("x", 1)
    with pytest.raises(SetupError, match=text):
        require_whole("x", value)


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_a_time_is_more_than_nothing_and_ends(value: float) -> None:
    require_time("x", 0.001)
    with pytest.raises(SetupError, match="x must be"):
        require_time("x", value)
