"""Each operator changes exactly what it says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from areas import AREAS, PROJECT, Area, mirrored
from mutation_run import Planted, equivalent
from plant import Mutant, mutants_of


def changed(source: str, operator: str) -> list[str]:
    """Return the source as each mutant of an operator makes it."""
    text = source.encode()
    return [mutant.applied(text).decode() for mutant in mutants_of(text) if mutant.operator == operator]


def only(source: str) -> Mutant:
    """Return the one mutant of a source."""
    (mutant,) = mutants_of(source.encode())
    return mutant


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("compare", "a < b", ["a >= b"]),
        ("compare", "a == b", ["a != b"]),
        ("compare", "a is None", ["a is not None"]),
        ("compare", "a is  not None", ["a is None"]),
        ("compare", "a not in b", ["a in b"]),
        ("compare", "a < b <= c", ["a < b > c", "a >= b <= c"]),
        ("compare", "(island) is None", ["(island) is not None"]),
        ("boundary", "a < b", ["a <= b"]),
        ("boundary", "a >= b", ["a > b"]),
        ("boundary", "a == b", []),
        ("negate", "x = not a", ["x = bool(a)"]),
        ("negate", "x = a if b else c", ["x = a if (not (b)) else c"]),
        ("negate", "x = [a for a in b if a.c]", ["x = [a for a in b if (not (a.c))]"]),
        ("and/or", "x = a and b and c", ["x = (a or b or c)"]),
        ("and/or", "x = (a.band) or b", ["x = ((a.band) and b)"]),
        ("arithmetic", "x = a + b", ["x = a - b"]),
        ("arithmetic", "x = a // b", ["x = a * b"]),
        ("arithmetic", "x -= a", ["x += a"]),
        ("arithmetic", "x = '%s' % a", []),
        ("constant", "x = 7", ["x = 6", "x = 8"]),
        ("constant", "x = 0", ["x = 1"]),
        ("constant", "x = 0.5", ["x = 1.5"]),
        ("constant", "x = True", ["x = False"]),
        ("constant", "x = 'seven'", []),
        ("constant", "def f(a=3): pass", ["def f(a=2): pass", "def f(a=4): pass"]),
        ("delete", "a()", ["pass"]),
        ("delete", "a.b = c", ["pass"]),
        ("delete", "a[b] += c", ["pass"]),
        ("delete", "del a[b]", ["pass"]),
        ("delete", "raise a", ["pass"]),
        ("delete", "a = b", []),
        ("delete", "'a docstring'", []),
    ],
)
def test_an_operator_changes_what_it_says(operator: str, before: str, after: list[str]) -> None:
    assert sorted(changed(before, operator)) == after


def test_statements_of_a_loop_are_left_out() -> None:
    assert changed("while a():\n    continue\n", "delete") == ["while a():\n    pass\n"]
    assert changed("while a():\n    break\n", "delete") == ["while a():\n    pass\n"]
    assert changed("while a():\n    break\n", "negate") == ["while (not (a())):\n    break\n"]


def test_a_result_becomes_none() -> None:
    assert changed("def f():\n    return a\n", "return") == ["def f():\n    return None\n"]
    assert changed("def f():\n    return None\n", "return") == []


def test_a_statement_over_several_lines_leaves_the_others_where_they_are() -> None:
    source = "a(\n    b,\n)\nc = 1\n"
    assert changed(source, "delete") == ["pass\n\n\nc = 1\n"]


def test_positions_count_characters_that_are_several_bytes_long() -> None:
    assert changed("x = 'äöü' if a < b else c", "boundary") == ["x = 'äöü' if a <= b else c"]


def test_what_never_runs_is_not_changed() -> None:
    assert mutants_of(b"def f(a: 1 < 2 = b) -> 3 < 4:\n    a: Literal[5]\n") == []
    assert mutants_of(b"if TYPE_CHECKING:\n    a()\n") == []
    assert mutants_of(b"@overload\ndef f(a=1): ...\n") == []
    assert mutants_of(b"class A(B, frozen=True):\n    pass\n") == []


def test_text_that_is_filled_in_is_not_changed() -> None:
    assert changed("x = f'{a + 1}'", "constant") == []


def test_a_mutant_knows_its_line_and_which_lines_run_with_it() -> None:
    mutant = only("def f():\n    if (\n        a\n        == b\n    ):\n        'c'\n\ng = 'h'\n")
    assert (mutant.line, mutant.first, mutant.last) == (4, 2, 6)
    assert mutant.source == "== b"
    assert mutant.change == "a == b → a != b"


def test_a_cached_function_is_judged_by_all_tests() -> None:
    """It runs in whichever of them comes first: its lines are those that run at import."""
    mutant = only("@cache\ndef f(a):\n    b = a\n    return b\n")
    assert (mutant.line, mutant.first, mutant.last) == (4, 1, 2)


def test_what_is_in_no_function_knows_its_own_lines() -> None:
    source = b"class A:\n    b = (\n        True\n    )\n\n    def c(self, d=True):\n        return e\n\n\nf = True\n"
    found = [(mutant.line, mutant.first, mutant.last) for mutant in mutants_of(source)]
    assert found == [(3, 2, 4), (6, 6, 6), (7, 7, 7), (10, 10, 10)]


def test_a_change_that_compiles_to_the_same_code_is_none() -> None:
    assert changed("x = 2 * 2", "arithmetic") == []
    assert changed("x = 2 * 3", "arithmetic") == ["x = 2 + 3"]


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_every_mutant_compiles_and_keeps_the_number_of_lines(area: Area) -> None:
    texts = [path.read_bytes() for path in area.sources()]
    source = min((text for text in texts if len(text) > 2500), key=len, default=texts[0])
    found = mutants_of(source)
    assert found
    for mutant in found:
        assert mutant.applied(source).count(b"\n") == source.count(b"\n")
        assert mutant.applied(source) != source


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_every_area_has_sources_and_judges(area: Area) -> None:
    for place in area.files:
        assert (PROJECT / "src" / "ferrule" / place.removesuffix("/*")).exists()
    for place in area.tests:
        assert (PROJECT / place.removesuffix("/*")).exists()
    judges = {path.relative_to(PROJECT).as_posix() for path in area.judges()}
    assert judges
    assert any(mirrored(path) in judges for path in area.sources())


def test_every_equivalent_mutant_has_a_reason() -> None:
    text = (Path(__file__).parent / "equivalent.toml").read_text(encoding="utf-8")
    for entry in tomllib.loads(text).get("mutant", []):
        assert set(entry) <= {"file", "line", "change", "number", "why"}
        assert len(entry["why"]) > 10


def test_an_entry_with_a_number_covers_only_that_of_the_lines_that_read_alike() -> None:
    area = AREAS[0]
    path = area.sources()[0]
    (mutant,) = (each for each in mutants_of(b"a()") if each.operator == "delete")
    entry = {"file": Planted(area, path, mutant, 0).file, "line": "a()", "why": "it does nothing"}
    alike = [Planted(area, path, mutant, number) for number in range(3)]
    assert [equivalent(one, [entry]) for one in alike] == [entry] * 3
    numbered = {**entry, "number": "1"}
    assert [equivalent(one, [numbered]) for one in alike] == [None, numbered, None]
