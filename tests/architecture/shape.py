"""Count the source: sizes, density, names and import rings. Run it to see the figures of any tree.

`python tests/architecture/shape.py [SOURCE]` prints one line a figure.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

SMALL = 60
"""Lines of code below which a module may be a shard of another."""
PUBLIC_METHODS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
NOUNS = {"sampling", "spelling", "polling", "timing", "framing", "error_mapping"}
"""Words in -ing that name a thing."""


class Source:
    """The modules of a package, parsed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts: dict[str, str] = {}
        for path in sorted(root.rglob("*.py")):
            self.texts[self._name(path)] = path.read_text(encoding="utf-8")
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}

    def _name(self, path: Path) -> str:
        """Return the dotted name of a file."""
        parts = [self.root.name, *path.relative_to(self.root).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        return ".".join(parts)

    def packages(self) -> set[str]:
        """Return the names of folders."""
        return {name for name in self.texts if any(other.startswith(name + ".") for other in self.texts)}

    def rooms(self) -> list[str]:
        """Return the names of modules that are no package."""
        return sorted(self.texts.keys() - self.packages())

    def code_lines(self, name: str) -> int:
        """Count the lines of a module without blanks, comments, docstrings and bare texts."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.texts[name]).readline):
            if token.type not in LAYOUT:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.trees[name]):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return len(lines)

    def nodes(self) -> Iterator[ast.AST]:
        """Yield every node of every module."""
        for tree in self.trees.values():
            yield from ast.walk(tree)

    def imports(self) -> dict[str, set[str]]:
        """Return which modules each module imports, late and for typing included."""
        graph: dict[str, set[str]] = {}
        for name, tree in self.trees.items():
            graph[name] = set()
            for node in ast.walk(tree):
                for found in self._imported(node):
                    if found in self.texts and found != name:
                        graph[name].add(found)
        return graph

    def _imported(self, node: ast.AST) -> Iterator[str]:
        """Yield the modules an import statement may name."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from [name for name in inner if name in self.texts] or [node.module]


def largest_ring(graph: dict[str, set[str]]) -> list[str]:
    """Return the largest set of modules that import each other, in a circle or through others; Tarjan's algorithm."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    largest: list[str] = []

    def visit(name: str) -> None:
        nonlocal largest
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            at = stack.index(name)
            ring = stack[at:]
            del stack[at:]
            if len(ring) > max(len(largest), 1):
                largest = sorted(ring)

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return largest


def public_attributes(node: ast.ClassDef) -> set[str]:
    """Return the names of a class and of its instances that do not begin with an underscore, inherited ones aside."""
    names: set[str] = set()
    for part in node.body:
        if isinstance(part, PUBLIC_METHODS):
            names.add(part.name)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            names.add(part.target.id)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and ast.unparse(inner.value) == "self":
            names.add(inner.attr)
    return {name for name in names if not name.startswith("_")}


def with_inherited(source: Source) -> dict[str, set[str]]:
    """Return the public attributes of every class, those of its bases in the package included."""
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for node in source.nodes():
        if isinstance(node, ast.ClassDef):
            own[node.name] = own.get(node.name, set()) | public_attributes(node)
            bases.setdefault(node.name, []).extend(base.id for base in node.bases if isinstance(base, ast.Name))

    def whole(name: str, seen: frozenset[str]) -> set[str]:
        found = set(own.get(name, ()))
        for base in bases.get(name, ()):
            if base not in seen:
                found |= whole(base, seen | {base})
        return found

    return {name: whole(name, frozenset({name})) for name in own}


def figures(source: Source) -> dict[str, float]:
    """Count a source tree."""
    rooms = source.rooms()
    sizes = {name: source.code_lines(name) for name in source.texts}
    thousands = sum(sizes.values()) / 1000
    nodes = list(source.nodes())
    conditional = sum(isinstance(node, ast.IfExp) for node in nodes)
    comprehensions = sum(isinstance(node, COMPREHENSIONS) for node in nodes)
    anything = sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)
    stems = [name.rpartition(".")[2] for name in rooms]
    classes = with_inherited(source)
    return {
        "modules": len(rooms),
        "packages": len(source.packages()),
        "lines of code": sum(sizes.values()),
        "modules under 60 lines": sum(sizes[name] < SMALL for name in rooms),
        "conditional expressions per 1000": round(conditional / thousands, 1),
        "comprehensions per 1000": round(comprehensions / thousands, 1),
        "Any per 1000": round(anything / thousands, 1),
        "gerund module names": sum(stem.endswith("ing") and stem not in NOUNS for stem in stems),
        "public attributes of the largest class": max(map(len, classes.values()), default=0),
        "modules in the largest ring": len(largest_ring(source.imports())),
    }


if __name__ == "__main__":
    tree = Source(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "src" / "ferrule")
    for figure, value in figures(tree).items():
        print(f"{value:>8} {figure}")
    print("largest ring:", *largest_ring(tree.imports()))
    widest = sorted(with_inherited(tree).items(), key=lambda item: -len(item[1]))[:5]
    print("largest classes:", *(f"{name} {len(names)}" for name, names in widest))
