"""A comparison with a commit: it is unpacked for the time, and a tenth more fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.check import NothingToCompare, checkout_of, count_against, dearer

from bench import check, run

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not (PROJECT / ".git").exists(), reason="this is no repository")
def test_a_commit_is_unpacked_for_the_time_of_the_comparison() -> None:
    with checkout_of("HEAD") as folder:
        assert (folder / "src" / "ferrule" / "__init__.py").is_file()
        assert folder != PROJECT
    assert not folder.exists()


def test_a_checkout_is_taken_as_it_is() -> None:
    with checkout_of(str(PROJECT)) as folder:
        assert folder == PROJECT


def test_anything_else_is_refused_in_a_sentence() -> None:
    with pytest.raises(NothingToCompare, match="neither a commit"), checkout_of("no-such-commit"):
        pass


def test_only_what_costs_a_tenth_more_is_dearer() -> None:
    """PERF-12."""
    before = {"a": 100.0, "b": 100.0, "gone": 1.0}
    assert dearer({"a": 109.0, "b": 112.0, "new": 5.0}, before) == {"b": 1.12}
    assert check.BUDGET == run.BUDGET


@pytest.mark.parametrize(("again", "code"), [(130.0, 1), (105.0, 0)])
def test_a_count_by_chance_is_counted_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: float, code: int
) -> None:
    """One turn of the event loop more is no regression; what is dearer every time is."""
    ours = [{"call": 120.0}, {"call": again}]
    monkeypatch.setattr(check, "counts_of", lambda folder: ours.pop(0) if folder == PROJECT else {"call": 100.0})
    assert count_against(Path("before")) == code
    assert ("regression: call: 1.200" in capsys.readouterr().err) is bool(code)


def test_the_scenarios_of_the_comparison_are_there() -> None:
    assert set(check.SCENARIOS.split(",")) <= set(run.ALL_SCENARIOS)
