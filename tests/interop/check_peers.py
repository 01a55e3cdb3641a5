"""Write the reports of `ferrule check` on the servers of the peers and on ours: docs/conformance/check/.

Usage: python tests/interop/check_peers.py [PEER...]

Each server of `peers/` is checked over stdio and over HTTP. What a report finds is judged by hand in
docs/conformance/check.md; the table there is written by this program, what stands below it is not.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from install_peers import PINS
from matrix import OURS, PEERS, TRANSPORTS
from peer_programs import missing, program, serving

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "conformance" / "check.md"
REPORTS = PAGE.with_suffix("")
CALLS = ("--call", 'add={"a": 2, "b": 3}', "--call", 'echo={"text": "hello"}')
CHECK_SECONDS = 600
BEGIN = "<!-- written by tests/interop/check_peers.py -->"
END = "<!-- end of what is written -->"


def version_of(peer: str) -> str:
    """What a peer is, with its version."""
    if peer == OURS:
        return "Ferrule, this tree"
    return ", ".join(package for package in PINS[peer].packages if not package.startswith("zod"))


def check(*target: str) -> dict[str, Any]:
    """Check one server."""
    command = [sys.executable, "-m", "ferrule", "check", "--json", "--timeout", "20", *CALLS, *target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_SECONDS, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"{command}: {done.stdout}{done.stderr}") from None


def check_peer(peer: str, transport: str) -> dict[str, Any]:
    """Check the server of a peer over one transport."""
    command = program(peer, "server")
    if transport == "stdio":
        return check("--", *command)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints, serving(command, complaints) as url:
        return check(url)


def written(report: dict[str, Any], peer: str, transport: str) -> str:
    """Return a report as a page: what failed, with what was seen, then what passed and what does not apply."""
    counts = report["counts"]
    lines = [f"# {version_of(peer)}, {transport}", ""]
    for era in report["eras"]:
        lines.append(f"- {era['era']}: {era['version'] or 'not spoken'}")
    lines += ["", ", ".join(f"{count} {outcome}" for outcome, count in counts.items()), ""]
    for finding in report["findings"]:
        if finding["outcome"] in ("fail", "warn"):
            lines.append(f"## {finding['outcome']}: {finding['rule']} ({finding['era']})")
            lines += ["", finding["title"] + ".", "", f"- reference: {finding['reference']}"]
            lines += [f"- seen: `` {finding['seen']} ``", f"- fix: {finding['fix']}", ""]
    for outcome in ("pass", "skip"):
        rows = [f"{each['rule']} ({each['era']})" for each in report["findings"] if each["outcome"] == outcome]
        lines += [f"## {outcome}", "", ", ".join(rows) + ".", ""]
    return "\n".join(lines).rstrip() + "\n"


def row_of(place: Path) -> str:
    """Return the row of one report."""
    text = place.read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    counts = dict.fromkeys(("pass", "fail", "warn", "skip"), "")
    for number, outcome in re.findall(r"(\d+) (pass|fail|warn|skip)\b", text):
        counts[outcome] = counts[outcome] or number
    return f"| [{title}](check/{place.name}) | {' | '.join(counts.values())} |"


def write_table() -> None:
    """Write the table of the page anew from the reports."""
    lines = ["| server | passed | failed | warnings | not applicable |", "|---|---|---|---|---|"]
    for peer in (OURS, *PEERS):
        for transport in TRANSPORTS:
            place = REPORTS / f"{peer}-{transport}.md"
            if place.is_file():
                lines.append(row_of(place))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, "", END + after]), encoding="utf-8")


def main() -> None:
    chosen = sys.argv[1:] or [OURS, *PEERS]
    REPORTS.mkdir(exist_ok=True)
    for peer in chosen:
        if why := missing(peer):
            print(f"{peer}: left out: {why}")
            continue
        for transport in TRANSPORTS:
            report = check_peer(peer, transport)
            place = REPORTS / f"{peer}-{transport}.md"
            place.write_text(written(report, peer, transport), encoding="utf-8")
            print(peer, transport, report["counts"], flush=True)
    write_table()


if __name__ == "__main__":
    main()
