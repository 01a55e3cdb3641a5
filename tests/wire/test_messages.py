"""The four kinds of message: plain values that never change and always say `"jsonrpc":"2.0"`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from ferrule.wire.codec import encode
from ferrule.wire.messages import (
    EMPTY_PARAMS,
    ErrorObject,
    Failure,
    HttpError,
    Message,
    Notification,
    Request,
    Success,
)

REFUSED = ErrorObject(-32601, "Method not found")

EXACT: list[tuple[Message, bytes]] = [
    (Request(1, "ping"), b'{"jsonrpc":"2.0","id":1,"method":"ping"}'),
    (Request("a", "x", {"n": 1}), b'{"jsonrpc":"2.0","id":"a","method":"x","params":{"n":1}}'),
    (Request(0, "x", {}), b'{"jsonrpc":"2.0","id":0,"method":"x","params":{}}'),
    (Request("", "x", Raw(b'{"raw":true}')), b'{"jsonrpc":"2.0","id":"","method":"x","params":{"raw":true}}'),
    (Notification("notifications/x"), b'{"jsonrpc":"2.0","method":"notifications/x"}'),
    (Notification("n", {"u": "ü"}), '{"jsonrpc":"2.0","method":"n","params":{"u":"ü"}}'.encode()),
    (Success(7, {}), b'{"jsonrpc":"2.0","id":7,"result":{}}'),
    (Success("7", {"a": [1, None]}), b'{"jsonrpc":"2.0","id":"7","result":{"a":[1,null]}}'),
    (Success(2**53 + 1, None), b'{"jsonrpc":"2.0","id":9007199254740993,"result":null}'),
    (Failure(1, REFUSED), b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}'),
    (
        Failure(1, ErrorObject(-32602, "Invalid params", {"uri": "x"})),
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params","data":{"uri":"x"}}}',
    ),
    (Failure(1, ErrorObject(5, "m", 0)), b'{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"m","data":0}}'),
    (Failure(None, REFUSED), b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}'),
    (Failure(UNSET, REFUSED), b'{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"}}'),
]


def test_an_error_for_http_brings_a_status_and_headers_of_which_the_message_says_nothing() -> None:
    plain = ErrorObject(-32602, "Invalid params", {"uri": "x"})
    error = HttpError.of(plain, 402, {"X-Price": "5"})
    assert (error.status, error.headers) == (402, {"X-Price": "5"})
    assert encode(Failure(1, error)) == encode(Failure(1, plain))


@pytest.mark.parametrize(("message", "written"), EXACT, ids=[str(row[1][16:60]) for row in EXACT])
def test_every_kind_is_written_exactly_so(message: Message, written: bytes) -> None:
    """RPC-1 JRPC-01 JRPC-15 JRPC-18: the exact JSON; an error has `data` only when it was given."""
    assert encode(message) == written


def test_a_batch_is_written_as_one_array() -> None:
    """JRPC-15: a batch is the array of its messages."""
    written = encode([message for message, _ in EXACT])
    assert written == b"[" + b",".join(part for _, part in EXACT) + b"]"


def test_a_result_of_none_is_still_a_result_and_an_error_has_none() -> None:
    """JRPC-16 RPC-6: a response has `result` or `error`, never neither, never both."""
    assert msgspec.json.decode(encode(Success(1, None))).keys() == {"jsonrpc", "id", "result"}
    assert msgspec.json.decode(encode(Failure(1, REFUSED))).keys() == {"jsonrpc", "id", "error"}


@pytest.mark.parametrize("kind", [Request, Notification, Success, Failure])
def test_no_kind_has_room_for_both_a_result_and_an_error(kind: type[Any]) -> None:
    """JRPC-04: a response with both cannot even be built."""
    assert not {"result", "error"} <= set(kind.__struct_fields__)


def test_a_notification_has_no_id() -> None:
    """RPC-9: there is nothing a notification could be answered under."""
    assert "id" not in Notification.__struct_fields__
    assert b'"id"' not in encode(Notification("x", {"a": 1}))


@pytest.mark.parametrize(("message", "_"), EXACT[:3] + EXACT[6:8] + EXACT[9:10])
def test_messages_never_change(message: Message, _: bytes) -> None:
    """JRPC-06: immutable records."""
    for name in message.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(message, name, "changed")


def test_messages_compare_by_value_and_tell_types_of_ids_apart() -> None:
    """JRPC-06 RPC-5: equal members make equal messages, and 1 is not "1"."""
    assert Request(1, "x", {"a": 1}) == Request(1, "x", {"a": 1})
    assert Request(1, "x") != Request("1", "x")
    assert Success(1, {}) != Success("1", {})
    assert Failure(1, REFUSED) == Failure(1, ErrorObject(-32601, "Method not found"))
    assert Notification("x") != Notification("y")


def test_absent_params_read_as_an_empty_object() -> None:
    assert bytes(EMPTY_PARAMS) == b"{}"
