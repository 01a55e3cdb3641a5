"""One target: all who need its client wait for the same, and it is opened again when it is lost."""

from __future__ import annotations

import asyncio
import gc

import pytest
from flaky import Flaky

from ferrule.balancing.breaker import BreakerSettings
from ferrule.errors import ConnectFailed
from ferrule.routing.replica import Replica, client_maker
from ferrule.supervision.scope import Scope

pytestmark = pytest.mark.virtual_time


def replica_of(target: Flaky) -> Replica:
    """Return a replica that is not connected."""
    return Replica("a", client_maker({})("a", target), 1.0, BreakerSettings(), lambda before, after, now: None)


async def test_all_who_need_it_wait_for_the_same_connection() -> None:
    target = Flaky("a")
    target.connect_pause = 1.0
    replica, scope = replica_of(target), Scope(asyncio.get_running_loop())
    assert not replica.connected
    await asyncio.gather(*(replica.connect(scope) for _ in range(10)))
    assert replica.connected
    assert target.connects == 1
    await replica.connect(scope)
    assert target.connects == 1
    await replica.close(0.0)
    assert not replica.connected
    await replica.close(0.0)


async def test_one_who_gives_up_does_not_harm_the_others() -> None:
    target = Flaky("a")
    target.connect_pause = 1.0
    replica, scope = replica_of(target), Scope(asyncio.get_running_loop())
    patient = asyncio.ensure_future(replica.connect(scope))
    with pytest.raises(ConnectFailed, match=r"a did not let us connect within 0\.5 s"):
        await replica.connect(scope, 0.5)
    cancelled = asyncio.ensure_future(replica.connect(scope))
    await asyncio.sleep(0)
    cancelled.cancel()
    await patient
    assert cancelled.cancelled()
    assert replica.connected
    await replica.close(0.0)


async def test_connecting_takes_five_seconds_at_most() -> None:
    target = Flaky("a")
    target.connect_pause = 100.0
    replica, scope = replica_of(target), Scope(asyncio.get_running_loop())
    began = asyncio.get_running_loop().time()
    with pytest.raises(ConnectFailed):
        await replica.connect(scope, 60.0)
    assert asyncio.get_running_loop().time() - began == pytest.approx(5.0)
    await replica.close(0.0)


async def test_whoever_waits_is_told_when_it_is_closed() -> None:
    target = Flaky("a")
    target.connect_pause = 1.0
    replica, scope = replica_of(target), Scope(asyncio.get_running_loop())
    waiting = asyncio.ensure_future(replica.connect(scope))
    await asyncio.sleep(0.5)
    await replica.close(0.0)
    assert replica._opening is not None
    assert replica._opening.done()
    with pytest.raises(ConnectFailed, match="a was closed while we connected"):
        await waiting


async def test_why_it_may_not_be_used() -> None:
    replica = replica_of(Flaky("a"))
    assert replica.reason_against(0.0, ejected=False) == ""
    assert replica.reason_against(0.0, ejected=True) == "ejected"
    replica.breaker.force_open(0.0)
    assert replica.reason_against(0.0, ejected=True) == "the breaker is open"
    replica.draining = True
    assert replica.reason_against(0.0, ejected=True) == "draining"
    await replica.close(0.0)


async def test_it_works_if_it_can_be_connected_to_and_answers() -> None:
    target = Flaky("a")
    replica, scope = replica_of(target), Scope(asyncio.get_running_loop())
    assert await replica.works(scope)
    target.cut()
    assert not replica.connected
    assert not await replica.works(scope)
    target.down = False
    assert await replica.works(scope)
    await replica.close(0.0)


async def test_a_connection_without_answers_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the next probe opens another: what lies between may have lost the first."""
    target = Flaky("a")
    replica, scope = replica_of(target), Scope(asyncio.get_running_loop())
    await replica.connect(scope)

    async def silent(timeout: float | None = None) -> float:
        raise ConnectFailed("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(replica.client, "ping", silent)
        assert not await replica.works(scope)
    assert not replica.connected
    assert await replica.works(scope)
    assert target.connects == 2
    await replica.close(0.0)


async def test_an_attempt_that_nobody_waits_for_fails_without_a_word() -> None:
    target = Flaky("a")
    target.down = True
    target.connect_pause = 1.0
    replica, scope = replica_of(target), Scope(asyncio.get_running_loop())
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    with pytest.raises(ConnectFailed):
        await replica.connect(scope, 0.5)
    await asyncio.sleep(1.0)
    assert replica._opening is not None
    assert replica._opening.done()
    replica._opening = None
    gc.collect()
    assert complaints == []
    await replica.close(0.0)
