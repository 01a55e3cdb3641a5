"""What one run of a scenario is worth, from what the suite left behind. Pure: no processes, no files.

The suite's own word is not enough: it forgives a server its warnings, calls a scenario passed that tested nothing, and
in some modes forgives a client that crashed. Here a warning needs a written reason, what tested nothing is neither
passed nor failed, and a client that did not end well has failed.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

Check = Mapping[str, Any]

FORMALITY = "wire-schema-valid"
"""Emitted for every scenario: alone it shows that messages were well formed, not that anything was tested."""

TESTED = {"SUCCESS", "FAILURE", "WARNING"}
COUNTED = {"SUCCESS": "ok", "FAILURE": "failed", "WARNING": "warned", "SKIPPED": "skipped"}
BAD_END = re.compile(r"CLIENT (?:TIMED OUT|EXITED WITH ERROR \(code -?\d+\))")
TROUBLE = re.compile(r"error|failed|timed out|ECONN", re.IGNORECASE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LONGEST = 160


class Outcome(StrEnum):
    """What a run is counted as."""

    PASSED = "pass"
    FAILED = "FAIL"
    UNTESTED = "skip"
    AWAITED = "later"


@dataclass(frozen=True)
class Run:
    """One scenario of one suite on one wire."""

    side: str
    suite: str
    wire: str
    scenario: str


@dataclass(frozen=True)
class Report:
    """What the suite left behind: its checks, if it got so far, how it ended and what it printed."""

    checks: Sequence[Check] | None
    exit_code: int
    log: str = ""


@dataclass(frozen=True)
class Verdict:
    """How a run is counted, how many checks ended how, and what a reader should know."""

    outcome: Outcome
    counts: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """Runs that need not pass yet or, with a check, a warning that is accepted; always with the reason."""

    reason: str
    side: str = "*"
    suite: str = "*"
    wire: str = "*"
    scenario: str
    check: str | None = None

    def covers(self, run: Run) -> bool:
        """Return whether this is about a run."""
        pairs = ((run.side, self.side), (run.suite, self.suite), (run.wire, self.wire), (run.scenario, self.scenario))
        return all(fnmatchcase(name, pattern) for name, pattern in pairs)


def read_expectations(text: str) -> list[Expectation]:
    """Read the table of what need not pass; refuses an entry without a reason."""
    tables = tomllib.loads(text)
    unknown = tables.keys() - {"later", "warning"}
    if unknown:
        raise ValueError(f"unknown table {min(unknown)!r}: there are [[later]] and [[warning]]")
    expectations = []
    for kind, entries in tables.items():
        for entry in entries:
            expectation = Expectation(**entry)
            if not expectation.reason.strip():
                raise ValueError(f"the entry for {expectation.scenario!r} gives no reason")
            if (expectation.check is not None) != (kind == "warning"):
                raise ValueError(f"the entry for {expectation.scenario!r}: a warning, and only that, names its check")
            expectations.append(expectation)
    return expectations


def judge(run: Run, report: Report, expectations: Sequence[Expectation]) -> Verdict:
    """Say what a run is worth, given what it need not do yet."""
    about = [expectation for expectation in expectations if expectation.covers(run)]
    accepted = {expectation.check: expectation for expectation in about if expectation.check is not None}
    later = [expectation for expectation in about if expectation.check is None]
    verdict = _measured(run, report, accepted)
    notes = verdict.notes
    if report.checks is not None:
        warned = {check["id"] for check in report.checks if check["status"] == "WARNING"}
        notes += tuple(f"stale: {check} does not warn" for check in accepted if check not in warned)
    if later:
        stale = verdict.outcome is Outcome.PASSED
        return Verdict(Outcome.AWAITED, verdict.counts, ("stale: it passes already" if stale else later[0].reason,))
    return Verdict(verdict.outcome, verdict.counts, notes)


def _measured(run: Run, report: Report, accepted: Mapping[str, Expectation]) -> Verdict:
    """Judge what happened, without regard to what is still to come."""
    if report.checks is None:
        return Verdict(Outcome.FAILED, "no result", (_last_trouble(report),))
    counts = _counts(report.checks)
    failures = [check for check in report.checks if check["status"] == "FAILURE"]
    warnings = [check for check in report.checks if check["status"] == "WARNING"]
    refused = failures or [check for check in warnings if check["id"] not in accepted]
    if refused:
        return Verdict(Outcome.FAILED, counts, (f"{refused[0]['id']}: {_told(refused[0])}",))
    end = BAD_END.search(report.log)
    if run.side == "client" and (end is not None or (report.exit_code != 0 and not warnings)):
        return Verdict(Outcome.FAILED, counts, (end[0].lower() if end else f"the suite exited {report.exit_code}",))
    if not any(check["status"] in TESTED and check["id"] != FORMALITY for check in report.checks):
        left_out = [_told(check) for check in report.checks if check["status"] not in TESTED]
        return Verdict(Outcome.UNTESTED, counts, tuple(left_out[:1]))
    reasons = [f"{check['id']} warns: {accepted[check['id']].reason}" for check in warnings]
    return Verdict(Outcome.PASSED, counts, tuple(reasons))


def _counts(checks: Sequence[Check]) -> str:
    found = Counter(check["status"] for check in checks)
    return ", ".join(f"{found[status]} {word}" for status, word in COUNTED.items() if found[status] or word == "ok")


def _told(check: Check) -> str:
    details = check.get("details")
    message = details.get("message") if isinstance(details, Mapping) else None
    return _short(check.get("errorMessage") or message or check.get("description", ""))


def _last_trouble(report: Report) -> str:
    lines = [line for line in COLOUR.sub("", report.log).splitlines() if TROUBLE.search(line)]
    return _short(lines[-1]) if lines else f"the suite exited {report.exit_code}"


def _short(text: str) -> str:
    return " ".join(text.split())[:LONGEST]
