"""A client is started over each transport with options of its own and of the transport."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from every_way import every_way

from ferrule import Client, Context, Server
from ferrule.errors import EncodeError, LinkLost, TimedOut
from ferrule.testing import ERAS
from ferrule.testing.carrier_kit import relayed
from patience import PATIENT

PATIENCE = 120.0
SMALL = 4096
CROWDED, CALLS = 256 * 1024, 40
"""How long a message may be, and how many are sent at once: ten times what may wait."""
PROGRAM = """
import os
from ferrule import Context, Server

app = Server("child")

@app.tool
def who(ctx: Context, text: str = "") -> str:
    return f"{ctx.client.name} {os.environ['COLOUR']} {os.getcwd()}"

app.run()
"""


def new_app() -> Server:
    app = Server("greeter")

    @app.tool
    def who(ctx: Context, text: str = "") -> str:
        return ctx.client.name if ctx.client else ""

    @app.tool
    async def echo(text: str) -> str:
        return text

    return app


@asynccontextmanager
async def served(listener: Any) -> AsyncIterator[Any]:
    """Let a listener serve, and end it."""
    app, ready = new_app(), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    try:
        await asyncio.wait_for(ready.wait(), PATIENCE)
        yield listener
    finally:
        await app.stop(0.0)
        await serving


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["tcp", "tls", "unix", "websocket", "http", "sse"])
def test_a_client_starts_with_options_of_its_own_and_of_its_transport(name: str, era: Any) -> None:
    """CLNT-01: its name is what it was told to be, and the transport's limit holds."""
    if name == "sse" and era == "stateless":
        pytest.skip("the HTTP+SSE pair is of the first generation")

    async def test() -> None:
        with tempfile.TemporaryDirectory() as folder:
            way = every_way(folder)[name]
            listener = way.listener
            options = {way.options_of: {"max_message_size": SMALL, **way.options}}
            async with served(listener), Client(way.target, mode=era, name="tester", **options) as client:
                assert (await client.call_tool("who")).text == "tester"
                with pytest.raises(EncodeError):
                    await client.call_tool("who", {"text": "x" * SMALL})

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


@pytest.mark.parametrize("era", ERAS)
def test_a_client_starts_a_child_with_its_environment_and_folder(era: Any, tmp_path: Path) -> None:
    """CLNT-01"""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py")]

    async def test() -> None:
        async with Client(
            command, mode=era, name="tester", env={"COLOUR": "red"}, cwd=str(tmp_path), **PATIENT
        ) as client:
            assert (await client.call_tool("who")).text == f"tester red {tmp_path}"

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


@pytest.mark.parametrize("era", ERAS)
def test_a_client_of_an_object_needs_no_transport(era: Any) -> None:
    """CLNT-01"""

    async def test() -> None:
        async with Client(new_app(), mode=era, name="tester") as client:
            assert (await client.call_tool("who")).text == "tester"

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["tcp", "tls", "unix", "websocket", "http"])
def test_a_client_may_ask_more_at_once_than_may_wait_for_a_server(name: str, era: Any) -> None:
    """GUAR-06: calls wait for their turn to be written, and the answers are read meanwhile."""
    text = "x" * (CROWDED // 2 - SMALL)  # an answer holds it twice

    async def test() -> None:
        with tempfile.TemporaryDirectory() as folder:
            way = every_way(folder)[name]
            options = {way.options_of: {"max_message_size": CROWDED, **way.options}}
            async with served(way.listener), Client(way.target, mode=era, **options) as client:
                answers = await asyncio.gather(*(client.call_tool("echo", {"text": text}) for _ in range(CALLS)))
                assert {answer.text for answer in answers} == {text}

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


@pytest.mark.parametrize("era", ERAS)
def test_a_call_that_cannot_be_written_in_time_says_so(era: Any) -> None:
    """GUAR-06: a server that reads nothing costs its callers their time-out, no more."""

    async def test() -> None:
        listener = every_way("")["tcp"].listener
        async with served(listener), relayed(listener.address) as relay:
            target = "tcp://{}:{}".format(*relay.address)
            async with Client(target, mode=era, probe_on_timeout=False, reconnect=False) as client:
                relay.hold()
                text = "x" * 1024 * 1024
                first = [asyncio.ensure_future(client.call_tool("echo", {"text": text})) for _ in range(4)]
                await asyncio.sleep(0)
                with pytest.raises(TimedOut, match=r"tools/call was not sent: within 0\.2 s"):
                    await client.call_tool("echo", {"text": text}, timeout=0.2)
                with pytest.raises(TimedOut, match="tools/list was not sent"):
                    await client.list_tools(timeout=0.2)
                relay.release()
                assert {answer.text for answer in await asyncio.gather(*first)} == {text}

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


@pytest.mark.parametrize(("name", "target"), [("tcp", "tcp://{}:{}"), ("websocket", "ws://{}:{}/mcp/ws")])
def test_a_call_that_waits_for_room_learns_at_once_that_the_link_was_given_up(name: str, target: str) -> None:
    """GUAR-06: whoever gives up a server that reads nothing leaves nobody waiting until it does."""

    async def test() -> None:
        listener = every_way("")[name].listener
        async with served(listener), relayed(listener.address) as relay:
            place = target.format(*relay.address)
            async with Client(place, reconnect=False) as client:
                relay.hold()
                calls = [asyncio.ensure_future(client.call_tool("echo", {"text": "x" * 1024 * 1024})) for _ in range(9)]
                await asyncio.sleep(0.05)
                link = client._keeper.conversation.link
                assert link.congested
                link.close(LinkLost("it answers no pings"))
                link.channel.close("keep-alive failed")
                for call in (*calls, client.call_tool("who"), client.list_tools()):
                    with pytest.raises(LinkLost, match="it answers no pings"):
                        await asyncio.wait_for(call, 2)

    asyncio.run(asyncio.wait_for(test(), PATIENCE))
