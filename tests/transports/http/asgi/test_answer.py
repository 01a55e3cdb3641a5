"""The way back of one ASGI request: what it sends, when it listens, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ferrule.budgets.account import Account
from ferrule.transports.backpressure import Backlog
from ferrule.transports.http.asgi.answer import HIGH_WATER, LOW_WATER, AsgiAnswer, QuietCalls, header_pairs

HEAD = b"content-type: text/plain\r\nx-a: b: c\r\n"
PAIRS = [(b"content-type", b"text/plain"), (b"x-a", b"b: c")]

pytestmark = pytest.mark.usefixtures("virtual_time")


class Server:
    """The server's side of one request: writes down what is sent, takes it or not, and tells when the client left."""

    def __init__(self, method: str = "POST") -> None:
        self.sent: list[Any] = []
        self.listens = 0
        self.taking = asyncio.Event()
        self.taking.set()
        self.left = asyncio.Event()
        self.broken = False
        self.patience = QuietCalls(asyncio.get_running_loop())
        self.answer = AsgiAnswer(method, self.receive, self.send, self.patience)
        self.losses = 0

    async def receive(self) -> Any:
        self.listens += 1
        await self.left.wait()
        if self.broken:
            raise ConnectionResetError("gone")
        return {"type": "http.disconnect"}

    async def send(self, event: Any) -> None:
        await self.taking.wait()
        if self.broken:
            raise OSError("gone")
        self.sent.append(event)

    def lost(self) -> None:
        self.losses += 1

    @property
    def body(self) -> bytes:
        return b"".join(event["body"] for event in self.sent[1:])

    @property
    def complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body", False) is False

    @asynccontextmanager
    async def delivering(self) -> AsyncIterator[asyncio.Task[None]]:
        """Stay with the request in a task, as a server does, and leave none behind."""
        before = asyncio.all_tasks()
        task = asyncio.create_task(self.answer.deliver())
        await turns()
        yield task
        await task
        await turns()
        assert asyncio.all_tasks() == before


async def turns() -> None:
    """Let everybody do what there is to do now."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_whole_answer_is_a_head_with_its_length_and_one_body() -> None:
    server = Server()
    server.answer.reply(200, HEAD, b"whole")
    await server.answer.deliver()
    assert server.sent == [
        {"type": "http.response.start", "status": 200, "headers": [*PAIRS, (b"content-length", b"5")]},
        {"type": "http.response.body", "body": b"whole"},
    ]


async def test_an_answer_without_content_says_no_length() -> None:
    server = Server()
    server.answer.reply(204, HEAD)
    await server.answer.deliver()
    assert server.sent[0]["headers"] == PAIRS


async def test_an_answer_to_head_has_the_length_and_not_the_body() -> None:
    server = Server("HEAD")
    server.answer.reply(405, HEAD, b"whole")
    await server.answer.deliver()
    assert (server.sent[0]["headers"][-1], server.body) == ((b"content-length", b"5"), b"")


async def test_a_quick_call_starts_no_task_and_no_listener() -> None:
    server = Server()
    server.answer.watch(server.lost)
    async with server.delivering():
        tasks = len(asyncio.all_tasks())
        await asyncio.sleep(0.09)
        assert len(asyncio.all_tasks()) == tasks
        server.answer.reply(200, HEAD, b"quick")
    await asyncio.sleep(1)
    assert (server.body, server.listens, server.losses) == (b"quick", 0, 0)


async def test_a_call_that_runs_for_long_is_told_when_its_client_leaves() -> None:
    server = Server()
    server.answer.watch(server.lost)
    async with server.delivering():
        await asyncio.sleep(0.25)
        assert (server.listens, server.losses) == (1, 0)
        server.left.set()
        await turns()
        assert (server.losses, server.answer.gone) == (1, True)
        server.answer.reply(200, HEAD, b"nobody reads this")
    assert b"nobody" not in server.body
    assert server.losses == 1


async def test_nobody_listens_for_a_long_call_that_does_not_want_to_know() -> None:
    server = Server()
    async with server.delivering():
        await asyncio.sleep(0.5)
        assert server.listens == 0
        server.answer.watch(server.lost)
        await turns()
        assert server.listens == 1
        server.answer.reply(200, HEAD, b"late")
    assert (server.body, server.losses) == (b"late", 0)


async def test_all_calls_share_one_timer_that_rests_when_nothing_runs() -> None:
    loop = asyncio.get_running_loop()
    patience, set_at = QuietCalls(loop), []
    patience.loop = Watched(loop, set_at)  # type: ignore[assignment]
    servers = [Server() for _ in range(50)]
    for server in servers:
        patience.begin(server.answer)
    assert len(set_at) == 1
    await asyncio.sleep(0.05)
    for server in servers:
        patience.end(server.answer)
    await asyncio.sleep(1)
    assert len(set_at) == 1


class Watched:
    """A loop that notes the timers it is given."""

    def __init__(self, loop: asyncio.AbstractEventLoop, set_at: list[float]) -> None:
        self._loop = loop
        self._set_at = set_at

    def call_later(self, delay: float, callback: Any) -> asyncio.TimerHandle:
        self._set_at.append(self._loop.time())
        return self._loop.call_later(delay, callback)


async def test_a_stream_sends_its_head_before_there_is_anything_to_say() -> None:
    server = Server()
    async with server.delivering():
        server.answer.begin(200, HEAD)
        await turns()
        assert server.sent == [
            {"type": "http.response.start", "status": 200, "headers": PAIRS},
            {"type": "http.response.body", "body": b"", "more_body": True},
        ]
        server.answer.write(b"one")
        await turns()
        assert server.sent[-1] == {"type": "http.response.body", "body": b"one", "more_body": True}
        server.answer.write(b"two")
        server.answer.finish()
    assert server.sent[-1] == {"type": "http.response.body", "body": b"two", "more_body": False}


async def test_what_is_written_after_the_end_is_not_sent() -> None:
    server = Server()
    async with server.delivering():
        server.answer.begin(200, HEAD)
        await turns()
        server.answer.finish()
        server.answer.write(b"late")
        server.answer.finish()
        server.answer.abort()
    assert (server.body, server.complete) == (b"", True)


async def test_what_a_slow_server_has_not_taken_counts_as_backlog_and_goes_out_in_one_piece() -> None:
    server = Server()
    async with server.delivering():
        server.answer.begin(200, HEAD)
        await turns()
        server.taking.clear()
        for part in (b"a", b"bb", b"ccc"):
            server.answer.write(part)
            await turns()
        assert server.answer.backlog == 6
        server.taking.set()
        await turns()
        assert server.answer.backlog == 0
        assert [event["body"] for event in server.sent[2:]] == [b"a", b"bbccc"]
        server.answer.finish()


async def test_writers_wait_while_a_reader_lags_and_go_on_when_it_has_caught_up() -> None:
    server = Server()
    async with server.delivering():
        server.answer.begin(200, HEAD)
        await server.answer.wait_writable()
        await turns()
        server.taking.clear()
        server.answer.write(bytes(HIGH_WATER + 1))
        waiting = [asyncio.create_task(server.answer.wait_writable()) for _ in range(2)]
        await turns()
        assert not any(task.done() for task in waiting)
        server.taking.set()
        await asyncio.gather(*waiting)
        assert server.answer.backlog <= LOW_WATER
        server.answer.finish()


async def test_writers_wait_no_longer_when_the_client_has_left() -> None:
    server = Server()
    async with server.delivering():
        server.answer.begin(200, HEAD)
        await turns()
        server.taking.clear()
        server.answer.write(bytes(HIGH_WATER + 1))
        waiting = asyncio.create_task(server.answer.wait_writable())
        await turns()
        server.left.set()
        await waiting


async def test_a_stream_is_told_at_once_when_its_client_leaves() -> None:
    server = Server()
    async with server.delivering():
        server.answer.watch(server.lost)
        server.answer.begin(200, HEAD)
        await turns()
        server.left.set()
    assert (server.losses, server.complete) == (1, False)


async def test_a_client_that_leaves_after_the_answer_is_no_loss() -> None:
    server = Server()
    async with server.delivering():
        server.answer.watch(server.lost)
        server.answer.begin(200, HEAD)
        await turns()
        server.answer.finish()
        server.left.set()
    assert server.losses == 0


@pytest.mark.parametrize("streams", [True, False])
async def test_an_error_of_the_server_means_that_the_client_is_gone(streams: bool) -> None:
    server = Server()
    async with server.delivering():
        server.answer.watch(server.lost)
        server.broken = True
        if streams:
            server.answer.begin(200, HEAD)
        else:
            await asyncio.sleep(0.3)
            server.left.set()
    assert (server.losses, server.answer.gone) == (1, True)


async def test_an_aborted_stream_ends_even_while_the_server_takes_nothing() -> None:
    server = Server()
    async with server.delivering():
        server.answer.begin(200, HEAD)
        await turns()
        server.taking.clear()
        server.answer.write(b"never taken")
        await turns()
        server.answer.abort()
        assert (server.answer.backlog, server.answer.gone) == (0, True)
    assert (server.body, server.complete) == (b"", False)


async def test_a_stream_aborted_in_the_turn_it_began_says_that_it_was_given_up() -> None:
    server = Server()
    async with server.delivering():
        server.answer.begin(200, HEAD)
        server.answer.abort()
    assert (server.sent[0]["status"], server.complete) == (503, True)


async def test_an_answer_that_is_aborted_before_it_began_says_that_it_was_given_up() -> None:
    server = Server()
    async with server.delivering():
        server.answer.abort()
    assert (server.sent[0]["status"], server.complete) == (503, True)


@pytest.mark.parametrize("streams", [True, False])
async def test_a_server_that_cancels_the_request_means_that_the_client_is_gone(streams: bool) -> None:
    server = Server()
    server.answer.watch(server.lost)
    before = asyncio.all_tasks()
    task = asyncio.create_task(server.answer.deliver())
    if streams:
        server.answer.begin(200, HEAD)
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (server.losses, server.answer.gone) == (1, True)
    await turns()
    assert asyncio.all_tasks() == before


async def test_an_answer_begins_once() -> None:
    server = Server()
    async with server.delivering():
        server.answer.begin(200, HEAD)
        with pytest.raises(RuntimeError, match="begun already"):
            server.answer.reply(200, HEAD)
        server.answer.finish()


def test_a_head_is_read_once() -> None:
    assert header_pairs(HEAD) is header_pairs(bytes(bytearray(HEAD)))


# -- what is not taken


@pytest.fixture
def untaken(monkeypatch: pytest.MonkeyPatch) -> Backlog:
    """An account of its own, with room for three times the high-water mark."""
    counted = Backlog(Account("answers", 3 * HIGH_WATER))
    monkeypatch.setattr("ferrule.transports.http.asgi.answer.unread", counted)
    return counted


async def test_what_a_slow_reader_has_not_taken_is_counted_until_it_has(untaken: Backlog) -> None:
    server = Server()
    server.taking.clear()
    async with server.delivering():
        server.answer.begin(200, HEAD)
        server.answer.write(b"x" * HIGH_WATER)
        assert untaken.account.held == 0
        server.answer.write(b"x" * 100)
        assert untaken.account.held == HIGH_WATER + 100
        server.taking.set()
        await turns()
        assert untaken.account.held == 0
        server.answer.finish()
    assert server.body == b"x" * (HIGH_WATER + 100)


async def test_a_whole_answer_that_is_large_is_counted_while_it_is_sent(untaken: Backlog) -> None:
    server = Server()
    server.answer.reply(200, HEAD, b"x" * 2 * HIGH_WATER)
    server.taking.clear()
    async with server.delivering():
        assert untaken.account.held == 2 * HIGH_WATER
        server.taking.set()
    assert (untaken.account.held, server.body) == (0, b"x" * 2 * HIGH_WATER)


async def test_over_the_bound_the_answer_that_holds_most_is_cut_whole_or_not(untaken: Backlog) -> None:
    large, small = Server(), Server()
    for server in (large, small):
        server.taking.clear()
    large.answer.reply(200, HEAD, b"x" * 2 * HIGH_WATER)
    large.answer.abort()
    sending, other = (asyncio.create_task(server.answer.deliver()) for server in (large, small))
    await turns()
    small.answer.begin(200, HEAD)
    small.answer.write(b"x" * (HIGH_WATER + 100))
    await turns()
    assert sending.done()
    assert untaken.account.held == HIGH_WATER + 100
    small.taking.set()
    small.answer.finish()
    await other
    assert (large.sent, small.body) == ([], b"x" * (HIGH_WATER + 100))
    assert untaken.account.held == 0


async def test_an_answer_for_which_there_is_no_room_is_given_up(untaken: Backlog) -> None:
    untaken.account.take(2 * HIGH_WATER)
    server = Server()
    server.answer.reply(200, HEAD, b"x" * 2 * HIGH_WATER)
    await server.answer.deliver()
    assert (server.sent[0]["status"], untaken.account.held) == (503, 2 * HIGH_WATER)


async def test_what_a_reader_that_left_has_not_taken_is_counted_no_more(untaken: Backlog) -> None:
    server = Server()
    server.taking.clear()
    async with server.delivering():
        server.answer.begin(200, HEAD)
        server.answer.write(b"x" * 2 * HIGH_WATER)
        await turns()
        server.left.set()
    assert untaken.account.held == 0
