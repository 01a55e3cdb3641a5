"""The numbers of errors and what they are about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ferrule
from ferrule import errors
from ferrule.codes import ErrorCode, category_of


def test_the_core_numbers_have_names() -> None:
    """ERRC-07"""
    names = [ErrorCode(code).name for code in range(-32001, -32011, -1)]
    assert names[0] == "RESOURCE_MISSING"
    assert names[1] == "TOOL_MISSING"
    assert names[2] == "PROMPT_MISSING"
    assert names[3] == "CAPABILITY_OFF"
    assert names[4] == "NOT_INITIALIZED"
    assert len(set(names)) == 10


@pytest.mark.parametrize(
    ("code", "category"),
    [
        *[(-32001, "resource"), (-32022, "resource"), (-32030, "resource"), (-32031, "tool"), (-32032, "tool")],
        *[(-32040, "tool"), (-32041, "prompt"), (-32700, "json-rpc"), (-32603, "json-rpc"), (1001, "application")],
    ],
)
def test_a_number_tells_what_it_is_about(code: int, category: str) -> None:
    """ERRC-18"""
    assert category_of(code) == category


NUMBER = re.compile(r"-32\d{3}\b")


def test_the_numbers_stand_in_one_table() -> None:
    source = Path(ferrule.__file__).parent
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in source.rglob("*.py")
        # What `ferrule check` says to authors of other servers is prose.
        if path.name != "codes.py" and path.parent.parent.name != "check"
        for line in path.read_text(encoding="utf-8").splitlines()
        if NUMBER.search(line)
    ]
    assert found == []


def test_every_refusal_has_a_number_of_the_table() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.Refusal)}
    assert len(kinds) > 10
    assert {kind.code for kind in kinds} <= {code.value for code in ErrorCode}
