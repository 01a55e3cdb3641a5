"""A breaker around any call: refused while it is open, with a fallback if there is one."""

from __future__ import annotations

import asyncio
import errno

import pytest

from ferrule.balancing.breaker import Breaker
from ferrule.errors import ConnectFailed, ConnectionTimedOut, NoTarget, ToolError
from ferrule.routing.circuit import Circuit

pytestmark = pytest.mark.virtual_time


async def work() -> str:
    return "work"


async def fallback() -> str:
    return "fallback"


async def fail() -> str:
    raise ConnectFailed("nobody there")


async def hang() -> str:
    await asyncio.sleep(3600)
    return "late"


async def opened() -> Circuit:
    """Return a circuit whose breaker is open."""
    circuit = Circuit("db")
    for _ in range(5):
        with pytest.raises(ConnectFailed):
            await circuit.call(fail)
    assert circuit.breaker.state == "open"
    return circuit


async def test_a_call_that_works_is_answered() -> None:
    circuit = Circuit()
    assert await circuit.call(work, fallback) == "work"
    assert circuit.breaker.successes == 1


async def test_an_open_circuit_answers_with_the_fallback_or_refuses() -> None:
    """ROUT-04, ROUT-06"""
    circuit = await opened()
    assert await circuit.call(work, fallback) == "fallback"
    with pytest.raises(NoTarget, match="db: the breaker is open"):
        await circuit.call(work)


async def test_it_closes_after_two_calls_that_work() -> None:
    """ROUT-04"""
    circuit = await opened()
    await asyncio.sleep(60.0)
    for _ in range(2):
        assert await circuit.call(work, fallback) == "work"
    assert circuit.breaker.state == "closed"


async def test_a_call_that_takes_five_seconds_has_failed() -> None:
    """ROUT-04"""
    circuit = Circuit("db")
    for _ in range(5):
        with pytest.raises(ConnectionTimedOut, match="db did not answer within 5 s"):
            await circuit.call(hang)
    assert asyncio.get_running_loop().time() == pytest.approx(25.0)
    assert circuit.breaker.state == "open"


async def test_a_cancelled_call_is_no_verdict() -> None:
    circuit = Circuit("db", Breaker())
    for _ in range(10):
        call = asyncio.ensure_future(circuit.call(hang))
        await asyncio.sleep(1.0)
        call.cancel()
        await asyncio.wait([call])
    assert (circuit.breaker.state, circuit.breaker.failures) == ("closed", 0)


async def test_an_error_that_is_an_answer_is_a_success() -> None:
    async def refuse() -> str:
        raise ToolError("no such city")

    circuit = Circuit()
    for _ in range(10):
        with pytest.raises(ToolError):
            await circuit.call(refuse)
    assert (circuit.breaker.state, circuit.breaker.successes) == ("closed", 10)


async def test_a_fault_of_this_machine_is_counted_apart() -> None:
    async def short() -> str:
        raise ConnectFailed("no descriptor") from OSError(errno.EMFILE, "too many open files")

    circuit = Circuit()
    for _ in range(10):
        with pytest.raises(ConnectFailed):
            await circuit.call(short)
    stats = circuit.breaker.stats()
    assert (stats.state, stats.local_faults, stats.failures) == ("closed", 10, 0)


async def test_a_timeout_of_the_work_itself_is_its_own() -> None:
    async def own() -> str:
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        await Circuit().call(own)
