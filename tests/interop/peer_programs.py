"""Start the client and server programs of the peers and of Ferrule."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from install_peers import PINS, is_ready, peers_folder, venv_python
from matrix import OURS, Run

HERE = Path(__file__).resolve().parent
RUN_SECONDS = 150
EXEC_ATTEMPTS = 5


def missing(peer: str) -> str | None:
    """Why a peer cannot be run here, or None."""
    if peer == OURS:
        return None
    needed = ("node", peer) if PINS[peer].kind == "npm" else (peer,)
    absent = [name for name in needed if not is_ready(peers_folder() / name, PINS[name])]
    return f"{' and '.join(absent)} not installed in {peers_folder()}: run `make peers`" if absent else None


def node() -> str:
    return str(peers_folder() / "node" / "node_modules" / ".bin" / ("node.cmd" if os.name == "nt" else "node"))


def program(peer: str, role: str) -> list[str]:
    """The command that starts a peer's `client` or `server`."""
    if peer == OURS:
        return [sys.executable, str(HERE / ("ferrule_server.py" if role == "server" else "ferrule_drive.py"))]
    folder = peers_folder() / peer
    if PINS[peer].kind == "npm":
        return [node(), str(HERE / "peers" / f"{peer}_{role}.mjs"), str(folder)]
    return [str(venv_python(folder)), str(HERE / "peers" / f"{peer}_{role}.py")]


def end_group(process: subprocess.Popen[str]) -> None:
    """Kill the client and the server it started."""
    with contextlib.suppress(ProcessLookupError):
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


def start(command: list[str], attempts: int = EXEC_ATTEMPTS) -> subprocess.Popen[str]:
    """Start a program in a process group of its own."""
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
    except OSError as error:
        # Some virtual machines now and then fail an exec with EFAULT though the program and its arguments are sound.
        if error.errno != errno.EFAULT or attempts <= 1:
            raise
    time.sleep(0.2)
    return start(command, attempts - 1)


def observe(run: Run) -> dict[str, Any]:
    """Run a client against a server and give what it observed, feature by feature."""
    process = start([*program(run.client, "client"), *run.arguments, "--", *program(run.server, "server")])
    try:
        output, complaints = process.communicate(timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        end_group(process)
        output, complaints = process.communicate()
        complaints = f"killed after {RUN_SECONDS} s\n{complaints}"
    try:
        return json.loads(output)
    except ValueError:
        return {"connect": {"error": f"the client program gave no result: {complaints.strip()[-2000:]}"}}
