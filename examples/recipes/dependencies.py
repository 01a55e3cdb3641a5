"""A database session for each call, opened by a provider and closed when the call is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from ferrule import Client, Context, Depends, Server, ToolError

app = Server("orders")


class Session:
    """Stands for a session of a database."""

    def find(self, number: int) -> str:
        """Find an order."""
        if number != 1:
            raise ToolError(f"there is no order {number}")
        return "two teas"


async def session(ctx: Context) -> AsyncIterator[Session]:
    """Open a session and close it, whatever happens in between."""
    print("open for", ctx.server.name)
    try:
        yield Session()
    finally:
        print("close")


def orders(db: Annotated[Session, Depends(session)]) -> dict[int, str]:
    """Provide something made of what another provider gave."""
    return {1: db.find(1)}


@app.tool
async def order(number: int, db: Session = Depends(session), known: dict[int, str] = Depends(orders)) -> str:
    """Tell what was ordered."""
    return known.get(number) or db.find(number)


async def main() -> None:
    """Ask for an order that is there and for one that is not."""
    async with Client(app) as client:
        (tool,) = await client.list_tools()
        print(sorted(tool.input_schema["properties"]))
        print((await client.call_tool("order", {"number": 1})).data)
        try:
            await client.call_tool("order", {"number": 2})
        except ToolError as error:
            print("failed:", error)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# ['number']
# open for orders
# close
# two teas
# open for orders
# close
# failed: there is no order 2
