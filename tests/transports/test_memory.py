"""Two ends in one process."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest
from msgspec import Raw

from ferrule.errors import CarrierError, EncodeError
from ferrule.transports.memory import Memory, memory_pair
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.codec import decode, encode
from ferrule.wire.messages import ErrorObject, Failure, Message, Notification, Request, Success

Run = Callable[[Awaitable[None]], None]


class Recorder:
    """Writes down what the channel tells."""

    def __init__(self, answer: Callable[[bytes, Channel], None] | None = None) -> None:
        self.opened: list[Channel] = []
        self.frames: list[bytes] = []
        self.refused: list[int] = []
        self.losses: list[Exception | None] = []
        self.answer = answer

    def channel_opened(self, channel: Channel) -> None:
        self.opened.append(channel)

    def frame_received(self, frame: bytes, channel: Channel) -> None:
        self.frames.append(frame)
        if self.answer:
            self.answer(frame, channel)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        self.refused.append(max_size)

    def end_received(self, channel: Channel) -> None: ...

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.losses.append(error)


class Answering(Recorder):
    """Acceptor and receiver: answers every request."""

    def __init__(self) -> None:
        super().__init__(self.reply)
        self.origins: list[Origin] = []
        self.users = 0

    async def enter(self) -> None:
        self.users += 1

    async def leave(self) -> None:
        self.users -= 1

    def link(self, origin: Origin) -> Answering:
        self.origins.append(origin)
        return self

    async def drain(self, grace: float) -> None: ...

    def reply(self, frame: bytes, channel: Channel) -> None:
        message = decode(frame)
        assert isinstance(message, Request)
        channel.send(Success(message.id, {}))


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def numbers(frames: list[bytes]) -> list[int]:
    return [json.loads(frame)["id"] for frame in frames]


def test_a_request_reaches_the_acceptor_as_bytes_and_its_answer_comes_back_as_bytes(run: Run) -> None:
    """FRAM-05: through the codec, so that what does not survive the wire fails here too."""

    async def test() -> None:
        acceptor, near = Answering(), Recorder()
        memory = Memory(acceptor)
        channel = await memory.connect(near)
        assert acceptor.origins == [Origin(carrier="memory")]
        assert near.opened == [channel]
        channel.send(Request(1, "ping", {"text": "line\nfeed"}))
        await turns()
        assert acceptor.frames == [b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"text":"line\\nfeed"}}']
        assert near.frames == [b'{"jsonrpc":"2.0","id":1,"result":{}}']
        with pytest.raises(EncodeError):
            channel.send(Request(2, "ping", object()))
        await memory.close()
        assert acceptor.users == 0

    run(test())


def test_messages_arrive_in_order_in_both_directions(run: Run) -> None:
    async def test() -> None:
        acceptor, near = Answering(), Recorder()
        memory = Memory(acceptor)
        channel = await memory.connect(near)
        for number in range(10_000):
            channel.send(Request(number, "ping"))
            await channel.wait_writable()
        await turns()
        assert numbers(acceptor.frames) == list(range(10_000))
        assert numbers(near.frames) == list(range(10_000))
        await memory.close()

    run(test())


def test_an_end_never_receives_inside_its_own_receiving(run: Run) -> None:
    """Two ends that answer each other at once stay in order and do not grow the stack."""

    async def test() -> None:
        depth = deepest = 0

        def answer(frame: bytes, channel: Channel) -> None:
            nonlocal depth, deepest
            depth += 1
            deepest = max(deepest, depth)
            number = json.loads(frame)["id"]
            if number < 5000:
                channel.send(Success(number + 1, {}))
            depth -= 1

        near, far = Recorder(answer), Recorder(answer)
        first, second = memory_pair(near, far)
        first.send(Success(0, {}))
        while len(near.frames) + len(far.frames) <= 5000:
            await asyncio.sleep(0)
        assert numbers(far.frames) == list(range(0, 5001, 2))
        assert numbers(near.frames) == list(range(1, 5001, 2))
        assert deepest <= 2
        second.close()
        await first.wait_lost()

    run(test())


def test_a_message_over_the_limit_is_not_sent_and_its_sender_is_told(run: Run) -> None:
    """SIZE-03, SIZE-04: the limit counts the bytes of one message."""

    async def test() -> None:
        near, far = Recorder(), Recorder()
        first, _ = memory_pair(near, far, 100)
        empty = len('{"jsonrpc":"2.0","id":1,"result":""}')
        first.send(Success(1, "x" * (100 - empty)))
        with pytest.raises(EncodeError, match="101 bytes long; the limit is 100"):
            first.send(Success(2, "x" * (101 - empty)))
        first.send(Success(3, ""))
        await turns()
        assert numbers(far.frames) == [1, 3]
        first.close()
        await first.wait_lost()

    run(test())


def test_what_was_sent_before_a_close_arrives_before_the_loss(run: Run) -> None:
    async def test() -> None:
        near, far = Recorder(), Recorder()
        first, second = memory_pair(near, far)
        for number in range(3):
            first.send(Success(number, {}))
        first.close("enough")
        first.close()
        first.send(Success(9, {}))
        assert far.losses == []
        await second.wait_lost()
        await turns()
        assert numbers(far.frames) == [0, 1, 2]
        assert near.losses == far.losses == [None]
        second.send(Success(9, {}))
        await turns()
        assert near.frames == []

    run(test())


def test_a_sender_that_waits_for_room_lets_others_run(run: Run) -> None:
    async def test() -> None:
        near, far = Recorder(), Recorder()
        first, _ = memory_pair(near, far)
        done = False

        async def send_much() -> None:
            nonlocal done
            for _ in range(2000):
                first.send(Notification("progress", "x" * 1000))
                await first.wait_writable()
            done = True

        sending = asyncio.ensure_future(send_much())
        others = 0
        while not done:
            others += 1
            await asyncio.sleep(0)
        await sending
        await turns()
        assert others > 1
        assert len(far.frames) == 2000
        first.close()
        await first.wait_lost()

    run(test())


def test_a_failing_receiver_is_logged_and_ends_its_own_pair_only(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def fail(frame: bytes, channel: Channel) -> None:
        raise ZeroDivisionError

    async def test() -> None:
        near, far = Recorder(), Recorder(fail)
        first, second = memory_pair(near, far)
        first.send(Success(1, {}))
        first.send(Success(2, {}))
        await second.wait_lost()
        await first.wait_lost()
        assert numbers(far.frames) == [1]
        assert [type(error) for error in far.losses] == [ZeroDivisionError]
        assert near.losses == [None]

    with caplog.at_level(logging.ERROR, "ferrule.transports"):
        run(test())
    assert "the receiver failed" in caplog.text


def test_neither_end_sees_the_context_variables_of_the_other(run: Run) -> None:
    async def test() -> None:
        variable: ContextVar[str] = ContextVar("variable", default="unset")
        seen: list[str] = []
        far = Recorder(lambda frame, channel: seen.append(variable.get()))
        first, _ = memory_pair(Recorder(), far)
        variable.set("of the sender")
        first.send(Success(1, {}))
        await turns()
        assert seen == ["unset"]
        first.close()
        await first.wait_lost()

    run(test())


def test_connecting_twice_needs_a_close_between(run: Run) -> None:
    async def test() -> None:
        acceptor = Answering()
        memory = Memory(acceptor)
        await memory.connect(Recorder())
        with pytest.raises(CarrierError, match="connected already"):
            await memory.connect(Recorder())
        await memory.close()
        await memory.close()
        near = Recorder()
        channel = await memory.connect(near)
        channel.send(Request(1, "ping"))
        await turns()
        assert numbers(near.frames) == [1]
        await memory.close(0.1)
        assert acceptor.users == 0

    run(test())


def test_a_round_trip_is_cheap(run: Run) -> None:
    """A wide bound against blunders: the real figure is the benchmark's."""

    async def test() -> None:
        acceptor, near = Answering(), Recorder()
        memory = Memory(acceptor)
        channel = await memory.connect(near)
        started = time.process_time()
        for number in range(5000):
            channel.send(Request(number, "ping"))
            if number % 64 == 63:
                await turns(2)
        await turns()
        assert len(near.frames) == 5000
        assert (time.process_time() - started) / 5000 < 1e-3
        await memory.close()

    run(test())


class Neighbour(Recorder):
    """A receiver that takes messages as well as frames."""

    def __init__(self, answer: Callable[[bytes, Channel], None] | None = None) -> None:
        super().__init__(answer)
        self.messages: list[Request | Success] = []

    def message_received(self, message: Request | Success, channel: Channel) -> None:
        self.messages.append(message)

    def request_received(self, request: Request, channel: Channel) -> None:
        self.messages.append(request)


class TestAReceiverThatTakesMessages:
    """What needs no envelope goes without, and is still written and read."""

    def test_it_gets_requests_and_results_with_a_payload_of_raw_json(self, run: Run) -> None:
        """FRAM-05: what does not survive the wire fails here too."""

        async def test() -> None:
            near, far = Recorder(), Neighbour()
            channel, _ = memory_pair(near, far)
            channel.send(Request(1, "tools/call", {"name": "add", "arguments": (1, 2)}))
            channel.send(Success("a", {"ok": True}))
            asked, answered = far.messages
            assert type(asked) is Request
            assert (asked.id, asked.method, bytes(asked.params)) == (
                1,
                "tools/call",
                b'{"name":"add","arguments":[1,2]}',
            )
            assert type(answered) is Success
            assert (answered.id, bytes(answered.result)) == ("a", b'{"ok":true}')
            for unwritable in (Request(2, "ping", object()), Success(2, {"text": "\ud800"})):
                with pytest.raises(EncodeError):
                    channel.send(unwritable)
            assert (len(far.messages), far.frames) == (2, [])

        run(test())

    @pytest.mark.parametrize(
        "message",
        [
            Request(1, "ping"),
            Notification("notifications/initialized"),
            Failure(1, ErrorObject(-32600, "no")),
            [Request(1, "ping", {})],
            Success(1, {"text": "größer"}),
            Success(1, Raw(b'{"text":"\xff"}')),
        ],
        ids=["request", "notification", "failure", "batch", "success", "bytes that are no text"],
    )
    def test_whatever_else_is_said_comes_as_a_frame(self, run: Run, message: Message) -> None:
        """The codec alone judges what is no plain text."""

        async def test() -> None:
            far = Neighbour()
            channel, _ = memory_pair(Recorder(), far)
            channel.send(message)
            assert far.frames == [encode(message)]
            assert far.messages == []

        run(test())

    def test_what_is_too_long_is_not_sent(self, run: Run) -> None:
        async def test() -> None:
            far = Neighbour()
            channel, _ = memory_pair(Recorder(), far, 1024)
            with pytest.raises(EncodeError, match="the limit is 1024"):
                channel.send(Success(1, "x" * 1024))
            assert far.messages == []

        run(test())

    def test_messages_and_frames_stay_in_order(self, run: Run) -> None:
        """Also those that wait because the receiver is busy."""

        async def test() -> None:
            order: list[str] = []
            far = Neighbour()
            far.frame_received = lambda frame, channel: order.append("frame")  # type: ignore[method-assign]

            def busy(message: Request | Success, channel: Channel) -> None:
                order.append("message")
                if len(order) == 1:
                    for said in (Notification("n"), Success(2, {}), Notification("n")):
                        near.send(said)

            far.message_received = busy  # type: ignore[method-assign]
            near, _ = memory_pair(Recorder(), far)
            near.send(Success(1, {}))
            assert order == ["message", "frame", "message", "frame"]

        run(test())
