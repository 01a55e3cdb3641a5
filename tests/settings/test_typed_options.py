"""A type checker sees every option: it takes the right ones, and refuses the others where they are written."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("typed_options.py")
REFUSED = re.compile(r"^.*typed_options\.py:(\d+): error: .*\[([\w-]+)\]$", re.MULTILINE)
MARKED = re.compile(r"# wrong: ([\w -]+)$")


def marked() -> set[tuple[int, str]]:
    """Return the lines of the program that must be refused, each with the kind of the error."""
    found = set()
    for number, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1):
        match = MARKED.search(line)
        if match:
            found.update((number, code) for code in match[1].split())
    return found


def test_wrong_options_are_refused_and_right_ones_pass() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(PROJECT / ".mypy_cache"), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    found = {(int(line), code) for line, code in REFUSED.findall(done.stdout)}
    assert len(marked()) > 20
    assert found == marked(), done.stdout + done.stderr


def test_no_public_signature_takes_any_option() -> None:
    """Where a name, a type or a bound could be wrong, a type checker tells."""
    taken = []
    for path in sorted((PROJECT / "src" / "ferrule").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.args.kwarg is None:
                continue
            annotation = node.args.kwarg.annotation
            if node.args.kwarg.arg == "options" and annotation is not None and ast.unparse(annotation) == "Any":
                taken.append(f"{path.relative_to(PROJECT)}:{node.lineno}: {node.name}")
    assert taken == []
