"""A small travel desk: every kind of thing an MCP server can offer, in one file."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from msgspec import Meta, Struct

from ferrule import Context, Server, ToolError

app = Server("travel-desk", version="1.0.0", instructions="Books trips. Ask for the weather first.")

TRIPS: dict[str, str] = {"rome": "Rome, 3 nights", "oslo": "Oslo, 2 nights"}


class Seat(Struct):
    """Where to sit."""

    row: Annotated[int, Meta(ge=1, le=40, description="The row, from 1 to 40")]
    window: bool = True


class Weather(Struct):
    """How it is out there."""

    city: str
    degrees: float
    sky: Literal["clear", "cloudy", "rain"]


@app.tool
def weather(city: str) -> Weather:
    """Tell the weather in a city."""
    if city.lower() not in TRIPS:
        raise ToolError(f"no weather for {city!r}: we only go to {', '.join(TRIPS)}")
    return Weather(city, 21.5, "clear")


@app.tool
async def book(city: str, ctx: Context) -> str:
    """Book a trip; asks the traveller for a seat."""
    seat = await ctx.ask(f"Which seat to {city}?", Seat)
    receipt = await ctx.step("charge", lambda: f"receipt-{city}-{seat.row}")
    TRIPS[city.lower()] = f"{city}, row {seat.row}"
    app.notify_resource_updated(f"trips://{city.lower()}")
    return f"{city}: row {seat.row}, {'window' if seat.window else 'aisle'} ({receipt})"


@app.tool
async def pack(items: list[str], ctx: Context) -> int:
    """Pack a suitcase, telling how far it is."""
    for done, item in enumerate(items, start=1):
        await asyncio.sleep(0.05)
        await ctx.report_progress(done, len(items), f"packed {item}")
    await ctx.info(f"packed {len(items)} items")
    return len(items)


@app.tool
async def slogan(topic: str, ctx: Context) -> str:
    """Let the client's model write a slogan."""
    return (await ctx.sample(f"A slogan about {topic}, please.", max_tokens=50)).text


@app.resource("trips://{city}", mime_type="text/plain")
def trip(city: str) -> str:
    """One booked trip."""
    return TRIPS[city]


@app.resource("desk://opening-hours", name="opening hours")
async def opening_hours() -> str:
    """When the desk is open."""
    return "9 to 5, Monday to Friday"


@app.prompt
def itinerary(city: str, style: Literal["relaxed", "packed"] = "relaxed") -> str:
    """Plan the days in a city."""
    return f"Plan a {style} stay in {city}, day by day."


if __name__ == "__main__":
    app.run()
