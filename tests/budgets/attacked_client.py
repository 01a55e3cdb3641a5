"""A client to be attacked, in a process of its own: attacked_client.py TARGET FD, the target as JSON.

It waits for a line, uses the server as any program would, prints how that ended, and stays until stdin is closed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from vitals import watch

from ferrule import Client, FerruleError


async def use(client: Client) -> str:
    """List the tools and call one."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, {})
        break
    return "used"


async def main(target: Any) -> None:
    """Use the server when told to."""
    await asyncio.to_thread(sys.stdin.readline)
    try:
        client = Client(target, mode="handshake", tool_timeout=10, request_timeout=10, roots=["file:///srv"])
        client.on_log(slow)
        async with client:
            print(await use(client), flush=True)
    except (FerruleError, TimeoutError, ExceptionGroup) as error:
        print(f"{type(error).__name__}: {str(error)[:300]}".replace("\n", " "), flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def slow(*_: Any) -> None:
    """Take long over each log message."""
    await asyncio.sleep(0.05)


if __name__ == "__main__":
    watch(int(sys.argv[2]))
    asyncio.run(main(json.loads(sys.argv[1])))
