"""Long lists come in pages; a client takes them all, or one after another."""

from __future__ import annotations

import asyncio

from ferrule import Client, Server

app = Server("many", page_size=10)

for number in range(1, 26):
    app.add_resource(f"item://{number}", lambda: "an item", name=f"Item {number}")


async def main() -> None:
    """Take them all, and stop early."""
    async with Client(app) as client:
        print(len(await client.list_resources()))
        async for resource in client.iter_resources():
            if resource.name == "Item 12":
                print(f"found {resource.uri} on the second page")
                break


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# 25
# found item://12 on the second page
