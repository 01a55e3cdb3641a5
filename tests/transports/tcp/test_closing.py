"""No socket is left for the garbage collector to close."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, gc, sys
from ferrule import Client, Http, Server, Tcp, Unix, WebSocket

app = Server("closing", version="1.0.0")

@app.tool
async def add(a: int, b: int) -> int:
    return a + b

async def main(carrier):
    made = {"tcp": lambda: Tcp(port=0), "unix": lambda: Unix("s"), "ws": lambda: WebSocket(port=0),
            "http": lambda: Http(port=0)}
    listener, ready = made[carrier](), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    for _ in range(3):
        async with Client(listener.url) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    forgotten = Client(listener.url)
    await forgotten.connect()
    await app.stop()
    await serving
    await forgotten.close()

asyncio.run(main(sys.argv[1]))
gc.collect()
"""


@pytest.mark.parametrize("carrier", ["tcp", "unix", "ws", "http"])
def test_shut_06_every_socket_is_closed_explicitly(carrier: str, tmp_path: Path) -> None:
    """SHUT-06: Python itself would complain of each that is not, and of each task that is left."""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", PROGRAM, carrier]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
