"""A carrier made of nothing but the contract is served, used and judged, with no change to anything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from ferrule import CarrierError, Client, Server
from ferrule.testing import ERAS
from ferrule.testing.carrier_kit import RULES, Carrier, FarSide, Rule, Stand, judge, serving
from ferrule.transports.contract import Acceptor
from ferrule.wire.channel import ChannelDefaults, Origin, Receiver
from ferrule.wire.codec import encode, too_long
from ferrule.wire.messages import Message


class Letters(ChannelDefaults):
    """One end of two queues: a channel whose messages are delivered by a task."""

    far: Letters

    def __init__(self, receiver: Receiver, limit: int) -> None:
        self.receiver, self.limit = receiver, limit
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.closed = False
        self.lost = asyncio.Event()
        self.task = asyncio.ensure_future(self.deliver())

    def send(self, message: Message | Sequence[Message]) -> None:
        frame = encode(message)
        if len(frame) > self.limit:
            raise too_long(len(frame), self.limit)
        if not self.closed:
            self.far.queue.put_nowait(frame)

    async def wait_writable(self) -> None:
        await asyncio.sleep(0)

    def close(self, reason: str = "") -> None:
        if not self.closed:
            self.closed = True
            self.far.queue.put_nowait(None)
            self.queue.put_nowait(None)

    async def deliver(self) -> None:
        while (frame := await self.queue.get()) is not None:
            self.receiver.frame_received(frame, self)
        self.closed = True
        self.far.close()
        self.lost.set()
        self.receiver.channel_lost(self, None)


class Post:
    """Delivers letters between this office's customers: a listener, and transports to it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.acceptor: Acceptor | None = None
        self.closed = asyncio.Event()
        self.ends: list[Letters] = []

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        self.acceptor = acceptor
        ready()
        await self.closed.wait()

    async def close(self, grace: float) -> None:
        if self.acceptor is not None:
            acceptor, self.acceptor = self.acceptor, None
            await acceptor.drain(grace)
            for end in self.ends:
                end.close()
                await end.lost.wait()
        self.closed.set()


class Letterbox:
    """Reaches whoever the post serves."""

    def __init__(self, post: Post, limit: int) -> None:
        self.post, self.limit = post, limit
        self.end: Letters | None = None

    async def connect(self, receiver: Receiver) -> Letters:
        if self.post.acceptor is None:
            raise CarrierError("the post is closed")
        far = Letters(self.post.acceptor.link(Origin("post")), self.post.limit)
        near = self.end = Letters(receiver, self.limit)
        near.far, far.far = far, near
        self.post.ends.append(far)
        far.receiver.channel_opened(far)
        receiver.channel_opened(near)
        return near

    async def close(self, grace: float = 2.0) -> None:
        if self.end is not None:
            self.end.close()
            await self.end.lost.wait()
            await asyncio.sleep(0)


class OverPost(Carrier):
    name = "post"
    lacks: ClassVar = {
        "wire": "letters are carried, not wired",
        "half-close": "both ends close together",
        "their limit": "both ends have one limit",
        "back-pressure": "the post takes everything",
    }

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        post = Post(max_message_size)
        async with serving(post, far):
            yield Stand(transport=lambda limit: Letterbox(post, limit), listener=post)


@pytest.mark.parametrize("era", ERAS)
def test_a_server_and_a_client_use_it_as_they_use_ours(era: str) -> None:
    """TBEH-05."""

    async def test() -> None:
        app = Server("post office")

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        post, ready = Post(1000), asyncio.Event()
        serving_it = asyncio.ensure_future(app.serve(post, ready=ready.set))
        await ready.wait()
        async with Client(Letterbox(post, 1000), mode=era) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        await app.stop()
        await serving_it

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.lacking(OverPost())], ids=str)
def test_it_keeps_the_rules(rule: Rule) -> None:
    """TBEH-05, TBEH-08: a carrier of one's own passes the validator without a change to the core."""
    report = asyncio.run(judge(OverPost(), [rule]))
    assert report.ok, str(report)
