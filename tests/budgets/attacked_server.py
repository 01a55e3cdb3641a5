"""A server to be attacked, in a process of its own: attacked_server.py CARRIER FD [unix path].

It prints where it listens; what it suffers is told on the socket with the given descriptor.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from vitals import watch

from ferrule import Http, Server, Stdio, Tcp, Unix, WebSocket

app = Server("attacked", version="1.0.0", keepalive_interval=None)


@app.tool
async def echo(text: str) -> str:
    """Return a text."""
    return text


@app.tool
async def hold(value: Any, seconds: float = 2.0) -> str:
    """Hold any value for a while."""
    await asyncio.sleep(seconds)
    return type(value).__name__


@app.tool
async def large(size: int) -> str:
    """Return a long text."""
    return "x" * size


@app.resource("note://{name}")
async def note(name: str) -> str:
    """Return a note."""
    return name


for number in range(1000):

    @app.tool(name=f"tool_number_{number}")
    async def one_of_many() -> str:
        """Do nothing."""
        return ""


async def until_closed() -> None:
    """Wait until the test has closed our stdin, on a thread that keeps nobody alive."""
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(closed.set)

    threading.Thread(target=wait, daemon=True).start()
    await closed.wait()


async def listen(carrier: str) -> None:
    """Serve on a socket until stdin ends."""
    if carrier == "tcp":
        listener: Any = Tcp(port=0)
    elif carrier == "unix":
        listener = Unix(sys.argv[3])
    elif carrier == "websocket":
        listener = WebSocket(port=0)
    else:
        listener = Http(port=0, sse=True)

    def ready() -> None:
        print(sys.argv[3] if carrier == "unix" else listener.address[1], flush=True)

    serving = asyncio.ensure_future(listener.serve(app.host, ready))
    await until_closed()
    await listener.close(0.2)
    await serving


if __name__ == "__main__":
    watch(int(sys.argv[2]))
    if sys.argv[1] == "stdio":
        asyncio.run(app.serve(Stdio()))
    else:
        asyncio.run(listen(sys.argv[1]))
