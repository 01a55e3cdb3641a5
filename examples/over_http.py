"""One server, one HTTP endpoint on a free port, and clients of both protocol generations at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from demo_server import app

from ferrule import Client, Server
from ferrule.transports.http.listener import Http


@asynccontextmanager
async def endpoint(server: Server) -> AsyncIterator[str]:
    """Serve on any free port, and give the address; a program of its own needs no more than `app.run("http")`."""
    listener, ready = Http(port=0), asyncio.Event()
    serving = asyncio.create_task(server.serve(listener, ready=ready.set))
    try:
        await ready.wait()
        host, port = listener.address
        yield f"http://{host}:{port}/mcp"
    finally:
        await listener.close(grace=5)
        await serving


async def traveller(params: Any) -> dict[str, Any]:
    """Answer the server's question the way a person would fill in its form."""
    return {"row": 12, "window": True}


async def visit(url: str, mode: Any, city: str) -> list[str]:
    """Use the server as a client of one generation, and tell what came of it."""
    async with Client(url, mode=mode, elicitation=traveller) as client:
        steps: list[str] = []
        booked = await client.call_tool("book", {"city": city})
        await client.call_tool("pack", {"items": ["map", "hat"]}, on_progress=lambda d, t, m: steps.append(str(m)))
        return [f"protocol {client.protocol_version}", f"booked {booked.text}", *steps]


async def main() -> None:
    """Let both visit at once."""
    async with endpoint(app) as url:
        for told in await asyncio.gather(visit(url, "handshake", "Rome"), visit(url, "stateless", "Oslo")):
            print("; ".join(told))


if __name__ == "__main__":
    asyncio.run(main())
