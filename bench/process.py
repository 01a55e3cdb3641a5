"""A contestant's process: started on the server's core, its complaints kept, and ended with all it started."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

from bench.contestants import Contestant
from bench.machine import SERVER_CORE, pinned

HOST = "127.0.0.1"
QUIETLY = {"NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": ""}
"""Without colours, and with compiled modules kept: those of the peers were compiled when they were installed."""
START_LIMIT = 60.0
SILENCE_LIMIT = 60.0

FEWEST_ANSWERS = 5
"""A window lasts until this many answers came, however slow the server."""


class BadAnswer(Exception):
    """A server said something wrong, or nothing more."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Break off the block with TimeoutError when it takes longer than that."""

    def expired(*_: object) -> None:
        raise TimeoutError(f"no end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def free_port() -> int:
    """Find a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


class ServerProcess:
    """The process of a contestant's server."""

    def __init__(self, contestant: Contestant, arguments: Sequence[str], *, pipes: bool) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        ends = subprocess.PIPE if pipes else subprocess.DEVNULL
        with pinned(SERVER_CORE):
            self.process = subprocess.Popen(
                [*contestant.command, *arguments],
                env={**os.environ, **QUIETLY, **contestant.environment},
                stdin=ends,
                stdout=ends,
                stderr=self._complaints,
                bufsize=0,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Tell the process id."""
        return self.process.pid

    def last_words(self) -> str:
        """Return the last line the server complained with."""
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "without a word")

    def wait_until_listening(self, port: int) -> None:
        """Wait until the server can be reached."""
        while True:
            try:
                socket.create_connection((HOST, port), SILENCE_LIMIT).close()
            except OSError:
                if self.process.poll() is not None:
                    raise BadAnswer(f"the server ended: {self.last_words()}") from None
                time.sleep(0.01)
            else:
                return

    def close(self) -> None:
        """End the process and whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout):
            if end is not None:
                end.close()
        self._complaints.close()
