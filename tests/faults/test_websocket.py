"""Abuse of WebSockets over real sockets: the section WSK of the catalogue."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import zlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ferrule.transports.http.listener import Http
from ferrule.transports.websocket.frames import (
    BINARY,
    CLOSE,
    COMPRESSED,
    CONTINUATION,
    FIN,
    MASKED,
    PING,
    TEXT,
    frame_head,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "transports" / "websocket"))

from raw_websocket import (
    RawWebSocket,
    close_frame,
    frame,
    message,
    new_server,
    opening,
    ping_message,
    run_unhurried,
    serving,
    text,
)

MIB = 1024 * 1024
PATIENCE = 120.0


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


def rss() -> int:
    """How much memory this process has, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def still_serves(listener: Any) -> None:
    peer = await RawWebSocket.open(listener)
    peer.send(text(ping_message("next")))
    assert (await asyncio.wait_for(peer.answer(), 8))["id"] == "next"
    await peer.leave()


# -- openings

OPENINGS: list[tuple[str, bytes, set[int]]] = [
    ("an Origin that is not ours", opening(Origin="https://evil.example"), {403}),
    ("the Origin null", opening(Origin="null"), {403}),
    ("two Origins", opening(Origin="http://127.0.0.1\r\nOrigin: https://evil.example"), {403}),
    ("a Host that is not ours", opening(Host="evil.example"), {403, 421}),
    ("no key", opening(without="Sec-WebSocket-Key"), {400}),
    ("a short key", opening(Sec_WebSocket_Key="c2hvcnQ="), {400}),
    ("version 12", opening(Sec_WebSocket_Version="12"), {400}),
    ("no Upgrade", opening(without="Upgrade"), {400, 426}),
    ("no Connection", opening(without="Connection"), {400, 426}),
    ("POST", opening().replace(b"GET", b"POST"), {400}),
]


@pytest.mark.parametrize(("what", "request_bytes", "statuses"), OPENINGS)
@pytest.mark.parametrize("kind", ["alone", "beside HTTP"])
def test_wsk_02_a_bad_opening_is_refused(what: str, request_bytes: bytes, statuses: set[int], kind: str) -> None:
    """CVE-2026-59950."""

    async def scene() -> None:
        async with listening(kind) as listener:
            peer = await RawWebSocket.connect(listener)
            assert await peer.ask(request_bytes) in statuses
            await still_serves(listener)

    run(scene())


def listening(kind: str, **options: Any) -> Any:
    return serving(**options) if kind == "alone" else serving(kind=Http, websocket=options or True)


def test_wsk_02_the_same_origin_is_let_in() -> None:
    async def scene() -> None:
        async with serving() as listener:
            port = listener.address[1]
            peer = await RawWebSocket.connect(listener)
            assert await peer.ask(opening(Host=f"127.0.0.1:{port}", Origin=f"http://127.0.0.1:{port}")) == 101

    run(scene())


# -- frames

ILLEGAL: list[tuple[str, bytes, int]] = [
    ("an unmasked frame", frame(FIN | TEXT, b"{}", mask=None), 1002),
    ("a reserved bit", frame(FIN | 0x20 | TEXT, b"{}"), 1002),
    ("a reserved opcode", frame(FIN | 5, b"{}"), 1002),
    ("a reserved control opcode", frame(FIN | 12), 1002),
    ("a ping in parts", frame(PING, b"a"), 1002),
    ("a ping of 126 bytes", frame(FIN | PING, b"a" * 126), 1002),
    ("a continuation of nothing", frame(FIN | CONTINUATION, b"a"), 1002),
    ("a close with 1005", close_frame(1005), 1002),
    ("a close of one byte", frame(FIN | CLOSE, b"\x03"), 1002),
]


@pytest.mark.parametrize(("what", "data", "code"), ILLEGAL)
def test_wsk_03_an_illegal_frame_closes_with_1002_within_a_second(what: str, data: bytes, code: int) -> None:
    async def scene() -> None:
        async with serving() as listener:
            peer = await RawWebSocket.open(listener)
            peer.send(data)
            assert await asyncio.wait_for(peer.closed_with(), 8) == code
            assert await asyncio.wait_for(peer.ended(), 8)
            await still_serves(listener)

    run(scene())


@pytest.mark.parametrize(
    "data",
    [
        text(b'{"a":"\xff"}'),
        text(b"\xed\xa0\x80"),
        frame(TEXT, b"\xe2\x82") + frame(FIN | CONTINUATION, b"\xff"),
        frame(TEXT, b"\xe2\x82") + frame(FIN | CONTINUATION, b""),
    ],
)
def test_wsk_04_text_that_is_not_utf8_closes_with_1007_also_across_fragments(data: bytes) -> None:
    async def scene() -> None:
        async with serving() as listener:
            peer = await RawWebSocket.open(listener)
            peer.send(data)
            assert await asyncio.wait_for(peer.closed_with(), 8) == 1007

    run(scene())


@pytest.mark.parametrize("size", [1 << 63, 1 << 62, 64 * MIB])
def test_wsk_05_an_oversize_length_closes_with_1009_before_anything_is_kept(size: int) -> None:
    async def scene() -> None:
        async with serving() as listener:
            before = rss()
            peers = [await RawWebSocket.open(listener) for _ in range(4)]
            for peer in peers:
                peer.send(frame_head(FIN | TEXT, size, MASKED) + b"abcd", b"x" * MIB)
            assert [await asyncio.wait_for(peer.closed_with(), 8) for peer in peers] == [1009] * 4
            assert all(not channel._reader.pending for channel in listener._endpoint.channels)
            assert rss() - before < 24 * MIB
            await still_serves(listener)

    run(scene())


def test_wsk_05_endless_tiny_fragments_close_with_1009() -> None:
    async def scene() -> None:
        async with serving() as listener:
            before, some = rss(), frame(CONTINUATION, b"x") * 10_000
            peer = await RawWebSocket.open(listener)
            peer.send(frame(TEXT, b"x"))
            closed = asyncio.ensure_future(peer.closed_with())
            for _ in range(100):
                peer.send(some)
                with contextlib.suppress(ConnectionError):
                    await peer.writer.drain()
                if closed.done():
                    break
            assert await asyncio.wait_for(closed, 8) == 1009
            assert rss() - before < 24 * MIB

    run(scene())


def bomb() -> bytes:
    packing = zlib.compressobj(9, wbits=-15)
    return packing.compress(b"0" * (64 * MIB)) + packing.flush(zlib.Z_SYNC_FLUSH)


def test_wsk_06_compression_is_off_by_default_and_a_bomb_is_an_illegal_frame() -> None:
    async def scene() -> None:
        async with serving() as listener:
            peer = await RawWebSocket.open(listener, opening(Sec_WebSocket_Extensions="permessage-deflate"))
            assert "sec-websocket-extensions" not in peer.headers
            peer.send(frame(FIN | COMPRESSED | TEXT, bomb()))
            assert await asyncio.wait_for(peer.closed_with(), 8) == 1002

    run(scene())


def test_wsk_06_where_compression_is_on_a_bomb_closes_with_1009() -> None:
    async def scene() -> None:
        async with serving(compression=True) as listener:
            peer = await RawWebSocket.open(listener, opening(Sec_WebSocket_Extensions="permessage-deflate"))
            assert "server_no_context_takeover" in peer.headers["sec-websocket-extensions"]
            packed = bomb()
            assert len(packed) < 128 * 1024
            peer.send(frame(FIN | COMPRESSED | TEXT, packed))
            assert await asyncio.wait_for(peer.closed_with(), 8) == 1009
            await still_serves(listener)

    run(scene())


def test_wsk_06_compressing_connections_hold_no_context() -> None:
    """With zlib's windows kept, two hundred of them would hold 60 MB."""

    async def scene() -> None:
        async with serving(compression=True) as listener:
            peers = [
                await RawWebSocket.open(listener, opening(Sec_WebSocket_Extensions="permessage-deflate"))
                for _ in range(200)
            ]
            before = rss()
            for number, peer in enumerate(peers):
                peer.send(text(ping_message(number)), text(ping_message("x" * 4000)))
                await peer.answer()
                assert (await peer.frame())[0] == FIN | COMPRESSED | TEXT
            assert rss() - before < 8 * MIB

    run(scene())


def test_wsk_07_nothing_is_met_with_silence() -> None:
    async def scene() -> None:
        async with serving() as listener:
            peer = await (await RawWebSocket.open(listener)).greet()
            for garbage, code in ((b"garbage", -32700), (b"{}", -32600), (b"", -32700), (b"\n\n", -32700)):
                peer.send(text(garbage))
                assert (await asyncio.wait_for(peer.answer(), 8))["error"]["code"] == code
            peer.send(text(b"[" + ping_message(1) + b"," + ping_message(2) + b"]"))
            assert await asyncio.wait_for(peer.answer(), 8)
            peer.send(frame(FIN | BINARY, ping_message(3)))
            assert await asyncio.wait_for(peer.closed_with(), 8) == 1003

    run(scene())


# -- floods and silence


async def narrow_peer(listener: Any) -> RawWebSocket:
    """A peer whose socket takes little, and whose reader takes nothing by itself."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", listener.address[1]))
    peer = RawWebSocket(*await asyncio.open_connection(sock=sock, limit=1024))
    assert await peer.ask(opening()) == 101
    return peer


def test_wsk_08_pings_whose_pongs_nobody_reads_hold_a_bounded_queue() -> None:
    async def scene() -> None:
        async with serving(backpressure_timeout=1.0) as listener:
            peer = await narrow_peer(listener)
            (channel,) = listener._endpoint.channels
            before, worst = rss(), 0
            pings = b"".join(frame(FIN | PING, b"%0125d" % number) for number in range(500))
            sending = asyncio.ensure_future(flood(peer, pings, 400))
            while channel.closing is None:
                await asyncio.sleep(0.01)
                worst = max(worst, channel._transport.get_write_buffer_size())
            assert worst < 81_920 + 64 * 1024 + 1024
            assert rss() - before < 24 * MIB
            assert channel.closing.code == 1011
            await still_serves(listener)
            sending.cancel()

    run(scene())


async def flood(peer: RawWebSocket, data: bytes, times: int) -> None:
    with contextlib.suppress(ConnectionError):
        for _ in range(times):
            peer.send(data)
            await peer.writer.drain()


def test_wsk_08_twenty_thousand_pings_that_are_read_are_all_answered() -> None:
    async def scene() -> None:
        async with serving() as listener:
            peer = await RawWebSocket.open(listener)
            for start in range(0, 20_000, 1000):
                peer.send(*(frame(FIN | PING, b"%d" % number) for number in range(start, start + 1000)))
                assert [(await peer.frame())[1] for _ in range(1000)] == [b"%d" % n for n in range(start, start + 1000)]

    run(scene())


def test_wsk_08_a_peer_that_never_sends_a_pong_is_cut_in_forty_seconds() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        async with serving() as listener:
            peer, began = await RawWebSocket.open(listener), loop.time()
            assert await peer.closed_with() == 1011
            assert await peer.ended()
            assert loop.time() - began <= 44

    run_unhurried(scene())


def test_wsk_09_an_opening_that_never_comes_is_cut_in_ten_seconds() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        async with serving() as listener:
            began = loop.time()
            silent = [await RawWebSocket.connect(listener) for _ in range(100)]
            for peer in silent:
                await peer.reader.read()
            assert 10 - 0.01 <= loop.time() - began <= 15

    run_unhurried(scene())


def test_wsk_09_an_opening_byte_by_byte_is_cut_in_ten_seconds() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        async with serving() as listener:
            began = loop.time()
            peers = [await RawWebSocket.connect(listener) for _ in range(100)]
            for byte in opening():
                for peer in peers:
                    peer.send(bytes((byte,)))
                await asyncio.sleep(0.5)
                if loop.time() - began > 13:
                    break
            answers = [await peer.reader.read() for peer in peers]
            assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in answers)
            assert loop.time() - began <= 18
            assert not listener._endpoint.channels

    run_unhurried(scene())


def test_wsk_10_a_slow_reader_holds_its_producer_and_is_cut() -> None:
    """100,000 messages of 1 KiB to a reader that stops; the times are a fifth of the real ones."""

    async def scene() -> None:
        server = new_server()
        loop = asyncio.get_running_loop()
        async with serving(server, backpressure_timeout=1.0) as listener:
            peer = await (await narrow_peer(listener)).greet()
            (channel,) = listener._endpoint.channels
            before = rss()
            peer.send(text(message(1, "tools/call", {"name": "flood", "arguments": {"count": 100_000, "size": 1024}})))
            while not channel.congested:
                await asyncio.sleep(0.01)
            began, held = loop.time(), server.said
            await asyncio.sleep(0.5)
            assert server.said - held < 1000
            assert rss() - before < 8 * MIB
            await still_serves(listener)
            await channel.wait_lost()
            assert 0.9 < loop.time() - began < 60
            assert channel.closing is not None
            assert channel.closing.code == 1011
            assert server.said < 20_000

    run(scene())


def test_wsk_11_a_close_that_is_never_answered_ends_in_a_tcp_close_after_ten_seconds() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        async with serving() as listener:
            peer = await RawWebSocket.open(listener)
            (channel,) = listener._endpoint.channels
            channel.close("done")
            assert await peer.closed_with() == 1000
            began = loop.time()
            await channel.wait_lost()
            assert 8 - 0.01 <= loop.time() - began <= 14
            assert await peer.ended()

    run_unhurried(scene())


# -- odd upgrades

BODY = b"hello"


@pytest.mark.parametrize(
    ("what", "request_bytes", "status"),
    [
        ("a body", opening(Content_Length="5") + BODY, 400),
        ("a body in chunks", opening(Transfer_Encoding="chunked") + b"5\r\nhello\r\n0\r\n\r\n", 400),
        ("a session that is bound already", opening(Mcp_Session_Id="somebody's"), 409),
        ("two Upgrades", opening(Upgrade="websocket\r\nUpgrade: websocket"), 400),
    ],
)
def test_wsk_12_an_odd_upgrade_is_refused(what: str, request_bytes: bytes, status: int) -> None:
    async def scene() -> None:
        async with serving(kind=Http, websocket=True) as listener:
            peer = await RawWebSocket.connect(listener)
            assert await peer.ask(request_bytes) == status
            assert not listener._websocket.channels

    run(scene())


def test_wsk_12_a_second_upgrade_on_the_same_connection_is_an_illegal_frame() -> None:
    async def scene() -> None:
        async with serving() as listener:
            peer = await RawWebSocket.connect(listener)
            assert await peer.ask(opening() + opening()) == 101
            assert await asyncio.wait_for(peer.closed_with(), 8) == 1002

    run(scene())


def test_wsk_12_the_session_of_one_websocket_is_nobody_elses() -> None:
    """No session fixation: what one connection has agreed on, the next has not."""

    async def scene() -> None:
        async with serving() as listener:
            first = await (await RawWebSocket.open(listener)).greet()
            second = await RawWebSocket.open(listener)
            for peer in (first, second):
                peer.send(text(message(7, "tools/list")))
            assert "result" in await first.answer()
            assert "error" in await second.answer()

    run(scene())


# -- life and death


@contextlib.asynccontextmanager
async def nothing_left(listener: Any, server: Any) -> AsyncIterator[None]:
    """Whatever happens inside leaves no task, descriptor, channel or link behind."""
    await asyncio.sleep(0.05)
    tasks, descriptors = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
    yield
    engine_state = listener._engine._engine_state
    for _ in range(1000):
        await asyncio.sleep(0.02)
        left = [*listener._endpoint.channels, *server.host.links, *engine_state.connections, *engine_state.arriving]
        more = len(asyncio.all_tasks()) - tasks, len(os.listdir("/proc/self/fd")) - descriptors
        if not left and max(more) <= 0:
            break
    assert not left
    assert max(more) <= 0, more


def test_a_thousand_websockets_that_come_and_go_leave_nothing_behind() -> None:
    """Politely, without a word, with a reset, and in the middle of a frame."""

    async def cycle(listener: Any, number: int) -> None:
        peer = await (await RawWebSocket.open(listener)).greet()
        peer.send(text(message(1, "tools/call", {"name": "add", "arguments": {"a": number, "b": 1}})))
        assert (await peer.answer())["result"]["structuredContent"] == {"result": number + 1}
        if number % 4 == 0:
            peer.send(close_frame(1000))
            assert await peer.closed_with() == 1000
        elif number % 4 == 1:
            reset(peer)
        elif number % 4 == 2:
            peer.send(text(b"x" * 500)[:100])
            await peer.writer.drain()
        await peer.leave()

    async def scene() -> None:
        server = new_server()
        async with serving(server) as listener:
            await cycle(listener, 0)
            async with nothing_left(listener, server):
                for start in range(0, 1000, 20):
                    await asyncio.gather(*(cycle(listener, number) for number in range(start, start + 20)))

    run(scene())


def reset(peer: RawWebSocket) -> None:
    sock = peer.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


def test_our_own_client_a_thousand_times_leaves_nothing_behind() -> None:
    from ferrule import Client

    async def scene() -> None:
        server = new_server()
        async with serving(server) as listener:
            target = f"ws://127.0.0.1:{listener.address[1]}/mcp/ws"
            async with Client(target) as client:
                await client.call_tool("add", {"a": 1, "b": 2})
            async with nothing_left(listener, server):
                for number in range(1000):
                    async with Client(target, mode="handshake" if number % 2 else "stateless") as client:
                        assert (await client.call_tool("add", {"a": number, "b": 1})).data == number + 1
            timers = [repr(timer) for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
            assert not [timer for timer in timers if "WebSocketTransport" in timer]

    run(scene())


def test_a_message_cut_by_the_end_of_its_connection_is_not_run() -> None:
    async def scene() -> None:
        server = new_server()
        ran: list[str] = []

        @server.tool
        async def note(text: str) -> None:
            ran.append(text)

        async with serving(server) as listener:
            peer = await (await RawWebSocket.open(listener)).greet()
            whole = text(json.dumps(json.loads(message(1, "tools/call", {"name": "note", "arguments": {"text": "x"}}))))
            peer.send(whole[:-1])
            await peer.writer.drain()
            await peer.leave()
            while listener._endpoint.channels:
                await asyncio.sleep(0.01)
            assert ran == []

    run(scene())
