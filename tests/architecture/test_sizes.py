"""Small rooms with honest names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from source_tree import Module, modules

LONGEST_MODULE = 600
LONGEST_FUNCTION = 60

EMPTY_WORDS = {"manager", "managers", "helper", "helpers", "util", "utils", "common", "shared", "base", "impl", "info"}
EMPTY_STARTS = ("process_", "do_")
WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

WORDS_OF_THE_SPECIFICATION = {
    ("client/client.py", "server_info"),
    ("routing/client.py", "server_info"),
    ("routing/combined/client.py", "server_info"),
    ("client/link/negotiation.py", "_server_info"),
    ("server/calls/context.py", "info"),
}
"""`serverInfo` and the log level `info` are the specification's own."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions() -> Iterator[tuple[Module, Definition]]:
    """Yield every class and function."""
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, Definition):
                yield module, node


def length(node: Definition) -> int:
    """Count the lines of a definition."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def is_empty(name: str) -> bool:
    """Return whether a name says nothing."""
    words = {word.lower() for word in WORDS.findall(name)}
    return bool(words & EMPTY_WORDS) or name.lstrip("_").startswith(EMPTY_STARTS)


def test_no_module_is_longer_than_a_sitting() -> None:
    lengths = {module.place: len(module.text.splitlines()) for module in modules()}
    assert {place: lines for place, lines in lengths.items() if lines > LONGEST_MODULE} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{module.place}:{node.name}": length(node)
        for module, node in definitions()
        if not isinstance(node, ast.ClassDef) and length(node) > LONGEST_FUNCTION
    }
    assert long == {}


def test_every_name_says_something() -> None:
    empty = {(module.place, node.name) for module, node in definitions() if is_empty(node.name)}
    empty |= {(module.place, module.path.stem) for module in modules() if is_empty(module.path.stem)}
    assert sorted(empty - WORDS_OF_THE_SPECIFICATION) == []


def test_an_empty_name_is_noticed() -> None:
    for name in ("ConnectionManager", "string_utils", "_helper", "do_it", "process_frame", "BaseTool", "impl"):
        assert is_empty(name)
    for name in ("Basement", "document", "processed", "commonly", "information"):
        assert not is_empty(name)


def misplaced_texts(tree: ast.Module) -> list[int]:
    """Return the lines of bare texts that stand under nothing they could describe."""
    found = []
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for before, statement in pairwise(body):
            if is_text(statement) and not isinstance(before, ast.Assign | ast.AnnAssign):
                found.append(statement.lineno)
    return found


def is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a text and nothing else."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def test_a_text_stands_right_under_what_it_describes() -> None:
    assert [(module.place, line) for module in modules() for line in misplaced_texts(module.tree)] == []


def test_a_text_that_describes_nothing_is_noticed() -> None:
    text = '"""Doc."""\nx = 1\n"""Of x."""\n"""Of nothing."""\nclass A:\n    """Doc."""\n    y = 1\n    """Of y."""\n'
    assert misplaced_texts(ast.parse(text)) == [4]
