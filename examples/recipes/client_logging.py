"""Log messages that go to the client, at the level it asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from ferrule import Client, Context, Server

app = Server("logs")


@app.tool
async def process(data: str, ctx: Context) -> str:
    """Process something, and tell of it."""
    await ctx.debug(f"processing {data!r}")
    await ctx.info("half way")
    await ctx.warning({"what": "almost empty", "left": 3})
    await ctx.error("and one that failed")
    return f"processed {data}"


async def main() -> None:
    """Hear from level info on."""

    def heard(params: dict[str, Any]) -> None:
        print(params["level"], params["data"])

    async with Client(app, log_level="info") as client:
        client.on_notification("notifications/message", heard)
        print((await client.call_tool("process", {"data": "x"})).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# info half way
# warning {'what': 'almost empty', 'left': 3}
# error and one that failed
# processed x
