"""A tool, a resource template and a prompt: the first page of every MCP documentation."""

from __future__ import annotations

import asyncio

from ferrule import Client, Server

app = Server("demo")


@app.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.resource("greeting://{name}")
def greeting(name: str) -> str:
    """Greet someone."""
    return f"Hello, {name}!"


@app.prompt()
def greet_user(name: str, style: str = "friendly") -> str:
    """Ask for a greeting."""
    return f"Write a {style} greeting for someone named {name}."


async def main() -> None:
    """Use all three."""
    async with Client(app) as client:
        print((await client.call_tool("add", {"a": 1, "b": 2})).data)
        print((await client.read_resource("greeting://Ada")).text)
        prompt = await client.get_prompt("greet_user", {"name": "Ada"})
        print(prompt.messages[0].content.text)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# 3
# Hello, Ada!
# Write a friendly greeting for someone named Ada.
