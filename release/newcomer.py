"""Do what docs/start/first.md says, line by line, in a terminal, and compare what is on the screen.

Usage: python release/newcomer.py PROGRAMS

PROGRAMS is the folder of `ferrule` and `pytest`; everything else is made in an empty folder.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "start" / "first.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
PATIENCE = 120.0
PORT = "8000"
"""The port on the page; a free one is used in its place."""
WATCHED = ("/livez", "/readyz", "/metrics")
SERVES = "Ctrl-C ends it."
ASKS = "Install it?"


class Different(Exception):
    """What the page says, and what is on the screen."""


def lines_of(page: str) -> list[tuple[str, str]]:
    """Return each command of a page, with what it shows."""
    found: list[tuple[str, str]] = []
    for block in CONSOLE.findall(page):
        for part in block.split("$ ")[1:]:
            command, _, shows = part.partition("\n")
            found.append((command, shows))
    return found


class Terminal:
    """One program in a pseudo-terminal, and what is on the screen."""

    def __init__(self, words: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment, start_new_session=True
        )
        os.close(theirs)
        self._raw = b""

    @property
    def screen(self) -> str:
        """What was written, without escape sequences."""
        return ESCAPES.sub("", self._raw.decode(errors="replace")).replace("\r\n", "\n")

    def finish(self, interrupt_at: str = "", port: str = "") -> int:
        """Read to the end, with one Ctrl-C when a text is there, and agree when asked; return the exit code.

        Before the Ctrl-C, the server at a port is asked for its health and its metrics.
        """
        answered = False
        until = time.monotonic() + PATIENCE
        try:
            while self._read() or self._process.poll() is None:
                if time.monotonic() > until:
                    raise Different(f"no end after {PATIENCE:g} s:\n{self.screen}")
                if interrupt_at and interrupt_at in self.screen:
                    for path in WATCHED:
                        require_answer(f"http://127.0.0.1:{port}{path}")
                    os.killpg(self._process.pid, signal.SIGINT)
                    interrupt_at = ""
                if not answered and ASKS in self.screen:
                    os.write(self._ours, b"y\n")
                    answered = True
            return self._process.wait(PATIENCE)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            os.close(self._ours)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 0.1)[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False
        self._raw += data
        return bool(data)


def require_answer(url: str) -> None:
    """Raise Different unless a URL is answered with 200."""
    try:
        urllib.request.urlopen(url, timeout=PATIENCE).close()
    except OSError as reason:
        raise Different(f"{url} is answered with {reason}") from None


def follow(programs: Path, folder: Path, page: str) -> int:
    """Run every command of a page in an empty folder; return how many were run."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.defpath}",
        "HOME": str(folder),
        "TERM": "xterm",
        "COLUMNS": "120",
        "FERRULE_HTTP_PORT": port,
    }
    here = folder
    count = 0
    for command, shows in lines_of(page):
        words = shlex.split(command)
        if words[0] == "cd":
            here /= words[1]
        elif words[0] != "python":  # the package is installed already
            _try(words, shows.replace(PORT, port), here, {**environment, "PWD": str(here)}, programs, port)
            count += 1
    return count


def _try(words: list[str], shows: str, folder: Path, environment: dict[str, str], programs: Path, port: str) -> None:
    terminal = Terminal([str(programs / words[0]), *words[1:]], folder, environment)
    code = terminal.finish(interrupt_at=SERVES if SERVES in shows else "", port=port)
    wanted = 1 if shows.startswith("error: ") else 0
    # Where the page shows nothing, it says what happens in words.
    differs = shows and terminal.screen.replace("^C", "").strip() != shows.strip()
    if code != wanted or differs:
        told = f"`{' '.join(words)}` exits with {code} and shows"
        raise Different(f"{told}\n{terminal.screen}\nwhere the page says\n{shows}")


def main() -> int:
    """Follow the page."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            count = follow(Path(sys.argv[1]).resolve(), Path(folder), PAGE.read_text(encoding="utf-8"))
        except Different as error:
            sys.stderr.write(f"{error}\n")
            return 1
    print(f"{count} commands of {PAGE.name} do what it says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
