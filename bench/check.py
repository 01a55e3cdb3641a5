"""Compare this checkout with another commit, and fail where an operation costs over 10 % more (PERF-12).

    python -m bench.check COMMIT-OR-CHECKOUT [--short] [--scenario call,http_call] [--quick]

Both are measured in one run, in turn, window by window, and the median of the ratios counts; it takes about fifteen
minutes. `--short` counts instructions of the interpreter instead: it takes half a minute, sees nothing of what C code
does, and gives the same answer on any machine however busy. A commit is unpacked into a folder of its own for the time.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.instructions import counts_of
from bench.places import BENCH, PROJECT

BUDGET = 1.1
"""What one operation may cost, as a multiple of what it did before."""

TRIES = 2
"""How often it is counted where something seems too dear: one more turn of an event loop is no regression."""

SCENARIOS = (
    "call,call_sync,echo,list,unknown,read,records,records_null,wait,progress,echo_large,cold,tcp,ws,"
    "http_call,http_sse,http_list,http_connect,http_life,http_fanout"
)
INTERLEAVED = ("--rounds", "20", "--seconds", "0.1", "--warm-up", "0.5", "--starts", "2")
BRIEFLY = ("--rounds", "6", "--seconds", "0.05", "--warm-up", "0.2")


class NothingToCompare(Exception):
    """One sentence that says what was given instead of a commit."""


@contextmanager
def checkout_of(given: str) -> Iterator[Path]:
    """Return the folder of a checkout, or one that holds a commit's source for the time of the block."""
    folder = Path(given)
    if (folder / "src" / "ferrule").is_dir():
        yield folder
        return
    packed = subprocess.run(
        ["git", "archive", "--format=tar", f"{given}^{{commit}}", "src"], cwd=PROJECT, capture_output=True, check=False
    )
    if packed.returncode:
        raise NothingToCompare(f"{given}: neither a commit of this repository nor a folder with src/ferrule in it")
    with tempfile.TemporaryDirectory(prefix="ferrule-before-") as made:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(made, filter="data")
        yield Path(made)


def dearer(now: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """Return what costs over the budget more than before, and how many times as much."""
    ratios = {name: count / before[name] for name, count in now.items() if before.get(name)}
    return {name: ratio for name, ratio in ratios.items() if ratio > BUDGET}


def count_against(folder: Path) -> int:
    """Compare counts of instructions; 1 where something takes over a tenth more each time it is counted."""
    before, now = counts_of(folder), counts_of(PROJECT)
    found = dearer(now, before)
    for _ in range(TRIES - 1):
        if found:
            again = counts_of(PROJECT)
            now = {name: min(count, again[name]) for name, count in now.items()}
            found = dearer(now, before)
    print("| operation | before | now | now / before |\n|---|---|---|---|")
    for name in [name for name in now if name in before]:
        print(f"| {name} | {before[name]:,.0f} | {now[name]:,.0f} | {now[name] / before[name]:.3f} |")
    for name, ratio in found.items():
        print(f"regression: {name}: {ratio:.3f} times the instructions of before", file=sys.stderr)
    return 1 if found else 0


def measure_against(folder: Path, scenarios: str, *, quick: bool) -> int:
    """Compare CPU time, in one interleaved run."""
    pace = BRIEFLY if quick else INTERLEAVED
    command = [sys.executable, str(BENCH / "run.py"), "--before", str(folder), "--only", "ferrule"]
    return subprocess.run([*command, "--scenario", scenarios, *pace], cwd=PROJECT, check=False).returncode


def main() -> int:
    """Compare; 1 for a regression, 2 where there is nothing to compare with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a commit, a tag or a branch, or another checkout of this project")
    parser.add_argument("--short", action="store_true", help="count instructions instead of measuring")
    parser.add_argument("--quick", action="store_true", help="measure briefly; good for trying only")
    parser.add_argument("--scenario", default=SCENARIOS, help="what to measure, with commas between")
    chosen = parser.parse_args()
    try:
        with checkout_of(chosen.before) as folder:
            if chosen.short:
                return count_against(folder)
            return measure_against(folder, chosen.scenario, quick=chosen.quick)
    except NothingToCompare as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
