"""Systems that lack what others have: free ports, a disk that can be written, a home, a language."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from http_mcp import VERSIONS, Client

HERE = Path(__file__).resolve().parent
SHORT_OF_PORTS = HERE / "port_shortage.py"


def unshare(*kinds: str) -> list[str]:
    """Return the words that start a program with its own part of the system; skips where that is not allowed."""
    words = [shutil.which("unshare") or "", "--map-root-user", *kinds]
    if not words[0] or subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces cannot be made here")
    return words


def test_dsk_07_without_free_ports_connections_are_shared_errors_say_so_and_it_passes() -> None:
    """A client that has a connection goes on with it, one that has none is told why; both work once there are ports."""
    words = [*unshare("--net"), sys.executable, str(SHORT_OF_PORTS)]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    if "ip_local_port_range" in done.stderr and ("PermissionError" in done.stderr or "FileNotFound" in done.stderr):
        pytest.skip("the range of ports cannot be set here")
    assert done.returncode == 0, done.stderr
    told: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert set(told) == {"handshake", "stateless"}
    for found in told.values():
        assert found.pop("held") > 0
        assert "has no free port" in found.pop("new client")
        assert all(found.values()), found
    assert done.stderr == ""


READ_ONLY = """
mount --make-rprivate /
while read -r _ place _; do mount -o remount,bind,ro "$place"; done < /proc/self/mounts
exec "$@"
"""
PROGRAM = """
# coding: utf-8
import tempfile
from ferrule import Server

app = Server("Büro")

@app.tool
def greet(name: str) -> str:
    return f"Grüß Gott, {name}"

@app.tool
def writable() -> bool:
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return False
    return True
"""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
BARE: dict[str, dict[str, str]] = {
    "nothing": {},
    "a home that is missing": {"HOME": "/nowhere/at/all", "TMPDIR": "/nowhere/tmp"},
    "a locale that is missing": {"LANG": "xx_XX.UTF-8", "LC_ALL": "xx_XX.UTF-8"},
    "ascii alone": ASCII,
}
bare = pytest.mark.parametrize("environment", BARE.values(), ids=BARE)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def read_only(path: Path) -> list[str]:
    """Return the words that start a program on file systems that can only be read; skips where there are none."""
    words = [*unshare("--mount"), "/bin/sh", "-c", READ_ONLY, "sh"]
    tried = subprocess.run([*words, "touch", str(path / "x"), "/tmp/x"], capture_output=True, text=True, check=False)
    if tried.stderr.count("Read-only file system") < 2:
        pytest.skip("file systems cannot be made read-only here")
    return words


@contextmanager
def started(program: Path, environment: dict[str, str], *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a file's server with nothing around it."""
    command = [sys.executable, "-m", "ferrule", "run", str(program), *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*read_only(program.parent), *command], stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd="/"
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[bytes]) -> str:
    """Return the next line on stderr that is not about what could not be made read-only."""
    assert process.stderr is not None
    while (line := process.stderr.readline()).startswith(b"mount:") or line.startswith(b"       dmesg"):
        pass
    return line.decode()


@bare
def test_dsk_05_stdio_is_served_from_a_bare_and_read_only_system(program: Path, environment: dict[str, str]) -> None:
    hello = {"protocolVersion": VERSIONS["handshake"], "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    asked = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "greet", "arguments": {"name": "Jürgen"}}},
        {"id": 3, "method": "tools/call", "params": {"name": "writable", "arguments": {}}},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **each}, ensure_ascii=False) + "\n" for each in asked)
    with started(program, environment) as process:
        out, err = process.communicate(lines.encode(), timeout=60)
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, out.decode().splitlines())}
    assert answers[1]["serverInfo"]["name"] == "Büro"
    assert answers[2]["content"][0]["text"] == "Grüß Gott, Jürgen"
    assert answers[3]["structuredContent"]["result"] is False, "it was to find nothing it can write to"
    assert process.returncode == 0
    assert b"Traceback" not in err


@bare
def test_dsk_05_http_is_served_from_a_bare_and_read_only_system(program: Path, environment: dict[str, str]) -> None:
    async def ask(port: int) -> str:
        async with Client(port) as client:
            return (await client.call("greet", name="Jürgen")).text

    with started(program, environment, "--transport", "http", "--port", "0") as process:
        line = said(process)
        where = re.search(r"serves MCP at http://127\.0\.0\.1:(\d+)/mcp", line)
        assert where, line
        assert asyncio.run(asyncio.wait_for(ask(int(where[1])), 60)) == "Grüß Gott, Jürgen"
        process.terminate()
        assert process.wait(60) == 0


def test_dsk_05_what_cannot_start_says_why_in_one_line(program: Path) -> None:
    place = program.parent / "socket"
    with started(program, {}, "--transport", "unix", "--path", str(place)) as process:
        line = said(process)
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert line.startswith("error: ")
    assert str(place) in line
    assert "Read-only file system" in line
