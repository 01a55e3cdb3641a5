"""A server tested in both generations of the protocol, without a process or a plugin."""

from __future__ import annotations

import asyncio

from ferrule import Server, ToolError
from ferrule.testing import ERAS, pair

app = Server("calculator")


@app.tool
def divide(a: float, b: float) -> float:
    """Divide one number by another."""
    if b == 0:
        raise ToolError("one cannot divide by zero")
    return a / b


async def check(era: str) -> None:
    """Test the tool as a client sees it."""
    async with pair(app, era) as client:
        assert (await client.call_tool("divide", {"a": 6, "b": 3})).data == 2
        try:
            await client.call_tool("divide", {"a": 1, "b": 0})
        except ToolError as error:
            print(f"{era}: {error}")


def test_divide() -> None:
    """Pytest needs no plugin for this."""
    for era in ERAS:
        asyncio.run(check(era))


if __name__ == "__main__":
    test_divide()

# It prints:
# handshake: one cannot divide by zero
# stateless: one cannot divide by zero
