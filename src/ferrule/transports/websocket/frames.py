"""What one WebSocket frame looks like on the wire (RFC 6455 §5.2), and how one is written.

Rule: pure; randomness is an argument.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct

# Opcodes, and bits of the first two bytes (RFC 6455 §5.2).
CONTINUATION = 0
TEXT = 1
BINARY = 2
CLOSE = 8
PING = 9
PONG = 10
FIN = 0x80
COMPRESSED = 0x40
MASKED = 0x80
FIN_TEXT = FIN | TEXT

LONGEST_CONTROL = 125
"""Bytes of a control frame's payload (RFC 6455 §5.5)."""

# Codes of a close frame (RFC 6455 §7.4.1).
NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
UNSUPPORTED = 1003
NO_CODE = 1005
ABNORMAL = 1006
BAD_DATA = 1007
TOO_BIG = 1009
INTERNAL = 1011
TRY_LATER = 1013
UNAUTHORIZED = 4401
"""A code of our own, after the HTTP status: the credentials of the peer have expired."""
SENDABLE = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})
"""The codes a close frame may have (RFC 6455 §7.4.1, and 1012 to 1014 of its registry), beside 3000 to 4999, which
libraries and applications give their own meaning (§7.4.2)."""

PIECE = 16 * 1024
"""How much is masked at a time: numbers of this size stay in the processor's near memory."""
KEYS_AT_ONCE = 1024


class Closing(Struct, frozen=True):
    """Why a WebSocket ends: a code and a few words."""

    code: int = NO_CODE
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.code} {self.reason}".rstrip()

    def payload(self) -> bytes:
        """Write it as the content of a close frame (RFC 6455 §5.5.1); the words are cut to what fits."""
        if self.code == NO_CODE:
            return b""
        words = self.reason.encode()[: LONGEST_CONTROL - 2].decode(errors="ignore").encode()
        return self.code.to_bytes(2) + words


def apply_mask(payload: bytes, key: bytes) -> bytes:
    """Mask or unmask: the four bytes of the key, over and over, on every byte of the payload (RFC 6455 §5.3)."""
    size = len(payload)
    if size <= PIECE:
        mask = int.from_bytes((key * (size + 3 >> 2))[:size])
        return (int.from_bytes(payload) ^ mask).to_bytes(size)
    mask = int.from_bytes(key * (PIECE >> 2), "little")
    whole = size - size % PIECE
    pieces = []
    for at in range(0, whole, PIECE):
        pieces.append((int.from_bytes(payload[at : at + PIECE], "little") ^ mask).to_bytes(PIECE, "little"))
    pieces.append(apply_mask(payload[whole:], key))
    return b"".join(pieces)


def frame_head(first: int, size: int, masked: int = 0) -> bytes:
    """Write what stands before the payload and its key: the kind, and the length in its shortest form."""
    if size < 126:
        return bytes((first, masked | size))
    if size < 65536:
        return bytes((first, masked | 126, size >> 8, size & 255))
    return bytes((first, masked | 127)) + size.to_bytes(8)


class PlainWriter:
    """Writes a server's frames."""

    __slots__ = ()

    def frame(self, first: int, payload: bytes) -> bytes:
        """Write one frame; `first` is its first byte."""
        return frame_head(first, len(payload)) + payload

    def texts(self, payloads: list[bytes]) -> bytes:
        """Write every payload as one text frame that ends with a line feed."""
        parts: list[bytes] = []
        for payload in payloads:
            size = len(payload) + 1
            if size < 126 or size > 65535:
                parts += (frame_head(FIN_TEXT, size), payload, b"\n")
            else:  # most answers: as `frame_head` writes it, without a call
                parts += (bytes((FIN_TEXT, 126, size >> 8, size & 255)), payload, b"\n")
        return b"".join(parts)


class MaskedWriter:
    """Writes a client's frames, each masked with a key nobody can foresee (RFC 6455 §5.3, §10.3)."""

    __slots__ = ("_at", "_keys", "_random")

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random
        self._keys = b""
        self._at = 0

    def frame(self, first: int, payload: bytes) -> bytes:
        """Write one frame; `first` is its first byte."""
        if self._at == len(self._keys):
            # Asking the system once for many keys costs a fraction of asking it for each.
            self._keys = self._random(4 * KEYS_AT_ONCE)
            self._at = 0
        key = self._keys[self._at : self._at + 4]
        self._at += 4
        return frame_head(first, len(payload), MASKED) + key + apply_mask(payload, key)

    def texts(self, payloads: list[bytes]) -> bytes:
        """Write every payload as one text frame that ends with a line feed."""
        return b"".join([self.frame(FIN | TEXT, payload + b"\n") for payload in payloads])


Writer = PlainWriter | MaskedWriter
