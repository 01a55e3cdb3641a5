"""One WebSocket, over real sockets; what takes time, in virtual time."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from typing import Any

import pytest
from raw_websocket import (
    RawWebSocket,
    close_frame,
    frame,
    message,
    new_server,
    opening,
    ping_message,
    serving,
    text,
)

from ferrule.budgets import process
from ferrule.budgets.bounds import FRAMES_A_TURN
from ferrule.errors import CarrierError, EncodeError
from ferrule.transports.websocket.channel import WebSocketChannel
from ferrule.transports.websocket.deflate import Deflate
from ferrule.transports.websocket.frames import BINARY, CLOSE, COMPRESSED, CONTINUATION, FIN, PING, PONG, TEXT
from ferrule.transports.websocket.settings import ChannelSettings
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.messages import Notification

PINGED = FIN | PING


class Pipe(asyncio.Transport):
    """Where a channel writes to: every write is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = self.reading = True
        self.backlog = 0
        self.closed = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.backlog

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Listening:
    """A receiver that notes what it is told."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.losses: list[Exception | None] = []

    def channel_opened(self, channel: Channel) -> None:
        self.channel = channel

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        if frame == b"fail":
            raise RuntimeError("the receiver fails")
        self.frames.append(frame)
        return False

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        raise AssertionError

    def request_failed(self, identity: Any, error: Exception, channel: Channel) -> None:
        raise AssertionError

    def end_received(self, channel: Channel) -> None:
        raise AssertionError

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.losses.append(error)


def channel_on_pipe(
    *, server: bool = True, deflate: Deflate | None = None, **settings: Any
) -> tuple[WebSocketChannel, Pipe, Listening]:
    receiver, pipe = Listening(), Pipe()
    channel = WebSocketChannel(receiver, ChannelSettings(**settings), server=server, deflate=deflate)
    channel.connection_made(pipe)
    return channel, pipe, receiver


# -- messages


async def test_a_frame_holds_one_or_many_messages_and_each_is_answered_in_a_frame_of_its_own() -> None:
    """WEBS-05, WEBS-19."""
    async with serving() as listener:
        peer = await RawWebSocket.open(listener)
        peer.send(text(b"\n".join(ping_message(number) for number in range(3))), text(ping_message(3)))
        assert [(await peer.answer())["id"] for _ in range(4)] == [0, 1, 2, 3]
        await peer.leave()


async def test_a_message_in_parts_is_answered_like_a_whole_one() -> None:
    """WEBS-12."""
    async with serving() as listener:
        peer = await RawWebSocket.open(listener)
        whole = ping_message("é")
        peer.send(frame(TEXT, whole[:9]), frame(CONTINUATION, whole[9:30]), frame(FIN | CONTINUATION, whole[30:]))
        assert (await peer.answer())["id"] == "é"
        await peer.leave()


async def test_messages_of_every_length_come_back_whole_and_in_order() -> None:
    """WEBS-04, WEBS-19."""
    async with serving() as listener:
        peer = await (await RawWebSocket.open(listener)).greet()
        sizes = [0, 1, 100, 125, 126, 127, 65_400, 65_535, 65_536, 300_000]
        for number, size in enumerate(sizes, 1):
            peer.send(text(message(number, "tools/call", {"name": "echo", "arguments": {"text": "x" * size}})))
        answers = [await peer.answer() for _ in sizes]
        assert [answer["id"] for answer in answers] == list(range(1, len(sizes) + 1))
        assert [len(answer["result"]["content"][0]["text"]) for answer in answers] == sizes
        await peer.leave()


async def test_what_is_sent_in_one_turn_leaves_in_one_write() -> None:
    """WEBS-15."""
    channel, pipe, _ = channel_on_pipe()
    for number in range(20):
        channel.send(Notification("n", {"number": number}))
    assert pipe.writes == []
    await asyncio.sleep(0)
    assert len(pipe.writes) == 1
    assert pipe.writes[0].count(b"\x81") == 20


async def test_answers_to_what_was_read_at_once_leave_in_one_write() -> None:
    """WEBS-15, PERF-15: on the real thing, sixteen requests and their answers are one read and one write."""
    channel = WebSocketChannel(new_server().link(Origin("websocket")), ChannelSettings(), server=True)
    pipe = Pipe()
    channel.connection_made(pipe)
    channel.data_received(b"".join(text(ping_message(number)) for number in range(16)))
    assert len(pipe.writes) == 1
    assert pipe.writes[0].count(b'"result"') == 16


async def test_what_cannot_be_written_is_refused_and_nothing_leaves() -> None:
    channel, pipe, _ = channel_on_pipe(max_message_size=1024)
    with pytest.raises(EncodeError, match="limit is 1024"):
        channel.send(Notification("n", {"text": "x" * 1024}))
    with pytest.raises(EncodeError):
        channel.send(Notification("n", {"value": object()}))
    await asyncio.sleep(0)
    assert pipe.writes == []


async def test_long_messages_are_compressed_where_that_was_agreed() -> None:
    """WEBS-16."""
    channel, pipe, receiver = channel_on_pipe(deflate=Deflate())
    channel.send(Notification("short"))
    channel.send(Notification("long", {"text": "x" * 5000}))
    await asyncio.sleep(0)
    short = pipe.writes[0][: 2 + pipe.writes[0][1]]
    packed = pipe.writes[0][len(short) :]
    assert (short[0], packed[0]) == (FIN | TEXT, FIN | COMPRESSED | TEXT)
    assert len(packed) < 200
    channel.data_received(frame(FIN | COMPRESSED | TEXT, Deflate().deflate(b'{"a":1}')))
    assert receiver.frames == [b'{"a":1}']


async def test_a_delimiter_can_be_demanded() -> None:
    """C-31."""
    async with serving(strict_delimiter_check=True) as listener:
        peer = await RawWebSocket.open(listener)
        peer.send(text(ping_message(1) + b"\n"))
        assert (await peer.answer())["id"] == 1
        peer.send(text(ping_message(2)))
        assert await peer.closed_with() == 1002


async def test_binary_messages_are_read_where_they_are_accepted() -> None:
    """WEBS-06."""
    async with serving(accept_binary=True) as listener:
        peer = await RawWebSocket.open(listener)
        peer.send(frame(FIN | BINARY, ping_message(1)))
        assert (await peer.answer())["id"] == 1
        await peer.leave()


# -- pings


async def test_a_ping_is_answered_with_its_payload_after_what_was_said_before_it() -> None:
    """WEBS-07."""
    async with serving() as listener:
        peer = await RawWebSocket.open(listener)
        peer.send(text(ping_message(1)), frame(PINGED, b"a"), frame(PINGED, b""), text(ping_message(2)))
        assert (await peer.answer())["id"] == 1
        assert await peer.frame() == (FIN | PONG, b"a")
        assert await peer.frame() == (FIN | PONG, b"")
        assert (await peer.answer())["id"] == 2
        await peer.leave()


async def test_the_server_pings_every_thirty_seconds(virtual_time: None) -> None:
    """WEBS-08."""
    loop = asyncio.get_running_loop()
    async with serving() as listener:
        peer, began = await RawWebSocket.open(listener), loop.time()
        for number in range(1, 5):
            first, payload = await peer.frame()
            assert first == PINGED
            assert 30 * number - 0.01 <= loop.time() - began <= 33 * number
            peer.send(frame(FIN | PONG, payload))
        await peer.leave()


async def test_a_peer_without_pong_is_closed_with_1011_in_forty_seconds(virtual_time: None) -> None:
    """WEBS-08, WEBS-13."""
    loop = asyncio.get_running_loop()
    async with serving() as listener:
        peer, began = await RawWebSocket.open(listener), loop.time()
        assert (await peer.frame())[0] == PINGED
        peer.send(frame(FIN | PONG, b"not asked for"))
        assert await peer.closed_with() == 1011
        assert await peer.ended()
        assert 40 - 0.01 <= loop.time() - began <= 44


async def test_our_client_finds_a_dead_server_the_same_way(virtual_time: None) -> None:
    """WEBS-08."""
    channel, pipe, receiver = channel_on_pipe(server=False)
    loop = asyncio.get_running_loop()
    for _ in range(45):
        await asyncio.sleep(1)
        channel.sweep(loop.time())
        if pipe.closed:
            break
    assert 40 - 0.01 <= loop.time() <= 42
    channel.connection_lost(None)
    assert "1011 no pong" in str(receiver.losses[0])


# -- parts


async def test_a_message_whose_last_part_does_not_come_is_closed_with_1009(virtual_time: None) -> None:
    """WEBS-12."""
    loop = asyncio.get_running_loop()
    async with serving(ping_interval=None) as listener:
        peer = await RawWebSocket.open(listener)
        peer.send(frame(TEXT, b'{"jsonrpc":'))
        began = loop.time()
        while loop.time() < began + 25:
            await asyncio.sleep(5)
            peer.send(frame(CONTINUATION, b" "))
        assert await peer.closed_with() == 1009
        assert 30 - 0.01 <= loop.time() - began <= 34


async def test_the_code_for_that_can_be_chosen(virtual_time: None) -> None:
    """C-86."""
    async with serving(fragment_timeout_code=1002, ping_interval=None) as listener:
        peer = await RawWebSocket.open(listener)
        peer.send(frame(TEXT, b"{"))
        assert await peer.closed_with() == 1002


# -- ends


@pytest.mark.parametrize(("code", "echoed"), [(1000, 1000), (1001, 1001), (3210, 3210), (4999, 4999)])
async def test_a_close_is_answered_with_its_code_and_then_the_connection_ends(code: int, echoed: int) -> None:
    """WEBS-14."""
    async with serving() as listener:
        peer = await RawWebSocket.open(listener)
        peer.send(text(ping_message(1)), close_frame(code, b"bye"), text(ping_message(2)))
        assert (await peer.answer())["id"] == 1
        assert await peer.closed_with() == echoed
        assert await peer.ended()


async def test_our_close_waits_for_the_answer_of_the_peer() -> None:
    """WEBS-14."""
    channel, pipe, receiver = channel_on_pipe()
    channel.send(Notification("last"))
    channel.close("done")
    assert b"last" in pipe.writes[0]
    assert pipe.writes[1] == b"\x88\x06\x03\xe8done"
    channel.send(Notification("too late"))
    channel.close()
    await asyncio.sleep(0)
    assert len(pipe.writes) == 2
    assert not pipe.closed
    channel.data_received(text(b"{}") + close_frame(1000))
    assert pipe.closed
    assert len(pipe.writes) == 2
    channel.connection_lost(None)
    channel.connection_lost(None)
    assert (receiver.frames, receiver.losses) == ([], [None])


CAUSES: list[tuple[str, bytes, int]] = [
    ("an unmasked frame", frame(FIN | TEXT, b"{}", mask=None), 1002),
    ("a binary frame", frame(FIN | BINARY, b"{}"), 1003),
    ("text that is not UTF-8", text(b"\xff"), 1007),
    ("a message over the limit", text(b"x" * 2000), 1009),
]


@pytest.mark.parametrize(("cause", "data", "code"), CAUSES)
async def test_each_close_code_has_its_cause(cause: str, data: bytes, code: int) -> None:
    """WEBS-06, WEBS-09, WEBS-13, SIZE-08."""
    async with serving(max_message_size=1024) as listener:
        peer = await RawWebSocket.open(listener)
        peer.send(text(ping_message(1)), data, text(ping_message(2)))
        assert (await peer.answer())["id"] == 1
        assert await asyncio.wait_for(peer.closed_with(), 8) == code
        assert await asyncio.wait_for(peer.ended(), 8)


async def test_a_receiver_that_fails_is_our_fault(caplog: pytest.LogCaptureFixture) -> None:
    """WEBS-13: 1011."""
    channel, pipe, receiver = channel_on_pipe()
    channel.data_received(text(b"fail") + text(b"{}"))
    assert b"\x03\xf3" in pipe.writes[-1]
    assert receiver.frames == []
    channel.connection_lost(None)
    assert isinstance(receiver.losses[0], RuntimeError)
    assert "the receiver failed" in caplog.text


async def test_a_peer_that_is_gone_when_it_is_closed_is_no_fault_of_the_receiver(
    caplog: pytest.LogCaptureFixture,
) -> None:
    channel, pipe, receiver = channel_on_pipe()
    pipe.can_write_eof = lambda: True  # type: ignore[method-assign]

    def write_eof() -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    pipe.write_eof = write_eof  # type: ignore[method-assign]
    channel.data_received(frame(FIN | TEXT, b"{}", mask=None))
    channel.connection_lost(ConnectionResetError())
    assert "1002" in str(receiver.losses[0])
    assert caplog.text == ""


async def test_a_loss_without_a_close_is_told_as_one() -> None:
    channel, _, receiver = channel_on_pipe()
    channel.connection_lost(None)
    assert channel.lost
    assert isinstance(receiver.losses[0], CarrierError)
    assert "1006" in str(receiver.losses[0])
    channel.abort()
    channel.send(Notification("too late"))


# -- backpressure


def narrow() -> socket.socket:
    """A socket that takes little."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    return made


async def stalled(listener: Any) -> RawWebSocket:
    """A peer that began a flood and does not read it."""
    sock = narrow()
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", listener.address[1]))
    peer = RawWebSocket(*await asyncio.open_connection(sock=sock, limit=1024))
    assert await peer.ask(opening()) == 101
    await peer.greet()
    params = {"name": "flood", "arguments": {"count": 100_000, "size": 1024}}
    peer.send(text(message(1, "tools/call", params)))
    return peer


async def test_backpressure_begins_at_80_percent_and_ends_at_50_and_both_are_told(virtual_time: None) -> None:
    """WEBS-10, WEBS-11."""
    told: list[tuple[str, int]] = []
    server = new_server()
    # Time runs ahead of the system here, so nothing else may become due meanwhile.
    patient = {"backpressure_timeout": 1e9, "ping_interval": None}
    async with serving(server, on_backpressure=lambda *signal: told.append(signal), **patient) as listener:
        peer = await stalled(listener)
        while not told:
            await asyncio.sleep(0.01)
        assert told[0][0] == "buffer_full"
        # How much of a write the system takes depends on what it knows of the way to the peer. So a write may find any
        # backlog up to the mark; it adds what is flushed at once, and that ends with the message that fills the buffer.
        assert 81_920 < told[0][1] <= 81_920 + 102_400 + 2048
        held = -1
        while server.said != held:
            held = server.said
            await asyncio.sleep(0.1)
        while len(told) == 1:
            assert (await peer.answer())["method"] == "notifications/message"
        assert told[1][0] == "resume_sending"
        assert told[1][1] <= 51_200
        while server.said == held:
            await peer.answer()


async def test_a_peer_that_does_not_read_is_closed_with_1011_after_five_seconds(virtual_time: None) -> None:
    """WEBS-10, WEBS-13: the close can only be written, not taken; five more seconds and the connection is cut."""
    channel, pipe, _ = channel_on_pipe(ping_interval=None)
    loop = asyncio.get_running_loop()
    channel.pause_writing()
    closed_at = 0.0
    while not pipe.closed:
        # What is written stays where it is.
        pipe.backlog = 90_000 + sum(map(len, pipe.writes))
        channel.sweep(loop.time())
        if channel.closing is not None and not closed_at:
            closed_at = loop.time()
        await asyncio.sleep(1)
    assert channel.closing is not None
    assert (channel.closing.code, closed_at, loop.time() - 1) == (1011, 5, 10)


async def test_a_server_stops_reading_from_a_peer_that_does_not_take_its_answers_but_a_client_reads_on() -> None:
    """WEBS-10."""
    for server, reads in ((True, False), (False, True)):
        channel, pipe, _ = channel_on_pipe(server=server)
        assert pipe.limits == (81_920, 51_200)
        channel.pause_writing()
        assert pipe.reading is reads
        waiting = asyncio.ensure_future(channel.wait_writable())
        await asyncio.sleep(0)
        assert not waiting.done()
        channel.resume_writing()
        await waiting
        assert pipe.reading


async def test_a_peer_that_takes_a_little_is_read_again_after_five_seconds(virtual_time: None) -> None:
    """WEBS-10."""
    channel, pipe, _ = channel_on_pipe(ping_interval=None)
    channel.pause_writing()
    loop = asyncio.get_running_loop()
    for step in range(8):
        pipe.backlog = 100_000 - step
        channel.sweep(loop.time())
        if pipe.reading:
            break
        await asyncio.sleep(1)
    assert loop.time() == 5
    assert channel.closing is None


async def test_a_backlog_beyond_all_measure_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.transports.backpressure.LEAST_BACKLOG", 4000)
    channel, pipe, _ = channel_on_pipe(max_message_size=1024)
    channel.pause_writing()
    pipe.backlog = 4001
    channel.send(Notification("n"))
    await asyncio.sleep(0)
    assert pipe.closed
    assert "does not read" in str(channel.error)


async def test_what_was_read_together_with_the_opening_is_not_lost() -> None:
    async with serving() as listener:
        peer = await RawWebSocket.connect(listener)
        assert await peer.ask(opening() + text(ping_message(1))) == 101
        assert json.loads((await peer.frame())[1])["id"] == 1
        await peer.leave()


# -- one turn's share


@pytest.mark.parametrize(
    "data",
    [text(b"1\n") * 5000, text(b"1\n" * 1000) * 5, text(b"1\n" * 999) + text(b"1") * 4001],
    ids=["texts", "lines of texts", "both"],
)
async def test_one_read_of_many_messages_is_handed_over_in_turns(data: bytes) -> None:
    channel, pipe, receiver = channel_on_pipe()
    channel.data_received(data)
    handed_over = [len(receiver.frames)]
    assert not pipe.reading
    while len(receiver.frames) < 5000:
        await asyncio.sleep(0)
        handed_over.append(len(receiver.frames) - sum(handed_over))
    assert max(handed_over) <= FRAMES_A_TURN
    await asyncio.sleep(0)
    assert pipe.reading
    assert len(receiver.frames) == 5000


async def test_messages_pings_and_the_close_keep_their_order_across_turns() -> None:
    channel, pipe, receiver = channel_on_pipe()
    numbers = [b"%d" % number for number in range(200)]
    channel.data_received(b"".join(map(text, numbers)) + frame(FIN | PING, b"now") + close_frame(1000) + text(b"late"))
    # What comes though we do not read has its turn behind the rest; behind a close frame it has none.
    channel.data_received(text(b"later"))
    while not pipe.closed:
        await asyncio.sleep(0)
    assert receiver.frames == numbers
    assert b"".join(pipe.writes).endswith(b"now" + bytes([FIN | CLOSE, 2]) + (1000).to_bytes(2))


async def test_after_our_close_nothing_of_the_same_read_is_handed_over() -> None:
    channel, _, receiver = channel_on_pipe()
    received = receiver.frame_received

    def close_at_100(given: bytes, channel: Channel, origin: Any = None) -> bool:
        received(given, channel, origin)
        if len(receiver.frames) == 100:
            channel.close("too many messages that cannot be read")
        return False

    receiver.frame_received = close_at_100  # type: ignore[method-assign]
    channel.data_received(text(b"1") * 2000)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(receiver.frames) == 100


@pytest.mark.parametrize("server", [True, False])
async def test_what_was_read_is_handed_over_though_the_connection_is_lost_meanwhile(server: bool) -> None:
    channel, pipe, receiver = channel_on_pipe(server=server)
    channel.data_received((text(b"1") if server else frame(FIN | TEXT, b"1", mask=None)) * 1000)
    channel.connection_lost(ConnectionResetError())
    channel.send(Notification("nobody hears this"))
    assert receiver.losses == []
    await channel.wait_lost()
    assert len(receiver.frames) == 1000
    assert isinstance(receiver.losses[0], ConnectionResetError)
    assert pipe.writes == []


async def test_an_abort_after_the_loss_drops_what_was_read() -> None:
    channel, _, receiver = channel_on_pipe()
    channel.data_received(text(b"1") * 1000)
    channel.connection_lost(None)
    channel.sweep(1e9)
    channel.abort()
    channel.abort()
    assert (channel.lost, len(receiver.losses)) == (True, 1)
    await asyncio.sleep(0.01)
    assert len(receiver.frames) == FRAMES_A_TURN


async def test_a_peer_that_does_not_take_its_answers_is_answered_no_more_of_what_was_read() -> None:
    channel, _, receiver = channel_on_pipe()
    channel.data_received(text(b"1") * 1000)
    channel.pause_writing()
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(receiver.frames) == FRAMES_A_TURN
    channel.resume_writing()
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(receiver.frames) == 1000


# -- what peers hold


@pytest.mark.parametrize("whole", [text(b"x" * 300_000), frame(TEXT, b"x" * 300_000) + frame(FIN | CONTINUATION)])
async def test_what_is_held_of_an_unfinished_message_is_counted_until_it_is_whole(whole: bytes) -> None:
    before = process.requests.held
    channel, _, receiver = channel_on_pipe()
    channel.data_received(whole[:50_000])
    assert process.requests.held == before
    channel.data_received(whole[50_000:-2])
    assert before + 290_000 < process.requests.held < before + 310_000
    channel.data_received(whole[-2:])
    assert len(receiver.frames) == 1
    assert process.requests.held == before
    channel.data_received(whole[:200_000])
    assert process.requests.held > before
    channel.connection_lost(None)
    assert process.requests.held == before


async def test_over_the_limit_the_longest_unfinished_message_ends_its_websocket_with_1013(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process.requests, "limit", process.requests.held + 1_000_000)
    hog, pipe, _ = channel_on_pipe()
    modest, _, receiver = channel_on_pipe()
    hog.data_received(text(b"x" * 800_000)[:-1])
    whole = text(b"y" * 300_000)
    modest.data_received(whole[:-1])
    assert hog.closing is not None
    assert hog.closing.code == 1013
    assert b"\x03\xf5" in pipe.writes[-1]
    modest.data_received(whole[-1:])
    assert len(receiver.frames) == 1
    hog.connection_lost(None)
    modest.connection_lost(None)


async def test_what_waits_for_a_slow_peer_is_counted_until_it_is_taken_or_the_peer_is_gone() -> None:
    before = process.answers.held
    channel, pipe, _ = channel_on_pipe()
    for end in (channel.resume_writing, lambda: channel.connection_lost(None)):
        pipe.backlog = 90_000
        channel.pause_writing()
        assert process.answers.held == before + 90_000
        pipe.backlog = 95_000
        channel.send(Notification("n"))
        await asyncio.sleep(0)
        assert process.answers.held == before + 95_000
        end()
        assert process.answers.held == before


async def test_what_cannot_be_read_closes_a_websocket_after_a_while() -> None:
    """The link looks at this mark; a carrier that one process alone can speak on has none."""
    channel, _, _ = channel_on_pipe()
    assert channel.traits.closes_on_garbage
