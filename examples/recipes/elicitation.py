"""A tool that asks its user when the date it was given is taken."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from ferrule import Client, Context, Server

app = Server("bookings")


@dataclass
class OtherDate:
    """What the user may want instead."""

    look_elsewhere: bool
    date: str = "2026-12-26"


@app.tool
async def book_table(date: str, guests: int, ctx: Context) -> str:
    """Book a table, asking back when the date is taken."""
    if date != "2026-12-25":
        return f"booked for {date}"
    answer = await ctx.elicit(f"No table for {guests} on {date}. Another date?", OtherDate)
    if answer.action != "accept" or not answer.data.look_elsewhere:
        return "not booked"
    return f"booked for {answer.data.date}"


async def ask_user(question: Any) -> dict[str, Any]:
    """Stand for the person in front of the client."""
    print(question.message)
    return {"look_elsewhere": True, "date": "2026-12-27"}


async def main() -> None:
    """The same handler, for both generations of the protocol."""
    for mode in ("handshake", "stateless"):
        async with Client(app, elicitation=ask_user, mode=mode) as client:
            print((await client.call_tool("book_table", {"date": "2026-12-25", "guests": 2})).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# No table for 2 on 2026-12-25. Another date?
# booked for 2026-12-27
# No table for 2 on 2026-12-25. Another date?
# booked for 2026-12-27
