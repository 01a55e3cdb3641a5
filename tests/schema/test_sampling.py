"""Model preferences."""

from __future__ import annotations

import pytest

from ferrule.schema.sampling import ModelHint, ModelPreferences

MODELS = ["small-fast-1", "large-wise-2", "large-wise-3"]


@pytest.mark.parametrize(
    ("hints", "chosen"),
    [
        (["wise"], "large-wise-2"),
        (["unknown", "FAST"], "small-fast-1"),
        (["wise-3", "fast"], "large-wise-3"),
        (["unknown"], None),
        ([], None),
        ([""], None),
    ],
)
def test_hints_are_tried_in_order_as_parts_of_a_name(hints: list[str], chosen: str | None) -> None:
    """SAMP-8"""
    preferences = ModelPreferences(hints=[ModelHint(name=name) for name in hints])
    assert preferences.choose(MODELS) == chosen
