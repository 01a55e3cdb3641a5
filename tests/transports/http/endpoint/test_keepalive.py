"""One timer for everything that waits."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from ferrule.transports.http.endpoint.keepalive import Keepalive


class Waiting:
    """An exchange that notes when it begins to stream."""

    def __init__(self, pulse: Keepalive) -> None:
        self.pulse = pulse
        self.began: list[float] = []
        pulse.pending.add(self)

    def begin_stream(self) -> None:
        self.began.append(asyncio.get_running_loop().time())
        self.pulse.answered(self)


class Living:
    """A stream that notes its beats."""

    def __init__(self, pulse: Keepalive) -> None:
        self.bucket: set[Any] | None = None
        self.expires = math.inf
        self.beats: list[float] = []
        pulse.streams(self)

    def send_keepalive(self) -> None:
        self.beats.append(asyncio.get_running_loop().time())


class Expiring(Living):
    """A stream whose reader's credentials end, which notes when it was ended."""

    def __init__(self, pulse: Keepalive, expires: float) -> None:
        self.pulse = pulse
        self.bucket = None
        self.expires = expires
        self.beats = []
        self.ends: list[float] = []
        pulse.streams(self)

    def expire(self) -> None:
        self.ends.append(self.pulse.clock())
        self.pulse.ended(self)


def started(quiet: float, keepalive: float, also: Any = lambda now: None) -> Keepalive:
    pulse = Keepalive(quiet, keepalive, also)
    pulse.start(asyncio.get_running_loop())
    return pulse


async def test_who_waits_begins_to_stream_after_the_quiet_time_and_before_twice_it(virtual_time: None) -> None:
    pulse = started(2, 15)
    exchanges = []
    for _ in range(8):
        exchanges.append((asyncio.get_running_loop().time(), Waiting(pulse)))
        await asyncio.sleep(0.5)
    await asyncio.sleep(10)
    pulse.stop()
    for born, exchange in exchanges:
        assert len(exchange.began) == 1
        assert 2 <= exchange.began[0] - born <= 4


async def test_who_was_answered_in_time_never_streams(virtual_time: None) -> None:
    pulse = started(2, 15)
    quick, slower = Waiting(pulse), Waiting(pulse)
    pulse.answered(quick)
    await asyncio.sleep(3)
    pulse.answered(slower)
    await asyncio.sleep(10)
    pulse.stop()
    assert quick.began == slower.began == []
    assert not pulse.pending


async def test_a_stream_shows_that_it_lives_at_least_as_often_as_promised(virtual_time: None) -> None:
    """SSEV-10, HTM-7."""
    for quiet, keepalive in ((2.0, 15.0), (1.0, 15.0), (2.0, 5.0), (0.5, 0.6), (0.02, 0.05)):
        pulse = started(quiet, keepalive)
        await asyncio.sleep(quiet / 3)
        born = asyncio.get_running_loop().time()
        stream = Living(pulse)
        await asyncio.sleep(10 * keepalive)
        pulse.stop()
        gaps = [late - soon for soon, late in zip([born, *stream.beats], stream.beats, strict=False)]
        assert len(stream.beats) >= 9
        assert max(gaps) <= keepalive + 1e-6


async def test_thousands_of_streams_do_not_beat_at_once(virtual_time: None) -> None:
    pulse = started(1, 10)
    streams = []
    for _ in range(10):
        streams += [Living(pulse) for _ in range(100)]
        await asyncio.sleep(1)
    await asyncio.sleep(20)
    pulse.stop()
    moments: dict[float, int] = {}
    for stream in streams:
        for moment in stream.beats:
            moments[moment] = moments.get(moment, 0) + 1
    assert max(moments.values()) == 100


async def test_a_stream_that_ended_is_watched_no_longer(virtual_time: None) -> None:
    pulse = started(1, 3)
    stream = Living(pulse)
    pulse.ended(stream)
    pulse.ended(stream)
    await asyncio.sleep(10)
    pulse.stop()
    assert stream.beats == []


async def test_a_stream_ends_when_its_reader_expires_and_not_at_the_next_keepalive(virtual_time: None) -> None:
    pulse = started(2, 15)
    loop = asyncio.get_running_loop()
    offset = 1_800_000_000.0
    pulse.clock = lambda: loop.time() + offset
    born = pulse.clock()
    streams = [Expiring(pulse, born + seconds) for seconds in (3.25, 0.0, 86_400.0, 20.5, 40.0)]
    left_before = Expiring(pulse, born + 5.0)
    pulse.ended(left_before)
    await asyncio.sleep(4)
    # A clock that is set back gives nobody less time, and one that is set forward nobody more than a keepalive.
    offset -= 10.0
    streams[4].expires += 10.0
    await asyncio.sleep(60)
    assert [each.ends for each in streams] == [[born + 3.25], [born], [], [born + 20.5], [born + 50.0]]
    offset += 86_400.0
    await asyncio.sleep(15)
    assert len(streams[2].ends) == 1
    assert left_before.ends == []
    assert not pulse._expiries
    late = Expiring(pulse, pulse.clock() + 5)
    pulse.stop()
    await asyncio.sleep(60)
    assert (late.ends, pulse._expiries) == ([], {})


async def test_each_tick_also_tells_the_time_and_none_comes_after_the_stop(virtual_time: None) -> None:
    times: list[float] = []
    pulse = started(2, 15, times.append)
    await asyncio.sleep(86_400)
    pulse.stop()
    pulse.stop()
    assert len(times) == 43_200
    await asyncio.sleep(100)
    assert len(times) == 43_200


async def test_sok_05_a_day_of_1000_idle_sessions_costs_next_to_no_cpu(endpoint: Any, app: Any) -> None:
    """Half of them are read, and get what keeps their streams alive.

    There are no sockets here, so a tenth of the bound is ours: writing to one takes a few times as long as all else.
    """
    day = 86_400.0
    beats: list[int] = [0] * 500

    def count(number: int) -> None:
        beats[number] += 1

    async with endpoint(app) as doors:
        sessions = [doors.client() for _ in range(1000)]
        streams = [one.get() for one in sessions[:500]]
        for number, stream in enumerate(streams):
            assert stream.is_stream
            # Counted, not kept: a day of them would fill the memory of the test.
            stream.write = lambda _, number=number: count(number)
        started = time.process_time()
        await asyncio.sleep(day - 60)
        seconds = time.process_time() - started
        assert len(doors.doors.sessions) == 500
        assert all(one.ask("tools/list").status == 404 for one in sessions[500:])
        await asyncio.sleep(120)
        assert len(doors.doors.sessions) == 0
    assert min(beats) >= (day - 60) // 15
    assert seconds < day / 1000
