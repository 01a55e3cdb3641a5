"""One server on TCP, WebSocket and HTTP at once, with a client on each."""

from __future__ import annotations

import asyncio

from ferrule import Client, Context, Http, Server, Tcp

app = Server("everywhere")


@app.tool
def whoami(ctx: Context) -> str:
    """Tell on which revision the client came."""
    return f"{ctx.client.name if ctx.client else 'someone'} on {ctx.call.origin.carrier}"


async def main() -> None:
    """Reach the same server in three ways."""
    tcp, http, ready = Tcp(port=0), Http(port=0, websocket=True), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(tcp, http, ready=ready.set))
    await ready.wait()
    host, port = http.address
    for target in (f"tcp://127.0.0.1:{tcp.address[1]}", f"ws://{host}:{port}/mcp/ws", http.url):
        async with Client(target, name="explorer") as client:
            print((await client.call_tool("whoami")).data)
    await app.stop()
    await serving


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# explorer on tcp
# explorer on websocket
# explorer on http
