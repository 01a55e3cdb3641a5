"""The HTTP+SSE pair, asked at the doors of a real server; time is virtual."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from ferrule.protocol.handshake import REVISIONS
from ferrule.transports.http.message import HttpRequest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pair_desk import Page, call, desk, initialize, new_server, text

pytestmark = pytest.mark.usefixtures("virtual_time")

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


# -- the stream and the address to post to


async def test_the_first_event_says_where_to_post() -> None:
    """SSE-1, SSE-2, SSEV-01: GET gives a stream, whose first event is a relative URI with an unguessable session."""
    async with desk() as at:
        page = await at.get("/sse", accept="text/event-stream")
        assert page.body.startswith(b"event: endpoint\n")
        assert re.fullmatch(rf"/messages\?session_id={UUID}", page.endpoint)
        where = urlsplit(urljoin("http://127.0.0.1:8000/sse", page.endpoint))
        assert where.netloc == "127.0.0.1:8000"


async def test_below_a_mount_the_place_to_post_is_below_it_too() -> None:
    """SSE-2: the address is relative to the origin, so it says where we are mounted."""
    async with desk() as at:
        page = Page()
        named = {b"host": b"127.0.0.1:8000", b"accept": b"text/event-stream"}
        at.doors.handle(HttpRequest("GET", "/sse", "", named, root="/tools"), page)
        await asyncio.sleep(0)
        assert re.fullmatch(rf"/tools/messages\?session_id={UUID}", page.endpoint)


async def test_every_stream_is_a_session_of_its_own() -> None:
    async with desk() as at:
        first, second = await at.connect(), await at.connect()
        assert first.endpoint != second.endpoint
        at.post(first.endpoint, call(1, "add", a=1, b=2))
        await first.until(2)
        assert len(second.messages) == 1


async def test_a_post_is_acknowledged_and_answered_on_the_stream() -> None:
    """SSE-3, SSEV-05: messages come as `message` events; the POST is 202 and has no body."""
    async with desk() as at:
        page = await at.connect()
        posted = at.post(page.endpoint, call(7, "add", a=1, b=2))
        assert (posted.status, posted.body) == (202, b"")
        answer = (await page.until(2))[1]
        assert (answer["id"], text(answer)) == (7, "3")
        assert [each.name for each in page.events] == ["message", "message"]


async def test_a_stream_has_the_headers_of_server_sent_events() -> None:
    """SSEV-03."""
    async with desk() as at:
        page = await at.get("/sse")
        assert page.status == 200
        assert page.head["content-type"] == "text/event-stream"
        assert "no-cache" in page.head["cache-control"]
        assert "connection" not in page.head, "what is not closed is kept alive"


@pytest.mark.parametrize("version", REVISIONS)
async def test_every_revision_of_the_handshake_can_be_agreed_on(version: str) -> None:
    async with desk() as at:
        page = await at.connect(version=version)
        assert page.messages[0]["result"]["protocolVersion"] == version
        at.post(page.endpoint, call(1, "add", a=1, b=2))
        assert text((await page.until(2))[1]) == "3"


async def test_the_server_asks_on_the_stream_and_is_answered_by_a_post() -> None:
    async with desk() as at:
        page = await at.connect()
        at.post(page.endpoint, call(1, "roots"))
        question = (await page.until(2))[1]
        assert question["method"] == "roots/list"
        result = {"roots": [{"uri": "file:///home"}]}
        answered = at.post(page.endpoint, {"jsonrpc": "2.0", "id": question["id"], "result": result})
        assert answered.status == 202
        assert text((await page.until(3))[2]) == "file:///home"


async def test_a_handler_sees_the_headers_of_its_own_post() -> None:
    async with desk() as at:
        page = await at.connect(user_agent="reader")
        at.post(page.endpoint, call(1, "name_of", header="user-agent"), user_agent="writer")
        assert text((await page.until(2))[1]) == "writer"


async def test_updates_come_on_the_stream_unasked() -> None:
    async with desk(server := new_server()) as at:
        page = await at.connect()
        at.post(
            page.endpoint,
            {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": "note://one"}},
        )
        await page.until(2)
        server.notify_resource_updated("note://one")
        assert (await page.until(3))[2]["method"] == "notifications/resources/updated"
        assert page.events[-1].name == "message"


async def test_streamable_http_is_served_beside_the_pair() -> None:
    """SSE-6: each door opens its own sessions only."""
    async with desk() as at:
        new = at.post("/mcp", initialize("2025-06-18"), accept="application/json, text/event-stream")
        assert new.json["result"]["protocolVersion"] == "2025-06-18"
        page = await at.connect()
        paired = page.endpoint.partition("=")[2]
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert at.post(f"/messages?session_id={new.head['mcp-session-id']}", ping).status == 404
        assert at.post("/mcp", ping, mcp_session_id=paired, accept="*/*").status == 404


async def test_without_the_option_there_is_no_pair() -> None:
    async with desk(sse=False) as at:
        assert (await at.get("/sse")).status == 404
        assert at.post("/messages", {}).status == 404


# -- what is refused


async def test_an_unknown_session_is_404_and_none_is_400() -> None:
    async with desk() as at:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert at.post("/messages?session_id=00000000-0000-4000-8000-000000000000", ping).status == 404
        assert at.post("/messages?session_id=%C3%A9%F0%9F%98%80%0A", ping).status == 404
        assert at.post("/messages", ping).status == 400
        assert at.post("/messages?session_id=", ping).status == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b'{"jsonrpc": "2.0"}', b"\xff"])
async def test_what_is_no_message_is_400_and_nothing_on_the_stream(body: bytes) -> None:
    async with desk() as at:
        page = await at.connect()
        posted = at.post(page.endpoint, body)
        assert posted.status == 400
        assert posted.json["error"]["code"] in {-32700, -32600}
        await asyncio.sleep(1)
        assert len(page.messages) == 1


async def test_a_call_before_the_handshake_is_an_error_on_the_stream() -> None:
    async with desk() as at:
        page = await at.get("/sse")
        assert at.post(page.endpoint, call(1, "add", a=1, b=2)).status == 202
        (refused,) = await page.until(1)
        assert (refused["id"], refused["error"]["code"]) == (1, -32600)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_type": "text/plain"}, 415),
        ({"content_type": ""}, 415),
        ({"content_encoding": "gzip"}, 415),
        ({"origin": "https://evil.example"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost:8000", "origin": "http://localhost:8000"}, 202),
        ({"origin": "https://good.example"}, 202),
        ({"content_type": "application/json; charset=utf-8"}, 202),
    ],
)
async def test_who_may_post_is_judged_by_the_head(headers: dict[str, str], status: int) -> None:
    """SSE-5."""
    async with desk(allowed_origins=("https://good.example",)) as at:
        page = await at.connect()
        posted = at.post(page.endpoint, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, **headers)
        assert posted.status == status
        await asyncio.sleep(1)
        assert len(page.messages) == (2 if status == 202 else 1)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"host": "evil.example"}, 403),
        ({"accept": "application/json"}, 406),
        ({"accept": "*/*"}, 200),
        ({"origin": "https://good.example"}, 200),
    ],
)
async def test_who_may_read_is_judged_by_the_head(headers: dict[str, str], status: int) -> None:
    """SSE-5: a page of another origin opens no session; an allowed one may read the answer."""
    async with desk(allowed_origins=("https://good.example",)) as at:
        page = await at.get("/sse", **headers)
        assert page.status == status
        assert len(at.doors.sessions) == (1 if status == 200 else 0)
        assert page.head.get("access-control-allow-origin") == (headers.get("origin") if status == 200 else None)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/sse", "GET, OPTIONS"), ("DELETE", "/sse", "GET, OPTIONS"), ("GET", "/messages", "POST, OPTIONS")],
)
async def test_another_method_is_405(method: str, path: str, allowed: str) -> None:
    async with desk() as at:
        page = at.ask(method, path)
        assert (page.status, page.head["allow"]) == (405, allowed)


async def test_a_browser_is_told_beforehand_what_it_may_send() -> None:
    async with desk(allowed_origins=("https://good.example",)) as at:
        page = at.ask("OPTIONS", "/messages", origin="https://good.example")
        assert page.status == 204
        assert page.head["access-control-allow-origin"] == "https://good.example"
        assert page.head["access-control-allow-methods"] == "POST, OPTIONS"
        assert "Last-Event-ID" in page.head["access-control-allow-headers"]


async def test_a_body_over_the_limit_is_413() -> None:
    async with desk(max_body_size=2000) as at:
        page = await at.connect()
        assert at.post(page.endpoint, b" " * 2001).status == 413
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
        assert at.post(page.endpoint, ping.ljust(2000)).status == 202


# -- coming back


async def test_events_are_numbered_and_say_when_to_come_back() -> None:
    """SSEV-06, SSEV-07: ids increase, from the first event on, and `retry` is sent."""
    async with desk() as at:
        page = await at.connect()
        for number in range(1, 4):
            at.post(page.endpoint, call(number, "add", a=number, b=0))
        await page.until(4)
        session = page.endpoint.partition("=")[2]
        ids = re.findall(rb"^id: (.*)$", page.body, re.MULTILINE)
        assert ids == [f"{session}-{number}".encode() for number in range(5)]
        assert b"\nretry: 5000\n" in page.body.partition(b"\n\n")[0]


@pytest.mark.parametrize("named", [True, False], ids=["with the session", "by the event alone"])
async def test_a_reader_that_comes_back_gets_what_it_missed_once(named: bool) -> None:
    """SSEV-08, SSEV-14: a browser's EventSource comes back to the same address with nothing but Last-Event-ID."""
    async with desk() as at:
        page = await at.connect()
        at.post(page.endpoint, call(1, "add", a=1, b=0))
        await page.until(2)
        last = page.events[-1].id
        page.lose()
        for number in (2, 3):
            at.post(page.endpoint, call(number, "add", a=number, b=0))
        await asyncio.sleep(1)
        query = f"?{page.endpoint.partition('?')[2]}" if named else ""
        again = await at.get(f"/sse{query}", last_event_id=last)
        assert again.endpoint == page.endpoint
        assert [each["id"] for each in again.messages] == [2, 3]
        at.post(page.endpoint, call(4, "add", a=4, b=0))
        assert [each["id"] for each in await again.until(3)] == [2, 3, 4]


async def test_a_reader_cut_right_after_it_came_back_can_come_back_again() -> None:
    async with desk() as at:
        page = await at.connect()
        last = page.events[-1].id
        page.lose()
        at.post(page.endpoint, call(1, "add", a=1, b=0))
        await asyncio.sleep(1)
        again = await at.get("/sse", last_event_id=last)
        only_the_endpoint = again.body.partition(b"\n\n")[0]
        assert f"id: {last}".encode() in only_the_endpoint


async def test_nothing_foreign_is_ever_replayed() -> None:
    async with desk() as at:
        mine, other = await at.connect(), await at.connect()
        mine.lose()
        query = mine.endpoint.partition("?")[2]
        assert (await at.get(f"/sse?{query}", last_event_id=other.events[0].id)).status == 404
        session = query.partition("=")[2]
        for foreign in ("42", "1-1", f"{session}-99", f"{session}-x", f"{session}-²", session):
            assert (await at.get("/sse", last_event_id=foreign)).status == 404, foreign
        assert other.gone is False


async def test_what_is_no_longer_kept_is_not_resumed() -> None:
    """SSEV-12: at most so many events wait for a lost reader; who missed more is told, instead of a gap."""
    async with desk(max_events=3) as at:
        page = await at.connect()
        last = page.events[-1].id
        page.lose()
        for number in range(1, 6):
            at.post(page.endpoint, call(number, "add", a=number, b=0))
            await asyncio.sleep(1)
        assert (await at.get("/sse", last_event_id=last)).status == 404
        recent = last.rpartition("-")[0] + "-3"
        assert [each["id"] for each in (await at.get("/sse", last_event_id=recent)).messages] == [3, 4, 5]


async def test_a_reader_that_comes_back_takes_the_place_of_the_one_that_seems_alive() -> None:
    async with desk() as at:
        page = await at.connect()
        again = await at.get("/sse", last_event_id=page.events[-1].id)
        assert page.whole
        at.post(page.endpoint, call(1, "add", a=1, b=0))
        assert text((await again.until(1))[0]) == "1"
        assert len(page.messages) == 1


async def test_a_reader_that_lags_too_far_behind_is_cut_and_can_come_back() -> None:
    """SSEV-12."""
    async with desk(max_stream_backlog=1000) as at:
        page = await at.connect()
        last = page.events[-1].id
        page.backlog = 50_000
        at.post(page.endpoint, call(1, "add", a=1, b=0))
        await asyncio.sleep(1)
        assert page.cut
        assert [each["id"] for each in (await at.get("/sse", last_event_id=last)).messages] == [1]


# -- the life of a session


async def test_a_call_goes_on_while_its_reader_is_away() -> None:
    async with desk() as at:
        page = await at.connect()
        at.post(page.endpoint, call(1, "nap", seconds=20))
        await asyncio.sleep(1)
        page.lose()
        await asyncio.sleep(30)
        again = await at.get("/sse", last_event_id=page.events[-1].id)
        assert text(again.messages[0]) == "rested"


async def test_a_session_ends_when_its_reader_stays_away() -> None:
    """HTTP-22: a session is there from connecting on, and what runs in it ends with it."""
    async with desk(server := new_server(), sse_grace=60) as at:
        page = await at.connect()
        at.post(page.endpoint, call(1, "nap", seconds=10_000))
        page.lose()
        await asyncio.sleep(50)
        assert [len(link.session.running) for link in server.host.links].count(1) == 1
        await asyncio.sleep(20)
        assert len(at.doors.sessions) == 0
        assert at.post(page.endpoint, call(2, "add", a=1, b=1)).status == 404
        assert (await at.get("/sse", last_event_id=page.events[-1].id)).status == 404
        assert not any(link.session.running for link in server.host.links)


async def test_coming_back_in_time_keeps_a_session_for_good() -> None:
    async with desk(sse_grace=60) as at:
        page = await at.connect()
        for _ in range(5):
            last = page.events[-1].id
            page.lose()
            await asyncio.sleep(50)
            page = await at.get("/sse", last_event_id=last)
            at.post(page.endpoint, call(1, "add", a=1, b=1))
            await page.until(1)
        page.lose()
        await asyncio.sleep(50)
        await at.get("/sse", last_event_id=page.events[-1].id)
        await asyncio.sleep(1000)
        assert len(at.doors.sessions) == 1


async def test_a_stream_stays_open_and_shows_that_it_lives() -> None:
    """SSEV-10, SSEV-13: six hours of silence, with a comment every 15 s; its age ends no session that is read."""
    async with desk(stream_keepalive=15.0, session_lifetime=3600) as at:
        page = await at.connect()
        before = len(page.body)
        await asyncio.sleep(6 * 3600)
        silence = page.body[before:]
        assert set(silence.split(b"\n\n")) == {b":", b""}
        assert 6 * 3600 / 18 <= silence.count(b":") <= 6 * 3600 / 14
        at.post(page.endpoint, call(1, "add", a=1, b=1))
        assert text((await page.until(2))[1]) == "2"


async def test_a_client_that_posts_nothing_is_told_and_sent_away() -> None:
    """SSEV-05: what was wrong comes as an `error` event, before the stream ends."""
    async with desk(sse_grace=60) as at:
        page = await at.get("/sse")
        await asyncio.sleep(50)
        assert not page.events
        await asyncio.sleep(15)
        error, close = page.events
        assert (error.name, close.name) == ("error", "close")
        assert "not used" in json.loads(error.data)["error"]["message"]
        assert page.whole
        assert len(at.doors.sessions) == 0


async def test_a_version_that_is_refused_for_good_ends_the_session() -> None:
    """SSEV-05."""
    async with desk(new_server(strict_version=True)) as at:
        page = await at.get("/sse")
        at.post(page.endpoint, initialize("1999-01-01"))
        await asyncio.sleep(1)
        assert [each.name for each in page.events] == ["message", "error", "close"]
        assert json.loads(page.events[1].data)["error"]["message"] == "unsupported protocol version"


async def test_a_session_counts_among_all_sessions() -> None:
    async with desk(max_sessions=3) as at:
        pages = [await at.connect() for _ in range(3)]
        pages[0].lose()
        await asyncio.sleep(3)
        at.post("/mcp", initialize("2025-06-18"), accept="application/json, text/event-stream")
        assert len(at.doors.sessions) == 3
        ping = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
        assert [at.post(page.endpoint, ping).status for page in pages] == [404, 202, 202]


async def test_the_end_of_the_server_is_announced() -> None:
    """SSEV-11, SHUT-04: running calls are answered first, then `close` is said and the stream ends."""
    async with desk() as at:
        page = await at.connect()
        at.post(page.endpoint, call(1, "nap", seconds=3))
        await asyncio.sleep(1)
        draining = asyncio.ensure_future(at.doors.drain(10))
        await asyncio.sleep(1)
        assert (await at.get("/sse")).status == 503
        await draining
        await at.doors.close()
        assert text(page.messages[1]) == "rested"
        assert [each.name for each in page.events] == ["message", "message", "close"]
        assert page.events[-1].id == page.events[-2].id
        assert page.whole
