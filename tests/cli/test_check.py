"""`ferrule check`: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tram_shop import Done

from ferrule import Server


@pytest.fixture
def check(app: Server, command: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Check the server in memory."""
    monkeypatch.setattr("ferrule.cli.check.target_of", lambda options, passed_on: app)
    return lambda *words: command("check", "shop", *words)


def test_a_good_server_ends_with_0_and_every_rule_is_a_line(check: Callable[..., Done], tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    done = check("--only", "tools", "--only", "lifecycle/ping", "--junit", str(file))
    assert done.code == 0
    assert "  pass  tools/input-schema  " in done.out
    assert "stateless: 2026-07-28" in done.out
    assert "prompts/" not in done.out
    assert done.out.splitlines()[-1].endswith("not applicable")
    assert ElementTree.parse(file).getroot().tag == "testsuites"


def test_a_finding_ends_with_1_and_says_what_was_seen_the_fix_and_the_page(
    app: Server, check: Callable[..., Done]
) -> None:
    @app.tool(name="has space")
    def spaced() -> str:
        return ""

    done = check("--only", "tools/names", "--era", "handshake")
    assert done.code == 0, "a warning is no failure"
    assert check("--only", "tools/names", "--strict").code == 1
    for words in ("warn  tools/names", 'seen: tool "has space"', "fix: rename the tool", "MCP 2025-11-25 server/tools"):
        assert words in done.out
    found = json.loads(check("--only", "tools/names", "--json", "--era", "handshake").out)
    assert found["counts"] == {"pass": 0, "fail": 0, "warn": 1, "skip": 0}
    assert found["findings"][0]["link"].endswith("/server/tools")


def test_a_mistake_of_the_user_is_one_sentence(check: Callable[..., Done], command: Callable[..., Done]) -> None:
    assert 'there is no rule "tolls". Did you mean "tools"?' in check("--only", "tolls").err
    assert "needs a JSON object" in check("--call", "price=3").err
    assert 'there is no tool "ordr" to call. Did you mean "order"?' in check("--call", "ordr={}").err
    assert "there is no folder /nowhere" in check("--junit", "/nowhere/report.xml").err
    assert "tools/names" in command("check", "--rules").out


def test_a_server_out_of_reach_ends_with_4(command: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    for target in ("tcp://127.0.0.1:1", [sys.executable, "-c", "raise SystemExit('no database')"]):
        monkeypatch.setattr("ferrule.cli.check.target_of", lambda options, passed_on, target=target: target)
        done = command("check", "there", "--timeout", "5")
        assert done.code == 4
        assert len(done.err.splitlines()) <= 3
    assert "no database" in done.err
