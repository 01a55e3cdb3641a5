"""A real server process over HTTP that is told to stop."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from http_mcp import Client, Process, Way, serving
from pace import LONG, prompt

from ferrule.server.settings import ServerSettings

ERAS = ("handshake", "stateless")
PATIENCE = 120.0


def run(work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    asyncio.run(asyncio.wait_for(work(*args), PATIENCE))


def test_shd_01_sigterm_under_load_delivers_running_calls_and_exits_0() -> None:
    """SHUT-01: 20 calls, 5 standing streams, 5 idle connections; new ones are refused or told to come back."""

    async def load(server: Process) -> None:
        clients = [await Client(server.port, era).__aenter__() for era in ERAS for _ in range(5)]
        streams = [await client.get() for client in clients[:5]]
        idle = [await Way.open(server.port) for _ in range(5)]
        calls = [await client.begin_call("sleep", ms=2500) for client in clients for _ in range(2)]
        await _running(clients[-1], 20)
        server.signal(signal.SIGTERM)
        began = time.monotonic()
        await _until_turned_away(server.port)
        answers = [await (await call.head()).whole() for call in calls]
        assert [answer.text for answer in answers] == ["slept"] * 20
        for stream in streams:
            await stream.whole()
        for way in idle:
            assert await way.reader.read() == b""
            await way.close()
        assert await server.ended(60) == 0
        assert time.monotonic() - began < prompt(5)
        for client in clients:
            await client.__aexit__()

    with serving() as server:
        run(load, server)


async def _running(client: Client, number: int) -> None:
    """Wait until so many calls are running."""
    while (await client.stats()).get("running", 0) < number:
        await asyncio.sleep(0.02)


async def _until_turned_away(port: int) -> None:
    """Wait until the server stops."""
    while not await _turned_away(port):
        await asyncio.sleep(0.02)


async def _turned_away(port: int) -> bool:
    """Whether a newcomer is refused, or told to come back."""
    try:
        way = await Way.open(port)
    except ConnectionRefusedError:
        return True
    try:
        answer = await way.send("POST", {"Content-Type": "application/json"}, b"{}").head()
        return answer.status == 503 and "retry-after" in answer.headers
    except ConnectionError:
        return True
    finally:
        await way.close()


def test_shd_02_a_call_that_never_ends_is_answered_with_an_error_within_the_grace() -> None:
    assert ServerSettings().shutdown_grace == 5.0

    async def hang(server: Process) -> None:
        async with Client(server.port, "handshake") as old, Client(server.port, "stateless") as new:
            calls = [await client.begin_call("hold", token=1) for client in (old, new)]
            await _running(new, 2)
            began = time.monotonic()
            server.signal(signal.SIGTERM)
            for call in calls:
                answer = await (await call.head()).whole()
                assert "stopped" in answer.messages[-1]["error"]["message"]
            assert await server.ended(60) == 0
            assert 0.9 < time.monotonic() - began < prompt(4)

    with serving(shutdown_grace=1) as server:
        run(hang, server)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_shd_03_a_second_signal_ends_at_once_with_a_code_of_its_own(first: int, second: int) -> None:
    async def press(server: Process) -> None:
        async with Client(server.port) as client:
            await client.begin_call("hold")
            await _running(client, 1)
            server.signal(first)
            await _until_turned_away(server.port)
            server.signal(second)
            began = time.monotonic()
            assert await server.ended(60) == 128 + second
            assert time.monotonic() - began < prompt(1)

    with serving(shutdown_grace=60) as server:
        run(press, server)


def test_shd_05_it_says_that_it_is_not_ready_before_it_turns_anybody_away() -> None:
    """A load balancer asks over new connections, so they are taken until it had time to look elsewhere."""

    async def ask(port: int, path: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        status = int((await reader.readline()).split()[1])
        writer.close()
        return status

    async def stop(server: Process) -> None:
        assert (await ask(server.port, "/livez"), await ask(server.port, "/readyz")) == (200, 200)
        server.signal(signal.SIGTERM)
        while await ask(server.port, "/readyz") == 200:
            await asyncio.sleep(0.02)
        assert (await ask(server.port, "/livez"), await ask(server.port, "/readyz")) == (200, 503)
        assert await server.ended(60) == 0
        with pytest.raises(ConnectionRefusedError):
            await ask(server.port, "/livez")

    with serving({"drain_delay": 3.0}) as server:
        run(stop, server)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once_and_in_order(number: int) -> None:
    async def stop(server: Process) -> None:
        async with Client(server.port) as client:
            stream = await client.get()
            began = time.monotonic()
            server.signal(number)
            await stream.whole()
            assert await server.ended(60) == 0
            assert time.monotonic() - began < prompt(1.5)

    with serving(shutdown_grace=60) as server:
        run(stop, server)


def test_shd_04_sigterm_at_any_moment_of_starting_exits_soon() -> None:
    """While Python starts, while modules are read, while the first client shakes hands."""

    async def start_and_stop(delay: float) -> None:
        server = Process()
        try:
            await asyncio.sleep(delay)
            server.signal(signal.SIGTERM)
            assert await server.ended(60) in (0, -signal.SIGTERM)
        finally:
            server.close()
        assert "Traceback" not in server.log, server.log

    async def during_handshake() -> None:
        server = Process()
        try:
            server.ready()
            client = Client(server.port)
            opening = asyncio.ensure_future(client.__aenter__())
            await asyncio.sleep(0)
            server.signal(signal.SIGTERM)
            assert await server.ended(60) == 0
            await asyncio.wait([opening])
            opening.exception()
            await client.__aexit__()
        finally:
            server.close()

    moments = [step * 0.07 for step in range(40 if LONG else 8)]
    for moment in moments:
        run(start_and_stop, moment)
    for _ in range(10 if LONG else 2):
        run(during_handshake)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shd_04_a_signal_while_the_servers_own_lifespan_begins_is_not_lost(number: int) -> None:
    """The lifespan waits for a database, say: nobody was let in, so there is nothing to drain."""

    async def stop(server: Process) -> None:
        assert server.process.stdout is not None
        assert await asyncio.to_thread(server.process.stdout.readline) == b"opening\n"
        server.signal(number)
        assert await server.ended(10) == 0

    server = Process(opening=600)
    try:
        run(stop, server)
    finally:
        server.close()
    assert server.log == ""


def test_standing_streams_are_told_when_to_come_back_and_from_where() -> None:
    async def stop(server: Process) -> None:
        async with Client(server.port) as client:
            stream = await client.get()
            await stream.part()
            assert stream.last_id
            call = await (await client.begin_call("tell", token=1, name="x", to=5, pause=0.1)).head()
            await call.until(1)
            server.signal(signal.SIGTERM)
            await stream.whole()
            assert stream.parser.retry == 1000
            assert (await call.whole()).text == "x"
            assert len(call.messages) == 6
            assert await server.ended(60) == 0

    with serving() as server:
        run(stop, server)
