"""The reports of `ferrule check` are those of the versions that are pinned, and our server has no findings in them."""

from __future__ import annotations

import pytest
from check_peers import PAGE, REPORTS, row_of, version_of
from matrix import OURS, PEERS, TRANSPORTS


@pytest.mark.parametrize("peer", [OURS, *PEERS])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_report_names_the_version_that_is_pinned_and_stands_in_the_table(peer: str, transport: str) -> None:
    report = REPORTS / f"{peer}-{transport}.md"
    text = report.read_text(encoding="utf-8")
    assert text.startswith(f"# {version_of(peer)}, {transport}\n"), "run `make check-peers`"
    assert row_of(report) in PAGE.read_text(encoding="utf-8")
    if peer == OURS:
        assert "## fail" not in text
        assert "## warn" not in text


def test_every_finding_of_the_reports_is_explained_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = set()
    for report in REPORTS.glob("*.md"):
        for line in report.read_text(encoding="utf-8").splitlines():
            if line.startswith(("## fail: ", "## warn: ")):
                found.add(line.split()[2])
    assert found
    assert [rule for rule in sorted(found) if f"`{rule}`" not in page] == []
