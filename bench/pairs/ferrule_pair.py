"""Contestant: Ferrule's client, of its own server in memory or of one at a URL, on the loop `Server.run` chooses."""

import uvloop
from pair_load import add, measure, options, search

from ferrule import Client, Server

chosen = options()
app = Server("bench", version="1")
app.add_tool(add)
app.add_tool(search)


async def pass_on(call, proceed):
    """Do nothing, as a layer does whose task is another."""
    return await proceed(call)


for _ in range(chosen.layers):
    app.middleware(pass_on)
if chosen.bare:
    app.host.dispatcher.handlers["tools/call"] = app.offers.tools.call


async def main() -> None:
    """Measure calls from this client."""
    target = chosen.url or app
    if chosen.targets > 1:
        target = [target] * chosen.targets
    async with Client(target) as client:

        async def call(tool: str, arguments: dict) -> object:
            return (await client.call_tool(tool, arguments)).structured_content

        await measure(call, chosen)


uvloop.run(main())
