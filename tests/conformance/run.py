"""Run every scenario of the official conformance suites: fixture server, client driver, development issuer.

Usage: python tests/conformance/run.py [--side SIDE] [--only REGEX] [--wire REVISION] [--http2] [--watched]
       [--workers N] [--nodes N]

Prints a line for each scenario and wire, and last `N passed, M failed`. What need not pass yet stands in expected.toml
with its reason and is counted as neither. Exit status: 0 when nothing failed, 1 when something did, 2 when nothing ran.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "stores"))

import issuer
import suites
from install_peers import InstallFailed
from judging import Outcome, Run, Verdict, judge, read_expectations
from redis_server import RedisServer, find_redis
from suites import Suite

HERE = Path(__file__).resolve().parent
SIDES = ("server", "client", issuer.SIDE)
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
    parser.add_argument("--workers", type=int, metavar="N", help="let so many processes serve the fixture")
    parser.add_argument("--nodes", type=int, default=1, help="so many fixture servers that share a Redis, in turn")
    options = parser.parse_args()
    if options.workers and options.watched:
        parser.error("--watched is for one process: leave --workers out")
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
        if side == issuer.SIDE:
            tally += run_issuer(installed, results / side, options.only, options.wire)
            continue
        plan = [pair for suite in installed for pair in planned(suite, side, options.only, options.wire)]
        if not plan:
            continue
        try:
            tally += run_side(side, plan, results / side, options)
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


def run_side(side: str, plan: list[tuple[Suite, Run]], results: Path, options: argparse.Namespace) -> Counter[Outcome]:
    """Run one scenario after the other: side by side they would disturb each other's clocks and lists."""
    expectations = read_expectations((HERE / "expected.toml").read_text(encoding="utf-8"))
    results.mkdir(parents=True)
    tally: Counter[Outcome] = Counter()
    with serving(results / "server.log", options) if side == "server" else driving() as target:
        for suite, run in plan:
            report = suite.run(run, target, results / run.suite / run.wire / run.scenario)
            verdict = judge(run, report, expectations)
            print(line(run, verdict), flush=True)
            tally[verdict.outcome] += 1
    return tally


def run_issuer(
    installed: list[Suite], results: Path, only: re.Pattern[str] | None, wanted: str | None
) -> Counter[Outcome]:
    """Run the scenarios for authorization servers, which only newer suites have."""
    expectations = read_expectations((HERE / "expected.toml").read_text(encoding="utf-8"))
    tally: Counter[Outcome] = Counter()
    for suite in installed:
        if suite.version.startswith("0.1.") or (only is not None and not only.search(issuer.SIDE)):
            continue
        for wire in suites.WIRES if wanted is None else (wanted,):
            folder = results / suite.version / wire
            for run, report in issuer.reports(suite, wire, folder, free_port(), free_port()):
                verdict = judge(run, report, expectations)
                print(line(run, verdict), flush=True)
                tally[verdict.outcome] += 1
    return tally


def free_port() -> int:
    """Return a port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


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
def serving(log: Path, options: argparse.Namespace) -> Iterator[str]:
    """Serve the fixture on a free port while it is used; gives the URL of it, or of what stands before it."""
    words: list[str] = []
    if options.workers:
        words += ["--workers", str(options.workers)]
    if options.watched:
        words += ["--watched", str(log.parent / "receipts")]
    serve = partial(nodes, options.nodes) if options.nodes > 1 else partial(running, "server.py")
    with serve(log, *words) as port:
        if options.http2:
            with running("http2_proxy.py", log.with_name("proxy.log"), "--to", str(port)) as before:
                yield f"http://localhost:{before}/mcp"
        else:
            # By name: the scenario on rebinding is only for servers on localhost.
            yield f"http://localhost:{port}/mcp"


@contextlib.contextmanager
def nodes(count: int, log: Path, *words: str) -> Iterator[int]:
    """Run fixture servers that share a Redis; gives the port of a balancer that takes turns by connection."""
    if find_redis() is None:
        raise NotServed("several nodes need a redis-server, and there is none: name one by FERRULE_REDIS_SERVER")
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        ports = []
        for number in range(count):
            own = log.with_name(f"server-{number}.log")
            ports.append(stack.enter_context(running("server.py", own, *words, stores=redis.url)))
        yield stack.enter_context(running("../cluster/balancer.py", log, "--to", *map(str, ports)))


@contextlib.contextmanager
def running(program: str, log: Path, *words: str, stores: str = "") -> Iterator[int]:
    """Run a program of this folder while it is used; gives the port it listens on."""
    port = free_port()
    command = (sys.executable, str(HERE / program), "--port", str(port), *words)
    environment = {**os.environ, "FERRULE_SERVER_STORES": stores} if stores else None
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
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
