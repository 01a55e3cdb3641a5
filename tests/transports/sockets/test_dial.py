"""Reaching a peer within a time, and nobody else."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from ferrule import Client
from ferrule.errors import ConnectFailed
from ferrule.testing import run_in_virtual_time
from ferrule.transports.sockets.dial import dial, reaching


def test_an_attempt_that_takes_too_long_names_the_peer_and_the_time() -> None:
    async def main() -> None:
        async with reaching("tcp://nowhere:1", 2.5):
            await asyncio.sleep(100)

    with pytest.raises(ConnectFailed, match=r"cannot reach tcp://nowhere:1: no connection within 2\.5 s"):
        run_in_virtual_time(main())


def test_what_the_system_says_is_put_in_the_words_of_the_one_who_asks() -> None:
    async def main() -> None:
        async with reaching("unix:/run/x", 1.0, reason=lambda error: f"no socket ({error})"):
            raise FileNotFoundError("gone")

    with pytest.raises(ConnectFailed, match=r"cannot reach unix:/run/x: no socket \(gone\)"):
        run_in_virtual_time(main())


def test_other_failures_pass_as_they_are() -> None:
    async def main() -> None:
        async with reaching("ws://x", 1.0, wanted="WebSocket"):
            raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        run_in_virtual_time(main())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_server_is_reached(run: Any) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            protocol = asyncio.Protocol()
            transport, made = await dial(lambda: protocol, *listening.getsockname(), None, None)
            assert made is protocol
            transport.abort()

    run(test())


@pytest.mark.parametrize(
    "target",
    ["tcp://127.0.0.1:{}", "ws://127.0.0.1:{}/mcp/ws", "http://127.0.0.1:{}/mcp", "sse+http://127.0.0.1:{}/sse"],
)
def test_a_socket_that_is_connected_to_itself_has_reached_nobody(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system chooses the port we call from, and where nobody listens it may choose the one we call."""

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        loop = asyncio.get_running_loop()
        connect = loop.create_connection
        monkeypatch.setattr(loop, "create_connection", lambda *a, **o: connect(*a, **o, local_addr=("127.0.0.1", port)))
        with pytest.raises(ConnectFailed, match="the connection was refused; does the server run"):
            await Client(target.format(port)).connect()
        await asyncio.sleep(0)
        with socket.create_server(("127.0.0.1", port)):
            pass

    asyncio.run(test())
