"""Rules of servers that are child processes, broken by real ones."""

from __future__ import annotations

import sys
from pathlib import Path

import plain_server
import pytest
from checked import check, named

from ferrule.check.era import HANDSHAKE

HERE = Path(plain_server.__file__).parent
LOOP = f"""
import sys, signal
sys.path.insert(0, {str(HERE)!r})
from plain_server import PlainServer
server = PlainServer()
BEFORE
for line in sys.stdin.buffer:
    for answer in server.read(line):
        sys.stdout.buffer.write(answer + b"\\n")
        sys.stdout.buffer.flush()
AFTER
"""


def program(before: str = "", after: str = "") -> list[str]:
    return [sys.executable, "-c", LOOP.replace("BEFORE", before).replace("AFTER", after)]


async def test_a_process_that_keeps_every_rule_has_no_findings() -> None:
    report = await check(program(), "stdio", "lifecycle/early-request", eras=(HANDSHAKE,))
    assert named(report) == []
    assert report.count("pass") == 3


async def test_what_is_printed_on_stdout_is_found() -> None:
    report = await check(program("print('ready to serve', flush=True)"), "stdio", eras=(HANDSHAKE,))
    assert named(report) == ["fail stdio/only-messages"]
    assert "ready to serve" in report.findings[1].seen


async def test_a_process_that_goes_on_after_its_input_has_ended_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ferrule.check.rules.utilities.GRACE", 0.3)
    report = await check(program("", "signal.pause()"), "stdio/ends-with-input", eras=(HANDSHAKE,))
    assert named(report) == ["warn stdio/ends-with-input"]


async def test_a_process_that_dies_in_the_middle_is_told_of_and_the_rest_goes_on() -> None:
    dies = "server.changes['ping'] = lambda message, answer: sys.exit(3)"
    report = await check(program(dies), "lifecycle/ping", "tools", eras=(HANDSHAKE,))
    assert named(report) == ["fail lifecycle/ping"]
    assert "exit" in report.findings[0].seen
    assert report.count("pass") > 5
