"""Each recipe runs as a real process, and prints what its last lines say it does."""

from __future__ import annotations

import ast
from pathlib import Path

import doc_pages
import pytest

RECIPES = doc_pages.PROJECT / "examples" / "recipes"
NAMES = sorted(path.name for path in RECIPES.glob("*.py"))
MARK = "# It prints:"


def test_there_are_at_least_as_many_recipes_as_were_promised() -> None:
    assert len(NAMES) >= 25


def test_every_recipe_is_listed_with_the_documentation_it_answers() -> None:
    """TEST-11: the guide leads over from the official SDK and FastMCP, page by page of theirs."""
    page = (doc_pages.PROJECT / "docs" / "guides" / "porting.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_in_one_sentence_what_it_shows(name: str) -> None:
    said = ast.get_docstring(ast.parse((RECIPES / name).read_text(encoding="utf-8"))) or ""
    assert said.endswith(".")
    assert "\n" not in said


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_prints_what_it_says(name: str, tmp_path: Path) -> None:
    _, marked, told = (RECIPES / name).read_text(encoding="utf-8").partition(f"\n{MARK}\n")
    assert marked, f"{name} does not end with what it prints"
    done = doc_pages.run([str(RECIPES / name)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line.removeprefix("#").removeprefix(" ") for line in told.splitlines()]
    assert done.stderr == ""
