"""A tool with a JSON Schema of its own, for those who have one already."""

from __future__ import annotations

import asyncio
from typing import Any

from ferrule import Client, Server, ToolError

app = Server("low level")

SCHEMA = {
    "type": "object",
    "properties": {"expression": {"type": "string", "pattern": "^[0-9+ ]+$"}},
    "required": ["expression"],
    "additionalProperties": False,
}
OUTPUT = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}


def calculate(**arguments: Any) -> dict[str, int]:
    """Add up."""
    return {"value": sum(map(int, arguments["expression"].split("+")))}


app.add_tool(calculate, schema=SCHEMA, output_schema=OUTPUT)


async def main() -> None:
    """Call it well, and badly."""
    async with Client(app) as client:
        print((await client.call_tool("calculate", {"expression": "1 + 2 + 3"})).data)
        try:
            await client.call_tool("calculate", {"expression": "rm -rf"})
        except ToolError as refused:
            print(str(refused).splitlines()[0])


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# {'value': 6}
# Invalid arguments for the tool calculate:
