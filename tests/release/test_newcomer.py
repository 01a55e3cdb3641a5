"""The first page of the documents is true, line by line, in a terminal; `make dist` does the same with the wheel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import newcomer

PROGRAMS = Path(sys.executable).parent


def test_the_first_five_minutes_are_as_the_page_says(tmp_path: Path) -> None:
    assert newcomer.follow(PROGRAMS, tmp_path, newcomer.PAGE.read_text(encoding="utf-8")) == 9
    # One of them put the server into a host, in a home that was empty.
    [written] = tmp_path.rglob("mcp.json")
    assert str(tmp_path / "hello") in written.read_text()


def test_a_server_without_its_health_is_found_out() -> None:
    with pytest.raises(newcomer.Different):
        newcomer.require_answer("http://127.0.0.1:9/livez")


@pytest.mark.parametrize(
    "console",
    ["$ ferrule --version\nferrule 9.9.9\n", "$ ferrule nonsense\n", "$ ferrule --version\nerror: it fails\n"],
)
def test_a_page_that_says_something_else_is_found_out(console: str, tmp_path: Path) -> None:
    with pytest.raises(newcomer.Different):
        newcomer.follow(PROGRAMS, tmp_path, f"```console\n{console}```\n")
