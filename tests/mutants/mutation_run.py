"""Plant bugs and see whether the tests find them: `make mutants`.

Each mutant is judged by the tests of its area that run the changed line; a mutant is found when one of them fails, or
takes far longer than it did. Mutants that no test can find are listed with their reason in `equivalent.toml` and are
not judged.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from areas import AREAS, PROJECT, SHARED, SOURCE, Area, mirrored
from plant import Mutant, mutants_of

HERE = Path(__file__).resolve().parent
KEPT = PROJECT / ".mutants"
PAGE = PROJECT / "docs" / "conformance" / "mutants.md"
RESULTS = KEPT / "results.jsonl"
GOAL = 0.95
WORKERS = 2


@dataclass(frozen=True)
class Planted:
    """A mutant, where it is, and what became of it."""

    area: Area
    path: Path
    mutant: Mutant
    number: int
    """Which it is among those of the file that read the same."""

    @property
    def file(self) -> str:
        """The file below `src/ferrule`."""
        return self.path.relative_to(SOURCE).as_posix()

    @property
    def key(self) -> str:
        """What stays the same when lines above it come and go."""
        return f"{self.file}|{self.mutant.source}|{self.mutant.change}|{self.number}"

    @property
    def place(self) -> str:
        """The file and line, for reports."""
        return f"{self.file}:{self.mutant.line}"


@dataclass
class Outcome:
    """How the mutants of a run ended."""

    results: list[tuple[Planted, dict[str, Any]]] = field(default_factory=list)

    def of(self, area: Area) -> list[dict[str, Any]]:
        """Return the results of an area."""
        return [result for planted, result in self.results if planted.area is area]

    def survivors(self) -> list[Planted]:
        """Return what no test found."""
        return [planted for planted, result in self.results if result["how"] == "survived"]

    def share(self) -> float:
        """Return how many of the judged were found."""
        return 1 - len(self.survivors()) / len(self.results) if self.results else 1.0


def digest(paths: list[Path]) -> str:
    """Return a digest of the contents of some files."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]


def equivalents() -> list[dict[str, str]]:
    """Return the list of mutants that change nothing anybody can see."""
    path = HERE / "equivalent.toml"
    entries: list[dict[str, str]] = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    return entries


def equivalent(planted: Planted, entries: list[dict[str, str]]) -> dict[str, str] | None:
    """Return the entry that covers a mutant; one without `change` covers all changes of its line."""
    for entry in entries:
        same_place = entry["file"] == planted.file and entry["line"] == planted.mutant.source
        same_one = int(entry.get("number", planted.number)) == planted.number
        if same_place and same_one and entry.get("change", planted.mutant.change) == planted.mutant.change:
            return entry
    return None


def everything(only: str) -> list[Planted]:
    """Return every mutant of the areas or files whose name begins with `only`."""
    found = []
    for area in AREAS:
        if area.asked_for and not only:
            continue
        for path in area.sources():
            if area.name.startswith(only) or path.relative_to(SOURCE).as_posix().startswith(only):
                found += in_file(area, path)
    return found


def in_file(area: Area, path: Path) -> list[Planted]:
    """Return every mutant of a file."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for mutant in mutants_of(path.read_bytes()):
        words = (mutant.source, mutant.change)
        found.append(Planted(area, path, mutant, seen[words]))
        seen[words] += 1
    return found


def sample(planted: list[Planted], count: int, seed: str) -> list[Planted]:
    """Return some, the same for the same seed; a change of the code moves only the mutants it touches."""

    def rank(one: Planted) -> str:
        return hashlib.sha256(f"{seed}|{one.key}".encode()).hexdigest()

    return sorted(planted, key=rank)[:count]


class Worker:
    """A process that judges, with its own copy of the source."""

    def __init__(self, number: int, folder: Path) -> None:
        self.folder = folder / str(number)
        self.source = self.folder / "src"
        shutil.copytree(PROJECT / "src", self.source, ignore=shutil.ignore_patterns("__pycache__"))
        environment = {**os.environ, "PYTHONPATH": str(self.source)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "judge.py"), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=PROJECT,
        )

    def copy_of(self, path: Path) -> str:
        """Return the worker's own copy of a source file."""
        return str(self.source / path.relative_to(PROJECT / "src"))

    def does(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run one job."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def closed(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class Map:
    """Which tests run which line, and how long each takes."""

    def __init__(self, area: Area, worker: Worker) -> None:
        sources, judges = area.sources(), area.judges()
        KEPT.mkdir(exist_ok=True)
        self.file = KEPT / f"{area.name}-{digest(sources + judges)}.json"
        if not self.file.exists():
            self.made(area, worker)
        stored = json.loads(self.file.read_text(encoding="utf-8"))
        self.seconds: dict[str, float] = stored["seconds"]
        self.lines: dict[str, dict[str, list[str]]] = stored["lines"]

    def made(self, area: Area, worker: Worker) -> None:
        """Run the tests of an area once."""
        started = time.monotonic()
        for old in KEPT.glob(f"{area.name}-*.json"):
            old.unlink()
        names = {worker.copy_of(path): path.relative_to(SOURCE).as_posix() for path in area.sources()}
        files = [path.relative_to(PROJECT).as_posix() for path in area.judges()]
        made = self.file.with_suffix(".made")
        worker.does({"to": str(made), "sources": list(names), "files": files})
        if not made.exists():
            raise RuntimeError(f"the tests of {area.name} ended without a map: run {' '.join(area.tests)} by hand")
        stored = json.loads(made.read_text(encoding="utf-8"))
        if not stored["seconds"]:
            raise RuntimeError(f"no test of {area.name} ran and passed: run {' '.join(area.tests)} by hand")
        stored["lines"] = {names[copy]: lines for copy, lines in stored["lines"].items()}
        self.file.write_text(json.dumps(stored), encoding="utf-8")
        made.unlink()
        print(f"{area.name}: {len(stored['seconds'])} tests in {time.monotonic() - started:.0f} s", flush=True)

    def tests(self, planted: Planted) -> dict[str, float]:
        """Return the tests that judge a mutant: those that run its lines, or all where they run at import."""
        lines = self.lines.get(planted.file, {})
        mutant = planted.mutant
        running = {test for line in range(mutant.first, mutant.last + 1) for test in lines.get(str(line), ())}
        if "" in running or not running:
            return self.seconds
        together = {file for file in SHARED if any(test.startswith(f"{file}::") for test in running)}
        running |= {test for test in self.seconds if test.partition("::")[0] in together}
        return {test: self.seconds[test] for test in running if test in self.seconds}


def job(planted: Planted, tests: dict[str, float], worker: Worker) -> dict[str, Any]:
    """Return what a worker is told: the file's own tests come first, then the quickest."""
    own = mirrored(planted.path)
    total: dict[str, float] = {}
    for test, seconds in tests.items():
        file = test.partition("::")[0]
        total[file] = total.get(file, 0.0) + seconds
    files = sorted(total, key=lambda file: (file != own, total[file]))
    mutant = planted.mutant
    return {
        "path": worker.copy_of(planted.path),
        "start": mutant.start,
        "end": mutant.end,
        "text": mutant.text,
        "tests": tests,
        "files": files,
    }


def judge(chosen: list[Planted], outcome: Outcome) -> None:
    """Judge the mutants, in as many processes as there are workers."""
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    workers = [Worker(number, folder) for number in range(WORKERS)]
    try:
        maps: dict[str, Map] = {}
        areas = [area for area in AREAS if any(one.area is area for one in chosen)]
        in_turn(workers, areas, maps_into(maps))
        missing = [area.name for area in areas if area.name not in maps]
        if missing:
            raise SystemExit(f"nothing was judged: there is no map of {', '.join(missing)}")
        in_turn(workers, chosen, judges_into(outcome, maps))
    finally:
        for worker in workers:
            worker.closed()
        shutil.rmtree(folder, ignore_errors=True)


def in_turn(workers: list[Worker], things: list[Any], task: Callable[[Worker, Any], None]) -> None:
    """Give each worker the next of some things until none is left."""
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for thing in things:
        waiting.put(thing)

    def work(worker: Worker) -> None:
        while True:
            try:
                thing = waiting.get_nowait()
            except queue.Empty:
                return
            task(worker, thing)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def maps_into(maps: dict[str, Map]) -> Callable[[Worker, Area], None]:
    """Return what makes the map of an area."""

    def task(worker: Worker, area: Area) -> None:
        maps[area.name] = Map(area, worker)

    return task


def judges_into(outcome: Outcome, maps: dict[str, Map]) -> Callable[[Worker, Planted], None]:
    """Return what judges a mutant."""

    def task(worker: Worker, one: Planted) -> None:
        tests = maps[one.area.name].tests(one)
        result = worker.does(job(one, tests, worker)) if tests else {"how": "survived", "by": "", "seconds": 0.0}
        result["tests"] = len(tests)
        outcome.results.append((one, result))
        keep(one, result)
        if result["how"] == "survived":
            print(f"survived ({len(tests)} tests): {one.place}: {one.mutant.change}", flush=True)

    return task


def keep(one: Planted, result: dict[str, Any]) -> None:
    """Write down how a mutant ended, for `--again` and `--page`."""
    note = {"key": one.key, "source": digest([one.path]), **result}
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(note, ensure_ascii=False) + "\n")


def judged_before(planted: list[Planted]) -> Outcome:
    """Return how mutants ended when they were last judged, as far as their files are still the same."""
    notes: dict[tuple[str, str], dict[str, Any]] = {}
    if RESULTS.exists():
        for line in RESULTS.read_text(encoding="utf-8").splitlines():
            note = json.loads(line)
            notes[note["key"], note["source"]] = note
    digests = {path: digest([path]) for path in {one.path for one in planted}}
    found = [(one, notes.get((one.key, digests[one.path]))) for one in planted]
    return Outcome([(one, note) for one, note in found if note is not None])


def table(outcome: Outcome, all_of_them: list[Planted], ruled_out: list[Planted]) -> str:
    """Return the figures per area, as a Markdown table."""
    rows = ["| area | mutants | equivalent | judged | found | share |", "|---|---|---|---|---|---|"]
    for area in AREAS:
        judged = outcome.of(area)
        if not judged:
            continue
        count = sum(one.area is area for one in all_of_them)
        beside = sum(one.area is area for one in ruled_out)
        found = sum(result["how"] != "survived" for result in judged)
        rows.append(f"| {area.name} | {count} | {beside} | {len(judged)} | {found} | {found / len(judged):.1%} |")
    found = len(outcome.results) - len(outcome.survivors())
    count, share = len(outcome.results), outcome.share()
    rows.append(f"| all | {len(all_of_them)} | {len(ruled_out)} | {count} | {found} | {share:.1%} |")
    return "\n".join(rows)


HEAD = """# Planted bugs

`make mutants` changes the source in one place at a time (a comparison, a condition, a constant, a result, a statement
left out) and runs the tests of that area which run the changed function. A mutant is found when a test fails, or takes
twenty times as long as it did. The target fails when less than 95 % are found.

A run judges a sample of 400; the same `SEED` draws the same one. `N=100` draws fewer, `ALL=1` judges all, `ONLY=wire`
or `ONLY=protocol/session.py` judges a part, `AGAIN=1` judges once more what survived. `PAGE=1` writes this page, with
the last verdict on each mutant that was judged since its file changed.

Tests are written for the survivors of a sample, so its share is high afterwards; a `SEED` that was never drawn tells
how many of all would be found. The last of these were `SEED=9701 N=200`: 197 of 200, 98.5 %,
`SEED=9702 N=150`: 147 of 150, 98.0 %, `SEED=12001 N=200`: 187 of 200, 93.5 %, three of those 13 change nothing, and
`SEED=16001 N=200`: 188 of 200, 94.0 %, three of those 12 change nothing.
"""


def page(outcome: Outcome, planted: list[Planted], entries: list[dict[str, str]], ruled_out: list[Planted]) -> str:
    """Return the page of what was judged."""
    survivors = sorted(outcome.survivors(), key=lambda one: (one.file, one.mutant.line))
    lines = [HEAD, table(outcome, planted, ruled_out), "", "## Survivors", ""]
    if survivors:
        lines.append("No test finds these yet.")
        lines += ["", *(f"- `{one.place}`: `{one.mutant.change}`" for one in survivors)]
    else:
        lines.append("None.")
    lines += ["", "## Equivalent mutants", ""]
    lines.append("No test can find these: the changed program does the same. They are listed in")
    lines += ["`tests/mutants/equivalent.toml` and are not judged.", "", "| where | change | why |", "|---|---|---|"]
    for one in sorted(ruled_out, key=lambda one: (one.file, one.mutant.line)):
        entry = equivalent(one, entries)
        assert entry is not None
        lines.append(f"| `{one.place}` | {cell(one.mutant.change)} | {entry['why']} |")
    return "\n".join(lines) + "\n"


def cell(code: str) -> str:
    """Return code for a cell of a Markdown table."""
    return "`" + code.replace("|", "\\|") + "`"


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=400, help="how many mutants are judged")
    parser.add_argument("--all", action="store_true", help="judge every mutant")
    parser.add_argument("--only", default="", help="an area or a file below src/ferrule")
    parser.add_argument("--seed", default="1", help="draws another sample")
    parser.add_argument("--again", action="store_true", help="judge what survived the last time")
    parser.add_argument("--list", action="store_true", help="print the mutants, judge none")
    parser.add_argument("--page", action="store_true", help="write docs/conformance/mutants.md")
    return parser.parse_args()


def main() -> int:
    """Plant, judge, report; return 1 when too few were found."""
    given = options()
    os.nice(19 - os.nice(0))
    all_of_them = everything(given.only)
    entries = equivalents()
    ruled_out = [one for one in all_of_them if equivalent(one, entries)]
    open_ones = [one for one in all_of_them if not equivalent(one, entries)]
    if given.again:
        chosen = judged_before(open_ones).survivors()
    else:
        chosen = sample(open_ones, len(open_ones) if given.all else given.count, given.seed)
    if given.list:
        for one in chosen:
            print(f"{one.place}: {one.mutant.operator}: {one.mutant.change}")
        return 0
    used = {id(entry) for one in ruled_out if (entry := equivalent(one, entries)) is not None}
    later = tuple(f"{name}/" for area in AREAS if area.asked_for for name in area.files)
    stale = [
        entry for entry in entries if id(entry) not in used and not given.only and not entry["file"].startswith(later)
    ]
    for entry in stale:
        print(f"equivalent.toml: no such mutant any more: {entry['file']}: {entry['line']}")
    outcome = Outcome()
    judge(chosen, outcome)
    print(table(outcome, all_of_them, ruled_out))
    if given.page:
        PAGE.write_text(page(judged_before(open_ones), all_of_them, entries, ruled_out), encoding="utf-8")
    return 1 if outcome.share() < GOAL else 0


if __name__ == "__main__":
    sys.exit(main())
