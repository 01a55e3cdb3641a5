"""Who gets which connection."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule.errors import ConnectFailed
from ferrule.transports.http.client.connection import HttpConnection
from ferrule.transports.http.client.dial import Dialer
from ferrule.transports.http.client.headers import RequestHeaders
from ferrule.transports.http.client.pool import ROOM, Overflow, Pool
from ferrule.transports.http.client.request import SingleExchange
from ferrule.transports.http.client.url import place
from ferrule.transports.sockets.tls import TlsSettings

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted import Seen, Site

BODY = b'{"jsonrpc":"2.0","method":"x"}'


class Bench:
    """A pool for a site, and jobs for it."""

    def __init__(self, site: Site, *, size: int = 2, extra: int = 1, waiting: int | None = None) -> None:
        here = place(site.url)
        self.heading = RequestHeaders(here, None, {})
        self.pool = Pool(Dialer(here, None, TlsSettings(), 1.0).open, size=size, max_extra=extra, max_waiting=waiting)

    def job(self, lane: Any = "usual") -> SingleExchange:
        job = SingleExchange(self.heading.post(b"", BODY), lane, 1000)
        self.pool.submit(job)
        return job


@pytest.fixture
def gate() -> asyncio.Event:
    return asyncio.Event()


def held(site: Site, gate: asyncio.Event) -> None:
    """Let the site answer when the gate is opened."""

    async def hold(seen: Seen) -> None:
        await gate.wait()
        seen.status(202)

    site.on("x", hold)


async def test_jobs_wait_for_the_kept_connections_and_urgent_ones_get_others(gate: asyncio.Event) -> None:
    async with Site() as site:
        held(site, gate)
        bench = Bench(site)
        jobs = [bench.job() for _ in range(5)]
        urgent = [bench.job("urgent") for _ in range(3)]
        await site.heard("x", 3)
        await asyncio.sleep(0.02)
        assert (site.connections, bench.pool.connections) == (3, 3)
        gate.set()
        await asyncio.gather(*(job.done for job in (*jobs, *urgent)))
        assert site.connections <= 4
        await asyncio.sleep(0.02)
        assert bench.pool.connections == 2
        bench.pool.close()


async def test_a_job_can_be_withdrawn_wherever_it_is(gate: asyncio.Event) -> None:
    async with Site() as site:
        held(site, gate)
        bench = Bench(site, size=1)
        opening = bench.job()
        bench.pool.withdraw(opening)
        await asyncio.sleep(0.02)
        assert bench.pool.connections == 0
        sent, waiting, last = bench.job(), bench.job(), bench.job()
        await site.heard("x")
        bench.pool.withdraw(waiting)
        bench.pool.withdraw(sent)
        gate.set()
        await last.done
        assert len(site.got("x")) == 2
        assert not opening.done.done()
        assert not waiting.done.done()
        bench.pool.close()


async def test_each_job_learns_that_its_own_connection_cannot_be_opened() -> None:
    async with Site() as site:
        bench = Bench(site)
        await site.stop_listening()
        jobs = [bench.job() for _ in range(5)]
        failures = await asyncio.gather(*(job.done for job in jobs), return_exceptions=True)
        assert [type(failure) for failure in failures] == [ConnectFailed] * 5
        assert bench.pool.connections == 0


async def test_no_more_may_wait_than_is_allowed(gate: asyncio.Event) -> None:
    async with Site() as site:
        held(site, gate)
        bench = Bench(site, waiting=2)
        for lane, taken in (("usual", 4), ("urgent", 3)):
            for _ in range(taken):
                bench.job(lane)
            with pytest.raises(Overflow, match=r"2 .* wait"):
                bench.job(lane)
        bench.pool.close()
        with pytest.raises(Overflow, match="closed"):
            bench.job()


async def test_who_can_wait_is_told_when_there_is_room(gate: asyncio.Event) -> None:
    async with Site() as site:
        held(site, gate)
        bench = Bench(site)
        await asyncio.wait_for(bench.pool.wait_for_room(), 0.1)
        jobs = [bench.job() for _ in range(ROOM + 5)]
        waiting = asyncio.create_task(bench.pool.wait_for_room())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        gate.set()
        await waiting
        await asyncio.gather(*(job.done for job in jobs))
        bench.pool.close()


async def test_a_connection_sees_no_context_of_whoever_asked_first() -> None:
    secret: contextvars.ContextVar[str] = contextvars.ContextVar("secret", default="none")
    seen: list[str] = []

    class Curious(SingleExchange):
        def answered(self) -> None:
            seen.append(secret.get())
            super().answered()

    async with Site() as site:
        bench = Bench(site)
        secret.set("mine")
        job = Curious(bench.heading.post(b"", BODY), "usual", 1000)
        bench.pool.submit(job)
        await job.done
        assert seen == ["none"]
        bench.pool.close()


@pytest.mark.parametrize("how", ["the server is gone", "the jobs are withdrawn"])
async def test_a_sender_that_waits_for_room_is_let_go_whatever_becomes_of_the_jobs(
    gate: asyncio.Event, how: str
) -> None:
    """GUAR-06: room that comes without an answer is room too."""
    async with Site() as site:
        held(site, gate)
        bench = Bench(site)
        jobs = [bench.job() for _ in range(ROOM + 5)]
        waiting = asyncio.create_task(bench.pool.wait_for_room())
        await site.heard("x", 2)
        assert not waiting.done()
        if how == "the jobs are withdrawn":
            for job in jobs:
                bench.pool.withdraw(job)
            await asyncio.wait_for(waiting, 60)
    await asyncio.wait_for(waiting, 60)
    if how == "the server is gone":
        await asyncio.wait([job.done for job in jobs], timeout=20)
        assert all(job.done.exception() for job in jobs)
    bench.pool.close()


class Short:
    """Opens connections while there is room for them, and says then what the system says."""

    def __init__(self, pool_of: Bench, number: int) -> None:
        self._open = pool_of.pool._open
        self.number = number
        self.room = 1
        self.refused = 0

    async def __call__(self, pool: Pool) -> HttpConnection:
        if not self.room:
            self.refused += 1
            raise ConnectFailed("cannot reach it") from OSError(self.number, "said by the system")
        self.room -= 1
        return await self._open(pool)


async def test_requests_make_do_with_the_connections_there_are_when_the_system_has_no_room_for_another(
    gate: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DSK-07: they wait their turn, without trying again and again; once there is room, more are opened."""
    monkeypatch.setattr("ferrule.transports.http.client.pool.SHORT_FOR", 600.0)
    async with Site() as site:
        held(site, gate)
        bench = Bench(site, size=3)
        short = bench.pool._open = Short(bench, errno.EADDRNOTAVAIL)
        first = bench.job()
        await site.heard("x", 1)
        jobs = [bench.job() for _ in range(10)]
        await asyncio.sleep(0.02)
        assert 1 <= short.refused <= 2
        gate.set()
        await asyncio.gather(*(job.done for job in (first, *jobs)))
        assert (site.connections, short.refused <= 2) == (1, True)
        gate.clear()
        bench.pool._short_until, short.room = 0.0, 5
        more = [bench.job() for _ in range(3)]
        await site.heard("x", 14)
        assert site.connections == 3
        gate.set()
        await asyncio.gather(*(job.done for job in more))
        bench.pool.close()


@pytest.mark.parametrize(("number", "room"), [(errno.EADDRNOTAVAIL, 0), (errno.ECONNREFUSED, 1)])
async def test_a_request_learns_why_there_is_no_connection_for_it(gate: asyncio.Event, number: int, room: int) -> None:
    """There is no other to wait for, or it is the server that does not want more."""
    async with Site() as site:
        held(site, gate)
        bench = Bench(site)
        short = bench.pool._open = Short(bench, number)
        short.room = room
        jobs = [bench.job() for _ in range(2)]
        with pytest.raises(ConnectFailed):
            await jobs[1].done
        gate.set()
        await asyncio.gather(*(job.done for job in jobs), return_exceptions=True)
        bench.pool.close()
