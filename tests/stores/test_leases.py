"""Leases as their holders see them: renewed, over before others take over, decided without waiting."""

from __future__ import annotations

import asyncio

import pytest

from ferrule.errors import StoreUnavailable
from ferrule.stores.leases import AHEAD, LEASE, LeasedBucket, NodeLease, locked
from ferrule.stores.memory_cluster import MemoryLimits, MemoryLocks, MemoryNodes
from ferrule.testing import run_in_virtual_time


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class Flaky(MemoryNodes):
    """Leases that can be out of reach."""

    away = False

    async def renew(self, node: str, about: bytes, ttl: float) -> bool:
        if self.away:
            raise StoreUnavailable("cut off")
        return await super().renew(node, about, ttl)

    async def release(self, node: str) -> None:
        if self.away:
            raise StoreUnavailable("cut off")
        await super().release(node)


def test_a_node_keeps_its_lease_for_as_long_as_it_runs() -> None:
    async def use() -> None:
        nodes = Flaky(loop_time)
        lease = NodeLease(nodes, "n1", b"here")
        assert not lease.held
        await lease.start()
        for _ in range(20):
            await asyncio.sleep(5)
            assert lease.held
            assert await nodes.find("n1") == b"here"
        await lease.stop()
        assert not lease.held
        assert await nodes.find("n1") is None

    run_in_virtual_time(use())


def test_a_node_that_is_cut_off_knows_before_others_take_over() -> None:
    """Its lease is over for itself after 7 s of the 10 it has for the others, whatever it hears."""

    async def use() -> None:
        nodes = Flaky(loop_time)
        lapses: list[float] = []
        lease = NodeLease(nodes, "n1", lapsed=lambda: lapses.append(loop_time()))
        await lease.start()
        await asyncio.sleep(0.3 * LEASE + 0.1)
        nodes.away = True
        cut = loop_time()
        while lease.held:
            assert await nodes.find("n1") is not None, "others may take over while the node still serves"
            await asyncio.sleep(0.1)
        assert loop_time() - cut <= 7.1
        await asyncio.sleep(20)
        assert len(lapses) == 1
        assert await nodes.find("n1") is None
        nodes.away = False
        await asyncio.sleep(3.1)
        assert lease.held
        assert len(lapses) == 1
        await lease.stop()

    run_in_virtual_time(use())


def test_a_node_hears_that_its_lease_was_over_though_it_renewed_it_in_time() -> None:
    """The store lost its memory: others may have claimed what was this node's."""

    async def use() -> None:
        nodes = Flaky(loop_time)
        lapses: list[float] = []
        lease = NodeLease(nodes, "n1", lapsed=lambda: lapses.append(loop_time()))
        await lease.start()
        await nodes.release("n1")
        await asyncio.sleep(3.1)
        assert (len(lapses), lease.held) == (1, True)
        await lease.stop()

    run_in_virtual_time(use())


def test_a_node_begins_without_its_store_and_can_stop_without_it() -> None:
    async def use() -> None:
        nodes = Flaky(loop_time)
        nodes.away = True
        lease = NodeLease(nodes, "n1")
        await lease.start()
        assert not lease.held
        await lease.stop()
        assert await nodes.living() == {}

    run_in_virtual_time(use())


@pytest.mark.parametrize("nodes", [1, 10])
def test_nodes_together_keep_a_limit(nodes: int) -> None:
    """A limit of 100 a second is kept within 10 % by ten nodes that each decide by themselves (runtime design, §5)."""

    async def use() -> None:
        limits = MemoryLimits(loop_time)
        rate, burst, seconds = 100.0, 100.0, 20.0
        buckets = [LeasedBucket(limits, "x", rate, burst, nodes=nodes, clock=loop_time) for _ in range(nodes)]
        granted = 0
        for _ in range(int(seconds * 100)):
            for bucket in buckets:
                for _ in range(3):
                    granted += bucket.take()
            await asyncio.sleep(0.01)
        for bucket in buckets:
            await bucket.close()
        most = rate * seconds + burst
        assert most * 0.9 <= granted <= most * 1.1
        # What was spent before it was granted is paid back, or still owed.
        owed = sum(bucket._owed for bucket in buckets)
        assert granted <= most + owed + nodes

    run_in_virtual_time(use())


class NoLimits(MemoryLimits):
    away = True

    async def lease(self, name: str, rate: float, burst: float, wanted: float) -> float:
        if self.away:
            raise StoreUnavailable("cut off")
        return await super().lease(name, rate, burst, wanted)


def test_without_the_store_a_node_has_its_part_of_the_rate() -> None:
    async def use() -> None:
        limits = NoLimits(loop_time)
        bucket = LeasedBucket(limits, "x", 100.0, 100.0, nodes=4, clock=loop_time)
        granted = 0
        for _ in range(1000):
            granted += bucket.take()
            await asyncio.sleep(0.01)
        assert 250 * 0.9 <= granted <= 250 * 1.1 + 100 * AHEAD
        limits.away = False
        for _ in range(1000):
            granted += bucket.take()
            await asyncio.sleep(0.01)
        assert granted >= 250 + 900
        await bucket.close()

    run_in_virtual_time(use())


def test_a_lock_is_held_while_the_body_runs_and_then_no_more() -> None:
    async def use() -> None:
        locks = MemoryLocks(loop_time)
        async with locked(locks, "refresh", 3.0) as token:
            assert token is not None
            for _ in range(10):
                await asyncio.sleep(2)
                async with locked(locks, "refresh") as another:
                    assert another is None
        assert await locks.acquire("refresh", 1.0) is not None

    run_in_virtual_time(use())
