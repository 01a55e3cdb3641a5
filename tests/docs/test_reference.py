"""The reference has every public name as it is now."""

from __future__ import annotations

import pytest
import reference

import ferrule


def test_the_page_is_what_the_source_says() -> None:
    """CLNT-14: whoever changes a public name, its parameters or its members changes this page, knowingly."""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), (
        "run `make reference`, and read the difference"
    )


@pytest.mark.parametrize("name", sorted(ferrule.__all__))
def test_every_public_name_and_what_it_has_is_documented(name: str) -> None:
    """TEST-10"""
    lines = [line for line in reference.entry(name)[2:] if line]
    assert lines
    assert [line for line in lines if line.endswith((": ", ":"))] == []


def test_a_change_of_a_parameter_or_a_member_shows() -> None:
    class Before:
        """A thing."""

        def do(self, n: int = 1) -> int:
            """Do it."""
            return n

    class After:
        """A thing."""

        def do(self, n: int = 2) -> int:
            """Do it."""
            return n

        @property
        def more(self) -> int:
            """More."""
            return 1

    for each in (Before, After):
        each.__module__ = "ferrule.sample"
    assert list(reference.members(Before)) == [("do(n: int = 1) -> int", "Do it.")]
    assert list(reference.members(After)) == [("do(n: int = 2) -> int", "Do it."), ("more", "More.")]
