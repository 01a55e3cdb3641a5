"""The rules decide without looking around: no clock, no randomness, no input or output, no tasks."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest
from source_tree import PACKAGE, Module, modules

PURE = ("protocol", "wire", "schema", "identity", "balancing")
PURE_MODULES = (
    *("supervision/backoff.py", "supervision/restart.py"),
    *("telemetry/dashboard.py", "telemetry/exposition.py", "telemetry/metrics.py", "telemetry/redaction.py"),
    *("telemetry/table.py",),
)
"""Modules that only compute, in parts that do more."""

KNOWN = {"msgspec", "cryptography", PACKAGE}
HARMLESS = {
    *(
        "__future__",
        "abc",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "contextlib",
        "contextvars",
        "copy",
        "dataclasses",
        "enum",
        "errno",
        "fnmatch",
        "functools",
    ),
    *(
        "hashlib",
        "hmac",
        "itertools",
        "json",
        "logging",
        "math",
        "operator",
        "re",
        "string",
        "struct",
        "types",
        "typing",
    ),
}
"""What computes only. Logging is here for warnings; what it does is the application's choice."""

FORBIDDEN_CALLS = {"open", "print", "input", "breakpoint", "exec", "eval", "__import__"}
CLOCKS_AND_CHANCE = {
    "asyncio",
    "time",
    "datetime",
    "random",
    "secrets",
    "uuid",
    "socket",
    "select",
    "selectors",
    "os",
} | {*("threading", "multiprocessing", "subprocess", "signal", "io", "pathlib", "tempfile", "shutil", "ssl", "sys")}


def pure_modules() -> list[Module]:
    """Return the modules that must be pure."""
    return [module for module in modules() if module.part in PURE or module.place in PURE_MODULES]


def outside(module: Module) -> Iterator[str]:
    """Yield what a module uses beyond computing."""
    for found in module.imports():
        name = found.module.partition(".")[0]
        if name not in KNOWN and name not in HARMLESS:
            yield f"{module.place}:{found.line} imports {found.module}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            yield f"{module.place}:{node.lineno} calls {node.func.id}"


@pytest.mark.parametrize("module", pure_modules(), ids=lambda module: module.place)
def test_it_only_computes(module: Module) -> None:
    assert list(outside(module)) == []


def test_no_clock_and_no_chance_counts_as_harmless() -> None:
    assert not CLOCKS_AND_CHANCE & HARMLESS
    assert sys.stdlib_module_names >= CLOCKS_AND_CHANCE


def test_the_rules_wait_for_nothing() -> None:
    waiting = [
        f"{module.place}:{node.lineno}"
        for module in modules()
        if module.part == "protocol"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]
    assert waiting == []
