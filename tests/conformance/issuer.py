"""The scenarios for authorization servers, run against the development server; each revision is one run of both."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import suites
from judging import Report, Run
from suites import Suite

SIDE = "authorization"
CLIENT = "conformance"
RESOURCE = "https://mcp.example.com/mcp"
START_SECONDS = 20


def reports(suite: Suite, wire: str, folder: Path, port: int, callback: int) -> Iterator[tuple[Run, Report]]:
    """Run the scenarios of a suite against a server of our own; yield each with what the suite left behind."""
    folder.mkdir(parents=True)
    issuer = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "ferrule.auth.devserver", "--port", str(port), "--user", "ada"),
            *("--client", f"{CLIENT}=http://127.0.0.1:{callback}/callback"),
        ],
        env={**os.environ, "FERRULE_ENV": "dev"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        server.stdout.readline()
        exit_code, log = _run(suite, wire, issuer, callback, folder)
    finally:
        server.terminate()
        server.communicate(timeout=START_SECONDS)
    for name in suite.scenarios(SIDE):
        run = Run(SIDE, suite.version, wire, name)
        yield run, Report(_checks(folder, name), exit_code, log)


def _run(suite: Suite, wire: str, issuer: str, callback: int, folder: Path) -> tuple[int, str]:
    words = [*suite.command, SIDE, "--url", issuer, "--client-id", CLIENT, "--port", str(callback)]
    words += ["--resource", RESOURCE, "--spec-version", wire, "-o", str(folder / "results")]
    log = folder / "log.txt"
    with log.open("wb") as out:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    visitor = threading.Thread(target=_visit, args=(log, issuer, child))
    visitor.start()
    try:
        exit_code = child.wait(suites.PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        exit_code = child.wait()
    visitor.join()
    return exit_code, log.read_text(encoding="utf-8", errors="replace")


def _visit(log: Path, issuer: str, child: subprocess.Popen[bytes]) -> None:
    """Open the page that the suite asks a person to open, as soon as it does."""
    wanted = re.compile(rf"^{re.escape(issuer)}/authorize\?\S+$", re.MULTILINE)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while child.poll() is None:
        found = wanted.search(log.read_text(encoding="utf-8", errors="replace"))
        if found and "Callback server started" in log.read_text(encoding="utf-8", errors="replace"):
            with opener.open(found[0], timeout=START_SECONDS) as answer:
                answer.read()
            return
        time.sleep(0.05)


def _checks(folder: Path, scenario: str) -> list[dict[str, object]] | None:
    found = sorted(folder.glob(f"results/*{scenario}-*/checks.json"))
    return json.loads(found[0].read_text(encoding="utf-8")) if found else None
