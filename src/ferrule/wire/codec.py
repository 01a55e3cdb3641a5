"""One frame to one message and back, exactly as JSON-RPC 2.0 has it.

Rule 1: the size is checked before anything is decoded.
Rule 2: one shallow decode; params, results and error data stay raw until someone knows their type.
Rule 3: a frame that cannot be read is a Refusal that carries the id wherever the id could be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ferrule.errors import EncodeError, InvalidRequest, MessageTooLarge, ParseError, Refusal
from ferrule.wire.messages import EMPTY_PARAMS, ErrorObject, Failure, Id, Message, Notification, Request, Success

MAX_MESSAGE_SIZE = 16 * 1024 * 1024

OPEN_BRACE, OPEN_BRACKET = ord("{"), ord("[")


class Envelope(Struct, gc=False):
    """Every member a JSON-RPC message can have, in the order most are written in; which are set tells the kind."""

    jsonrpc: Literal["2.0"]
    id: Id | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw = EMPTY_PARAMS
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class LooseEnvelope(Struct, gc=False):
    """The same members with nothing demanded and nothing built, to find out what is wrong with a message."""

    jsonrpc: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class LooseError(Struct, gc=False):
    """A peer's error object, read leniently: only the code must be a number."""

    code: int
    message: str = ""
    data: Any = None


class Unreadable(Exception):
    """A frame that is no message: why, and the id to answer it under (UNSET: none could be read)."""

    def __init__(
        self,
        refusal: Refusal,
        id: Id | UnsetType = UNSET,  # noqa: A002 - the wire's word
        *,
        response: bool = False,
    ) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.id = id
        self.response = response
        """Whether it was meant as a response: then the id is one of ours and must not be answered."""


Decoded = Message | Unreadable
"""What one element of a batch turns out to be."""

_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_loosely = msgspec.json.Decoder(LooseEnvelope).decode
_decode_version = msgspec.json.Decoder(Literal["2.0"]).decode
_decode_method = msgspec.json.Decoder(str).decode
_decode_id = msgspec.json.Decoder(Id).decode
_decode_error = msgspec.json.Decoder(LooseError).decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode

write = msgspec.json.Encoder(decimal_format="number").encode
"""What `encode` does where nothing goes wrong: a carrier on the hot path calls it and explains UNWRITABLE itself."""

UNWRITABLE = (TypeError, ValueError, OverflowError, UnicodeError, RecursionError)


def decode(frame: bytes, max_size: int = MAX_MESSAGE_SIZE) -> Message | list[Decoded]:
    """Read one frame: a message, or the elements of a batch. Raises Unreadable."""
    if len(frame) > max_size:
        raise Unreadable(MessageTooLarge(max_size))
    try:
        envelope = _decode_envelope(frame)
        if not frame.isascii():
            frame.decode()  # raw members are skipped unread, and nobody after us would look at their bytes
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _diagnose(frame)
    method, identity, result = envelope.method, envelope.id, envelope.result
    if method is not UNSET and result is UNSET and envelope.error is UNSET:
        return (
            Notification(method, envelope.params) if identity is UNSET else Request(identity, method, envelope.params)
        )
    if result is not UNSET and identity is not UNSET and method is UNSET and envelope.error is UNSET:
        return Success(identity, result)
    return _unusual(envelope)


def _unusual(envelope: Envelope) -> Message:
    """Read what is neither a request, a notification nor a success: a failure, or nothing at all."""
    identity = envelope.id
    if envelope.method is not UNSET or (envelope.result is UNSET) == (envelope.error is UNSET):
        raise Unreadable(
            InvalidRequest("Invalid request: neither a request, a notification nor a response"),
            identity,
            response=envelope.method is UNSET and envelope.error is not UNSET,
        )
    if envelope.error is UNSET:
        raise Unreadable(InvalidRequest("Invalid request: a result needs an id"), response=True)
    return Failure(identity, _error(envelope.error, identity))


def _error(raw: Any, identity: Id | UnsetType) -> ErrorObject:
    try:
        error = _decode_error(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as reason:
        refusal = InvalidRequest(f"Invalid request: malformed error object: {reason}")
        raise Unreadable(refusal, identity, response=True) from None
    return ErrorObject(error.code, error.message, error.data)


def _diagnose(frame: bytes) -> Message | list[Decoded]:
    """Find out why the quick reading failed; a batch or an id-less error is still a message."""
    try:
        frame.decode()
        if frame.lstrip()[:1] == b"[":
            return _batch(_decode_batch(frame))
        loose = _decode_loosely(frame)
    except msgspec.ValidationError as reason:
        raise Unreadable(InvalidRequest(f"Invalid request: {reason}")) from None
    except RecursionError:
        raise Unreadable(ParseError("Parse error: nested too deeply")) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as reason:
        raise Unreadable(ParseError(f"Parse error: {reason}")) from None
    return _judge(loose)


def _judge(loose: LooseEnvelope) -> Message:
    identity: Id | UnsetType = _member(_decode_id, loose.id)
    has_result, has_error = loose.result is not UNSET, loose.error is not UNSET
    response = loose.method is UNSET and (has_result or has_error)
    fault = "malformed"
    if _member(_decode_version, loose.jsonrpc) is UNSET:
        fault = '"jsonrpc" must be "2.0"'
    elif loose.id is not UNSET and identity is UNSET:
        if response and not has_result and bytes(loose.id) == b"null":
            return Failure(None, _error(loose.error, UNSET))
        fault = "the id must be a string or an integer"
    elif loose.method is not UNSET and _member(_decode_method, loose.method) is UNSET:
        fault = "the method must be a string"
    raise Unreadable(InvalidRequest(f"Invalid request: {fault}"), identity, response=response)


def _member(decode: Callable[[Raw], Any], raw: Raw | UnsetType) -> Any:
    """Read one member, UNSET when it is not there or not of its type."""
    if raw is UNSET:
        return UNSET
    try:
        return decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return UNSET


def _batch(items: Sequence[Raw]) -> list[Decoded]:
    if not items:
        raise Unreadable(InvalidRequest("Invalid request: an empty batch"))
    return [_element(bytes(item)) for item in items]


def _element(frame: bytes) -> Decoded:
    if frame[:1] == b"[":
        return Unreadable(InvalidRequest("Invalid request: a batch inside a batch"))
    try:
        return decode(frame, len(frame))  # type: ignore[return-value]  # no array gets here, so no batch comes back
    except Unreadable as unreadable:
        return unreadable


def encode(message: Message | Sequence[Message]) -> bytes:
    """Write one message, or a batch, as one line of JSON without its line end."""
    try:
        return write(message)
    except UNWRITABLE as reason:
        raise unwritable(reason) from None


def encode_within(message: Message | Sequence[Message], max_size: int, beside: int = 0) -> bytes:
    """Write as `encode` does; raises EncodeError where that, with so many bytes beside it, is over the limit."""
    try:
        payload = write(message)
    except UNWRITABLE as reason:
        raise unwritable(reason) from None
    if len(payload) + beside > max_size:
        raise too_long(len(payload) + beside, max_size)
    return payload


def too_long(size: int, max_size: int) -> EncodeError:
    """Say that a message of ours is over the limit, which a peer would refuse unread."""
    return EncodeError(f"the message is {size} bytes long; the limit is {max_size}")


def unwritable(reason: Exception) -> EncodeError:
    """Say why a message cannot be written."""
    if isinstance(reason, RecursionError):
        return EncodeError("the value is nested too deeply or contains itself")
    return EncodeError(str(reason))
