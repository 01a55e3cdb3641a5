"""Tools with tags: hidden from everybody, shown to one session, and never listed for the others."""

from __future__ import annotations

import asyncio

from ferrule import Client, Context, PeerError, Server

app = Server("office")


@app.tool
async def read() -> str:
    """Read."""
    return "read"


@app.tool(tags={"admin"})
async def wipe() -> str:
    """Wipe everything."""
    return "wiped"


@app.tool
async def unlock(password: str, ctx: Context) -> str:
    """Show the administrator's tools to this session."""
    if password == "open sesame":
        await ctx.enable(tags={"admin"})
    return "done"


app.disable(tags={"admin"})


async def main() -> None:
    """Unlock in one session, and look from another."""
    async with Client(app, mode="handshake") as one, Client(app, mode="handshake") as other:
        print([tool.name for tool in await one.list_tools()])
        await one.call_tool("unlock", {"password": "open sesame"})
        print([tool.name for tool in await one.list_tools()])
        print((await one.call_tool("wipe")).data)
        try:
            await other.call_tool("wipe")
        except PeerError as error:
            print(error.message)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# ['read', 'unlock']
# ['read', 'wipe', 'unlock']
# wiped
# Unknown tool: wipe
