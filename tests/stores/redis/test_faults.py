"""Redis fails in every way it can: local work goes on, callers soon hear of it, and all is well when it is back."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
import pytest
from pace import prompt
from redis.exceptions import NoPermissionError, ResponseError
from redis_server import RedisServer, needs_redis

from ferrule.errors import SetupError, StoreUnavailable
from ferrule.stores.contracts import Notice, SessionRecord, StoredTask
from ferrule.stores.records import VERSION, encode_session
from ferrule.stores.redis.backend import RedisBackend
from ferrule.stores.redis.cluster import TOKENS_KEPT
from ferrule.stores.redis.connection import RedisAway
from ferrule.stores.redis.lane import DEADLINE, MOST_WAITING, MOST_WAITING_BYTES
from ferrule.stores.stores import Stores

LATE = 0.6
"""Seconds within which what is awaited fails."""
BACK = 2.0
"""Seconds within which Redis is used again."""
MIB = 1024 * 1024


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def record(name: str = "s1", owner: str = "n1") -> SessionRecord:
    return SessionRecord(id=name, revision="2025-11-25", owner=owner)


async def until(holds: Callable[[], bool | Awaitable[bool]], within: float = 15.0) -> float:
    """Wait until something holds. Return how long that took."""
    began = time.monotonic()
    while True:
        found = holds()
        if not isinstance(found, bool):
            found = await found
        if found:
            return time.monotonic() - began
        assert time.monotonic() - began < within, "it did not come to hold"
        await asyncio.sleep(0.02)


async def fails(stores: Stores) -> float:
    """Read a session in vain. Return how long that took."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await stores.sessions.get("s1")
    return time.monotonic() - began


async def works(stores: Stores) -> bool:
    try:
        await stores.sessions.get("s1")
    except StoreUnavailable:
        return False
    return stores.backend.state == "ready"


def test_clu_01_a_node_starts_without_redis_and_uses_it_when_it_appears(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis.kill()

    async def use() -> float:
        async with Stores.redis(redis.url) as stores:
            await fails(stores)
            await until(lambda: stores.backend.state == "degraded")
            assert stores.backend.why
            heard: list[Notice] = []
            stores.bus.subscribe("tools", heard.append)
            stores.events.append("ann.1", 1, b"said", 0.0)
            assert await stores.events.after("ann.1", 0) == [b"said"]
            redis.start()
            took = await until(lambda: works(stores))
            assert (await stores.sessions.create(record())) is not None

            def is_heard() -> bool:
                stores.bus.publish("tools", b"now")
                return bool(heard)

            await until(is_heard)
            return took

    assert run(use()) <= prompt(BACK)
    assert "begins without it" in caplog.text


def test_a_server_that_needs_redis_does_not_start_without_it(redis: RedisServer) -> None:
    redis.kill()

    async def use() -> None:
        with pytest.raises(StoreUnavailable):
            await Stores.redis(redis.url, required=True).open()

    run(use())


def test_a_killed_redis_fails_what_is_awaited_and_keeps_what_is_written_behind(redis: RedisServer) -> None:
    """The part of the store in serving on: cluster calls fail in 0.6 s, and events can be read here all the time."""

    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            await stores.sessions.create(record())
            stores.events.append("ann.1", 1, b"1", 0.0)
            assert await stores.events.after("ann.1", 0) == [b"1"]
            redis.kill()
            for _ in range(5):
                assert await fails(stores) <= prompt(LATE)
            await until(lambda: stores.backend.state == "degraded")
            began = time.process_time()
            for _ in range(100):
                await fails(stores)
            assert time.process_time() - began < 1.0
            for number in range(2, 50):
                stores.events.append("ann.1", number, b"%d" % number, 0.0)
            assert await stores.events.after("ann.1", 40) == [b"%d" % number for number in range(41, 50)]
            redis.start()
            assert await until(lambda: works(stores)) <= prompt(BACK)
            # It is empty: the session is gone, and what was written behind meanwhile is there for others.
            assert await stores.sessions.get("s1") is None
            async with Stores.redis(redis.url) as another:
                await until(lambda: _is(another.events.after("ann.1", 1), [b"%d" % n for n in range(2, 50)]))

    run(use())


async def _is(found: Awaitable[Any], wanted: Any) -> bool:
    return bool(await found == wanted)


def test_a_redis_that_was_restarted_between_two_commands_is_not_noticed(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            await stores.values.put("a", b"1")
            redis.kill()
            redis.start()
            await asyncio.sleep(0.05)
            await stores.values.put("a", b"2")
            assert await stores.values.get("a") == b"2"

    run(use())


def test_clu_03_a_frozen_redis_costs_half_a_second_three_times_and_then_nothing(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            assert await works(stores)
            redis.pause()
            for _ in range(3):
                assert DEADLINE * 0.8 <= await fails(stores) <= prompt(LATE)
            assert stores.backend.state == "degraded"
            began = time.process_time()
            for _ in range(100):
                await fails(stores)
            assert time.process_time() - began < 1.0
            redis.resume()
            assert await until(lambda: works(stores)) <= prompt(BACK)

    run(use())


def test_who_waits_behind_a_frozen_batch_waits_no_longer_than_it(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            redis.pause()
            waiting = [asyncio.ensure_future(fails(stores))]
            await asyncio.sleep(DEADLINE / 2)
            waiting += [asyncio.ensure_future(fails(stores)) for _ in range(100)]
            took = await asyncio.gather(*waiting)
            assert max(took) <= prompt(LATE)
            # Theirs was not sent in vain after the first.
            assert stores.backend.stats.failures == 1
            redis.resume()

    run(use())


def test_clu_04_a_slow_redis_piles_up_no_more_than_its_bounds(redis: RedisServer) -> None:
    """What is over is dropped, the oldest first, and counted."""

    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            assert await works(stores)
            redis.pause()
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            body = b"x" * 4096
            for number in range(30_000):
                stores.bus.publish("tools", body)
                if number % 100 == 0:
                    stores.sessions.touch(record(f"s{number}"))
                    await asyncio.sleep(0)
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            stats = stores.backend.stats
            assert stats.waiting <= 2 * MOST_WAITING
            assert stats.dropped > 20_000
            assert grown <= 16 * MIB
            redis.resume()
            assert await until(lambda: works(stores)) <= prompt(BACK)
            await until(lambda: stores.backend.stats.waiting == 0)
            assert stores.backend.stats.connections <= 50

    run(use())


def test_clu_05_a_failover_to_a_replica_is_survived(redis: RedisServer) -> None:
    """The old primary becomes a replica, which is read-only, while the new one takes over."""

    async def use() -> None:
        with RedisServer("--replicaof", "127.0.0.1", str(redis.port)) as second:
            async with Stores.redis([redis.url, second.url]) as stores:
                await stores.sessions.create(record())
                await until(lambda: second.command("EXISTS", "f:ferrule:s:{s1}") == 1)
                second.command("REPLICAOF", "NO", "ONE")
                redis.command("REPLICAOF", "127.0.0.1", str(second.port))
                began = time.monotonic()

                async def moved() -> bool:
                    try:
                        await stores.values.put("a", b"1")
                    except StoreUnavailable:
                        return False
                    return True

                await until(moved)
                assert time.monotonic() - began <= prompt(BACK)
                assert second.command("EXISTS", "f:ferrule:v:a") == 1
                assert (await stores.sessions.get("s1")) is not None
                redis.command("REPLICAOF", "NO", "ONE")

    run(use())


def test_a_redis_that_takes_no_writes_for_want_of_replicas_is_not_asked_without_a_pause(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It answers, so that each try seemed to be the first that failed: over a thousand connections a second."""

    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            redis.command("CONFIG", "SET", "min-replicas-to-write", "1")
            stores.events.append("ann.1", 1, b"1", 0.0)
            await until(lambda: stores.backend.state == "degraded")
            assert "NOREPLICAS" in stores.backend.why
            before = stores.backend.stats.connections
            await asyncio.sleep(1.5)
            assert stores.backend.stats.connections - before <= 10
            redis.command("CONFIG", "SET", "min-replicas-to-write", "0")
            assert await until(lambda: works(stores)) <= prompt(BACK)
            async with Stores.redis(redis.url) as another:
                await until(lambda: _is(another.events.after("ann.1", 0), [b"1"]))

    run(use())
    # Some versions of Redis say the reason twice in one error.
    assert caplog.text.count("Redis is away") == 1
    assert "NOREPLICAS" in caplog.text


def test_a_redis_that_cannot_take_scripts_yet_is_tried_again_soon(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it loads its data, or runs a long script, nobody has to act; the pause between two tries does not grow."""
    replies: list[Exception] = []

    async def refused(connection: object, commands: list[object]) -> list[Exception]:
        return replies

    async def use() -> bool:
        stores = Stores.redis(redis.url)
        assert isinstance(stores.backend, RedisBackend)
        with pytest.raises(RedisAway) as away:
            await stores.backend.connect()
        return away.value.lasting

    monkeypatch.setattr("ferrule.stores.redis.backend.exchange", refused)
    for word in ("LOADING", "BUSY", "MASTERDOWN"):
        replies[:] = [ResponseError(f"{word} not now")]
        assert not run(use())
    replies[:] = [NoPermissionError("this user has no permissions to run the 'script|load' command")]
    assert run(use())


def test_clu_06_a_full_redis_refuses_and_keeps_no_half_of_anything(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            kept = await stores.sessions.create(record("before"))
            redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
            redis.command("CONFIG", "SET", "maxmemory", "1")
            try:
                for write in (
                    stores.sessions.create(record()),
                    stores.values.put("a", b"1"),
                    stores.values.add("b", b"1"),
                    stores.tasks.create(task("t1"), 1.0),
                    stores.locks.acquire("l", 5.0),
                ):
                    with pytest.raises(StoreUnavailable, match="full"):
                        await write
                stores.events.append("ann.1", 1, b"1", 0.0)
                assert await stores.sessions.get("before") == kept
                assert stores.backend.state == "ready"
                assert stores.backend.stats.refused >= 1
            finally:
                redis.command("CONFIG", "SET", "maxmemory", "0")
            assert redis.command("KEYS", "f:ferrule:[svtlo]:*") == [b"f:ferrule:s:{before}"]
            # Evicted is the same as expired.
            redis.command("DEL", "f:ferrule:s:{before}")
            assert kept is not None
            assert await stores.sessions.get("before") is None
            assert not await stores.sessions.save(kept)
            assert await stores.sessions.create(record()) is not None

    run(use())


def task(name: str, owner: str = "ann") -> StoredTask:
    return StoredTask(id=name, owner=owner, tool="t", created=1.0, updated=1.0, ttl=600.0, poll_interval=1.0)


def test_clu_07_an_inbox_that_overflows_or_is_lost_is_noticed(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            heard: list[bytes] = []
            misses: list[float] = []
            stores.bus.subscribe("tools", lambda notice: heard.append(notice.body), lambda: misses.append(0))
            stores.bus.publish("tools", b"first")
            await until(lambda: b"first" in heard)
            began = len(misses)
            # One command that brings more than an inbox holds, so that nothing can be read in between.
            redis.command(
                "EVAL",
                "for i = 1, 3000 do local n = redis.call('INCR', KEYS[1] .. ':n')"
                " redis.call('XADD', KEYS[1], 'MAXLEN', 1000, '*', 'n', n, 't', 'tools', 'b', i, 'f', 'x') end",
                1,
                f"f:ferrule:in:{stores.bus.node}",
            )
            await until(lambda: b"3000" in heard)
            assert len(misses) == began + 1
            assert heard[-1000:] == [b"%d" % number for number in range(2001, 3001)]
            redis.command("FLUSHALL")
            await until(lambda: len(misses) > began + 1)
            stores.bus.publish("tools", b"after")
            await until(lambda: b"after" in heard)

    run(use())


def test_clu_07_notices_that_a_sender_had_to_drop_are_missed_by_everybody(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as sender, Stores.redis(redis.url) as other:
            heard: list[bytes] = []
            misses: list[float] = []
            other.bus.subscribe("tools", lambda notice: heard.append(notice.body), lambda: misses.append(0))

            def is_heard() -> bool:
                sender.bus.publish("tools", b"first")
                return bool(heard)

            await until(is_heard)
            before = len(misses)
            for _ in range(3 * MOST_WAITING):
                sender.bus.publish("tools", b"one of many")
            assert sender.backend.stats.dropped > 0
            await until(lambda: len(misses) > before)

    run(use())


def test_an_error_nobody_thought_of_ends_a_batch_and_not_the_lane(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            with monkeypatch.context() as patch:
                patch.setattr("ferrule.stores.redis.lane.read_replies", None)
                for _ in range(4):
                    await fails(stores)
            await until(lambda: works(stores))

    run(use())


def test_a_node_that_has_no_subscribers_left_is_sent_nothing(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            first = stores.bus.subscribe("tools", lambda _: None)
            second = stores.bus.subscribe("tools", lambda _: None)
            await until(lambda: redis.command("SCARD", "f:ferrule:sub:tools") == 1)
            first.close()
            first.close()
            stores.bus.publish("tools", b"1")
            await until(lambda: redis.command("GET", f"f:ferrule:in:{stores.bus.node}:n") == b"1")
            second.close()
            await until(lambda: redis.command("SCARD", "f:ferrule:sub:tools") == 0)

    run(use())


def test_a_reader_that_was_cut_off_has_missed_nothing(redis: RedisServer) -> None:
    """CLU-07: notices wait in the inbox."""

    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            heard: list[bytes] = []
            misses: list[float] = []
            stores.bus.subscribe("tools", lambda notice: heard.append(notice.body), lambda: misses.append(0))
            stores.bus.publish("tools", b"0")
            await until(lambda: bool(heard))
            began = len(misses)
            for number in range(1, 200):
                if number in (50, 100):
                    redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                stores.bus.publish("tools", b"%d" % number)
                await asyncio.sleep(0.001)
            await until(lambda: b"199" in heard)
            assert sorted(set(heard), key=int) == [b"%d" % number for number in range(200)]
            assert len(misses) == began

    run(use())


POISON: list[tuple[str, tuple[Any, ...]]] = [
    ("wrong type", ("LPUSH", "KEY", "x")),
    ("wrong field", ("HSET", "KEY", "r", b"\x80\x04\x95pickled")),
    ("truncated", ("HSET", "KEY", "r", encode_session(record())[:-3], "o", "n1", "e", "1", "c", "1", "s", "1")),
    ("other version", ("HSET", "KEY", "r", b"\x7f" + encode_session(record())[1:], "o", "n1", "e", "1")),
    ("no epoch", ("HSET", "KEY", "r", encode_session(record()), "o", "n1", "e", "one", "c", "1", "s", "1")),
]


@pytest.mark.parametrize("poison", POISON, ids=lambda poison: poison[0])
def test_clu_11_what_is_not_ours_is_refused_and_set_aside(
    redis: RedisServer, poison: tuple[str, tuple[Any, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    secret = "session-id-nobody-may-read"

    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            key = f"f:ferrule:s:{{{secret}}}"
            redis.command(*[key if word == "KEY" else word for word in poison[1]])
            assert await stores.sessions.get(secret) is None
            assert redis.command("EXISTS", key) == 0
            (aside,) = redis.command("KEYS", "f:ferrule:bad:*")
            assert 0 < redis.command("PTTL", aside) <= 86_400_000
            assert stores.backend.stats.set_aside == 1
            assert await stores.sessions.create(record(secret)) is not None

    run(use())
    assert "set aside" in caplog.text
    assert secret not in caplog.text


def test_clu_11_a_value_of_100_mib_is_not_even_read(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            redis.command("SETRANGE", "f:ferrule:v:a", 100 * MIB - 1, "x")
            tracemalloc.start()
            assert await stores.values.get("a") is None
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < MIB
            assert stores.backend.stats.set_aside == 1
            await stores.values.put("a", b"1")
            assert await stores.values.get("a") == b"1"
            # The same for a field of a hash.
            redis.command("HSET", "f:ferrule:s:{s1}", "r", VERSION + b"x" * 17 * MIB, "o", "n1", "e", "1")
            tracemalloc.start()
            assert await stores.sessions.get("s1") is None
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < MIB
            assert stores.backend.stats.set_aside == 2

    run(use())


def test_clu_11_wrong_types_are_in_nobodys_way(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            for kind in ("t:t1", "e:{ann.1}", "l:x", "n:n1", "nodes:", "r:server", "rn:server", "k:lock"):
                redis.command("SET", f"f:ferrule:{kind}", "x")
            redis.command("HSET", "f:ferrule:v:a", "x", "y")
            redis.command("HSET", "f:ferrule:v:b", "x", "y")
            assert await stores.values.get("a") is None
            assert await stores.values.take("b") is None
            assert await stores.values.add("b", b"ours")
            assert await stores.tasks.get("t1", 1.0) is None
            await stores.tasks.create(task("t1"), 1.0)
            (index,) = redis.command("KEYS", "f:ferrule:o:*")
            redis.command("SET", index, "x")
            assert await stores.tasks.page(task("t1").owner, None, 10, 1.0) == []
            assert redis.command("EXISTS", index) == 0
            assert await stores.events.after("ann.1", 0) is None
            assert await stores.limits.lease("x", 1.0, 5.0, 3.0) == 3.0
            await stores.nodes.renew("n1", b"one", 60.0)
            assert await stores.nodes.living() == {"n1": b"one"}
            assert await stores.directory.entries("server") == {}
            assert stores.backend.state == "ready"

    run(use())


def test_clu_12_a_wrong_password_is_a_clear_state_without_a_storm(caplog: pytest.LogCaptureFixture) -> None:
    needs_redis()
    caplog.set_level(logging.DEBUG)

    async def use() -> None:
        with RedisServer("--requirepass", "right-secret") as server:
            async with Stores.redis(f"redis://:wrong-secret@127.0.0.1:{server.port}") as stores:
                for _ in range(200):
                    await fails(stores)
                assert stores.backend.state == "degraded"
                assert "credentials" in stores.backend.why
                assert "secret" not in repr(stores) + stores.backend.why
                await asyncio.sleep(1.2)
            async with Stores.redis(f"redis://:right-secret@127.0.0.1:{server.port}") as stores:
                assert await works(stores)
                import redis

                client = redis.Redis(port=server.port, password="right-secret")
                opened = client.info("stats")["total_connections_received"]
                client.close()
                assert opened < 25

    run(use())
    assert "credentials" in caplog.text
    assert "-secret" not in caplog.text


def test_clu_12_a_command_that_an_account_may_not_run_is_named(redis: RedisServer) -> None:
    redis.command("ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-set")

    async def use() -> None:
        async with Stores.redis(f"redis://weak:pw@127.0.0.1:{redis.port}") as stores:
            with pytest.raises(StoreUnavailable, match="not allowed"):
                await stores.values.put("a", b"1")
            assert await stores.sessions.create(record()) is not None
            assert stores.backend.state == "ready"

    run(use())


@pytest.mark.parametrize("url", ["http://u:hidden@h", "redis://:hidden@h:notaport", "", "redis//x"])
def test_an_address_that_is_none_is_said_without_its_password(url: str) -> None:
    needs_redis()
    with pytest.raises(SetupError, match="write redis://") as wrong:
        Stores.redis(url)
    assert "hidden" not in str(wrong.value)


COPY = """
for i = ARGV[1], ARGV[2] do
  local key = 'f:ferrule:s:{s' .. string.format('%.0f', i) .. '}'
  if ARGV[3] == 'copy' then redis.call('COPY', KEYS[1], key) else redis.call('PEXPIRE', key, 500) end
end
"""
"""Copies a session many times, as if many clients had created it; then lets all of them expire."""


def test_clu_13_a_hundred_thousand_sessions_expire_and_nobody_waits(redis: RedisServer) -> None:
    """Nothing reads all keys, and a bystander waits for Redis no longer than 100 ms of its time."""

    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            await stores.sessions.create(record("pattern"))
            for first in range(0, 100_000, 10_000):
                redis.command("EVAL", COPY, 1, "f:ferrule:s:{pattern}", first, first + 9999, "copy")
            assert redis.command("DBSIZE") > 100_000
            redis.command("CONFIG", "RESETSTAT")
            redis.command("CONFIG", "SET", "slowlog-log-slower-than", "100000")
            redis.command("SLOWLOG", "RESET")
            for first in range(0, 100_000, 10_000):
                redis.command("EVAL", COPY, 1, "f:ferrule:s:{pattern}", first, first + 9999, "expire")
            redis.command("SLOWLOG", "RESET")
            await stores.sessions.expire()

            async def expired() -> bool:
                assert await stores.sessions.get("pattern") is not None
                return bool(redis.command("DBSIZE") < 100)

            await until(expired)
            assert await stores.sessions.get("s99999") is None
            assert redis.command("SLOWLOG", "LEN") == 0
            stats = redis.command("INFO", "commandstats")
            asked = set(stats) if isinstance(stats, dict) else set(str(stats).split())
            assert not [each for each in asked if "keys" in each or "scan" in each]

    run(use())


def test_clu_14_leases_go_by_the_time_of_redis(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes whose clocks differ by ten minutes agree on who lives."""

    async def use() -> None:
        clock = time.time
        async with Stores.redis(redis.url) as slow, Stores.redis(redis.url) as fast:
            monkeypatch.setattr(time, "time", lambda: clock() - 300)
            await slow.nodes.renew("n1", b"", 60.0)
            kept = await slow.sessions.create(record())
            monkeypatch.setattr(time, "time", lambda: clock() + 300)
            assert await fast.nodes.living() == {"n1": b""}
            assert await fast.sessions.get("s1") == kept
            assert await fast.sessions.claim("s1", "n2") is None
            assert await fast.locks.acquire("x", 60.0) is not None
            monkeypatch.setattr(time, "time", lambda: clock() - 300)
            assert await slow.locks.acquire("x", 60.0) is None

    run(use())


class NextRecord(SessionRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A session as a later build might know it."""

    region: str = "nowhere"
    tags: tuple[str, ...] = ()


def test_clu_15_builds_before_and_after_an_added_field_read_each_other(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            newer = NextRecord(id="new", revision="2026-07-28", owner="n1", region="eu", tags=("a",))
            redis.command(
                "HSET",
                "f:ferrule:s:{new}",
                "r",
                VERSION + msgspec.msgpack.encode(newer),
                "o",
                "n1",
                "e",
                1,
                "c",
                1,
                "s",
                1,
            )
            found = await stores.sessions.get("new")
            assert found is not None
            assert (found.revision, found.owner) == ("2026-07-28", "n1")
            await stores.sessions.create(record("old"))
            data = redis.command("HGET", "f:ferrule:s:{old}", "r")
            later = msgspec.msgpack.decode(data[1:], type=NextRecord)
            assert (later.id, later.region) == ("old", "nowhere")

    run(use())


def test_flushed_scripts_are_loaded_again_unnoticed(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            await stores.sessions.create(record())
            redis.command("SCRIPT", "FLUSH")
            assert await stores.sessions.get("s1") is not None
            assert stores.backend.stats.failures == 0

    run(use())


def test_a_caller_that_goes_away_leaves_the_answers_of_others_in_order(redis: RedisServer) -> None:
    """A command in flight is never cancelled: only the wait for it is."""

    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            for number in range(50):
                await stores.values.put(f"k{number}", b"%d" % number)
            for _ in range(20):
                reads = [asyncio.ensure_future(stores.values.get(f"k{number}")) for number in range(50)]
                await asyncio.sleep(0)
                for read in reads[::3]:
                    read.cancel()
                found = await asyncio.gather(*reads, return_exceptions=True)
                for number, value in enumerate(found):
                    assert isinstance(value, asyncio.CancelledError) if number % 3 == 0 else value == b"%d" % number
            assert stores.backend.stats.connections == 2

    run(use())


def test_all_commands_of_one_turn_go_out_together(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            before = stores.backend.stats
            await asyncio.gather(*[stores.values.get(f"k{number}") for number in range(200)])
            after = stores.backend.stats
            assert after.commands - before.commands == 200
            assert after.batches - before.batches == 2

    run(use())


def test_what_is_written_behind_is_there_when_the_store_was_closed(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            for number in range(1, 500):
                stores.events.append("ann.1", number, b"x", 0.0)
        assert redis.command("XLEN", "f:ferrule:e:{ann.1}") == 499
        assert stores.backend.state == "closed"
        stores.events.append("ann.1", 500, b"x", 0.0)
        with pytest.raises(StoreUnavailable):
            await stores.sessions.get("s1")

    run(use())


def test_what_is_kept_of_streams_in_redis_is_bounded_as_in_the_process(redis: RedisServer) -> None:
    async def use() -> None:
        from ferrule.stores.memory import LogBounds

        async with Stores.redis(redis.url, bounds=LogBounds(events=10, total=2000)) as stores:
            for number in range(1, 101):
                stores.events.append("ann.1", number, b"x" * 10, 0.0)
            assert await stores.events.after("ann.1", 89) is None
            assert await stores.events.after("ann.1", 90) == [b"x" * 10] * 10
            for stream in range(100):
                stores.events.append(f"bob.{stream}", 1, b"x" * 100, 0.0)
            await stores.events.after("ann.1", 90)
        assert len(redis.command("KEYS", "f:ferrule:e:*")) <= 21

    run(use())


def test_tasks_of_one_owner_are_bounded_and_the_oldest_that_ended_goes(redis: RedisServer) -> None:
    async def use() -> None:
        from ferrule.errors import Busy
        from ferrule.schema.tasks import GOING_ON
        from ferrule.stores.redis.backend import RedisBackend
        from ferrule.stores.redis.records import RedisTasks

        backend = RedisBackend(redis.url, "ferrule")
        await backend.open()
        tasks = RedisTasks(backend, max_per_owner=3)
        for number in range(3):
            await tasks.create(task(f"t{number}"), 1.0)
        with pytest.raises(Busy):
            await tasks.create(task("t3"), 1.0)
        await tasks.create(task("other", "bob"), 1.0)
        assert await tasks.update(msgspec.structs.replace(task("t1"), status="failed"), GOING_ON)
        await tasks.create(task("t3"), 1.0)
        assert [each.id for each in await tasks.page("ann", None, 10, 1.0)] == ["t0", "t2", "t3"]
        await backend.close()

    run(use())


def test_an_index_of_tasks_lives_as_long_as_the_last_of_them(redis: RedisServer) -> None:
    async def use() -> None:
        async with Stores.redis(redis.url) as stores:
            lasting: list[int] = []
            for number, ttl in enumerate((100.0, 1000.0, 10.0, None, 100.0)):
                await stores.tasks.create(msgspec.structs.replace(task(f"t{number}"), ttl=ttl), 1.0)
                (index,) = redis.command("KEYS", "f:ferrule:o:*")
                lasting.append(redis.command("TTL", index))
            assert 50 < lasting[0] <= 100
            assert 900 < lasting[1] <= 1000
            assert 900 < lasting[2] <= 1000
            assert lasting[3:] == [-1, -1]

    run(use())


def test_nothing_of_nodes_and_streams_is_kept_for_ever(redis: RedisServer) -> None:
    """Also where Redis has forgotten a stream that goes on, and where nodes died without a word."""

    async def use() -> None:
        gone = [f"gone{number}" for number in range(50)]
        async with Stores.redis(redis.url) as stores:
            stores.bus.subscribe("news", lambda notice: None)
            stores.events.append("ann.1", 1, b"x", 0.0)
            await stores.sessions.create(record())
            await until(lambda: bool(redis.command("EXISTS", "f:ferrule:e:{ann.1}")))
            redis.command("FLUSHALL")
            stores.events.append("ann.1", 2, b"x", 0.0)
            await until(lambda: bool(redis.command("EXISTS", "f:ferrule:e:{ann.1}")))
            await until(lambda: bool(redis.command("EXISTS", "f:ferrule:sub:news")))
            for kept in ("f:ferrule:inboxes:", "f:ferrule:sub:news"):
                redis.command("SADD", kept, *gone)
            for _ in range(20):
                async with Stores.redis(redis.url) as other:
                    other.bus.subscribe("news", lambda notice: None)
            assert redis.command("SCARD", "f:ferrule:inboxes:") < 30
            assert redis.command("SCARD", "f:ferrule:sub:news") < 30
            for key in redis.command("KEYS", "*"):
                assert redis.command("PTTL", key) > 0, key

    run(use())


def test_tokens_of_locks_are_not_kept_for_ever_and_never_fall(redis: RedisServer) -> None:
    """Also not where the last one was forgotten, was counted by an earlier build, or was lost with everything."""

    async def use() -> None:
        async with Stores.redis(redis.url) as stores:

            async def taken() -> int:
                token = await stores.locks.acquire("x", 5.0)
                assert token is not None
                assert await stores.locks.renew("x", token, 5.0)
                assert await stores.locks.release("x", token)
                return token

            redis.command("SET", "f:ferrule:fence:x", 41)
            assert await taken() == 42
            (key,) = redis.command("KEYS", "f:ferrule:fence:*")
            assert TOKENS_KEPT < redis.command("TTL", key) <= TOKENS_KEPT + 5
            tokens = [42]
            for loss in (("DEL", key), ("FLUSHALL",)):
                redis.command(*loss)
                tokens += [await taken(), await taken()]
            assert tokens == sorted(set(tokens))
            assert 0 < redis.command("TTL", key) <= TOKENS_KEPT + 5

    run(use())


def test_the_bounds_of_what_waits_are_those_of_the_design() -> None:
    assert 2 * MOST_WAITING == 10_000
    assert 2 * MOST_WAITING_BYTES == 16 * MIB
