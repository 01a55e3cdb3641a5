"""What goes over the wire for an answer."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest

from ferrule.transports.http.engine import answer as answering
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.message import Handle, HttpRequest, Responder
from ferrule.transports.http.settings import EngineSettings

TEXT = b"content-type: text/plain\r\n"
LAST = b"Host: a\r\nConnection: close\r\n\r\n"


async def ask(engine: Engine, data: bytes) -> bytes:
    """Send bytes and read until the connection is closed."""
    reader, writer = await asyncio.open_connection(*engine.address)
    writer.write(data)
    seen = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return seen


def serve(handle: Handle, use: Callable[[Engine], Awaitable[object]], **options: object) -> None:
    """Run an engine while it is used."""

    async def main() -> None:
        engine = Engine(handle, EngineSettings(port=0, **options))
        await engine.start()
        try:
            await use(engine)
        finally:
            await engine.close()

    asyncio.run(main())


def exchange(handle: Handle, data: bytes, **options: object) -> bytes:
    """Return what one connection answers, without the dates."""
    seen = b""

    async def use(engine: Engine) -> None:
        nonlocal seen
        seen = await ask(engine, data)

    serve(handle, use, **options)
    return re.sub(rb"date: [^\r]+ GMT\r\n", b"", seen)


def hello(request: HttpRequest, responder: Responder) -> None:
    responder.reply(200, TEXT, b"hello")


def stream(request: HttpRequest, responder: Responder) -> None:
    responder.begin(200, TEXT)
    for part in (b"one", b"", b"three"):
        responder.write(part)
    responder.finish()
    responder.write(b"too late")


def test_a_reply_is_its_status_its_head_and_its_length() -> None:
    seen = exchange(hello, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n" + LAST)
    first = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello"
    last = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello"
    assert seen == first + last


def test_a_stream_goes_in_chunks() -> None:
    seen = exchange(stream, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n" + LAST)
    chunks = b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"
    start = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
    assert seen == start + chunks + start + b"connection: close\r\n" + chunks


def test_a_stream_to_http_1_0_ends_with_its_connection() -> None:
    seen = exchange(stream, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert seen == b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\nonethree"


@pytest.mark.parametrize("handle", [hello, stream])
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_head_never_gets_a_body(handle: Handle, version: bytes) -> None:
    seen = exchange(handle, b"HEAD / HTTP/" + version + b"\r\n" + LAST)
    assert seen.endswith(b"\r\n\r\n")
    assert seen.count(b"\r\n\r\n") == 1


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_has_no_body_has_no_length(status: int) -> None:
    def handle(request: HttpRequest, responder: Responder) -> None:
        responder.reply(status, b"")

    seen = exchange(handle, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n" + LAST)
    assert b"content-length" not in seen
    assert seen.count(b"HTTP/1.1 %d" % status) == 2


def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 20_000

    def handle(request: HttpRequest, responder: Responder) -> None:
        responder.reply(200, b"", body)

    assert exchange(handle, b"GET / HTTP/1.1\r\n" + LAST).endswith(b"\r\n\r\n" + body)


def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    problems = []

    def handle(request: HttpRequest, responder: Responder) -> None:
        responder.begin(200, b"")
        for again in (responder.begin, responder.reply):
            try:
                again(200, b"")
            except RuntimeError as error:
                problems.append(str(error))
        responder.finish()

    exchange(handle, b"GET / HTTP/1.1\r\n" + LAST)
    assert problems == ["this answer has begun already"] * 2


def test_abort_cuts_the_connection_and_tells_nobody() -> None:
    told = []

    def handle(request: HttpRequest, responder: Responder) -> None:
        responder.watch(lambda: told.append(1))
        responder.begin(200, b"")
        responder.abort()
        assert responder.gone

    async def use(engine: Engine) -> None:
        with suppress(ConnectionResetError):
            assert not (await ask(engine, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")).endswith(b"0\r\n\r\n")

    serve(handle, use)
    assert told == []


def test_a_writer_waits_for_a_reader_that_lags_and_wakes_when_it_leaves() -> None:
    waited = []

    def handle(request: HttpRequest, responder: Responder) -> None:
        responder.begin(200, b"")
        tasks.append(asyncio.get_running_loop().create_task(produce(responder)))

    async def produce(responder: Responder) -> None:
        written = 0
        while not responder.gone and written < 100_000_000:
            responder.write(b"a" * 65536)
            written += 65536
            waited.append(responder.backlog)
            await responder.wait_writable()

    async def use(engine: Engine) -> None:
        _, writer = await asyncio.open_connection(*engine.address, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        while not waited or not waited[-1]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert not tasks[0].done()
        writer.transport.abort()
        await asyncio.wait_for(tasks[0], 60)

    tasks: list[asyncio.Task[None]] = []
    serve(handle, use)
    # Producing stopped soon after the sockets were full.
    assert max(waited) < 1_000_000


def test_the_access_log_has_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    data = b"POST /mcp?session_id=hush HTTP/1.1\r\nAuthorization: Bearer hush\r\nMcp-Session-Id: hush\r\n"
    with caplog.at_level(logging.INFO, "ferrule.http.access"):
        exchange(hello, data + LAST, access_log=True)
        exchange(stream, b"GET /events HTTP/1.1\r\n" + LAST, access_log=True)
        exchange(hello, b"rubbish\r\n\r\n", access_log=True)
    lines = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"POST /mcp 200 \d+ \d+\.\d 127\.0\.0\.1", lines[0])
    assert re.fullmatch(r"GET /events 200 \d+ \d+\.\d 127\.0\.0\.1", lines[1])
    assert lines[2] == "- - 400 0 0 127.0.0.1"
    assert "hush" not in caplog.text


def test_the_access_log_tells_milliseconds(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "time", SimpleNamespace(monotonic=iter([7.0, 7.5]).__next__))
    with caplog.at_level(logging.INFO, "ferrule.http.access"):
        exchange(hello, b"GET /x HTTP/1.1\r\n" + LAST, access_log=True)
    assert caplog.records[0].getMessage().split()[4] == "500.0"


def test_the_access_log_is_off_unless_wanted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ferrule.http.access"):
        exchange(hello, b"GET / HTTP/1.1\r\n" + LAST)
    assert caplog.records == []


def test_a_lost_or_cut_answer_leaves_its_line_in_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    arrived = []

    def handle(request: HttpRequest, responder: Responder) -> None:
        if request.path == "/cut":
            responder.begin(200, b"")
            responder.abort()
        else:
            responder.begin(202, b"", b":\n\n")
            arrived.append(responder)

    async def use(engine: Engine) -> None:
        with suppress(ConnectionResetError):
            await ask(engine, b"GET /cut HTTP/1.1\r\nHost: a\r\n\r\n")
        _, writer = await asyncio.open_connection(*engine.address)
        writer.write(b"GET /lost HTTP/1.1\r\nHost: a\r\n\r\n")
        while not arrived:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while not arrived[0].gone:
            await asyncio.sleep(0.01)
        arrived[0].begin(200, b"")
        arrived[0].finish()

    with caplog.at_level(logging.INFO, "ferrule.http.access"):
        serve(handle, use, access_log=True)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert re.fullmatch(r"GET /cut 200 [1-9]\d+ \d+\.\d 127\.0\.0\.1", lines[0])
    assert re.fullmatch(r"GET /lost 202 [1-9]\d+ \d+\.\d 127\.0\.0\.1", lines[1])


def test_the_access_log_counts_the_bytes_of_each_answer(caplog: pytest.LogCaptureFixture) -> None:
    sent = b""
    with caplog.at_level(logging.INFO, "ferrule.http.access"):

        async def use(engine: Engine) -> None:
            nonlocal sent
            sent = await ask(engine, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\n" + LAST)

        serve(hello, use, access_log=True)
    second = sent.index(b"HTTP/1.1", 1)
    lengths = [record.getMessage().split()[3:5] for record in caplog.records]
    assert [int(size) for size, _ in lengths] == [second, len(sent) - second]
    assert all(0 <= float(spent) < 60_000 for _, spent in lengths)


def test_a_large_answer_is_told_of_to_the_allocator_whichever_way_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(answering.allocator, "large_message", lambda: told.append(True))
    for size, times in ((answering.LARGE - 1, 0), (answering.LARGE, 1)):

        def reply(request: HttpRequest, responder: Responder, size: int = size) -> None:
            responder.reply(200, TEXT, bytes(size))

        assert exchange(reply, b"GET / HTTP/1.1\r\n" + LAST)
        assert len(told) == times
