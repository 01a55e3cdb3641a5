"""The report of a check: its findings, a line that counts them, and the same as JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from msgspec import Struct, field

from ferrule.check.era import Era
from ferrule.check.rule import Level, Outcome

OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "warn", "skip")
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""What XML cannot hold."""


class Finding(Struct, frozen=True, kw_only=True):
    """The outcome of one rule."""

    rule: str
    title: str
    era: Era
    outcome: Outcome
    level: Level
    reference: str
    link: str
    seen: str
    fix: str


class Spoken(Struct, frozen=True, kw_only=True):
    """Whether a server speaks an era."""

    era: Era
    version: str = ""
    """The version that was agreed on; empty where it does not speak the era."""
    reason: str = ""
    """How it answered where it does not speak the era."""


class Report(Struct, kw_only=True):
    """The findings of a check, with what it learned of the server."""

    target: str
    transport: str
    server: dict[str, Any] = {}
    """Name and version, as the server says."""
    eras: list[Spoken] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def count(self, outcome: Outcome) -> int:
        """Return the number of findings with an outcome."""
        return _count(self.findings, outcome)

    @property
    def summary(self) -> str:
        """The counts, as a line."""
        return (
            f"{self.count('pass')} passed, {self.count('fail')} failed,"
            f" {self.count('warn')} warnings, {self.count('skip')} not applicable"
        )

    def to_junit(self) -> bytes:
        """Return the report as JUnit XML: a warning passes, and says so in its output."""
        root = ElementTree.Element("testsuites", name="ferrule check")
        for spoken in self.eras:
            found = [finding for finding in self.findings if finding.era == spoken.era]
            suite = ElementTree.SubElement(root, "testsuite", name=f"{_safe(self.target)} {spoken.era}")
            suite.set("tests", str(len(found)))
            suite.set("failures", str(_count(found, "fail")))
            suite.set("errors", "0")
            suite.set("skipped", str(_count(found, "skip")))
            for finding in found:
                suite.append(_test_case(finding))
        ElementTree.indent(root)
        return bytes(ElementTree.tostring(root, "utf-8", xml_declaration=True)) + b"\n"


def _count(findings: Sequence[Finding], outcome: Outcome) -> int:
    return sum(finding.outcome == outcome for finding in findings)


def _safe(text: str) -> str:
    return UNWRITABLE.sub("?", text)


def _test_case(finding: Finding) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"{finding.era}.{finding.rule.partition('/')[0]}")
    case.set("name", f"{finding.rule}: {_safe(finding.title)}")
    seen = _safe(finding.seen)
    if finding.outcome == "fail":
        failure = ElementTree.SubElement(case, "failure", message=seen, type=finding.rule)
        failure.text = f"{seen}\nfix: {finding.fix}\n{finding.reference} {finding.link}"
    elif finding.outcome == "skip":
        ElementTree.SubElement(case, "skipped", message=seen)
    elif finding.outcome == "warn":
        said = ElementTree.SubElement(case, "system-out")
        said.text = f"warning: {seen}\nfix: {finding.fix}\n{finding.reference} {finding.link}"
    return case
