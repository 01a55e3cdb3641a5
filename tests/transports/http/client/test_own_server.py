"""Our client and our server over a real network, in both eras: the whole of what the protocol has."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ferrule import Client, Context, Reconnect, Server, ToolError
from ferrule.errors import PeerError
from ferrule.transports.http.listener import Http

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted import Hosted


def shop() -> Server:
    """A server with something of everything."""
    app = Server("shop", version="1")
    cancelled = app.cancelled = []  # type: ignore[attr-defined]

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(1, to + 1):
            await ctx.report_progress(number, to)
        return "counted"

    @app.tool
    async def ask(ctx: Context) -> str:
        return f"hello {await ctx.ask('Your name?', str, key='name')}"

    @app.tool
    async def fail() -> str:
        raise ToolError("broken")

    @app.tool
    async def hold() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append("hold")
            raise
        return "late"

    @app.resource("note://{name}")
    async def note(name: str) -> str:
        return f"note {name}"

    return app


@asynccontextmanager
async def served(app: Server, **options: Any) -> AsyncIterator[str]:
    """Serve on a free port; gives the URL."""
    listener = Http(**{"port": 0, **options})
    ready = asyncio.Event()
    await app.enter()
    serving = asyncio.create_task(listener.serve(app.host, ready.set))
    await asyncio.wait([serving, asyncio.create_task(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    try:
        host, port = listener.address
        yield f"http://{host}:{port}/mcp"
    finally:
        await listener.close(0.2)
        await serving
        await app.leave()


@asynccontextmanager
async def talking(era: str, app: Server, options: dict[str, Any] | None = None, **client: Any) -> AsyncIterator[Client]:
    async with served(app, **(options or {})) as url, Client(url, mode=era, **client) as one:
        yield one


@pytest.mark.parametrize("response", ["auto", "json", "sse"])
async def test_tools_resources_and_errors(era: str, response: str) -> None:
    """SPEC-01."""
    async with talking(era, shop(), {"response": response}) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
        assert {tool.name for tool in await client.list_tools()} == {"add", "count", "ask", "fail", "hold"}
        assert (await client.read_resource("note://x")).contents[0].text == "note x"
        with pytest.raises(ToolError, match="broken"):
            await client.call_tool("fail")
        with pytest.raises(PeerError):
            await client.call_tool("missing")
        results = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in range(200)))
        assert [result.structured_content["result"] for result in results] == [n + 1 for n in range(200)]


async def test_progress_comes_before_the_result(era: str) -> None:
    async with talking(era, shop()) as client:
        heard: list[float] = []
        result = await client.call_tool("count", {"to": 5}, on_progress=lambda done, *_: heard.append(done))
        assert result.text == "counted"
        assert heard[-1] == 5


async def test_the_server_asks_and_is_answered(era: str) -> None:
    async with talking(era, shop(), elicitation=lambda *asked: {"value": "Ada"}) as client:
        assert "Ada" in (await client.call_tool("ask")).text


async def test_a_cancelled_call_ends_in_the_server_too(era: str) -> None:
    """HTM-8, HTL-5."""
    app = shop()
    async with talking(era, app) as client:
        task = asyncio.create_task(client.call_tool("hold"))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(6000):
            if app.cancelled:  # type: ignore[attr-defined]
                break
            await asyncio.sleep(0.01)
        assert app.cancelled == ["hold"]  # type: ignore[attr-defined]


async def test_auto_finds_the_newest_era() -> None:
    async with talking("auto", shop()) as client:
        assert client.protocol_version == "2026-07-28"


async def test_a_restarted_server_gets_a_new_session() -> None:
    """RES-06."""
    async with served(shop()) as url:
        port = int(url.rsplit(":", 1)[1].removesuffix("/mcp"))
        client = Client(url, mode="handshake", http={"retry_delay": 0.05})
        await client.connect()
        assert (await client.call_tool("add", {"a": 1, "b": 1})).text == "2"
    async with served(shop(), port=port):
        assert len(await client.request("tools/list")) == 1
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        await client.close()


class Saboteur(Hosted):
    """Stands between a client and a server, and cuts what the server says after so many bytes."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__()
        self._far_port, self._chance = port, random.Random(seed)
        self.cuts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far = await asyncio.open_connection("127.0.0.1", self._far_port)
        try:
            await asyncio.gather(self._forward(reader, far), self._sabotage(far_reader, writer))
        except ConnectionError:
            pass
        finally:
            far.transport.abort()
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def _sabotage(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left, streaming = self._chance.randrange(500, 4000), False
        while data := await reader.read(256):
            streaming = streaming or b"text/event-stream" in data
            if streaming:
                if left < len(data):
                    writer.write(data[:left])
                    await writer.drain()
                    self.cuts += 1
                    raise ConnectionError
                left -= len(data)
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.mark.parametrize("seed", range(3))
async def test_res_01_streams_cut_at_random_lose_double_and_mix_nothing(seed: int) -> None:
    app = Server("talker")

    @app.tool
    async def talk(name: str, times: int, ctx: Context) -> str:
        for number in range(times):
            await ctx.info(f"{name} {number}")
            await asyncio.sleep(0.002)
        return name

    async with (
        served(app, retry=0.1) as url,
        Saboteur(int(url.rsplit(":", 1)[1].removesuffix("/mcp")), seed) as between,
        Client(between.url, mode="handshake", http={"retry_delay": 0.1}) as client,
    ):
        heard: dict[str, list[int]] = {"a": [], "b": [], "c": []}

        def note(level: str, data: str, logger: str) -> None:
            name, number = data.split()
            heard[name].append(int(number))

        client.on_log(note)
        calls = (client.call_tool("talk", {"name": name, "times": 60}, timeout=60) for name in heard)
        assert [result.text for result in await asyncio.gather(*calls)] == ["a", "b", "c"]
        await asyncio.sleep(0.05)
        assert heard == {name: list(range(60)) for name in heard}
        assert between.cuts > 3


async def test_slo_07_a_slow_callback_holds_up_no_answer(era: str) -> None:
    app = Server("talker")

    @app.tool
    async def talk(ctx: Context) -> str:
        for number in range(50):
            await ctx.info(str(number))
        return "done"

    async with talking(era, app, log_level="debug") as client:
        client.on_log(lambda *told: asyncio.sleep(600))
        began = asyncio.get_running_loop().time()
        results = await asyncio.gather(*(client.call_tool("talk") for _ in range(10)))
        assert [result.text for result in results] == ["done"] * 10
        assert asyncio.get_running_loop().time() - began < 60


def test_the_same_on_uvloop() -> None:
    async def both() -> None:
        for era in ("handshake", "stateless"):
            async with talking(era, shop()) as client:
                results = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in range(100)))
                assert [result.structured_content["result"] for result in results] == [n + 1 for n in range(100)]

    uvloop.run(asyncio.wait_for(both(), 60))


async def test_whoever_listens_gets_a_new_session_when_the_old_one_is_too_old() -> None:
    """An open stream does not put off the end of a session: whoever only hears is not left with one that is over."""
    restored = asyncio.Event()
    async with served(shop(), session_lifetime=0.3, quiet=0.05, retry=0.05) as url:
        client = Client(url, mode="handshake", reconnect=Reconnect(first_delay=0.01))
        client.on_connection(lambda notice: restored.set() if notice.what == "restored" else None)
        client.on_log(lambda params: None)
        async with client:
            await asyncio.wait_for(restored.wait(), 20)
