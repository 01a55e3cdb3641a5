"""A server over TCP for the tests of this folder, in a process of its own: options as JSON, the port on stdout."""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

from ferrule import Context, Server, Stdio, Tcp
from ferrule.supervision.signals import Shutdown
from ferrule.transports.sockets.admission import process_admission

app = Server("tcp", version="1.0.0", **json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})
stopping: set[asyncio.Future[None]] = set()


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool
async def echo(text: str) -> str:
    """Return a text back."""
    return text


@app.tool
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


@app.tool
async def count(to: int, pause: float, ctx: Context) -> int:
    """Count slowly, telling how far it got."""
    for number in range(to):
        await ctx.report_progress(number, to)
        await asyncio.sleep(pause)
    return to


async def main(options: dict[str, object]) -> None:
    """Serve over TCP, telling the port first."""
    process_admission.limit = None
    listener = Tcp(**options)
    await app.enter()
    with Shutdown(asyncio.get_running_loop(), lambda: stopping.add(asyncio.ensure_future(listener.close(5.0)))):
        await listener.serve(app.host, lambda: print(listener.address[1], flush=True))
    await app.leave()


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        uvloop.run(app.serve(Stdio()))
    else:
        uvloop.run(main(json.loads(sys.argv[1])))
