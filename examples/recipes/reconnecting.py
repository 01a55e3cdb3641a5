"""A client whose server dies, and who goes on with the next one."""

from __future__ import annotations

import asyncio
import os
import sys

from ferrule import Client, OutcomeUnknown, Reconnect, Server

app = Server("mortal")


@app.tool
async def crash() -> str:
    """End this very process."""
    os._exit(3)


@app.tool
async def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}"


async def main() -> None:
    """Lose a server in the middle of a call."""
    plan = Reconnect(first_delay=0.05, jitter=0)
    async with Client([sys.executable, __file__, "serve"], reconnect=plan) as client:
        client.on_connection(lambda notice: print("-", notice.what))
        try:
            await client.call_tool("crash")
        except OutcomeUnknown:
            print("it may have run or not: nobody sends it again")
        print((await client.call_tool("greet", {"name": "Ada"})).text)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        app.run()
    else:
        asyncio.run(main())

# It prints:
# - lost
# it may have run or not: nobody sends it again
# - retrying
# - restored
# Hello, Ada
