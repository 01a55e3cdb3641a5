"""The HTTP+SSE pair over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.errors import SetupError
from ferrule.transports.http.listener import Http, Sse
from ferrule.wire.sse import Event, SseParser

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pair_desk import call, initialize, new_server, text


class StreamEnded(Exception):
    """The server has ended the stream in order."""


class Reader:
    """A client's end of one HTTP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._parser = SseParser()
        self._waiting: list[Event] = []
        self.status = 0
        self.head: dict[str, str] = {}

    @classmethod
    async def ask(cls, port: int, method: str, url: str, body: bytes = b"", **headers: str) -> Reader:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = [f"{method} {url} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        self = cls(reader, writer)
        status, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        self.status = int(status.split()[1])
        self.head = dict(field.split(": ", 1) for field in fields)
        return self

    async def rest(self) -> list[Event]:
        """Read the stream to its end; a cut is an error."""
        events = []
        with contextlib.suppress(StreamEnded):
            while True:
                events.append(await self.event())
        return events

    async def event(self) -> Event:
        """Return the next event; raises StreamEnded at the end of the stream."""
        while not self._waiting:
            size = int(await self._reader.readline(), 16)
            piece = (await self._reader.readexactly(size + 2))[:-2]
            if not size:
                raise StreamEnded
            self._waiting = self._parser.feed(piece)
        return self._waiting.pop(0)

    async def message(self) -> Any:
        event = await self.event()
        assert event.name == "message"
        return json.loads(event.data)


async def post(port: int, url: str, message: Any) -> int:
    body = json.dumps(message).encode()
    answer = await Reader.ask(port, "POST", url, body, content_type="application/json", connection="close")
    answer.writer.close()
    return answer.status


@contextlib.asynccontextmanager
async def serving(listener: Http) -> AsyncIterator[int]:
    server = new_server()
    ready = asyncio.Event()
    task = asyncio.ensure_future(listener.serve(server.host, ready.set))
    await asyncio.wait([task, asyncio.ensure_future(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield listener.address[1]
    finally:
        await listener.close(2.0)
        await task


async def test_a_client_reads_one_connection_and_posts_on_others() -> None:
    """SSEV-01, SSEV-03, SSE-1, SSE-2, SSE-3."""
    async with serving(Sse(port=0)) as port:
        stream = await Reader.ask(port, "GET", "/sse", accept="text/event-stream")
        assert (stream.status, stream.head["content-type"]) == (200, "text/event-stream")
        assert stream.head.get("connection", "keep-alive") == "keep-alive"
        endpoint = await stream.event()
        assert endpoint.name == "endpoint"
        where = endpoint.data.decode()
        assert await post(port, where, initialize()) == 202
        assert (await stream.message())["result"]["serverInfo"]["name"] == "pair"
        assert await post(port, where, call(1, "add", a=1, b=2)) == 202
        assert text(await stream.message()) == "3"
        stream.writer.close()


async def test_a_browser_that_lost_the_connection_comes_back_by_itself() -> None:
    """SSEV-08, SSEV-14: the same address and Last-Event-ID, as every EventSource does it."""
    async with serving(Sse(port=0)) as port:
        stream = await Reader.ask(port, "GET", "/sse")
        where = (await stream.event()).data.decode()
        await post(port, where, initialize())
        last = (await stream.event()).id
        stream.writer.transport.abort()
        await asyncio.sleep(0.05)
        assert await post(port, where, call(1, "add", a=1, b=2)) == 202
        stream = await Reader.ask(port, "GET", "/sse", last_event_id=last)
        assert (await stream.event()).data.decode() == where
        assert text(await stream.message()) == "3"
        stream.writer.close()


async def test_the_stream_ends_with_a_word_when_the_server_stops() -> None:
    """SSEV-11: at once, however long the grace is."""
    listener = Sse(port=0)
    async with serving(listener) as port:
        stream = await Reader.ask(port, "GET", "/sse")
        before = asyncio.get_running_loop().time()
        await listener.close(15.0)
        assert [each.name for each in await stream.rest()] == ["endpoint", "close"]
        assert asyncio.get_running_loop().time() - before < 14
        stream.writer.close()


async def test_a_running_call_is_answered_before_the_server_stops() -> None:
    listener = Sse(port=0)
    async with serving(listener) as port:
        stream = await Reader.ask(port, "GET", "/sse")
        where = (await stream.event()).data.decode()
        await post(port, where, initialize())
        await post(port, where, call(1, "nap", seconds=0.3))
        await listener.close(10.0)
        assert [each.name for each in await stream.rest()] == ["message", "message", "close"]
        stream.writer.close()


async def test_what_a_reader_does_not_take_is_bounded() -> None:
    """SLO-01, SSEV-12: a reader that stands still is cut; nothing piles up behind it."""
    async with serving(Sse(port=0, max_stream_backlog=100_000)) as port:
        stream = await Reader.ask(port, "GET", "/sse")
        stream.writer.transport.pause_reading()  # type: ignore[attr-defined]
        where = (await stream.event()).data.decode()
        await post(port, where, initialize())
        for number in range(40):
            assert await post(port, where, call(number, "repeat", size=400_000)) == 202
        stream.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ValueError)):
            await asyncio.wait_for(stream.rest(), 60)
        stream.writer.close()


def test_the_options_have_their_defaults() -> None:
    """SSEV-02: 16 MiB a message, five seconds until a client comes back."""
    doors, engine = Sse()._endpoint_settings, Sse()._engine_settings
    assert (doors.sse, doors.sse_path, doors.messages_path) == (True, "/sse", "/messages")
    assert (doors.max_body_size, doors.sse_retry) == (16_777_216, 5.0)
    assert (engine.host, doors.poll_routes) == ("127.0.0.1", False)


async def test_its_path_is_where_the_stream_is() -> None:
    async with serving(Sse(port=0, path="/events")) as port:
        stream = await Reader.ask(port, "GET", "/events")
        assert stream.status == 200
        stream.writer.close()


def test_paths_that_would_hide_each_other_are_refused() -> None:
    with pytest.raises(SetupError, match="must differ"):
        Sse(path="/mcp")
    with pytest.raises(SetupError, match="slash"):
        Sse(path="events")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not on this machine")
async def test_curl_is_enough_of_a_client() -> None:
    """SSEV-01."""
    async with serving(Sse(port=0)) as port:
        url = f"http://127.0.0.1:{port}"
        reading = await asyncio.create_subprocess_exec("curl", "-sN", f"{url}/sse", stdout=subprocess.PIPE)
        assert reading.stdout is not None
        assert await reading.stdout.readline() == b"event: endpoint\n"
        lines = [await reading.stdout.readline() for _ in range(4)]
        where = next(line for line in lines if line.startswith(b"data: "))[6:].strip().decode()
        data = json.dumps(initialize())
        writing = await asyncio.create_subprocess_exec(
            *("curl", "-s", "-o", os.devnull, "-w", "%{http_code}", "-H", "content-type: application/json"),
            *("-d", data, url + where),
            stdout=subprocess.PIPE,
        )
        assert (await writing.communicate())[0] == b"202"
        assert await reading.stdout.readline() == b"event: message\n"
        reading.terminate()
        await reading.wait()


def test_a_server_runs_it_by_its_name(tmp_path: Path) -> None:
    """One interrupt ends it, with an open stream, and the exit code is 0."""
    program = tmp_path / "served.py"
    program.write_text(
        "import logging, sys\n"
        "from ferrule import Server\n"
        "logging.basicConfig(level='INFO', stream=sys.stdout)\n"
        "Server('named').run('sse', port=0)\n"
    )
    process = subprocess.Popen([sys.executable, "-u", str(program)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.strip().endswith("/sse"), line
        port = int(line.rpartition(":")[2].partition("/")[0])

        async def read_and_interrupt() -> list[str]:
            stream = await Reader.ask(port, "GET", "/sse")
            await stream.event()
            process.send_signal(signal.SIGINT)
            events = await stream.rest()
            stream.writer.close()
            return [each.name for each in events]

        assert asyncio.run(asyncio.wait_for(read_and_interrupt(), 60)) == ["close"]
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
