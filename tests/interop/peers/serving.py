"""How the Python servers of the peers are started: over stdio, or with `--http` on a free port."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any


def run(over_stdio: Callable[[], Any], http_app: Callable[[], Any]) -> None:
    if "--http" in sys.argv[1:]:
        serve_http(http_app())
    else:
        over_stdio()


def serve_http(http_app: Any) -> None:
    """Say on stdout where the ASGI app is served; connections wait in the socket until it is."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
        asyncio.run(uvicorn.Server(uvicorn.Config(http_app, log_level="error")).serve(sockets=[listening]))
