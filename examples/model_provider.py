"""Where a model provider goes: behind the client's answer to `sampling/createMessage`, replaceable by another."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ferrule import Client, Context, Server
from ferrule.schema.content import TextContent
from ferrule.schema.sampling import CreateMessageParams, CreateMessageResult

app = Server("poems")


@app.tool
async def poem(topic: str, ctx: Context) -> str:
    """Let the client's model write; the server has no key and knows no provider."""
    written = await ctx.sample(f"A poem about {topic}", max_tokens=50, system_prompt="You rhyme.")
    return f"{written.model}: {written.content.text}"


class Provider(Protocol):
    """Anthropic, OpenAI, Ollama …: what of its library the handler needs."""

    name: str

    async def complete(self, system: str, prompt: str, max_tokens: int) -> str:
        """Return what the model answers."""


class Parrot:
    """Stands for a provider. A real one calls its library here, as in `await anthropic.messages.create(…)`."""

    name = "parrot-1"

    async def complete(self, system: str, prompt: str, max_tokens: int) -> str:
        """Say the prompt again."""
        return f"{prompt}! {prompt}!"[:max_tokens]


class Sampling:
    """The handler: asks the user, then the provider, and returns the answer in the protocol's form."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def __call__(self, request: CreateMessageParams) -> CreateMessageResult:
        """Answer one request of a server."""
        # A real client shows the request to its user here, who may change or refuse it.
        prompt = "\n".join(message.content.text for message in request.messages if hasattr(message.content, "text"))
        text = await self._provider.complete(request.system_prompt or "", prompt, request.max_tokens)
        return CreateMessageResult(role="assistant", content=TextContent(text), model=self._provider.name)


async def main() -> None:
    """Call a tool that samples."""
    async with Client(app, sampling=Sampling(Parrot())) as client:
        print((await client.call_tool("poem", {"topic": "rain"})).data)


if __name__ == "__main__":
    asyncio.run(main())
