"""One client for the servers of an mcp.json: all their tools under one roof, and one sick server harms no other.

python examples/many_servers.py mcp.json                     lists the tools
python examples/many_servers.py mcp.json shop.price item=tea calls one
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ferrule import Client, FerruleError, SetupError, ToolError
from ferrule.types import Tool


class Servers:
    """Several clients, by the names of their servers."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.sick: dict[str, str] = {}
        """Why a server is not there."""

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, targets: dict[str, Any]) -> AsyncIterator[Servers]:
        """Open all at once; one that fails is remembered with its reason."""
        servers = cls()
        async with contextlib.AsyncExitStack() as stack:

            async def open_one(name: str, target: Any) -> None:
                try:
                    servers.clients[name] = await stack.enter_async_context(Client(target))
                except FerruleError as reason:
                    servers.sick[name] = str(reason)

            await asyncio.gather(*(open_one(name, target) for name, target in targets.items()))
            yield servers

    async def tools(self) -> dict[str, Tool]:
        """Return every tool, as server.tool."""
        names = list(self.clients)
        lists = await asyncio.gather(*(self.clients[name].list_tools() for name in names))
        return {f"{name}.{tool.name}": tool for name, tools in zip(names, lists, strict=True) for tool in tools}

    async def call(self, tool: str, arguments: dict[str, object]) -> Any:
        """Call a tool of the server its name begins with."""
        server, _, name = tool.partition(".")
        if server not in self.clients:
            raise SetupError(f"there is no server {server!r}: there are {', '.join(self.clients) or 'none'}")
        return await self.clients[server].call_tool(name, arguments)


def read_word(word: str) -> tuple[str, object]:
    """Return the name and the value of `name=value`; a value that is JSON is read as such."""
    name, _, text = word.partition("=")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


async def main(entries: dict[str, Any], tool: str = "", *words: str) -> None:
    """List the tools of all servers, or call one."""
    targets = {name: {"mcpServers": {name: entry}} for name, entry in entries.items()}
    async with Servers.opened(targets) as servers:
        for name, reason in servers.sick.items():
            print(f"{name} is left out: {reason}", file=sys.stderr)
        if tool:
            print((await servers.call(tool, dict(map(read_word, words)))).text)
            return
        for name, each in sorted((await servers.tools()).items()):
            print(f"{name}: {each.description}")


if __name__ == "__main__":
    try:
        asyncio.run(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["mcpServers"], *sys.argv[2:]))
    except (FerruleError, ToolError) as error:
        sys.exit(f"error: {error}")
