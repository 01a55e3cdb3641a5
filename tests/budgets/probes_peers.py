"""Probes of what one client of a server may have run, waiting and told at once, and a server of its client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import msgspec
from msgspec import Raw
from probes_wire import MODERN, Ear, introduction, written
from table import no_bound, period, probe

from ferrule import Client, Context, FerruleError, Server
from ferrule.budgets.account import Account
from ferrule.client.link import connector
from ferrule.runtime.link import Link
from ferrule.runtime.requests import LinkOptions
from ferrule.server.notifications.subscriptions import SHARE, Subscriber, Subscriptions
from ferrule.wire.channel import Origin
from ferrule.wire.messages import Request

BUSY = -32000


@contextmanager
def stopped_clock() -> Iterator[None]:
    """Let no time pass on the loop, so that what is counted by the second is counted exactly."""
    loop = asyncio.get_running_loop()
    with mock.patch.object(loop, "time", return_value=loop.time()):
        yield


class Waiting:
    """A server with a tool that waits, and counts how many of its calls run."""

    def __init__(self, **options: Any) -> None:
        self.app = Server("s", keepalive_interval=None, **options)
        self.running = 0

        @self.app.tool
        async def wait() -> None:
            self.running += 1
            await asyncio.Event().wait()


def refused(ears: list[Ear]) -> int:
    """Return how many answers there are, all of which must say that the server is busy."""
    answers = [answer for ear in ears for answer in ear.heard]
    assert all("Busy" in answer["error"]["message"] for answer in answers), answers[0]
    return len(answers)


async def call_in_a_session(waiting: Waiting, count: int) -> int:
    """Let one client call the tool so often. Return how many calls were refused."""
    ear = Ear()
    link = waiting.app.link(Origin("test"))
    link.channel_opened(ear)
    link.frame_received(introduction("2025-11-25"), ear)
    ear.heard.clear()
    for number in range(count):
        link.frame_received(written("tools/call", {"name": "wait"}, number + 1), ear)
    link.channel_lost(ear, None)
    return refused([ear])


async def call_without_session(waiting: Waiting, count: int) -> int:
    """Let so many clients without a session call the tool. Return how many calls were refused."""
    everybody = Ear()
    link: Link = waiting.app.host.sessionless_link(Origin("test"))
    link.channel_opened(everybody)
    ears = [Ear() for _ in range(count)]
    for ear in ears:
        link.frame_received(written("tools/call", {"name": "wait", "_meta": MODERN}), ear)
    link.channel_lost(everybody, None)
    return refused(ears)


@probe("Server(max_concurrent_per_session=…)", lowered=5, clamps=True)
async def calls_of_a_session(limit: int, size: int) -> bool:
    waiting = Waiting(max_concurrent_per_session=limit, max_waiting_per_session=10**6)
    assert await call_in_a_session(waiting, size) == 0
    return waiting.running == size


@probe("Server(max_waiting_per_session=…)", lowered=5)
async def waiting_calls_of_a_session(limit: int, size: int) -> bool:
    waiting = Waiting(max_concurrent_per_session=2, max_waiting_per_session=limit)
    refusals = await call_in_a_session(waiting, 2 + size)
    assert refusals == max(0, size - limit)
    return refusals == 0


@probe("Server(max_concurrent=…)", lowered=5, clamps=True)
async def calls_without_session(limit: int, size: int) -> bool:
    waiting = Waiting(max_concurrent=limit, max_waiting=10**6)
    assert await call_without_session(waiting, size) == 0
    return waiting.running == size


@probe("Server(max_waiting=…)", lowered=5)
async def waiting_calls_without_session(limit: int, size: int) -> bool:
    waiting = Waiting(max_concurrent=2, max_waiting=limit)
    refusals = await call_without_session(waiting, 2 + size)
    assert refusals == max(0, size - limit)
    return refusals == 0


@probe("Server(progress_rate=…)", lowered=10, clamps=True)
async def progress(limit: int, size: int) -> bool:
    app = Server("s", progress_rate=limit)
    heard = 0

    @app.tool
    async def work(ctx: Context) -> None:
        for number in range(size):
            await ctx.report_progress(number)

    def hear(done: float, total: float | None, message: str | None) -> None:
        nonlocal heard
        heard += 1

    async with Client(app, mode="handshake") as client:
        with stopped_clock():
            await client.call_tool("work", on_progress=hear)
    return heard == size


@probe("Server(log_rate=…)", lowered=10, clamps=True)
async def log_messages(limit: int, size: int) -> bool:
    app = Server("s", log_rate=limit)
    heard: list[Any] = []

    @app.tool
    async def work(ctx: Context) -> None:
        for number in range(size):
            await ctx.info(number)

    async with Client(app, mode="handshake", log_level="info") as client:
        client.on_log(lambda level, data, logger: heard.append(data))
        with stopped_clock():
            await client.call_tool("work")
            await client.ping()
    return len(heard) == size


@period("Server(list_changed_interval=…)", lowered=0.1)
async def notices_of_a_list(lasts: float, seconds: float) -> bool:
    app = Server("s", list_changed_interval=lasts)
    app.add_tool(lambda: None, name="a")
    heard: list[Any] = []
    async with Client(app, mode="handshake") as client:
        client.on_notification("notifications/tools/list_changed", heard.append)
        app.add_tool(lambda: None, name="b")
        app.add_tool(lambda: None, name="c")
        await asyncio.sleep(seconds)
    return len(heard) == 1


@period("Server(update_interval=…)", lowered=1.0)
async def notices_of_a_resource(lasts: float, seconds: float) -> bool:
    app = Server("s", update_interval=lasts)
    app.add_resource("a://b", lambda: "text")
    heard: list[str] = []
    async with Client(app, mode="handshake") as client:
        await client.subscribe_resource("a://b", heard.append)
        app.notify_resource_updated("a://b")
        app.notify_resource_updated("a://b")
        await asyncio.sleep(seconds)
    return len(heard) == 1


@probe("ferrule.server.notifications.subscriptions.SHARE", lowered=10_000)
async def the_share_of_an_address(limit: int, size: int) -> bool:
    all_of_them = Subscriptions(10, Account("subscriptions", limit * SHARE))
    one, other = (Subscriber(None, owner=number, holder="address") for number in range(2))
    try:
        all_of_them.subscribe(one, "a://b")
        all_of_them.subscribe(other, "a://" + "c" * (size - one.cost - 512 - 4))
    except FerruleError:
        return False
    assert one.cost + other.cost == size
    return True


no_bound(
    "ferrule.server.notifications.subscriptions.COST",
    "a part of the estimate that the account of subscriptions is debited with; the account has a probe",
)


@probe("Server(page_size=…)", lowered=3, clamps=True)
async def a_page(limit: int, size: int) -> bool:
    app = Server("s", page_size=limit)
    for number in range(size):
        app.add_resource(f"a://{number}", lambda: "text")
    async with Client(app, mode="handshake") as client:
        page = await client.request("resources/list", {})
    return len(page["resources"]) == size


@probe("ferrule.server.offers.completions.MAX_VALUES", clamps=True)
async def suggestions(limit: int, size: int) -> bool:
    app = Server("s")

    @app.prompt
    def ask(word: str) -> str:
        return word

    @app.completion("ask.word")
    def words(value: str) -> list[str]:
        return [str(number) for number in range(size)]

    async with Client(app, mode="handshake") as client:
        ref = {"type": "ref/prompt", "name": "ask"}
        params = {"ref": ref, "argument": {"name": "word", "value": ""}}
        found = (await client.request("completion/complete", params))["completion"]
    assert found["hasMore"] is (len(found["values"]) < size)
    return len(found["values"]) == size


class Questioner:
    """A server in this process that asks its client questions."""

    def __init__(self) -> None:
        self.channel: Any = None
        self.refusals: list[Any] = []

    async def enter(self) -> None: ...

    async def leave(self) -> None: ...

    async def drain(self, grace: float) -> None: ...

    def link(self, origin: Any) -> Questioner:
        return self

    def channel_opened(self, channel: Any) -> None:
        self.channel = channel

    def frame_received(self, frame: bytes, channel: Any) -> None:
        message = msgspec.json.decode(frame)
        if message.get("method") == "initialize":
            result = b'{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}'
            channel.send(Raw(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], result)))
        elif "error" in message:
            self.refusals.append(message)

    def frame_refused(self, max_size: int, channel: Any, head: bytes = b"") -> None: ...

    def end_received(self, channel: Any) -> None: ...

    def channel_lost(self, channel: Any, error: Exception | None) -> None: ...

    def ask(self, count: int) -> None:
        """Ask so many questions."""
        params = {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 1}
        for number in range(count):
            self.channel.send(Request(number, "sampling/createMessage", params))


async def questions(count: int, **options: int) -> tuple[int, int]:
    """Let a server ask so many questions. Return how many run in its client, and how many were refused."""
    server = Questioner()
    running = 0

    async def think(params: Any) -> str:
        nonlocal running
        running += 1
        await asyncio.Event().wait()
        return ""

    with mock.patch.object(connector, "LinkOptions", partial(LinkOptions, **options)):
        client = Client(server, mode="handshake", sampling=think)  # type: ignore[arg-type]
    async with client:
        server.ask(count)
        await asyncio.sleep(0)
        assert all("Busy" in refusal["error"]["message"] for refusal in server.refusals)
        return running, len(server.refusals)


@probe("LinkOptions(max_running=…)", lowered=5, clamps=True)
async def questions_at_once(limit: int, size: int) -> bool:
    running, refusals = await questions(size, max_running=limit, max_waiting=10**6)
    assert refusals == 0
    return running == size


@probe("LinkOptions(max_waiting=…)", lowered=5)
async def questions_in_line(limit: int, size: int) -> bool:
    _, refusals = await questions(2 + size, max_running=2, max_waiting=limit)
    assert refusals == max(0, size - limit)
    return refusals == 0
