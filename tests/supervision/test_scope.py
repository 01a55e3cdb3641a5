"""The tasks one owner started: none is forgotten, and all can be ended together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable, Callable

import pytest

from ferrule.supervision.scope import Scope
from ferrule.testing import run_in_virtual_time


def scenario(work: Callable[[Scope], Awaitable[None]]) -> None:
    """Run a scene with a scope of its own, in virtual time."""

    async def run() -> None:
        await asyncio.wait_for(work(Scope(asyncio.get_running_loop())), 10_000)

    run_in_virtual_time(run())


async def stubborn() -> None:
    """Ignore every cancellation for an hour."""
    end = asyncio.get_running_loop().time() + 3600
    while asyncio.get_running_loop().time() < end:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


def test_a_spawned_task_is_kept_until_it_ends() -> None:
    """The garbage collector cannot take what nobody else holds."""

    async def work(scope: Scope) -> None:
        done: list[bool] = []

        async def child() -> None:
            await asyncio.sleep(1)
            done.append(True)

        scope.spawn(child())
        gc.collect()
        assert len(scope.tasks) == 1
        await asyncio.sleep(2)
        assert done == [True]
        assert not scope.tasks

    scenario(work)


def test_a_task_that_was_only_begun_is_its_callers() -> None:
    async def work(scope: Scope) -> None:
        task = asyncio.get_running_loop().create_task(asyncio.sleep(1))
        assert not scope.tasks
        await task

    scenario(work)


def test_a_cancelled_task_is_kept_until_it_has_really_ended() -> None:
    async def work(scope: Scope) -> None:
        ended: list[bool] = []

        async def slow_to_go() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(3)
                ended.append(True)

        task = asyncio.get_running_loop().create_task(slow_to_go())
        await asyncio.sleep(0)
        scope.cancel(task)
        scope.cancel(scope.spawn(asyncio.sleep(9)))
        await asyncio.sleep(1)
        assert scope.tasks == {task}
        await asyncio.sleep(3)
        assert ended == [True]
        assert not scope.tasks

    scenario(work)


def test_closing_lets_tasks_end_by_themselves_for_a_while() -> None:
    async def work(scope: Scope) -> None:
        quick, slow = scope.spawn(asyncio.sleep(1)), scope.spawn(asyncio.sleep(100))
        await scope.close(grace=5.0)
        assert asyncio.get_running_loop().time() == 5.0
        assert not quick.cancelled()
        assert slow.cancelled()
        assert not scope.tasks

    scenario(work)


def test_closing_without_grace_cancels_at_once() -> None:
    async def work(scope: Scope) -> None:
        tasks = [scope.spawn(asyncio.sleep(100)) for _ in range(50)]
        await scope.close()
        assert asyncio.get_running_loop().time() == 0.0
        assert all(task.cancelled() for task in tasks)

    scenario(work)


def test_closing_an_empty_scope_does_nothing() -> None:
    async def work(scope: Scope) -> None:
        await scope.close(grace=5.0)
        await scope.close()
        assert asyncio.get_running_loop().time() == 0.0

    scenario(work)


def test_a_task_that_will_not_go_is_left_behind_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def work(scope: Scope) -> None:
        scope.spawn(stubborn())
        await asyncio.sleep(0)
        await scope.close()
        assert asyncio.get_running_loop().time() == 1.0
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "1 tasks" in caplog.text
        await asyncio.sleep(7200)

    scenario(work)


def test_a_task_that_fails_does_not_stop_the_others() -> None:
    async def work(scope: Scope) -> None:
        async def fail() -> None:
            raise ValueError("alone")

        failing, other = scope.spawn(fail()), scope.spawn(asyncio.sleep(1))
        await asyncio.sleep(2)
        assert isinstance(failing.exception(), ValueError)
        assert other.done()
        assert not other.cancelled()
        assert not scope.tasks

    scenario(work)


def test_a_task_that_ignores_its_cancellation_is_logged_once_as_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async def work(scope: Scope) -> None:
        over = asyncio.Event()

        async def deaf() -> None:
            while not over.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await over.wait()

        known, nameless = scope.spawn(deaf()), scope.spawn(deaf())
        await asyncio.sleep(0)
        scope.cancel(known, "tool 'pack' (request 17)")
        scope.cancel(known, "the same again")
        scope.cancel(nameless)
        await asyncio.sleep(4.9)
        early = list(caplog.messages)
        await asyncio.sleep(10)
        logged = list(caplog.messages)
        over.set()
        await asyncio.wait([known, nameless])
        assert early == []
        assert sorted(logged) == [
            f"the task {deaf.__qualname__} is still running 5 s after it was cancelled; abandoning it",
            "tool 'pack' (request 17) is still running 5 s after it was cancelled; abandoning it",
        ]

    scenario(work)
