"""One handler that asks its user, run in both protocol generations: what happens once, and what happens again."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from ferrule import Client, Context, Server
from ferrule.schema.elicitation import ElicitParams
from ferrule.testing import ERAS

app = Server("box-office")

entered: list[str] = []
charged: list[str] = []


class Seat(Struct):
    """Where to sit."""

    row: int
    window: bool = True


def charge(city: str) -> str:
    """Take the money; this must happen once."""
    charged.append(city)
    return f"receipt {len(charged)}"


@app.tool
async def book(city: str, ctx: Context) -> str:
    """Book a seat and pay for it."""
    entered.append(city)
    seat = await ctx.ask(f"Which seat to {city}?", Seat)
    receipt = await ctx.step("charge", lambda: charge(city))
    sure = await ctx.elicit("Keep the booking?", bool)
    return f"{city}, row {seat.row}, {receipt}, {'kept' if sure.data else 'returned'}"


async def user(question: ElicitParams) -> dict[str, object]:
    """Fill in the form the way a person would."""
    print(f"  asked: {question.message}")
    return {"row": 12} if "seat" in question.message else {"value": True}


async def main() -> None:
    """Book once in each generation, and count."""
    for era in ERAS:
        entered.clear()
        charged.clear()
        print(era)
        async with Client(app, mode=era, elicitation=user) as client:
            print(f"  answer: {(await client.call_tool('book', {'city': 'Rome'})).text}")
        print(f"  the handler was entered {len(entered)} time(s), the card charged {len(charged)} time(s)")


if __name__ == "__main__":
    asyncio.run(main())
