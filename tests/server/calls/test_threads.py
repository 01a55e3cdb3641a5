"""Worker threads and the bulkheads before them."""

import asyncio
import contextvars
import logging
import threading
import time

import pytest

from ferrule import Server, ToolError
from ferrule.server.calls.threads import Bulkhead, Threads
from ferrule.testing import pair

WHO = contextvars.ContextVar("who", default="nobody")


class Gate:
    """Work that waits until it is let go, and tells how many wait now and at most."""

    def __init__(self):
        self.open = threading.Event()
        self.inside = 0
        self.most = 0
        self._lock = threading.Lock()

    def work(self):
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.open.wait(60)
        with self._lock:
            self.inside -= 1
        return "done"

    async def wait_inside(self, count):
        while self.inside < count:
            await asyncio.sleep(0.001)


async def test_work_runs_in_a_thread_with_the_callers_context_variables():
    WHO.set("me")
    bulkhead = Bulkhead(Threads())
    name, who = await bulkhead.run(lambda: (threading.current_thread().name, WHO.get()))
    assert name.startswith("ferrule-worker")
    assert who == "me"


async def test_what_work_sets_in_its_context_stays_there():
    await Bulkhead(Threads()).run(lambda: WHO.set("the thread"))
    assert WHO.get() == "nobody"


async def test_idle_threads_are_used_again():
    threads = Threads()
    for _ in range(20):
        await Bulkhead(threads).run(lambda: None)
        while threads.busy:
            await asyncio.sleep(0.001)
    assert threads.count == 1


async def test_threads_without_work_end_after_a_while_and_come_again():
    threads, gate = Threads(idle_seconds=0.02), Gate()
    calls = [asyncio.ensure_future(threads.run(gate.work)) for _ in range(5)]
    await gate.wait_inside(5)
    await asyncio.sleep(0.1)
    assert threads.count == 5, "a busy thread ended"
    gate.open.set()
    await asyncio.gather(*calls)
    workers = [thread for thread in threading.enumerate() if _serves(thread, threads)]
    while threads.count:
        await asyncio.sleep(0.005)
    for worker in workers:
        await asyncio.to_thread(worker.join, 60)
    assert not [thread for thread in threading.enumerate() if _serves(thread, threads)]
    assert (threads.idle, threads.waiting) == (0, 0)
    assert await threads.run(lambda: "again") == "again"


async def test_no_work_is_lost_between_threads_that_end_and_calls_that_come():
    threads = Threads(limit=4, idle_seconds=0.0005)
    for round_ in range(200):
        calls = [threads.run(lambda n=n: n) for n in range(1 + round_ % 6)]
        assert await asyncio.wait_for(asyncio.gather(*calls), 60) == list(range(len(calls)))
        assert threads.count <= 4
        await asyncio.sleep(0.0004 + (round_ % 5) * 0.0001)
    while threads.busy:
        await asyncio.sleep(0.001)
    assert threads.waiting == 0


def _serves(thread, threads):
    return getattr(getattr(thread, "_target", None), "__self__", None) is threads


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(1), GeneratorExit()], ids=repr)
async def test_whatever_work_raises_comes_back_and_the_thread_lives(error):
    threads = Threads(limit=1)

    def fail():
        raise error

    with pytest.raises(type(error)):
        await Bulkhead(threads).run(fail)
    assert await Bulkhead(threads).run(lambda: "alive") == "alive"


async def test_stop_iteration_does_not_hang_the_caller():
    def stop():
        raise StopIteration(7)

    with pytest.raises(RuntimeError, match=r"StopIteration\(7\)"):
        await Bulkhead(Threads()).run(stop)


async def test_no_more_than_the_limit_run_at_once_and_all_get_their_turn():
    bulkhead, gate = Bulkhead(Threads(), 3), Gate()
    calls = [asyncio.ensure_future(bulkhead.run(gate.work)) for _ in range(10)]
    await gate.wait_inside(3)
    gate.open.set()
    assert await asyncio.gather(*calls) == ["done"] * 10
    assert gate.most == 3


async def test_a_place_belongs_to_the_thread_not_to_whoever_waits_for_it():
    bulkhead, gate = Bulkhead(Threads(), 1), Gate()
    first = asyncio.ensure_future(bulkhead.run(gate.work))
    await gate.wait_inside(1)
    first.cancel()
    second = asyncio.ensure_future(bulkhead.run(lambda: "second"))
    await asyncio.sleep(0.02)
    assert first.cancelled()
    assert not second.done()
    gate.open.set()
    assert await second == "second"


async def test_whoever_gives_up_in_line_leaves_no_hole():
    bulkhead, gate = Bulkhead(Threads(), 1), Gate()
    first = asyncio.ensure_future(bulkhead.run(gate.work))
    await gate.wait_inside(1)
    line = [asyncio.ensure_future(bulkhead.run(lambda: "next")) for _ in range(3)]
    await asyncio.sleep(0)
    line[0].cancel()
    await asyncio.sleep(0)
    gate.open.set()
    assert await asyncio.gather(first, *line[1:]) == ["done", "next", "next"]


async def test_a_turn_given_to_whoever_gives_up_at_that_moment_goes_to_the_next():
    bulkhead, gate = Bulkhead(Threads(), 1), Gate()
    first = asyncio.ensure_future(bulkhead.run(gate.work))
    await gate.wait_inside(1)
    line = [asyncio.ensure_future(bulkhead.run(lambda: "next")) for _ in range(2)]
    await asyncio.sleep(0)
    bulkhead.slots.leave()
    line[0].cancel()
    gate.open.set()
    assert await asyncio.wait_for(line[1], 60) == "next"
    await first


async def test_work_nobody_wants_any_more_is_not_begun():
    threads, gate, ran = Threads(limit=1), Gate(), []
    busy = asyncio.ensure_future(Bulkhead(threads).run(gate.work))
    await gate.wait_inside(1)
    unwanted = asyncio.ensure_future(Bulkhead(threads).run(lambda: ran.append(1)))
    await asyncio.sleep(0)
    unwanted.cancel()
    await asyncio.sleep(0)
    gate.open.set()
    await busy
    assert await Bulkhead(threads).run(lambda: "last") == "last"
    assert ran == []


async def test_dsk_06_without_any_thread_the_call_fails_and_the_next_works(era, monkeypatch):
    """DSK-06"""
    app = Server("threadless")
    app.add_tool("sync", lambda: "again", max_threads=1)
    app.add_tool("inline", lambda: "alive", inline=True)

    def refuse(self):
        raise RuntimeError("can't start new thread")

    async with pair(app, era) as client:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(3):
                with pytest.raises(ToolError, match="Internal error"):
                    await client.call_tool("sync")
            assert (await client.call_tool("inline")).text == "alive"
        assert (await client.call_tool("sync")).text == "again"


async def test_dsk_06_when_no_more_threads_can_be_had_those_there_are_must_do(monkeypatch, caplog):
    """DSK-06"""
    threads, gate = Threads(), Gate()
    first = asyncio.ensure_future(Bulkhead(threads).run(gate.work))
    await gate.wait_inside(1)

    def refuse(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(threading.Thread, "start", refuse)
        second = asyncio.ensure_future(Bulkhead(threads).run(lambda: "second"))
        await asyncio.sleep(0)
    assert "no more than 1 worker threads can be started" in caplog.text
    gate.open.set()
    assert await asyncio.gather(first, second) == ["done", "second"]


def test_a_stuck_thread_keeps_neither_the_loop_nor_the_process_alive():
    stuck = threading.Event()

    async def abandon():
        bulkhead = Bulkhead(Threads())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(bulkhead.run(lambda: stuck.wait(60)), 0.05)

    started = time.perf_counter()
    asyncio.run(abandon())
    assert time.perf_counter() - started < 30
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("ferrule-worker"))
    stuck.set()


async def test_results_of_one_moment_wake_the_loop_once(monkeypatch):
    threads, loop, woken = Threads(limit=2), asyncio.get_running_loop(), []
    wake = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *args, **kwargs: (woken.append(1), wake(*args, **kwargs)))
    calls = [asyncio.ensure_future(threads.run(lambda n=n: n)) for n in range(20)]
    await asyncio.sleep(0)
    while threads.waiting or threads.busy:
        time.sleep(0.001)  # the loop hears of nothing meanwhile
    assert await asyncio.gather(*calls) == list(range(20))
    assert len(woken) <= 2, "one wake-up, or one more where a thread had not seen the first"


async def test_many_short_pieces_of_one_turn_do_not_wake_a_thread_each():
    threads, gate = Threads(), Gate()
    blocked = [asyncio.ensure_future(threads.run(gate.work)) for _ in range(8)]
    await gate.wait_inside(8)
    gate.open.set()
    await asyncio.gather(*blocked)
    while threads.busy:
        await asyncio.sleep(0.001)
    workers = set()
    for _ in range(5):
        calls = [asyncio.ensure_future(threads.run(lambda: workers.add(threading.get_ident()))) for _ in range(8)]
        await asyncio.gather(*calls)
    assert len(workers) < 8, "the threads that are idle longest are left alone, and end"
    assert threads.count == 8


async def test_short_pieces_of_one_turn_wake_one_thread(monkeypatch):
    threads, woken = Threads(), []
    await run_at_once(threads, 4)
    wake = threads._summon
    monkeypatch.setattr(threads, "_summon", lambda: (woken.append(1), wake()))
    for _ in range(500):
        while threads.busy:
            await asyncio.sleep(0.001)
        woken.clear()
        await asyncio.gather(*[asyncio.ensure_future(threads.run(lambda: None)) for _ in range(8)])
        if len(woken) == 1:
            return  # it takes more only where the system takes the thread away from its work
    raise AssertionError("each round woke more threads than one")


async def test_once_work_is_found_to_block_the_loop_is_not_asked_for_each_thread(monkeypatch):
    threads, loop, woken = Threads(), asyncio.get_running_loop(), []
    await run_at_once(threads, 10)
    wake = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *args, **kwargs: (woken.append(1), wake(*args, **kwargs)))
    gate = Gate()
    calls = [asyncio.ensure_future(threads.run(gate.work)) for _ in range(10)]
    await gate.wait_inside(10)
    assert len(woken) < 5
    gate.open.set()
    await asyncio.gather(*calls)


async def run_at_once(threads, count):
    """Let so many threads be there, all without work."""
    gate = Gate()
    calls = [asyncio.ensure_future(threads.run(gate.work)) for _ in range(count)]
    await gate.wait_inside(count)
    gate.open.set()
    await asyncio.gather(*calls)
    while threads.busy:
        await asyncio.sleep(0.001)


async def test_whoever_stands_in_line_is_run_without_the_loop():
    bulkhead, ran = Bulkhead(Threads(), 2), []
    calls = [asyncio.ensure_future(bulkhead.run(lambda n=n: ran.append(n))) for n in range(10)]
    await asyncio.sleep(0)
    hold_the_loop_until(lambda: len(ran) == 10)
    await asyncio.gather(*calls)
    assert (bulkhead.slots.taken, bulkhead.slots.waiting) == (0, 0)


def hold_the_loop_until(happened):
    """Let threads work while the loop stands still."""
    for _ in range(60_000):
        if happened():
            return
        time.sleep(0.001)
    raise AssertionError("it needed the loop")


def test_work_of_a_closed_loop_keeps_none_of_another_from_its_thread():
    threads, first, second = Threads(limit=1), Gate(), Gate()

    async def leave_behind():
        for gate in (first, second):
            threads.submit(threads.job(gate.work, ()))
        await first.wait_inside(1)

    async def call():
        result = asyncio.ensure_future(threads.run(lambda: "done"))
        await asyncio.sleep(0)
        threads.limit = 2
        first.open.set()
        assert await asyncio.wait_for(result, 60) == "done"
        await second.wait_inside(1)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_behind())
    loop.close()
    asyncio.run(call())
    second.open.set()


async def test_work_behind_a_piece_that_blocks_has_a_thread_of_its_own():
    threads, gate = Threads(), Gate()
    blocked = asyncio.ensure_future(threads.run(gate.work))
    short = [asyncio.ensure_future(threads.run(lambda n=n: n)) for n in range(10)]
    assert await asyncio.wait_for(asyncio.gather(*short), 60) == list(range(10))
    assert not blocked.done()
    gate.open.set()
    await blocked


async def test_whoever_gives_up_in_line_is_not_counted_there_any_more():
    bulkhead, gate = Bulkhead(Threads(), 1, 2), Gate()
    first = asyncio.ensure_future(bulkhead.run(gate.work))
    await gate.wait_inside(1)
    line = [asyncio.ensure_future(bulkhead.run(lambda: "next")) for _ in range(2)]
    await asyncio.sleep(0)
    assert bulkhead.slots.waiting == 2
    line[0].cancel()
    await asyncio.sleep(0)
    assert bulkhead.slots.waiting == 1
    gate.open.set()
    assert await asyncio.gather(first, line[1]) == ["done", "next"]


async def test_a_turn_for_which_there_is_no_thread_fails_and_frees_its_place(monkeypatch):
    threads = Threads()
    bulkhead, gate = Bulkhead(threads, 1), Gate()
    first = asyncio.ensure_future(bulkhead.run(gate.work))
    await gate.wait_inside(1)
    second, third = (asyncio.ensure_future(bulkhead.run(lambda: "next")) for _ in range(2))
    await asyncio.sleep(0)
    submit, refused = threads.submit, []

    def refuse_once(job):
        if not refused:
            refused.append(job)
            raise RuntimeError("can't start new thread")
        submit(job)

    monkeypatch.setattr(threads, "submit", refuse_once)
    gate.open.set()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await second
    assert await asyncio.gather(first, third) == ["done", "next"]
    assert (bulkhead.slots.taken, bulkhead.slots.waiting) == (0, 0)


def test_work_of_a_loop_that_stands_still_keeps_none_of_another_from_its_thread():
    threads = Threads()
    one = asyncio.new_event_loop()
    other = asyncio.new_event_loop()
    gate = threading.Event()

    async def begin():
        threads.submit(threads.job(gate.wait, (60,)))

    async def nothing():
        await threads.run(lambda: None)

    try:
        other.run_until_complete(nothing())  # now a thread is idle
        one.run_until_complete(begin())
        other.run_until_complete(asyncio.wait_for(nothing(), 30))
    finally:
        gate.set()
        one.close()
        other.close()


async def test_work_of_a_loop_that_runs_and_is_blocked_keeps_none_of_another_from_its_thread():
    threads = Threads()
    await run_at_once(threads, 2)
    while len(threads._idle) < 2:  # one that is about to rest would take what is to wait
        await asyncio.sleep(0.001)
    gate, done = threading.Event(), threading.Event()
    calls = []

    async def work_elsewhere():
        calls.append(threads.run(done.set))
        await calls[0]

    def block():
        other = threading.Thread(target=asyncio.run, args=(work_elsewhere(),))
        other.start()
        until = time.monotonic() + 30
        while threads.waiting < 2:  # both wait for the thread that was woken, and this loop stands still
            assert time.monotonic() < until
            time.sleep(0.001)
        with threads._lock:
            threads._seeking = True
        threads._idle.pop().release()
        assert done.wait(30), "the loop that is told of it is the one that stands still"
        gate.set()
        other.join()

    threads._seeking = True  # as if a thread had been woken that is slow to come
    first = asyncio.ensure_future(threads.run(lambda: gate.wait(60)))
    await asyncio.sleep(0)
    block()
    assert await first


def test_work_of_a_coroutine_outside_of_a_task_comes_back_to_its_own_loop():
    """Whatever drives it, and though another thread runs a task on another loop meanwhile."""
    threads, in_other, over = Threads(), threading.Event(), threading.Event()

    async def other():
        await threads.run(lambda: None)
        in_other.set()
        over.wait()

    thread = threading.Thread(target=asyncio.run, args=(other(),))
    thread.start()
    in_other.wait()
    loop, loops = asyncio.new_event_loop(), []

    def drive():
        work = Bulkhead(threads).run(lambda: None)
        future = work.send(None)
        loops.append(future.get_loop())
        future.add_done_callback(lambda _: loop.stop())
        work.close()

    try:
        loop.call_soon(drive)
        loop.call_later(10, loop.stop)
        loop.run_forever()
    finally:
        over.set()
        thread.join()
        loop.close()
    assert loops == [loop]
