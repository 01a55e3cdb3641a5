"""Two MCP servers inside one FastAPI application, beside its own routes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import fastapi
import uvicorn

from ferrule import Client, Server

echo, maths = Server("echo"), Server("maths")


@echo.tool
def say(message: str) -> str:
    """Say it again."""
    return f"echo: {message}"


@maths.tool
def add_two(n: int) -> int:
    """Add two."""
    return n + 2


api = fastapi.FastAPI()
api.mount("/echo", echo.asgi(path="/"))
api.mount("/maths", maths.asgi(path="/"))


@api.get("/health")
def health() -> dict[str, str]:
    """Tell that we are alive."""
    return {"status": "ok"}


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[str]:
    """Serve the application on a free port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(api, log_level="warning"))
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await serving


async def main() -> None:
    """Call both."""
    async with served() as url:
        async with Client(f"{url}/echo/") as client:
            print((await client.call_tool("say", {"message": "hi"})).data)
        async with Client(f"{url}/maths/") as client:
            print((await client.call_tool("add_two", {"n": 40})).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# echo: hi
# 42
