"""A server's questions on the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest

from ferrule.cli.output import Output
from ferrule.cli.question import TerminalUser, choices_of
from ferrule.schema.elicitation import ElicitParams

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "as on the ticket"},
        "age": {"type": "integer"},
        "window": {"type": "boolean", "default": True},
        "meal": {"type": "string", "oneOf": [{"const": "v", "title": "Vegetables"}, {"const": "f", "title": "Fish"}]},
        "extras": {"type": "array", "items": {"enum": ["bag", "bike"]}},
    },
    "required": ["name"],
}


class Person(io.StringIO):
    """Somebody at a terminal who types what was written beforehand."""

    def isatty(self) -> bool:
        return True


def asked(typed: str, schema: dict[str, Any] | None = FORM) -> tuple[Any, str]:
    """Return what a person answers, and what they saw."""
    output = Output(out=io.StringIO(), err=io.StringIO())
    user = TerminalUser(output, Person(typed))
    assert user.present
    answer = user.answer(ElicitParams(message="Book a seat\x1b[2J", requested_schema=schema))
    return answer, output.err.getvalue()  # type: ignore[attr-defined]


def test_every_field_of_a_form_is_asked_for() -> None:
    answer, seen = asked("Ada\n36\ny\n2\nbag, 2\n")
    assert answer == {"name": "Ada", "age": 36, "window": True, "meal": "f", "extras": ["bag", "bike"]}
    assert "The server asks: Book a seat\\x1b[2J\n" in seen
    assert "Your name (as on the ticket): " in seen
    assert "window [True]: " in seen
    assert "  1. Vegetables\n  2. Fish\n" in seen


def test_an_empty_line_leaves_a_field_out() -> None:
    assert asked("Ada\n\n\n\n\n")[0] == {"name": "Ada"}


def test_an_empty_line_is_offered_only_where_a_field_may_be_left_out() -> None:
    assert "an empty line leaves out a field" in asked("Ada\n\n\n\n\n")[1]
    only = {"type": "object", "properties": {"row": {"type": "integer"}}, "required": ["row"]}
    assert "empty line" not in asked("3\n", only)[1]


def test_what_is_wrong_is_asked_for_again() -> None:
    answer, seen = asked("\nAda\nold\n36\nperhaps\nn\nMeat\nFish\ncar\n\n")
    assert answer == {"name": "Ada", "age": 36, "window": False, "meal": "f"}
    assert seen.count("that is not an answer") == 5
    assert "give integer" in seen
    assert "give y or n" in seen
    assert "give a number or a name" in seen


@pytest.mark.parametrize("typed", ["", "Ada\n", "\n\n\n"], ids=["Ctrl-D", "Ctrl-D later", "three wrong answers"])
def test_a_person_can_decline(typed: str) -> None:
    assert asked(typed)[0] == "decline"


def test_a_question_without_fields_is_yes_or_no() -> None:
    assert asked("y\n", None)[0] is True
    assert asked("\n", {"properties": {}})[0] is False


def test_many_choices_and_long_texts_are_cut() -> None:
    many = {"enum": [f"choice {number}" for number in range(5000)], "title": "x" * 1_000_000}
    answer, seen = asked("choice 4999\n", {"properties": {"a": many}})
    assert answer == {"a": "choice 4999"}
    assert "… and 4900 more" in seen
    assert len(seen) < 10_000


@pytest.mark.parametrize(
    "shape",
    [
        {"properties": {"a": {}}, "required": 3},
        {"properties": {"a": 3}},
        {"properties": {"a": {"oneOf": [1], "enum": 3}}},
    ],
)
def test_a_form_of_any_shape_does_no_harm(shape: dict[str, Any]) -> None:
    assert asked("x\n", shape)[0] == {"a": "x"}


def test_choices_have_names() -> None:
    assert choices_of({"enum": ["a", "b"], "enumNames": ["A", "B"]}) == [("a", "A"), ("b", "B")]
    assert choices_of({"enum": ["a"], "enumNames": ["A", "B"]}) == [("a", "a")]
    assert choices_of({}) == []


@pytest.mark.parametrize(("typed", "opened"), [("y\n", ["https://x.example/pay"]), ("n\n", []), ("", [])])
def test_a_page_is_opened_only_where_the_person_agrees(
    typed: str, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: list[str] = []
    monkeypatch.setattr("webbrowser.open", visited.append)
    output = Output(out=io.StringIO(), err=io.StringIO())
    agreed = TerminalUser(output, Person(typed)).visit(
        ElicitParams(message="Pay", mode="url", url="https://x.example/pay")
    )
    assert visited == opened
    assert agreed is bool(opened)
    assert "https://x.example/pay" in output.err.getvalue()  # type: ignore[attr-defined]
