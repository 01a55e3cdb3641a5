"""Python files that are programs of their own, as servers of other libraries are, and not to be loaded by ours."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

OTHER_LIBRARIES = frozenset({"mcp", "fastmcp"})
OURS = "ferrule"


def is_program(path: str) -> bool:
    """Whether a file is to be started as it is: it is a server of another library, or a program without any.

    A file that imports ours is loaded by `ferrule run`; so is one that cannot be read, which says why.
    """
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    imported = _imported(tree)
    if OURS in imported:
        return False
    if imported & OTHER_LIBRARIES or _has_main(tree):
        return True
    return imported <= sys.stdlib_module_names


def _imported(tree: ast.Module) -> set[str]:
    """Return the names of the packages a file imports, anywhere in it; a relative import is one of its own."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." if node.level else (node.module or "").partition(".")[0])
    return names


def _has_main(tree: ast.Module) -> bool:
    """Whether a file does something only where it is the program: `if __name__ == "__main__"`."""
    for node in tree.body:
        if isinstance(node, ast.If) and any(
            isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
        ):
            return True
    return False
