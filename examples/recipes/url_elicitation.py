"""A tool that sends its user to a web page, for what must not go through a form."""

from __future__ import annotations

import asyncio
from typing import Any

from ferrule import Client, Context, Server

app = Server("shop")


@app.tool
async def pay(amount: int, ctx: Context) -> str:
    """Let the user pay on a page of the shop."""
    answer = await ctx.elicit(f"Please pay {amount} euros", url=f"https://shop.example/pay?amount={amount}")
    return "off to the till" if answer.action == "accept" else f"not paid: {answer.action}"


def open_page(question: Any) -> dict[str, str]:
    """Ask the user first, and show the whole address; a real client then opens a browser."""
    print(f"{question.message}: {question.url}")
    return {"action": "accept"}


async def main() -> None:
    """The same handler, for both generations of the protocol."""
    for mode in ("handshake", "stateless"):
        async with Client(app, mode=mode, url_elicitation=open_page) as client:
            print((await client.call_tool("pay", {"amount": 12})).text)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# Please pay 12 euros: https://shop.example/pay?amount=12
# off to the till
# Please pay 12 euros: https://shop.example/pay?amount=12
# off to the till
