"""The log as JSON, on loggers of ours alone; and what is logged at which level."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ferrule import Client, Logging, Server
from ferrule.telemetry.logs import MAX_FACT, OURS, JsonFormatter, stop_logs, write_logs
from ferrule.testing import run_in_virtual_time
from ferrule.wire.channel import ChannelDefaults, Origin


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A stream that the log is written to as JSON; afterwards all is as before."""
    level = logging.getLogger(OURS).level
    written = io.StringIO()
    write_logs("json", written)
    yield written
    stop_logs()
    logging.getLogger(OURS).setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_line_with_its_facts(stream: io.StringIO) -> None:
    facts = {"tool": "add", "count": 3, "share": 0.5, "none": None, "yes": True, "odd": {"a": 1}, "large": 2**80}
    logging.getLogger("ferrule.server").info("it is %s\nreally", "so", extra=facts)
    (line,) = lines(stream)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "ferrule.server",
        "message": "it is so\\nreally",
        "tool": "add",
        "count": 3,
        "share": 0.5,
        "none": None,
        "yes": True,
        "odd": "{'a': 1}",
        "large": str(2**80),
    }


def test_a_failure_brings_its_traceback(stream: io.StringIO) -> None:
    try:
        raise ValueError("no good")
    except ValueError:
        logging.getLogger("ferrule.dispatch").exception("failed")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: no good")


def test_what_cannot_be_written_is_escaped_and_cut() -> None:
    record = logging.makeLogRecord({"msg": "half a pair: \ud800", "fact": "x" * 10_000, "message": "ours"})
    line = json.loads(JsonFormatter().format(record))
    assert line["message"] == "half a pair: \\ud800"
    assert line["fact"] == "x" * MAX_FACT


def test_the_root_logger_is_left_alone(stream: io.StringIO) -> None:
    root = logging.getLogger()
    theirs = io.StringIO()
    handler = logging.StreamHandler(theirs)
    root.addHandler(handler)
    before = (list(root.handlers), root.level)
    logging.getLogger("ferrule.server").warning("ours")
    logging.getLogger("somebody.else").warning("theirs")
    assert (list(root.handlers), root.level) == before
    root.removeHandler(handler)
    assert [line["message"] for line in lines(stream)] == ["ours"]
    assert theirs.getvalue() == "theirs\n"


def test_a_second_call_takes_the_place_of_the_first(stream: io.StringIO) -> None:
    second = io.StringIO()
    write_logs("text", second)
    logging.getLogger("ferrule.server").warning("once")
    assert stream.getvalue() == ""
    assert second.getvalue().endswith("WARNING ferrule.server: once\n")
    stop_logs()
    assert logging.getLogger(OURS).propagate


def test_calls_are_logged_with_their_facts(stream: io.StringIO) -> None:
    async def scene() -> None:
        app = Server("app", middleware=[Logging()])

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        async with Client(app) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    asyncio.run(scene())
    line = next(line for line in lines(stream) if line.get("target") == "add")
    assert (line["method"], line["outcome"], line["carrier"]) == ("tools/call", "ok", "memory")


def test_a_server_writes_its_log_as_json_by_an_option() -> None:
    program = (
        "from ferrule import Server\nimport logging\n"
        "app = Server('app', log_format='json')\n"
        "logging.getLogger('ferrule.server').warning('hello')\n"
        "print(logging.getLogger().handlers)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stderr)["message"] == "hello"
    assert done.stdout == "[]\n"


# -- what is logged, and at which level


class Peer(ChannelDefaults):
    """Says frames to a server and keeps what it answers."""

    def __init__(self, app: Server) -> None:
        self.said: list[Any] = []
        self.closed = ""
        self.link = app.link(Origin("test"))
        self.link.channel_opened(self)

    def send(self, message: Any) -> None:
        self.said.append(message)

    async def wait_writable(self) -> None:
        pass

    def close(self, reason: str = "") -> None:
        self.closed = reason

    def say(self, message: Any) -> None:
        frame = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.link.frame_received(frame, self)

    def greet(self) -> None:
        client = {"name": "tester", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        self.say({"id": 0, "method": "initialize", "params": params})
        self.say({"method": "notifications/initialized"})


async def fail_to_read(peer: Peer) -> None:
    peer.say(b"{no json")


async def answer_nothing(peer: Peer) -> None:
    peer.say({"id": 77, "result": {}})


async def initialize(peer: Peer) -> None:
    peer.greet()


async def tell_what_nobody_hears(peer: Peer) -> None:
    peer.say({"method": "notifications/vendor/unheard"})


async def miss_pings(peer: Peer) -> None:
    peer.greet()
    await asyncio.sleep(100)


async def never_initialize(peer: Peer) -> None:
    await asyncio.sleep(100)


async def break_a_handler(peer: Peer) -> None:
    peer.greet()
    peer.say({"id": 1, "method": "prompts/get", "params": {"name": "broken"}})
    await asyncio.sleep(1)


@pytest.mark.parametrize(
    ("deed", "level", "words"),
    [
        (fail_to_read, logging.ERROR, "a message cannot be read (1 so far on this link)"),
        (answer_nothing, logging.WARNING, "ignored: a response to an unknown request 77"),
        (initialize, logging.INFO, "initialized: 'tester' in 2025-11-25 over test"),
        (tell_what_nobody_hears, logging.DEBUG, "no handler for the notification notifications/vendor/unheard"),
        (miss_pings, logging.WARNING, "the peer missed 1 keep-alive pings"),
        (never_initialize, logging.ERROR, "a peer did not initialize within 60.0 s"),
        (break_a_handler, logging.ERROR, "prompts/get 'broken' failed"),
    ],
)
def test_each_event_is_logged_at_its_level(deed: Any, level: int, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """OBSV-06"""

    async def scene() -> None:
        app = Server("app")

        @app.prompt
        async def broken() -> str:
            raise ZeroDivisionError("oh")

        peer = Peer(app)
        await deed(peer)
        peer.link.close()

    with caplog.at_level(logging.DEBUG, "ferrule"):
        run_in_virtual_time(scene())
    records = [record for record in caplog.records if words in record.getMessage()]
    assert [record.levelno for record in records[:1]] == [level]
    if deed is break_a_handler:
        assert "ZeroDivisionError: oh" in caplog.text
        assert "Traceback" in caplog.text


def test_garbage_without_end_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        peer = Peer(Server("app"))
        for _ in range(10_000):
            peer.say(b'{"id": 1, "broken')
        peer.link.close()

    run_in_virtual_time(scene())
    assert 1 <= len(caplog.records) < 40
