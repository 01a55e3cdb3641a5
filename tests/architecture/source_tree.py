"""Reading the source without running it: modules, what they import, and when."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ferrule"
PACKAGE = "ferrule"


@dataclass(frozen=True)
class Import:
    """One import of a module: what, where, and when it happens."""

    module: str
    line: int
    late: bool
    """Inside a function, so not when the module is imported."""
    typing_only: bool
    """Under `if TYPE_CHECKING`, so never."""


@dataclass(frozen=True)
class Module:
    """One file of the source."""

    path: Path
    name: str

    @property
    def place(self) -> str:
        """The path below the package, for messages."""
        return self.path.relative_to(SOURCE).as_posix()

    @property
    def part(self) -> str:
        """The folder or file at the top of the package it belongs to."""
        return self.path.relative_to(SOURCE).parts[0].removesuffix(".py")

    @property
    def text(self) -> str:
        """The source."""
        return self.path.read_text(encoding="utf-8")

    @property
    def tree(self) -> ast.Module:
        """The source, parsed."""
        return parsed(self.path)

    def imports(self) -> list[Import]:
        """Return every import, wherever it stands."""
        return list(imports_in(self.tree.body, late=False, typing_only=False))


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a file once."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of the package."""
    return tuple(Module(path, dotted(path)) for path in sorted(SOURCE.rglob("*.py")))


def dotted(path: Path) -> str:
    """Write a file's path as the name it is imported by."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_in(body: list[ast.stmt], *, late: bool, typing_only: bool) -> Iterator[Import]:
    """Find the imports among some statements and inside them."""
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, late, typing_only)
        elif isinstance(node, ast.ImportFrom):
            yield from named_imports(node, late, typing_only)
        else:
            inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            unreal = typing_only or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
            for part in blocks_of(node):
                yield from imports_in(part, late=inside, typing_only=unreal)


def named_imports(node: ast.ImportFrom, late: bool, typing_only: bool) -> Iterator[Import]:
    """Read `from x import y`, where y may be a module itself."""
    assert node.level == 0, f"a relative import in line {node.lineno}"
    module = node.module or ""
    names = {f"{module}.{alias.name}" for alias in node.names}
    inner = sorted(name for name in names if name.startswith(PACKAGE) and is_module(name))
    for name in inner or [module]:
        yield Import(name, node.lineno, late, typing_only)


def is_module(name: str) -> bool:
    """Return whether a dotted name is a file or folder of the package."""
    path = SOURCE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def blocks_of(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements within a statement."""
    for field in ("body", "orelse", "finalbody"):
        if part := getattr(node, field, None):
            yield part
    for handler in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield handler.body
