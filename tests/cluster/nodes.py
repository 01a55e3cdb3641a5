"""Nodes of this process: servers with listeners and stores of their own, which know each other by Redis alone."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from ferrule import Context, Server
from ferrule.stores.stores import Stores
from ferrule.transports.http.listener import Http


def new_app(number: int, **options: Any) -> Server:
    """A server whose answers say which node gave them."""
    app = Server("cluster", **options)

    @app.tool
    async def node() -> int:
        return number

    @app.tool
    async def count(ctx: Context) -> int:
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        return int(ctx.state["count"])

    @app.tool
    async def order(ctx: Context) -> str:
        wanted = await ctx.ask("Which?", str)
        return f"{wanted} from {number}"

    @app.tool
    async def slow(ctx: Context, steps: int = 3, pause: float = 0.05) -> int:
        for step in range(steps):
            await ctx.report_progress(step + 1, steps)
            await asyncio.sleep(pause)
        return number

    @app.tool
    async def change() -> int:
        app.notify_resource_updated("notes://1")
        return number

    @app.tool
    async def grow() -> int:
        app.add_tool(node, name=f"tool_{number}")
        return number

    @app.tool(task="optional")
    async def work(seconds: float = 0.1) -> int:
        await asyncio.sleep(seconds)
        return number

    @app.tool(task="optional")
    async def serve(ctx: Context) -> str:
        wanted = await ctx.ask("Which?", str)
        return f"{wanted} from {number}"

    @app.tool
    async def large() -> str:
        return "x" * 100_000

    @app.resource("notes://1")
    async def note() -> str:
        return f"text of {number}"

    return app


class Node:
    """One server that serves over HTTP."""

    def __init__(self, app: Server, **options: Any) -> None:
        self.app = app
        self.listener = Http(port=0, **options)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        ready = asyncio.Event()
        self._serving = asyncio.create_task(self.app.serve(self.listener, ready=ready.set))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait([self._serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._serving.done():
            await self._serving

    async def stop(self, grace: float | None = None) -> None:
        assert self._serving is not None
        await self.app.stop(grace)
        await self._serving

    @property
    def port(self) -> int:
        return self.listener.address[1]

    @property
    def url(self) -> str:
        return self.listener.url


class Nodes:
    """Several nodes that share a Redis."""

    def __init__(self, url: str, count: int = 2, **options: Any) -> None:
        self.each = [Node(new_app(number, stores=Stores.redis(url), **options)) for number in range(count)]

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(node.start() for node in self.each))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(node.stop(0.5) for node in self.each), return_exceptions=True)

    @property
    def ports(self) -> list[int]:
        return [node.port for node in self.each]
