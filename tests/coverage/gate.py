"""Run the tests, count which lines of the source they run, and hold the gates: `make coverage`.

Over 80 % of everything, and every line of the state machine and of the flows of resources, tools and prompts. On Python
3.11 coverage loses lines of a coroutine after an exception was thrown into it; newer Pythons count them.
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
    "resources": ("server/offers/resources.py", "server/notifications/subscriptions.py", "schema/resources.py"),
    "tools": (
        "server/offers/tools.py",
        "server/offers/tool_entry.py",
        "server/offers/function_tool.py",
        "schema/tools.py",
    ),
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


def measure(folder: Path, given: list[str]) -> dict[str, Any]:
    """Run the tests in a folder for what is measured; return the report."""
    settings = str(HERE / "coverage.ini")
    environment = {**os.environ, "COVERAGE_PROCESS_START": settings, "COVERAGE_FILE": str(folder / "data")}
    ignored = [f"--ignore={name}" for name in LEFT_OUT]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "4", "--dist", "loadfile", *ignored, *given]
    subprocess.run(command, cwd=PROJECT, env=environment, check=True)
    tool = [sys.executable, "-m", "coverage"]
    for step in (["combine", "-q"], ["json", "-q", "-o", str(folder / "report.json")]):
        subprocess.run([*tool, step[0], f"--rcfile={settings}", *step[1:]], cwd=PROJECT, env=environment, check=True)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return report


def main() -> int:
    """Measure and judge; 1 where a gate is missed."""
    with tempfile.TemporaryDirectory() as folder:
        report = measure(Path(folder), sys.argv[1:])
    missed = shortfalls(report)
    print(f"{report['totals']['percent_covered']:.1f} % of all lines are run")
    for each in missed:
        print(f"missed: {each}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
