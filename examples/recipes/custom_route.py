"""A health page beside MCP, on the same port."""

from __future__ import annotations

import asyncio

import httpx

from ferrule import Client, Http, Server, WebRequest

app = Server("healthy")


@app.custom_route("/health", methods=["GET"])
async def health(request: WebRequest) -> dict[str, str]:
    """Tell that we are alive."""
    return {"status": "ok", "asked with": request.method}


@app.tool
def ping() -> str:
    """Answer."""
    return "pong"


async def main() -> None:
    """Ask over HTTP, with and without MCP."""
    listener, ready = Http(port=0), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    async with httpx.AsyncClient() as web:
        print((await web.get(listener.url.replace("/mcp", "/health"))).json())
    async with Client(listener.url) as client:
        print((await client.call_tool("ping")).data)
    await app.stop()
    await serving


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# {'status': 'ok', 'asked with': 'GET'}
# pong
