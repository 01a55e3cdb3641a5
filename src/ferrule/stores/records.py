"""Records as bytes: a version, then MessagePack. What is not ours is refused, never guessed."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from ferrule.stores.contracts import SessionRecord, StoredTask

VERSION = b"\x01"
"""The first byte of all we write. Added fields keep it; a change that old builds would misread needs another."""

LARGEST_RECORD = 16 * 1024 * 1024
"""Bytes of one record, or of one value."""


class ForeignRecord(ValueError):
    """What is kept was not written by this version of Ferrule; the message says why."""


_sessions = msgspec.msgpack.Decoder(SessionRecord)
_tasks = msgspec.msgpack.Decoder(tuple[bytes, bytes | None])
_task_heads = msgspec.json.Decoder(StoredTask)
_encode = msgspec.msgpack.Encoder().encode


def encode_value(value: bytes) -> bytes:
    """Return a value as it is kept."""
    return VERSION + value


def decode_value(data: bytes) -> bytes:
    """Return a value that was kept; raise ForeignRecord for another's."""
    if data[:1] != VERSION:
        raise ForeignRecord(f"it begins with {data[:1]!r}, which is not the version of its form, {VERSION!r}")
    if len(data) > LARGEST_RECORD:
        raise ForeignRecord(f"it has {len(data)} bytes, more than {LARGEST_RECORD}")
    return data[1:]


def encode_session(record: SessionRecord) -> bytes:
    """Return a session as it is kept."""
    return VERSION + _encode(record)


def decode_session(data: bytes) -> SessionRecord:
    """Return a session that was kept; raise ForeignRecord for what is none."""
    record: SessionRecord = _decoded(_sessions, decode_value(data))
    return record


def encode_task(task: StoredTask) -> bytes:
    """Return a task as it is kept: questions hold raw JSON, so all but the result is JSON inside."""
    head = msgspec.json.encode(structs.replace(task, result=None))
    return VERSION + _encode((head, task.result))


def decode_task(data: bytes) -> StoredTask:
    """Return a task that was kept; raise ForeignRecord for what is none."""
    head, result = _decoded(_tasks, decode_value(data))
    task: StoredTask = _decoded(_task_heads, head)
    return structs.replace(task, result=result)


def _decoded(decoder: Any, data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ForeignRecord(f"it cannot be read: {error}") from error
