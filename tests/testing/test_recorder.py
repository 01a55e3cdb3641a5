"""The recorder: what both sides say, in order, and nothing else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ferrule import Client, Server
from ferrule.errors import EncodeError
from ferrule.testing import ERAS, Recorded, Recorder
from ferrule.transports.memory import Memory
from ferrule.transports.process.child import ChildProcess
from ferrule.wire.channel import Channel, ChannelDefaults, Origin, Receiver
from ferrule.wire.messages import Message, Notification, Request

BATCHES = {"mode": "handshake", "protocol_version": "2025-03-26"}


def greeter() -> Server:
    app = Server("greeter")

    @app.tool
    async def greet(name: str) -> str:
        return f"hello {name}"

    return app


class Far(ChannelDefaults):
    """A transport whose far end says what a test wants."""

    def __init__(self) -> None:
        self.receiver: Receiver | None = None
        self.sent: list[Message | Sequence[Message]] = []
        self.closed = False

    async def connect(self, receiver: Receiver) -> Far:
        self.receiver = receiver
        receiver.channel_opened(self)
        return self

    async def close(self, grace: float = 2.0) -> None: ...

    def send(self, message: Message | Sequence[Message]) -> None:
        self.sent.append(message)

    async def wait_writable(self) -> None: ...


class Near:
    """A receiver that only keeps its channel and its frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.refused: list[int] = []
        self.ended = self.lost = False

    def channel_opened(self, channel: Channel) -> None:
        self.channel = channel

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> None:
        assert channel is self.channel
        self.frames.append(frame)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        assert channel is self.channel
        self.refused.append(max_size)

    def end_received(self, channel: Channel) -> None:
        assert channel is self.channel
        self.ended = True

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        assert channel is self.channel
        self.lost = True


def listening() -> tuple[Recorder, Near, Far]:
    """Connect a recorder between two ends that do nothing by themselves."""
    far, near = Far(), Near()
    recorder = Recorder(far)
    asyncio.run(recorder.connect(near))
    assert far.receiver is not None
    return recorder, near, far


@pytest.mark.parametrize("era", ERAS)
def test_both_sides_are_recorded_in_order(era: str) -> None:
    recorder = Recorder(Memory(greeter()))

    async def talk() -> None:
        async with Client(recorder, mode=era) as client:
            await client.call_tool("greet", {"name": "Ada"})

    asyncio.run(talk())
    *_, asked, answered = recorder.messages
    assert (asked.sender, asked.message["method"]) == ("client", "tools/call")
    assert (answered.sender, answered.message["id"]) == ("server", asked.message["id"])
    assert answered.message["result"]["content"] == [{"type": "text", "text": "hello Ada"}]


def test_what_one_side_sent_can_be_asked_for() -> None:
    recorder = Recorder(Memory(greeter()))

    async def talk() -> None:
        async with Client(recorder, mode="handshake") as client:
            await client.ping()

    asyncio.run(talk())
    assert [m.get("method") for m in recorder.sent("client")] == ["initialize", "notifications/initialized", "ping"]
    assert len(recorder.sent("server")) == 2
    assert len(recorder.sent("client", "ping")) == 1
    assert recorder.sent("server", "ping") == []


def test_a_batch_is_recorded_as_one_list_and_found_by_its_parts() -> None:
    recorder = Recorder(Memory(greeter()))

    async def talk() -> None:
        async with Client(recorder, **BATCHES) as client:
            async with client.batch() as batch:
                answers = [batch.request("ping"), batch.request("tools/list")]
            await asyncio.gather(*answers)

    asyncio.run(talk())
    arrays = [entry for entry in recorder.messages if isinstance(entry.message, list)]
    assert [entry.sender for entry in arrays] == ["client", "server"]
    assert len(recorder.sent("client", "tools/list")) == 1


def test_a_child_process_can_be_listened_to(tmp_path: Path) -> None:
    program = tmp_path / "served.py"
    program.write_text("from ferrule import Server\nServer('served').run()\n", encoding="utf-8")
    recorder = Recorder(ChildProcess([sys.executable, str(program)], stderr="capture"))

    async def talk() -> None:
        async with Client(recorder) as client:
            await client.ping()

    asyncio.run(talk())
    assert [entry.sender for entry in recorder.messages] == ["client", "server"] * (len(recorder.messages) // 2)


def test_what_is_no_json_is_recorded_as_it_came() -> None:
    recorder, near, far = listening()
    assert far.receiver is not None
    for frame in (b"stray print", b"\xff", b"[" * 5000):
        far.receiver.frame_received(frame, far)
    assert recorder.messages == [Recorded("server", frame) for frame in near.frames]
    assert recorder.sent("server", "ping") == []


def test_everything_a_carrier_tells_is_passed_on() -> None:
    recorder, near, far = listening()
    assert far.receiver is not None
    far.receiver.frame_refused(10, far)
    far.receiver.end_received(far)
    far.receiver.channel_lost(far, None)
    assert (near.refused, near.ended, near.lost) == ([10], True, True)
    assert recorder.messages == []


def test_what_is_sent_after_the_end_is_not_recorded() -> None:
    recorder, near, far = listening()
    assert far.receiver is not None
    near.channel.send(Request(1, "ping"))
    far.receiver.channel_lost(far, None)
    near.channel.send(Notification("notifications/late"))
    assert [entry.message["method"] for entry in recorder.messages] == ["ping"]
    assert len(far.sent) == 2


def test_what_cannot_be_written_is_not_recorded() -> None:
    recorder, near, far = listening()
    with pytest.raises(EncodeError):
        near.channel.send(Request(1, "ping", {"x": object()}))
    assert (recorder.messages, far.sent) == ([], [])
