"""Arguments of every kind of class: pydantic, msgspec, attrs, a dataclass and an enum, with constraints."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass, field
from typing import Annotated

import attrs
import msgspec
import pydantic

from ferrule import Client, Server, ToolError

app = Server("orders")


class Size(enum.Enum):
    """How large."""

    SMALL = "small"
    LARGE = "large"


class Address(pydantic.BaseModel):
    """Where to."""

    street: str
    number: int = pydantic.Field(gt=0, description="The number of the house")


@attrs.define
class Buyer:
    """For whom."""

    name: str


class Item(msgspec.Struct):
    """What."""

    title: str
    price: Annotated[float, msgspec.Meta(gt=0)]


@dataclass
class Wrapping:
    """How it is wrapped."""

    colour: str = "brown"
    ribbons: list[str] = field(default_factory=list)


@app.tool
def order(
    buyer: Buyer,
    items: list[Item],
    address: Address,
    size: Size = Size.SMALL,
    wrapping: Wrapping | None = None,
    copies: Annotated[int, pydantic.Field(ge=1, le=10)] = 1,
) -> str:
    """Order something.

    Args:
        buyer: Who pays.
        copies: How many of each.
    """
    total = copies * sum(item.price for item in items)
    paper = wrapping.colour if wrapping else "no"
    return f"{buyer.name}, {address.street} {address.number}: {size.value}, {total:g}, {paper} paper"


async def main() -> None:
    """Order well, and badly."""
    arguments = {
        "buyer": {"name": "Ada"},
        "items": [{"title": "Notes", "price": 12.5}],
        "address": {"street": "Long Lane", "number": 7},
        "size": "large",
        "wrapping": {"colour": "blue"},
        "copies": 2,
    }
    async with Client(app) as client:
        (tool,) = await client.list_tools()
        print(tool.input_schema["properties"]["copies"])
        print((await client.call_tool("order", arguments)).data)
        try:
            await client.call_tool("order", {**arguments, "copies": 99, "address": {"street": 1, "number": 0}})
        except ToolError as refused:
            for line in str(refused).splitlines()[1:]:
                print(line.partition(":")[0])


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# {'type': 'integer', 'minimum': 1, 'maximum': 10, 'description': 'How many of each.', 'default': 1}
# Ada, Long Lane 7: large, 25, blue paper
# /copies
# /address/street
# /address/number
