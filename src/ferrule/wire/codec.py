"""One frame to one message and back, exactly as JSON-RPC 2.0 has it.

Rule 1: the size is checked before anything is decoded.
Rule 2: one shallow decode; params and results stay raw until someone knows their type. What they would take once they
are decoded is estimated here, for a long frame.
Rule 3: a frame that cannot be read is a value, `Rejected`, which carries the id wherever the id could be read. Nothing
is raised for it: a peer must not be able to make us build tracebacks.
Rule 4: the elements of a batch are not looked at before somebody asks for them (`read_batch`).
"""

# No `from __future__ import annotations`: every start decodes structs of this module, and of annotations that are texts
# msgspec makes a decoder in three times the time.

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from ferrule.budgets.bounds import (
    MAX_BATCH,
    MAX_ERROR_DATA,
    MAX_ID_LENGTH,
    MAX_MESSAGE_WEIGHT,
    MAX_METHOD_LENGTH,
    MAX_NESTING,
    MAX_UNREADABLE,
)
from ferrule.budgets.weight import MOST_PER_BYTE, nests_too_deep, weight
from ferrule.errors import EncodeError, InvalidRequest, MessageTooLarge, ParseError, Refusal, quoted
from ferrule.wire.messages import (
    EMPTY_PARAMS,
    ErrorObject,
    Failure,
    Id,
    Message,
    Notification,
    Request,
    Success,
    is_long,
)

MAX_MESSAGE_SIZE = 16 * 1024 * 1024


class Envelope(Struct, gc=False):
    """Every member of JSON-RPC 2.0 §4 and §5, in the order most are written in; which are there tells the kind.

    What is not there is None: a null is refused for an id and a method, and is raw JSON as a result or an error.
    """

    jsonrpc: Literal["2.0"]
    id: Id = None  # type: ignore[assignment]
    method: str = None  # type: ignore[assignment]
    params: Raw = EMPTY_PARAMS
    result: Raw = None  # type: ignore[assignment]
    error: Raw = None  # type: ignore[assignment]

    @property
    def name(self) -> Id | UnsetType:
        """The id, UNSET where there is none."""
        if self.id is None:
            return UNSET
        return self.id


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
    data: Raw | UnsetType = UNSET


class Rejected(Struct, frozen=True, gc=False):
    """A frame that is no message: why, and the id to answer it under (UNSET: none could be read)."""

    refusal: Refusal
    """Never raised, so that one object serves every frame with this fault."""
    id: Id | UnsetType = UNSET
    response: bool = False
    """Whether it was meant as a response: then the id is one of ours and must not be answered."""


class Batch(Struct, frozen=True, gc=False):
    """A frame that is a JSON array; its elements are not read yet, nor is it known whether it is JSON to its end."""

    frame: bytes


class Unreadable(Exception):
    """Raised by `decode` for a frame that is no message; holds what `Rejected` holds."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(rejected.refusal.message)
        self.refusal = rejected.refusal
        self.id = rejected.id
        self.response = rejected.response


Decoded = Message | Rejected
"""What one element of a batch turns out to be."""

SHORT = MAX_METHOD_LENGTH
"""A frame up to this size has no room for anything over its bound."""

HEAVY = MAX_MESSAGE_WEIGHT // MOST_PER_BYTE
"""A frame up to this size cannot be over the bound on weight, whatever it holds."""

UTF_8_PART = 64 * 1024
"""How much of a long frame is checked to be UTF-8 at a time: decoded whole, it could take four times its size."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_version = msgspec.json.Decoder(Literal["2.0"]).decode
_decode_method = msgspec.json.Decoder(str).decode
_decode_id = msgspec.json.Decoder(Id).decode
_skip = msgspec.json.Decoder(Raw).decode

write = msgspec.json.Encoder(decimal_format="number").encode
"""What `encode` does where nothing goes wrong: a transport on the hot path calls it and explains UNWRITABLE itself."""

UNWRITABLE = (TypeError, ValueError, OverflowError, UnicodeError, RecursionError)


def _invalid(why: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid request: {why}")


TOO_DEEP = RecursionError()
"""What the decoder would say, had the interpreter allowed less; never raised."""

NO_KIND = _invalid("neither a request, a notification nor a response")
RESULT_WITHOUT_ID = Rejected(_invalid("a result needs an id"), response=True)
TOO_HEAVY = _invalid(f"the message holds too many values: it would take more than {MAX_MESSAGE_WEIGHT} bytes")
LONG_ID = Rejected(_invalid(f"the id is longer than {MAX_ID_LENGTH} characters"))
LONG_ID_OF_RESPONSE = Rejected(LONG_ID.refusal, response=True)
LONG_METHOD = _invalid(f"the method is longer than {MAX_METHOD_LENGTH} characters")
EMPTY_BATCH = Rejected(_invalid("an empty batch"))
LONG_BATCH = Rejected(_invalid(f"a batch holds at most {MAX_BATCH} messages"))
HEAVY_BATCH = Rejected(TOO_HEAVY)
SPOILT_BATCH = Rejected(_invalid(f"more than {MAX_UNREADABLE} messages of the batch cannot be read"))
NESTED_BATCH = Rejected(_invalid("a batch inside a batch"))
NO_OBJECT = Rejected(_invalid("a message is an object"))


def read(frame: bytes, max_size: int = MAX_MESSAGE_SIZE) -> Message | Batch | Rejected:
    """Read one frame."""
    size = len(frame)
    heavy = size > HEAVY and size <= max_size and weight(frame) > MAX_MESSAGE_WEIGHT
    if (heavy or size > max_size) and (refused := _too_much(frame, max_size)) is not None:
        return refused
    try:
        envelope = _decode_envelope(frame)
        if not frame.isascii():
            _check_utf_8(frame)  # raw members are skipped unread, and nobody after us would look at their bytes
    except UNREADABLE:
        return _diagnose(frame)
    if size > SHORT:
        rejected = _over_a_bound(envelope, frame, heavy=heavy)
        if rejected is not None:
            return rejected
    identity = envelope.id
    method = envelope.method
    if method is not None and envelope.result is None and envelope.error is None:
        if identity is None:
            # JSON-RPC 2.0 §4.1. MCP has no id null, which Envelope refuses.
            return Notification(method, envelope.params)
        return Request(identity, method, envelope.params)
    if method is None and identity is not None and envelope.result is not None and envelope.error is None:
        return Success(identity, envelope.result)
    return _unusual(envelope)


def decode(frame: bytes, max_size: int = MAX_MESSAGE_SIZE) -> Message | list[Decoded]:
    """Read one frame: a message, or the elements of a batch. Raises Unreadable."""
    message = read(frame, max_size)
    found = read_batch(message) if isinstance(message, Batch) else message
    if isinstance(found, Rejected):
        raise Unreadable(found)
    return found


def _check_utf_8(frame: bytes) -> None:
    """Raise UnicodeDecodeError for bytes that are no UTF-8."""
    if len(frame) <= UTF_8_PART:
        frame.decode()
        return
    start = 0
    while start < len(frame):
        end = start + UTF_8_PART
        for _ in range(3):  # a character has at most three bytes behind its first
            if end < len(frame) and frame[end] & 0xC0 == 0x80:
                end -= 1
        frame[start:end].decode()
        start = end


def _over_a_bound(envelope: Envelope, frame: bytes, *, heavy: bool) -> Rejected | None:
    """Return why a message is refused whose id or method is too long, or which holds too much; else None."""
    method = envelope.method
    identity = envelope.name
    if len(frame) > MAX_ID_LENGTH and is_long(identity):
        if method is None:
            return LONG_ID_OF_RESPONSE
        return LONG_ID
    if method is not None and len(method) > MAX_METHOD_LENGTH:
        return Rejected(LONG_METHOD, identity)
    if heavy:
        return Rejected(TOO_HEAVY, identity, method is None)
    if nests_too_deep(frame):
        return _broken(frame, TOO_DEEP)
    return None


def _unusual(envelope: Envelope) -> Message | Rejected:
    """Read what is neither a request, a notification nor a success: a failure, or nothing at all."""
    identity = envelope.name
    if envelope.method is not None or (envelope.result is None) == (envelope.error is None):
        return Rejected(NO_KIND, identity, envelope.method is None and envelope.error is not None)
    if envelope.error is None:
        return RESULT_WITHOUT_ID
    return _failure(identity, envelope.error)


def _failure(identity: Id | UnsetType | None, raw: Raw) -> Failure | Rejected:
    """Read an error (JSON-RPC 2.0 §5.1); data that is over its bound is left out."""
    try:
        error = msgspec.json.decode(raw, type=LooseError)
        data = error.data
        if data is UNSET or len(data) > MAX_ERROR_DATA or nests_too_deep(bytes(data)):
            plain = None
        else:
            plain = msgspec.json.decode(data)
    except UNREADABLE as reason:
        name = UNSET if identity is None else identity
        return Rejected(_invalid(f"malformed error object: {_words(reason)}"), name, response=True)
    return Failure(identity, ErrorObject(error.code, error.message, plain))


def _words(reason: Exception) -> str:
    """Return why something cannot be read; the decoder may have quoted the peer at any length."""
    if isinstance(reason, RecursionError):
        return "nested too deeply"
    return quoted(str(reason))


def _diagnose(frame: bytes) -> Message | Batch | Rejected:
    """Find out why the quick reading failed; a batch or an id-less error is still a message."""
    try:
        _check_utf_8(frame)
        if _is_array(frame):
            return Batch(frame)
        loose = msgspec.json.decode(frame, type=LooseEnvelope)
        if nests_too_deep(frame):
            return _broken(frame, TOO_DEEP)
    except msgspec.ValidationError as reason:
        return Rejected(_invalid(_words(reason)))
    except UNREADABLE as reason:
        return _broken(frame, reason)
    return _judge(loose)


def _is_array(frame: bytes) -> bool:
    # Leading space is stripped from a short piece: a long frame is not copied for one byte.
    head = frame[:64].lstrip()
    return (head or frame.lstrip())[:1] == b"["


def too_large(max_size: int, head: bytes) -> Rejected:
    """Refuse a frame over the limit, under its id if that stands ahead."""
    from ferrule.wire.rescue import rescue_from_head

    rescued = rescue_from_head(head)
    return Rejected(MessageTooLarge(max_size), rescued.id, rescued.response)


def _too_much(frame: bytes, max_size: int) -> Rejected | None:
    """Refuse a frame that is too long or, if its id stands ahead, too heavy: nothing else of it is read."""
    if len(frame) > max_size:
        return too_large(max_size, frame)
    from ferrule.wire.rescue import rescue_from_head

    rescued = rescue_from_head(frame)
    if rescued.id is UNSET:
        return None
    return Rejected(TOO_HEAVY, rescued.id, rescued.response)


def _broken(frame: bytes, reason: Exception) -> Rejected:
    """Refuse what is no JSON, or none we read, under the id it would have."""
    from ferrule.wire.rescue import rescue

    rescued = rescue(frame)
    why = _words(reason)
    if rescued.nearly_json and isinstance(reason, msgspec.DecodeError):
        why = "NaN, infinity and half a surrogate pair have no form in JSON"
    return Rejected(ParseError(f"Parse error: {why}"), rescued.id, rescued.response)


def _judge(loose: LooseEnvelope) -> Message | Rejected:
    identity: Id | UnsetType = _member(_decode_id, loose.id)
    has_result = loose.result is not UNSET
    has_error = loose.error is not UNSET
    response = loose.method is UNSET and (has_result or has_error)
    if is_long(identity):
        return LONG_ID_OF_RESPONSE if response else LONG_ID
    fault = "malformed"
    if _member(_decode_version, loose.jsonrpc) is UNSET:
        fault = '"jsonrpc" must be "2.0"'
    elif loose.id is not UNSET and identity is UNSET:
        if response and not has_result and bytes(loose.id) == b"null":
            # JSON-RPC 2.0 §5: the error of a request whose id could not be read.
            return _failure(None, loose.error)  # type: ignore[arg-type]  # an error, so it is there
        fault = "the id must be a string or an integer"
    elif loose.method is not UNSET and _member(_decode_method, loose.method) is UNSET:
        fault = "the method must be a string"
    return Rejected(_invalid(fault), identity, response)


def _member(decode: Callable[[Raw], object], raw: Raw | UnsetType) -> Any:
    """Read one member, UNSET when it is not there or not of its type."""
    if raw is UNSET:
        return UNSET
    try:
        return decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return UNSET


# -- batches


def check_array(batch: Batch) -> Rejected | None:
    """Return why an array is no JSON, None when it is: nothing of it is built."""
    try:
        _skip(batch.frame)
        if nests_too_deep(batch.frame):
            return _broken(batch.frame, TOO_DEEP)
    except UNREADABLE as reason:
        return _broken(batch.frame, reason)
    return None


def read_batch(batch: Batch) -> list[Decoded] | Rejected:
    """Read the elements of a batch (JSON-RPC 2.0 §6).

    One with too many, or with too many that cannot be read, is refused whole.
    """
    if len(batch.frame) > HEAVY and weight(batch.frame) > MAX_MESSAGE_WEIGHT:
        return HEAVY_BATCH
    try:
        elements = _elements(batch.frame)
        if nests_too_deep(batch.frame):
            return _broken(batch.frame, TOO_DEEP)
    except msgspec.ValidationError:
        return LONG_BATCH
    except UNREADABLE as reason:
        return _broken(batch.frame, reason)
    if not elements:
        return EMPTY_BATCH
    found: list[Decoded] = []
    unreadable = 0
    for raw in elements:
        message = _element(bytes(raw))
        if isinstance(message, Rejected):
            unreadable += 1
            if unreadable > MAX_UNREADABLE:
                return SPOILT_BATCH
        found.append(message)
    return found


def _elements(frame: bytes) -> list[Raw]:
    """Split an array; raises ValidationError at the first element too many, so that those behind it are not built."""
    split = _splitter()(frame)
    return [raw for raw in structs.astuple(split) if raw is not UNSET]


@cache
def _splitter() -> Callable[[bytes], Struct]:
    """Return the decoder of an array with at most MAX_BATCH elements.

    A list with a maximum length would be built whole before it is measured; an array-like struct is not.
    """
    fields = [(f"element_{number}", Raw | UnsetType, UNSET) for number in range(MAX_BATCH)]
    kind = msgspec.defstruct("Elements", fields, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(kind).decode


def _element(frame: bytes) -> Decoded:
    start = frame[:1]
    if start == b"[":
        return NESTED_BATCH
    if start != b"{":
        return NO_OBJECT
    return read(frame, len(frame))  # type: ignore[return-value]  # no array gets here, so no batch comes back


def encode(message: Message | Sequence[Message]) -> bytes:
    """Write one message, or a batch, as one line of JSON without its line end."""
    try:
        payload = write(message)
    except UNWRITABLE as reason:
        raise unwritable(reason) from None
    if len(payload) > MAX_NESTING and nests_too_deep(payload):
        raise unwritable(TOO_DEEP)
    return payload


def encode_within(message: Message | Sequence[Message], max_size: int, beside: int = 0) -> bytes:
    """Write as `encode` does; raises EncodeError where that, with so many bytes beside it, is over the limit."""
    try:
        payload = write(message)
    except UNWRITABLE as reason:
        raise unwritable(reason) from None
    size = len(payload)
    if size > MAX_NESTING and nests_too_deep(payload):
        raise unwritable(TOO_DEEP)
    if size + beside > max_size:
        raise too_long(size + beside, max_size)
    return payload


def too_long(size: int, max_size: int) -> EncodeError:
    """Return the error for a message of ours that is over the limit: a peer would refuse it unread."""
    return EncodeError(f"the message is {size} bytes long; the limit is {max_size}")


def unwritable(reason: Exception) -> EncodeError:
    """Return the error for a message that cannot be written."""
    if isinstance(reason, RecursionError):
        return EncodeError("the value is nested too deeply or contains itself")
    return EncodeError(str(reason))
