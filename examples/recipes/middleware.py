"""Layers around calls: one of one's own, a rate limit, a cache and a table of errors."""

from __future__ import annotations

import asyncio

from ferrule import Caching, Client, ErrorMapping, Middleware, PeerError, RateLimit, Server, ToolError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler


class Announcing(Middleware):
    """Says which tool is called."""

    async def on_call_tool(self, call: Call, proceed: Handler) -> object:
        """Surround a call of a tool."""
        print("calling", call.params.name)
        return await proceed(call)


app = Server(
    "shop",
    middleware=[
        Announcing(),
        RateLimit(0.001, burst=4),
        Caching(60, shared=True),
        ErrorMapping({KeyError: "we do not have that"}),
    ],
)

PRICES = {"tea": 3}


@app.tool(annotations={"readOnlyHint": True})
async def price(what: str) -> int:
    """Tell a price."""
    print("looking it up")
    return PRICES[what]


async def main() -> None:
    """Ask for the same, for what is not there, and too often."""
    async with Client(app) as client:
        print((await client.call_tool("price", {"what": "tea"})).data)
        print((await client.call_tool("price", {"what": "tea"})).data)
        try:
            await client.call_tool("price", {"what": "gold"})
        except ToolError as error:
            print("failed:", error)
        await client.call_tool("price", {"what": "tea"})
        try:
            await client.call_tool("price", {"what": "tea"})
        except PeerError as error:
            print("refused:", error.message.partition(":")[0])


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# calling price
# looking it up
# 3
# calling price
# 3
# calling price
# looking it up
# failed: we do not have that
# calling price
# calling price
# refused: Rate limit exceeded
