"""permessage-deflate (RFC 7692), each message on its own.

Rule: no context is taken over from message to message (RFC 7692 §7.1.1). It would be a few percent smaller and hold
300 KB for every connection, whether it speaks or not.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from msgspec import Struct

NAME = "permessage-deflate"
PLAIN_WINDOW = 15
SMALLEST_WINDOW = 9
"""zlib cannot write raw deflate with a window of 8 bits."""
WORTH_IT = 512
"""Messages shorter than this are sent as they are."""
_TAIL = b"\x00\x00\xff\xff"
"""What ends a flushed block, and is left out on the wire (RFC 7692 §7.2.1, §7.2.2)."""

AGREED = f"{NAME}; server_no_context_takeover; client_no_context_takeover"
OFFER = f"{AGREED}; client_max_window_bits"
"""What a client offers; the last word lets a server choose how far back our messages may refer."""


class Undeflatable(Exception):
    """The compressed data is damaged."""


class Deflate(Struct, frozen=True):
    """Compresses and decompresses messages."""

    window: int = PLAIN_WINDOW

    def deflate(self, message: bytes) -> bytes:
        """Compress one message."""
        packing = zlib.compressobj(wbits=-self.window)
        return (packing.compress(message) + packing.flush(zlib.Z_SYNC_FLUSH)).removesuffix(_TAIL)

    def inflate(self, packed: bytes, max_size: int) -> bytes | None:
        """Decompress one message; None where it would be longer than the limit."""
        unpacking = zlib.decompressobj(-PLAIN_WINDOW)
        try:
            message = unpacking.decompress(packed + _TAIL, max_size + 1)
        except zlib.error:
            raise Undeflatable from None
        if len(message) <= max_size:
            return message
        return None


def accept_offer(offers: str) -> tuple[str, Deflate] | None:
    """Choose among a client's offers: what to answer, and how to compress; None where none suits."""
    for name, parameters in _extensions(offers):
        if name == NAME and parameters is not None:
            window = _server_window(parameters)
            if window is not None:
                if window == PLAIN_WINDOW:
                    chosen = AGREED
                else:
                    chosen = f"{AGREED}; server_max_window_bits={window}"
                return chosen, Deflate(window)
    return None


def accept_answer(answer: str) -> Deflate | None:
    """Read what the server chose of our one offer; None where it is not something we offered."""
    found = list(_extensions(answer))
    if len(found) != 1 or found[0][0] != NAME or found[0][1] is None:
        return None
    parameters = found[0][1]
    # Without this promise the server's messages would need what came before them.
    if "server_no_context_takeover" not in parameters or _server_window(parameters) is None:
        return None
    window = int(parameters.get("client_max_window_bits", PLAIN_WINDOW) or 0)
    if window >= SMALLEST_WINDOW:
        return Deflate(window)
    return None


def _server_window(parameters: dict[str, str]) -> int | None:
    """Return the window the parameters let a server use; None where they are malformed or cannot be met."""
    for name, value in parameters.items():
        allowed = _VALUES.get(name)
        if allowed is None or value not in allowed:
            return None
    window = int(parameters.get("server_max_window_bits", PLAIN_WINDOW))
    if window >= SMALLEST_WINDOW:
        return window
    return None


_WINDOWS = frozenset(map(str, range(8, 16)))
_VALUES = {
    "server_no_context_takeover": frozenset({""}),
    "client_no_context_takeover": frozenset({""}),
    "server_max_window_bits": _WINDOWS,
    "client_max_window_bits": _WINDOWS | {""},
}
"""What each parameter may say (RFC 7692 §7.1); a client may leave its own window to the server (§7.1.2.2)."""


def _extensions(header: str) -> Iterator[tuple[str, dict[str, str] | None]]:
    """Yield every extension and its parameters (RFC 6455 §9.1), None for parameters that repeat a name."""
    for extension in header.split(","):
        name, *rest = extension.split(";")
        parameters = {}
        for part in rest:
            key, _, value = part.partition("=")
            parameters[key.strip()] = value.strip().strip('"')
        if len(parameters) == len(rest):
            yield name.strip(), parameters
        else:
            yield name.strip(), None
