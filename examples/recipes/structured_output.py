"""Results with a schema: a dataclass, a TypedDict, a list, a plain dict, and a msgspec struct."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypedDict

import msgspec

from ferrule import Client, Server

app = Server("weather")


@dataclass
class Weather:
    """The weather somewhere."""

    temperature: float
    humidity: float
    condition: str


class Location(TypedDict):
    """A place on the map."""

    latitude: float
    longitude: float


class Station(msgspec.Struct):
    """Where it was measured."""

    name: str
    height: int = 0


@app.tool
def weather(city: str) -> Weather:
    """Tell the weather in a city."""
    return Weather(22.5, 45.0, "sunny")


@app.tool
def location(address: str) -> Location:
    """Find a place."""
    return {"latitude": 51.5, "longitude": -0.1}


@app.tool
def cities() -> list[str]:
    """List the cities there are."""
    return ["London", "Paris"]


@app.tool
def temperatures() -> dict[str, float]:
    """Tell all temperatures by city."""
    return {"London": 20.0, "Paris": 22.5}


@app.tool
def station() -> Station:
    """Tell where it was measured."""
    return Station("Greenwich", 47)


async def main() -> None:
    """Call them, and look at what a client gets."""
    async with Client(app) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        schema = tools["weather"].output_schema or {}
        print(sorted(schema["properties"]))
        print((await client.call_tool("weather", {"city": "London"})).structured_content)
        print((await client.call_tool("location", {"address": "here"})).data)
        print((await client.call_tool("cities")).data)
        print((await client.call_tool("temperatures")).data)
        print((await client.call_tool("station")).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# ['condition', 'humidity', 'temperature']
# {'temperature': 22.5, 'humidity': 45.0, 'condition': 'sunny'}
# {'latitude': 51.5, 'longitude': -0.1}
# ['London', 'Paris']
# {'London': 20.0, 'Paris': 22.5}
# {'name': 'Greenwich', 'height': 47}
