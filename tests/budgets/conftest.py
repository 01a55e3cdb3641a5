"""The modules of this folder import each other; a test that failed says so to its fixtures."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note on a test whether it failed, for a fixture that cleans up after it."""
    report = yield
    if call.when == "call":
        item.failed = report.failed  # type: ignore[attr-defined]
    return report
