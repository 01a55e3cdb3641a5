"""Every test can fail: it asserts something, or calls a part of the tests that does. None is written twice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src" / "ferrule"
CHECKS = {"raises", "warns", "fail", "assert_called_once_with"}
"""Calls of pytest and its like that fail by themselves."""
HOPS = 2
"""How many calls lie between a test and what asserts, at most."""
BY_EXCEPTION = {
    "test_a_block_compiles": "compile raises",
    "test_no_module_imports_itself_through_others": "the sorter raises on a cycle",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[Path, Function]]:
    """Yield every function of the tests, methods and nested ones too, with its file."""
    for path in sorted(TESTS.rglob("*.py")):
        if not any(part.startswith(".") for part in path.relative_to(TESTS).parts):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, Function):
                    yield path, node


def called(node: ast.AST) -> set[str]:
    """Return the names that a piece of code calls or hands on."""
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return names | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def asserts(node: ast.AST) -> bool:
    """Whether a piece of code fails by itself when something is wrong."""
    if any(isinstance(inner, ast.Assert | ast.Raise) for inner in ast.walk(node)):
        return True
    return bool(called(node) & CHECKS)


def test_every_test_can_fail() -> None:
    everything = list(functions())
    asserting = {node.name for _, node in everything if asserts(node)}
    for _ in range(HOPS):
        asserting |= {node.name for _, node in everything if called(node) & asserting}
    empty = [
        f"{path.relative_to(TESTS)}:{node.lineno}: {node.name}"
        for path, node in everything
        if path.name.startswith("test_")
        and node.name.startswith("test_")
        and node.name not in BY_EXCEPTION
        and not asserts(node)
        and not called(node) & asserting
    ]
    assert empty == []


def every_test_in(path: Path) -> Iterator[Function]:
    """Yield the tests of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function) and node.name.startswith("test_"):
            yield node


def what_it_does(node: Function) -> str:
    """Return a test without its name and its docstring."""
    body = node.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return "".join(map(ast.dump, [*node.decorator_list, *body]))


def test_no_test_is_written_twice() -> None:
    """TEST-14: duplicates are merged."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in every_test_in(path):
            found.setdefault(what_it_does(node), []).append(f"{path.relative_to(TESTS)}: {node.name}")
    assert [places for places in found.values() if len(places) > 1] == []


def test_no_test_hides_another_of_its_name() -> None:
    """TEST-14"""
    hidden = []
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for scope in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
            names = Counter(node.name for node in scope.body if isinstance(node, Function))
            hidden += [
                f"{path.name}: {name}" for name, times in names.items() if times > 1 and name.startswith("test_")
            ]
    assert hidden == []


def test_every_folder_of_the_source_has_its_tests_in_one_place() -> None:
    """TEST-14: the tests mirror the source, so a unit has one module of tests and one place to look for it."""
    folders = {path.parent.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"}
    assert [str(folder) for folder in sorted(folders) if not list((TESTS / folder).glob("test_*.py"))] == []


def test_no_two_folders_have_a_module_of_one_name() -> None:
    """The folders of the tests stand in `sys.path`, so the first of two would be imported by the tests of both."""
    names = Counter(path.name for path in TESTS.rglob("*.py") if not path.name.startswith("test_"))
    del names["conftest.py"]
    assert [name for name, times in names.items() if times > 1] == []
