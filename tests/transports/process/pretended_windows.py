"""A client and a server that take this system for Windows: threads in the place of pipes a loop can wait for."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import socket
import ssl
import subprocess
import sys
import threading

import msgspec

LIBRARIES = (asyncio, ctypes, msgspec, socket, ssl, subprocess, threading)
"""They look at the platform when they are imported, and must see the true one."""

asyncio.new_event_loop().close()  # from 3.14 on asyncio looks at it when it makes its first loop

sys.platform = "win32"
signal.SIGBREAK = signal.SIGUSR2  # type: ignore[attr-defined]
sys.modules["uvloop"] = None  # type: ignore[assignment]

from ferrule import Client, Server  # noqa: E402
from ferrule.errors import ChildFailed  # noqa: E402

SIZE = 300_000


def serve() -> None:
    """Be the server."""
    app = Server("pretended")

    @app.tool
    def repeat(size: int) -> str:
        print("a stray")
        return "x" * size

    app.run()


async def call() -> None:
    """Be the client."""
    for mode in ("handshake", "stateless"):
        said: list[str] = []
        async with Client([sys.executable, __file__, "serve"], mode=mode, stderr=said.append) as client:
            calls = [client.call_tool("repeat", {"size": SIZE}) for _ in range(5)]
            for answer in await asyncio.gather(*calls):
                assert answer.text == "x" * SIZE
        assert said == ["a stray"] * 5
    try:
        async with Client([sys.executable, "-c", "import sys; sys.exit('so it goes')"], stderr="capture"):
            pass
    except ChildFailed as failure:
        print(failure)
    async with asyncio.timeout(10):
        while threading.active_count() > 1:
            await asyncio.sleep(0.01)
    try:
        Server("several").run("http", workers=2)
    except Exception as refusal:
        print(refusal)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        asyncio.run(call())
