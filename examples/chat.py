"""A chat in which a model uses tools: what a host does, in eighty lines, with a model that needs no network.

    python examples/chat.py examples/hello_server.py
    you: what is 2 plus 3?

The loop is the one for any model: it answers, or wants tools called; their results go back to it until it answers.
"""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Protocol

from ferrule import Client
from ferrule.types import Tool

MOST_ROUNDS = 8
"""A model that only ever wants tools is stopped."""


@dataclass
class Turn:
    """What somebody said: the user, the model, or a tool."""

    role: str
    text: str = ""
    wants: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """The tools a model wants called, with their arguments."""


class Model(Protocol):
    """Any model: a real one sends the turns and the tools to its provider."""

    async def answer(self, turns: list[Turn], tools: list[Tool]) -> Turn:
        """Return an answer, or the tools to call first."""


class FakeModel:
    """Adds numbers with the first tool that takes two of them, and says what it was told."""

    async def answer(self, turns: list[Turn], tools: list[Tool]) -> Turn:
        """Want a tool for two numbers; repeat what a tool said."""
        last = turns[-1]
        if last.role == "tool":
            return Turn("model", f"The answer is {last.text}.")
        numbers = [int(each) for each in re.findall(r"-?\d+", last.text)]
        for tool in tools:
            names = list(tool.input_schema.get("properties", {}))
            if len(names) == len(numbers) == 2:
                return Turn("model", wants=[(tool.name, dict(zip(names, numbers, strict=True)))])
        return Turn("model", "Ask me about two numbers.")


async def respond(model: Model, client: Client, turns: list[Turn]) -> str:
    """Let the model speak until it has an answer for the user."""
    tools = await client.list_tools()
    for _ in range(MOST_ROUNDS):
        said = await model.answer(turns, tools)
        turns.append(said)
        if not said.wants:
            return said.text
        for name, arguments in said.wants:
            # A tool that failed is no error of the chat: the model reads why, and may try something else.
            result = await client.call_tool(name, arguments, raise_on_error=False)
            turns.append(Turn("tool", result.text))
    return "I could not find out."


async def main(target: str) -> None:
    """Read lines until there are no more."""
    turns: list[Turn] = []
    async with Client(target) as client:
        while line := await asyncio.to_thread(sys.stdin.readline):
            turns.append(Turn("user", line.strip()))
            print("model:", await respond(FakeModel(), client, turns), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
