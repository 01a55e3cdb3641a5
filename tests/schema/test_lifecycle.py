"""What a peer says of itself when it introduces itself."""

from __future__ import annotations

import sys

import msgspec
import pytest

from ferrule.schema.lifecycle import InitializeResult, bounded


def nested(depth: int) -> bytes:
    """Write an introduction with objects within objects."""
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    return b'{"protocolVersion":"1","serverInfo":{"name":"s","version":"1"},"capabilities":{"experimental":%b}}' % deep


def test_what_is_nested_too_deeply_to_be_read_is_no_introduction() -> None:
    read = bounded(msgspec.json.Decoder(InitializeResult).decode)
    assert read(nested(10)).protocol_version == "1"
    with pytest.raises(msgspec.ValidationError, match="nested so deeply"):
        read(nested(sys.getrecursionlimit()))
