"""Run the tests, count which lines of the source they run, and hold the gates.

Over 80 % of everything, and every line of the state machine and of the flows of resources, tools and prompts. On Python
3.11 coverage loses lines of a coroutine after an exception was thrown into it; newer Pythons count them, and faster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
OVERALL = 80.0
"""Per cent of all lines."""
FLOWS = {
    "state machine": ("protocol/session.py",),
    "resources": (
        "server/offers/resources.py",
        "server/offers/resource_entry.py",
        "server/notifications/subscriptions.py",
        "schema/resources.py",
    ),
    "tools": ("server/offers/tools.py", "server/offers/tool_entry.py", "schema/tools.py"),
    "prompts": ("server/offers/prompts.py", "schema/prompts.py"),
}
"""What is covered wholly, by the modules it lives in."""
LEFT_OUT = ("tests/mutants", "tests/conformance", "tests/coverage", "tests/docs", "tests/browser")
"""Tests of other things than lines, and those that start what they test in processes of their own."""


def shortfalls(report: dict[str, Any]) -> list[str]:
    """Return which gates a report of coverage misses, and by which lines."""
    found = []
    overall = report["totals"]["percent_covered"]
    if overall <= OVERALL:
        found.append(f"{overall:.1f} % of all lines are run; more than {OVERALL:.0f} % are wanted")
    files = {name.partition("src/ferrule/")[2]: facts for name, facts in report["files"].items()}
    for flow, modules in FLOWS.items():
        for module in modules:
            if module not in files:
                found.append(f"{flow}: {module} was not measured")
            elif files[module]["missing_lines"]:
                lines = ", ".join(map(str, files[module]["missing_lines"]))
                found.append(f"{flow}: {module} is not run at {lines}")
    return found


def measure(workers: int = 4) -> tuple[bool, dict[str, Any]]:
    """Run every test that tells of lines; return whether all passed, and the report, of failed tests as well."""
    settings = str(HERE / "coverage.ini")
    ignored = [f"--ignore={name}" for name in LEFT_OUT]
    tests = ["-q", "-n", str(workers), "--dist", "loadfile", "--reruns", "1", *ignored]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        environment = {**os.environ, "COVERAGE_PROCESS_START": settings, "COVERAGE_FILE": str(Path(folder) / "data")}
        environment.pop("FERRULE_LONG", None)
        if sys.version_info >= (3, 12):
            # Counts a line when it is run first, and costs nothing afterwards.
            environment.setdefault("COVERAGE_CORE", "sysmon")

        def run(*step: str) -> int:
            return subprocess.run([sys.executable, "-m", *step], cwd=PROJECT, env=environment, check=False).returncode

        ended = run("pytest", *tests)
        for step in (["combine", "-q"], ["json", "-q", "-o", str(report)]):
            if failed := run("coverage", *step, f"--rcfile={settings}"):
                raise RuntimeError(f"coverage {step[0]} ended with {failed}, after the tests ended with {ended}")
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return ended == 0, found
