"""Print which test proves which requirement; the head of protocol.toml says how a test claims one."""

from __future__ import annotations

import argparse
import ast
import json
import re
import signal
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
MANIFEST_FILES = ("protocol.toml", "seeds.toml", "catalogue.toml")
WAIVERS_FILE = "waivers.toml"
PIECES = (
    *("core", "http", "sockets", "handlers", "routing", "auth", "operations", "budgets"),
    *("workers", "gateway", "web", "release"),
)
DONE = ("core", "http", "sockets", "handlers", "budgets", "routing", "operations", "auth", "workers")
"""The pieces that are built: all of theirs is proven or waived."""
STATUSES = ("proven", "long", "waived", "missing")
"""`proven` holds in every run; `long` only where a long target of the Makefile runs the test with its whole number."""
SCALES = ("FERRULE_LONG", "FERRULE_SOAK")
"""The environment variables that make a test do more than it does by default."""
PACE_MODULE, PACE_NAMES = "pace", ("LONG", "TURN", "prompt")
"""The module of the tests, and its names, that widen bounds and lower counts by default."""
CLAIMS_BY_NAME = "catalogue"
NOT_EVIDENCE = (HERE / "coverage_map.py", HERE / "test_manifest.py")
FOREIGN_FOLDERS = {"site-packages", "node_modules", "__pycache__"}

MENTION = re.compile(r"(?<![\w/-])(?:(long|always):)?(?:(spec|seed|catalogue):)?([A-Z]{3,6})-(\d{1,3})(?![\w-])")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
NUMBER = re.compile(r"(?<![\w.+-])\d")
NAME_CLAIM = re.compile(r"([a-z]{3})_(\d{2})(?:_|$)")


# The manifest


@dataclass(frozen=True)
class Requirement:
    """One row of the manifest."""

    namespace: str
    id: str
    line: str
    issue: str
    details: dict[str, str]

    @property
    def key(self) -> str:
        """Name this requirement without ambiguity."""
        return f"{self.namespace}:{self.id}"

    @property
    def has_number(self) -> bool:
        """Whether the sentence holds a number that a test may have scaled down; revisions and codes are none."""
        return NUMBER.search(DATE.sub("", self.line)) is not None


@dataclass(frozen=True)
class Waiver:
    """Why a requirement needs no test, and which requirements it only repeats."""

    reason: str
    see: tuple[str, ...] = ()


class UnclearMention(Exception):
    """A written id names no requirement, or more than one."""


class AmbiguousMention(UnclearMention):
    """A plain id is spelled alike in two namespaces."""


@dataclass
class Manifest:
    """All requirements by key, and the waivers among them."""

    requirements: dict[str, Requirement]
    waivers: dict[str, Waiver] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the spellings and the areas."""
        self.keys_by_spelling: dict[str, list[str]] = {}
        for requirement in self.requirements.values():
            self.keys_by_spelling.setdefault(requirement.id, []).append(requirement.key)
        self.areas = {requirement.id.partition("-")[0] for requirement in self.requirements.values()}

    def resolve(self, written: str) -> str:
        """Return the key of the requirement that a plain or tagged id names."""
        if written in self.requirements:
            return written
        keys = self.keys_by_spelling.get(written, [])
        if len(keys) > 1:
            raise AmbiguousMention(f"{written} is ambiguous: write {' or '.join(keys)}")
        if not keys:
            raise UnclearMention(f"{written} is not in the manifest")
        return keys[0]


def load_manifest(folder: Path = HERE) -> Manifest:
    """Read the three manifest files and the waivers."""
    rows = [row for name in MANIFEST_FILES for row in read_rows(folder / name)]
    manifest = Manifest({row.key: row for row in rows})
    manifest.waivers = read_waivers(folder / WAIVERS_FILE, manifest)
    return manifest


def read_rows(path: Path) -> Iterator[Requirement]:
    """Read the requirements of one manifest file."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    namespace = document.pop("namespace")
    for rows in document.values():
        for id_, row in rows.items():
            details = {name: value for name, value in row.items() if name not in ("line", "issue")}
            yield Requirement(namespace, id_, row["line"], row["issue"], details)


def read_waivers(path: Path, manifest: Manifest) -> dict[str, Waiver]:
    """Read the waivers by requirement key."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        manifest.resolve(written): Waiver(row["reason"], tuple(manifest.resolve(seen) for seen in row.get("see", ())))
        for written, row in document.items()
    }


# The tests


@dataclass(frozen=True)
class Problem:
    """A place in the tests that cannot be read as intended."""

    place: str
    text: str
    ambiguous: bool = False

    def __str__(self) -> str:
        """Name the place, then what is wrong there."""
        return f"{self.place}: {self.text}"


@dataclass
class Evidence:
    """What the tests claim, where their ids are unclear, and which ids stand outside any test."""

    claims: dict[str, set[str]] = field(default_factory=dict)
    long: dict[str, set[str]] = field(default_factory=dict)
    always: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def claim(self, requirement: Requirement, owners: list[Owner], how: str = "") -> None:
        """Record that these tests prove a requirement, `how` being `always`, `long` or empty."""
        for owner in owners:
            scaled_down = owner.scaled and requirement.has_number and how != "always"
            claims = self.long if how == "long" or scaled_down else self.claims
            claims.setdefault(requirement.key, set()).add(owner.name)
        if how == "always":
            self.always.add(requirement.key)

    def is_claimed(self, key: str) -> bool:
        """Whether any test claims a requirement, in every run or in the long one."""
        return key in self.claims or key in self.long


@dataclass(frozen=True)
class Owner:
    """A test, a test class or a module, and the lines it spans; `scaled` when it does less by default."""

    name: str
    lines: range
    function: str = ""
    tables: frozenset[str] = frozenset()
    scaled: bool = False


def collect_evidence(manifest: Manifest, tests: Path = TESTS) -> Evidence:
    """Read every Python file under the tests folder."""
    evidence = Evidence()
    for path in sorted(tests.rglob("*.py")):
        place = path.relative_to(tests.parent)
        if path not in NOT_EVIDENCE and not is_foreign(place):
            read_file(manifest, evidence, place.as_posix(), path.read_text(encoding="utf-8"))
    return evidence


def is_foreign(place: Path) -> bool:
    """Return whether a file was installed among the tests rather than written for them."""
    return any(part.startswith(".") or part in FOREIGN_FOLDERS for part in place.parts)


def read_file(manifest: Manifest, evidence: Evidence, place: str, source: str) -> None:
    """Add what one file claims."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        evidence.problems.append(Problem(f"{place}:{error.lineno}", f"does not parse: {error.msg}"))
        return
    reader = FileReader(place, tree, source.splitlines())
    for number, how, written in reader.mentions(manifest.areas):
        try:
            key = manifest.resolve(written)
        except UnclearMention as error:
            ambiguous = isinstance(error, AmbiguousMention)
            evidence.problems.append(Problem(f"{place}:{number}", str(error), ambiguous))
            continue
        if owners := reader.owners_of(number):
            evidence.claim(manifest.requirements[key], owners, how)
        else:
            evidence.outside.append(f"{place}:{number}: {written}")
    for owner, number, written in reader.name_claims(manifest):
        if written in manifest.requirements:
            evidence.claim(manifest.requirements[written], [owner])
        else:
            evidence.problems.append(
                Problem(f"{place}:{number}", f"the test's name claims {written}, which is unknown")
            )


class FileReader:
    """Knows which test owns which line of one file."""

    def __init__(self, place: str, tree: ast.Module, lines: list[str]) -> None:
        """Find the tests, the tables and the `Proves:` paragraph of a file."""
        self.place = place
        self.lines = lines
        collected = is_collected(Path(place).name)
        self.tests: list[Owner] = []
        self.classes: list[Owner] = []
        self.scaled = scaled_names(tree)
        if collected:
            self.find_tests(tree.body, place)
        self.tables = module_tables(tree)
        self.proves = proves_lines(tree, lines) if self.tests else range(0)

    def find_tests(self, body: list[ast.stmt], prefix: str) -> None:
        """Collect the tests of a module or class that can prove something."""
        for node in body:
            if proves_nothing(node):
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                name = f"{prefix}::{node.name}"
                scaled = is_scaled(node, self.scaled)
                self.tests.append(Owner(name, self.span(node), node.name, names_in_decorators(node), scaled))
            elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                before = len(self.tests)
                self.find_tests(node.body, f"{prefix}::{node.name}")
                if len(self.tests) > before:
                    self.classes.append(Owner(f"{prefix}::{node.name}", self.span(node)))

    def span(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> range:
        """Return the lines of a definition with its decorators and the comment directly above."""
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        while first > 1 and self.lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return range(first, (node.end_lineno or node.lineno) + 1)

    def mentions(self, areas: set[str]) -> Iterator[tuple[int, str, str]]:
        """Yield line number, `always`, `long` or nothing, and id, as written, for each mention of a known area."""
        for number, line in enumerate(self.lines, start=1):
            for match in MENTION.finditer(line):
                how, tag, area, digits = match.groups()
                if how or tag or area in areas:
                    yield number, how or "", f"{tag}:{area}-{digits}" if tag else f"{area}-{digits}"

    def owners_of(self, number: int) -> list[Owner]:
        """Return whoever proves what is written on a line."""
        if inside := [test for test in self.tests if number in test.lines]:
            return inside[-1:]
        tables = {name for name, lines in self.tables.items() if number in lines}
        if users := [test for test in self.tests if test.tables & tables]:
            return users
        if inside := [class_ for class_ in self.classes if number in class_.lines]:
            return [min(inside, key=lambda class_: len(class_.lines))]
        return [Owner(self.place, self.proves)] if number in self.proves else []

    def name_claims(self, manifest: Manifest) -> Iterator[tuple[Owner, int, str]]:
        """Yield test, line number and key for each catalogue id at the start of a test's name."""
        for test in self.tests:
            position = len("test_")
            while match := NAME_CLAIM.match(test.function, position):
                if not is_catalogue_area(match[1].upper(), manifest):
                    break
                yield test, test.lines[0], f"{CLAIMS_BY_NAME}:{match[1].upper()}-{match[2]}"
                position = match.end()


def is_collected(file_name: str) -> bool:
    """Return whether pytest collects a file of this name."""
    return file_name.startswith("test_") or file_name.endswith("_test.py")


def is_catalogue_area(area: str, manifest: Manifest) -> bool:
    """Return whether the catalogue has ids of this area."""
    return f"{CLAIMS_BY_NAME}:{area}-01" in manifest.requirements


def proves_nothing(node: ast.stmt) -> bool:
    """Return whether a definition is marked skip or xfail."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    marks = [decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in node.decorator_list]
    return any(ast.unparse(mark).endswith(("mark.skip", "mark.xfail")) for mark in marks)


def scaled_names(tree: ast.Module) -> set[str]:
    """Return the names of a module whose value depends on whether the run is a long one."""
    names = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == PACE_MODULE
        for alias in node.names
        if alias.name in PACE_NAMES
    }
    before = -1
    while before != len(names):
        before = len(names)
        for node in tree.body:
            if depends_on_scale(node, names):
                names |= defined_names(node)
    return names


def defined_names(node: ast.stmt) -> set[str]:
    """Return the names that a statement at module level defines; tests are nobody's helpers."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return set() if node.name.startswith("test") else {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
    return set()


def depends_on_scale(node: ast.AST, names: set[str]) -> bool:
    """Whether a piece of code reads one of these names, or a variable of the environment that scales."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in names:
            return True
        if isinstance(inner, ast.Constant) and inner.value in SCALES:
            return True
    return False


def is_scaled(node: ast.FunctionDef | ast.AsyncFunctionDef, names: set[str]) -> bool:
    """Whether a test does less, or bounds less, in a run that is not a long one; fixtures are not looked into."""
    arguments = {argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)}
    return "pytestmark" in names or depends_on_scale(node, names - arguments)


def names_in_decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Return the names a test's decorators use."""
    nodes = [inner for decorator in node.decorator_list for inner in ast.walk(decorator)]
    return frozenset(inner.id for inner in nodes if isinstance(inner, ast.Name))


def module_tables(tree: ast.Module) -> dict[str, range]:
    """Return the lines of each value assigned at module level."""
    tables: dict[str, range] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    tables[target.id] = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return tables


def proves_lines(tree: ast.Module, lines: list[str]) -> range:
    """Return the lines of the docstring paragraph that begins with `Proves:`."""
    if not tree.body or ast.get_docstring(tree) is None:
        return range(0)
    docstring = tree.body[0]
    numbers = range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)
    for first in numbers:
        if lines[first - 1].strip(" \"'").startswith("Proves:"):
            blanks = [number for number in numbers if number > first and not lines[number - 1].strip()]
            return range(first, min([*blanks, numbers.stop]))
    return range(0)


# The map


def status_of(key: str, manifest: Manifest, evidence: Evidence) -> str:
    """Return whether a requirement is proven in every run, or only in the long one, or waived or missing.

    Where a test that is scaled down claims a number, other tests that claim it too do not count for that number, unless
    one of them says `always:` with the id.
    """
    if key in evidence.long and key not in evidence.always:
        return "long"
    if key in evidence.claims:
        return "proven"
    waiver = manifest.waivers.get(key)
    if waiver and all(evidence.is_claimed(seen) for seen in waiver.see):
        return "waived"
    return "missing"


def requirements_of(manifest: Manifest, pieces: tuple[str, ...]) -> dict[str, list[Requirement]]:
    """Group the requirements by piece, in the order of the manifest."""
    rows = manifest.requirements.values()
    return {piece: [row for row in rows if row.issue == piece] for piece in pieces}


def count(rows: list[Requirement], manifest: Manifest, evidence: Evidence) -> dict[str, int]:
    """Count the statuses of some requirements."""
    statuses = [status_of(row.key, manifest, evidence) for row in rows]
    return {status: statuses.count(status) for status in STATUSES} | {"all": len(rows)}


def missing(manifest: Manifest, evidence: Evidence, piece: str) -> list[Requirement]:
    """Return the requirements of a piece that nothing proves or waives."""
    rows = requirements_of(manifest, (piece,))[piece]
    return [row for row in rows if status_of(row.key, manifest, evidence) == "missing"]


def print_map(manifest: Manifest, evidence: Evidence, pieces: tuple[str, ...], *, only_missing: bool) -> None:
    """Print each requirement with its tests, then the counts per piece."""
    groups = requirements_of(manifest, pieces)
    for piece, rows in groups.items():
        print(f"{piece}\n{'=' * len(piece)}")
        for row in rows:
            status = status_of(row.key, manifest, evidence)
            if status == "missing" or not only_missing:
                print_requirement(row, status, manifest, evidence)
        print()
    print(f"{'piece':<12}" + "".join(f"{name:>9}" for name in (*STATUSES, "all")))
    for piece, rows in groups.items():
        counts = count(rows, manifest, evidence)
        print(f"{piece:<12}" + "".join(f"{counts[name]:>9}" for name in (*STATUSES, "all")))
    print(
        "\nproven: in every run; long: with its number only in the long runs (make fuzz, make faults, make soak).\n"
        "A suite of others counts as long too: make conformance, make autobahn; and what counts lines: make coverage."
    )


def print_requirement(row: Requirement, status: str, manifest: Manifest, evidence: Evidence) -> None:
    """Print one requirement with what stands for it."""
    print(f"{row.key:<18} {status:<8} {row.line}")
    for test in sorted(evidence.claims.get(row.key, ())):
        print(f"{'':<18} {test}")
    for test in sorted(evidence.long.get(row.key, ())):
        print(f"{'':<18} {test} (long)")
    if not evidence.is_claimed(row.key) and (waiver := manifest.waivers.get(row.key)):
        print(f"{'':<18} {waiver.reason} {', '.join(waiver.see)}".rstrip())


def print_notes(evidence: Evidence) -> None:
    """Say on stderr which mentions are unclear and which prove nothing."""
    for mention in evidence.outside:
        print(f"note: {mention} stands outside any test", file=sys.stderr)
    for problem in evidence.problems:
        print(f"error: {problem}", file=sys.stderr)


def as_data(manifest: Manifest, evidence: Evidence, pieces: tuple[str, ...], *, only_missing: bool) -> dict[str, Any]:
    """Return the map as plain data."""
    groups = requirements_of(manifest, pieces)
    rows = {row.key: describe(row, manifest, evidence) for group in groups.values() for row in group}
    shown = {key: row for key, row in rows.items() if row["status"] == "missing" or not only_missing}
    return {
        "counts": {piece: count(group, manifest, evidence) for piece, group in groups.items()},
        "requirements": shown,
        "problems": [str(problem) for problem in evidence.problems],
        "outside": evidence.outside,
    }


def describe(row: Requirement, manifest: Manifest, evidence: Evidence) -> dict[str, Any]:
    """Return one requirement of the map as plain data."""
    document: dict[str, Any] = {"line": row.line, "issue": row.issue, **row.details}
    document["status"] = status_of(row.key, manifest, evidence)
    document["tests"] = sorted(evidence.claims.get(row.key, ()))
    document["long"] = sorted(evidence.long.get(row.key, ()))
    if waiver := manifest.waivers.get(row.key):
        document["waiver"] = {"reason": waiver.reason, "see": list(waiver.see)}
    return document


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; exit 1 when a mention is unclear."""
    parser = argparse.ArgumentParser(description="Which test proves which requirement.")
    parser.add_argument("--piece", choices=PIECES, help="show this piece of work only")
    parser.add_argument("--missing", action="store_true", help="show only what nothing proves or waives")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    pieces = (options.piece,) if options.piece else PIECES
    manifest = load_manifest()
    evidence = collect_evidence(manifest)
    if options.json:
        document = as_data(manifest, evidence, pieces, only_missing=options.missing)
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print_map(manifest, evidence, pieces, only_missing=options.missing)
        print_notes(evidence)
    return 1 if evidence.problems else 0


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
