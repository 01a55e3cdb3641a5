"""The conformance run judges as strictly as it says; the run itself is `make conformance`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import suites
from judging import Expectation, Outcome, Report, Run, judge, read_expectations
from suites import Suite, read_list, wires

OLD, NEW = "0.1.16", "0.2.0-alpha.12"
SERVER = Run("server", NEW, "2025-11-25", "server-sse-polling")
CLIENT = Run("client", NEW, "2026-07-28", "tools_call")

CRASHED = "Test Results:\nPassed: 2/2, 0 failed, 0 warnings\n\n⚠️  CLIENT EXITED WITH ERROR (code 1) - Test may be …\n"
LATE = "Client timed out after 30000ms\n\n⚠️  CLIENT TIMED OUT - Test incomplete\n"


def check(status: str, name: str = "tools-call", **members: Any) -> dict[str, Any]:
    """Make a check in the shape the suites write."""
    return {
        "id": name,
        "name": name.title(),
        "description": f"about {name}",
        "status": status,
        "timestamp": "2026-11-15T10:00:00.000Z",
        **members,
    }


FORMAL = check("SUCCESS", "wire-schema-valid")
WARNED = [check("SUCCESS"), check("WARNING", "priming", errorMessage="no   priming\n event")]


def judged(run: Run, *checks: dict[str, Any], code: int = 0, log: str = "", expected: Any = ()) -> tuple[Outcome, str]:
    """Judge a run; gives its outcome and its notes."""
    verdict = judge(run, Report(checks, code, log), expected)
    return verdict.outcome, "; ".join(verdict.notes)


class TestJudging:
    """What a run is worth."""

    @pytest.mark.parametrize("run", [SERVER, CLIENT])
    def test_checks_that_all_succeed_pass(self, run: Run):
        verdict = judge(run, Report([check("SUCCESS"), check("INFO", "seen"), FORMAL], 0), [])
        assert (verdict.outcome, verdict.counts, verdict.notes) == (Outcome.PASSED, "2 ok", ())

    def test_one_failure_fails_and_is_told(self):
        failure = check("FAILURE", "header", errorMessage="expected 400,\n  got 200")
        verdict = judge(SERVER, Report([check("SUCCESS"), check("WARNING", "soft"), failure], 1), [])
        assert verdict.outcome is Outcome.FAILED
        assert verdict.counts == "1 ok, 1 failed, 1 warned"
        assert verdict.notes == ("header: expected 400, got 200",)

    @pytest.mark.parametrize("run", [SERVER, CLIENT])
    def test_a_warning_without_a_written_reason_fails(self, run: Run):
        assert judged(run, *WARNED) == (Outcome.FAILED, "priming: no priming event")

    def test_a_warning_with_a_written_reason_passes(self):
        accepted = [Expectation(scenario="server-*", check="priming", reason="the suite asks too early")]
        assert judged(SERVER, *WARNED, expected=accepted) == (
            Outcome.PASSED,
            "priming warns: the suite asks too early",
        )

    def test_a_written_reason_excuses_its_own_check_only(self):
        accepted = [Expectation(scenario="server-*", check="other", reason="of no use here")]
        outcome, notes = judged(SERVER, *WARNED, expected=accepted)
        assert outcome is Outcome.FAILED
        assert "stale: other does not warn" in notes

    def test_a_written_reason_excuses_no_failure(self):
        accepted = [Expectation(scenario="*", check="priming", reason="a SHOULD")]
        failed = [check("SUCCESS"), check("FAILURE", "priming")]
        assert judged(SERVER, *failed, expected=accepted)[0] is Outcome.FAILED

    def test_a_reason_for_a_warning_that_no_longer_comes_is_stale(self):
        accepted = [Expectation(scenario="*", check="priming", reason="once")]
        assert judged(SERVER, check("SUCCESS"), expected=accepted) == (
            Outcome.PASSED,
            "stale: priming does not warn",
        )

    @pytest.mark.parametrize(
        "checks",
        [
            [],
            [FORMAL],
            [check("SKIPPED", details={"message": "not declared"}), FORMAL],
            [check("INFO"), FORMAL],
        ],
    )
    def test_what_tested_nothing_is_neither_passed_nor_failed(self, checks: list[dict[str, Any]]):
        assert judged(SERVER, *checks)[0] is Outcome.UNTESTED

    def test_what_tested_nothing_says_why(self):
        assert judged(SERVER, FORMAL, check("SKIPPED", details={"message": "not declared"}))[1] == "not declared"

    def test_a_client_that_crashed_before_anything_was_tested_has_failed(self):
        assert judged(CLIENT, check("SKIPPED"), code=1, log=CRASHED)[0] is Outcome.FAILED

    @pytest.mark.parametrize(("log", "told"), [(CRASHED, "client exited with error (code 1)"), (LATE, "timed out")])
    def test_a_client_that_did_not_end_well_has_failed(self, log: str, told: str):
        outcome, notes = judged(CLIENT, check("SUCCESS"), FORMAL, code=1, log=log)
        assert outcome is Outcome.FAILED
        assert told in notes

    def test_a_client_that_crashed_is_not_excused_by_an_accepted_warning(self):
        accepted = [Expectation(scenario="*", check="priming", reason="a SHOULD")]
        assert judged(CLIENT, *WARNED, code=1, expected=accepted)[0] is Outcome.PASSED
        assert judged(CLIENT, *WARNED, code=1, log=CRASHED, expected=accepted)[0] is Outcome.FAILED

    def test_a_client_run_that_ends_in_failure_without_a_word_has_failed(self):
        assert judged(CLIENT, check("SUCCESS"), code=1) == (Outcome.FAILED, "the suite exited 1")

    def test_a_run_without_results_has_failed_with_the_last_thing_said(self):
        log = "Starting\n\x1b[31mError: connect ECONNREFUSED 127.0.0.1:9\x1b[0m\n    at somewhere\n"
        verdict = judge(SERVER, Report(None, 1, log), [])
        assert (verdict.outcome, verdict.counts) == (Outcome.FAILED, "no result")
        assert verdict.notes == ("Error: connect ECONNREFUSED 127.0.0.1:9",)
        assert judge(SERVER, Report(None, -9), []).notes == ("the suite exited -9",)


class TestExpectations:
    """What need not pass yet."""

    LATER = (Expectation(side="server", scenario="server-*", reason="soon"),)

    @pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED"])
    def test_what_need_not_pass_yet_is_counted_as_neither(self, status: str):
        assert judged(SERVER, check(status), expected=self.LATER) == (Outcome.AWAITED, "soon")

    def test_what_passes_before_it_need_is_told_and_not_counted_while_it_is_listed(self):
        assert judged(SERVER, check("SUCCESS"), expected=self.LATER) == (Outcome.AWAITED, "stale: it passes already")

    @pytest.mark.parametrize(
        ("narrowed", "covers"),
        [
            ({}, True),
            ({"side": "server"}, True),
            ({"side": "client"}, False),
            ({"suite": "0.2.*"}, True),
            ({"suite": "0.1.*"}, False),
            ({"wire": "2026-*"}, False),
        ],
    )
    def test_an_entry_may_be_narrowed(self, narrowed: dict[str, str], covers: bool):
        assert Expectation(scenario="server-sse-*", reason="soon", **narrowed).covers(SERVER) is covers

    @pytest.mark.parametrize(
        "entry",
        [
            '[[later]]\nscenario = "a"\nreason = " "',
            '[[later]]\nscenario = "a"',
            '[[later]]\nscenario = "a"\nreason = "b"\nname = "c"',
            '[[later]]\nscenario = "a"\nreason = "b"\ncheck = "c"',
            '[[warning]]\nscenario = "a"\nreason = "b"',
            '[[never]]\nscenario = "a"\nreason = "b"',
        ],
    )
    def test_an_entry_that_says_too_little_or_too_much_is_refused(self, entry: str):
        with pytest.raises((ValueError, TypeError)):
            read_expectations(entry)

    def test_the_table_of_this_project_can_be_read(self):
        text = (Path(__file__).parent / "expected.toml").read_text(encoding="utf-8")
        assert all(expectation.reason for expectation in read_expectations(text))


class TestPlanning:
    """Which scenario runs on which wire."""

    LIST = (
        "Client scenarios (test against a client):\n"
        "  - initialize [2025-06-18,2025-11-25]\n"
        "  - tools_call [2025-06-18,2025-11-25,2026-07-28]\n"
        "  - auth/dpop [extension]\n\n"
    )

    def test_a_list_is_read_with_its_revisions(self):
        assert read_list(self.LIST) == {
            "initialize": {"2025-06-18", "2025-11-25"},
            "tools_call": {"2025-06-18", "2025-11-25", "2026-07-28"},
            "auth/dpop": {"extension"},
        }

    @pytest.mark.parametrize(
        ("tags", "wanted", "expected"),
        [
            ("2025-06-18,2025-11-25", None, ["2025-11-25"]),
            ("2025-03-26", None, ["2025-03-26"]),
            ("2025-06-18,2025-11-25,2026-07-28", None, ["2025-11-25", "2026-07-28"]),
            ("2026-07-28", None, ["2026-07-28"]),
            ("extension", None, ["default"]),
            ("2025-06-18,2025-11-25", "2025-06-18", ["2025-06-18"]),
            ("2025-11-25", "2025-06-18", []),
            ("extension", "2026-07-28", []),
        ],
    )
    def test_a_scenario_runs_once_in_each_era_it_applies_to(self, tags: str, wanted: str | None, expected: list[str]):
        assert wires(NEW, frozenset(tags.split(",")), wanted) == expected

    @pytest.mark.parametrize(
        ("tags", "wanted", "expected"),
        [
            ("2025-06-18,2025-11-25", None, ["default"]),
            ("draft", None, ["default"]),
            ("2025-06-18,2025-11-25", "2025-06-18", ["default"]),
            ("2025-11-25", "2025-06-18", []),
            ("2025-11-25", "2026-07-28", []),
        ],
    )
    def test_the_old_suite_has_one_wire(self, tags: str, wanted: str | None, expected: list[str]):
        assert wires(OLD, frozenset(tags.split(",")), wanted) == expected

    def test_a_suite_is_told_the_wire_unless_it_chooses_it_itself(self):
        new = Suite(NEW, ("node",))
        assert "--spec-version" in new.arguments(SERVER, "url")
        assert "--spec-version" not in new.arguments(Run("server", NEW, suites.USUAL, "tasks"), "url")

    def test_the_old_suite_has_no_time_out_for_servers(self):
        old = Suite(OLD, ("node",))
        assert "--timeout" not in old.arguments(Run("server", OLD, suites.USUAL, "ping"), "url")
        assert "--timeout" in old.arguments(Run("client", OLD, suites.USUAL, "initialize"), "command")

    def test_a_run_that_left_no_checks_is_reported_without_them(self, tmp_path: Path):
        report = Suite(NEW, ("false",)).run(SERVER, "url", tmp_path / "run")
        assert report == Report(None, 1, "")

    def test_a_run_that_was_cut_off_in_its_last_words_has_no_checks(self, tmp_path: Path):
        write = 'mkdir -p "${@: -1}/x" && echo "[{" > "${@: -1}/x/checks.json"'
        assert Suite(NEW, ("bash", "-c", write, "suite")).run(SERVER, "url", tmp_path / "run").checks is None

    def test_a_run_that_never_ends_is_ended(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(suites, "PATIENCE", 0.1)
        assert Suite(NEW, ("sh", "-c", "sleep 60")).run(SERVER, "url", tmp_path / "run").exit_code == -9


def test_ci_runs_the_suites_and_waits_for_nothing() -> None:
    """long:TEST-06, TEST-15: the suites run in CI, not here; every scenario is expected to pass."""
    root = Path(__file__).resolve().parents[2]
    assert "make conformance" in (root / ".ci" / "run").read_text()
    with (Path(__file__).parent / "expected.toml").open("rb") as file:
        expected = tomllib.load(file)
    assert "later" not in expected
