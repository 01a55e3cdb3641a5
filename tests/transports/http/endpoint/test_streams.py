"""Streams that outlive their sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule.stores.memory import LogBounds, MemoryEventLog
from ferrule.transports.http.endpoint.keepalive import Keepalive
from ferrule.transports.http.endpoint.streams import EndpointStreams, Stream
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.sse import SseParser


class Kept:
    """A stream with everything around it."""

    def __init__(self, log: Any = None, *, primed: bool = True, **settings: Any) -> None:
        self.log = MemoryEventLog(LogBounds(events=5)) if log is None else log
        self.shared = EndpointStreams(self.log, Keepalive(2.0, 15.0, lambda now: None), EndpointSettings(**settings))
        self.stream = Stream(self.shared, "k", "tag.1", primed=primed)


@pytest.fixture
def reader(answering: Any) -> Any:
    return answering


async def test_events_are_numbered_from_one_and_the_id_names_the_stream(reader: Any) -> None:
    """HTL-11, SSEV-06."""
    kept, answer = Kept(primed=False), reader()
    kept.stream.attach(answer, b"")
    for number in range(3):
        kept.stream.send(b"{}" * (number + 1))
    assert answer.ids == ["tag.1-1", "tag.1-2", "tag.1-3"]
    assert [event.data for event in answer.events] == [b"{}", b"{}{}", b"{}{}{}"]


async def test_a_primed_stream_begins_with_an_id_and_empty_data(reader: Any) -> None:
    """HTL-20, SPEC-05, SSEV-07."""
    kept, answer = Kept(retry=2.5), reader()
    kept.stream.attach(answer, b"x-a: b\r\n")
    assert answer.content == b"id: tag.1-0\nretry: 2500\ndata:\n\n"
    assert (answer.headers["x-a"], answer.headers["content-type"]) == ("b", "text/event-stream")
    parser = SseParser()
    parser.feed(answer.content)
    assert (parser.last_id, parser.retry) == ("tag.1-0", 2500)


async def test_an_unprimed_stream_begins_with_nothing(reader: Any) -> None:
    kept, answer = Kept(primed=False), reader()
    kept.stream.attach(answer, b"")
    assert (answer.status, answer.content) == (200, b"")


async def test_what_is_said_while_nobody_reads_is_missed_and_replayed_once(reader: Any) -> None:
    """SSEV-08, HTL-12."""
    kept, first, second = Kept(), reader(), reader()
    kept.stream.attach(first, b"")
    kept.stream.send(b"1")
    first.leave()
    assert not kept.stream.attached
    kept.stream.send(b"2")
    kept.stream.send(b"3")
    missed = await kept.stream.missed(1)
    assert missed is not None
    kept.stream.attach(second, b"", missed)
    kept.stream.send(b"4")
    assert [event.data for event in second.events] == [b"2", b"3", b"4"]
    assert second.ids == ["tag.1-2", "tag.1-3", "tag.1-4"]


async def test_nothing_is_missed_after_the_newest_event_and_nothing_known_of_later_ones() -> None:
    kept = Kept()
    assert await kept.stream.missed(0) == b""
    kept.stream.send(b"1")
    assert await kept.stream.missed(1) == b""
    for number in (2, 99, 10**12):
        assert await kept.stream.missed(number) is None


async def test_what_is_no_longer_kept_cannot_be_resumed() -> None:
    """catalogue:RES-03, as far as one stream can show it."""
    kept = Kept()
    for number in range(1, 8):
        kept.stream.send(b"%d" % number)
    assert await kept.stream.missed(1) is None
    assert (await kept.stream.missed(2) or b"").count(b"data: ") == 5
    kept.log.sweep(kept.shared.now + 1000)
    assert await kept.stream.missed(3) is None
    assert await kept.stream.missed(7) == b""


async def test_what_is_said_while_the_log_is_read_is_not_missed_twice(reader: Any) -> None:
    class Slow(MemoryEventLog):
        async def after(self, stream: str, number: int) -> list[bytes] | None:
            found = await super().after(stream, number)
            await asyncio.sleep(1)
            return found

    kept, answer = Kept(Slow(LogBounds(events=50))), reader()
    kept.stream.send(b"1")
    kept.stream.send(b"2")
    asyncio.get_running_loop().call_later(0.5, kept.stream.send, b"3")
    missed = await kept.stream.missed(1)
    kept.stream.attach(answer, b"", missed or b"")
    assert [event.data for event in answer.events] == [b"2", b"3"]


async def test_the_last_word_ends_the_stream(reader: Any) -> None:
    kept, answer = Kept(primed=False), reader()
    kept.stream.attach(answer, b"")
    kept.stream.finish(b"last")
    assert (answer.over, kept.stream.ended, kept.stream.attached) == (True, True, False)
    assert [event.data for event in answer.events] == [b"last"]


async def test_a_reader_that_is_sent_away_is_told_when_to_come_back(reader: Any) -> None:
    """HTL-21, SSEV-07."""
    kept, answer = Kept(retry=0.2), reader()
    kept.stream.attach(answer, b"")
    kept.stream.release()
    assert answer.over
    assert answer.writes[-1] == b"retry: 200\n\n"
    assert not kept.stream.ended
    kept.stream.send(b"later")
    assert (await kept.stream.missed(0) or b"").endswith(b"data: later\n\n")


async def test_a_reader_without_an_id_is_never_sent_away(reader: Any) -> None:
    """HTL-4."""
    kept, answer = Kept(primed=False), reader()
    kept.stream.attach(answer, b"")
    kept.stream.release()
    assert not answer.over


async def test_a_second_reader_takes_the_place_of_the_first(reader: Any) -> None:
    """SPEC-06, HTL-10."""
    kept, first, second = Kept(primed=False), reader(), reader()
    kept.stream.attach(first, b"")
    kept.stream.attach(second, b"")
    kept.stream.send(b"1")
    assert first.over
    assert (first.content, [event.data for event in second.events]) == (b"", [b"1"])


async def test_the_loss_of_an_old_reader_does_not_cost_the_new_one_its_place(reader: Any) -> None:
    kept, first, second = Kept(max_stream_backlog=10), reader(), reader()
    kept.stream.attach(first, b"")
    first.stop_reading()
    kept.stream.send(b"x" * 100)
    kept.stream.send(b"y" * 100)
    assert first.aborted
    kept.stream.attach(second, b"", await kept.stream.missed(0) or b"")
    await asyncio.sleep(0.1)
    assert kept.stream.attached
    kept.stream.send(b"3")
    assert [event.data[:1] for event in second.events] == [b"x", b"y", b"3"]


async def test_a_reader_that_lags_is_cut_and_can_come_back(reader: Any) -> None:
    kept, slow = Kept(MemoryEventLog(LogBounds()), max_stream_backlog=1000), reader()
    kept.stream.attach(slow, b"")
    slow.stop_reading()
    for _ in range(50):
        kept.stream.send(b"x" * 100)
    assert slow.aborted
    assert slow.backlog <= 1000 + 100 + 120
    assert (await kept.stream.missed(0) or b"").count(b"data: ") == 50


async def test_one_message_over_the_backlog_alone_cuts_nobody(reader: Any) -> None:
    kept, answer = Kept(MemoryEventLog(LogBounds()), max_stream_backlog=1000), reader()
    kept.stream.attach(answer, b"")
    answer.stop_reading()
    kept.stream.send(b"x" * 50_000)
    assert not answer.aborted


async def test_a_beat_is_a_comment_and_only_to_a_reader_that_reads(reader: Any) -> None:
    """SSEV-10."""
    kept, answer = Kept(primed=False), reader()
    kept.stream.send_keepalive()
    kept.stream.attach(answer, b"")
    kept.stream.send_keepalive()
    assert answer.content == b":\n\n"
    assert answer.events == []
    answer.stop_reading()
    kept.stream.send(b"1")
    kept.stream.send_keepalive()
    assert answer.content.count(b":\n\n") == 1


async def test_a_whole_answer_is_one_write_with_its_id(reader: Any) -> None:
    kept, answer = Kept(), reader()
    kept.stream.answer_whole(answer, b"", b"{}")
    assert (answer.ids, answer.over, kept.stream.ended) == (["tag.1-0", "tag.1-1"], True, True)
    assert await kept.stream.missed(0) == b"id: tag.1-1\ndata: {}\n\n"


async def test_a_forgotten_stream_keeps_nothing(reader: Any) -> None:
    kept, answer = Kept(), reader()
    kept.stream.attach(answer, b"")
    kept.stream.send(b"1")
    kept.stream.forget()
    assert (answer.over, len(kept.log), kept.log.size) == (True, 0, 0)


async def test_who_writes_waits_for_the_reader_and_without_one_lets_others_run(reader: Any) -> None:
    kept, answer = Kept(), reader()
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await kept.stream.wait_writable()
    assert turns == [1]
    kept.stream.attach(answer, b"")
    answer.stop_reading()
    waiting = asyncio.ensure_future(kept.stream.wait_writable())
    await asyncio.sleep(60)
    assert not waiting.done()
    answer.read_on()
    await waiting


async def test_the_time_of_the_last_reader_is_known(reader: Any) -> None:
    kept, answer = Kept(), reader()
    kept.stream.attach(answer, b"")
    kept.shared.now = 50.0
    answer.leave()
    assert kept.stream.last_read == 50.0
