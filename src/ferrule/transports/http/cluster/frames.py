"""What nodes say to each other about requests: frames, packed together into notices of the bus.

Workers of one server answer each other's requests in the same kinds of frames, over pipes (`workers/pipe.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ferrule.identity.principal import Principal

REQUEST, GONE = 1, 2
"""From whoever asks: a request; its client is gone."""
TAKEN, NOT_HERE, WHOLE, BEGIN, PART, FINISH, CUT = 3, 4, 5, 6, 7, 8, 9
"""From whoever answers: it is being answered; the session is not here; the parts of an answer."""
PIECE = 10
"""The beginning of something that is too long for one frame."""

LONGEST_CONTENT = 128 * 1024 * 1024
"""Bytes that are said at once of one exchange: more than the longest message that may be allowed."""
LONGEST_FRAME = 256 * 1024
"""Bytes of one frame; longer ones are cut into pieces."""
LONGEST_NOTICE = 768 * 1024
"""Bytes of the frames of one notice."""


class Frame(Struct, frozen=True, array_like=True):
    """One thing a node says about one exchange. Those who ask number their exchanges."""

    kind: int
    exchange: int
    content: bytes = b""


class ForwardedRequest(Struct, frozen=True, array_like=True):
    """A request as it goes to another node: its sender was verified where it came in."""

    session: str
    method: str
    query: str
    headers: dict[bytes, bytes]
    body: bytes
    address: str
    secure: bool
    http: str
    identity: bytes
    recheck_at: float = math.inf


class AnswerHead(Struct, frozen=True, array_like=True):
    """The beginning of an answer, or the whole of it."""

    status: int
    head: bytes
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
_frames = msgspec.msgpack.Decoder(list[Frame])
_request = msgspec.msgpack.Decoder(ForwardedRequest)
_answer = msgspec.msgpack.Decoder(AnswerHead)
_principal = msgspec.json.Decoder(Principal)

NOBODY = b""


def pack(frames: Sequence[Frame]) -> bytes:
    """Return frames as the body of a notice."""
    return _encode(frames)


def unpack(body: bytes) -> list[Frame]:
    """Return the frames of a notice; raises a MsgspecError for what is none."""
    return _frames.decode(body)


def encode(said: ForwardedRequest | AnswerHead) -> bytes:
    """Return the content of a frame."""
    return _encode(said)


def read_request(content: bytes) -> ForwardedRequest:
    """Return the request of a frame."""
    return _request.decode(content)


def read_answer(content: bytes) -> AnswerHead:
    """Return the answer, or its beginning, of a frame."""
    return _answer.decode(content)


def write_identity(identity: Principal | None) -> bytes:
    """Return who sent a request, as it goes to another node."""
    if identity is None:
        return NOBODY
    return msgspec.json.encode(identity)


def read_identity(written: bytes) -> Principal | None:
    """Return who sent a request that came from another node."""
    if written == NOBODY:
        return None
    return _principal.decode(written)
