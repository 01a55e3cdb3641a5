"""The interop client of the official Python SDK 1.x over HTTP+SSE; the command is the address of the stream."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import scenario
from mcp import ClientSession, types
from mcp.client.sse import sse_client
from mcp1_client import Session, handlers, handshake


@contextlib.asynccontextmanager
async def connect(target: scenario.Target) -> AsyncIterator[Session]:
    heard = scenario.Heard()
    async with sse_client(target.command[0]) as streams, ClientSession(*streams, **handlers(heard)) as session:
        newest = target.version in (None, types.LATEST_PROTOCOL_VERSION)
        initialized = await (session.initialize() if newest else handshake(session, target.version))
        yield Session(session, initialized, heard)


if __name__ == "__main__":
    scenario.main(connect)
