"""A check ends, whatever the server does, and says what it saw."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from checked import check, findings, named
from plain_server import Json, PlainServer
from shop import shop

from ferrule import Tcp, Unix, WebSocket
from ferrule.check.era import HANDSHAKE, STATELESS
from ferrule.check.table import AUTHORIZATION, RULES
from ferrule.errors import CarrierError, LinkLost
from ferrule.transports.http.listener import Sse

VALUES: list[Any] = [None, True, 0, -1.5, 1e300, "", "\ud800"[:0], "x" * 5000, [], [[]], {}, {"a": None}, [{"name": 1}]]


def test_rules_have_names_of_their_own_and_say_what_to_do() -> None:
    """40 rules at least, each with a title, a reference and a fix."""
    rules = (*RULES, *AUTHORIZATION)
    assert len(rules) == len({rule.id for rule in rules}) >= 40
    for rule in rules:
        assert rule.title
        assert rule.fix
        for era in rule.pages:
            assert rule.link(era).startswith("https://modelcontextprotocol.io/specification/20")
            assert rule.levels[era] in ("must", "should")


async def test_our_server_has_no_findings_in_memory() -> None:
    report = await check(shop())
    assert findings(report) == []
    assert [era.version for era in report.eras] == ["2025-11-25", "2026-07-28"]


async def test_our_server_has_no_findings_over_any_transport(tmp_path: Path) -> None:
    """Streamable HTTP has a test of its own."""
    listeners = [Tcp(port=0), Unix(str(tmp_path / "s")), WebSocket(port=0), Sse(port=0)]
    app = shop()
    ready = asyncio.Event()
    serving = asyncio.create_task(app.serve(*listeners, ready=ready.set))
    await ready.wait()
    try:
        with pytest.raises(LinkLost, match=r"write sse\+http://"):
            await check(listeners[3].url)
        urls = [*(listener.url for listener in listeners[:3]), f"sse+{listeners[3].url}"]
        reports = [await check(url) for url in urls]
    finally:
        await app.stop(0.0)
        await serving
    assert [named(report) for report in reports] == [[]] * 4
    assert [report.transport for report in reports] == ["tcp", "unix", "websocket", "sse"]
    assert [len([era for era in report.eras if era.version]) for report in reports] == [2, 2, 2, 1]


def spoilt(value: Any, chance: random.Random) -> Any:
    """Replace a part of a value by something else."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(sorted(value))
        return {**value, key: spoilt(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], spoilt(value[at], chance), *value[at + 1 :]]
    return chance.choice(VALUES)


@pytest.mark.parametrize("seed", range(12))
async def test_any_json_in_any_place_is_judged_without_a_crash(seed: int) -> None:
    chance = random.Random(seed)

    def change(message: Json, answer: Any) -> Any:
        if not isinstance(answer, dict) or "result" not in answer:
            return answer
        if message.get("method") in ("initialize", "server/discover") and chance.random() < 0.7:
            return answer
        return {**answer, "result": spoilt(answer["result"], chance)}

    async with PlainServer({"*": change}).on_tcp() as address:
        with contextlib.suppress(LinkLost):
            report = await check(address, seconds=0.5)
            assert report.findings
            assert report.to_junit()


@contextlib.asynccontextmanager
async def speaking(words: bytes, *, hold: bool) -> AsyncIterator[int]:
    """Listen on a port and say some words to whoever comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(words)
            await writer.drain()
            if hold:
                await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


FLOOD = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}\n' * 11_000


async def test_a_server_that_sends_without_end_is_left() -> None:
    async with speaking(FLOOD, hold=True) as port:
        with pytest.raises(LinkLost, match=r"cannot be checked: the server sent 10000 messages, and no answer$"):
            await check(f"tcp://127.0.0.1:{port}", seconds=60.0)


@pytest.mark.parametrize("scheme", ["tcp", "http", "ws"])
@pytest.mark.parametrize(
    ("words", "hold"),
    [(b"", True), (b"", False), (b"\x00\xff" * 4000 + b"\n", True), (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 9, True)],
    ids=["silent", "closes", "noise", "endless head"],
)
async def test_a_hostile_or_dead_server_is_one_clear_sentence(scheme: str, words: bytes, hold: bool) -> None:
    async with speaking(words, hold=hold) as port:
        with pytest.raises((LinkLost, CarrierError), match=r"cannot be checked|cannot reach"):
            await check(f"{scheme}://127.0.0.1:{port}", seconds=0.2)


async def test_a_redirect_to_no_url_is_the_servers_fault_and_not_the_targets() -> None:
    words = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n"
    async with speaking(words, hold=False) as port:
        with pytest.raises(LinkLost, match=r"cannot be checked.*HTTP 307"):
            await check(f"http://127.0.0.1:{port}", seconds=5.0)


async def test_a_server_that_falls_silent_is_left_after_three_rules() -> None:
    asked: list[str] = []

    def falls_silent(message: Json, answer: Any) -> Any:
        asked.append(message["method"])
        return answer if message["method"] == "initialize" else None

    async with PlainServer({"*": falls_silent}).on_tcp() as address:
        report = await check(address, "tools", "prompts", eras=(HANDSHAKE,), seconds=0.1)
    assert len(findings(report)) == 3
    assert "no answer within 0.1 s" in report.findings[0].seen
    assert {finding.outcome for finding in report.findings[3:]} == {"skip"}


async def test_a_report_is_junit_as_well() -> None:
    async with PlainServer({"ping": lambda message, answer: {**answer, "result": ["\x00<"]}}).on_tcp() as address:
        report = await check(address, "lifecycle", eras=(HANDSHAKE, STATELESS))
    assert named(report) == ["fail lifecycle/ping", "warn lifecycle/early-request", "fail lifecycle/end"]
    root = ElementTree.fromstring(report.to_junit())
    suites = {suite.get("name", "").split()[-1]: suite for suite in root}
    assert suites["handshake"].get("failures") == "2"
    assert len(suites["stateless"]) == int(suites["stateless"].get("tests", 0)) == 3
    failure = root.find(".//failure")
    assert failure is not None
    assert "ping was answered with" in failure.get("message", "")
    assert "fix: answer ping with {}" in str(failure.text)
