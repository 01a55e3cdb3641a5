"""CountedLifetime: started once for all its users, and ended whole."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from ferrule.supervision.counted_lifetime import CountedLifetime


class Machine:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.errors: list[BaseException] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.lifetime = CountedLifetime(self._start)

    async def _start(self, stack: AsyncExitStack) -> None:
        self.log.append("start")
        stack.callback(self.log.append, "end")
        await self.go_on.wait()
        if self.errors:
            raise self.errors.pop()


async def test_the_first_user_starts_it_and_the_last_ends_it() -> None:
    machine = Machine()
    await machine.lifetime.enter()
    await machine.lifetime.enter()
    await machine.lifetime.leave()
    assert (machine.log, machine.lifetime.users) == (["start"], 1)
    await machine.lifetime.leave()
    assert (machine.log, machine.lifetime.users) == (["start", "end"], 0)


async def test_a_second_user_waits_until_it_is_started() -> None:
    machine = Machine()
    machine.go_on.clear()
    users = [asyncio.create_task(machine.lifetime.enter()) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(user.done() for user in users)
    machine.go_on.set()
    await asyncio.gather(*users)
    assert machine.log == ["start"]


async def test_who_is_cancelled_while_leaving_has_left() -> None:
    """Leaving waits for its turn where another comes at the same time."""
    machine = Machine()
    machine.go_on.clear()

    async def come_and_go() -> None:
        await machine.lifetime.enter()
        asyncio.get_running_loop().call_soon(user.cancel)
        await machine.lifetime.leave()

    user = asyncio.create_task(come_and_go())
    other = asyncio.create_task(machine.lifetime.enter())
    await asyncio.sleep(0)
    machine.go_on.set()
    await asyncio.wait([user, other])
    assert user.cancelled()
    assert (machine.log, machine.lifetime.users) == (["start"], 1)
    await machine.lifetime.leave()
    assert (machine.log, machine.lifetime.users) == (["start", "end"], 0)


async def test_what_a_failed_start_began_is_ended_and_the_next_user_starts_anew() -> None:
    machine = Machine()
    machine.errors.append(OSError("no"))
    with pytest.raises(OSError, match="no"):
        await machine.lifetime.enter()
    assert (machine.log, machine.lifetime.users) == (["start", "end"], 0)
    await machine.lifetime.enter()
    assert machine.log == ["start", "end", "start"]


async def test_one_end_that_fails_keeps_no_other_back() -> None:
    log: list[str] = []

    async def fail() -> None:
        raise OSError("broken")

    async def start(stack: AsyncExitStack) -> None:
        stack.callback(log.append, "ended")
        stack.push_async_callback(fail)

    lifetime = CountedLifetime(start)
    await lifetime.enter()
    with pytest.raises(OSError, match="broken"):
        await lifetime.leave()
    assert (log, lifetime.users) == (["ended"], 0)


def test_a_loop_that_was_closed_while_it_started_blocks_no_other() -> None:
    async def never(stack: AsyncExitStack) -> None:
        await asyncio.Event().wait()

    lifetime = CountedLifetime(never)
    loop = asyncio.new_event_loop()
    task = loop.create_task(lifetime.enter())
    loop.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False
    loop.close()

    async def leave() -> None:
        await asyncio.wait_for(lifetime.leave(), 60)

    asyncio.run(leave())
    assert lifetime.users == 0


def test_a_coroutine_that_is_collected_after_its_loop_was_closed_can_leave() -> None:
    log: list[str] = []

    async def start(stack: AsyncExitStack) -> None:
        stack.callback(log.append, "ended")

    lifetime = CountedLifetime(start)
    asyncio.run(lifetime.enter())
    with pytest.raises(StopIteration):
        lifetime.leave().send(None)  # as the collector does: no loop runs
    assert (log, lifetime.users) == (["ended"], 0)
