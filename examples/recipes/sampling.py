"""A tool that asks the client's model."""

from __future__ import annotations

import asyncio
from typing import Any

from ferrule import Client, Context, Server

app = Server("poems")


@app.tool
async def poem(topic: str, ctx: Context) -> str:
    """Write a poem with the model the client has."""
    written = await ctx.sample(f"Write a short poem about {topic}", max_tokens=100, temperature=0.7)
    return str(written.content.text)


async def model(request: Any) -> str:
    """Stand for the client's model."""
    return f"({request.messages[-1].content.text}, in at most {request.max_tokens} tokens)"


async def main() -> None:
    """Let the client's model write."""
    async with Client(app, sampling=model) as client:
        print((await client.call_tool("poem", {"topic": "autumn"})).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# (Write a short poem about autumn, in at most 100 tokens)
