"""The official conformance suites: installing them, listing their scenarios, running one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from judging import Check, Report, Run

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests" / "interop"))

from install_peers import Pins, install_npm, is_ready, take_lock  # noqa: E402

PACKAGE = "@modelcontextprotocol/conformance"
VERSIONS = ("0.1.16", "0.2.0-alpha.12")
NODE = "node@22"
"""The suites import what Node 20 does not have, and the machine's own may be older."""

WIRES = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
USUAL = "default"
"""The wire a suite chooses itself: its only one in 0.1.x, that of an extension in 0.2.x."""

BUDGET = 30
"""Seconds a scenario may take by the suite's own clock."""
PATIENCE = BUDGET + 45
"""Seconds until a suite that is stuck itself is ended."""

LISTED = re.compile(r"^  - (\S+) \[([^\]]*)\]$", re.MULTILINE)


def cache_folder() -> Path:
    """Where the suites are installed and leave their results."""
    return Path(os.environ.get("FERRULE_CONFORMANCE") or PROJECT / ".conformance").expanduser().resolve()


def read_list(text: str) -> dict[str, frozenset[str]]:
    """Read a suite's list of scenarios: the names, and the revisions each is for."""
    return {name: frozenset(tags.split(",")) for name, tags in LISTED.findall(text)}


def wires(version: str, tags: frozenset[str], wanted: str | None) -> list[str]:
    """Return the wires a scenario has to run on: one of each era it applies to, or just the wanted one."""
    if version.startswith("0.1."):
        # Here a revision only selects scenarios: what is spoken does not change, and is never the stateless era.
        return [USUAL] if wanted is None or wanted in tags - {WIRES[-1]} else []
    if wanted is not None:
        return [wanted] if wanted in tags else []
    handshake = [wire for wire in WIRES[:-1] if wire in tags]
    return [
        *([USUAL] if "extension" in tags else []),
        *handshake[-1:],
        *([WIRES[-1]] if WIRES[-1] in tags else []),
    ]


@dataclass(frozen=True)
class Suite:
    """One installed version."""

    version: str
    command: tuple[str, ...]

    def scenarios(self, side: str) -> dict[str, frozenset[str]]:
        """List the scenarios of a side, with the revisions each is for."""
        done = subprocess.run(
            [*self.command, "list", f"--{side}"], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        return read_list(done.stdout)

    def run(self, run: Run, target: str, folder: Path) -> Report:
        """Run one scenario against a URL or a command; its traces stay in the folder."""
        folder.mkdir(parents=True)
        log = folder / "log.txt"
        words = [*self.command, *self.arguments(run, target), "-o", str(folder / "results")]
        with log.open("wb") as out:
            exit_code = _ended(words, out.fileno())
        return Report(_checks(folder / "results"), exit_code, log.read_text(encoding="utf-8", errors="replace"))

    def arguments(self, run: Run, target: str) -> list[str]:
        """Return the words that make the suite run one scenario."""
        aim = "--url" if run.side == "server" else "--command"
        words = [run.side, aim, target, "--scenario", run.scenario]
        if run.wire != USUAL:
            words += ["--spec-version", run.wire]
        if run.side == "client" or not self.version.startswith("0.1."):
            words += ["--timeout", str(BUDGET * 1000)]
        return words


def _checks(results: Path) -> list[Check] | None:
    """Read the checks of a run; None where it was cut off before it had written them."""
    found = sorted(results.rglob("checks.json"))
    try:
        return json.loads(found[0].read_text(encoding="utf-8")) if found else None
    except ValueError:
        return None


def _ended(words: Sequence[str], out: int) -> int:
    """Run a program to its end, or end it and all it started when it takes too long; gives its exit code."""
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    try:
        return child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def install(root: Path) -> list[Suite]:
    """Install Node and the suites where they are missing; raises InstallFailed where they cannot be had."""
    node = _installed(root / "node", NODE) / "node_modules" / ".bin" / "node"
    program = Path("node_modules", *PACKAGE.split("/"), "dist", "index.js")
    folders = {version: _installed(root / version, f"{PACKAGE}@{version}") for version in VERSIONS}
    return [Suite(version, (str(node), str(folder / program))) for version, folder in folders.items()]


def _installed(folder: Path, package: str) -> Path:
    pins = Pins("npm", (package,))
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.with_name(f".{folder.name}.lock")
    take_lock(lock)
    try:
        if not is_ready(folder, pins):
            print(f"installing {package}", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            install_npm(folder, pins)
            (folder / "ready").write_text(pins.text())
    finally:
        lock.unlink(missing_ok=True)
    return folder
