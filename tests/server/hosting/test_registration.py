"""What of a server is in its registry."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client, Http, Server, Stdio, Tcp, Unix, WebSocket
from ferrule.protocol.session import Phase
from ferrule.registry.registry import Event

LISTENERS: dict[str, Callable[[Path], Any]] = {
    "tcp": lambda _: Tcp(port=0),
    "http": lambda _: Http(port=0),
    "ws": lambda _: WebSocket(port=0),
    "unix": lambda folder: Unix(folder / "s"),
}
WITHIN = 20.0


def greeter() -> Server:
    app = Server("greeter", version="2.1")

    @app.tool
    async def greet() -> str:
        return "Hello"

    return app


@contextlib.asynccontextmanager
async def served(app: Server, *listeners: Any) -> AsyncIterator[None]:
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(*listeners, ready=ready.set))
    await ready.wait()
    try:
        yield
    finally:
        await app.stop(1.0)
        await serving


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN):
        while not true():
            await asyncio.sleep(0.005)


def names(app: Server, kind: str, capability: str | None = None) -> list[str]:
    return [entry.name for entry in app.registry.find_all(kind, capability=capability)]


@pytest.mark.parametrize("kind", LISTENERS)
@pytest.mark.parametrize("asked", ["before", "while"])
async def test_a_transport_is_registered_exactly_while_it_can_be_reached(kind: str, asked: str, tmp_path: Path) -> None:
    """TBEH-04: whether or not the registry was there first."""
    app, listener = greeter(), LISTENERS[kind](tmp_path)
    if asked == "before":
        assert names(app, "transport") == []
    async with served(app, listener, Tcp(port=0)):
        found = app.registry.find("transport", kind)
        assert found is not None
        assert found.value is listener
        assert found.meta["url"] == listener.url
        assert kind in names(app, "transport", kind)
        assert app.registry.server_for(kind) == "greeter"
        assert len(app.registry.transports_for("greeter")) == 2
        await listener.close(1.0)
        await until(lambda: app.registry.find("transport", kind) is not found)
        assert len(names(app, "transport")) == 1
    assert app.registry.stats().entries == {}


async def test_stdio_is_registered_while_its_peer_is_there() -> None:
    """TBEH-04"""
    app = greeter()
    (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(Stdio(read_fd=read_in, write_fd=write_out), ready=ready.set))
    try:
        await ready.wait()
        assert names(app, "transport", "stdio") == ["stdio"]
        assert names(app, "link", "stdio") == ["link-1"]
        os.close(write_in)
        await asyncio.wait_for(serving, WITHIN)
    finally:
        for fd in (read_in, read_out, write_out):
            os.close(fd)
    assert app.registry.stats().entries == {}


async def test_an_asgi_app_is_registered_from_its_start_to_its_stop() -> None:
    """TBEH-04"""
    app = greeter()
    first, second = app.asgi(), app.asgi()
    assert app.registry.stats().entries == {}
    await first.start()
    await second.start()
    found = app.registry.find("transport", "asgi")
    assert found is not None
    assert found.value is first
    assert app.registry.transports_for("greeter") == ["asgi", "asgi-2"]
    await first.stop()
    assert app.registry.transports_for("greeter") == ["asgi-2"]
    await second.stop()
    assert app.registry.stats().entries == {}


async def test_a_stopping_server_closes_in_order() -> None:
    """SHUT-01, SHUT-05: nobody new, the running call, the links, the transport, the server; its slots are free."""
    app, tcp, release = greeter(), Tcp(port=0), asyncio.Event()

    @app.tool
    async def wait() -> str:
        await release.wait()
        return "waited"

    gone: list[str] = []

    def watch(event: Event) -> None:
        if event.change == "gone":
            gone.append(event.entry.kind)

    app.registry.watch(watch)
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(tcp, ready=ready.set))
    await ready.wait()
    address = tcp.address
    async with Client(tcp.url, reconnect=False) as busy, Client(tcp.url, reconnect=False):
        asked = asyncio.ensure_future(busy.call_tool("wait"))
        await until(lambda: any(link.session.running for link in app.host.links))
        assert tcp.occupancy.current == 2
        stopping = asyncio.ensure_future(app.stop())
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        assert gone == []
        release.set()
        assert (await asked).data == "waited"
        await stopping
    await serving
    assert gone == ["link", "link", "transport", "server"]
    assert tcp.occupancy.current == 0


async def test_a_transport_that_dies_is_gone_until_it_is_bound_again() -> None:
    """TBEH-04, SHUT-05"""
    app, tcp = greeter(), Tcp(port=0)
    told: list[tuple[str, str]] = []
    app.registry.watch(lambda event: told.append((event.change, f"{event.entry.kind} {event.entry.name}")))
    async with served(app, tcp):
        told.clear()
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == "listener tcp"]
        task.cancel()
        await until(lambda: len(told) >= 3)
        assert told == [("gone", "transport tcp"), ("added", "transport tcp"), ("changed", "transport tcp")]
        assert app.registry.server_for("tcp") == "greeter"


async def test_a_server_is_registered_while_it_serves_with_what_it_declares() -> None:
    app = greeter()
    assert names(app, "server") == []
    async with served(app, Tcp(port=0)):
        found = app.registry.find("server", "greeter")
        assert found is not None
        assert (found.value, dict(found.meta)) == (app, {"version": "2.1"})
        assert names(app, "server", "tools") == ["greeter"]
        assert names(app, "server", "prompts") == []
        app.add_prompt("hello", lambda: "Hello")
        assert names(app, "server", "prompts") == ["greeter"]
        app.remove_prompt("hello")
        again = Tcp(port=0)
        ready = asyncio.Event()
        serving = asyncio.ensure_future(app.serve(again, ready=ready.set))
        await ready.wait()
        assert names(app, "server") == ["greeter"]
        await again.close(1.0)
        await serving
        assert names(app, "server") == ["greeter"]
    assert names(app, "server") == []


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_a_link_comes_up_in_four_steps(kind: str, tmp_path: Path) -> None:
    """SESS-27: connection, registration, initialization, ready; with its end its entry goes."""
    app, listener = greeter(), LISTENERS[kind](tmp_path)
    told: list[str] = []
    app.registry.watch(lambda event: told.append(f"{event.entry.kind} {event.change}"))
    async with served(app, listener):
        told.clear()
        if kind == "tcp":
            reader, writer = await asyncio.open_connection(*listener.address)
        else:
            reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        await until(lambda: told == ["link added"])
        [entry] = app.registry.find_all("link", capability=kind)
        link: Any = entry.value
        assert entry.meta["transport"] == kind
        assert app.registry.server_for(kind) == "greeter"
        assert link.session.phase is Phase.PRE_INITIALIZATION

        async def say(message: dict[str, Any]) -> None:
            writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            await writer.drain()

        await say({"id": 1, "method": "initialize", "params": HELLO})
        assert b"serverInfo" in await reader.readline()
        assert link.session.peer is not None
        assert not link.session.peer_ready
        await say({"method": "notifications/initialized"})
        await until(lambda: link.session.peer_ready)
        assert told == ["link added"]
        writer.close()
        await until(lambda: told == ["link added", "link gone"])


async def test_links_are_found_by_transport_and_gone_with_their_end() -> None:
    """SESS-27, SHUT-05: those that were there before the registry was too."""
    app, tcp, http = greeter(), Tcp(port=0), Http(port=0)
    async with served(app, tcp, http):
        async with Client(tcp.url) as stays:
            [kept] = app.registry.find_all("link", capability="tcp")
            async with Client(tcp.url), Client(http.url, mode="handshake"), Client(app):
                assert len(names(app, "link", "tcp")) == 2
                assert len(names(app, "link", "memory")) == 1
                assert {entry.value for entry in app.registry.find_all("link")} == set(app.host.links)
            await until(lambda: names(app, "link", "tcp") == [kept.name])
            assert (await stays.call_tool("greet")).data == "Hello"
        await until(lambda: names(app, "link", "tcp") == [])
    assert app.registry.stats().entries == {}


async def test_what_was_lost_is_registered_again_when_the_registry_is_restarted() -> None:
    """SUPV-02: the registry is permanent."""
    app, tcp = greeter(), Tcp(port=0)
    async with served(app, tcp), Client(tcp.url):
        before = app.registry.stats()
        app.registry.unregister("server", "greeter")
        app.registry.unregister("transport", "tcp")
        app.add_prompt("hello", lambda: "Hello")
        assert app.supervisor is not None
        await app.supervisor.restart("registry")
        assert app.registry.stats() == before
    assert app.registry.stats().entries == {}


async def test_a_server_whose_registry_nobody_asks_for_keeps_none() -> None:
    app, tcp = greeter(), Tcp(port=0)
    async with served(app, tcp), Client(tcp.url):
        assert app._runner.registration._registry is None
        assert app.host.links.watcher is None
