"""What a model reads when a tool fails, and what it must not."""

from __future__ import annotations

import asyncio
import logging
import time

from ferrule import Client, Server, ToolError

app = Server("errors")


@app.tool
def divide(a: float, b: float) -> float:
    """Divide; tells the model what to do about a zero."""
    if b == 0:
        raise ToolError("b must not be zero: give another divisor")
    return a / b


@app.tool
def leak() -> str:
    """Fail with something that is nobody's business."""
    raise RuntimeError("password=hunter2")


@app.tool(timeout=0.1)
def slow() -> str:
    """Take too long."""
    time.sleep(0.5)
    return "too late"


async def main() -> None:
    """Let all of them fail."""
    logging.getLogger("ferrule").addHandler(logging.NullHandler())
    logging.getLogger("ferrule").propagate = False
    async with Client(app) as client:
        for name, arguments in (("divide", {"a": 1, "b": 0}), ("leak", {}), ("slow", {}), ("divide", {"a": "one"})):
            result = await client.call_tool(name, arguments, raise_on_error=False)
            print(result.is_error, result.text.splitlines()[0].partition(" (reference")[0])


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# True b must not be zero: give another divisor
# True The tool leak failed: Internal error
# True The tool slow did not finish within 0.1 seconds
# True Invalid arguments for the tool divide:
