"""StreamChannel over real pipes and real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import select
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest

from ferrule.budgets import process
from ferrule.budgets.bounds import FRAMES_A_TURN, FREE_UNFINISHED
from ferrule.errors import EncodeError
from ferrule.transports.backpressure import backlog
from ferrule.transports.process.pipe import PipeTransport
from ferrule.transports.stream import LARGE, StreamChannel, frame_as_lines
from ferrule.wire.channel import Channel
from ferrule.wire.framing import Framer, FramingLost, LineFramer
from ferrule.wire.header_block import HeaderFramer
from ferrule.wire.messages import Notification, Success

Run = Callable[[Awaitable[None]], None]


class Recorder:
    """Writes down what the channel tells."""

    running = 1

    def __init__(self, answer: Callable[[bytes, Channel], None] | None = None) -> None:
        self.opened = 0
        self.frames: list[bytes] = []
        self.refused: list[int] = []
        self.ends = 0
        self.losses: list[Exception | None] = []
        self.answer = answer

    def channel_opened(self, channel: Channel) -> None:
        self.opened += 1

    def frame_received(self, frame: bytes, channel: Channel) -> None:
        self.frames.append(frame)
        if self.answer:
            self.answer(frame, channel)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        self.refused.append(max_size)
        channel.send(Notification("refused"))

    def end_received(self, channel: Channel) -> None:
        self.ends += 1

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.losses.append(error)


class Peer:
    """The other end, used with plain blocking calls in a thread."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd, self.write_fd = read_fd, write_fd

    async def read(self, size: int = 1 << 20) -> bytes:
        def read_some() -> bytes:
            assert select.select([self.read_fd], [], [], 10)[0], "nothing to read for 10 s"
            return os.read(self.read_fd, size)

        return await asyncio.to_thread(read_some)

    async def read_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            line += await self.read()
        return line

    async def read_all(self) -> bytes:
        data = b""
        while piece := await self.read():
            data += piece
        return data

    async def write(self, data: bytes) -> None:
        def write_all() -> None:
            rest = memoryview(data)
            while rest:
                assert select.select([], [self.write_fd], [], 10)[1], "no room to write for 10 s"
                rest = rest[os.write(self.write_fd, rest[:4096]) :]

        await asyncio.to_thread(write_all)

    def end(self) -> None:
        if self.write_fd == self.read_fd:
            with socket.socket(fileno=os.dup(self.write_fd)) as copy:
                copy.shutdown(socket.SHUT_WR)
        else:
            os.close(self.write_fd)
            self.write_fd = -1

    def close(self) -> None:
        for fd in {self.read_fd, self.write_fd} - {-1}:
            os.close(fd)
        self.read_fd = self.write_fd = -1


class Line:
    """One channel of ours and the peer it talks to."""

    def __init__(self, carrier: str) -> None:
        self.carrier = carrier
        self.recorder = Recorder()

    async def open(
        self,
        answer: Callable[[bytes, Channel], None] | None = None,
        framer: Framer | None = None,
        on_oversize: Literal["close", "skip"] = "skip",
        json_only: bool = False,
        **options: Any,
    ) -> tuple[StreamChannel, Peer]:
        self.recorder.answer = answer
        channel = StreamChannel(self.recorder, framer, on_oversize=on_oversize, json_only=json_only, **options)
        if self.carrier == "pipes":
            (our_read, peer_write), (peer_read, our_write) = os.pipe(), os.pipe()
            PipeTransport(our_read, our_write, channel)
            self.peer = Peer(peer_read, peer_write)
        else:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=ours)
            fd = theirs.detach()
            self.peer = Peer(fd, fd)
        self.channel = channel
        return channel, self.peer

    async def finish(self) -> None:
        self.channel.abort()
        await self.channel.wait_lost()
        self.peer.close()


@pytest.fixture(params=["pipes", "socket"])
def line(request: pytest.FixtureRequest) -> Line:
    return Line(request.param)


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_fram_02_a_sent_message_is_its_encoding_and_exactly_one_line_feed(run: Run, line: Line) -> None:
    """FRAM-02, STDIO-1: what the codec made is written as it is."""

    async def test() -> None:
        channel, peer = await line.open()
        assert line.recorder.opened == 1
        channel.send(Success(1, {"a": "é"}))
        assert await peer.read() == '{"jsonrpc":"2.0","id":1,"result":{"a":"é"}}\n'.encode()
        await line.finish()

    run(test())


def test_the_answer_to_the_last_running_call_leaves_at_once_and_all_else_together(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, peer = await line.open()
        channel.send(Success(1, "a"))
        channel.send(Success(2, "b"))
        assert channel.messages_out == 0
        await asyncio.sleep(0)
        assert channel.messages_out == 2

        line.recorder.running = 0
        channel.send(Notification("told"))
        assert channel.messages_out == 2
        channel.send(Success(3, "c"))
        assert channel.messages_out == 2
        await asyncio.sleep(0)
        assert channel.messages_out == 4

        channel.send(Success(4, "d"))
        assert channel.messages_out == 5
        sent = b""
        while sent.count(b"\n") < 5:
            sent += await peer.read()
        assert [json.loads(text).get("id") for text in sent.splitlines()] == [1, 2, None, 3, 4]
        await line.finish()

    run(test())


def test_fram_05_a_line_feed_inside_a_text_is_escaped_on_the_wire(run: Run, line: Line) -> None:
    """FRAM-05, STDIO-1."""

    async def test() -> None:
        channel, peer = await line.open()
        channel.send(Success(1, "two\nlines\r\n"))
        data = await peer.read()
        assert data.count(b"\n") == 1
        assert data.endswith(b'"two\\nlines\\r\\n"}\n')
        await line.finish()

    run(test())


def test_fram_08_large_payloads_are_not_copied_into_a_joined_buffer() -> None:
    """FRAM-08: payload and line feed are two buffers, the payload the very object the codec made."""
    large = b"x" * (LARGE + 1)
    payloads = [b"1", b"2", large, b"3", large, large]
    buffers = frame_as_lines(payloads.copy(), sum(map(len, payloads)) + len(payloads))
    assert b"".join(buffers) == b"".join(payload + b"\n" for payload in payloads)
    assert sum(buffer is large for buffer in buffers) == 3
    assert [len(buffer) for buffer in buffers if buffer is not large] == [4, 3, 1, 1]


def test_fram_08_large_and_small_messages_keep_their_order(run: Run, line: Line) -> None:
    """FRAM-08: several buffers in one write, partly written when the pipe is full."""

    async def test() -> None:
        channel, peer = await line.open()
        sizes = [10, 200_000, 20, 30, 700_000, 5, 70_000]
        for number, size in enumerate(sizes):
            channel.send(Success(number, "x" * size))
        channel.close()
        messages = [json.loads(text) for text in (await peer.read_all()).splitlines()]
        assert [(message["id"], len(message["result"])) for message in messages] == list(enumerate(sizes))
        await line.finish()

    run(test())


def test_answers_to_the_requests_of_one_read_leave_in_one_write(run: Run) -> None:
    """A pipe in packet mode gives the writes back one by one."""

    async def test() -> None:
        our_read, peer_write = os.pipe()
        peer_read, our_write = os.pipe2(os.O_DIRECT)
        channel = StreamChannel(Recorder(lambda frame, channel: channel.send(Success(int(frame), {}))))
        PipeTransport(our_read, our_write, channel)
        peer = Peer(peer_read, peer_write)
        await peer.write(b"".join(b"%d\n" % number for number in range(64)))
        assert (await peer.read()).count(b"\n") == 64
        for number in range(64):
            channel.send(Success(number, {}))
        assert (await peer.read()).count(b"\n") == 64
        assert (channel.messages_in, channel.messages_out, channel.bytes_in) == (64, 128, 182)
        channel.abort()
        await channel.wait_lost()
        peer.close()

    run(test())


def test_a_message_that_cannot_be_encoded_raises_and_nothing_is_written(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, peer = await line.open()
        with pytest.raises(EncodeError):
            channel.send(Success(1, object()))
        channel.send(Success(2, {}))
        assert json.loads(await peer.read())["id"] == 2
        await line.finish()

    run(test())


def test_stdi_13_a_peer_that_does_not_read_makes_us_wait_and_stop_reading(run: Run, line: Line) -> None:
    """STDI-13: more than the high-water mark outgoing pauses our reading and `wait_writable`, then both go on."""

    async def test() -> None:
        channel, peer = await line.open()
        for number in range(64):
            channel.send(Success(number, "x" * 64_000))
        waiting = asyncio.ensure_future(channel.wait_writable())
        await peer.write(b"1\n2\n3\n")
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert line.recorder.frames == []
        received = b""
        while received.count(b"\n") < 64:
            received += await peer.read()
        await waiting
        await until(lambda: line.recorder.frames == [b"1", b"2", b"3"])
        assert [json.loads(text)["id"] for text in received.splitlines()] == list(range(64))
        await line.finish()

    run(test())


def test_lines_that_are_not_json_can_be_dropped_early_and_are_counted(run: Run, line: Line) -> None:
    """STDI-10"""

    async def test() -> None:
        channel, peer = await line.open(json_only=True)
        await peer.write(b'WARNING: noise\n{"a":1}\nnull\n  [1]\n')
        await until(lambda: len(line.recorder.frames) == 2)
        assert line.recorder.frames == [b'{"a":1}', b"  [1]"]
        assert channel.dropped == 2
        await line.finish()

    run(test())


def test_gone_quiet_a_peer_that_never_reads_is_given_up_before_memory_grows(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, _ = await line.open(framer=LineFramer(1_000_000))
        for number in range(20):
            channel.send(Success(number, "x" * 900_000))
            await asyncio.sleep(0)
        await channel.wait_lost()
        (loss,) = line.recorder.losses
        assert "does not read" in str(loss)
        await line.finish()

    run(test())


def test_wait_writable_returns_at_once_while_the_peer_keeps_up(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, _ = await line.open()
        channel.send(Success(1, {}))
        waiting = channel.wait_writable()
        with pytest.raises(StopIteration):
            waiting.send(None)
        await line.finish()

    run(test())


def test_losing_the_channel_ends_the_wait_for_room(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, peer = await line.open()
        channel.send(Success(1, "x" * 4_000_000))
        waiting = asyncio.ensure_future(channel.wait_writable())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        peer.close()
        await waiting
        await channel.wait_lost()
        assert isinstance(line.recorder.losses[0], OSError)
        await line.finish()

    run(test())


def test_an_oversized_frame_is_refused_and_the_next_one_is_read(run: Run, line: Line) -> None:
    """SIZE-05 with `on_oversize="skip"`, the policy of stdio."""

    async def test() -> None:
        _, peer = await line.open(framer=LineFramer(1024), on_oversize="skip")
        await peer.write(b"x" * 1024 + b"\n" + b"y" * 1025 + b"\nnext\n")
        assert json.loads(await peer.read())["method"] == "refused"
        assert line.recorder.refused == [1024]
        assert line.recorder.frames == [b"x" * 1024, b"next"]
        await line.finish()

    run(test())


def test_size_07_an_oversized_frame_is_answered_and_then_the_channel_closes(run: Run, line: Line) -> None:
    """SIZE-07 with `on_oversize="close"`, the policy of sockets."""

    async def test() -> None:
        channel, peer = await line.open(framer=LineFramer(1024), on_oversize="close")
        await peer.write(b"y" * 1025 + b"\nnext\n")
        assert json.loads(await peer.read_line())["method"] == "refused"
        await channel.wait_lost()
        assert line.recorder.frames == []
        assert line.recorder.losses == [None]
        await line.finish()

    run(test())


def test_the_end_of_input_comes_after_the_last_line_and_leaves_the_way_out_open(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, peer = await line.open(lambda frame, channel: channel.send(Success(frame.decode(), {})))
        await peer.write(b"first\nlast without line end")
        peer.end()
        await channel.wait_ended()
        await until(lambda: line.recorder.ends)
        assert line.recorder.frames == [b"first", b"last without line end"]
        channel.send(Success("after the end", {}))
        channel.close()
        assert (await peer.read_all()).count(b"\n") == 3
        assert line.recorder.ends == 1
        await line.finish()

    run(test())


def test_the_end_of_input_is_told_once_even_when_the_way_out_is_congested_later(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, peer = await line.open()
        peer.end()
        await channel.wait_ended()
        channel.send(Success(1, "x" * 4_000_000))
        await asyncio.sleep(0.01)
        assert len(await peer.read_line()) > 4_000_000
        await channel.wait_writable()
        await asyncio.sleep(0.02)
        assert line.recorder.ends == 1
        assert line.recorder.losses == []
        await line.finish()

    run(test())


def test_close_delivers_what_was_sent_and_tells_the_loss_once(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, peer = await line.open()
        channel.send(Success(1, "x" * 1_000_000))
        channel.close("enough")
        channel.close()
        channel.send(Success(2, {}))
        assert (await peer.read_all()).count(b"\n") == 1
        await channel.wait_lost()
        channel.connection_lost(None)
        channel.close()
        assert line.recorder.losses == [None]
        assert channel.error is None
        await line.finish()

    run(test())


def test_nothing_is_delivered_after_the_receiver_closed_the_channel(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, peer = await line.open(lambda _, channel: channel.close())
        await peer.write(b"1\n2\n3\n")
        await channel.wait_lost()
        assert line.recorder.frames == [b"1"]
        await line.finish()

    run(test())


def test_a_failing_receiver_is_logged_and_loses_its_channel_only(
    run: Run, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(frame: bytes, channel: Channel) -> None:
        channel.send(Success(1, {}))
        raise ZeroDivisionError(frame.decode())

    async def test() -> None:
        channel, peer = await line.open(fail)
        await peer.write(b"boom\nnever seen\n")
        assert json.loads(await peer.read_line())["id"] == 1
        await channel.wait_lost()
        assert line.recorder.frames == [b"boom"]
        assert [type(error) for error in line.recorder.losses] == [ZeroDivisionError]
        await line.finish()

    with caplog.at_level(logging.ERROR, "ferrule.transports"):
        run(test())
    assert "the receiver failed" in caplog.text


def test_length_headers_are_read_and_written_when_that_framing_is_chosen(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, peer = await line.open(framer=HeaderFramer(1024))
        await peer.write(b"Content-Length: 5\r\n\r\nhelloContent-Length: 2\r\n\r\nhi")
        await until(lambda: line.recorder.frames == [b"hello", b"hi"])
        channel.send(Success(1, {}))
        assert await peer.read() == b'Content-Length: 36\r\n\r\n{"jsonrpc":"2.0","id":1,"result":{}}'
        await peer.write(b"Content-Length: 2\r\n\r\nokContent-Length: many\r\n\r\n")
        await channel.wait_lost()
        assert line.recorder.frames[2:] == [b"ok"]
        assert isinstance(channel.error, FramingLost)
        await line.finish()

    run(test())


def test_stdi_08_a_hundred_thousand_lines_arrive_in_order(run: Run, line: Line) -> None:
    """STDI-08, STDI-01, FRAM-01: nothing is lost, doubled or reordered however the reads fall."""

    async def test() -> None:
        channel, peer = await line.open()
        await peer.write(b"".join(b"%d\n" % number for number in range(100_000)))
        await until(lambda: len(line.recorder.frames) >= 100_000)
        assert line.recorder.frames == [b"%d" % number for number in range(100_000)]
        assert channel.messages_in == 100_000
        await line.finish()

    run(test())


def test_the_descriptors_of_pipes_are_closed_and_block_again(run: Run) -> None:
    """STDI-07: O_NONBLOCK would stay on the open file that others share."""

    async def test() -> None:
        before = set(os.listdir("/proc/self/fd"))
        (our_read, peer_write), (peer_read, our_write) = os.pipe(), os.pipe()
        shared = os.dup(our_read), os.dup(our_write)
        channel = StreamChannel(Recorder())
        PipeTransport(our_read, our_write, channel)
        assert [os.get_blocking(fd) for fd in shared] == [False, False]
        channel.close()
        await channel.wait_lost()
        assert [os.get_blocking(fd) for fd in shared] == [True, True]
        for fd in (*shared, peer_write, peer_read):
            os.close(fd)
        gc.collect()
        assert set(os.listdir("/proc/self/fd")) == before

    run(test())


# -- one turn's share


class Turns:
    """Counts the turns of the loop, and notes in which one each frame came."""

    def __init__(self) -> None:
        self.turn = 0
        self.frames: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self.turn += 1
        self._handle = self._loop.call_soon(self._next)

    def note(self, frame: bytes, channel: Channel) -> None:
        """Note a frame; an answer to `Recorder`."""
        self.frames[self.turn] = self.frames.get(self.turn, 0) + 1

    def end(self) -> None:
        self._handle.cancel()


def test_one_read_of_many_frames_is_handed_over_in_turns_whole_and_in_order(run: Run, line: Line) -> None:
    async def test() -> None:
        turns = Turns()
        _, peer = await line.open(turns.note)
        numbers = [b"%d" % number for number in range(5000)]
        await peer.write(b"\n".join([*numbers, b"the rest"]))
        await until(lambda: len(line.recorder.frames) == 5000)
        peer.end()
        await until(lambda: line.recorder.ends)
        assert line.recorder.frames == [*numbers, b"the rest"]
        # Some loops read twice a turn, and one read may come behind the rest of another.
        assert max(turns.frames.values()) <= 2 * FRAMES_A_TURN
        turns.end()
        await line.finish()

    run(test())


def test_what_one_read_brings_is_handed_over_at_once_where_it_is_no_more_than_a_share(run: Run) -> None:
    async def test() -> None:
        recorder = Recorder()
        channel = StreamChannel(recorder)
        channel.connection_made(Deaf())
        channel.data_received(b"1\n" * FRAMES_A_TURN)
        assert len(recorder.frames) == FRAMES_A_TURN
        channel.data_received(b"1\n" * (FRAMES_A_TURN + 1))
        assert len(recorder.frames) == 2 * FRAMES_A_TURN
        # What comes though we do not read, from a thread for one, has its turn after the rest.
        channel.data_received(b"2\n")
        assert len(recorder.frames) == 2 * FRAMES_A_TURN
        await asyncio.sleep(0.01)
        assert recorder.frames[2 * FRAMES_A_TURN :] == [b"1", b"2"]

    run(test())


def test_after_a_close_nothing_of_the_same_read_is_handed_over(run: Run, line: Line) -> None:
    """So a carrier that closes on what cannot be read does so after a few messages of many."""

    async def test() -> None:
        def close_at_ten(frame: bytes, channel: Channel) -> None:
            channel.send(Notification("unreadable"))
            if frame == b"100":
                channel.close("too many messages that cannot be read")

        _, peer = await line.open(close_at_ten)
        await peer.write(b"".join(b"%d\n" % number for number in range(700)))
        await until(lambda: line.recorder.losses)
        assert len(line.recorder.frames) == 101
        assert (await peer.read_all()).count(b"\n") == 101
        peer.close()

    run(test())


def test_what_was_read_is_handed_over_though_the_stream_is_lost_meanwhile(run: Run) -> None:
    async def test() -> None:
        recorder = Recorder(lambda frame, channel: channel.send(Notification("nobody hears this")))
        channel, transport = StreamChannel(recorder), Deaf()
        channel.connection_made(transport)
        channel.data_received(b"1\n" * 1000)
        channel.connection_lost(ConnectionResetError())
        written = len(transport.writes)
        assert recorder.losses == []
        await channel.wait_lost()
        assert len(recorder.frames) == 1000
        assert len(recorder.losses) == 1
        assert isinstance(recorder.losses[0], ConnectionResetError)
        assert len(transport.writes) == written

    run(test())


def test_an_abort_after_the_loss_drops_what_was_read_and_tells_the_loss_once(run: Run) -> None:
    async def test() -> None:
        recorder = Recorder()
        for end in (StreamChannel.abort, StreamChannel.close):
            recorder.frames, recorder.losses = [], []
            channel = StreamChannel(recorder)
            channel.connection_made(Deaf())
            channel.data_received(b"1\n" * 1000)
            channel.connection_lost(None)
            end(channel)
            assert (channel.lost, len(recorder.losses)) == (True, 1)
            await asyncio.sleep(0.01)
            assert (len(recorder.frames), len(recorder.losses)) == (FRAMES_A_TURN, 1)

    run(test())


def test_the_end_of_the_input_comes_behind_what_was_read_before_it(run: Run) -> None:
    async def test() -> None:
        recorder = Recorder()
        channel = StreamChannel(recorder)
        channel.connection_made(Deaf())
        channel.data_received(b"1\n" * 1000 + b"2")
        assert channel.eof_received()
        assert recorder.ends == 0
        await channel.wait_ended()
        assert (len(recorder.frames), recorder.frames[-1], recorder.ends) == (1001, b"2", 1)

    run(test())


def test_a_peer_that_does_not_take_its_answers_is_answered_no_more_of_what_was_read(run: Run, line: Line) -> None:
    async def test() -> None:
        _, peer = await line.open(lambda frame, channel: channel.send(Success(1, "x" * 20_000)))
        await peer.write(b"1\n" * 1000)
        await asyncio.sleep(0.2)
        assert len(line.recorder.frames) < 200
        assert line.channel.backlog < 3_000_000
        received = 0
        while received < 1000:
            received += (await peer.read()).count(b"\n")
        assert len(line.recorder.frames) == 1000
        await line.finish()

    run(test())


class Deaf(asyncio.Transport):
    """A transport that takes nothing: what is written waits."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.backlog = 0
        self.paused = self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.backlog

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self.backlog += len(data)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    abort = close


# -- what peers hold


def test_what_waits_for_a_slow_peer_is_counted_for_the_process_until_it_is_taken(run: Run, line: Line) -> None:
    async def test() -> None:
        before = process.answers.held
        channel, peer = await line.open()
        channel.send(Success(1, "x" * 2_000_000))
        await asyncio.sleep(0.01)
        assert channel.congested
        assert process.answers.held - before > 1_000_000
        await peer.read_line()
        await until(lambda: not channel.congested)
        assert process.answers.held == before
        channel.send(Success(1, "x" * 2_000_000))
        await asyncio.sleep(0.01)
        assert process.answers.held > before
        await line.finish()
        assert process.answers.held == before

    run(test())


def test_over_the_limit_of_the_process_the_peer_for_whom_most_waits_is_cut(
    run: Run, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(process.answers, "limit", process.answers.held + 5_000_000)
        other = Line(line.carrier)
        large, _ = await line.open()
        small, _ = await other.open()
        # The system may take some megabytes of each.
        large.send(Success(1, "x" * 14_000_000))
        await asyncio.sleep(0.01)
        small.send(Success(1, "x" * 7_000_000))
        await asyncio.wait_for(large.wait_lost(), 10)
        assert "does not read" in str(line.recorder.losses[0])
        assert not small.lost
        assert backlog.held(large) == 0
        line.peer.close()
        await other.finish()

    run(test())


def test_a_peer_that_takes_nothing_is_cut_after_the_write_timeout(run: Run, line: Line) -> None:
    async def test() -> None:
        channel, _ = await line.open(write_timeout=0.3)
        channel.send(Success(1, "x" * 2_000_000))
        await asyncio.wait_for(channel.wait_lost(), 10)
        assert "does not read" in str(line.recorder.losses[0])
        line.peer.close()

    run(test())


def test_a_peer_that_takes_a_little_within_the_write_timeout_is_not_cut(run: Run) -> None:
    async def test() -> None:
        recorder, transport = Recorder(), Deaf()
        channel = StreamChannel(recorder, write_timeout=0.2)
        channel.connection_made(transport)
        channel.send(Success(1, "x" * 2_000_000))
        await asyncio.sleep(0)
        channel.pause_writing()
        for _ in range(10):
            transport.backlog -= 1
            await asyncio.sleep(0.05)
        assert not transport.closed
        await until(lambda: transport.closed)
        channel.connection_lost(None)

    run(test())


def test_what_is_held_of_an_unfinished_message_is_counted_until_it_is_whole(run: Run, line: Line) -> None:
    async def test() -> None:
        before = process.requests.held
        _, peer = await line.open()
        await peer.write(b"x" * FREE_UNFINISHED)
        await asyncio.sleep(0.05)
        assert process.requests.held == before
        await peer.write(b"x" * 100_000)
        await until(lambda: process.requests.held == before + FREE_UNFINISHED + 100_000)
        await peer.write(b"\n")
        await until(lambda: line.recorder.frames)
        assert process.requests.held == before
        await peer.write(b"x" * 100_000)
        await until(lambda: process.requests.held == before + 100_000)
        await line.finish()
        assert process.requests.held == before

    run(test())


def test_over_the_limit_the_longest_unfinished_message_is_refused_and_its_stream_closed(
    run: Run, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(process.requests, "limit", process.requests.held + 1_000_000)
        other = Line(line.carrier)
        _, hog = await line.open()
        _, modest = await other.open()
        await hog.write(b"x" * 800_000)
        await until(lambda: process.requests.held >= 800_000)
        await modest.write(b"y" * 300_000)
        refusal = json.loads(await hog.read_line())
        assert refusal["id"] is None
        assert "not whole" in refusal["error"]["message"]
        await line.channel.wait_lost()
        await modest.write(b"\n")
        await until(lambda: other.recorder.frames)
        hog.close()
        await other.finish()

    run(test())


@pytest.mark.parametrize("serving", [True, False])
def test_where_the_public_can_speak_http_is_closed_at_its_first_line(
    run: Run, line: Line, serving: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        _, peer = await line.open(public=True, serving=serving)
        await peer.write(b'{"a":1}\nPOST / HTTP/1.1\r\nHost: x\r\n\r\n{"b":1}\n')
        await line.channel.wait_lost()
        assert line.recorder.frames == [b'{"a":1}']
        assert "HTTP" in str(line.recorder.losses[0])
        assert "speaks HTTP" in caplog.text
        peer.close()

    run(test())
