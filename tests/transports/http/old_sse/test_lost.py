"""Sessions of the HTTP+SSE pair whose reader was lost: what they hold, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from pathlib import Path

import pytest

from ferrule.stores.metered import MeteredEventLog
from ferrule.transports.http.listener import Http, Sse
from ferrule.transports.http.old_sse.session import SPARE_EVENTS

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pair_desk import call, initialize
from test_listener import Reader, post, serving

LARGE = 200_000

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a peer has acknowledged")


async def open_pair(port: int, *sizes: int) -> tuple[Reader, str]:
    """Open a session, make the handshake, and read an answer of each size."""
    stream = await Reader.ask(port, "GET", "/sse")
    where = (await stream.event()).data.decode()
    await post(port, where, initialize())
    await stream.message()
    for number, size in enumerate(sizes):
        await post(port, where, call(number, "repeat", size=size))
        assert (await stream.message())["id"] == number
    return stream, where


async def abandon(port: int, *sizes: int) -> str:
    """Open a session, read, and vanish."""
    stream, where = await open_pair(port, *sizes)
    stream.writer.transport.abort()
    return where


def kept(listener: Http) -> int:
    """Return how many bytes of events are kept."""
    assert listener._endpoint is not None
    log = listener._endpoint._log  # type: ignore[attr-defined]
    return log._log.size if isinstance(log, MeteredEventLog) else log.size


async def settled(listener: Http, most: int) -> bool:
    """Return whether little is kept, once the server has learned who is gone."""
    for _ in range(1000):
        if kept(listener) <= most:
            return True
        await asyncio.sleep(0.005)
    return False


@on_linux
async def test_an_abandoned_pair_holds_a_few_kilobytes_whatever_it_was_told() -> None:
    count = 30
    listener = Sse(port=0)
    async with serving(listener) as port:
        for _ in range(5):
            await abandon(port, 100, LARGE)
        assert await settled(listener, 5 * SPARE_EVENTS)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            await abandon(port, 100, LARGE)
        assert await settled(listener, (5 + count) * SPARE_EVENTS)
        for _ in range(100):  # the last few, whose loss the server may not know of yet, hold what they were told
            gc.collect()
            after = tracemalloc.get_traced_memory()[0]
            if (after - before) / count < 16 * 1024:
                break
            await asyncio.sleep(0.05)
        tracemalloc.stop()
        assert listener._endpoint is not None
        assert len(listener._endpoint.sessions) == 5 + count
        assert (after - before) / count < 16 * 1024


@on_linux
async def test_a_flood_of_abandoned_pairs_is_bounded_in_count_and_in_bytes() -> None:
    """The oldest go first; a session that is read is none of them."""
    listener = Sse(port=0, sse_max_lost=10)
    async with serving(listener) as port:
        stream, where = await open_pair(port, 100)
        abandoned = [await abandon(port, LARGE) for _ in range(40)]
        assert await settled(listener, 11 * SPARE_EVENTS)
        assert listener._endpoint is not None
        assert len(listener._endpoint.sessions) == 11
        assert await post(port, abandoned[0], call(7, "add", a=1, b=2)) == 404
        assert await post(port, abandoned[-1], call(7, "add", a=1, b=2)) == 202
        assert await post(port, where, call(7, "add", a=1, b=2)) == 202
        assert (await stream.message())["id"] == 7
        stream.writer.close()


async def test_streams_opened_for_nothing_are_bounded_too() -> None:
    listener = Sse(port=0, sse_max_lost=10)
    async with serving(listener) as port:
        streams = [await Reader.ask(port, "GET", "/sse") for _ in range(30)]
        assert listener._endpoint is not None
        assert len(listener._endpoint.sessions) == 10
        *_, error, close = await streams[0].rest()
        assert (error.name, close.name) == ("error", "close")
        for stream in streams:
            stream.writer.close()


@on_linux
async def test_an_answer_that_was_on_its_way_is_kept_whatever_its_size() -> None:
    """Only what the reader's system has acknowledged is let go: a reader that was cut in the middle comes back."""
    listener = Sse(port=0, max_stream_backlog=64 * 1024 * 1024)
    size = 3_000_000
    async with serving(listener) as port:
        stream, where = await open_pair(port)
        await post(port, where, call(1, "add", a=1, b=2))
        last = (await stream.event()).id
        stream.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await post(port, where, call(2, "repeat", size=size))
        await asyncio.sleep(0.1)
        stream.writer.transport.abort()
        await asyncio.sleep(0.1)
        again = await Reader.ask(port, "GET", "/sse", last_event_id=last)
        assert again.status == 200
        await again.event()
        answer = await again.message()
        assert answer["id"] == 2
        assert len(answer["result"]["content"][0]["text"]) == size
        again.writer.close()


@on_linux
async def test_small_events_are_kept_for_who_lost_them_behind_a_proxy() -> None:
    """What a proxy has acknowledged may never have come to the client."""
    listener = Sse(port=0)
    async with serving(listener) as port:
        stream, where = await open_pair(port)
        await post(port, where, call(1, "add", a=1, b=2))
        last = (await stream.event()).id
        await post(port, where, call(2, "add", a=2, b=2))
        await post(port, where, call(3, "add", a=3, b=2))
        assert [(await stream.message())["id"] for _ in range(2)] == [2, 3]
        stream.writer.transport.abort()
        await asyncio.sleep(0.1)
        again = await Reader.ask(port, "GET", "/sse", last_event_id=last)
        await again.event()
        assert [(await again.message())["id"] for _ in range(2)] == [2, 3]
        again.writer.close()
