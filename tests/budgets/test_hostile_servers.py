"""What a hostile server costs its client, on every carrier: a turn of at most 100 ms, 64 MiB, and a clear end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_server import SCENARIOS, HostileServer
from vitals import Vitals

HERE = Path(__file__).resolve().parent
MIB = 1024 * 1024
LONG = bool(os.environ.get("FERRULE_LONG"))
LONGEST_TURN = 0.1 if LONG else 0.3
MOST_MEMORY = 64 * MIB
SETTLED = 20 * MIB
CARRIERS = ["stdio", "tcp", "websocket", "http", "sse"]


class AttackedClient:
    """A client in a process of its own, and how it is."""

    def __init__(self, target: Any) -> None:
        self.vitals = Vitals()
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "attacked_client.py"), json.dumps(target), str(self.vitals.fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[self.vitals.fd],
            env={**os.environ, "PYTHONPATH": str(HERE), "MALLOC_TRIM_THRESHOLD_": "131072"},
        )
        self.vitals.begun()

    def use(self) -> str:
        """Let the client use its server. Return how that ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"use\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().strip()

    def close(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.vitals.close()


def target_of(carrier: str, port: int) -> str:
    """Return what the client is given to reach a hostile server."""
    schemes = {"tcp": "tcp://127.0.0.1:{}", "websocket": "ws://127.0.0.1:{}/mcp/ws"}
    return schemes.get(carrier, "http://127.0.0.1:{}/mcp").format(port)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The target of a client that uses a hostile server."""
    carrier, name = request.param
    if carrier == "stdio":
        yield [sys.executable, str(HERE / "hostile_server.py"), name]
        return
    hostile = HostileServer(carrier, name)
    try:
        yield target_of(carrier, hostile.port)
    finally:
        hostile.close()


@pytest.mark.parametrize("server", [(c, s) for c in CARRIERS for s in SCENARIOS], indirect=True, ids="-".join)
def test_a_hostile_server_costs_its_client_little(server: Any):
    """BUD-01, BUD-02, BUD-04, BUD-07, BUD-15, BUD-21: the same scenarios on each carrier."""
    client = AttackedClient(server)
    try:
        base = client.vitals.reset()
        outcome = client.use()
        seen = client.vitals.look()
        assert outcome, "the client has died"
        assert not seen.loop_error
        assert seen.longest_turn <= LONGEST_TURN, f"one turn took {seen.longest_turn:.3f} s of CPU; {outcome}"
        assert seen.peak - base.resident <= MOST_MEMORY, f"{(seen.peak - base.resident) / MIB:.0f} MiB more; {outcome}"
        deadline = time.monotonic() + 5
        while (now := client.vitals.look().resident) > base.resident + SETTLED:
            assert time.monotonic() < deadline, f"{(now - base.resident) / MIB:.0f} MiB are kept; {outcome}"
            time.sleep(0.1)
    finally:
        client.close()
