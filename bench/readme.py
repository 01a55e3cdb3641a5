"""The table of README.md, from a run.

    python -m bench.readme bench/results/NAME.json

`python -m bench.run --readme` measures what the table needs and prints it at the end.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from bench.contestants import FERRULE, GO, GO_TOO, RUST, Contestant, contestants
from bench.floors import MANY, ONE
from bench.peers import PythonPeer, peers_folder
from bench.results import Results
from bench.scenarios import COLD_CASE
from bench.streamable.scenarios import case_name as http_case
from bench.streamable.wire import Mode

SCENARIOS = ("call", "cold", "http_call")
"""What has to be measured for the table."""

TITLES = {
    FERRULE: "Ferrule",
    RUST: "`rmcp` 3.8.0 (Rust)",
    GO: "Go SDK 1.8.0",
    GO_TOO: "`mcp-go` 1.2.1",
    "ts-sdk-1.32.2": "TypeScript SDK 1.32.2",
    "mcp-2.3.0": "`mcp` 2.3.0 (over HTTP with httptools and uvloop)",
    "fastmcp-4.1.4": "FastMCP 4.1.4",
    "mcp-1.30.0": "`mcp` 1.30.0",
}
"""Who has a row, in this order."""

OVER_HTTP = {"mcp-2.3.0": "mcp-2.3.0+httptools+uvloop"}
"""Who goes by another name over HTTP."""

INSTALLERS = {"pip", "setuptools", "wheel", "uv"}
"""What is in an environment and belongs to nobody's dependencies."""


def _microseconds(value: float) -> str:
    return f"{value:.1f} µs" if value < 10 else f"{value:.0f} µs"


def _milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


@dataclass(frozen=True)
class Column:
    """One figure of every contestant."""

    title: str
    scenario: str
    case: str
    figure: str
    show: Callable[[float], str]

    def cell(self, results: Results, name: str) -> str:
        """Return what stands in a row; nothing where it was not measured."""
        called = OVER_HTTP.get(name, name) if self.scenario.startswith("http") else name
        value = results.best(self.scenario, self.case, called).get(self.figure)
        return "" if value is None else self.show(value)


COLUMNS = (
    Column("stdio, 64 in flight", "call", MANY, "cpu_us", _microseconds),
    Column("stdio, one by one", "call", ONE, "cpu_us", _microseconds),
    Column("HTTP, 32 connections", "http_call", http_case(Mode.JSON, 32), "cpu_us", _microseconds),
    Column("start", "cold", COLD_CASE, "cpu_ms", _milliseconds),
    Column("memory", "cold", COLD_CASE, "rss_mib", lambda value: f"{value:.0f} MiB"),
)


def readme_table(results: Results, packages: dict[str, int]) -> str:
    """Return the table in Markdown: a row for everyone who has figures."""
    titles = [column.title for column in COLUMNS]
    lines = [f"| | {' | '.join(titles)} | packages |", "|---" * (len(titles) + 2) + "|"]
    for name, title in TITLES.items():
        cells = [column.cell(results, name) for column in COLUMNS]
        if any(cells):
            lines.append(f"| {' | '.join([title, *cells, str(packages.get(name, ''))])} |")
    return "\n".join(lines)


def count_packages() -> dict[str, int]:
    """Return how many packages each Python contestant brings along, itself among them."""
    counts = {FERRULE: len(_closure("ferrule"))}
    counts |= {one.name: count for one in contestants() if (count := _installed(one))}
    return counts


def _installed(contestant: Contestant) -> int:
    if not isinstance(contestant.peer, PythonPeer):
        return 0
    found = (peers_folder() / contestant.peer.folder).glob("lib/python*/site-packages/*.dist-info")
    return len({path.name.partition("-")[0].lower() for path in found} - INSTALLERS)


def _closure(name: str) -> set[str]:
    """Return the names of a package and of all it needs."""
    found, waiting = set(), [name]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        try:
            needed = metadata.requires(current) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(current)
        wanted = [Requirement(each) for each in needed]
        waiting += [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def from_record(path: Path) -> Results:
    """Read what a run has kept."""
    return Results(rows=json.loads(path.read_text())["rounds"])


def main() -> None:
    """Print the table of a run that was kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="a file under bench/results")
    print(readme_table(from_record(parser.parse_args().record), count_packages()))


if __name__ == "__main__":
    main()
