"""Checking a server in a test."""

from __future__ import annotations

from typing import Any

from ferrule.check.era import BOTH, Era
from ferrule.check.examination import Examination, Wanted
from ferrule.check.report import Finding, Report
from ferrule.check.target import wire_maker


async def check(
    target: Any,
    *only: str,
    eras: tuple[Era, ...] = BOTH,
    seconds: float = 20.0,
    calls: dict[str, dict[str, Any]] | None = None,
) -> Report:
    """Check a target."""
    wanted = Wanted(eras=eras, only=only, seconds=seconds, calls=calls or {})
    return await Examination(str(target), wire_maker(target, {}, {}, None), wanted).run()


def findings(report: Report) -> list[Finding]:
    """Return what failed, or is warned of."""
    return [finding for finding in report.findings if finding.outcome in ("fail", "warn")]


def named(report: Report) -> list[str]:
    """Return the names of what failed, or is warned of, with how."""
    return [f"{finding.outcome} {finding.rule}" for finding in findings(report)]
