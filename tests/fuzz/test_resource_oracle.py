"""The oracles can fail: each finds the one thing it looks for, and nothing in an input that costs little."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable

import pytest
from fuzz_wires import ws_answers, ws_frame
from resource_oracle import COLD, DEARER, ROOM, Cost, Judge, run_measured

LOGGER = logging.getLogger("ferrule.link")
CHEAP = Cost(size=1000, messages=1, cpu=0.0, turn=0.0, answered=0, answers=0, requests=1)


def findings(cost: Cost, deed: Callable[[], None] = lambda: None) -> list[str]:
    """Judge an input that does something and says that it cost so much."""

    async def run(number: int) -> Cost:
        deed()
        return cost

    async def work(judge: Judge) -> None:
        await judge.judge("wire", "case", 0.0, run)

    return [each.what for each in run_measured(work).findings]


def test_nothing_is_found_in_an_input_that_costs_little() -> None:
    assert findings(CHEAP) == []


def test_cpu_time_out_of_proportion_is_found() -> None:
    assert "ms of CPU" in findings(CHEAP._replace(cpu=1.0))[0]
    assert findings(CHEAP._replace(cpu=1.0, size=10**9)) == []


def test_the_allowance_is_20_us_a_message_and_20_ns_a_byte_and_room_beside() -> None:
    nothing = CHEAP._replace(size=0, messages=0)
    least = nothing.allowed(0.0, 1.0)
    assert least == pytest.approx(ROOM * COLD)
    assert nothing._replace(messages=7).allowed(0.0, 1.0) - least == pytest.approx(ROOM * 7 * 20e-6)
    assert nothing._replace(size=1_000_000).allowed(0.0, 1.0) - least == pytest.approx(ROOM * 20e-3)
    assert nothing.allowed(100e-6, 2.0) == pytest.approx(ROOM * (100e-6 + 2 * COLD))


def test_what_costs_more_is_allowed_by_name_and_by_number() -> None:
    plain = CHEAP.allowed(0.0, 1.0)
    for name, dearer in DEARER.items():
        allowed = CHEAP._replace(dearer={name: 10}).allowed(0.0, 1.0)
        assert allowed - plain == pytest.approx(ROOM * 10 * dearer.seconds)
        assert dearer.why


def test_some_slow_measurements_are_not_enough() -> None:
    times = iter([1.0] * 9 + [0.0] * 30)

    async def run(number: int) -> Cost:
        return CHEAP._replace(cpu=next(times))

    async def work(judge: Judge) -> None:
        await judge.judge("wire", "case", 0.0, run)

    assert run_measured(work).findings == []


@pytest.mark.parametrize(("new_base", "number"), [(0.9, 0), (0.1, 1)])
def test_where_the_smallest_message_costs_more_by_now_a_suspect_may_too(new_base: float, number: int) -> None:
    async def run(number: int) -> Cost:
        return CHEAP._replace(cpu=1.0)

    async def measured() -> float:
        return new_base

    async def work(judge: Judge) -> None:
        await judge.judge("wire", "case", 0.0, run, measured)

    assert len(run_measured(work).findings) == number


def test_a_long_turn_is_found() -> None:
    assert any("in one turn" in what for what in findings(CHEAP._replace(turn=10.0)))


def test_answers_out_of_proportion_are_found() -> None:
    assert any("answered with" in what for what in findings(CHEAP._replace(answered=100_000)))
    assert any("answered 3 times" in what for what in findings(CHEAP._replace(answers=3)))


def test_answers_over_a_websocket_are_counted_by_their_frames() -> None:
    """A frame of 0x0A0A bytes has two line ends in its head."""
    assert ws_answers(ws_frame(b"x" * 0x0A0A)) == 1
    assert ws_answers(ws_frame(b"{}\n") + ws_frame(b"{}") + ws_frame(b"", first=0x8A)) == 2
    assert ws_answers(b"HTTP/1.1 101 Switching Protocols\r\n\r\n") == 1


def test_what_is_wrong_with_the_log_is_found() -> None:
    assert any("control characters" in what for what in findings(CHEAP, lambda: LOGGER.handle(record("a\x1b[31mb"))))
    assert any("log records" in what for what in findings(CHEAP, lambda: [LOGGER.info("x") for _ in range(9)] and None))


def record(text: str) -> logging.LogRecord:
    """Return a record that no filter of ours has seen."""
    made = logging.LogRecord("ferrule", logging.WARNING, "", 0, "%s", (), None)
    made.getMessage = lambda: text  # type: ignore[method-assign]
    return made


def test_a_failure_in_a_callback_is_found() -> None:
    def fail() -> None:
        asyncio.get_running_loop().call_exception_handler({"message": "failed", "exception": ValueError("x")})

    assert any("exception handler" in what for what in findings(CHEAP, fail))


def test_what_is_left_behind_is_found() -> None:
    kept: list[bytes] = []

    async def run(number: int) -> Cost:
        kept.append(bytes(100_000))
        return CHEAP

    async def forget(number: int) -> Cost:
        bytes(100_000)
        return CHEAP

    async def work(judge: Judge) -> None:
        await judge.judge_kept("wire", "keeps", 0, run)
        await judge.judge_kept("wire", "forgets", 0, forget)

    assert [each.case for each in run_measured(work).findings] == ["keeps"]


def test_the_longest_turn_is_measured_in_cpu_time() -> None:
    async def work(judge: Judge) -> None:
        gc.disable()  # a look at all that a long run of tests has left takes a while
        await asyncio.sleep(0)  # the turn in which the machine was measured ends here
        judge.loop.longest = 0.0
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        await asyncio.sleep(0.3)
        gc.enable()
        assert 0.02 <= judge.loop.longest < 0.25

    run_measured(work)
