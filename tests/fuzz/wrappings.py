"""Hostile bytes around messages: heads and bodies of HTTP, frames of WebSockets, and reads of a few bytes each."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

from fuzz_wires import HttpTarget, TlsTarget, WebSocketTarget, ws_frame
from mutate import Case

PIECES = (1, 2, 7, 100)
"""How many bytes a slow sender sends at a time."""
MOST_READS = 4000

CHUNKED = b"Transfer-Encoding: chunked\r\n"
LISTED = (b"Accept", b"Connection", b"Transfer-Encoding", b"Accept-Encoding", b"Content-Type", b"Cookie", b"Expect")
SINGLE = (b"Host", b"Origin", b"Authorization", b"Mcp-Session-Id", b"Mcp-Protocol-Version", b"Content-Length")
SINGLE += (b"Last-Event-ID", b"Mcp-Method", b"Mcp-Name", b"Forwarded", b"X-Forwarded-For", b"Traceparent")


def raw(name: str, data: bytes, units: int = 0, messages: int = 1) -> Case:
    """Return a case that is sent as it is, on a connection of its own."""
    return Case(name, data, messages, messages, sure=False, raw=True, units=units, alone=True)


class HttpWrappings:
    """Requests with something wrong, long or repeated in their heads and bodies."""

    def __init__(self, target: HttpTarget) -> None:
        self.target = target
        self.body = target.ping_case().frame

    def head(self, extra: bytes = b"", *, method: bytes = b"POST", path: bytes = b"/mcp", sized: bool = True) -> bytes:
        """Write the head of a good request, with more in it."""
        host, port = self.target.listener.address
        lines = self.target.lines(self.target.ping_case())
        named = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in lines.items())
        size = b"Content-Length: %d\r\n" % len(self.body) if sized else b""
        return b"%b %b HTTP/1.1\r\nHost: %b:%d\r\n%bAccept: application/json, text/event-stream\r\n%b%b%b\r\n" % (
            method, path, host.encode(), port, b"Content-Type: application/json\r\n", named, size, extra,
        )  # fmt: skip

    def cases(self, size: int, chance: random.Random) -> Iterator[Case]:
        """Yield one case of each kind, of about a size."""
        for make in (self.of_head, self.of_body, self.of_many):
            yield from make(size, chance)

    def of_head(self, size: int, chance: random.Random) -> Iterator[Case]:
        """Yield heads that are long."""
        body, count = self.body, max(1, size // 8)
        many = b"".join(b"X-%d: a\r\n" % n for n in range(count))
        yield raw("many headers", self.head(many) + body, count)
        yield raw("one header again and again", self.head(b"X: a\r\n" * count) + body, count)
        yield raw("headers without an end", self.head(many)[:-2], count)
        yield raw("folded lines", self.head(b"X: a\r\n" + b" b\r\n" * count) + body, count)
        yield raw("empty lines first", b"\r\n" * count + self.head() + body, count)
        yield raw("a long name", self.head(b"X" * size + b": a\r\n") + body)
        yield raw("a long value", self.head(b"X: " + b"a" * size + b"\r\n") + body)
        yield raw("a long path", self.head(path=b"/mcp/" + b"a/" * (size // 2)) + body)
        yield raw("a long query", self.head(path=b"/mcp?" + b"a=1&" * (size // 4)) + body)
        yield raw("encoded signs", self.head(path=b"/" + b"%41" * (size // 3)) + body)
        yield raw("a long method", self.head(method=b"A" * size) + body)
        yield raw("a line without an end", b"POST " + b"a" * size)
        name = chance.choice(LISTED)
        for item in (b"a,", b"a;q=0.1,", b"*/*,", b'a="b\\"";', b",", b"chunked,", b" "):
            line = name + b": " + item * max(1, size // len(item)) + b"\r\n"
            yield raw(f"a list of {item!r} in {name.decode()}", self.head(line) + body)
        name = chance.choice(SINGLE)
        yield raw(f"a long {name.decode()}", self.head(name + b": " + b"9" * size + b"\r\n") + body)
        yield raw(f"many {name.decode()}", self.head((name + b": 1\r\n") * count) + body, count)

    def of_body(self, size: int, chance: random.Random) -> Iterator[Case]:
        """Yield chunked bodies."""
        head, body = self.head(CHUNKED, sized=False), self.body
        spaces = b" " * max(1, size // 8) + body
        tiny = b"".join(b"1\r\n%c\r\n" % byte for byte in spaces)
        yield raw("chunks of one byte", head + tiny + b"0\r\n\r\n", len(spaces))
        yield raw("chunks without an end", head + tiny, len(spaces))
        extended = b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in spaces)
        yield raw("chunks with extensions", head + extended + b"0\r\n\r\n", len(spaces))
        whole = b"%x%b\r\n%b\r\n%b\r\n"
        yield raw("a long extension", head + whole % (len(body), b";" + b"a" * size, body, b"0\r\n"))
        yield raw("a long size of a chunk", head + b"0" * size + whole % (len(body), b"", body, b"0\r\n"))
        trailers = b"0\r\n" + b"X: a\r\n" * (size // 6)
        yield raw("trailers", head + whole % (len(body), b"", body, trailers), size // 6)
        yield raw("a long trailer", head + whole % (len(body), b"", body, b"0\r\nX: " + b"a" * size + b"\r\n"))
        yield raw("a body that is too short", self.head() + body[:-5])
        yield raw("a body that is too long", self.head() + body + b"x" * size)
        yield raw("two lengths", self.head(b"Content-Length: %d\r\n" % chance.choice((1, 10**9))) + body)
        yield raw("a length and chunks", self.head(CHUNKED) + tiny + b"0\r\n\r\n", len(spaces))

    def of_many(self, size: int, chance: random.Random) -> Iterator[Case]:
        """Yield requests one behind the other."""
        ping = self.head() + self.body
        count = max(1, min(100, size // len(ping)))
        yield raw("pings in a row", ping * count, messages=count)
        for method in (b"GET", b"DELETE", b"OPTIONS", b"PUT", b"HEAD"):
            line = self.head(method=method, path=b"/nowhere", sized=False)
            count = max(1, min(100, size // len(line)))
            yield raw(f"{method.decode()} in a row", line * count, messages=count)
        yield raw("lines that are no requests", b"junk\r\n" * (size // 6))


class WebSocketWrappings:
    """Frames that are broken up, mixed, masked and packed."""

    def __init__(self, target: WebSocketTarget) -> None:
        self.target = target
        self.body = target.ping_case().frame

    def cases(self, size: int, chance: random.Random) -> Iterator[Case]:
        """Yield one case of each kind, of about a size."""
        for make in (self.of_frames, self.of_messages, self.of_packed):
            yield from make(size, chance)

    def of_frames(self, size: int, chance: random.Random) -> Iterator[Case]:
        """Yield floods of single frames."""
        count = max(1, size // 8)
        for name, first, payload in (
            ("pings", 0x89, b""),
            ("full pings", 0x89, b"a" * 125),
            ("pongs", 0x8A, b""),
            ("full pongs", 0x8A, b"a" * 125),
            ("closes", 0x88, b""),
            ("binary", 0x82, b"1"),
            ("unknown kinds", 0x83, b"1"),
            ("reserved bits", 0xF1, b"1"),
            ("continuations of nothing", 0x80, b"1"),
            ("begun messages", 0x01, b"1"),
        ):
            frame = ws_frame(payload, masked=True, first=first)
            times = max(1, size // len(frame))
            case = raw(f"a flood of {name}", frame * times, times)
            # Each ping is owed a pong.
            yield case._replace(requests=times) if "pings" in name else case
        yield raw("frames without masks", ws_frame(b"1") * count, count)
        yield raw("a long close", ws_frame(b"\x03\xe8" + b"a" * 123, masked=True, first=0x88))
        yield raw("a length of 2^63", b"\x81\xff" + b"\x7f" + b"\xff" * 7 + bytes(4) + b"a" * size)
        yield raw(
            "long ways to say a length", (b"\x81\xff" + bytes(7) + b"\x01" + bytes(4) + b"1") * (size // 15), size // 15
        )

    def of_messages(self, size: int, chance: random.Random) -> Iterator[Case]:
        """Yield messages in many fragments."""
        text = b" " * max(1, size // 8) + self.body
        for length in (0, 1, 5):
            pieces = [text[at : at + length] for at in range(0, len(text), length)] if length else [b""] * len(text)
            frames = [ws_frame(piece, masked=True, first=0x00) for piece in pieces]
            whole = ws_frame(b"", masked=True, first=0x01) + b"".join(frames)
            yield raw(f"fragments of {length}", whole + ws_frame(b"", masked=True, first=0x80), len(frames))
            yield raw(f"fragments of {length} without an end", whole, len(frames))
        ping = ws_frame(b"", masked=True, first=0x89)
        mixed = b"".join(ws_frame(text[at : at + 1], masked=True, first=0x00) + ping for at in range(len(text)))
        case = raw("fragments and pings in turn", ws_frame(b"", masked=True, first=0x01) + mixed, 2 * len(text))
        yield case._replace(requests=len(text))
        mask = chance.randbytes(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(text))
        yield raw("a mask of chance", b"\x81\xff" + len(text).to_bytes(8, "big") + mask + masked)

    def of_packed(self, size: int, chance: random.Random) -> Iterator[Case]:
        """Yield messages that are compressed, where that is agreed."""
        if not self.target.compression:
            return
        for name, text in (
            ("spaces", b" " * size * 20 + self.body),
            ("chance", chance.randbytes(size)),
            ("nothing", b""),
        ):
            frame = ws_frame(packed(text), masked=True, first=0xC1)
            yield raw(f"packed {name}", frame)._replace(inflated=len(text))
            count = max(1, min(200, size // len(frame)))
            yield raw(f"{count} times packed {name}", frame * count, messages=count)._replace(
                inflated=len(text) * count
            )
        yield raw("what only looks packed", ws_frame(chance.randbytes(size), masked=True, first=0xC1))
        frame = ws_frame(b"\xff", masked=True, first=0xC1)
        yield raw("broken packings", frame * (size // len(frame)), size // len(frame))


def packed(text: bytes) -> bytes:
    """Compress a message as a client may."""
    packing = zlib.compressobj(wbits=-15)
    return (packing.compress(text) + packing.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\x00\x00\xff\xff")


class TlsWrappings:
    """Records of a few bytes, and bytes that are no records."""

    def __init__(self, target: TlsTarget) -> None:
        self.target = target

    def cases(self, size: int, chance: random.Random) -> Iterator[Case]:
        """Yield one case of each kind, of about a size."""
        yield raw("what is no record", chance.randbytes(size))
        yield raw("records of chance", (b"\x17\x03\x03\x00\x20" + chance.randbytes(32)) * (size // 37))
        yield raw("a record of the handshake", b"\x16\x03\x03\x40\x00" + chance.randbytes(size))


def slowly(case: Case, chance: random.Random) -> Case:
    """Return a case of which each read brings a few bytes."""
    piece = max(chance.choice(PIECES), len(case.frame) // MOST_READS)
    return case._replace(name=f"{case.name}, {piece} bytes at a time", piece=piece)
