"""One session of the handshake era: its streams, and the ways back of its exchanges."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from msgspec import UNSET

from ferrule import Context
from ferrule.errors import LinkLost
from ferrule.protocol.handshake import REVISIONS
from ferrule.stores.memory import MemoryEventLog
from ferrule.transports.http.endpoint.keepalive import Keepalive
from ferrule.transports.http.endpoint.session import (
    MAX_ALL_UNDELIVERED_BYTES,
    MAX_UNDELIVERED_BYTES,
    MOST_FINISHED,
    MOST_UNDELIVERED,
    STANDING,
    HttpSession,
    SessionChannel,
    SessionExchange,
)
from ferrule.transports.http.endpoint.streams import EndpointStreams
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.codec import encode
from ferrule.wire.messages import ErrorObject, Failure, Notification, Request, Success

CHANGED = Notification("notifications/tools/list_changed")
ASKS = {"elicitation": {}, "sampling": {}, "roots": {}}


def lone_session(**settings: Any) -> HttpSession:
    shared = EndpointStreams(MemoryEventLog(), Keepalive(2.0, 15.0, lambda now: None), EndpointSettings(**settings))
    return HttpSession("an-id", None, None, shared)  # type: ignore[arg-type]


# -- its streams


def test_an_event_is_found_by_its_id_and_nothing_else_is() -> None:
    """SES-09."""
    session, other = lone_session(), lone_session()
    other.id = "another-id"
    mine, theirs = session.new_stream(), other.new_stream()
    assert session.stream_of(f"{mine.name}-12") == (mine, 12)
    assert session.stream_of(f"{mine.name}-999999999999") == (mine, 999_999_999_999)
    assert mine.name != theirs.name
    wrong = [
        f"{theirs.name}-1",
        mine.name,
        f"{mine.name}-",
        f"{mine.name}--1",
        f"{mine.name}-x",
        f"{mine.name}-1.5",
        f"{mine.name}-٣",
        f"{mine.name}-1000000000000",
        f"{mine.name}-{'9' * 5000}",
        "../../etc/passwd",
        "",
        "-",
        "\0",
    ]
    assert [session.stream_of(event_id) for event_id in wrong] == [None] * len(wrong)
    assert lone_session().stream_of(f"{mine.name}-1") is None


def test_the_ids_of_all_streams_of_a_session_differ() -> None:
    """HTL-11."""
    session = lone_session()
    names = [session.new_stream().name for _ in range(100)]
    assert len(set(names)) == 100
    assert all(re.fullmatch(r"[0-9a-f]{12}\.[0-9a-f]{1,2}", name) for name in names)
    assert names[0].endswith(".1")


def test_only_so_many_streams_that_ended_are_kept() -> None:
    session = lone_session()
    for _ in range(100):
        stream = session.new_stream()
        stream.finish(b"{}")
        session.finished(stream)
    assert len(session.streams) == MOST_FINISHED
    assert len(session.shared.log) == MOST_FINISHED  # type: ignore[arg-type]
    session.end()
    assert (len(session.streams), len(session.shared.log)) == (0, 0)  # type: ignore[arg-type]


def test_ended_streams_of_all_sessions_are_bounded_and_whoever_keeps_most_loses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ferrule.transports.http.endpoint.session.MAX_ALL_FINISHED", 100)
    quiet = lone_session()
    _finish_streams(quiet, 2)
    loud = [HttpSession(f"loud {number}", None, None, quiet.shared) for number in range(20)]  # type: ignore[arg-type]
    for session in loud:
        _finish_streams(session, MOST_FINISHED)
    assert len(quiet.streams) == 2
    assert sum(len(session.streams) for session in loud) == 98
    assert len(quiet.shared.log) == 100  # type: ignore[arg-type]
    for session in (quiet, *loud):
        session.end()
    assert (quiet.shared.finished.total, len(quiet.shared.finished)) == (0, 0)


def _finish_streams(session: HttpSession, count: int) -> None:
    for _ in range(count):
        stream = session.new_stream()
        stream.finish(b"{}")
        session.finished(stream)


# -- its exchanges


async def test_only_an_exchange_that_waits_for_its_answer_is_watched_over(answering: Any) -> None:
    session = lone_session()
    exchange = SessionExchange(answering(), b"", session, SessionChannel(session))
    assert not session.shared.keepalive.pending
    exchange.mark_pending()
    assert session.shared.keepalive.pending == {exchange}
    exchange.send(Success(1, {}))
    assert not session.shared.keepalive.pending
    session.end()


async def test_an_exchange_that_would_wait_in_a_session_that_is_over_is_refused(answering: Any) -> None:
    session, answer = lone_session(), answering()
    exchange = SessionExchange(answer, b"", session, SessionChannel(session))
    session.end()
    exchange.mark_pending()
    assert (answer.status, exchange.open) == (404, False)
    assert not session.shared.keepalive.pending


async def test_the_end_of_one_exchange_does_not_hide_the_others_from_the_end_of_the_session(answering: Any) -> None:
    session = lone_session()
    answers = [answering() for _ in range(3)]
    exchanges = [SessionExchange(answer, b"", session, SessionChannel(session)) for answer in answers]
    for exchange in exchanges:
        exchange.mark_pending()
    exchanges[1].send(Success(1, {}))
    session.end()
    assert [answer.status for answer in answers] == [404, 200, 404]
    assert session._answering is None
    assert not session.shared.keepalive.pending


async def test_an_exchange_that_streams_is_not_watched_over_as_one_that_waits(answering: Any) -> None:
    session, answer = lone_session(), answering()
    exchange = SessionExchange(answer, b"", session, SessionChannel(session))
    exchange.mark_pending()
    exchange.send(CHANGED)
    assert not session.shared.keepalive.pending
    exchange.mark_pending()
    assert not session.shared.keepalive.pending
    assert [message["method"] for message in answer.messages] == [CHANGED.method]
    exchange.send(Success(1, {}))
    assert answer.messages[-1]["id"] == 1
    exchange.send(Success(1, {}))
    exchange.send(CHANGED)
    assert len(answer.messages) == 2


async def test_an_answer_to_what_could_not_be_read_is_told_by_its_status(answering: Any) -> None:
    for identity, status in ((None, 400), (UNSET, 400), (1, 200), ("a", 200)):
        session, answer = lone_session(), answering()
        SessionExchange(answer, b"", session, SessionChannel(session)).send(
            Failure(identity, ErrorObject(-32700, "no"))
        )
        assert answer.status == status


async def test_a_cancelled_call_lets_its_connection_go_once(answering: Any) -> None:
    session, answer = lone_session(), answering()
    exchange = SessionExchange(answer, b"", session, SessionChannel(session))
    exchange.mark_pending()
    exchange.withdrawn()
    assert (answer.status, exchange.open) == (202, False)
    exchange.withdrawn()
    exchange.close()
    exchange.send(Success(1, {}))
    assert answer.status == 202


@pytest.mark.parametrize("end", ["withdrawn", "close"])
async def test_a_stream_that_ends_without_an_answer_is_kept_like_any_other(answering: Any, end: str) -> None:
    session, answer = lone_session(), answering()
    exchange = SessionExchange(answer, b"", session, SessionChannel(session))
    exchange.send(CHANGED)
    getattr(exchange, end)()
    assert session._finished is not None
    assert len(session._finished) == len(session.streams) == 1
    assert session.streams[0].ended


@pytest.mark.parametrize("streamed", [False, True])
async def test_only_so_many_answers_that_came_as_events_are_kept(answering: Any, streamed: bool) -> None:
    session = lone_session(response="sse")
    for number in range(MOST_FINISHED + 4):
        answer = answering()
        exchange = SessionExchange(answer, b"", session, SessionChannel(session))
        if streamed:
            exchange.send(CHANGED)
        exchange.send(Success(number, {}))
        assert answer.messages[-1]["id"] == number
    assert len(session.streams) == MOST_FINISHED


async def test_an_answer_that_took_a_while_makes_its_session_used(answering: Any) -> None:
    session = lone_session()
    exchange = SessionExchange(answering(), b"", session, SessionChannel(session))
    exchange.mark_pending()
    session.shared.now = 50.0
    exchange.send(Success(1, {}))
    assert (session.started, session.used, session.last_active) == (0.0, 50.0, 50.0)
    stream = session.new_stream()
    stream.last_read = 70.0
    assert session.last_active == 70.0


# -- what belongs to no exchange


async def test_the_clients_own_stream_ends_with_its_channel(answering: Any) -> None:
    standing, answer = SessionChannel(lone_session()), answering()
    standing.close()
    await standing.wait_writable()
    standing.attach(answer, b"")
    await standing.wait_writable()
    assert standing.stream is not None
    standing.close()
    assert standing.stream.ended
    assert not standing.stream.attached
    with pytest.raises(LinkLost, match="no stream open"):
        standing.send(Request(1, "roots/list"))


async def test_who_tells_something_waits_for_the_reader_of_the_clients_own_stream(
    answering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing, waited = SessionChannel(lone_session()), []

    async def wait(stream: Any) -> None:
        waited.append(stream)

    standing.attach(answering(), b"")
    monkeypatch.setattr(type(standing.stream), "wait_writable", wait)
    await standing.wait_writable()
    assert waited == [standing.stream]


async def test_what_is_told_before_anyone_listens_waits_within_bounds(answering: Any) -> None:
    """SSEV-12, seed:HTTP-23."""
    standing, answer = SessionChannel(lone_session()), answering()
    for number in range(100):
        standing.send(Notification("notifications/x", {"n": number}))
    standing.attach(answer, b"")
    assert [message["params"]["n"] for message in answer.messages] == list(range(100 - MOST_UNDELIVERED, 100))
    standing.send(CHANGED)
    assert answer.messages[-1]["method"] == CHANGED.method


async def test_large_events_told_before_anyone_listens_wait_within_bounds_too(answering: Any) -> None:
    session = lone_session()
    standing, answer = SessionChannel(session), answering()
    for number in range(10):
        standing.send(Notification("notifications/x", {"n": number, "text": "x" * 20_000}))
    assert 0 < session.shared.undelivered.total <= MAX_UNDELIVERED_BYTES
    empty = len(encode(Notification("notifications/x", {"n": 10, "text": ""})))
    standing.send(Notification("notifications/x", {"n": 10, "text": "x" * (MAX_UNDELIVERED_BYTES - empty)}))
    assert session.shared.undelivered.total == MAX_UNDELIVERED_BYTES, "one that just fits is kept"
    standing.send(Notification("notifications/x", {"n": 10, "text": "x" * (MAX_UNDELIVERED_BYTES - empty + 1)}))
    assert session.shared.undelivered.total == 0, "one that never fits is not kept"
    standing.send(Notification("notifications/x", {"n": 11}))
    standing.attach(answer, b"")
    assert [message["params"]["n"] for message in answer.messages] == [11]
    assert (session.shared.undelivered.total, len(session.shared.undelivered)) == (0, 0)


async def test_events_for_many_that_do_not_listen_are_taken_from_whoever_has_most(answering: Any) -> None:
    quiet = lone_session()
    standing, answer = SessionChannel(quiet), answering()
    standing.send(Notification("notifications/x", {"n": 0}))
    for _ in range(2 * MAX_ALL_UNDELIVERED_BYTES // MAX_UNDELIVERED_BYTES):
        loud = SessionChannel(HttpSession("loud", None, None, quiet.shared))  # type: ignore[arg-type]
        for _ in range(6):
            loud.send(Notification("notifications/x", {"text": "x" * 10_000}))
    assert quiet.shared.undelivered.total <= MAX_ALL_UNDELIVERED_BYTES
    standing.attach(answer, b"")
    assert [message["params"]["n"] for message in answer.messages] == [0]


def test_nothing_is_kept_for_a_session_that_is_over() -> None:
    session = lone_session()
    standing = SessionChannel(session)
    session.end()
    standing.send(CHANGED)
    assert session.shared.undelivered.total == 0


async def test_a_question_without_anyone_to_hear_it_fails_at_once(answering: Any) -> None:
    standing, answer = SessionChannel(lone_session()), answering()
    question = Request(1, "roots/list")
    with pytest.raises(LinkLost, match="no stream open"):
        standing.send(question)
    standing.attach(answer, b"")
    standing.send(question)
    assert answer.messages[-1]["method"] == "roots/list"
    answer.leave()
    with pytest.raises(LinkLost):
        standing.send(question)


async def test_list_changes_go_out_on_the_standing_stream_once(endpoint: Any, app: Any) -> None:
    """HTL-6, HTL-8, HTL-10, SPEC-06."""
    async with endpoint(app) as doors:
        client = doors.client()
        running = client.call("hold", {"name": "a", "tell": 1}, token=1)
        await running.until(lambda: running.is_stream if running.status else False)
        stream = client.get()
        assert (stream.status, stream.is_stream) == (200, True)
        app.notify_tools_changed()
        await stream.said("notifications/tools/list_changed")
        app.gate("a").set()
        await running.whole()
        assert [message.get("method") for message in running.messages] == ["notifications/progress"] * 2 + [None]
        assert [message["method"] for message in stream.messages] == ["notifications/tools/list_changed"]
        assert not stream.over


async def test_two_standing_streams_hear_a_message_once_between_them(endpoint: Any, app: Any) -> None:
    """SPEC-06, HTL-9."""
    async with endpoint(app) as doors:
        client = doors.client()
        first, second = client.get(), client.get()
        app.notify_tools_changed()
        await second.said("notifications/tools/list_changed")
        assert first.over
        assert first.messages == []


async def test_no_response_ever_goes_out_on_the_standing_stream(endpoint: Any, app: Any) -> None:
    """HTL-8."""
    for response in ("auto", "json", "sse"):
        async with endpoint(app, response=response) as doors:
            client = doors.client()
            stream = client.get()
            for _ in range(3):
                await client.call("echo", {"text": "x"}).whole()
            assert stream.messages == []


async def test_an_idle_standing_stream_stays_open_and_shows_that_it_lives(endpoint: Any, app: Any) -> None:
    """SSEV-13, SSEV-10: an hour, and a day beyond the idle time of its session, which is not too old yet."""
    async with endpoint(app, session_lifetime=200_000) as doors:
        client = doors.client()
        stream = client.get()
        await asyncio.sleep(100_000)
        assert not stream.over
        assert stream.writes.count(b":\n\n") >= 100_000 / 15
        app.notify_tools_changed()
        await stream.said("notifications/tools/list_changed")


# -- exchanges


async def test_a_question_travels_on_the_stream_of_its_own_call(endpoint: Any, app: Any) -> None:
    """HTL-3, HTTP-5: the answer to it is a POST of its own, and 202."""
    async with endpoint(app) as doors:
        client = doors.client(capabilities=ASKS)
        standing = client.get()
        answer = client.call("ask_name")
        asked = await answer.said("elicitation/create")
        answered = client.reply(asked, {"action": "accept", "content": {"value": "Ada"}})
        assert (answered.status, answered.content) == (202, b"")
        assert (await answer.whole()).text == "hello Ada"
        assert standing.messages == []


async def test_where_all_is_json_a_question_goes_to_the_standing_stream_or_fails(endpoint: Any, app: Any) -> None:
    async with endpoint(app, response="json") as doors:
        client = doors.client(capabilities=ASKS)
        assert (await client.call("ask_name").whole()).result()["isError"]
        standing = client.get()
        answer = client.call("ask_name")
        asked = await standing.said("elicitation/create")
        client.reply(asked, {"action": "accept", "content": {"value": "Ada"}})
        assert (await answer.whole()).text == "hello Ada"


# HND-08
async def test_a_lost_connection_cancels_nothing(endpoint: Any, app: Any) -> None:
    """HTL-5."""
    async with endpoint(app) as doors:
        client = doors.client()
        answers = [client.call("hold", {"name": name, "tell": tell}, token=name) for name, tell in (("a", 0), ("b", 1))]
        await doors.settle()
        for answer in answers:
            answer.leave()
        await asyncio.sleep(100)
        for name in "ab":
            app.gate(name).set()
        await asyncio.sleep(1)
        assert (sorted(app.ended), app.cancelled) == (["a", "b"], [])


async def test_a_cancelled_call_stops_and_is_never_answered(endpoint: Any, app: Any) -> None:
    """HTL-5: the client cancels by notification."""
    async with endpoint(app) as doors:
        client = doors.client()
        answer = client.call("hold", {"name": "a", "tell": 1}, token=1, id="mine")
        await doors.settle()
        assert client.cancel("mine").status == 202
        await doors.settle()
        assert app.cancelled == ["a"]
        assert [message.get("method") for message in answer.messages] == ["notifications/progress"]


@pytest.mark.parametrize("tell", [0, 1])
async def test_the_connection_of_a_cancelled_call_is_let_go(endpoint: Any, app: Any, tell: int) -> None:
    async with endpoint(app) as doors:
        client = doors.client()
        answer = client.call("hold", {"name": "a", "tell": tell}, token=1, id="mine")
        await doors.settle()
        client.cancel("mine")
        await asyncio.sleep(60)
        assert answer.over


@pytest.mark.parametrize("version", list(REVISIONS))
async def test_streams_are_primed_in_the_revision_that_has_polling(endpoint: Any, app: Any, version: str) -> None:
    """HTL-20, SPEC-05."""
    async with endpoint(app) as doors:
        client = doors.client(version=version)
        answer = await client.call("count", {"to": 1}, token=1).whole()
        primed = answer.events[0].data == b""
        assert primed == (version == "2025-11-25")
        standing = client.get()
        assert [event.data for event in standing.events] == ([b""] if primed else [])
        assert len(set(answer.ids + standing.ids)) == len(answer.ids + standing.ids)


async def test_a_call_can_let_its_reader_go_and_be_polled(endpoint: Any, app: Any) -> None:
    """HTL-21, SPEC-05, SSEV-08."""
    async with endpoint(app, retry=0.5) as doors:
        client = doors.client()
        answer = await client.call("poll", {"seconds": 10}, token=1).whole()
        assert answer.messages == []
        assert answer.writes[-1] == b"retry: 500\n\n"
        polled = client.get(answer.last_id)
        await polled.until(lambda: polled.status)
        polled.leave()
        await asyncio.sleep(20)
        last = await client.get(answer.last_id).whole()
        assert last.messages[0]["params"]["progress"] == 1
        assert last.text == "polled"
        nothing = await client.get(last.last_id).whole()
        assert (nothing.status, nothing.messages) == (200, [])


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26"])
async def test_before_polling_a_stream_stays_open_until_the_answer(endpoint: Any, app: Any, version: str) -> None:
    """HTL-4."""
    async with endpoint(app) as doors:
        answer = await doors.client(version=version).call("poll", {"seconds": 10}, token=1).whole()
        assert answer.text == "polled"


async def test_where_all_is_json_no_reader_is_let_go(endpoint: Any, app: Any) -> None:
    async with endpoint(app, response="json") as doors:
        assert (await doors.client().call("poll", {"seconds": 10}).whole()).text == "polled"


async def test_an_answer_that_was_streamed_can_be_read_again(endpoint: Any, app: Any) -> None:
    """HTL-12, RES-03."""
    async with endpoint(app, response="sse") as doors:
        client = doors.client()
        answer = await client.call("echo", {"text": "x"}).whole()
        again = await client.get(answer.ids[0]).whole()
        assert again.text == "x"
        assert again.ids == answer.ids[1:]


async def test_the_session_id_comes_on_initialize_and_nowhere_else(endpoint: Any, app: Any) -> None:
    """HTL-24, SPEC-02."""
    for response in ("auto", "sse"):
        async with endpoint(app, response=response) as doors:
            opened = doors.initialize()
            identity = opened.headers["mcp-session-id"]
            assert opened.is_stream == (response == "sse")
            client = doors.client()
            answers = [
                client.ask("tools/list"),
                client.tell("notifications/x"),
                client.get(),
                client.call("count", {"to": 1}, token=1),
                client.delete(),
                doors.initialize("2025-11-25", {"roots": 5}),
            ]
            for answer in answers:
                await answer.until(lambda answer=answer: answer.status)
                assert "mcp-session-id" not in answer.headers
            assert all("!" <= character <= "~" for character in identity)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize"}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":5}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":3}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":[1]}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":"x"}', 200, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"initialize","params":{}}', 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"initialize","params":{}}', 200, -32600),
    ],
)
async def test_a_handshake_that_fails_opens_nothing(
    endpoint: Any, app: Any, body: bytes, status: int, code: int
) -> None:
    async with endpoint(app) as doors:
        links = len(app.host.links)
        answer = doors.post(body)
        assert (answer.status, answer.code) == (status, code)
        assert (len(doors.doors.sessions), len(app.host.links)) == (0, links)


async def test_an_initialize_that_wants_no_answer_gets_none_and_opens_nothing(endpoint: Any, app: Any) -> None:
    """HTTP-5."""
    async with endpoint(app) as doors:
        answer = doors.post({"jsonrpc": "2.0", "method": "initialize", "params": {}})
        assert (answer.status, answer.content, len(doors.doors.sessions)) == (202, b"", 0)


async def test_state_is_kept_for_a_session_and_ends_with_it(endpoint: Any, app: Any) -> None:
    @app.tool
    async def tally(ctx: Context) -> int:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return ctx.state["n"]  # type: ignore[no-any-return]

    async with endpoint(app) as doors:
        one, two = doors.client(), doors.client()
        counted = [(await client.call("tally").whole()).text for client in (one, one, two, one)]
        assert counted == ["1", "2", "1", "3"]


def test_what_was_said_at_the_node_before_is_found_by_the_id_of_an_event() -> None:
    session = lone_session()
    mine = session.new_stream()
    standing, answer = f"{session.tag}.{STANDING}9", mine.name
    log = SharedLog({standing: [b"a", b"b"], answer: [b"c"]})
    session.shared.log = log  # type: ignore[assignment]
    assert asyncio.run(session.past_stream(f"{standing}-4")) == (True, b"ab")
    assert asyncio.run(session.past_stream(f"{answer}-5")) == (False, b"c")
    assert asyncio.run(session.past_stream(f"{session.tag}.none-1")) is None
    assert asyncio.run(session.past_stream(f"other.{STANDING}9-4")) is None
    assert log.asked == [4, 5, 1]


class SharedLog:
    """The log of a store that nodes share."""

    def __init__(self, streams: dict[str, list[bytes]]) -> None:
        self.streams = streams
        self.asked: list[int] = []

    async def after(self, name: str, number: int) -> list[bytes] | None:
        self.asked.append(number)
        return self.streams.get(name)
