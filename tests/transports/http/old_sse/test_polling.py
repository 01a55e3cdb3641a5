"""The seed's routes, asked at the doors of a real server; time is virtual."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule.server.server import Server

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pair_desk import OLDEST, Desk, call, desk, new_server, text

pytestmark = pytest.mark.usefixtures("virtual_time")

SUBSCRIBE = {"jsonrpc": "2.0", "id": 50, "method": "resources/subscribe", "params": {"uri": "note://one"}}


def polled(server: Server | None = None, **settings: Any) -> Any:
    return desk(server, sse=False, poll_routes=True, **settings)


async def create(at: Desk) -> str:
    """Create a session, make its handshake, and hear the answer."""
    session = at.ask("POST", "/mcp/sessions/create").json["session_id"]
    await at.greet(f"/mcp/messages?session_id={session}")
    (answer,) = (await at.get(f"/mcp/events?session_id={session}")).json
    assert answer["result"]["protocolVersion"] == OLDEST
    return str(session)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/mcp/sse"),
        ("POST", "/mcp/messages"),
        ("POST", "/mcp/sessions/create"),
        ("GET", "/mcp/events"),
    ],
)
async def test_the_routes_are_there_only_if_enabled(method: str, path: str) -> None:
    """seed:HTTP-18."""
    async with desk(sse=True, poll_routes=False) as at:
        assert at.ask(method, path).status == 404
    async with polled() as at:
        assert at.ask(method, path).status != 404
        assert (await at.get("/sse")).status == 404


async def test_a_session_can_be_created_before_anything_is_read() -> None:
    """SSEV-09: its id is a random UUID, and an unknown one is refused."""
    async with polled() as at:
        page = at.ask("POST", "/mcp/sessions/create")
        assert (page.status, list(page.json)) == (200, ["session_id"])
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", page.json["session_id"])
        unknown = "session_id=00000000-0000-4000-8000-000000000000"
        assert at.post(f"/mcp/messages?{unknown}", {}).status == 404
        assert (await at.get(f"/mcp/sse?{unknown}")).status == 404
        assert (await at.get(f"/mcp/events?{unknown}")).status == 404
        assert (await at.get("/mcp/events")).status == 400


async def test_a_created_session_is_read_as_a_stream() -> None:
    """SSEV-09: what was said before there was a reader comes first."""
    async with polled() as at:
        session = at.ask("POST", "/mcp/sessions/create").json["session_id"]
        await at.greet(f"/mcp/messages?session_id={session}")
        page = await at.get(f"/mcp/sse?session_id={session}")
        assert page.endpoint == f"/mcp/messages?session_id={session}"
        assert page.messages[0]["result"]["protocolVersion"] == OLDEST
        at.post(page.endpoint, call(1, "add", a=1, b=2))
        assert text((await page.until(2))[1]) == "3"


async def test_an_ordinary_old_client_works_at_the_seeds_address() -> None:
    """SSEV-01: no session is created first, and notifications are `message` events like all else."""
    async with polled(server := new_server()) as at:
        page = await at.connect("/mcp/sse")
        assert page.endpoint.startswith("/mcp/messages?session_id=")
        at.post(page.endpoint, SUBSCRIBE)
        await page.until(2)
        server.notify_resource_updated("note://one")
        await page.until(3)
        assert {each.name for each in page.events} == {"message"}


async def test_a_created_session_speaks_with_the_seeds_event_names() -> None:
    """SSEV-05, SSEV-10: notifications and keep-alive are named events; the latter has an id and no data."""
    async with polled(server := new_server(), stream_keepalive=10.0) as at:
        session = await create(at)
        page = await at.get(f"/mcp/sse?session_id={session}")
        at.post(page.endpoint, SUBSCRIBE)
        await page.until(1)
        server.notify_resource_updated("note://one")
        await page.until(2)
        assert [each.name for each in page.events] == ["message", "notification"]
        await asyncio.sleep(30)
        assert f"event: keepalive\nid: {page.events[-1].id}\n\n".encode() in page.body
        await at.doors.close()
        assert page.events[-1].name == "close"


# -- polling


async def test_a_poll_hands_out_what_was_said_since_the_last_one() -> None:
    """seed:HTTP-16, seed:HTTP-18: answers and notifications wait for the client to ask."""
    async with polled(server := new_server()) as at:
        session = await create(at)
        events, messages = f"/mcp/events?session_id={session}", f"/mcp/messages?session_id={session}"
        assert (await at.get(events)).json == []
        assert at.post(messages, SUBSCRIBE).status == 202
        assert at.post(messages, call(1, "add", a=1, b=2)).status == 202
        await asyncio.sleep(1)
        server.notify_resource_updated("note://one")
        await asyncio.sleep(1)
        page = await at.get(events)
        assert page.head["content-type"] == "application/json"
        assert [each.get("id", each.get("method")) for each in page.json] == [50, 1, "notifications/resources/updated"]
        assert (await at.get(events)).json == []


async def test_the_server_can_ask_a_client_that_polls() -> None:
    async with polled() as at:
        session = await create(at)
        messages = f"/mcp/messages?session_id={session}"
        at.post(messages, call(1, "roots"))
        await asyncio.sleep(1)
        (question,) = (await at.get(f"/mcp/events?session_id={session}")).json
        result = {"roots": [{"uri": "file:///home"}]}
        at.post(messages, {"jsonrpc": "2.0", "id": question["id"], "result": result})
        await asyncio.sleep(1)
        (answer,) = (await at.get(f"/mcp/events?session_id={session}")).json
        assert text(answer) == "file:///home"


async def test_a_poll_whose_answer_was_lost_is_repeated_with_the_last_event() -> None:
    async with polled() as at:
        session = await create(at)
        events = f"/mcp/events?session_id={session}"
        last = (await at.get(events)).head["last-event-id"]
        at.post(f"/mcp/messages?session_id={session}", call(1, "add", a=1, b=2))
        await asyncio.sleep(1)
        (lost,) = (await at.get(events)).json
        again = await at.get(events, last_event_id=last)
        assert again.json == [lost]
        assert again.head["last-event-id"] == f"{session}-2"
        assert (await at.get(events, last_event_id="42")).status == 404


async def test_more_than_is_kept_is_told_and_not_a_silent_gap() -> None:
    """seed:HTTP-23, SSEV-12: what waits for a poll is bounded; after the loss was told, polling goes on."""
    async with polled(max_events=3) as at:
        session = await create(at)
        events, messages = f"/mcp/events?session_id={session}", f"/mcp/messages?session_id={session}"
        for number in range(5):
            at.post(messages, call(number, "add", a=1, b=2))
        await asyncio.sleep(1)
        assert (await at.get(events)).status == 410
        at.post(messages, call(9, "add", a=1, b=2))
        await asyncio.sleep(1)
        assert [each["id"] for each in (await at.get(events)).json] == [9]


async def test_a_session_that_is_read_as_a_stream_is_not_polled() -> None:
    async with polled() as at:
        session = await create(at)
        page = await at.get(f"/mcp/sse?session_id={session}")
        assert (await at.get(f"/mcp/events?session_id={session}")).status == 409
        at.post(page.endpoint, call(1, "add", a=1, b=2))
        await page.until(1)
        page.lose()
        assert (await at.get(f"/mcp/events?session_id={session}")).json == []


async def test_a_created_session_lives_by_itself_until_it_is_idle() -> None:
    """seed:HTTP-22."""
    async with polled(session_idle_timeout=600, sse_grace=60) as at:
        session = await create(at)
        (await at.get(f"/mcp/sse?session_id={session}")).lose()
        await asyncio.sleep(500)
        assert (await at.get(f"/mcp/events?session_id={session}")).status == 200
        await asyncio.sleep(700)
        assert (await at.get(f"/mcp/events?session_id={session}")).status == 404
        assert len(at.doors.sessions) == 0


async def test_pages_of_other_origins_neither_create_nor_poll() -> None:
    async with polled() as at:
        session = await create(at)
        evil = {"origin": "https://evil.example"}
        assert at.ask("POST", "/mcp/sessions/create", **evil).status == 403
        assert (await at.get(f"/mcp/events?session_id={session}", **evil)).status == 403
        assert len(at.doors.sessions) == 1


async def test_created_sessions_are_bounded() -> None:
    async with polled(max_sessions=5) as at:
        for _ in range(20):
            assert at.ask("POST", "/mcp/sessions/create").status == 200
        assert len(at.doors.sessions) == 5


# -- long polling


async def test_a_long_poll_is_answered_when_something_is_said() -> None:
    """seed:HTTP-17."""
    async with polled(server := new_server()) as at:
        session = await create(at)
        at.post(f"/mcp/messages?session_id={session}", SUBSCRIBE)
        await asyncio.sleep(1)
        await at.get(f"/mcp/events?session_id={session}")
        page = await at.get(f"/mcp/events?session_id={session}&wait=true")
        await asyncio.sleep(20)
        assert not page.status
        server.notify_resource_updated("note://one")
        await asyncio.sleep(1)
        assert [each["method"] for each in page.json] == ["notifications/resources/updated"]


async def test_a_long_poll_is_answered_at_once_when_something_waits() -> None:
    async with polled() as at:
        session = await create(at)
        at.post(f"/mcp/messages?session_id={session}", call(1, "add", a=1, b=2))
        await asyncio.sleep(1)
        assert len((await at.get(f"/mcp/events?session_id={session}&wait=true")).json) == 1


async def test_a_long_poll_is_answered_with_nothing_at_its_timeout() -> None:
    """seed:HTTP-17."""
    async with polled(poll_timeout=30) as at:
        session = await create(at)
        page = await at.get(f"/mcp/events?session_id={session}&wait=true")
        await asyncio.sleep(29)
        assert not page.status
        await asyncio.sleep(2)
        assert (page.status, page.json) == (200, [])


async def test_a_second_long_poll_takes_the_place_of_the_first() -> None:
    async with polled() as at:
        session = await create(at)
        first = await at.get(f"/mcp/events?session_id={session}&wait=true")
        second = await at.get(f"/mcp/events?session_id={session}&wait=true")
        await asyncio.sleep(0)
        assert first.json == []
        at.post(f"/mcp/messages?session_id={session}", call(1, "add", a=1, b=2))
        await asyncio.sleep(1)
        assert len(second.json) == 1


async def test_a_stream_takes_the_place_of_a_long_poll() -> None:
    async with polled() as at:
        session = await create(at)
        poll = await at.get(f"/mcp/events?session_id={session}&wait=true")
        page = at.ask("GET", f"/mcp/sse?session_id={session}")
        while not page.status:
            await asyncio.sleep(0)
        at.post(page.endpoint, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        await asyncio.sleep(1)
        assert (len(page.messages), poll.json) == (1, [])


async def test_what_is_said_after_a_long_poll_was_given_up_waits_for_the_next() -> None:
    async with polled() as at:
        session = await create(at)
        poll = await at.get(f"/mcp/events?session_id={session}&wait=true")
        poll.lose()
        at.post(f"/mcp/messages?session_id={session}", call(1, "add", a=1, b=2))
        await asyncio.sleep(1)
        assert not poll.status
        assert len((await at.get(f"/mcp/events?session_id={session}")).json) == 1


async def test_a_long_poll_is_answered_when_the_server_ends() -> None:
    async with polled() as at:
        session = await create(at)
        poll = await at.get(f"/mcp/events?session_id={session}&wait=true")
        await at.doors.drain(1)
        await at.doors.close()
        assert (poll.status, poll.json) == (200, [])
        assert at.ask("POST", "/mcp/sessions/create").status == 503
