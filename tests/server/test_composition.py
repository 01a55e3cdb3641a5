"""Composition as a whole, over a real socket: everything together, in both eras at one address."""

import asyncio
import contextlib

import pytest

from ferrule import Arg, Client, Context, Depends, Http, Middleware, PeerError, Server, transformed


@contextlib.asynccontextmanager
async def endpoint(app):
    """Serve on a free port and give the address."""
    listener, ready = Http(port=0), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    try:
        await ready.wait()
        host, port = listener.address
        yield f"http://{host}:{port}/mcp"
    finally:
        await app.stop()
        await serving


class Seen(Middleware):
    """Writes down the tools that are called."""

    def __init__(self, log):
        self.log = log

    async def on_call_tool(self, call, proceed):
        self.log.append(call.params.name)
        return await proceed(call)


def assembled(log):
    @contextlib.asynccontextmanager
    async def lifespan(server):
        log.append("begin")
        yield {"greeting": "Hello"}
        log.append("end")

    async def session(ctx: Context):
        log.append("open")
        yield ctx.lifespan["greeting"]
        log.append("close")

    child = Server("child", lifespan=lifespan, middleware=[Seen(log)])

    @child.tool
    async def greet(name: str, mark: str = ".", greeting: str = Depends(session)) -> str:
        return f"{greeting} {name}{mark}"

    @child.tool(tags={"admin"})
    async def wipe() -> str:
        return "wiped"

    @child.tool
    async def unlock(ctx: Context) -> str:
        await ctx.enable(tags={"admin"})
        return "unlocked"

    child.disable(tags={"admin"})
    app = Server("host")
    app.mount(child, "c")
    app.add_tool(transformed(app.get_tool("c_greet"), name="cheer", arguments={"mark": Arg(preset="!")}))
    return app


async def test_everything_together_over_a_socket(era):
    log = []
    async with endpoint(assembled(log)) as url, Client(url, mode=era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["c_greet", "c_unlock", "cheer"]
        assert (await client.call_tool("c_greet", {"name": "Ada"})).data == "Hello Ada."
        assert (await client.call_tool("cheer", {"name": "Ada"})).data == "Hello Ada!"
        with pytest.raises(PeerError, match="Unknown tool"):
            await client.call_tool("c_wipe")
    assert log == ["begin", *(["greet", "open", "close"] * 2), "end"]


async def test_a_session_over_a_socket_sees_something_of_its_own():
    heard = asyncio.Event()
    async with endpoint(assembled([])) as url, Client(url, mode="handshake") as one, Client(url) as other:
        one.on_notification("notifications/tools/list_changed", lambda *_: heard.set())
        await one.call_tool("c_unlock")
        await heard.wait()
        assert (await one.call_tool("c_wipe")).data == "wiped"
        with pytest.raises(PeerError, match="Unknown tool"):
            await other.call_tool("c_wipe")
