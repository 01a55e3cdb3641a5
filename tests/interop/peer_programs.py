"""Start the client and server programs of the peers and of Ferrule."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from install_peers import PINS, is_ready, peers_folder, venv_python
from matrix import OURS, Run

HERE = Path(__file__).resolve().parent
RUN_SECONDS = 400
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


def start(
    command: list[str], complaints: int | IO[str] = subprocess.PIPE, attempts: int = EXEC_ATTEMPTS
) -> subprocess.Popen[str]:
    """Start a program in a process group of its own; its stderr goes to `complaints`."""
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
    except OSError as error:
        # Some virtual machines now and then fail an exec with EFAULT though the program and its arguments are sound.
        if error.errno != errno.EFAULT or attempts <= 1:
            raise
    time.sleep(0.2)
    return start(command, complaints, attempts - 1)


def observe(run: Run) -> dict[str, Any]:
    """Run a client against a server and give what it observed, feature by feature."""
    client, server = program(run.client, "client"), program(run.server, "server")
    if run.transport == "stdio":
        return exercise([*client, *run.arguments, "--", *server])
    with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
        with serving(server, complaints) as url:
            seen = exercise([*client, *run.arguments, "--url", url])
        if seen.get("connect") != "connected":
            complaints.seek(0)
            seen["connect"] = {"client": seen.get("connect"), "server": complaints.read()[-2000:]}
        return seen


@contextlib.contextmanager
def serving(command: list[str], complaints: IO[str]) -> Iterator[str]:
    """Serve over HTTP while the block runs; gives where."""
    process = start([*command, "--http"], complaints)
    assert process.stdout is not None
    # Whoever waits for a server that hangs is released by its end.
    late = threading.Timer(2 * RUN_SECONDS, end_group, [process])
    late.start()
    try:
        yield (process.stdout.readline().split() or ["http://said.nothing.invalid"])[-1]
    finally:
        late.cancel()
        end_group(process)
        process.communicate()


def exercise(command: list[str]) -> dict[str, Any]:
    """Run a client program to its end and give what it observed."""
    process = start(command)
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
