"""Tasks over real sockets: started on one connection, followed on another, asked and told on the way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ferrule import Client, Context, Http, Reconnect, Server, Tcp, WebSocket
from ferrule.runtime.tasks.settings import TaskSettings

CARRIERS = {
    "http": lambda: Http(port=0),
    "http, json only": lambda: Http(port=0, response="json"),
    "websocket": lambda: WebSocket(port=0),
    "tcp": lambda: Tcp(port=0),
}


def new_app() -> Server:
    app = Server("s", tasks=TaskSettings(poll_interval=0.3, access="id"))

    @app.tool(task="optional")
    async def greet(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "asking")
        name = await ctx.ask("Who?", str)
        return f"Hello, {name}!"

    @app.tool(task="optional")
    async def wait() -> str:
        await asyncio.sleep(0.2)
        return "waited"

    return app


@contextlib.asynccontextmanager
async def served(app: Server, carrier: str) -> AsyncIterator[str]:
    listener: Any = CARRIERS[carrier]()
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await asyncio.wait([serving, asyncio.ensure_future(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield f"tcp://127.0.0.1:{listener.address[1]}" if carrier == "tcp" else listener.url
    finally:
        await app.stop(grace=0.0)
        await serving


async def user(_: Any) -> dict[str, str]:
    return {"value": "Ann"}


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_task_asks_and_tells_over_this_carrier(era, carrier):
    heard: list[Any] = []
    async with (
        served(new_app(), carrier) as url,
        Client(url, mode=era, elicitation=user) as client,
    ):
        result = await client.call_tool("greet", task=True, on_progress=lambda *told: heard.append(told), timeout=60)
    assert result.text == "Hello, Ann!"
    # The task stays at its question until that is answered; what it tells in its last moments may be told too late.
    assert heard[0] == (1, 2, "asking")


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_task_is_found_again_by_another_client(era, carrier):
    """TASK-9, TASK-16: all it takes is the id."""
    async with served(new_app(), carrier) as url:
        async with Client(url, mode=era) as client:
            task_id = (await client.start_task("wait")).id
        async with Client(url, mode=era) as client:
            assert (await client.task(task_id).result(timeout=60)).text == "waited"
            await client.task(task_id).status()


async def test_a_server_that_stops_leaves_no_task_running(era):
    """SHUT-05"""
    app = new_app()
    async with served(app, "http") as url, Client(url, mode=era) as client:
        await client.start_task("wait")
    assert app.host.tasks.live == {}


@pytest.mark.parametrize("carrier", ["tcp", "websocket"])
async def test_a_client_that_comes_back_goes_on_with_its_task(era, carrier):
    """The task did not notice that the connection was lost, nor does whoever waits for it."""
    app = new_app()
    plan = Reconnect(first_delay=0.05, jitter=0.0)
    async with served(app, carrier) as url, Client(url, mode=era, elicitation=user, reconnect=plan) as client:
        call = asyncio.ensure_future(client.call_tool("wait", task=True))
        while not app.host.tasks.live:
            await asyncio.sleep(0.001)
        for link in app.host.links:
            link.channel.close("lost")
        assert (await asyncio.wait_for(call, 60)).text == "waited"
