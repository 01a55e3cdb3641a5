"""Server-sent events, by the rules of the WHATWG."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ferrule.wire.sse import EVENT_OVERHEAD, Event, EventTooLarge, SseParser, event

text = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=("Cs",)), max_size=20)


def parsed(stream: bytes, *, max_size: int = 1000) -> list[Event]:
    """Parse a stream that comes in one piece."""
    return SseParser(max_size).feed(stream)


# -- writing


def test_an_event_is_its_data_and_a_blank_line() -> None:
    assert event(b'{"a":1}') == b'data: {"a":1}\n\n'


def test_name_id_and_retry_come_before_the_data() -> None:
    assert event(b"x", id="7", name="message", retry=1500) == b"event: message\nid: 7\nretry: 1500\ndata: x\n\n"


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b"])
def test_a_name_or_an_id_cannot_smuggle_a_line(bad: str) -> None:
    with pytest.raises(ValueError, match="line end"):
        event(b"", id=bad)
    with pytest.raises(ValueError, match="line end"):
        event(b"", name=bad)


# -- reading


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_any_of_the_three_ways(end: bytes) -> None:
    """FRM-17, SSEV-04."""
    assert parsed(b"data: a" + end + b"data: b" + end + end) == [Event(b"a\nb")]


def test_every_field_of_an_event_is_read_and_what_is_written_is_read_back() -> None:
    """SSEV-04: event, data, id and retry, of which a blank line ends one."""
    parser = SseParser()
    wire = b"event: note\nid: 7\nretry: 1500\ndata: a\ndata: b\n\ndata: c\n\nid\ndata: d\n\nretry: x\ndata: e"
    found = parser.feed(wire)
    assert [(one.name, one.data, one.id) for one in found] == [
        ("note", b"a\nb", "7"),
        ("message", b"c", "7"),
        ("message", b"d", ""),
    ]
    assert parser.retry == 1500
    assert parsed(event(b"a\nb", id="7", name="note", retry=1500)) == [Event(b"a\nb", "note", "7")]


def test_a_return_and_its_line_feed_may_come_in_two_pieces() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\n\r") == [Event(b"a")]
    assert parser.feed(b"\ndata: b\r\n\r\n") == [Event(b"b")]
    assert parser.feed(b"data: c\r") == []
    assert parser.feed(b"\ndata: d\r") == []
    assert parser.feed(b"") == []
    assert parser.feed(b"data: e\r") == []
    assert parser.feed(b"\r") == [Event(b"c\nd\ne")]


def test_a_byte_order_mark_at_the_beginning_is_skipped() -> None:
    assert parsed(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == [Event(b"a")]


def test_a_byte_order_mark_at_the_beginning_of_a_later_piece_is_none() -> None:
    parser = SseParser()
    assert parser.feed(b"\xef\xbb\xbfdata: a\n\n") == [Event(b"a")]
    assert parser.feed(b"\xef\xbb\xbfdata: b\n\n") == []


def test_comments_and_unknown_fields_are_skipped() -> None:
    """spec:HTTP-7."""
    assert parsed(b": keep-alive\n\nfoo: bar\ndata: a\n:\nbaz\n\n") == [Event(b"a")]


def test_only_the_first_space_of_a_value_is_skipped() -> None:
    assert parsed(b"data:a\ndata: b\ndata:  c\n\n") == [Event(b"a\nb\n c")]


def test_an_event_without_data_is_none_but_names_its_id() -> None:
    parser = SseParser()
    assert parser.feed(b"id: 5\n\n") == []
    assert parser.last_id == "5"


def test_a_priming_event_has_empty_data() -> None:
    """HTL-20."""
    assert parsed(b"id: 1\ndata:\n\n") == [Event(b"", id="1")]
    assert parsed(b"id: 1\ndata\n\n") == [Event(b"", id="1")]


def test_an_id_holds_until_the_next_and_counts_when_its_event_is_complete() -> None:
    parser = SseParser()
    assert parser.feed(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n") == [Event(b"a", id="1"), Event(b"b", id="1")]
    assert parser.last_id == "1"
    assert parser.feed(b"\n") == [Event(b"c", id="2")]


def test_an_id_with_a_zero_is_ignored_and_an_empty_one_forgets() -> None:
    assert parsed(b"id: 1\nid: 2\0\ndata: a\n\nid\ndata: b\n\n") == [Event(b"a", id="1"), Event(b"b", id="")]


@pytest.mark.parametrize(
    ("line", "retry"), [(b"1500", 1500), (b"1.5", None), (b"-1", None), (b"", None), (b"1s", None)]
)
def test_retry_is_digits_only(line: bytes, retry: int | None) -> None:
    parser = SseParser()
    parser.feed(b"retry: " + line + b"\n\n")
    assert parser.retry == retry


def test_an_endless_number_is_read_in_part() -> None:
    parser = SseParser(100_000)
    parser.feed(b"retry: " + b"9" * 90_000 + b"\n\n")
    assert parser.retry == 10**18 - 1


def test_a_name_is_for_one_event() -> None:
    assert parsed(b"event: endpoint\ndata: /x\n\ndata: y\n\n") == [Event(b"/x", "endpoint"), Event(b"y")]


def test_what_a_cut_stream_left_unfinished_is_no_event() -> None:
    assert parsed(b"data: a\n\ndata: b\n") == [Event(b"a")]


def test_bytes_that_are_no_text_are_handed_on_as_they_are() -> None:
    assert parsed(b"data: \xff\xfe\n\n") == [Event(b"\xff\xfe")]


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 5000, b"data: xxxxxxx\n" * 1000, b": " + b"x" * 5000])
def test_an_event_over_the_limit_is_refused_however_it_is_made(stream: bytes) -> None:
    """FRM-17."""
    with pytest.raises(EventTooLarge, match="1000 bytes"):
        parsed(stream)


def test_an_event_of_exactly_the_limit_is_taken() -> None:
    assert len(parsed(b"data: " + b"x" * 1000 + b"\n\n")[0].data) == 1000


LINES = st.sampled_from([b"data: x", b"data: yy", b"id: 1", b"retry: 5", b":", b"event: e", b"\xff", b"", b""])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=30).map(b"".join), st.lists(st.integers(0, 200), max_size=8)
)
@example(b"data: x\n\ndata: yy\r\n\r\nid: 1\rdata: x\r\r", [3, 12])
def test_any_cut_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    """FRM-17."""
    whole = SseParser()
    expected = whole.feed(stream)
    for places in (cuts, range(len(stream))):
        cut = SseParser()
        bounds = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
        pieces = [stream[start:end] for start, end in pairwise(bounds)]
        assert [each for piece in pieces for each in cut.feed(piece)] == expected
        assert (cut.last_id, cut.retry) == (whole.last_id, whole.retry)


@given(st.lists(st.tuples(text, text, st.one_of(st.none(), text))))
def test_what_is_written_is_read(events: list[tuple[str, str, str | None]]) -> None:
    stream = b"".join(event(data.encode(), id=mark, name=name) for data, mark, name in events)
    read = [(each.data.decode(), each.id, each.name) for each in parsed(stream, max_size=10**6)]
    assert read == [(data, mark, name or "message") for data, mark, name in events]


@given(st.text(st.sampled_from("a\n ä:")))
def test_data_of_many_lines_stays_one_value(data: str) -> None:
    assert [each.data.decode() for each in parsed(event(data.encode()), max_size=10**6)] == [data]


def test_data_is_written_line_by_line_however_its_lines_end() -> None:
    assert event(b"a\nb\r\nc\rd\n") == b"data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"
    assert event(b"a\rb") == b"data: a\ndata: b\n\n"


def test_another_reading_of_a_stream_goes_on_where_the_first_was_cut() -> None:
    """SSEV-04."""
    before, after = SseParser(), SseParser()
    before.feed(b"id: 7\nretry: 50\ndata: a\n\nid: 8\ndata: lost")
    after.resume(before)
    assert (after.last_id, after.retry) == ("7", 50)
    assert after.feed(b"data: b\n\n") == [Event(b"b", id="7")]


def test_a_line_may_be_a_kilobyte_longer_than_the_limit_before_it_ends() -> None:
    parser = SseParser(100)
    for _ in range(2):
        parser.feed(b":" * (100 + EVENT_OVERHEAD))
        parser.feed(b"\n")
    parser.feed(b":" * (100 + EVENT_OVERHEAD))
    with pytest.raises(EventTooLarge, match="limit of 100 bytes") as caught:
        parser.feed(b":")
    assert caught.value.max_size == 100
    assert EVENT_OVERHEAD == 1024


def test_what_was_held_of_one_line_does_not_count_for_the_next() -> None:
    parser = SseParser(10)
    for _ in range(3):
        assert parser.feed(b":" * 1000) == []
        assert parser.feed(b"\n") == []


def test_what_is_held_of_an_event_is_its_data_and_its_last_line() -> None:
    parser = SseParser()
    assert parser.held == 0
    parser.feed(b"data: abc\n")
    assert parser.held == 3
    parser.feed(b"data")
    assert parser.held == 7
    assert len(parser.feed(b": d\n\n")) == 1
    assert parser.held == 0
    parser.feed(b"id")
    assert parser.held == 2
