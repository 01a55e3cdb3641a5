"""Each rule of HTTP is broken once, by a server that is right in all else."""

from __future__ import annotations

import asyncio
import json

import pytest
from checked import check, findings, named
from http_server import Answered, Asked, HttpServer, Spoilt
from shop import shop

from ferrule import Http
from ferrule.check.era import HANDSHAKE, STATELESS, Era
from ferrule.check.table import RULES

H, S = HANDSHAKE, STATELESS
PONG = b'{"jsonrpc": "2.0", "id": 1, "result": {}}'
JSON = {"Content-Type": "application/json"}


def where(status: int, becomes: int) -> Spoilt:
    """Answer with another status in the place of one."""

    def spoil(asked: Asked, answered: Answered) -> Answered:
        if answered.status != status:
            return answered
        return Answered(becomes, answered.body or PONG, JSON)

    return spoil


def as_page(asked: Asked, answered: Answered) -> Answered:
    if asked.rpc in ("ping", "server/discover") and answered.status == 200 and "initial" not in asked.rpc:
        answered.headers["Content-Type"] = "text/html"
    return answered


def stream_of_get(asked: Asked, answered: Answered) -> Answered:
    return Answered(200, b"<html>", {"Content-Type": "text/html"}) if asked.method == "GET" else answered


def with_session(asked: Asked, answered: Answered) -> Answered:
    return Answered(answered.status, answered.body, {**answered.headers, "Mcp-Session-Id": "one"})


def odd_session(asked: Asked, answered: Answered) -> Answered:
    if "Mcp-Session-Id" in answered.headers:
        answered.headers["Mcp-Session-Id"] = "a b"
    return answered


def status_of(rpc: str, status: int) -> Spoilt:
    def spoil(asked: Asked, answered: Answered) -> Answered:
        return Answered(status, answered.body, answered.headers) if asked.rpc == rpc else answered

    return spoil


def noisy(asked: Asked, answered: Answered) -> Answered:
    if asked.rpc == "ping":
        answered.body = b"data: hello\n\n" + answered.body
    return answered


def told(asked: Asked, answered: Answered) -> Answered:
    if asked.rpc == "notifications/cancelled":
        return Answered(200, b"accepted", {"Content-Type": "text/plain"})
    return answered


def without_refusal(code: int) -> Spoilt:
    """Serve what is to be refused with a code."""

    def spoil(asked: Asked, answered: Answered) -> Answered:
        if answered.body and json.loads(answered.body).get("error", {}).get("code") == code:
            return Answered(200, PONG.replace(b"1", json.dumps(asked.message["id"]).encode()), JSON)
        return answered

    return spoil


BROKEN: list[tuple[str, Era, str, Spoilt]] = [
    ("fail", H, "http/media-type", as_page),
    ("fail", H, "http/notification-accepted", told),
    ("fail", H, "http/get", stream_of_get),
    ("fail", H, "http/origin", where(403, 200)),
    ("fail", S, "http/origin", where(403, 200)),
    ("warn", S, "http/origin", where(403, 400)),
    ("warn", H, "http/host", where(403, 200)),
    ("warn", H, "http/content-type", where(415, 200)),
    ("fail", H, "http/version-header", where(400, 200)),
    ("fail", H, "http/session-characters", odd_session),
    ("fail", H, "http/session-unknown", where(404, 400)),
    ("warn", H, "http/session-missing", where(400, 200)),
    ("fail", H, "http/session-deleted", where(404, 200)),
    ("fail", S, "http/method-header", without_refusal(-32020)),
    ("fail", S, "http/version-mismatch", without_refusal(-32020)),
    ("fail", S, "http/name-header", without_refusal(-32020)),
    ("fail", S, "http/unknown-method-status", where(404, 200)),
    ("warn", S, "http/no-session", with_session),
    ("fail", S, "stateless/missing-metadata", without_refusal(-32602)),
    ("fail", S, "stateless/unsupported-version", where(400, 200)),
]


@pytest.mark.parametrize(("outcome", "era", "rule", "spoil"), BROKEN, ids=[f"{b[0]} {b[2]} {b[1]}" for b in BROKEN])
async def test_a_broken_rule_is_found(outcome: str, era: Era, rule: str, spoil: Spoilt) -> None:
    async with HttpServer(spoil).on_port() as url:
        report = await check(url, rule, eras=(era,))
    assert named(report) == [f"{outcome} {rule}"]


@pytest.mark.parametrize("streams", [False, True], ids=["JSON", "streams"])
async def test_a_server_that_keeps_every_rule_has_no_findings(streams: bool) -> None:
    eras: tuple[Era, ...] = (HANDSHAKE,) if streams else (HANDSHAKE, STATELESS)
    server = HttpServer(streams=streams)
    async with server.on_port() as url:
        report = await check(url, eras=eras)
    assert findings(report) == []
    assert server.sessions == set(), "every session that was opened is ended"


async def test_an_event_that_is_no_message_is_found() -> None:
    async with HttpServer(noisy, streams=True).on_port() as url:
        report = await check(url, "http/stream-shape", eras=(HANDSHAKE,))
    assert named(report) == ["warn http/stream-shape"]


def test_every_rule_of_http_is_broken_by_a_test() -> None:
    tried = {rule for _, _, rule, _ in BROKEN} | {"http/stream-shape"}
    assert [rule.id for rule in RULES if rule.area == "http" and rule.id not in tried] == []


def one_session(asked: Asked, answered: Answered) -> Answered:
    if asked.rpc == "initialize" and answered.headers.get("Mcp-Session-Id") != "session-0":
        return Answered(400, b"{}", JSON)
    return answered


async def test_what_needs_a_second_conversation_does_not_apply_to_a_server_of_one() -> None:
    async with HttpServer(one_session).on_port() as url:
        report = await check(url, "lifecycle", "http", eras=(HANDSHAKE,))
    assert findings(report) == []
    apart = {finding.rule for finding in report.findings if "one conversation" in finding.seen}
    assert apart >= {"lifecycle/unknown-version", "http/session-deleted"}


async def test_our_server_has_no_findings_over_http() -> None:
    listener = Http(port=0)
    ready = asyncio.Event()
    app = shop()
    serving = asyncio.create_task(app.serve(listener, ready=ready.set))
    await ready.wait()
    try:
        report = await check(listener.url)
    finally:
        await app.stop()
        await serving
    assert findings(report) == []
    assert report.count("pass") > 100
