"""Results of another peer, handed on to our caller: read as little as the difference of two revisions demands."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from ferrule.errors import Internal
from ferrule.schema.methods import Method
from ferrule.schema.model import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_KEY,
    VERSION_KEY,
)
from ferrule.schema.rounds import INPUT_REQUIRED
from ferrule.schema.wrapped import RESULT_MARK

OF_ONE_HOP = frozenset(
    {VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY, SERVER_INFO_KEY, SUBSCRIPTION_KEY}
)
"""Keys of `_meta` that speak of one connection, and mean nothing on the next."""
STATELESS_ONLY = ("resultType", "ttlMs", "cacheScope")
"""Members of a result that only the stateless era has."""

Members = dict[str, Raw]
"""The members of a JSON object, not read themselves."""

_read_members = msgspec.json.Decoder(Members).decode
_read_text = msgspec.json.Decoder(str).decode
_write = msgspec.json.Encoder().encode


class Foreign(Struct, frozen=True):
    """A result as a peer wrote it. The caller's era gives it the form its revision demands."""

    raw: Raw
    version: str
    """The revision the peer wrote it in."""


def members_of(foreign: Foreign) -> Members:
    """Return the members of a result. Raise Internal if it is no JSON object."""
    try:
        return _read_members(foreign.raw)
    except (msgspec.DecodeError, RecursionError) as reason:
        raise Internal(f"the result of the server behind this one is not an object: {reason}") from None


def read_as(row: Method, written: Raw | bytes) -> Any:
    """Read a result as the method's own type. Raise Internal if it is not one."""
    try:
        return row.result_decoder()(written)
    except (msgspec.DecodeError, RecursionError) as reason:
        raise Internal(f"the result of the server behind this one is not one of {row.name}: {reason}") from None


def kind_of(members: Members) -> str:
    """Return the `resultType`, or "" where there is none."""
    written = members.get("resultType")
    if written is None:
        return ""
    try:
        return _read_text(written)
    except msgspec.DecodeError:
        raise Internal("the server behind this one gave a resultType that is not a string") from None


def meta_of(members: Members) -> Members:
    """Return the `_meta` of a result without what speaks of the connection it came on."""
    written = members.get("_meta")
    if written is None:
        return {}
    try:
        meta = _read_members(written)
    except (msgspec.DecodeError, RecursionError) as reason:
        raise Internal(f"the server behind this one gave a _meta that is not an object: {reason}") from None
    for key in OF_ONE_HOP:
        meta.pop(key, None)
    return meta


def without_stateless(foreign: Foreign) -> Members:
    """Return the members that a result has in the newest revision with a handshake."""
    members = members_of(foreign)
    if kind_of(members) == INPUT_REQUIRED:
        raise Internal("the server behind this one asks for input in its result: answer that before handing it on")
    for name in STATELESS_ONLY:
        members.pop(name, None)
    meta = meta_of(members)
    structured = members.get("structuredContent")
    if structured is not None and bytes(structured).lstrip()[:1] != b"{":
        # Structured content of any JSON type came with the stateless era; before, it is an object.
        members["structuredContent"] = Raw(_write({"result": structured}))
        for key, mark in RESULT_MARK.items():
            meta[key] = Raw(_write(mark))
    if meta:
        members["_meta"] = Raw(_write(meta))
    else:
        members.pop("_meta", None)
    return members


def spliced(foreign: Foreign, head: bytes) -> Raw | None:
    """Return the result with other members before its own, unread; None if it may have some of them already."""
    text = bytes(foreign.raw).strip()
    if text[:1] != b"{":
        return None
    # A name may be written with escapes: `\u005fmeta` is `_meta`.
    if b'"resultType"' in text or b'"_meta"' in text or b"\\u00" in text:
        return None
    rest = text[1:].lstrip()
    if rest == b"}":
        return Raw(head.removesuffix(b",") + rest)
    return Raw(head + rest)
