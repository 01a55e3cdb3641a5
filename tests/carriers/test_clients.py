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
from ferrule.errors import EncodeError
from ferrule.testing import ERAS
from patience import PATIENT

PATIENCE = 120.0
SMALL = 4096
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
