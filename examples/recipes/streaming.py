"""A tool that is a generator: what it yields is told while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ferrule import Client, Progress, Server

app = Server("streams")


@app.tool
async def translate(words: list[str]) -> AsyncIterator[Progress | str]:
    """Translate word by word."""
    known = {"one": "eins", "two": "zwei", "three": "drei"}
    for done, word in enumerate(words, start=1):
        yield Progress(done, len(words), word)
        yield known.get(word, "?") + " "


async def main() -> None:
    """Hear of each word, and get all of them in the end."""

    def show(progress: float, total: float | None, message: str | None) -> None:
        print(f"{progress:g}/{total:g} {message}")

    async with Client(app) as client:
        result = await client.call_tool("translate", {"words": ["one", "two", "three"]}, on_progress=show)
        print(result.text.strip())


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# 1/3 one
# 2/3 two
# 3/3 three
# eins zwei drei
