"""A tool with too many arguments, made simpler for a model: renamed, described anew, some of it preset."""

from __future__ import annotations

import asyncio

from ferrule import Arg, Client, Server, ToolError, transformed

app = Server("search")


@app.tool
async def search(q: str, index: str, limit: int = 10, api_key: str = "") -> str:
    """Search an index."""
    return f"{limit} results for {q} in {index}, with the key {api_key!r}"


app.add_tool(
    transformed(
        app.get_tool("search"),
        name="find_books",
        description="Find books by their title.",
        arguments={
            "q": Arg(name="title", description="Words of the title"),
            "index": Arg(preset="books"),
            "limit": Arg(default=3),
            "api_key": Arg(preset_factory=lambda: "from the environment"),
        },
    )
)
app.disable("search")


async def main() -> None:
    """Call what is left of it, and try to give what is preset."""
    async with Client(app) as client:
        (tool,) = await client.list_tools()
        print(tool.name, sorted(tool.input_schema["properties"]), tool.input_schema["required"])
        print((await client.call_tool("find_books", {"title": "Emma"})).data)
        try:
            await client.call_tool("find_books", {"title": "Emma", "index": "secrets"})
        except ToolError as error:
            print(str(error).splitlines()[0])


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# find_books ['limit', 'title'] ['title']
# 3 results for Emma in books, with the key 'from the environment'
# Invalid arguments for the tool find_books:
