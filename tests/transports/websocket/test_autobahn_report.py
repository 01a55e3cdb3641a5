"""The page of Autobahn's results: how it is written, and what the kept one says."""

from __future__ import annotations

import re

import pytest
from autobahn_report import PAGE, SECTIONS, failed, page, remarks, table

SOME = {
    "1.1.1": "OK",
    "1.1.2": "NON-STRICT",
    "7.1.5": "WRONG CODE",
    "7.1.6": "INFORMATIONAL",
    "13.1.1": "UNIMPLEMENTED",
}
RUN = re.compile(r"^Run on \d{4}-\d{2}-\d{2} at commit [0-9a-f]{7,40} with Autobahn ", re.MULTILINE)
ROW = re.compile(r"^\| (?P<section>\d+|all)[^|]*\| (?P<counts>[\d |]+)\|$", re.MULTILINE)


def test_a_table_has_a_row_for_each_section_that_was_run_and_one_for_all() -> None:
    rows = table(SOME).splitlines()[2:]
    assert rows == [
        "| 1, framing | 2 | 1 | 1 | 0 | 0 | 0 |",
        "| 7, closing | 2 | 0 | 0 | 1 | 0 | 1 |",
        "| 13, compression, parameters | 1 | 0 | 0 | 0 | 1 | 0 |",
        "| all | 5 | 1 | 1 | 1 | 1 | 1 |",
    ]


def test_what_failed_or_is_not_strict_is_named() -> None:
    assert remarks({"server": SOME}) == "- server 1.1.2: non-strict.\n- server 7.1.5: wrong code.\n"
    assert [verdict for verdict in SOME.values() if failed(verdict)] == ["WRONG CODE"]


def test_a_page_has_both_sides_and_what_was_used() -> None:
    text = page({"server": SOME, "client": SOME}, "Run with this.")
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Autobahn: how the WebSocket behaves",
        "## The server",
        "## The client",
    ]
    assert "Run with this." in text


@pytest.mark.parametrize("side", ["server", "client"])
def test_wsk_01_the_kept_results_have_every_section_and_no_failure(side: str) -> None:
    """long:WSK-01: by the suite itself, with at most the 14 cases that are not strict for the websockets library.

    The results are of the commit and the day they name: `make autobahn` takes them anew.
    """
    text = PAGE.read_text(encoding="utf-8")
    assert RUN.search(text), "whose results these are is not said"
    part = text.partition(f"## The {side}")[2].partition("\n## ")[0]
    rows = {found["section"]: [int(n) for n in found["counts"].split("|")] for found in ROW.finditer(part)}
    assert set(rows) == {*map(str, SECTIONS), "all"}
    cases, _, loose, _, _, wrong = rows["all"]
    assert (cases, wrong) == (517, 0)
    assert loose <= 14
