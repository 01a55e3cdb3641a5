"""Records stay short, and a log that cannot be written is told of now and then."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import ferrule
from ferrule import Server
from ferrule.supervision.logs import (
    MAX_LINE,
    MAX_TEXT,
    MAX_TRACEBACK,
    NAMES,
    TELL_EVERY,
    keep_short,
    unwritable_logs_told,
)

HUGE = "x" * 100_000
logger = logging.getLogger("ferrule.link")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a plain handler writes."""
    keep_short()
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logger.addHandler(handler)
    yield text
    logger.removeHandler(handler)


def test_every_logger_of_ours_is_among_those_kept_short() -> None:
    sources = Path(ferrule.__file__).parent.rglob("*.py")
    found = {name for each in sources for name in re.findall(r'= logging\.getLogger\("(.*)"\)', each.read_text())}
    assert "ferrule.link" in found
    assert found <= set(NAMES)


def test_a_short_record_is_left_as_it_was(written: io.StringIO, caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("short")
    except ValueError:
        logger.exception("%s of %d", "one", 2)
    assert written.getvalue().startswith("one of 2\nTraceback")
    assert written.getvalue().endswith("ValueError: short\n")
    assert (caplog.records[0].msg, caplog.records[0].args) == ("%s of %d", ("one", 2))


@pytest.mark.parametrize(("text", "args"), [("%s", (HUGE,)), ("%r", (HUGE,)), (HUGE, ()), ("%s", (ValueError(HUGE),))])
def test_a_long_message_is_cut_and_says_so(written: io.StringIO, text: str, args: tuple[object, ...]) -> None:
    logger.error(text, *args)
    assert MAX_TEXT <= len(written.getvalue()) < MAX_TEXT + 100
    assert "… (" in written.getvalue()


def test_what_grows_by_being_escaped_is_cut_to_the_same_length(written: io.StringIO) -> None:
    logger.error("%s", "\u2028" * 1364)
    assert len(written.getvalue()) <= 2048 + 64
    assert "(1364 characters)" in written.getvalue()


def test_many_arguments_are_cut_together(written: io.StringIO) -> None:
    logger.error("%s %s %s", HUGE, HUGE, HUGE)
    assert len(written.getvalue()) < MAX_TEXT + 100


def test_a_long_exception_is_cut_wherever_it_stands_in_the_chain(written: io.StringIO) -> None:
    try:
        try:
            raise ValueError(HUGE)
        except ValueError as first:
            raise KeyError("short") from first
    except KeyError:
        logger.exception("failed")
    assert "KeyError: 'short'" in written.getvalue()
    assert MAX_LINE < len(written.getvalue()) < MAX_TRACEBACK + MAX_TEXT


def test_an_exception_of_many_lines_keeps_its_beginning_and_its_end(written: io.StringIO) -> None:
    logger.error("failed", exc_info=ExceptionGroup("two", [ValueError("y\n" * 50_000), ValueError("last")]))
    assert len(written.getvalue()) < MAX_TRACEBACK + MAX_TEXT
    assert "two (2 sub-exceptions)" in written.getvalue()
    assert "last" in written.getvalue()


def test_an_exception_that_cannot_be_written_ends_nothing(written: io.StringIO) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    logger.error("failed", exc_info=Odd())
    assert "Odd" in written.getvalue()


class Full(io.StringIO):
    """A file on a disk that is full."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


class Tick:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_full_disk_is_told_of_once_a_minute_with_what_was_lost(capsys: pytest.CaptureFixture[str]) -> None:
    handler, tick = logging.StreamHandler(Full()), Tick()
    logger.addHandler(handler)
    try:
        with unwritable_logs_told(handler, clock=tick):
            for _ in range(10):
                logger.error("lost")
            tick.now = TELL_EVERY
            logger.error("lost")
        first, second = capsys.readouterr().err.splitlines()
        assert "a log cannot be written (1 record lost): [Errno 28] No space left on device" in first
        assert "(10 records lost)" in second
        logger.error("lost")
        assert "Traceback" in capsys.readouterr().err, "afterwards it is as it was"
    finally:
        logger.removeHandler(handler)


def test_mistakes_of_whoever_logs_are_told_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(io.StringIO())
    logger.addHandler(handler)
    try:
        with unwritable_logs_told(handler):
            # caplog's own handler raises what it cannot format
            own, logger.propagate = logger.propagate, False
            logger.error("%d", "no number")
            logger.propagate = own
    finally:
        logger.removeHandler(handler)
    assert "Traceback" in capsys.readouterr().err


def test_a_handler_with_an_answer_of_its_own_keeps_it() -> None:
    failed: list[logging.LogRecord] = []

    class Own(logging.StreamHandler[Full]):
        def handleError(self, record: logging.LogRecord) -> None:
            failed.append(record)

    handler = Own(Full())
    logger.addHandler(handler)
    try:
        with unwritable_logs_told(handler):
            logger.error("lost")
    finally:
        logger.removeHandler(handler)
    assert len(failed) == 1


def test_a_server_that_runs_touches_no_handler_of_others() -> None:
    """Neither the root logger's nor those of our own loggers: whoever added them owns them."""
    handlers = [logging.StreamHandler(Full()), logging.StreamHandler(Full())]
    for owner, handler in zip((logging.getLogger(), logging.getLogger("ferrule")), handlers, strict=True):
        owner.addHandler(handler)
    before = [dict(vars(handler)) for handler in handlers]
    seen = []

    @asynccontextmanager
    async def lifespan(app: Server) -> AsyncIterator[None]:
        seen.extend(dict(vars(handler)) for handler in handlers)
        asyncio.get_running_loop().call_soon(lambda: stopping.append(asyncio.ensure_future(app.stop())))
        yield

    stopping: list[asyncio.Future[None]] = []
    try:
        Server("guest", lifespan=lifespan).run("tcp", port=0)
    finally:
        for owner, handler in zip((logging.getLogger(), logging.getLogger("ferrule")), handlers, strict=True):
            owner.removeHandler(handler)
    assert seen == before


HOSTILE = "first\nERROR:root:forged\r\x1b[2J\x9b31m\u202e\u2066\u2028\ud800\x00\x7f"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")


def test_a_peers_text_is_one_line_of_plain_text(written: io.StringIO) -> None:
    """BUD-17: a record cannot be forged, a terminal cannot be driven, a line cannot be shown in another order."""
    for value in (HOSTILE, ValueError(HOSTILE), [HOSTILE]):
        logger.warning("the peer said %s", value)
    lines = written.getvalue().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("the peer said ") for line in lines)
    assert not RAW.search(written.getvalue())
    assert "first\\nERROR:root:forged\\r\\x1b[2J\\x9b31m\\u202e\\u2066\\u2028\\ud800\\x00\\x7f" in lines[0]


def test_what_people_write_stays_readable(written: io.StringIO) -> None:
    text = 'Grüße, 漢字, emoji 🦀 and "quotes" \\\\ stay'
    logger.warning("%s", text)
    assert written.getvalue() == text + "\n"


def test_the_text_of_an_exception_cannot_pass_for_a_record(written: io.StringIO) -> None:
    try:
        try:
            raise ValueError(HOSTILE)
        except ValueError as reason:
            raise RuntimeError("second\nERROR:root:forged") from reason
    except RuntimeError:
        logger.exception("failed")
    text = written.getvalue()
    assert not RAW.search(text)
    assert "Traceback (most recent call last):" in text
    assert "ValueError: first\n  | ERROR:root:forged\\r" in text
    assert not any(line.startswith("ERROR:root") for line in text.splitlines())


def test_the_members_of_a_group_cannot_either(written: io.StringIO) -> None:
    try:
        raise ExceptionGroup(HOSTILE, [ValueError(HOSTILE)])
    except ExceptionGroup:
        logger.exception("failed")
    text = written.getvalue()
    assert not RAW.search(text)
    assert not any(line.startswith("ERROR:root") for line in text.splitlines())
