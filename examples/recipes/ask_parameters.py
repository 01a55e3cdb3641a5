"""Questions as parameters: the user is asked before the handler runs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from ferrule import Ask, Client, Server

app = Server("trains")


@app.tool
def book(train: str, side: Annotated[Literal["window", "aisle"], Ask("Which side on {train}?")]) -> str:
    """Book a seat; the model gives the train, the user the side."""
    return f"{train}, {side}"


async def user(question: Any) -> dict[str, str]:
    """Stand for the person in front of the client."""
    print(question.message)
    return {"value": "window"}


async def main() -> None:
    """The model never sees the question."""
    async with Client(app, elicitation=user) as client:
        (tool,) = await client.list_tools()
        print(sorted(tool.input_schema["properties"]))
        print((await client.call_tool("book", {"train": "ICE 1"})).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# ['train']
# Which side on ICE 1?
# ICE 1, window
