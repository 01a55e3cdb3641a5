"""The wire one can cut and hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from ferrule.testing.carrier_kit import Relay, relayed

PATIENCE = 120


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.write(b"end")
    writer.close()


@asynccontextmanager
async def echoing(path: Path | None = None) -> AsyncIterator[tuple[Relay, asyncio.StreamReader, asyncio.StreamWriter]]:
    if path is None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        target = server.sockets[0].getsockname()[:2]
    else:
        server = await asyncio.start_unix_server(echo, str(path))
        target = str(path)
    async with server, relayed(target) as relay:
        ways = asyncio.open_unix_connection(relay.path) if path else asyncio.open_connection(*relay.address)
        reader, writer = await ways
        try:
            yield relay, reader, writer
        finally:
            writer.close()


@pytest.mark.parametrize("unix", [False, True])
def test_everything_passes_as_it_came_and_an_end_too(unix: bool, tmp_path: Path) -> None:
    async def test() -> None:
        async with echoing(tmp_path / "s" if unix else None) as (relay, reader, writer):
            writer.write(b"x" * 300_000)
            writer.write_eof()
            assert await reader.read() == b"x" * 300_000 + b"end"
            assert relay.taken == 1

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def test_what_is_held_passes_when_it_is_released() -> None:
    async def test() -> None:
        async with echoing() as (relay, reader, writer):
            relay.hold()
            writer.write(b"later")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readexactly(5), 0.1)
            relay.release()
            assert await reader.readexactly(5) == b"later"

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def test_a_cut_is_no_end_in_order() -> None:
    async def test() -> None:
        async with echoing() as (relay, reader, writer):
            writer.write(b"x")
            await reader.readexactly(1)
            relay.cut()
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def test_who_comes_while_nobody_serves_is_sent_away() -> None:
    async def test() -> None:
        async with relayed(("127.0.0.1", 1)) as relay:
            reader, writer = await asyncio.open_connection(*relay.address)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE))
