"""The gates of coverage hold, and tell what is missing where they do not: `make coverage` measures all."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
LONG = bool(os.environ.get("FERRULE_LONG"))
WORKERS = int(os.environ.get("FERRULE_WORKERS", "4"))
"""How many processes share the tests of `make coverage`."""


def load_gate() -> Any:
    """Import the tool beside this file, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("coverage_gate", HERE / "gate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gate = load_gate()
MODULES = [module for modules in gate.FLOWS.values() for module in modules]


def report(percent: float = 95.0, **missing: list[int]) -> dict[str, Any]:
    """Make a report of coverage."""
    files = {f"src/ferrule/{module}": {"missing_lines": []} for module in MODULES}
    for name, lines in missing.items():
        module = next(module for module in MODULES if module.endswith(f"{name}.py"))
        files[f"src/ferrule/{module}"] = {"missing_lines": lines}
    return {"totals": {"percent_covered": percent}, "files": files}


def test_what_is_covered_passes() -> None:
    assert gate.shortfalls(report()) == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (report(80.0), "80.0 % of all lines are run; more than 80 % are wanted"),
        (report(session=[7, 9]), "state machine: protocol/session.py is not run at 7, 9"),
        (report(tool_entry=[1]), "tools: server/offers/tool_entry.py is not run at 1"),
    ],
)
def test_what_is_missing_is_told(given: dict[str, Any], told: str) -> None:
    assert gate.shortfalls(given) == [told]


def test_a_flow_that_was_not_measured_does_not_pass() -> None:
    given = report()
    del given["files"]["src/ferrule/protocol/session.py"]
    assert gate.shortfalls(given) == ["state machine: protocol/session.py was not measured"]


def test_every_module_of_a_flow_is_there() -> None:
    assert [module for module in MODULES if not (PROJECT / "src" / "ferrule" / module).is_file()] == []


@pytest.mark.parametrize(("code", "passed"), [(0, True), (1, False)])
def test_what_was_measured_is_told_where_a_test_failed_too(
    code: int, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if "json" in command:
            Path(command[command.index("-o") + 1]).write_text(json.dumps(report()), encoding="utf-8")
        return subprocess.CompletedProcess(command, code if "pytest" in command else 0)

    monkeypatch.setattr(gate.subprocess, "run", run)
    assert gate.measure() == (passed, report())


def test_where_nothing_was_measured_there_is_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 3))
    with pytest.raises(RuntimeError, match="coverage combine ended with 3, after the tests ended with 3"):
        gate.measure()


@pytest.mark.skipif(not LONG, reason="runs all other tests: `make coverage`")
@pytest.mark.timeout(0)
def test_the_gates_hold() -> None:
    """long:TEST-07, long:SUBS-15, long:TOOL-24, long:PRMT-12."""
    passed, report = gate.measure(WORKERS)
    print(f"{report['totals']['percent_covered']:.1f} % of all lines are run")
    missing = gate.shortfalls(report)
    if not passed:
        missing.append("a test failed: its name stands above")
    assert missing == []
