"""Work that is started at once: it runs in place until it waits, and one call never reaches another through it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import sys
import threading
import weakref
from typing import Any

import pytest

from ferrule.supervision.start import NATIVE, SpareTask, Starter, starting

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")
KEPT: list[Any] = []


def plain_factory(loop: Any, work: Any, **options: Any) -> Any:
    """Make tasks as a loop without a task factory does."""
    return asyncio.Task(work, loop=loop, **options)


@pytest.fixture
def start() -> Any:
    """Starts work, looked up where a loop runs."""
    return lambda work, name="call", context=None: starting(asyncio.get_running_loop())(work, name, context)


class TestWorkThatNeverWaits:
    async def test_it_is_done_when_it_was_started(self, start: Any) -> None:
        said: list[str] = []

        async def work() -> None:
            said.append("done")

        assert start(work()) is None
        assert said == ["done"]

    async def test_it_leaves_no_task_behind(self, start: Any) -> None:
        before = asyncio.all_tasks()

        async def work() -> None:
            await asyncio.sleep(0) if False else None

        for _ in range(10):
            start(work())
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == before

    async def test_it_has_a_task_of_its_own_while_it_runs(self, start: Any) -> None:
        """What a handler asks of the current task is asked of its own, not of whoever started it."""
        outer = asyncio.current_task()
        seen: list[asyncio.Task[Any] | None] = []

        async def work() -> None:
            seen.append(asyncio.current_task())

        start(work())
        assert isinstance(seen[0], asyncio.Task)
        assert seen[0] is not outer
        assert asyncio.current_task() is outer

    async def test_its_task_has_the_name_of_this_work_whatever_the_last_one_called_it(self, start: Any) -> None:
        names: list[str] = []

        async def work() -> None:
            task = asyncio.current_task()
            assert task is not None
            names.append(task.get_name())
            task.set_name("alice")

        for name in ("first", "second"):
            start(work(), name)
        assert names == ["first", "second"]

    async def test_it_runs_in_what_its_context_holds_now(self, start: Any) -> None:
        context = contextvars.copy_context()
        names: list[str] = []

        async def work() -> None:
            names.append(NAME.get())

        start(work(), context=context)
        context.run(NAME.set, "alice")
        start(work(), context=context)
        assert names == ["nobody", "alice"]

    async def test_a_task_somebody_kept_is_not_lent_again(self, start: Any) -> None:
        """Cancelling a call that is over must not reach the next one."""
        kept: list[Any] = []

        async def keep() -> None:
            kept.append(asyncio.current_task())

        start(keep())
        start(keep())
        assert kept[0] is not kept[1]
        done: list[str] = []

        async def wait() -> None:
            await asyncio.sleep(0.01)
            done.append("not cancelled")

        task = start(wait())
        kept[0].cancel()
        kept[1].cancel()
        await task
        assert done == ["not cancelled"]

    async def test_one_that_cancels_itself_harms_nobody_after_it(self, start: Any) -> None:
        async def rash() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

        done: list[int] = []

        async def calm() -> None:
            await asyncio.sleep(0)
            done.append(1)

        start(rash())
        await start(calm())
        assert done == [1]

    async def test_what_it_sets_in_its_context_is_gone_with_it(self, start: Any) -> None:
        seen: list[str] = []

        async def work(name: str) -> None:
            seen.append(NAME.get())
            NAME.set(name)

        start(work("a"))
        start(work("b"))
        assert seen == ["nobody", "nobody"]
        assert NAME.get() == "nobody"

    async def test_it_sees_the_context_it_was_started_in(self, start: Any) -> None:
        seen: list[str] = []

        async def work() -> None:
            seen.append(NAME.get())

        start(work())
        contextvars.copy_context().run(lambda: (NAME.set("inner"), start(work())))
        start(work())
        assert seen == ["nobody", "inner", "nobody"]

    async def test_it_can_be_given_another_context_and_does_not_change_it(self, start: Any) -> None:
        given = contextvars.copy_context()
        given.run(NAME.set, "given")
        seen: list[str] = []

        async def work() -> None:
            seen.append(NAME.get())
            NAME.set("changed")

        for _ in range(2):
            start(work(), context=given)
        assert seen == ["given", "given"]
        assert given[NAME] == "given"
        assert NAME.get() == "nobody"

    async def test_it_may_start_more_of_its_kind(self, start: Any) -> None:
        depth: list[int] = []

        async def work(level: int) -> None:
            task = asyncio.current_task()
            if level < 20:
                start(work(level + 1))
            assert asyncio.current_task() is task
            depth.append(level)

        start(work(0))
        assert depth == list(range(20, -1, -1))


class TestWorkThatWaits:
    @pytest.mark.parametrize("warm", [0, 2])
    async def test_many_may_await_one_future(self, start: Any, warm: int) -> None:
        """As with one flight for all who ask for the same: the first steps of new tasks come after others await it."""
        for _ in range(warm):
            start(asyncio.sleep(0))
        await asyncio.sleep(0.01)
        shared = asyncio.get_running_loop().create_future()
        said: list[str] = []

        async def work() -> None:
            said.append(await shared)

        started = [start(work()) for _ in range(5)]
        plain = asyncio.ensure_future(work())
        shared.set_result("done")
        await asyncio.gather(*started, plain)
        assert said == ["done"] * 6

    async def test_one_of_many_that_await_a_future_is_cancelled_with_it(self, start: Any) -> None:
        """A task that is cancelled cancels the future it waits for, also before its first step."""
        shared = asyncio.get_running_loop().create_future()
        said: list[str] = []

        async def work() -> None:
            try:
                await shared
            except asyncio.CancelledError:
                said.append("cancelled")

        first, second = start(work()), start(work())
        second.cancel()
        await asyncio.gather(first, second)
        assert shared.cancelled()
        assert said == ["cancelled"] * 2

    async def test_what_cannot_be_awaited_is_refused_also_in_a_new_task(self, start: Any) -> None:
        said: list[str] = []

        class Bare:
            def __await__(self) -> Any:
                yield asyncio.get_running_loop().create_future()  # yielded, not awaited

        async def work() -> None:
            try:
                await Bare()
            except RuntimeError as error:
                said.append(str(error))

        await start(work())
        assert "yield was used instead of yield from" in said[0]

    async def test_its_task_carries_it_on(self, start: Any) -> None:
        steps: list[Any] = []

        async def work() -> None:
            steps.append(asyncio.current_task())
            for _ in range(3):
                await asyncio.sleep(0)
                steps.append(asyncio.current_task())

        task = start(work(), "tools/call")
        assert task in asyncio.all_tasks()
        assert task.get_name() == "tools/call"
        await task
        assert steps == [task] * 4

    async def test_its_context_goes_with_it(self, start: Any) -> None:
        seen: list[str] = []

        async def work(name: str) -> None:
            NAME.set(name)
            await asyncio.sleep(0)
            seen.append(NAME.get())

        await asyncio.gather(*(start(work(f"n{n}")) for n in range(5)))
        assert seen == [f"n{n}" for n in range(5)]

    async def test_cancelling_it_ends_its_wait(self, start: Any) -> None:
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        for turns in range(4):
            task = start(work())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended == ["cancelled"] * (turns + 1), f"cancelled {turns} turns after it began"

    async def test_cancelling_it_cancels_what_it_waits_for(self, start: Any) -> None:
        """A call that gathers leaves nothing running, however soon it is cancelled."""
        ended: list[str] = []

        async def part() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("cancelled")

        async def work(parts: list[Any]) -> None:
            await asyncio.gather(*parts)

        for turns in range(4):
            part_task = asyncio.ensure_future(part())
            await asyncio.sleep(0)
            task = start(work([part_task]))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert part_task.cancelled(), f"cancelled {turns} turns after it began"
        assert ended == ["cancelled"] * 4

    @pytest.mark.parametrize("turns", range(3))
    async def test_one_that_cancelled_itself_is_cancelled_when_it_first_waits(self, start: Any, turns: int) -> None:
        ended: list[str] = []

        async def calm() -> None:
            pass

        async def rash() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("ended")

        start(calm())
        for _ in range(turns):
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await start(rash())
        assert ended == ["ended"]

    async def test_it_may_clean_up_after_a_cancel(self, start: Any) -> None:
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)
                ended.append("cleaned up")

        task = start(work())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["cleaned up"]

    async def test_time_limits_and_task_groups_work_from_the_first_step(self, start: Any) -> None:
        seen: list[str] = []

        async def work() -> None:
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(60)
            except TimeoutError:
                seen.append("time is up")
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
            seen.append("grouped")

        await start(work())
        assert seen == ["time is up", "grouped"]

    async def test_what_it_waits_for_may_fail(self, start: Any) -> None:
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        seen: list[str] = []

        async def work() -> None:
            try:
                await waited
            except OSError as error:
                seen.append(str(error))

        task = start(work())
        waited.set_exception(OSError("gone"))
        await task
        assert seen == ["gone"]


@pytest.mark.skipif(NATIVE, reason="this Python has a new task for each")
class TestATaskWhoseWorkIsOver:
    """It is used for the next work that waits, unless that could reach the first through it."""

    async def carried_by(self, after: Any = None) -> SpareTask | None:
        """Let work wait, do something with its task at its end, and return what keeps its task for the next work."""
        over: list[bool] = []

        async def work() -> None:
            await asyncio.sleep(0.001)
            task = asyncio.current_task()
            assert task in asyncio.all_tasks()
            if after is not None:
                after(task)
            over.append(True)

        start: Any = starting(asyncio.get_running_loop())
        start(work(), "call", None)
        await asyncio.sleep(0.01)
        assert over, "the work is not over"
        spares = start.__self__._spares
        assert len(spares) < 2
        return spares[0] if spares else None

    async def test_it_carries_the_next_work(self) -> None:
        first = await self.carried_by()
        assert first is not None
        assert first.task not in asyncio.all_tasks()
        for _ in range(3):
            assert await self.carried_by() is first

    async def test_the_next_work_that_never_waits_is_done_when_it_was_started(self, start: Any) -> None:
        async def calm() -> None:
            pass

        first = await self.carried_by()
        assert first is not None
        assert [start(calm()), start(calm())] == [None, None]
        assert first.task not in asyncio.all_tasks()
        assert await self.carried_by() is first

    async def test_it_carries_one_work_at_a_time(self) -> None:
        loop, seen = asyncio.get_running_loop(), set[int]()

        async def work() -> None:
            seen.add(id(asyncio.current_task()))
            await asyncio.sleep(0.001)

        for _ in range(2):
            for _ in range(10):
                starting(loop)(work(), "call", None)
            await asyncio.sleep(0.02)
        assert len(seen) == 10

    @pytest.mark.parametrize(
        "after",
        [
            pytest.param(KEPT.append, id="kept"),
            pytest.param(lambda task: KEPT.append(weakref.ref(task)), id="kept weakly"),
            pytest.param(lambda task: task.cancel(), id="cancelled"),
            pytest.param(lambda task: task.add_done_callback(lambda _: None), id="watched"),
            pytest.param(lambda task: NAME.set("left behind"), id="with another context"),
        ],
    )
    async def test_it_ends_where_the_next_could_reach_it(self, after: Any) -> None:
        assert await self.carried_by(after) is None
        KEPT.clear()

    async def test_whoever_waits_for_it_learns_that_it_is_over(self, start: Any) -> None:
        await self.carried_by()

        async def work() -> None:
            await asyncio.sleep(0.001)

        async with asyncio.timeout(1):
            await start(work())

    @pytest.mark.parametrize("turns", range(3))
    async def test_the_next_work_can_be_cancelled_and_may_fail(self, start: Any, turns: int) -> None:
        loop = asyncio.get_running_loop()
        ended: list[str] = []

        async def wait(future: asyncio.Future[None]) -> None:
            try:
                await future
            except BaseException as error:
                ended.append(type(error).__name__)
                raise

        for spoil, told in (
            (lambda future, task: task.cancel(), "CancelledError"),
            (lambda future, task: future.set_exception(OSError()), "OSError"),
            (lambda future, task: (future.set_result(None), task.cancel()), "CancelledError"),
        ):
            await self.carried_by()
            future = loop.create_future()
            task = start(wait(future))
            for _ in range(turns):
                await asyncio.sleep(0)
            spoil(future, task)
            await asyncio.wait([task])
            assert ended.pop() == told
            assert task.cancelled() or type(task.exception()).__name__ == told

    async def test_the_next_work_may_wait_for_what_is_no_future(self, start: Any) -> None:
        class Odd:
            def __await__(self) -> Any:
                yield "a text"

        async def turn() -> None:
            await asyncio.sleep(0)

        async def wrong() -> None:
            await Odd()

        await self.carried_by()
        await start(turn())
        await self.carried_by()
        with pytest.raises(RuntimeError, match="bad yield"):
            await start(wrong())

    async def test_the_next_work_may_wait_for_what_belongs_to_another_loop(self, start: Any) -> None:
        other = asyncio.new_event_loop()
        try:
            await self.carried_by()
            with pytest.raises(RuntimeError, match="attached to a different loop"):
                await start(asyncio.wait_for(other.create_future(), None))
        finally:
            other.close()

    async def test_the_next_work_may_give_way_and_be_cancelled_meanwhile(self, start: Any) -> None:
        seen: list[str] = []

        async def work() -> None:
            seen.append("began")
            await asyncio.sleep(0)
            seen.append("went on")

        await self.carried_by()
        await start(work())
        assert seen == ["began", "went on"]
        await self.carried_by()
        task = start(work())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["began", "went on", "began"]

    async def test_only_so_many_are_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ferrule.supervision.start.MOST_SPARE", 3)
        starter = Starter(asyncio.get_running_loop())

        async def work() -> None:
            await asyncio.sleep(0.001)

        tasks = [starter.start(work(), "call") for _ in range(10)]
        assert None not in tasks
        del tasks
        await asyncio.sleep(0.02)
        assert len(starter._spares) == 3


class TestTheLoop:
    def test_a_loop_that_is_closed_is_not_kept(self) -> None:
        loops: list[weakref.ref[Any]] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            loops.append(weakref.ref(loop))
            starting(loop)(asyncio.sleep(0.001), "call", None)
            await asyncio.sleep(0.01)

        for _ in range(3):
            asyncio.run(main())
        gc.collect()
        assert [loop() is None for loop in loops] == [True, True, False]

    def test_threads_that_open_and_close_loops_do_not_disturb_each_other(self) -> None:
        failed: list[BaseException] = []

        def open_and_close() -> None:
            try:
                for _ in range(200):
                    loop = asyncio.new_event_loop()
                    starting(loop)
                    loop.close()
            except BaseException as error:
                failed.append(error)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=open_and_close) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert failed == []

    def test_a_loop_that_ends_with_a_spare_task_says_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        async def work() -> None:
            pass

        async def main() -> None:
            start = starting(asyncio.get_running_loop())
            start(work(), "call", None)
            start(asyncio.sleep(0.001), "call", None)
            await asyncio.sleep(0.01)

        with caplog.at_level(logging.DEBUG, logger="asyncio"):
            asyncio.run(main())
            gc.collect()
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

    async def test_a_loop_with_a_task_factory_is_asked_for_its_tasks(self) -> None:
        loop = asyncio.get_running_loop()
        made: list[Any] = []

        def factory(loop: Any, work: Any, **options: Any) -> Any:
            made.append(work)
            return asyncio.Task(work, loop=loop, **options)

        loop.set_task_factory(factory)
        try:
            task = starting(loop)(asyncio.sleep(0), "call", None)
        finally:
            loop.set_task_factory(None)
        await task
        assert len(made) == 1

    async def test_work_that_a_task_factory_has_done_at_once_leaves_no_task(self) -> None:
        """As `asyncio.eager_task_factory` does, which there is from Python 3.12 on."""
        loop = asyncio.get_running_loop()
        said: list[str] = []

        async def work() -> None:
            said.append("done")

        class Done(asyncio.Future[None]):
            def set_name(self, name: str) -> None: ...

        def factory(loop: Any, work: Any, **options: Any) -> Any:
            if sys.version_info >= (3, 12):
                options.pop("eager_start", None)  # uvloop says it, and Python 3.13.0 does not know it
                return asyncio.eager_task_factory(loop, work, **options)
            done = Done(loop=loop)
            with contextlib.suppress(StopIteration):
                work.send(None)
            done.set_result(None)
            return done

        loop.set_task_factory(factory)
        try:
            assert starting(loop)(work(), "call", None) is None
        finally:
            loop.set_task_factory(None)
        assert said == ["done"]

    async def test_work_of_a_task_factory_that_is_cancelled_before_its_first_step_ends_where_it_waits(self) -> None:
        loop = asyncio.get_running_loop()
        said: list[str] = []

        async def work() -> None:
            said.append("begun")
            try:
                await asyncio.sleep(1)
            finally:
                said.append("ended")

        loop.set_task_factory(plain_factory)
        try:
            task = starting(loop)(work(), "call", None)
        finally:
            loop.set_task_factory(None)
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1
        assert said == ["begun", "ended"]

    def test_work_of_a_task_factory_whose_loop_never_turned_leaves_no_warning(
        self, recwarn: pytest.WarningsRecorder
    ) -> None:
        loop = asyncio.new_event_loop()
        loop.set_task_factory(plain_factory)
        task: Any = starting(loop)(asyncio.sleep(0), "call", None)
        loop.close()
        task._log_destroy_pending = False
        del task
        gc.collect()
        assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]

    @pytest.mark.parametrize("with_factory", [False, True])
    async def test_an_empty_context_is_no_place_to_leave_something_for_the_next(self, with_factory: bool) -> None:
        loop, given, seen = asyncio.get_running_loop(), contextvars.Context(), list[str]()

        async def work() -> None:
            seen.append(NAME.get())
            NAME.set("left behind")

        if with_factory:
            loop.set_task_factory(lambda loop, work, **options: asyncio.Task(work, loop=loop, **options))
        try:
            for _ in range(2):
                task = starting(loop)(work(), "call", given)
                if task is not None:
                    await task
        finally:
            loop.set_task_factory(None)
        assert seen == ["nobody", "nobody"]

    @pytest.mark.skipif(NATIVE, reason="this Python starts tasks at once by itself")
    @pytest.mark.parametrize("before", [0, 1])
    async def test_a_task_that_was_kept_ends_though_its_work_raised_in_place(self, before: int) -> None:
        starter = Starter(asyncio.get_running_loop())
        kept: list[Any] = []

        async def work() -> None:
            kept.append(asyncio.current_task())
            raise OSError("a fault of ours")

        for _ in range(before):
            starter.start(asyncio.sleep(0), "call")
        await asyncio.sleep(0.01)
        with pytest.raises(OSError, match="ours"):
            starter.start(work(), "call")
        await asyncio.wait_for(kept[0], 10)

    @pytest.mark.skipif(NATIVE, reason="this Python starts tasks at once by itself")
    async def test_work_that_raises_leaves_the_loop_as_it_was(self) -> None:
        starter = Starter(asyncio.get_running_loop())
        outer = asyncio.current_task()

        async def work() -> None:
            raise OSError("a fault of ours")

        with pytest.raises(OSError, match="ours"):
            starter.start(work(), "call")
        assert asyncio.current_task() is outer


class FutureLike:
    """What may be awaited like a future, and says which loop it belongs to by an attribute only, as asyncio allows."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asyncio_future_blocking = False

    def add_done_callback(self, wake: Any, *, context: Any = None) -> None:
        self._loop.call_soon(wake, self, context=context)

    def cancel(self, msg: object = None) -> bool:
        return False

    def result(self) -> int:
        return 5

    def __await__(self) -> Any:
        self._asyncio_future_blocking = True
        yield self
        return self.result()


class TestWorkInATaskThatWasUsedBefore:
    """It sees and leaves what it would in a task of its own."""

    @pytest.fixture(params=["a task", "a spare task", "a used task"])
    def run(self, request: pytest.FixtureRequest) -> Any:
        if NATIVE and request.param != "a task":
            pytest.skip("this Python has a new task for each")

        async def run(work: Any) -> None:
            loop = asyncio.get_running_loop()
            if request.param == "a task":
                begun = loop.create_task(work)
            else:
                starter = Starter(loop)
                if request.param == "a used task":
                    starter.start(asyncio.sleep(0), "before")  # type: ignore[arg-type]
                    await asyncio.sleep(0.01)
                    assert starter._spares
                begun = starter.start(work, "call")
            await asyncio.wait([begun], timeout=0.1)

        return run

    async def test_a_cancellation_brings_its_message(self, run: Any) -> None:
        told: list[object] = []

        async def work() -> None:
            asyncio.current_task().cancel("why")  # type: ignore[union-attr]
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError as error:
                told.append(error.args)

        await run(work())
        assert told == [("why",)]

    async def test_a_cancellation_arrives_once_though_what_it_waits_for_takes_no_notice(self, run: Any) -> None:
        async def stubborn() -> str:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return "goes on"

        inner = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        said: list[str] = []

        async def work() -> None:
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            said.append(await inner)

        await run(work())
        assert said == ["goes on"]

    async def test_it_is_cancelled_though_it_waits_for_nothing_in_particular(self, run: Any) -> None:
        said: list[str] = []

        async def work() -> None:
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                said.append("cancelled")
                raise

        await run(work())
        assert said == ["cancelled"]

    async def test_it_may_wait_for_what_is_like_a_future(self, run: Any) -> None:
        said: list[int] = []

        async def work() -> None:
            said.append(await FutureLike())

        await run(work())
        assert said == [5]

    async def test_what_it_waited_for_and_failed_is_no_reason_of_what_fails_later(self, run: Any) -> None:
        raised: list[BaseException] = []

        async def work() -> None:
            failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failing.get_loop().call_soon(failing.set_exception, OSError("first"))
            with contextlib.suppress(OSError):
                await failing
            try:
                raise ValueError("later")
            except ValueError as error:
                raised.append(error)
            await asyncio.sleep(0)

        await run(work())
        assert raised[0].__context__ is None

    async def test_it_may_start_work_that_waits_too(self, run: Any) -> None:
        seen: list[tuple[str, bool]] = []

        async def inner() -> None:
            task = asyncio.current_task()
            await asyncio.sleep(0.001)
            seen.append(("inner", asyncio.current_task() is task))

        async def work() -> None:
            task = asyncio.current_task()
            start = starting(asyncio.get_running_loop())
            for _ in range(2):
                begun = start(inner(), "inner", None)
                assert begun is not None
                assert asyncio.current_task() is task
                await asyncio.wait([begun])
                await asyncio.sleep(0.001)
            del begun
            start(inner(), "inner", None)
            await asyncio.sleep(0.005)
            seen.append(("outer", asyncio.current_task() is task))

        await run(work())
        assert seen == [("inner", True)] * 3 + [("outer", True)]

    async def test_it_cannot_wait_for_itself(self, run: Any) -> None:
        said: list[str] = []

        async def work() -> None:
            try:
                await asyncio.current_task()  # type: ignore[misc]
            except RuntimeError as error:
                said.append(str(error)[:27])

        await run(work())
        assert said == ["Task cannot await on itself"]


BOX: contextvars.ContextVar[dict[str, str]] = contextvars.ContextVar("BOX")
ARRAY: contextvars.ContextVar[object] = contextvars.ContextVar("ARRAY")


class Array:
    """What refuses to be compared, as the arrays of numpy do."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


class TestWhatOneCallLeaves:
    """Of two calls, the second meets nothing of the first."""

    @pytest.mark.parametrize("waits", [False, True])
    async def test_an_equal_value_of_another_call_is_not_its_own(self, start: Any, waits: bool) -> None:
        seen: list[dict[str, str]] = []

        async def handler() -> None:
            if waits:
                await asyncio.sleep(0)
            seen.append(BOX.get())

        boxes: list[dict[str, str]] = [{}, {}]
        for box in boxes:
            context = contextvars.copy_context()
            context.run(BOX.set, box)
            start(handler(), context=context)
            await asyncio.sleep(0.01)
        assert seen[0] is boxes[0]
        assert seen[1] is boxes[1]

    @pytest.mark.parametrize("waits", [False, True])
    async def test_an_equal_value_that_it_sets_is_gone_with_it(self, start: Any, waits: bool) -> None:
        mine: dict[str, str] = {}
        seen: list[dict[str, str]] = []

        async def handler() -> None:
            if waits:
                await asyncio.sleep(0)
            seen.append(BOX.get())
            BOX.set({})

        context = contextvars.copy_context()
        context.run(BOX.set, mine)
        for _ in range(2):
            start(handler(), context=context)
            await asyncio.sleep(0.01)
        assert seen[1] is mine

    @pytest.mark.parametrize("waits", [False, True])
    async def test_values_that_cannot_be_compared_harm_neither_call(self, start: Any, waits: bool) -> None:
        seen: list[object] = []
        failed: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: failed.append(told))

        async def handler(mine: object) -> None:
            if waits:
                await asyncio.sleep(0)
            seen.append(ARRAY.get())
            ARRAY.set(mine)

        arrays = [Array(), Array(), Array()]
        for array in arrays:
            context = contextvars.copy_context()
            context.run(ARRAY.set, array)
            for _ in range(2):
                start(handler(Array()), context=context)
                await asyncio.sleep(0.01)
        gc.collect()
        assert failed == []
        assert list(map(id, seen)) == [id(array) for array in arrays for _ in range(2)]

    @pytest.mark.parametrize("waits", [False, True])
    async def test_a_cancellation_that_was_taken_back_reaches_nobody_else(self, start: Any, waits: bool) -> None:
        said: list[str] = []

        async def rash() -> None:
            if waits:
                await asyncio.sleep(0)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            task.uncancel()

        async def calm() -> None:
            await asyncio.sleep(0)
            said.append("undisturbed")

        start(rash())
        await asyncio.sleep(0.01)
        start(calm())
        start(calm())
        await asyncio.sleep(0.01)
        assert said == ["undisturbed"] * 2

    @pytest.mark.parametrize("waits", [False, True])
    async def test_who_wants_to_know_of_its_end_does_not_learn_of_another_s(self, start: Any, waits: bool) -> None:
        told: list[str] = []

        async def watched() -> None:
            asyncio.current_task().add_done_callback(lambda task: told.append("over"))  # type: ignore[union-attr]
            if waits:
                await asyncio.sleep(0)

        async def other() -> None:
            await asyncio.sleep(0.01)

        start(watched())
        await asyncio.sleep(0.01)
        assert len(told) == 1
        start(other())
        await asyncio.sleep(0.03)
        assert len(told) == 1

    @pytest.mark.parametrize("before", [0, 1, 2])
    async def test_whoever_keeps_the_task_of_work_that_never_waited_sees_it_end(self, start: Any, before: int) -> None:
        kept: list[Any] = []

        async def keep() -> None:
            kept.append(asyncio.current_task())

        async def nothing() -> None:
            pass

        for _ in range(before):
            start(nothing())
            await asyncio.sleep(0)
        start(keep())
        assert await asyncio.wait_for(asyncio.gather(*kept), 10) == [None]

    @pytest.mark.parametrize("waits", [False, True])
    async def test_what_was_kept_for_its_task_is_not_found_by_another(self, start: Any, waits: bool) -> None:
        kept: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        found: list[str | None] = []

        async def first() -> None:
            kept[asyncio.current_task()] = "of the first"
            if waits:
                await asyncio.sleep(0)

        async def second() -> None:
            found.append(kept.get(asyncio.current_task()))

        start(first())
        await asyncio.sleep(0.01)
        start(second())
        assert found == [None]

    @pytest.mark.parametrize("waits", [False, True])
    async def test_an_attribute_of_its_task_is_not_seen_by_another(self, start: Any, waits: bool) -> None:
        seen: list[Any] = []

        async def work(name: str) -> None:
            task: Any = asyncio.current_task()
            seen.append(getattr(task, "user", None))
            task.user = name
            if waits:
                await asyncio.sleep(0)
            assert task.user == name

        for name in ("alice", "bob"):
            task = start(work(name))
            if task is not None:
                await task
        assert seen == [None, None]

    async def test_what_was_in_its_context_is_not_kept_for_others(self) -> None:
        start = starting(asyncio.get_running_loop())
        requests: list[Any] = []
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            await gate

        for _ in range(20):
            context = contextvars.Context()
            request = Array()
            requests.append(weakref.ref(request))
            context.run(NAME.set, request)  # type: ignore[arg-type]
            start(work(), "call", context)
        del context, request
        gate.set_result(None)
        await asyncio.sleep(0.01)
        for _ in range(2):
            start(asyncio.sleep(0), "call", contextvars.Context())
            await asyncio.sleep(0.01)
        gc.collect()
        assert sum(request() is not None for request in requests) <= 1
