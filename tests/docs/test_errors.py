"""docs/guides/errors.md has the tables the code has."""

from __future__ import annotations

import re

import doc_pages

from ferrule.protocol.handshake import ERLMCP
from ferrule.server.offers.refusals import FAMILIES, REASONS

PAGE = (doc_pages.PROJECT / "docs" / "guides" / "errors.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (-\d+) \| (\d+) \|$", re.MULTILINE)
REST = re.compile(r"^\| ([`\w, ]+) \| as in the specification \| ([\d, ]+) \|$", re.MULTILINE)
FAMILY = re.compile(r"^\| (\d+) to (\d+) \| `(\w+)` \|", re.MULTILINE)


def test_the_profile_is_written_as_it_is() -> None:
    """ERRC-19"""
    written = {name: (int(code), int(refusal)) for name, code, refusal in ROW.findall(PAGE)}
    [(names, refusals)] = REST.findall(PAGE)
    rest = zip(re.findall(r"\w+", names), map(int, refusals.split(", ")), strict=True)
    written |= {name: (ERLMCP[name].code, refusal) for name, refusal in rest}
    assert written == {name: (numbers.code, numbers.refusal) for name, numbers in ERLMCP.items()}


def test_the_families_of_refusals_are_written_with_their_first_and_last_numbers() -> None:
    """ERRC-19"""
    written = {name: (int(first), int(last)) for first, last, name in FAMILY.findall(PAGE)}
    known = {name: [code for code in codes if code in REASONS] for name, codes in FAMILIES.items()}
    assert written == {name: (codes[0], codes[-1]) for name, codes in known.items()}
