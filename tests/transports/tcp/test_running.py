"""`ferrule run` over sockets, as a user starts it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule import Client

PROGRAM = """
from ferrule import Server
app = Server("run", version="1.0.0")

@app.tool
async def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "server.py"
    file.write_text(PROGRAM)
    return file


def test_a_command_serves_a_unix_socket_until_it_is_told_to_stop(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "mcp.sock"
    command = [sys.executable, "-m", "ferrule", "run", str(program), "--transport", "unix", "--path", str(path)]

    async def use() -> None:
        async with Client(f"unix:{path}") as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    with subprocess.Popen(command, stderr=subprocess.PIPE) as server:
        try:
            assert server.stderr is not None
            assert b"serves MCP at unix:" in server.stderr.readline()
            asyncio.run(use())
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        finally:
            server.kill()
    assert not path.exists()


def test_tcp_07_the_command_refuses_an_open_listener_in_one_sentence(program: Path) -> None:
    """TCP-07: and takes an explicit word."""
    command = [sys.executable, "-m", "ferrule", "run", str(program), "--transport", "tcp", "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: tcp: on '0.0.0.0' anyone who can reach this machine could call every tool")
    assert done.stderr.count("\n") == 1
    with subprocess.Popen([*command, "--port", "0", "--allow-remote"], stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        assert server.stderr.readline().startswith(b"run serves MCP at tcp://0.0.0.0:")
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
