"""Tools that come and go while clients are connected, and clients that hear of it."""

from __future__ import annotations

import asyncio

from ferrule import Client, Server

app = Server("growing")


@app.tool
def learn(word: str) -> str:
    """Learn a word: from now on there is a tool of that name."""

    def say() -> str:
        return f"{word}!"

    app.add_tool(say, name=word)
    return f"there is a tool {word} now"


async def main() -> None:
    """Teach it a tool, be told, and use it."""
    async with Client(app) as client:
        changed = asyncio.Event()
        await client.watch_lists("tools")
        client.on_notification("notifications/tools/list_changed", lambda _: changed.set())
        print([tool.name for tool in await client.list_tools()])
        print((await client.call_tool("learn", {"word": "hooray"})).data)
        await asyncio.wait_for(changed.wait(), 5)
        print([tool.name for tool in await client.list_tools()])
        print((await client.call_tool("hooray")).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# ['learn']
# there is a tool hooray now
# ['learn', 'hooray']
# hooray!
