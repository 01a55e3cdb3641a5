"""A server with several listeners: each can be closed by itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client, Http, Server, Stdio, Tcp, Unix, WebSocket
from ferrule.errors import CarrierError

LISTENERS: dict[str, Callable[[Path], Any]] = {
    "http": lambda _: Http(port=0),
    "tcp": lambda _: Tcp(port=0),
    "unix": lambda place: Unix(place / "s"),
    "ws": lambda _: WebSocket(port=0),
}


class Desk:
    """A server whose one tool waits until it is told to go on."""

    def __init__(self) -> None:
        self.app = Server("many doors", shutdown_grace=10.0)
        self.release = asyncio.Event()
        self.ended = 0

        @self.app.tool
        async def wait() -> str:
            await self.release.wait()
            return "waited"

        @self.app.tool
        async def greet() -> str:
            return "Hello"

    @property
    def running(self) -> int:
        """How many calls run."""
        return sum(len(link.session.running) for link in self.app.host.links)


@asynccontextmanager
async def serving(desk: Desk, *listeners: Any) -> AsyncIterator[asyncio.Future[None]]:
    ready = asyncio.Event()
    served = asyncio.ensure_future(desk.app.serve(*listeners, ready=ready.set))
    await ready.wait()
    try:
        yield served
    finally:
        desk.release.set()
        await desk.app.stop(1.0)
        await served


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", LISTENERS)
async def test_shut_03_closing_one_listener_answers_its_own_peers_and_lets_the_others_be(
    kind: str, era: Any, tmp_path: Path
) -> None:
    """SHUT-03: in every transport, in both eras."""
    desk = Desk()
    one, other = LISTENERS[kind](tmp_path), Tcp(port=0)
    async with serving(desk, one, other) as served, Client(other.url, mode=era) as stays:
        place = one.url
        async with Client(place, mode=era, reconnect=False) as leaves:
            asked = asyncio.ensure_future(leaves.call_tool("wait"))
            await until(lambda: desk.running == 1)
            closing = asyncio.ensure_future(one.close(10.0))
            # While one waits for its last answer, the other takes calls, and new clients.
            for _ in range(3):
                assert (await stays.call_tool("greet")).data == "Hello"
            async with Client(other.url, mode=era) as fresh:
                assert (await fresh.call_tool("greet")).data == "Hello"
            assert not closing.done()
            desk.release.set()
            assert (await asked).data == "waited"
            await closing
        with pytest.raises(CarrierError):
            await Client(place, mode=era, reconnect=False).connect()
        assert (await stays.call_tool("greet")).data == "Hello"
        assert not served.done()
        await other.close(1.0)
        await served


async def test_the_server_ends_with_its_last_listener(tmp_path: Path) -> None:
    desk = Desk()
    listeners = [make(tmp_path) for make in LISTENERS.values()]
    async with serving(desk, *listeners) as served:
        for listener in listeners:
            assert not served.done()
            assert desk.app.host.lifespans.in_use
            await listener.close(1.0)
        await served
        assert not desk.app.host.lifespans.in_use


async def test_a_peer_whose_pipe_ends_takes_no_other_along() -> None:
    """The end of stdin is the end of stdio only: the sockets beside it serve on."""
    desk = Desk()
    (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
    tcp = Tcp(port=0)
    try:
        async with (
            serving(desk, Stdio(read_fd=read_in, write_fd=write_out), tcp) as served,
            Client(tcp.url) as client,
        ):
            os.close(write_in)
            await until(lambda: len(desk.app.host.links) == 1)
            assert (await client.call_tool("greet")).data == "Hello"
            assert not served.done()
    finally:
        for fd in (read_in, read_out, write_out):
            os.close(fd)


async def test_a_task_goes_on_while_any_listener_is_left_and_is_waited_for_with_the_last() -> None:
    """A task belongs to no connection."""
    desk = Desk()

    @desk.app.tool(task=True)
    async def build() -> str:
        await desk.release.wait()
        desk.ended += 1
        return "built"

    one, other = Tcp(port=0), Http(port=0)
    async with serving(desk, one, other) as served:
        async with Client(one.url, mode="handshake") as client:
            await client.start_task("build")
            await one.close(10.0)
        assert not desk.ended
        last = asyncio.ensure_future(other.close(10.0))
        await asyncio.sleep(0.05)
        assert not last.done()
        desk.release.set()
        await last
        await served
    assert desk.ended == 1


async def test_stopping_waits_for_what_runs_behind_every_listener(tmp_path: Path) -> None:
    """SHUT-03"""
    desk = Desk()
    listeners = [make(tmp_path) for make in LISTENERS.values()]
    async with serving(desk, *listeners) as served:
        clients = [Client(listener.url, reconnect=False) for listener in listeners]
        for client in clients:
            await client.connect()
        asked = [asyncio.ensure_future(client.call_tool("wait")) for client in clients]
        await until(lambda: desk.running == len(clients))
        stopping = asyncio.ensure_future(desk.app.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        desk.release.set()
        assert [(await each).data for each in asked] == ["waited"] * len(clients)
        await stopping
        await served
        for client in clients:
            await client.close()
