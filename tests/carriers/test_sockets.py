"""How many writes answers take, and that no TCP connection of ours waits to fill its segments."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from every_way import every_way

from ferrule import Client, Server

PROGRAM = """
import sys
from ferrule import Server

app = Server("writes")
name, *path = sys.argv[1:]
app.run(name, **({"path": path[0]} if path else {"port": 0} if name == "tcp" else {}))
"""
REQUESTS = 100
MOST_WRITES = 10


def lines(first: int, count: int) -> bytes:
    pings = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(first, first + count)]
    return b"".join(json.dumps(ping).encode() + b"\n" for ping in pings)


def writes_of(pid: int) -> int:
    """Return how many write calls a process has made, as the system counts them."""
    return int(Path(f"/proc/{pid}/io").read_text().partition("syscw: ")[2].split()[0])


@contextmanager
def speaking(carrier: str, folder: Path) -> Iterator[tuple[int, Any]]:
    """Start a server; yields its process id and a file to read and write lines with."""
    path = str(folder / "s")
    arguments = [sys.executable, "-c", PROGRAM, carrier, *([path] if carrier == "unix" else [])]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
        try:
            if carrier == "stdio":
                yield process.pid, (process.stdin, process.stdout)
                return
            greeting = process.stderr.readline().decode()
            if carrier == "unix":
                peer = socket.socket(socket.AF_UNIX)
                peer.connect(path)
            else:
                peer = socket.create_connection(("127.0.0.1", int(re.findall(r":(\d+)", greeting)[0])))
            with peer, peer.makefile("rwb", buffering=0) as file:
                yield process.pid, (file, file)
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("carrier", ["stdio", "tcp", "unix"])
def test_answers_to_what_was_read_at_once_leave_in_few_writes(carrier: str, tmp_path: Path) -> None:
    """PERF-15: and one by one each is a write of its own."""
    with speaking(carrier, tmp_path) as (pid, (to, back)):
        reader = open(os.dup(back.fileno()), "rb")  # noqa: SIM115
        with reader:
            to.write(lines(0, 1))
            reader.readline()
            before = writes_of(pid)
            to.write(lines(1, REQUESTS))
            for _ in range(REQUESTS):
                assert b'"result"' in reader.readline()
            at_once = writes_of(pid) - before
            for number in range(REQUESTS):
                to.write(lines(1000 + number, 1))
                reader.readline()
            one_by_one = writes_of(pid) - before - at_once
    assert at_once <= MOST_WRITES
    assert one_by_one >= REQUESTS


def connections() -> dict[tuple[Any, Any], int]:
    """Return TCP_NODELAY of each TCP connection of this process, by its two addresses."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        if is_socket(number):
            with socket.socket(fileno=os.dup(int(number))) as each, suppress(OSError):
                if each.family == socket.AF_INET:
                    addresses = each.getsockname(), each.getpeername()
                    found[addresses] = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    return found


def is_socket(number: str) -> bool:
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    return False


@pytest.mark.parametrize("name", ["tcp", "tls", "websocket", "http", "sse"])
def test_nagle_is_off_on_both_sides(name: str, tmp_path: Path) -> None:
    """PERF-16."""

    async def use() -> list[int]:
        app, ready, way = Server("nagle"), asyncio.Event(), every_way(str(tmp_path))[name]
        before = connections()
        serving = asyncio.ensure_future(app.serve(way.listener, ready=ready.set))
        await ready.wait()
        async with Client(way.target, **{way.options_of: way.options}) as client:
            await client.ping()
            options = [option for addresses, option in connections().items() if addresses not in before]
        await app.stop(0.0)
        await serving
        return options

    options = asyncio.run(use())
    assert len(options) >= 2
    assert all(options)
