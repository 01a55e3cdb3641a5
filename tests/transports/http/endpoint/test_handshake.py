"""The door of the handshake era: sessions, POST and its streams, the GET stream, DELETE, resuming."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ferrule.protocol.handshake import REVISIONS
from ferrule.transports.http.endpoint.sessions import ID_BYTES

PING = {"jsonrpc": "2.0", "method": "ping"}
NOTE = {"jsonrpc": "2.0", "method": "notifications/x"}


def call(identity: Any, tool: str, /, token: Any = None, **arguments: Any) -> dict[str, Any]:
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    params = {"name": tool, "arguments": arguments, **meta}
    return {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}


# -- sessions


@pytest.mark.parametrize("version", list(REVISIONS))
async def test_a_session_lives_from_its_handshake_to_its_end(endpoint: Any, app: Any, version: str) -> None:
    """seed:HTTP-22, SPEC-02, HTL-24, HTL-27, HTL-30."""
    async with endpoint(app) as doors:
        client = doors.client(version=version)
        assert len(doors.doors.sessions) == 1
        assert (await client.call("echo", {"text": "x"}).whole()).text == "x"
        assert client.delete().status == 204
        assert client.ask("tools/list").status == 404
        assert doors.client(version=version).session != client.session


async def test_without_a_session_id_only_initialize_is_heard(endpoint: Any, app: Any) -> None:
    """HTL-26, SPEC-02."""
    async with endpoint(app) as doors:
        for message in ({**PING, "id": 1}, call(1, "echo", text="x"), NOTE, {"jsonrpc": "2.0", "id": 1, "result": {}}):
            answer = doors.post(message)
            assert (answer.status, answer.code) == (400, -32600)
            assert "id" not in answer.body
        assert doors.initialize().status == 200
        assert app.begun == []


async def test_ses_10_a_client_cannot_choose_its_session_id(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        other = doors.client()
        for wish in ("mine", other.session, "x" * 4096):
            opened = doors.initialize(mcp_session_id=wish)
            assert opened.status == 200
            assert opened.headers["mcp-session-id"] not in (wish, other.session)
        assert doors.post({**PING, "id": 1}, mcp_session_id="mine").status == 404
        assert other.ask("ping").status == 200


async def test_a_second_handshake_in_a_session_opens_another_and_keeps_the_first(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        client = doors.client()
        again = doors.initialize("2025-06-18", mcp_session_id=client.session, mcp_protocol_version="2025-11-25")
        assert again.headers["mcp-session-id"] != client.session
        assert client.ask("tools/list").status == 200


async def test_requests_that_race_ahead_of_initialized_are_served(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        session = doors.initialize().headers["mcp-session-id"]
        assert (await doors.post(call(1, "echo", text="early"), mcp_session_id=session).whole()).text == "early"


async def test_what_wants_no_answer_is_202_and_empty(endpoint: Any, app: Any) -> None:
    """HTTP-5, SPEC-01."""
    async with endpoint(app) as doors:
        client = doors.client()
        for message in (
            NOTE,
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
            {"jsonrpc": "2.0", "id": 99, "result": {}},
            {"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "no"}},
            {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no"}},
        ):
            answer = client.send(message)
            assert (answer.status, answer.content) == (202, b"")
            assert "content-type" not in answer.headers


async def test_the_spelling_of_header_names_does_not_matter(endpoint: Any, app: Any) -> None:
    """HTTP-8: front ends give names in lower case, as the requests of both spellings come in."""
    async with endpoint(app) as doors:
        client = doors.client()
        for name in ("Mcp-Session-Id", "MCP-Session-Id", "mcp-session-id"):
            assert (
                doors.send("POST", json.dumps({**PING, "id": 1}).encode(), headers={name: client.session}).status == 200
            )


async def test_ses_06_an_id_in_flight_is_refused_and_the_first_is_still_answered(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        client = doors.client()
        first = client.call("hold", {"name": "a"}, id="same")
        await doors.settle()
        second = client.call("echo", {"text": "x"}, id="same")
        assert (second.code, second.body["id"]) == (-32600, "same")
        app.gate("a").set()
        assert (await first.whole()).text == "held a"
        assert (await client.call("echo", {"text": "again"}, id="same").whole()).text == "again"


async def test_ses_07_one_session_cannot_answer_anothers_question(endpoint: Any, app: Any) -> None:
    """ERRA-2: the question's id helps nobody, and a session's id of 192 random bits cannot be guessed."""
    async with endpoint(app) as doors:
        asked, stranger, guessing = (doors.client(capabilities={"elicitation": {}}) for _ in range(3))
        assert ID_BYTES * 8 >= 128
        assert len({asked.session, stranger.session, guessing.session}) == 3
        answer = asked.call("ask_name")
        question = await answer.said("elicitation/create")
        assert stranger.reply(question, {"action": "accept", "content": {"value": "Mallory"}}).status == 202
        guessing.session = asked.session[:-1] + ("a" if asked.session[-1] != "a" else "b")
        assert guessing.reply(question, {"action": "accept", "content": {"value": "Mallory"}}).status == 404
        await asyncio.sleep(1)
        assert not answer.over
        asked.reply(question, {"action": "accept", "content": {"value": "Ada"}})
        assert (await answer.whole()).text == "hello Ada"


async def test_ses_08_one_session_cannot_cancel_or_subscribe_for_another(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        mine, stranger = doors.client(), doors.client()
        streams = [mine.get(), stranger.get()]
        answer = mine.call("hold", {"name": "a"}, id="mine", token="token")
        await doors.settle()
        stranger.cancel("mine")
        stranger.tell("notifications/progress", {"progressToken": "token", "progress": 99})
        stranger.ask("resources/subscribe", {"uri": "note://one"})
        app.notify_resource_updated("note://one")
        await streams[1].said("notifications/resources/updated")
        app.gate("a").set()
        assert (await answer.whole()).text == "held a"
        assert [message["method"] for message in streams[0].messages] == []


# -- batches


async def test_the_revision_with_batches_takes_arrays_and_answers_with_one(endpoint: Any, app: Any) -> None:
    """HTL-1."""
    async with endpoint(app) as doors:
        client = doors.client(version="2025-03-26")
        batch = [call(1, "rest", seconds=1), NOTE, call("two", "echo", text="x"), {**PING, "id": 3}]
        answer = await client.send(batch).whole()
        assert not answer.is_stream
        assert sorted(str(reply["id"]) for reply in answer.body) == ["1", "3", "two"]
        assert all("result" in reply for reply in answer.body)


async def test_a_batch_that_streams_ends_with_its_answers(endpoint: Any, app: Any) -> None:
    """HTL-1, HTL-2."""
    async with endpoint(app) as doors:
        client = doors.client(version="2025-03-26")
        answer = await client.send([call(1, "count", token="a", to=2), call(2, "count", token="b", to=1)]).whole()
        assert answer.is_stream
        *notices, replies = answer.messages
        told = sorted((notice["params"]["progressToken"], notice["params"]["progress"]) for notice in notices)
        assert told == [("a", 1), ("a", 2), ("b", 1)]
        assert sorted(reply["id"] for reply in replies) == [1, 2]


async def test_a_batch_that_wants_no_answer_is_202(endpoint: Any, app: Any) -> None:
    """HTL-1, HTTP-5."""
    async with endpoint(app) as doors:
        client = doors.client(version="2025-03-26")
        for batch in ([NOTE, NOTE], [{"jsonrpc": "2.0", "id": 9, "result": {}}]):
            answer = client.send(batch)
            assert (answer.status, answer.content) == (202, b"")


async def test_a_batch_answers_what_is_wrong_with_its_parts(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        client = doors.client(version="2025-03-26")
        batch = [1, {"jsonrpc": "2.0", "id": 2, "method": "nobody/knows"}, {**PING, "id": 3}, [NOTE]]
        answer = await client.send(batch).whole()
        codes = {reply["id"]: reply.get("error", {}).get("code") for reply in answer.body}
        assert codes == {None: -32600, 2: -32601, 3: None}
        assert client.send([]).code == -32600


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_other_revisions_refuse_arrays(endpoint: Any, app: Any, version: str) -> None:
    """HTL-1."""
    async with endpoint(app) as doors:
        answer = doors.client(version=version).send([{**PING, "id": 1}])
        assert (answer.status, answer.code) == (400, -32600)
        assert doors.post([{**PING, "id": 1}]).status == 400


# -- GET


async def test_a_get_needs_a_session_and_a_reader_of_events(endpoint: Any, app: Any) -> None:
    """HTL-6, HTL-7, HTL-26, HTL-27."""
    async with endpoint(app) as doors:
        client = doors.client()
        for accept, status in (
            ("text/event-stream", 200),
            ("*/*", 200),
            (None, 200),
            ("application/json", 406),
            ("text/event-stream;q=0", 406),
        ):
            answer = doors.send("GET", headers={**client.headers(), "accept": accept})
            assert answer.status == status
        assert doors.send("GET").status == 400
        assert doors.send("GET", headers={"mcp-session-id": "x"}).status == 404


async def test_a_stream_can_be_read_by_any_reader_of_events(endpoint: Any, app: Any) -> None:
    """SSEV-03, SSEV-14: status, type and events as the WHATWG has them; a message is one event without a name."""
    async with endpoint(app) as doors:
        stream = doors.client().get()
        app.notify_tools_changed()
        await stream.said("notifications/tools/list_changed")
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        assert "no-cache" in stream.headers["cache-control"]
        assert {event.name for event in stream.events} == {"message"}


# -- coming back


async def test_res_02_a_stream_cut_before_its_first_event_can_be_resumed(endpoint: Any, app: Any) -> None:
    async with endpoint(app, quiet=1) as doors:
        client = doors.client()
        answer = client.call("rest", {"seconds": 10})
        await asyncio.sleep(3)
        assert answer.messages == []
        answer.leave()
        resumed = client.get(answer.last_id)
        assert (await resumed.whole()).text == "rested 10 s"


async def test_res_03_late_expired_and_doubled_resumes_have_clear_answers(endpoint: Any, app: Any) -> None:
    async with endpoint(app, event_age=60, max_events=3) as doors:
        client = doors.client()
        answer = await client.call("count", {"to": 2}, token=1).whole()
        complete = await client.get(answer.ids[1]).whole()
        assert [message.get("method") for message in complete.messages] == ["notifications/progress", None]

        running = client.call("hold", {"name": "a", "tell": 1}, token=1)
        await running.until(lambda: running.status)
        running.leave()
        first, second = client.get(running.last_id), client.get(running.last_id)
        await second.until(lambda: second.status)
        assert (first.status, second.status) == (200, 409)
        assert "reader" in second.body["error"]["message"]
        app.gate("a").set()
        assert (await first.whole()).text == "held a"

        many = await client.call("count", {"to": 10}, token=1).whole()
        dropped = client.get(many.ids[0])
        assert (await dropped.whole()).status == 404
        await asyncio.sleep(100)
        expired = await client.get(answer.ids[1]).whole()
        assert (expired.status, "no longer kept" in expired.body["error"]["message"]) == (404, True)
        assert client.ask("tools/list").status == 200


async def test_ses_09_a_foreign_event_id_replays_nothing_foreign(endpoint: Any, app: Any) -> None:
    """HTL-13."""
    async with endpoint(app) as doors:
        mine, theirs = doors.client(), doors.client()
        secret = await theirs.call("count", {"to": 2}, token="secret").whole()
        await mine.call("count", {"to": 2}, token="mine").whole()
        name = secret.last_id.rpartition("-")[0]
        wrong = [
            secret.ids[0],
            secret.last_id,
            f"{name}--1",
            "-1",
            "0",
            "",
            "../../x",
            "x" * 5000,
            "\xff",
            f"{name}-1e3",
        ]
        for event_id in wrong:
            answer = await mine.get(event_id).whole()
            assert answer.status == 404
            assert b"secret" not in answer.content


async def test_a_replay_holds_later_messages_of_the_same_stream_only(endpoint: Any, app: Any) -> None:
    """HTL-13, HTL-11."""
    async with endpoint(app) as doors:
        client = doors.client()
        answers = [client.call("count", {"to": 3}, token=name) for name in "abc"]
        for answer in answers:
            await answer.whole()
        assert len({event_id for answer in answers for event_id in answer.ids}) == sum(len(a.ids) for a in answers)
        for name, answer in zip("abc", answers, strict=True):
            replay = await client.get(answer.ids[1]).whole()
            assert replay.messages == answer.messages[1:]
            assert {m["params"]["progressToken"] for m in replay.messages[:-1]} == {name}


async def test_a_standing_stream_can_be_resumed_too(endpoint: Any, app: Any) -> None:
    """HTL-12, SSEV-08."""
    async with endpoint(app) as doors:
        client = doors.client()
        client.ask("resources/subscribe", {"uri": "note://one"})
        stream = client.get()
        app.notify_resource_updated("note://one")
        await stream.said("notifications/resources/updated")
        stream.leave()
        for number in range(3):
            app.notify_resource_updated("note://one", n=number)
        resumed = client.get(stream.last_id)
        await resumed.until(lambda: resumed.status)
        assert [message["params"]["_meta"]["n"] for message in resumed.messages] == [0, 1, 2]
        app.notify_resource_updated("note://one", n=3)
        await resumed.said("notifications/resources/updated", 4)


# -- drain


async def test_draining_sends_the_readers_of_standing_streams_away(endpoint: Any, app: Any) -> None:
    """With a time to come back, and an id to come back with where the revision has it."""
    async with endpoint(app, retry=3) as doors:
        newer, older = doors.client(), doors.client(version="2025-06-18")
        streams = [newer.get(), older.get()]
        running = newer.call("hold", {"name": "a", "tell": 1}, token=1)
        await doors.settle()
        draining = asyncio.ensure_future(doors.doors.drain(100))
        await doors.settle()
        assert [stream.over for stream in streams] == [True, True]
        assert streams[0].writes[-1] == b"retry: 3000\n\n"
        assert streams[0].last_id
        app.gate("a").set()
        assert (await running.whole()).text == "held a"
        await draining


# -- without sessions


@pytest.mark.parametrize("version", [None, *REVISIONS])
async def test_the_era_can_be_served_without_sessions(endpoint: Any, app: Any, version: str | None) -> None:
    """HTL-32: without the header the version is 2025-03-26."""
    async with endpoint(app, stateless=True) as doors:
        opened = doors.initialize(version or "2025-03-26")
        assert (opened.status, opened.headers.get("mcp-session-id")) == (200, None)
        assert doors.post(NOTE, mcp_protocol_version=version).status == 202
        answer = await doors.post(call("x", "echo", text="hi"), mcp_protocol_version=version).whole()
        assert answer.text == "hi"
        assert "resultType" not in answer.result()
        listed = doors.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, mcp_protocol_version=version)
        assert ("outputSchema" in str(listed.body)) == (version in ("2025-06-18", "2025-11-25"))
        assert doors.post({**PING, "id": 1}, mcp_protocol_version=version).body["result"] == {}
        assert len(doors.doors.sessions) == 0


async def test_without_sessions_equal_ids_of_strangers_never_meet(endpoint: Any, app: Any) -> None:
    async with endpoint(app, stateless=True) as doors:
        answers = [doors.post(call(1, "hold", name=f"g{n}")) for n in range(5)]
        await doors.settle()
        doors.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        for n in range(5):
            app.gate(f"g{n}").set()
        assert [(await answer.whole()).text for answer in answers] == [f"held g{n}" for n in range(5)]


async def test_without_sessions_batches_are_taken_where_the_revision_has_them(endpoint: Any, app: Any) -> None:
    """HTL-1."""
    async with endpoint(app, stateless=True) as doors:
        batch = [call(1, "rest", seconds=1), call(2, "echo", text="x"), NOTE]
        for version in (None, "2025-03-26"):
            answer = await doors.post(batch, mcp_protocol_version=version).whole()
            assert sorted(reply["id"] for reply in answer.body) == [1, 2]
        assert doors.post([NOTE]).status == 202
        assert doors.post(batch, mcp_protocol_version="2025-11-25").status == 400
        assert doors.post(b"{", mcp_protocol_version="2025-11-25").status == 400


async def test_without_sessions_a_client_with_an_old_id_is_told_to_begin_anew(endpoint: Any, app: Any) -> None:
    """HTL-27."""
    async with endpoint(app, stateless=True) as doors:
        assert doors.post(call(1, "echo", text="x"), mcp_session_id="old").status == 404


async def test_without_sessions_the_client_cannot_be_asked(endpoint: Any, app: Any) -> None:
    async with endpoint(app, stateless=True) as doors:
        answer = await doors.post(call(1, "ask_name"), mcp_protocol_version="2025-11-25").whole()
        assert "elicitation" in str(answer.body)


# -- DELETE


@pytest.mark.parametrize("streams", [False, True], ids=["json", "stream"])
async def test_what_is_open_when_its_session_is_deleted_ends_without_an_error(
    endpoint: Any, app: Any, streams: bool
) -> None:
    """A client that gave a call up and leaves is told nothing it could take for an answer of no request."""
    async with endpoint(app) as doors:
        client = doors.client()
        answer = client.call("hold", {"name": "open", "tell": 1 if streams else 0}, token=1)
        if streams:
            await answer.said("notifications/progress")
        else:
            await doors.settle()
        assert client.delete().status in (200, 204)
        await answer.whole()
        assert answer.status == (200 if streams else 202)
        if streams:
            assert [message for message in answer.messages if "error" in message] == []
        else:
            assert answer.content == b""
