"""A database that is opened when the server starts, used by its tools, and closed when it stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ferrule import Client, Context, Server


class Database:
    """Stands for one that takes a while to open."""

    async def open(self) -> None:
        """Open it."""
        print("opened")

    async def close(self) -> None:
        """Close it."""
        print("closed")

    async def query(self, text: str) -> str:
        """Answer a query."""
        return f"42 rows for {text!r}"


@dataclass
class AppState:
    """What lives as long as the server."""

    db: Database


@contextlib.asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[AppState]:
    """Open what the tools need, and close it in the end."""
    db = Database()
    await db.open()
    try:
        yield AppState(db)
    finally:
        await db.close()


app = Server("with a database", lifespan=lifespan)


@app.tool
async def query(text: str, ctx: Context) -> str:
    """Query the database."""
    state: AppState = ctx.lifespan
    return await state.db.query(text)


async def main() -> None:
    """Ask twice; the database is opened once."""
    async with Client(app) as client:
        print((await client.call_tool("query", {"text": "users"})).data)
        print((await client.call_tool("query", {"text": "orders"})).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# opened
# 42 rows for 'users'
# 42 rows for 'orders'
# closed
