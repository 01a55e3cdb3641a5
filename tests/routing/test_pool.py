"""Several connections to one server: how many there are, who gets which, and who is let go."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tcp_desk import Notes, Run, make_app, serving, until

from ferrule import Client
from ferrule.errors import CarrierError, ConnectFailed, SetupError
from ferrule.routing.pool import Pool, PoolSettings
from ferrule.testing import run_in_virtual_time
from ferrule.transports.tcp.listener import Tcp
from ferrule.transports.tcp.transport import TcpTransport


@asynccontextmanager
async def pooled(listener: Tcp, **settings: Any) -> AsyncIterator[Pool[TcpTransport]]:
    """Serve, and pool connections to it."""
    chance = settings.pop("chance", lambda: 0.5)

    async def opened() -> TcpTransport:
        transport = TcpTransport(f"tcp://127.0.0.1:{listener.address[1]}")
        await transport.connect(Notes())
        return transport

    async def healthy(transport: TcpTransport) -> bool:
        return transport.connected

    async with serving(make_app(init_timeout=None, keepalive_interval=None), listener):
        pool = Pool(opened, TcpTransport.close, healthy, PoolSettings(**settings), chance=chance)
        await pool.start()
        try:
            yield pool
        finally:
            await pool.close()


async def use(pool: Pool[Any], times: int) -> Counter[Any]:
    """Use connections one after the other, and count how often each was lent."""
    lent: Counter[Any] = Counter()
    for _ in range(times):
        async with pool.connection() as connection:
            lent[connection] += 1
    return lent


def test_tcpt_20_a_pool_has_these_defaults() -> None:
    """TCPT-20."""
    settings = PoolSettings()
    assert (settings.min_size, settings.max_size, settings.strategy) == (10, 1000, "round_robin")
    assert (settings.checkout_timeout, settings.health_interval) == (5.0, 5.0)


def test_tcpt_20_round_robin_lends_each_in_turn(run: Run) -> None:
    """TCPT-20."""

    async def test() -> None:
        async with pooled(Tcp(port=0), min_size=5) as pool:
            assert sorted((await use(pool, 50)).values()) == [10] * 5

    run(test())


def test_tcpt_20_least_loaded_lends_the_one_with_the_fewest_users(run: Run) -> None:
    """TCPT-20. Of several with equally few, any."""
    settings: dict[str, Any] = {"strategy": "least_loaded", "chance": random.Random(7).random}

    async def test() -> None:
        async with pooled(Tcp(port=0), min_size=3, max_size=3, max_load=10, **settings) as pool:
            async with AsyncExitStack() as held:
                lent = Counter([await held.enter_async_context(pool.connection()) for _ in range(9)])
                assert sorted(lent.values()) == [3, 3, 3]
            assert min((await use(pool, 60)).values()) >= 10

    run(test())


def test_tcpt_20_random_lends_by_chance(run: Run) -> None:
    """TCPT-20."""
    chances = iter([0.0, 0.99, 0.5, 0.34, 0.0, 0.67] * 2)

    async def test() -> None:
        settings: dict[str, Any] = {"min_size": 3, "strategy": "random", "chance": lambda: next(chances)}
        async with pooled(Tcp(port=0), **settings) as pool:
            assert sorted((await use(pool, 12)).values()) == [4, 4, 4]

    run(test())


def test_limt_07_a_pool_grows_with_its_users_and_shrinks_when_they_are_gone() -> None:
    """LIMT-07."""

    async def test() -> None:
        listener = Tcp(port=0)
        async with pooled(listener, min_size=2, max_size=8, idle_time=60) as pool:
            assert pool.state.size == 2
            async with AsyncExitStack() as held:
                for _ in range(8):
                    await held.enter_async_context(pool.connection())
                assert (pool.state.size, pool.state.in_use) == (8, 8)
            await asyncio.sleep(50)
            assert pool.state.size == 8
            await asyncio.sleep(30)
            assert (pool.state.size, pool.state.in_use, pool.state.closed) == (2, 0, 6)
            assert listener.occupancy.current == 2

    run_in_virtual_time(test())


def test_limt_09_without_a_free_connection_one_waits_and_then_is_told() -> None:
    """LIMT-09: lending and its time-out."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with pooled(Tcp(port=0), min_size=0, max_size=1) as pool:
            async with pool.connection():
                began = loop.time()
                with pytest.raises(ConnectFailed, match="became free within 5 s"):
                    async with pool.connection():
                        pass
                assert loop.time() - began == pytest.approx(5, abs=0.01)
                late = asyncio.ensure_future(use(pool, 1))
                await asyncio.sleep(1)
                assert pool.state.waiting == 1
            assert sum((await late).values()) == 1

    run_in_virtual_time(test())


def test_limt_09_a_connection_that_was_lost_is_replaced() -> None:
    """LIMT-09: health, every five seconds, and what is counted."""

    async def test() -> None:
        listener = Tcp(port=0)
        async with pooled(listener, min_size=3) as pool:
            await until(lambda: listener.occupancy.current == 3)
            next(iter(listener._reception.served)).abort()
            await asyncio.sleep(6)
            assert (pool.state.size, pool.state.opened, pool.state.closed) == (3, 4, 1)
            assert len(await use(pool, 9)) == 3

    run_in_virtual_time(test())


def test_a_server_that_is_away_is_no_end_of_the_pool(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        attempts: list[int] = []

        async def opened() -> int:
            attempts.append(1)
            if 2 < len(attempts) < 6:
                raise ConnectFailed("away")
            return len(attempts)

        async def closed(_: int) -> None:
            raise RuntimeError("on purpose")

        async def healthy(connection: int) -> bool:
            if connection <= 2:
                raise CarrierError("lost")
            return True

        pool = Pool(opened, closed, healthy, PoolSettings(min_size=2))
        await pool.start()
        await asyncio.sleep(30)
        assert pool.state.size == 2
        await pool.close()
        assert pool.state.size == 0

    run_in_virtual_time(test())
    assert "could not be filled: away" in caplog.text


def test_limt_09_the_bounds_can_be_changed(run: Run) -> None:
    """LIMT-09, LIMT-07: resizing."""

    async def test() -> None:
        async with pooled(Tcp(port=0), min_size=2, max_size=10) as pool:
            await pool.resize(5, 10)
            assert pool.state.size == 5
            await pool.resize(1, 3)
            assert pool.state.size == 3
            with pytest.raises(SetupError, match="min"):
                await pool.resize(5, 3)

    run(test())


def test_a_pool_that_cannot_be_filled_leaves_nothing_open(run: Run) -> None:
    async def test() -> None:
        listener = Tcp(port=0, max_connections=3)
        before = asyncio.all_tasks()
        opened: list[TcpTransport] = []

        async def open_or_fail() -> TcpTransport:
            if len(opened) == 2:
                raise ConnectFailed("no more")
            transport = TcpTransport(f"tcp://127.0.0.1:{listener.address[1]}")
            opened.append(transport)
            await transport.connect(Notes())
            return transport

        async def healthy(transport: TcpTransport) -> bool:
            return transport.connected

        async with serving(make_app(), listener):
            pool = Pool(open_or_fail, TcpTransport.close, healthy, PoolSettings(min_size=3))
            with pytest.raises(ConnectFailed, match="no more"):
                await pool.start()
            await until(lambda: listener.occupancy.current == 0)
            with pytest.raises(CarrierError, match="the pool is closed"):
                await use(pool, 1)
        assert asyncio.all_tasks() == before

    run(test())


def test_whole_clients_can_be_pooled(run: Run) -> None:
    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):

            async def opened() -> Client:
                client = Client(f"tcp://127.0.0.1:{listener.address[1]}")
                await client.connect()
                return client

            async def healthy(client: Client) -> bool:
                await client.ping()
                return True

            pool = Pool(opened, Client.close, healthy, PoolSettings(min_size=2, max_size=4))
            await pool.start()

            async def add(number: int) -> int:
                async with pool.connection() as client:
                    return (await client.call_tool("add", {"a": number, "b": 1})).data

            assert await asyncio.gather(*map(add, range(40))) == list(range(1, 41))
            assert 2 <= pool.state.size <= 4
            await pool.tend()
            await pool.close()

    run(test())


@pytest.mark.parametrize(
    "options", [{"min_size": 5, "max_size": 4}, {"max_size": 0, "min_size": 0}, {"strategy": "best"}, {"max_load": 0}]
)
def test_bounds_nothing_could_work_with_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SetupError):
        PoolSettings(**options)


class Counted:
    """Opens numbers, slowly, and knows which are open."""

    def __init__(self) -> None:
        self.opened = 0
        self.open: list[int] = []
        self.fails_at = 0

    async def begin(self) -> int:
        self.opened += 1
        number = self.opened
        if number == self.fails_at:
            raise ConnectFailed("nobody is there")
        await asyncio.sleep(1)
        self.open.append(number)
        return number

    async def end(self, number: int) -> None:
        await asyncio.sleep(1)
        self.open.remove(number)

    async def healthy(self, number: int) -> bool:
        await asyncio.sleep(1)
        return True


def test_limt_09_a_pool_that_is_looked_after_and_resized_at_once_lets_nobody_go_twice() -> None:
    """LIMT-09."""

    async def test() -> None:
        counted = Counted()
        pool = Pool(counted.begin, counted.end, counted.healthy, PoolSettings(min_size=6, max_size=20))
        await pool.start()
        await asyncio.gather(pool.tend(), pool.resize(1, 2), pool.tend())
        assert (pool.state.size, pool.state.closed, len(counted.open)) == (2, 4, 2)
        await pool.close()
        assert counted.open == []

    run_in_virtual_time(test())


def test_a_pool_that_cannot_start_leaves_nothing_under_way() -> None:
    async def test() -> None:
        counted, before = Counted(), asyncio.all_tasks()
        counted.fails_at = 2
        pool = Pool(counted.begin, counted.end, counted.healthy, PoolSettings(min_size=3))
        with pytest.raises(ConnectFailed, match="nobody is there"):
            await pool.start()
        assert (asyncio.all_tasks() - before, counted.open) == (set(), [])
        with pytest.raises(CarrierError, match="the pool is closed: make a new one"):
            await pool.start()

    run_in_virtual_time(test())


@pytest.mark.parametrize("unwell", [False, True], ids=["well", "unwell"])
def test_limt_09_a_connection_in_use_is_let_go_by_nobody_until_it_is_given_back(unwell: bool) -> None:
    """LIMT-09: not for being one too many, unused for long, or unwell; each of which ends it once it is given back."""

    async def test() -> None:
        counted = Counted()
        looked_at: list[int] = []

        async def healthy(number: int) -> bool:
            looked_at.append(number)
            return not unwell

        settings = PoolSettings(min_size=0, max_size=10, idle_time=60.0, health_interval=1e6)
        pool = Pool(counted.begin, counted.end, healthy, settings)
        await pool.start()
        async with AsyncExitStack() as held:
            lent = [await held.enter_async_context(pool.connection()) for _ in range(3)]
            await asyncio.sleep(1000)
            await pool.tend()
            await pool.resize(0, 1)
            await pool.tend()
            assert (sorted(counted.open), pool.state.size, pool.state.in_use) == (sorted(lent), 3, 3)
            assert looked_at == []
            with pytest.raises(ConnectFailed):
                async with pool.connection():
                    pass
        assert sorted(counted.open) == sorted(lent)
        await pool.tend()
        assert len(counted.open) == pool.state.size == (0 if unwell else 1)
        await pool.close()

    run_in_virtual_time(test())


def test_limt_09_one_that_is_lent_while_the_others_are_looked_after_is_not_let_go() -> None:
    """LIMT-09: the first is found well long before the last, and may be lent meanwhile."""

    async def test() -> None:
        counted = Counted()

        async def healthy(number: int) -> bool:
            await asyncio.sleep(number)
            return True

        settings = PoolSettings(min_size=3, max_size=3, health_interval=1e6)
        pool = Pool(counted.begin, counted.end, healthy, settings)
        await pool.start()
        resizing = asyncio.ensure_future(pool.resize(0, 1))
        await asyncio.sleep(1.5)
        async with pool.connection() as lent:
            await resizing
            assert counted.open == [lent]
        await pool.close()

    run_in_virtual_time(test())


def test_limt_09_whoever_waited_in_vain_or_was_cancelled_is_counted_no_more() -> None:
    """LIMT-09: a pool that stays busy for days does not gather those who gave up."""

    async def test() -> None:
        counted = Counted()
        pool = Pool(counted.begin, counted.end, counted.healthy, PoolSettings(min_size=0, max_size=1))
        await pool.start()
        async with pool.connection():
            late = [asyncio.ensure_future(use(pool, 1)) for _ in range(20)]
            await asyncio.sleep(1)
            assert pool.state.waiting == 20
            late[0].cancel()
            await asyncio.sleep(0)
            assert pool.state.waiting == 19
            outcomes = await asyncio.gather(*late, return_exceptions=True)
            assert [type(each) for each in outcomes[1:]] == [ConnectFailed] * 19
            assert pool.state.waiting == 0
            assert pool._waiters == []
        await pool.close()

    run_in_virtual_time(test())
