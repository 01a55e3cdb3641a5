"""The way back of one POST: JSON until something streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import Context
from ferrule.errors import EncodeError
from ferrule.transports.http.endpoint.exchange import Exchange, NullChannel
from ferrule.transports.http.endpoint.keepalive import Keepalive
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.codec import encode_within
from ferrule.wire.messages import ErrorObject, Failure, Notification, Request, Success

PROGRESS = Notification("notifications/progress", {"progressToken": 1, "progress": 1})


class Receiver:
    """Notes which channels were lost."""

    def __init__(self) -> None:
        self.lost: list[Any] = []

    def channel_lost(self, channel: Any, error: Exception | None) -> None:
        self.lost.append(channel)


class Made:
    """An exchange with everything around it."""

    def __init__(self, answer: Any, **settings: Any) -> None:
        self.answer = answer
        self.receiver = Receiver()
        self.pulse = Keepalive(2.0, 15.0, lambda now: None)
        self.exchange = Exchange(answer, b"", self.receiver, EndpointSettings(**settings), self.pulse)  # type: ignore[arg-type]
        self.exchange.mark_pending()


@pytest.fixture
def made(answering: Any) -> Any:
    """Make an exchange with these settings."""
    return lambda **settings: Made(answering(), **settings)


# -- alone


@pytest.mark.parametrize(
    ("code", "status"),
    [
        *((code, 400) for code in (-32700, -32600, -32602, -32020, -32021, -32022)),
        *((-32601, 404), (-32603, 200), (-32000, 200), (1234, 200)),
    ],
)
async def test_an_error_has_the_status_of_its_number(made: Any, code: int, status: int) -> None:
    """HTM-15."""
    one = made()
    one.exchange.send(Failure(5, ErrorObject(code, "no")))
    assert (one.answer.status, one.answer.body["id"], one.answer.code) == (status, 5, code)


async def test_once_it_streams_an_error_is_the_last_event(made: Any) -> None:
    one = made()
    one.exchange.send(PROGRESS)
    one.exchange.send(Failure(5, ErrorObject(-32602, "no")))
    assert (one.answer.status, one.answer.over) == (200, True)
    assert [message.get("method") for message in one.answer.messages] == ["notifications/progress", None]


async def test_after_its_answer_it_sends_nothing(made: Any) -> None:
    one = made()
    one.exchange.send(Success(1, {}))
    one.exchange.send(PROGRESS)
    one.exchange.send(Success(1, {}))
    assert one.answer.body == {"jsonrpc": "2.0", "id": 1, "result": {}}
    one.answer.leave()
    one.exchange.lost()
    assert one.receiver.lost == []
    assert not one.pulse.pending


async def test_a_request_never_goes_out_on_it(made: Any) -> None:
    """HTM-5."""
    one = made()
    one.exchange.send(Request(1, "sampling/createMessage"))
    assert one.answer.status == 0


async def test_a_batch_of_answers_is_one_array(made: Any) -> None:
    one = made()
    one.exchange.send([Success(1, {}), Success(2, {})])
    assert [message["id"] for message in one.answer.body] == [1, 2]


async def test_always_json_keeps_notices_to_itself(made: Any) -> None:
    one = made(response="json")
    one.exchange.send(PROGRESS)
    one.exchange.send(Success(1, {}))
    assert not one.answer.is_stream
    assert len(one.answer.messages) == 1


async def test_always_events_makes_a_stream_of_a_success_and_json_of_a_refusal(made: Any) -> None:
    one, other = made(response="sse"), made(response="sse")
    one.exchange.send(Success(1, {}))
    assert one.answer.is_stream
    assert one.answer.over
    assert one.answer.content == b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
    other.exchange.send(Failure(1, ErrorObject(-32601, "no")))
    assert (other.answer.status, other.answer.is_stream) == (404, False)


async def test_closing_it_without_an_answer_cuts_the_way_and_tells_the_link(made: Any) -> None:
    one = made()
    one.exchange.close()
    one.exchange.close()
    assert one.answer.aborted
    assert one.receiver.lost == [one.exchange]


async def test_what_cannot_be_written_is_an_error_and_nothing_was_sent(made: Any) -> None:
    one = made(max_body_size=1024)
    for result in (object(), {"x": "y" * 1024}):
        with pytest.raises(EncodeError):
            one.exchange.send(Success(1, result))
    assert one.answer.status == 0
    one.exchange.send(Success(1, {}))
    assert one.answer.status == 200


def test_a_message_over_the_limit_is_told_with_both_sizes() -> None:
    with pytest.raises(EncodeError, match=r"136 bytes long; the limit is 50"):
        encode_within(Success(1, "x" * 100), 50)


async def test_everyone_hears_nothing() -> None:
    everyone = NullChannel()
    everyone.send(PROGRESS)
    everyone.close()
    assert await everyone.wait_writable() is None


async def test_a_reader_that_lags_too_far_behind_is_cut(made: Any) -> None:
    one = made(max_stream_backlog=1000)
    one.answer.stop_reading()
    for _ in range(100):
        one.exchange.send(PROGRESS)
    assert one.answer.aborted
    assert one.receiver.lost == [one.exchange]
    assert one.answer.backlog < 1300


async def test_who_writes_waits_for_the_reader_and_else_lets_others_run(made: Any) -> None:
    one = made()
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await one.exchange.wait_writable()
    assert turns == [1]
    one.exchange.send(PROGRESS)
    one.answer.stop_reading()
    waiting = asyncio.ensure_future(one.exchange.wait_writable())
    await asyncio.sleep(60)
    assert not waiting.done()
    one.answer.read_on()
    await waiting


# -- in both eras


async def test_what_comes_before_the_answer_makes_a_stream_that_ends_with_it(endpoint: Any, app: Any, era: str) -> None:
    """HTL-2, HTL-3, HTM-5, HTM-6, HTTP-6."""
    async with endpoint(app) as doors:
        answer = await doors.client(era).call("count", {"to": 3}, token="t").whole()
        assert (answer.status, answer.is_stream) == (200, True)
        *notices, last = answer.messages
        assert [notice["params"]["progress"] for notice in notices] == [1, 2, 3]
        assert {notice["params"]["progressToken"] for notice in notices} == {"t"}
        assert last["result"]["content"][0]["text"] == "counted to 3"


async def test_a_call_longer_than_quiet_becomes_a_stream_and_shows_that_it_lives(
    endpoint: Any, app: Any, era: str
) -> None:
    """HTM-7, SSEV-10."""
    for response in ("auto", "sse"):
        async with endpoint(app, quiet=2, stream_keepalive=15, response=response) as doors:
            answer = doors.client(era).call("rest", {"seconds": 100})
            await asyncio.sleep(4)
            assert (answer.status, answer.is_stream) == (200, True)
            assert answer.headers["x-accel-buffering"] == "no"
            await answer.whole()
            assert answer.writes.count(b":\n\n") >= 6
            assert answer.text == "rested 100 s"


async def test_a_slow_call_stays_json_where_all_is_json(endpoint: Any, app: Any, era: str) -> None:
    async with endpoint(app, response="json") as doors:
        answer = await doors.client(era).call("rest", {"seconds": 3600}).whole()
        assert not answer.is_stream
        counted = await doors.client(era).call("count", {"to": 3}, token=1).whole()
        assert len(counted.messages) == 1


async def test_a_quick_call_is_a_stream_where_all_is_streams(endpoint: Any, app: Any, era: str) -> None:
    async with endpoint(app, response="sse") as doors:
        client = doors.client(era)
        answer = await client.call("echo", {"text": "x"}).whole()
        assert answer.is_stream
        assert answer.text == "x"
        assert client.tell("notifications/x").status == 202


async def test_a_handler_that_fails_is_200(endpoint: Any, app: Any, era: str) -> None:
    """HTM-15."""
    async with endpoint(app) as doors:
        answer = await doors.client(era).call("fail", id="mine").whole()
        assert (answer.status, answer.body["id"]) == (200, "mine")


async def test_a_flood_of_notices_nobody_reads_lets_others_run(endpoint: Any, app: Any) -> None:
    done: list[str] = []

    @app.tool
    async def flood(ctx: Context) -> str:
        await asyncio.sleep(0)  # a call may begin at once, before its reader could stop
        for _ in range(300):
            await ctx.info("x" * 100)
        done.append("flood")
        return "done"

    for response in ("auto", "json"):
        async with endpoint(app, response=response) as doors:
            client = doors.client("handshake")
            answer = client.call("flood")
            answer.stop_reading()
            await doors.settle()
            answer.leave()
            assert (await client.call("rest", {"seconds": 0}).whole()).text == "rested 0 s"
            assert done == []
            await asyncio.sleep(1)
            assert done.pop() == "flood"
