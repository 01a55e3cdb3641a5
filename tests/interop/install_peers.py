"""Install the pinned peer SDKs that the interoperability tests run against.

Usage: python tests/interop/install_peers.py [--strict] [PEER...]

Each peer gets a folder of its own under `.peers` (or $FERRULE_PEERS) and a `ready` marker that holds its pins, so a
second call does nothing and a changed pin installs again. A peer that cannot be installed is reported and left out;
only `--strict` turns that into a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
INSTALL_SECONDS = 900
LOCK_SECONDS = 1200


@dataclass(frozen=True)
class Pins:
    """What one peer folder holds: Python packages in a virtual environment, or npm packages."""

    kind: str
    packages: tuple[str, ...]
    overrides: tuple[str, ...] = ()

    def text(self) -> str:
        return "\n".join((self.kind, *self.packages, *self.overrides)) + "\n"


PINS = {
    "mcp2": Pins("python", ("mcp==2.3.0",)),
    "mcp1": Pins("python", ("mcp==1.30.0",)),
    # fastmcp 4.1.4 demands a certifi that is newer than the newest one published.
    "fastmcp": Pins("python", ("fastmcp==4.1.4", "mcp==2.3.0"), overrides=("certifi>=2026.1",)),
    "node": Pins("npm", ("node@22",)),
    "ts1": Pins("npm", ("@modelcontextprotocol/sdk@1.32.2", "zod@4")),
    "ts2": Pins("npm", ("@modelcontextprotocol/server@2.4.0", "@modelcontextprotocol/client@2.4.0", "zod@4")),
}


class InstallFailed(Exception):
    """One sentence that says why a peer is not there."""


def peers_folder() -> Path:
    return Path(os.environ.get("FERRULE_PEERS") or PROJECT / ".peers").expanduser().resolve()


def is_ready(folder: Path, pins: Pins) -> bool:
    marker = folder / "ready"
    return marker.is_file() and marker.read_text() == pins.text()


def venv_python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def run(*command: str | Path, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise InstallFailed(f"{command[0]} is not on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise InstallFailed(f"{command[0]} took longer than {INSTALL_SECONDS} s") from error
    if done.returncode != 0:
        last_line = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise InstallFailed(f"{Path(command[0]).name} failed: {last_line[0]}")


def install_python(folder: Path, pins: Pins) -> None:
    run(sys.executable, "-m", "venv", folder)
    python = venv_python(folder)
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    try:
        run(*pip, *pins.packages)
    except InstallFailed:
        if not pins.overrides:
            raise
        overrides = folder / "overrides.txt"
        overrides.write_text("\n".join(pins.overrides) + "\n")
        run(*pip, "uv")
        run(python, "-m", "uv", "pip", "install", "-q", "--python", python, "--override", overrides, *pins.packages)


def install_npm(folder: Path, pins: Pins) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallFailed("npm is not on this machine")
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}\n')
    run(npm, "install", "--no-audit", "--no-fund", "--loglevel=error", *pins.packages, cwd=folder)


def take_lock(lock: Path) -> None:
    """Wait until no other process installs this peer; a lock left behind by a dead process expires."""
    while True:
        try:
            lock.touch(exist_ok=False)
        except FileExistsError:
            if time.time() - lock.stat().st_mtime > LOCK_SECONDS:
                lock.touch()
                return
            time.sleep(0.5)
        else:
            return


def install(name: str, root: Path) -> str:
    """Install one peer and say what happened; raise InstallFailed where it cannot be had."""
    folder, pins = root / name, PINS[name]
    if is_ready(folder, pins):
        return "ready"
    root.mkdir(parents=True, exist_ok=True)
    lock = root / f".{name}.lock"
    take_lock(lock)
    try:
        if is_ready(folder, pins):
            return "ready"
        shutil.rmtree(folder, ignore_errors=True)
        (install_python if pins.kind == "python" else install_npm)(folder, pins)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as marker:
            marker.write(pins.text())
        Path(marker.name).replace(folder / "ready")
        return "installed"
    finally:
        lock.unlink(missing_ok=True)


def report(name: str, root: Path) -> bool:
    pinned = " ".join(PINS[name].packages)
    try:
        outcome = install(name, root)
    except (InstallFailed, OSError) as error:
        print(f"{name:8} skipped    {pinned}: {error}", flush=True)
        return False
    print(f"{name:8} {outcome:10} {pinned}", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"which peers (default: all of {', '.join(PINS)})")
    parser.add_argument("--strict", action="store_true", help="fail when a peer cannot be installed")
    options = parser.parse_args()
    unknown = [name for name in options.peers if name not in PINS]
    if unknown:
        parser.error(f"no peer named {', '.join(unknown)}; there are {', '.join(PINS)}")
    root = peers_folder()
    with ThreadPoolExecutor(max_workers=3) as pool:
        outcomes = list(pool.map(lambda name: report(name, root), options.peers or PINS))
    return 1 if options.strict and not all(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
