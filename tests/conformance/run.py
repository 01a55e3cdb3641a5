"""Run every scenario of the official conformance suites against the fixture server and the client driver.

Usage: python tests/conformance/run.py [--side server|client] [--only REGEX] [--wire REVISION] [--http2] [--watched]

Prints a line for each scenario and wire, and last `N passed, M failed`. What need not pass yet stands in expected.toml
with its reason and is counted as neither. Exit status: 0 when nothing failed, 1 when something did, 2 when nothing ran.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import suites
from install_peers import InstallFailed
from judging import Outcome, Run, Verdict, judge, read_expectations
from suites import Suite

HERE = Path(__file__).resolve().parent
SIDES = ("server", "client")
START_SECONDS = 20
STOP_SECONDS = 10


class NotServed(Exception):
    """One sentence that says why there is no server to test."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=SIDES, help="run this side only")
    parser.add_argument("--only", type=re.compile, metavar="REGEX", help="run the scenarios whose name has a match")
    parser.add_argument("--wire", choices=suites.WIRES, help="run what this revision has, on its wire")
    parser.add_argument("--http2", action="store_true", help="reach the fixture server through a proxy, over HTTP/2")
    parser.add_argument("--watched", action="store_true", help="let the fixture server record all it can")
    options = parser.parse_args()
    root = suites.cache_folder()
    try:
        installed = suites.install(root)
    except (InstallFailed, OSError) as reason:
        print(f"the conformance suites cannot be installed: {reason}", file=sys.stderr)
        return 2
    sides = (options.side,) if options.side else SIDES
    results = root / "results"
    shutil.rmtree(results, ignore_errors=True)
    tally: Counter[Outcome] = Counter()
    for side in sides:
        plan = [pair for suite in installed for pair in planned(suite, side, options.only, options.wire)]
        if not plan:
            continue
        try:
            tally += run_side(side, plan, results / side, http2=options.http2, watched=options.watched)
        except NotServed as reason:
            print(reason, file=sys.stderr)
            return 2
    print(f"{tally[Outcome.AWAITED]} not expected to pass yet, {tally[Outcome.UNTESTED]} not tested; traces: {results}")
    print(f"{tally[Outcome.PASSED]} passed, {tally[Outcome.FAILED]} failed")
    if not tally:
        return 2
    return 1 if tally[Outcome.FAILED] else 0


def planned(suite: Suite, side: str, only: re.Pattern[str] | None, wire: str | None) -> Iterator[tuple[Suite, Run]]:
    """Return what a suite has to run, one wire after the other."""
    runs = [
        Run(side, suite.version, each, name)
        for name, tags in suite.scenarios(side).items()
        if only is None or only.search(name)
        for each in suites.wires(suite.version, tags, wire)
    ]
    order = {name: at for at, name in enumerate((*suites.WIRES, suites.USUAL))}
    return ((suite, run) for run in sorted(runs, key=lambda run: order[run.wire]))


def run_side(
    side: str, plan: list[tuple[Suite, Run]], results: Path, *, http2: bool, watched: bool
) -> Counter[Outcome]:
    """Run one scenario after the other: side by side they would disturb each other's clocks and lists."""
    expectations = read_expectations((HERE / "expected.toml").read_text(encoding="utf-8"))
    results.mkdir(parents=True)
    tally: Counter[Outcome] = Counter()
    with serving(results / "server.log", http2=http2, watched=watched) if side == "server" else driving() as target:
        for suite, run in plan:
            report = suite.run(run, target, results / run.suite / run.wire / run.scenario)
            verdict = judge(run, report, expectations)
            print(line(run, verdict), flush=True)
            tally[verdict.outcome] += 1
    return tally


def line(run: Run, verdict: Verdict) -> str:
    """Write one run and what it is worth."""
    notes = "".join(f"  -- {note}" for note in verdict.notes)
    place = f"{run.side} {run.suite:14} {run.wire:10}"
    return f"{verdict.outcome:5}  {place}  {run.scenario:46} {verdict.counts}{notes}"


@contextlib.contextmanager
def driving() -> Iterator[str]:
    """Yield the command that starts the client driver."""
    yield shlex.join((sys.executable, str(HERE / "client.py")))


@contextlib.contextmanager
def serving(log: Path, *, http2: bool, watched: bool) -> Iterator[str]:
    """Serve the fixture on a free port while it is used; gives the URL of it, or of the proxy before it."""
    words = ("--watched", str(log.parent / "receipts")) if watched else ()
    with running("server.py", log, *words) as port:
        if http2:
            with running("http2_proxy.py", log.with_name("proxy.log"), "--to", str(port)) as before:
                yield f"http://localhost:{before}/mcp"
        else:
            # By name: the scenario on rebinding is only for servers on localhost.
            yield f"http://localhost:{port}/mcp"


@contextlib.contextmanager
def running(program: str, log: Path, *words: str) -> Iterator[int]:
    """Run a program of this folder while it is used; gives the port it listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = (sys.executable, str(HERE / program), "--port", str(port), *words)
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        wait_until_served(server, port, log)
        yield port
    finally:
        server.terminate()
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_until_served(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return when the port answers; raises NotServed when it never does."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    raise NotServed(f"the fixture server does not answer: {last[0]}")


if __name__ == "__main__":
    sys.exit(main())
