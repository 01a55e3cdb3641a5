"""One server made of two: tools, resources and prompts under a prefix, and changes that show at once."""

from __future__ import annotations

import asyncio

from ferrule import Client, Server

weather = Server("weather")
app = Server("assistant")


@weather.tool
async def forecast(city: str) -> str:
    """Tell the weather."""
    return f"sun in {city}"


@weather.resource("stations://{city}")
async def station(city: str) -> str:
    """Tell where it is measured."""
    return f"{city} airport"


@weather.prompt
async def pack(city: str) -> str:
    """Ask what to pack."""
    return f"What do I pack for {city}?"


@app.tool
async def hello() -> str:
    """Greet."""
    return "hello"


app.mount(weather, prefix="weather")


async def main() -> None:
    """Use everything through the one server, while the other changes."""
    async with Client(app) as client:
        print([tool.name for tool in await client.list_tools()])
        print((await client.call_tool("weather_forecast", {"city": "Rome"})).data)
        print((await client.read_resource("stations://weather/Rome")).text)
        print([prompt.name for prompt in await client.list_prompts()])
        weather.add_tool("wind", lambda: "strong")
        print((await client.call_tool("weather_wind")).data)
        app.unmount(weather)
        print([tool.name for tool in await client.list_tools()])


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# ['hello', 'weather_forecast']
# sun in Rome
# Rome airport
# ['weather_pack']
# strong
# ['hello']
