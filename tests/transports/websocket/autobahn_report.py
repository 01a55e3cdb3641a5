"""What the Autobahn test suite said of us, as a page of the documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "conformance" / "autobahn.md"

SECTIONS = {
    1: "framing",
    2: "pings and pongs",
    3: "reserved bits",
    4: "opcodes",
    5: "fragmentation",
    6: "UTF-8",
    7: "closing",
    9: "limits and speed",
    10: "automatic fragmentation",
    12: "compression, payloads",
    13: "compression, parameters",
}
COLUMNS = {"OK": "passed", "NON-STRICT": "non-strict", "INFORMATIONAL": "informational", "UNIMPLEMENTED": "not offered"}
"""The verdicts that are no failure; not offered are ways to compress that our client does not ask for."""

REASONS = {
    "6.4.3": "a character that is not UTF-8 is found at the end of its frame, not in the middle of it",
    "6.4.4": "the same, for a character beyond the last of Unicode",
}
"""Why a case that passed is not strict."""

HEAD = """\
# Autobahn: how the WebSocket behaves

The [Autobahn test suite](https://github.com/crossbario/autobahn-testsuite) plays a peer of every kind, right and wrong,
and judges each answer against RFC 6455 and RFC 7692. `make autobahn WSTEST=…` runs all of its cases against our server
and against our client and writes this page. `WSTEST` is the suite's program `wstest`; it runs on Python 2.7 only (in a
virtual environment of that, `pip install autobahntestsuite`), so it is not installed by `make setup`.

The echo under test is the channel a `Server` and a `Client` use, with one thing replaced: what it reads goes back as it
came, with no JSON in between. Binary frames and compression are switched on.
"""

FOOT = """\
**Non-strict** is a case that ends as it should, later than it could. **Informational** has no right or wrong: the suite
notes what we do. **Not offered** is an extension parameter the client did not ask for, so that nothing is compressed.
"""

Verdicts = Mapping[str, str]
"""How each case was judged, by its number."""


def page(sides: Mapping[str, Verdicts], versions: str) -> str:
    """Write the whole page."""
    tables = [f"## The {side}\n\n{table(verdicts)}" for side, verdicts in sides.items()]
    return "\n".join([HEAD, f"{versions}\n", *tables, FOOT, remarks(sides)])


def table(verdicts: Verdicts) -> str:
    """Write a row a section, and one for all."""
    titles = ["section", "cases", *COLUMNS.values(), "failed"]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for number, title in SECTIONS.items():
        chosen = [verdict for case, verdict in verdicts.items() if case.split(".")[0] == str(number)]
        if chosen:
            lines.append(_row(f"{number}, {title}", chosen))
    return "\n".join([*lines, _row("all", list(verdicts.values()))]) + "\n"


def _row(name: str, verdicts: list[str]) -> str:
    counts = Counter(verdicts)
    kinds = [counts[verdict] for verdict in COLUMNS]
    cells = [name, len(verdicts), *kinds, len(verdicts) - sum(kinds)]
    return f"| {' | '.join(map(str, cells))} |"


def remarks(sides: Mapping[str, Verdicts]) -> str:
    """Name every case that failed or is not strict."""
    lines = []
    for side, verdicts in sides.items():
        named = {case: verdict for case, verdict in verdicts.items() if verdict == "NON-STRICT" or failed(verdict)}
        lines += [_remark(side, case, verdict) for case, verdict in named.items()]
    return "".join(f"- {line}\n" for line in lines)


def _remark(side: str, case: str, verdict: str) -> str:
    reason = REASONS.get(case, "")
    return f"{side} {case}: {verdict.lower()}{', ' + reason if reason else ''}."


def failed(verdict: str) -> bool:
    """Return whether a verdict is a failure."""
    return verdict not in COLUMNS
