"""Planted bugs: every small change of a source file that its tests should notice.

A change is an edit of the text, made at the position of a syntax node, so that all other lines keep their numbers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
"""Each comparison, and the one that is true when it is false."""

BOUNDARY: dict[type[ast.cmpop], str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
"""Each ordering, and the one that differs for equal values only."""

ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
}

SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    operator: str
    start: int
    end: int
    """The bytes that are replaced."""
    text: str
    line: int
    first: int
    last: int
    """The lines of the function that is changed, or of the statement where it is in none.

    Not the line alone: on Python 3.11 coverage loses lines of a coroutine after an exception was thrown into it.
    """
    source: str
    """The line as it stands, without its indentation."""
    change: str
    """What is changed into what."""

    def applied(self, source: bytes) -> bytes:
        """Return the source with the change in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants_of(source: bytes) -> list[Mutant]:
    """Return every mutant of a file, in the order of the text; those that compile to the same code are left out."""
    planter = _Planter(source)
    found = sorted(planter.body(planter.tree.body), key=lambda mutant: (mutant.start, mutant.end, mutant.text))
    same = compile(source, "mutant", "exec")
    return [mutant for mutant in found if compile(mutant.applied(source), "mutant", "exec") != same]


class _Planter:
    """Walks one file."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.tree = ast.parse(source)
        self.lines = source.decode().splitlines()
        self.offsets = [0]
        for line in source.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))
        self.first = self.last = 0
        self.inside = False

    def body(self, statements: list[ast.stmt]) -> Iterator[Mutant]:
        for statement in statements:
            yield from self.statement(statement)

    def statement(self, node: ast.stmt) -> Iterator[Mutant]:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal | ast.Pass):
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from self.definition(node)
            return
        inner = [*blocks(node)]
        if not self.inside:
            self.first, self.last = node.lineno, node.end_lineno or node.lineno
        yield from self.deleted(node)
        yield from self.returned(node)
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr) and part is not getattr(node, "annotation", None):
                yield from self.expression(part)
            elif isinstance(part, ast.withitem):
                yield from self.expression(part.context_expr)
        yield from self.condition(getattr(node, "test", None))
        yield from self.augmented(node)
        for block in inner:
            yield from self.body(block)

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[Mutant]:
        if any("overload" in ast.unparse(decorator) for decorator in node.decorator_list):
            return
        before = (self.first, self.last, self.inside)
        if not isinstance(node, ast.ClassDef):
            self.first, self.last = node.lineno, max(node.lineno, node.body[0].lineno - 1)
            for default in (*node.args.defaults, *(given for given in node.args.kw_defaults if given is not None)):
                yield from self.expression(default)
            self.first, self.last, self.inside = node.body[0].lineno, node.end_lineno or node.lineno, True
            if any("cache" in ast.unparse(decorator) for decorator in node.decorator_list):
                # It runs in whichever test comes first, so all judge it, as they judge what runs at import.
                self.first, self.last = node.decorator_list[0].lineno, node.lineno
        yield from self.body(node.body)
        self.first, self.last, self.inside = before

    def expression(self, top: ast.expr) -> Iterator[Mutant]:
        """Walk an expression; the texts inside f-strings have no usable positions before Python 3.12."""
        waiting: list[ast.AST] = [top]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.JoinedStr):
                continue
            yield from self.node(node)
            waiting.extend(ast.iter_child_nodes(node))

    def node(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            yield from self.compared(node)
        elif isinstance(node, ast.BoolOp):
            yield from self.joined(node)
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            if not isinstance(node.left, ast.Constant) or not isinstance(node.left.value, str | bytes):
                old, new = ARITHMETIC[type(node.op)]
                yield self.between("arithmetic", node, node.left, node.right, old, new)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield self.replaced("negate", node, f"bool({self.text(node.operand)})")
        elif isinstance(node, ast.Constant):
            yield from self.constant(node)
        elif isinstance(node, ast.IfExp):
            yield from self.condition(node.test)
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield from self.condition(test)

    def compared(self, node: ast.Compare) -> Iterator[Mutant]:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            old, new = COMPARE[type(operator)]
            yield self.between("compare", node, left, right, old, new)
            if type(operator) in BOUNDARY:
                yield self.between("boundary", node, left, right, old, BOUNDARY[type(operator)])
            left = right

    def joined(self, node: ast.BoolOp) -> Iterator[Mutant]:
        """Join all operands the other way round."""
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        start, at = self.span(node)[0], self.span(node.values[0])[1]
        text = self.source[start:at].decode()
        for value in node.values[1:]:
            begin, end = self.span(value)
            gap = self.source[at:begin].decode()
            text += re.sub(rf"\b{old}\b", new, gap, count=1) + self.source[begin:end].decode()
            at = end
        text += self.source[at : self.span(node)[1]].decode()
        yield self.replaced("and/or", node, f"({text})")

    def constant(self, node: ast.Constant) -> Iterator[Mutant]:
        value = node.value
        if isinstance(value, bool):
            yield self.replaced("constant", node, str(not value))
        elif isinstance(value, int):
            yield self.replaced("constant", node, str(value + 1))
            if value > 0:
                yield self.replaced("constant", node, str(value - 1))
        elif isinstance(value, float):
            yield self.replaced("constant", node, str(value + 1))

    def condition(self, test: ast.AST | None) -> Iterator[Mutant]:
        """Negate what is decided on, where no other change does."""
        if not isinstance(test, ast.expr) or isinstance(test, ast.Constant):
            return
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return
        yield self.replaced("negate", test, f"(not ({self.text(test)}))")

    def augmented(self, node: ast.stmt) -> Iterator[Mutant]:
        if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
            old, new = ARITHMETIC[type(node.op)]
            yield self.between("arithmetic", node, node.target, node.value, f"{old}=", f"{new}=")

    def returned(self, node: ast.stmt) -> Iterator[Mutant]:
        if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield self.replaced("return", node.value, "None" + "\n" * self.text(node.value).count("\n"))

    def deleted(self, node: ast.stmt) -> Iterator[Mutant]:
        if not isinstance(node, SIMPLE):
            return
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call | ast.Await):
            return
        if isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
            return
        if isinstance(node, ast.AnnAssign) and (isinstance(node.target, ast.Name) or node.value is None):
            return
        start, end = self.span(node)
        text = self.source[start:end].decode()
        yield self.mutant("delete", start, end, "pass" + "\n" * text.count("\n"), f"{shortened(text)} → pass")

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node begins and ends, in bytes."""
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.offsets[node.lineno - 1] + node.col_offset
        return start, self.offsets[node.end_lineno - 1] + node.end_col_offset

    def between(self, operator: str, whole: ast.AST, left: ast.AST, right: ast.AST, old: str, new: str) -> Mutant:
        """Replace the operator that stands between two nodes."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.source[start:end].decode()
        word = r"\s+".join(re.escape(part) for part in old.split())
        match = re.search(rf"\b{word}\b" if old[0].isalpha() else word, gap)
        assert match is not None, f"no {old!r} in {gap!r}"
        begin = start + len(gap[: match.start()].encode())
        finish = start + len(gap[: match.end()].encode())
        before, after = self.span(whole)
        wanted = f"{self.source[before:begin].decode()}{new}{self.source[finish:after].decode()}"
        return self.mutant(operator, begin, finish, new, f"{shortened(self.text(whole))} → {shortened(wanted)}")

    def replaced(self, operator: str, node: ast.AST, new: str) -> Mutant:
        start, end = self.span(node)
        return self.mutant(operator, start, end, new, f"{shortened(self.text(node))} → {shortened(new)}")

    def mutant(self, operator: str, start: int, end: int, text: str, change: str) -> Mutant:
        line = self.source.count(b"\n", 0, start) + 1
        source = self.lines[line - 1].strip()
        return Mutant(operator, start, end, text, line, self.first, self.last, source, change)


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Return the lists of statements inside a statement."""
    for field in ("body", "orelse", "finalbody"):
        if block := getattr(node, field, None):
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def shortened(text: str) -> str:
    """Return code as one line."""
    return re.sub(r"\s+", " ", text).strip()
