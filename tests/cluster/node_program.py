"""Nodes in processes of their own, which can be killed: `python node_program.py NUMBER REDIS LEASE`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

HERE = Path(__file__).resolve().parent


class NodeProcesses:
    """Nodes that share a Redis, started at once; gone at the end."""

    def __init__(self, url: str, count: int = 2, lease: float = 1.0) -> None:
        self._url = url
        self._lease = lease
        self.each: list[subprocess.Popen[str]] = []
        self.ports: list[int] = []
        self._count = count

    def __enter__(self) -> Self:
        for number in range(self._count):
            self.each.append(self._start(number))
        self.ports = [_port(process) for process in self.each]
        return self

    def _start(self, number: int) -> subprocess.Popen[str]:
        command = [sys.executable, str(HERE / "node_program.py"), str(number), self._url, str(self._lease)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)

    def kill(self, number: int) -> None:
        """Kill a node as a crash would."""
        self.each[number].kill()
        self.each[number].wait()

    def replace(self, number: int) -> None:
        """Start a node in the place of one that is gone."""
        self.each[number] = self._start(number)
        self.ports[number] = _port(self.each[number])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.each:
            process.kill()
            process.communicate()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


async def main(arguments: Sequence[str]) -> None:
    """Serve until killed, and say at which port."""
    number, url, lease = arguments
    app = new_app(int(number), stores=Stores.redis(url, lease=float(lease)))
    listener = Http(port=0)

    def ready() -> None:
        sys.stdout.write(f"{listener.address[1]}\n")
        sys.stdout.flush()

    with Shutdown(asyncio.get_running_loop(), lambda: asyncio.ensure_future(app.stop())):
        await app.serve(listener, ready=ready)


if __name__ == "__main__":
    import asyncio

    from nodes import new_app

    from ferrule.stores.stores import Stores
    from ferrule.supervision.signals import Shutdown
    from ferrule.transports.http.listener import Http

    os.environ.setdefault("PYTHONDEVMODE", "0")
    asyncio.run(main(sys.argv[1:]))
