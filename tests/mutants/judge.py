"""One process that judges mutants: pytest is loaded once, each mutant is tried in a fork of it.

It reads jobs from its standard input, one JSON text per line, and writes one answer per line. `PYTHONPATH` names a copy
of the source that is its own: a fork and the programs its tests start all see the changed file.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

MEMORY = 8 * 1024**3
"""Bytes of address space a mutant may take."""
SHORTEST_LIMIT = 15.0
SLOWER = 20
"""A test may take this many times as long as it did, and at least `SHORTEST_LIMIT` seconds."""
LONGEST = 1800
"""Seconds until a whole job is ended."""
ARGUMENTS = ("-q", "-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:rerunfailures")
PLANTED_AT = 1_000_000_000
"""The first modification time of a changed file; each gets another, so that no compiled file is taken for its own."""


class Judging:
    """Runs some tests only, each within its time, and writes down which one failed."""

    def __init__(self, wanted: dict[str, float], order: dict[str, int], notes: Path) -> None:
        self.wanted = wanted
        self.order = order
        self.notes = notes

    def pytest_sessionstart(self) -> None:
        """Called before tests are imported: what fails is not made smaller."""
        phases = [phase for phase in hypothesis.Phase if phase.name in {"explicit", "generate"}]
        hypothesis.settings.register_profile("mutants", hypothesis.settings.get_profile("ferrule"), phases=phases)
        hypothesis.settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the wanted tests; files in the given order, tests of a file as they stand."""
        items[:] = [item for item in items if item.nodeid in self.wanted]
        items.sort(key=lambda item: self.order[item.nodeid.partition("::")[0]])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """End the process when a test takes too long."""
        self.notes.write_text(item.nodeid, encoding="utf-8")
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, max(SHORTEST_LIMIT, SLOWER * self.wanted[item.nodeid]))
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


class Mapping:
    """Runs all tests and writes down which lines each of them runs."""

    def __init__(self, files: list[str], notes: Path) -> None:
        import coverage

        self.files = files
        self.notes = notes
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.tracer = coverage.Coverage(data_file=None, include=files, messages=False)
        self.tracer.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Name the test that runs."""
        self.tracer.switch_context(item.nodeid)
        started = time.monotonic()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.monotonic() - started

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that does not pass without a planted bug judges none."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def written(self) -> None:
        """Write the map: seconds per test, and per file and line the tests that run it."""
        self.tracer.stop()
        data = self.tracer.get_data()
        lines = {}
        for file in self.files:
            found = data.contexts_by_lineno(file)
            lines[file] = {line: sorted(set(tests) - self.failed) for line, tests in found.items()}
        seconds = {test: taken for test, taken in self.seconds.items() if test not in self.failed}
        self.notes.write_text(json.dumps({"seconds": seconds, "lines": lines}), encoding="utf-8")


def in_fork(log: Path, work: Any) -> str:
    """Run something in a fork; return how it ended."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            output = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            code = int(work())
        finally:
            os._exit(code)
    return ended(child)


def ended(child: int) -> str:
    """Wait for a fork, and end what it left behind."""
    deadline = time.monotonic() + LONGEST
    status: int | None = None
    while status is None and time.monotonic() < deadline:
        done, found = os.waitpid(child, os.WNOHANG)
        if done:
            status = found
        else:
            time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
        return "time"
    if os.WIFSIGNALED(status):
        return "time" if os.WTERMSIG(status) == signal.SIGALRM else "crash"
    return {0: "survived", 1: "found", 5: "survived", 70: "crash"}.get(os.WEXITSTATUS(status), "import")


def judged(job: dict[str, Any], folder: Path, number: int) -> dict[str, Any]:
    """Change a file, run the tests, put the file back."""
    path = Path(job["path"])
    original = path.read_bytes()
    planted = original[: job["start"]] + job["text"].encode() + original[job["end"] :]
    order = {file: at for at, file in enumerate(job["files"])}
    notes = folder / "notes"
    notes.write_text("", encoding="utf-8")
    started = time.monotonic()
    plugin = Judging(job["tests"], order, notes)
    try:
        path.write_bytes(planted)
        os.utime(path, (PLANTED_AT + number, PLANTED_AT + number))
        how = in_fork(folder / "log", lambda: pytest.main([*ARGUMENTS, *job["files"]], plugins=[plugin]))
    finally:
        path.write_bytes(original)
        os.utime(path, (PLANTED_AT - 1, PLANTED_AT - 1))
    by = notes.read_text(encoding="utf-8") if how != "survived" else ""
    return {"how": how, "by": by, "seconds": time.monotonic() - started}


def mapped(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run all tests of an area with nothing changed; the map is written to the file the job names."""

    def work() -> int:
        plugin = Mapping(job["sources"], Path(job["to"]))
        pytest.main([argument for argument in ARGUMENTS if argument != "-x"] + job["files"], plugins=[plugin])
        plugin.written()
        return 0

    return {"how": in_fork(folder / "log", work)}


def main() -> None:
    """Take jobs until there are none."""
    folder = Path(sys.argv[1])
    for number, line in enumerate(sys.stdin):
        job = json.loads(line)
        answer = mapped(job, folder) if "to" in job else judged(job, folder, number)
        with contextlib.suppress(BrokenPipeError):  # whoever gave the job was stopped
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    for name in ("httptools", "msgspec", "uvloop", "jsonschema_rs", "cryptography.hazmat.primitives.ciphers.aead"):
        __import__(name)
    main()
