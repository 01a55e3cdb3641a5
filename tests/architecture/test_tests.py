"""Every test can fail: it asserts something, or calls a part of the tests that does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
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
