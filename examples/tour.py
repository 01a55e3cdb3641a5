"""A tour of the demo server in both protocol generations, over stdio and over HTTP, as a person would see it.

    python examples/tour.py [CALLS]

CALLS is how many reads the race at the end makes: 20000 unless told.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from demo_server import app
from over_http import endpoint, visit

from ferrule import Client, ToolError

SERVER = [sys.executable, str(Path(__file__).with_name("demo_server.py"))]
CALLS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000


def say(what: str, value: Any = "") -> None:
    """Print one line of the tour."""
    print(f"  {what:<34} {value}", flush=True)


async def traveller(params: Any) -> dict[str, Any]:
    """Answer the server's question the way a person would fill in its form."""
    say("the server asks", params.message)
    return {"row": 12, "window": True}


def poet(params: Any) -> str:
    """Stand in for the client's model."""
    return f"“{params.messages[0].content.text.split(' about ')[1].split(',')[0].title()}: go there.”"


async def tour(mode: Any) -> None:
    """Use everything the demo server offers."""
    client = Client(SERVER, mode=mode, elicitation=traveller, sampling=poet, log_level="info")
    client.on_log(lambda level, data, _logger: say(f"the server logs ({level})", data))
    async with client:
        print(
            f"\n{client.server_info.name if client.server_info else '?'} over stdio, protocol {client.protocol_version}"
        )
        say("it says", client.instructions)
        say("tools", ", ".join(tool.name for tool in await client.list_tools()))
        say("weather in Rome", (await client.call_tool("weather", {"city": "Rome"})).data)
        try:
            await client.call_tool("weather", {"city": "Mars"})
        except ToolError as error:
            say("weather on Mars", f"ToolError: {error}")
        try:
            await client.call_tool("weather", {"town": 5})
        except ToolError as error:
            say("wrong arguments", str(error).replace("\n", " | "))
        async with client.subscribe("trips://rome") as changes:
            say("booking", (await client.call_tool("book", {"city": "Rome"}, timeout=60)).text)
            say("told of a change in", await anext(changes))
        say("the trip now", (await client.read_resource("trips://rome")).text)
        progress: list[str] = []
        packed = await client.call_tool(
            "pack", {"items": ["map", "hat", "book"]}, on_progress=lambda d, t, m: progress.append(f"{d:g}/{t:g} {m}")
        )
        say(f"packed {packed.data}", "; ".join(progress))
        say("a slogan", (await client.call_tool("slogan", {"topic": "rome"})).text)
        prompt = await client.get_prompt("itinerary", {"city": "Oslo", "style": "packed"})
        say("a prompt", getattr(prompt.messages[0].content, "text", ""))
        say("completing style=p", (await client.complete("itinerary", {"name": "style", "value": "p"})).values)
        await race(client)


async def race(client: Client) -> None:
    """Read a resource many times, 64 at once, and tell how fast that was."""
    left = iter(range(CALLS))

    async def worker() -> None:
        for _ in left:
            await client.read_resource("desk://opening-hours")

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(64)))
    say(f"{CALLS:,} reads, 64 at once", f"{CALLS / (time.perf_counter() - started):,.0f} a second")


async def tour_over_http() -> None:
    """Visit one HTTP endpoint with clients of both generations at once."""
    async with endpoint(app) as url:
        print(f"\n{app.name} at {url}, in this process, both generations at once")
        for told in await asyncio.gather(visit(url, "handshake", "Rome"), visit(url, "stateless", "Oslo")):
            say(told[0], "; ".join(told[1:]))
        async with Client(url) as client:
            await race(client)


async def main() -> None:
    """Make the tour in both generations."""
    for mode in ("handshake", "stateless"):
        await tour(mode)
    await tour_over_http()
    print("\nDone: one server, one client, both protocol generations.")


if __name__ == "__main__":
    asyncio.run(main())
