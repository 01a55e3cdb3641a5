"""A bridge from stdio to HTTP: a host that only starts programs uses a server somewhere else.

    python examples/bridge.py https://mcp.example.com/mcp

Requests and results pass as they are, in the generation each side speaks. What the server asks of the user is asked of
the host's user.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import msgspec

from ferrule import Client, PeerError, Refusal, Server, Stdio
from ferrule.protocol.call import Call
from ferrule.protocol.foreign import Foreign
from ferrule.protocol.needs import Answers, Question
from ferrule.types import Prompt, Resource, ResourceTemplate, Tool


class Remote:
    """Something the other server offers; every request for it is sent there."""

    def __init__(self, client: Client, offered: Tool | Prompt | Resource | ResourceTemplate) -> None:
        self.tool = self.prompt = self.resource = offered
        self._client = client

    async def call(self, call: Call) -> Foreign:
        """Call the tool."""
        return await self._send("tools/call", call, name=call.params.name, arguments=call.params.arguments)

    async def get(self, call: Call) -> Foreign:
        """Get the prompt."""
        return await self._send("prompts/get", call, name=call.params.name, arguments=call.params.arguments)

    async def read(self, uri: str, call: Call) -> Foreign:
        """Read the resource."""
        return await self._send("resources/read", call, uri=uri)

    async def _send(self, method: str, call: Call, **params: Any) -> Foreign:
        given = {name: value for name, value in params.items() if value is not None}
        try:
            return await self._client.forward(method, msgspec.json.encode(given), caller=call)
        except PeerError as error:
            raise Refusal.relay(error) from None


async def offer(client: Client, app: Server) -> None:
    """Offer all that the other server offers."""
    has = client.server_capabilities
    for tool in await client.list_tools() if has and has.tools else []:
        app.add_tool(Remote(client, tool))
    for prompt in await client.list_prompts() if has and has.prompts else []:
        app.add_prompt(Remote(client, prompt))
    if has and has.resources:
        for resource in [*await client.list_resources(), *await client.list_resource_templates()]:
            app.add_resource(Remote(client, resource))


async def ask_the_host(call: Any, question: Any) -> Any:
    """Ask what the server wants to know; what an earlier round of a stateless call has brought is there already."""
    asked = Question("elicitation/create", json.loads(msgspec.json.encode(question)))
    call.answers = call.answers or Answers()
    key = call.answers.key_for(asked)
    answer = call.answers.find(key, asked)
    if answer is None:
        (waiting,) = call.era.ask(call, [(key, asked)])
        answer = await waiting
    return json.loads(bytes(answer))


async def main(url: str) -> None:
    """Serve on stdio what is at a URL."""

    async def elicitation(question: Any) -> Any:
        return await ask_the_host(client.asked_on and client.asked_on.caller, question)

    async with Client(url, elicitation=elicitation) as client:
        known = client.server_info
        app = Server(known.name if known else "bridge", instructions=client.instructions)
        await offer(client, app)
        await app.serve(Stdio())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
