"""Records as bytes: what is not ours is refused, whatever it is."""

from __future__ import annotations

import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.stores.contracts import SessionRecord, StoredTask
from ferrule.stores.records import (
    LARGEST_RECORD,
    VERSION,
    ForeignRecord,
    decode_session,
    decode_task,
    decode_value,
    encode_session,
    encode_task,
    encode_value,
)

SESSION = SessionRecord(id="s", revision="r", owner="n", subscriptions=("a",), capabilities={"x": {"y": [1]}})
TASK = StoredTask(id="t", owner="o", tool="x", created=1.0, updated=1.0, ttl=None, poll_interval=1.0, result=b"\x00")


def test_records_come_back_as_they_were() -> None:
    assert decode_session(encode_session(SESSION)) == SESSION
    assert decode_task(encode_task(TASK)) == TASK
    assert decode_value(encode_value(b"")) == b""


@pytest.mark.parametrize("decode", [decode_session, decode_task])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        VERSION,
        b"\x02" + encode_session(SESSION)[1:],
        pickle.dumps({"id": "s"}),
        VERSION + msgspec.msgpack.encode({"id": 1}),
        VERSION + msgspec.msgpack.encode((b"{}", b"")),
        VERSION + b"\x91" * 100_000,
        VERSION + b"x" * LARGEST_RECORD,
        encode_session(SESSION)[:-1],
        encode_task(TASK)[:-1],
    ],
    ids=lambda data: data[:8].hex(),
)
def test_what_is_not_ours_is_refused(decode: object, data: bytes) -> None:
    """CLU-11: truncated, of another version, pickled, too large."""
    with pytest.raises(ForeignRecord):
        decode(data)  # type: ignore[operator]


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    for decode in (decode_session, decode_task, decode_value):
        for each in (data, VERSION + data):
            try:
                found = decode(each)
            except ForeignRecord as reason:
                found = reason
            assert isinstance(found, bytes | SessionRecord | StoredTask | ForeignRecord)
