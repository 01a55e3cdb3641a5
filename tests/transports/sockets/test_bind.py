"""Listening sockets."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ferrule.errors import CarrierError, SetupError
from ferrule.transports.http.settings import EngineSettings
from ferrule.transports.sockets.bind import listen


def failure(**options: object) -> str:
    """Return what listening fails with."""
    with pytest.raises(CarrierError) as caught:
        asyncio.run(listen(EngineSettings(**options)))
    return str(caught.value)


def test_a_port_in_use_is_told_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = failure(port=port)
    assert (
        said == f"cannot listen on 127.0.0.1:{port}: the port is in use; stop the other program or choose another port"
    )


def test_an_address_of_another_machine_is_told() -> None:
    assert "this machine does not have that address" in failure(host="192.0.2.1", port=0)


def test_a_port_that_is_none_is_told() -> None:
    with pytest.raises(SetupError, match="port must be from 0 to 65535, not 70000"):
        EngineSettings(port=70_000)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 300, "a..b"])
def test_a_host_without_an_address_is_told(host: str) -> None:
    assert "this host name has no address" in failure(host=host, port=0)


def test_all_addresses_of_a_host_share_one_port() -> None:
    sockets = asyncio.run(listen(EngineSettings(host="localhost", port=0)))
    assert len({each.getsockname()[1] for each in sockets}) == 1
    for each in sockets:
        each.close()


def test_several_processes_can_share_a_port_when_told_to() -> None:
    first = asyncio.run(listen(EngineSettings(port=0, reuse_port=True)))
    second = asyncio.run(listen(EngineSettings(port=first[0].getsockname()[1], reuse_port=True)))
    for each in first + second:
        each.close()
