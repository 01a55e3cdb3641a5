"""Floods of HTTP/2 frames, each named by its CVE, at an engine in a process of its own (HTP-16).

Each ends in GOAWAY, costs at most a second of CPU time for 10,000 frames, and leaves memory and bystanders alone.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    ExtensionFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from raw_http import EngineProcess, engine

from http2_peer import new_client, request_fields

FRAMES = 10_000
CALM = 11
PROTOCOL_ERROR = 1
MOST_CPU = 1.0
MOST_GROWTH = 30.0
"""MiB."""


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def server(request: pytest.FixtureRequest) -> Iterator[EngineProcess]:
    with engine(loop=request.param) as process:
        yield process


class Fields:
    """Writes HEADERS frames as one connection's compressor would."""

    def __init__(self) -> None:
        self.encoder = Encoder()

    def frame(self, stream: int, path: str = "/slow", *more: tuple[str, str], ends: bool = True) -> HeadersFrame:
        frame = HeadersFrame(stream, self.encoder.encode(request_fields("POST", path, *more)))
        frame.flags.add("END_HEADERS")
        if ends:
            frame.flags.add("END_STREAM")
        return frame


def odd(count: int) -> range:
    return range(1, 2 * count, 2)


def rapid_reset() -> Iterator[Frame]:
    fields = Fields()
    for stream in odd(FRAMES // 2):
        yield fields.frame(stream)
        yield RstStreamFrame(stream, error_code=8)


def made_you_reset_by_window() -> Iterator[Frame]:
    fields = Fields()
    for stream in odd(FRAMES // 2):
        yield fields.frame(stream)
        yield WindowUpdateFrame(stream, window_increment=2**31 - 1)


def made_you_reset_by_data() -> Iterator[Frame]:
    fields = Fields()
    for stream in odd(FRAMES // 2):
        yield fields.frame(stream)
        yield DataFrame(stream, bytes(100))


def made_you_reset_by_priority() -> Iterator[Frame]:
    fields = Fields()
    for stream in odd(FRAMES // 2):
        yield fields.frame(stream)
        yield PriorityFrame(stream, depends_on=stream)


def malformed_requests() -> Iterator[Frame]:
    fields = Fields()
    for stream in odd(FRAMES):
        yield fields.frame(stream, "/slow", ("connection", "close"))


def unfinished_streams() -> Iterator[Frame]:
    fields = Fields()
    for stream in odd(FRAMES):
        yield fields.frame(stream, ends=False)


def frames_on_ended_streams() -> Iterator[Frame]:
    fields = Fields()
    yield fields.frame(1)
    yield RstStreamFrame(1, error_code=8)
    for _ in range(FRAMES):
        yield DataFrame(1, bytes(100))


def continuation() -> Iterator[Frame]:
    yield HeadersFrame(1, b"\x82")
    for _ in range(FRAMES):
        yield ContinuationFrame(1, b"\x82" * 100)


def empty_continuation() -> Iterator[Frame]:
    yield HeadersFrame(1, b"\x82")
    for _ in range(FRAMES):
        yield ContinuationFrame(1, b"")


def same(make: Callable[[], Frame]) -> Callable[[], Iterator[Frame]]:
    def frames() -> Iterator[Frame]:
        for _ in range(FRAMES):
            yield make()

    return frames


def empty_data() -> Iterator[Frame]:
    yield Fields().frame(1, ends=False)
    for _ in range(FRAMES):
        yield DataFrame(1)


def padded_data() -> Iterator[Frame]:
    yield Fields().frame(1, ends=False)
    for _ in range(FRAMES):
        frame = DataFrame(1, b"", pad_length=200)
        frame.flags.add("PADDED")
        yield frame


def hpack_bomb() -> Iterator[Frame]:
    """One field fills the table, and is named by one byte again and again."""
    fields = Fields()
    yield fields.frame(1, "/slow", ("x", "a" * 4000))
    bomb = HeadersFrame(3, b"\xbe" * 16_000)
    bomb.flags.add("END_HEADERS")
    yield bomb
    yield from same(lambda: PingFrame(0))()


def hpack_table_sizes() -> Iterator[Frame]:
    """The size of the table is changed thousands of times in one head."""
    for stream in odd(20):
        frame = HeadersFrame(stream, b"\x20" * 16_000 + b"\x82")
        frame.flags.add("END_HEADERS")
        yield frame
    yield from same(lambda: PingFrame(0))()


def settings_frame(names: range) -> bytes:
    """Return a frame with settings nobody knows."""
    body = b"".join(struct.pack(">HL", name, 1) for name in names)
    return len(body).to_bytes(3, "big") + b"\x04\0\0\0\0\0" + body


def long_settings() -> Iterator[bytes]:
    for at in range(100):
        yield settings_frame(range(1000 + 100 * at, 3000 + 100 * at))


def unknown_settings() -> Iterator[bytes]:
    for at in range(FRAMES):
        first = 1000 + 6 * at
        yield settings_frame(range(first, first + 6))


FLOODS: dict[str, tuple[Callable[[], Iterator[Frame | bytes]], int]] = {
    "rapid reset, CVE-2023-44487": (rapid_reset, CALM),
    "MadeYouReset by a window, CVE-2025-8671": (made_you_reset_by_window, CALM),
    "MadeYouReset by DATA, CVE-2025-8671": (made_you_reset_by_data, CALM),
    "MadeYouReset by PRIORITY, CVE-2025-8671": (made_you_reset_by_priority, PROTOCOL_ERROR),
    "malformed requests": (malformed_requests, CALM),
    "stream exhaustion": (unfinished_streams, CALM),
    "frames on ended streams": (frames_on_ended_streams, CALM),
    "CONTINUATION, CVE-2024-27316": (continuation, CALM),
    "empty CONTINUATION, CVE-2024-27316": (empty_continuation, CALM),
    "PING, CVE-2019-9512": (same(lambda: PingFrame(0)), CALM),
    "SETTINGS, CVE-2019-9515": (same(lambda: SettingsFrame(0)), CALM),
    "SETTINGS that change the windows": (same(lambda: SettingsFrame(0, settings={4: 70_000})), CALM),
    "long SETTINGS": (long_settings, CALM),
    "unknown SETTINGS": (unknown_settings, CALM),
    "PRIORITY, CVE-2019-9513": (same(lambda: PriorityFrame(3)), CALM),
    "empty DATA, CVE-2019-9518": (empty_data, CALM),
    "padding": (padded_data, CALM),
    "WINDOW_UPDATE": (same(lambda: WindowUpdateFrame(0, window_increment=1)), CALM),
    "unknown frames": (same(lambda: ExtensionFrame(0xEE, 0, body=b"")), CALM),
    "HPACK bomb, CVE-2016-6581": (hpack_bomb, CALM),
    "HPACK table sizes": (hpack_table_sizes, PROTOCOL_ERROR),
}


def last_goaway(said: bytes) -> GoAwayFrame | None:
    """Return the last GOAWAY among frames."""
    found = None
    at = 0
    while at + 9 <= len(said):
        frame, size = Frame.parse_frame_header(memoryview(said[at : at + 9]))
        if isinstance(frame, GoAwayFrame):
            frame.parse_body(memoryview(said[at + 9 : at + 9 + size]))
            found = frame
        at += 9 + size
    return found


def attack(server: EngineProcess, data: bytes) -> bytes:
    """Send bytes as fast as they go, and read until the other side closes."""
    with server.peer() as peer:
        peer.socket.setblocking(False)
        said = b""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                data = data[peer.socket.send(data[:65536]) :]
            except BlockingIOError:
                time.sleep(0.001)
            except ConnectionError:
                data = b""
            try:
                came = peer.socket.recv(65536)
            except BlockingIOError:
                continue
            except ConnectionError:
                return said
            if not came:
                return said
            said += came
        raise AssertionError("the connection does not end")


@pytest.mark.parametrize("flood", FLOODS)
def test_htp_16_a_flood_ends_in_goaway_and_costs_little(server: EngineProcess, flood: str) -> None:
    """HTP-16."""
    frames, code = FLOODS[flood]
    data = new_client().data_to_send()
    data += b"".join(frame if isinstance(frame, bytes) else frame.serialize() for frame in frames())
    server.count()
    before = server.cpu(), server.rss()
    goaway = last_goaway(attack(server, data))
    spent = server.cpu() - before[0]
    assert goaway is not None
    assert goaway.error_code == code
    assert spent <= MOST_CPU, f"{spent:.2f} s"
    assert server.rss() - before[1] < MOST_GROWTH
    assert server.count()["tasks"] <= 3


def test_htp_16_a_window_of_one_byte_ends_in_goaway(server: EngineProcess) -> None:
    """HTP-16, CVE-2019-9511 and CVE-2019-9517: an answer is asked for byte by byte."""
    client = new_client()
    start = client.data_to_send() + SettingsFrame(0, settings={4: 1}).serialize()
    data = start + Fields().frame(1, "/large?100000").serialize()
    data += b"".join(WindowUpdateFrame(1, window_increment=1).serialize() for _ in range(FRAMES))
    before = server.cpu()
    goaway = last_goaway(attack(server, data))
    assert goaway is not None
    assert goaway.error_code == CALM
    assert server.cpu() - before <= MOST_CPU


def test_htp_16_a_peer_that_does_not_read_what_it_asks_for_is_cut(server: EngineProcess) -> None:
    """HTP-16: PING and requests whose answers nobody reads are not kept without bound."""
    fields = Fields()
    data = new_client().data_to_send() + b"".join(
        fields.frame(stream, "/large?10000").serialize() for stream in odd(FRAMES)
    )
    before = server.rss()
    with server.peer() as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.socket.settimeout(2)
        sent = 0
        try:
            while sent < len(data):
                sent += peer.socket.send(data[sent : sent + 65536])
        except OSError:
            pass
        assert server.rss() - before < MOST_GROWTH
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_htp_16_bystanders_stay_fast_while_others_flood(server: EngineProcess) -> None:
    """HTP-16."""
    ping = PingFrame(0).serialize() * FRAMES
    start = new_client().data_to_send()
    slowest = 0.0
    with server.peer() as bystander:
        for _ in range(10):
            with server.peer() as attacker:
                attacker.send(start + ping)
                begun = time.perf_counter()
                bystander.send(b"GET /open HTTP/1.1\r\nHost: a\r\n\r\n")
                assert bystander.read_one().status == 200
                slowest = max(slowest, time.perf_counter() - begun)
    assert slowest < 1.0


def test_an_honest_client_is_served_after_all_of_it(server: EngineProcess) -> None:
    client = new_client()
    client.send_headers(1, request_fields("GET", "/open"), end_stream=True)
    with server.peer() as peer:
        peer.send(client.data_to_send())
        said = b""
        while b"GET /open? 0" not in said:
            came = peer.socket.recv(65536)
            assert came
            said += came
