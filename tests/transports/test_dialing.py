"""Opening a connection to somebody else."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from ferrule import Client
from ferrule.errors import ConnectFailed
from ferrule.transports.dialing import dial


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_server_is_reached(run: Any) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            protocol = asyncio.Protocol()
            transport, made = await dial(lambda: protocol, *listening.getsockname(), None, None)
            assert made is protocol
            transport.abort()

    run(test())


@pytest.mark.parametrize("target", ["tcp://127.0.0.1:{}", "ws://127.0.0.1:{}/mcp/ws"])
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
