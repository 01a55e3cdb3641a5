"""Probes of what the command line takes from a server, and `ferrule check` from one that may do anything."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
from table import probe

from ferrule.check.answer import Answer
from ferrule.check.case import Case
from ferrule.check.http import HttpWire, ReplyParser, is_any
from ferrule.check.talk import Talk
from ferrule.check.wire import Mailbox, MessageWire, NoAnswer
from ferrule.cli import media
from ferrule.cli.connection import HeldLines
from ferrule.cli.media import drawn
from ferrule.cli.question import TerminalUser
from ferrule.schema.elicitation import ElicitParams
from ferrule.wire.sse import SseParser, event


def is_none(message: object) -> bool:
    return False


@probe("ferrule.check.wire.MOST_BYTES")
async def an_answer(limit: int, size: int) -> bool:
    taken = {http_answer(limit, size), messages(min(size, 2 * limit))}
    assert len(taken) == 1
    return taken.pop()


def messages(size: int) -> bool:
    """Return whether a message is read that makes so many bytes with one that came before it."""
    wire = MessageWire.__new__(MessageWire)
    wire.noise = []
    answer = Answer()
    try:
        wire._take(b"1" * 100, is_none, answer)
        wire._take(b" " * (size - 100), is_none, answer)
    except NoAnswer:
        return False
    return True


def http_answer(limit: int, size: int) -> bool:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    parser = ReplyParser()
    piece = b"x" * 2**16
    try:
        parser.feed(head)
        left = min(size, 2 * limit) - len(head)
        while left > 0:
            parser.feed(piece[:left])
            left -= len(piece)
    except NoAnswer:
        return False
    return True


@probe("ferrule.check.http.MOST_REDIRECTS", clamps=True)
async def redirects(limit: int, size: int) -> bool:
    """Within one origin."""
    wire = HttpWire("http://127.0.0.1/0", {})
    left = min(size, 2 * limit)

    async def ask_once(*given: object) -> Answer:
        nonlocal left
        if left:
            left -= 1
            return Answer(status=307, headers={"location": f"/{left}"})
        return Answer(status=200)

    with mock.patch.object(wire, "_ask_once", ask_once):
        answer = await wire.ask("POST", {}, b"", is_any, 1.0)
    return answer.status == 200 or left == 0


@probe("ferrule.check.wire.MOST_FRAMES")
async def messages_before_an_answer(limit: int, size: int) -> bool:
    """On a connection, in a stream of events, and what is read before anybody looks."""
    count = min(size, 2 * limit)
    message = b'{"method":"a"}'
    wire = MessageWire.__new__(MessageWire)
    wire.noise = []
    taken = set()
    try:
        answer = Answer()
        for _ in range(count):
            wire._take(message, is_none, answer)
        taken.add(True)
    except NoAnswer:
        taken.add(False)
    posted = HttpWire("http://127.0.0.1/", {})
    parser = mock.Mock(taken=mock.Mock(return_value=event(message) * count))
    try:
        posted._read_events(SseParser(2**20), parser, is_none, Answer())
        taken.add(True)
    except NoAnswer:
        taken.add(False)
    mailbox = Mailbox()
    for _ in range(count):
        mailbox.frame_received(message, mock.Mock())
    taken.add(mailbox.frames.qsize() == count)
    assert len(taken) == 1
    return taken.pop()


@probe("ferrule.check.wire.MOST_HELD", clamps=True)
async def unread_bytes(limit: int, size: int) -> bool:
    """And those that were looked at count no more."""
    mailbox = Mailbox()
    for _ in range(2):
        sizes = [limit // 2, min(size, 2 * limit) - limit // 2]
        for each in sizes:
            mailbox.frame_received(bytes(each), mock.Mock())
        kept = []
        while not mailbox.frames.empty():
            kept.append(mailbox.frames.get_nowait() or b"")
            mailbox.looked_at(kept[-1])
    return [len(each) for each in kept] == sizes


@probe("ferrule.check.wire.MOST_NOISE", clamps=True)
async def noise(limit: int, size: int) -> bool:
    """On a connection and in a stream of events."""
    wire = MessageWire.__new__(MessageWire)
    wire.noise = []
    for _ in range(size):
        wire._read(b"no JSON")
    posted = HttpWire("http://127.0.0.1/", {})
    parser = mock.Mock(taken=mock.Mock(return_value=event(b"no JSON") * min(size, 2 * limit)))
    posted._read_events(SseParser(2**20), parser, is_none, Answer())
    assert len(posted.noise) == min(len(wire.noise), size)
    return len(wire.noise) == size


@probe("ferrule.check.talk.MOST_KEPT", clamps=True)
async def what_a_server_said(limit: int, size: int) -> bool:
    talk = Talk(mock.Mock(), "handshake", 1.0)
    for _ in range(size):
        talk._noted(Answer(message={"id": 1}))
    return len(talk.seen) == size


@probe("ferrule.check.talk.MOST_KEPT_BYTES", clamps=True)
async def bytes_that_a_server_said(limit: int, size: int) -> bool:
    talk = Talk(mock.Mock(), "handshake", 1.0)
    for each in (limit // 2, size - limit // 2):
        talk._noted(Answer(message={"id": 1}, received=each))
    return len(talk.seen) == 2


@probe("ferrule.check.case.MOST_LISTED", clamps=True)
async def bytes_of_a_list(limit: int, size: int) -> bool:
    return (await listing_of(2, 1, size).listing("tools/list")).complete


def listing_of(pages: int, items: int, size: int = 0) -> Case:
    """Return a case whose server lists tools on so many pages with so many tools, and bytes, each."""
    left = pages

    async def request(method: str, params: Any) -> Answer:
        nonlocal left
        left -= 1
        result: dict[str, Any] = {"tools": [{}] * items}
        if left:
            result["nextCursor"] = f"{left}"
        return Answer(message={"result": result}, received=size)

    case = Case(mock.Mock(), "handshake", 1.0, {})
    case.talk = SimpleNamespace(request=request)  # type: ignore[assignment]
    return case


@probe("ferrule.check.case.MOST_PAGES", clamps=True)
async def pages(limit: int, size: int) -> bool:
    listing = await listing_of(size, 1).listing("tools/list")
    assert len(listing.answers) == min(size, limit)
    return listing.complete


@probe("ferrule.check.case.MOST_ITEMS", clamps=True)
async def items(limit: int, size: int) -> bool:
    """On the pages before the last: what one page may have is bounded by its bytes."""
    case = listing_of(2, size)
    return (await case.listing("tools/list")).complete


@probe("ferrule.cli.connection.MAX_HELD_LINES", clamps=True)
async def lines_of_a_child(limit: int, size: int) -> bool:
    output = mock.Mock()
    lines = HeldLines(output)
    for _ in range(size):
        lines("a line")
    lines.release()
    return bool(output.note.call_count == size)


@probe("ferrule.cli.media.MOST_SHOWN", lowered=1000)
async def a_picture(limit: int, size: int) -> bool:
    with mock.patch.object(media, "MOST_SHOWN", limit):
        return drawn(b"x" * size, "iterm") != b""


def asked(schema: dict[str, Any], typed: str) -> tuple[Any, str]:
    """Return what a person answered who typed so, and what was shown."""
    output = mock.Mock(err=io.StringIO())
    question = msgspec.convert({"message": "?", "requestedSchema": schema}, ElicitParams)
    filled = TerminalUser(output, io.StringIO(typed)).answer(question)
    return filled, "\n".join(call.args[0] for call in output.note.call_args_list)


@probe("ferrule.cli.question.MAX_FIELDS", clamps=True)
async def fields(limit: int, size: int) -> bool:
    properties = {f"f{number}": {"type": "string"} for number in range(size)}
    filled, _ = asked({"type": "object", "properties": properties}, "x\n" * size)
    return len(filled) == size


@probe("ferrule.cli.question.MAX_CHOICES", clamps=True)
async def choices(limit: int, size: int) -> bool:
    rules = {"type": "string", "enum": [f"c{number}" for number in range(size)]}
    _, shown = asked({"type": "object", "properties": {"f": rules}}, "c0\n")
    return "more" not in shown
