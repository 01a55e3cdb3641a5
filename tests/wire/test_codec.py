"""One frame to one message and back: what is read, what is refused, with which number and under which id."""

from __future__ import annotations

import json
import os
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from ferrule.budgets.bounds import MAX_BATCH, MAX_ERROR_DATA, MAX_ID_LENGTH, MAX_METHOD_LENGTH, MAX_UNREADABLE
from ferrule.budgets.weight import weight
from ferrule.errors import EncodeError, FerruleError
from ferrule.schema.tools import CallToolParams
from ferrule.wire import codec
from ferrule.wire.codec import (
    MAX_MESSAGE_SIZE,
    UTF_8_PART,
    Batch,
    Rejected,
    Unreadable,
    check_array,
    decode,
    encode,
    encode_within,
    read_batch,
)
from ferrule.wire.messages import ErrorObject, Failure, Message, Notification, Request, Success

LONG = os.environ.get("FERRULE_LONG") == "1"
MIB = 1024 * 1024
THOROUGHLY = settings(max_examples=3_000 if LONG else 150, deadline=None)

PARSE_ERROR, INVALID_REQUEST, TOO_LARGE = -32700, -32600, -32012

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON: st.SearchStrategy[Any] = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)
IDS = st.integers() | st.text()
EVERYTHING = st.text() | st.binary()


def plain(value: Any) -> Any:
    """A raw value as what it says; any other as it is."""
    return msgspec.json.decode(value) if isinstance(value, Raw) else value


def read(frame: bytes) -> Message:
    message = decode(frame)
    assert not isinstance(message, list)
    return message


def refused(frame: bytes, max_size: int = MAX_MESSAGE_SIZE) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        decode(frame, max_size)
    assert str(caught.value) == caught.value.refusal.message
    return caught.value


def request(params: bytes = b"{}", name: bytes = b'"m"', identity: bytes = b"1") -> bytes:
    return b'{"jsonrpc":"2.0","id":' + identity + b',"method":' + name + b',"params":' + params + b"}"


def members(**given: Any) -> bytes:
    return json.dumps(given).encode()


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """The least time in seconds, so that a busy machine does not count."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


class TestKinds:
    KINDS = (
        (members(jsonrpc="2.0", id=1, method="m"), Request, 1),
        (members(jsonrpc="2.0", id="1", method="m", params={"a": 1}), Request, "1"),
        (members(jsonrpc="2.0", method="m"), Notification, None),
        (members(jsonrpc="2.0", method="m", params={}), Notification, None),
        (members(jsonrpc="2.0", id=1, result={}), Success, 1),
        (members(jsonrpc="2.0", id=1, result=None), Success, 1),
        (members(jsonrpc="2.0", id=1, error={"code": 1, "message": "x"}), Failure, 1),
        (members(jsonrpc="2.0", id=None, error={"code": 1, "message": "x"}), Failure, None),
        (members(jsonrpc="2.0", error={"code": 1, "message": "x"}), Failure, UNSET),
    )

    @pytest.mark.parametrize(("frame", "kind", "identity"), KINDS)
    def test_the_members_tell_the_kind(self, frame: bytes, kind: type[Message], identity: Any) -> None:
        """JRPC-02 JRPC-03 JRPC-05 RPC-6: id and method, method alone, id and result, error: each is one type."""
        message = read(frame)
        assert type(message) is kind
        if kind is not Notification:
            assert message.id == identity
            assert type(message.id) is type(identity)

    def test_every_other_combination_of_members_is_refused(self) -> None:
        """JRPC-02 JRPC-03 RPC-6: all sixteen combinations; those that are no message are -32600."""
        values = {"id": 1, "method": "m", "result": {}, "error": {"code": 1, "message": "x"}}
        good = {
            frozenset({"id", "method"}): Request,
            frozenset({"method"}): Notification,
            frozenset({"id", "result"}): Success,
            frozenset({"id", "error"}): Failure,
            frozenset({"error"}): Failure,
        }
        for bits in range(16):
            names = frozenset(name for place, name in enumerate(values) if bits >> place & 1)
            frame = members(jsonrpc="2.0", **{name: values[name] for name in names})
            if names in good:
                assert type(read(frame)) is good[names]
            else:
                why = refused(frame)
                assert why.refusal.own_code == INVALID_REQUEST
                assert why.id == (1 if "id" in names else UNSET)

    def test_params_stay_raw_and_absent_params_are_an_empty_object(self) -> None:
        """JRPC-05 JRPC-08: one shallow reading; nothing inside the params is built."""
        params = read(request(b'{ "a" : [1, 2.50] }')).params
        assert isinstance(params, Raw)
        assert bytes(params) == b'{ "a" : [1, 2.50] }'
        assert bytes(read(b'{"jsonrpc":"2.0","id":1,"method":"m"}').params) == b"{}"

    def test_unknown_members_are_ignored(self) -> None:
        """RPC-15: extra members anywhere cause no error."""
        frame = members(jsonrpc="2.0", id=1, method="m", params={"x": 1}, trace="t", extra={"deep": [{}]}, metho="z")
        assert read(frame) == Request(1, "m", read(frame).params)

    def test_the_order_and_the_escapes_of_members_do_not_matter(self) -> None:
        frame = b'{ "params" : {} , "metho\\u0064" : "m" , "\\u0069d" : "a" , "jsonrpc" : "2.\\u0030" }'
        message = read(frame)
        assert (message.id, message.method) == ("a", "m")

    def test_a_response_is_read_into_its_value_or_its_error(self) -> None:
        """JRPC-17: the bytes of a response give the result or the error object."""
        good, bad = (
            read(members(jsonrpc="2.0", id=1, result={"n": 1})),
            read(b'{"jsonrpc":"2.0","id":1,"error":{"code":-5}}'),
        )
        assert isinstance(good, Success)
        assert plain(good.result) == {"n": 1}
        assert bad == Failure(1, ErrorObject(-5, ""))

    def test_the_data_of_a_peers_error_is_kept(self) -> None:
        """RPC-7 JRPC-18: integer code, message, and data of any shape."""
        for data in (0, "", [], {"supported": ["x"]}, None, False):
            frame = members(jsonrpc="2.0", id=1, error={"code": -32022, "message": "m", "data": data})
            assert read(frame) == Failure(1, ErrorObject(-32022, "m", data))


class TestRefusals:
    TEXTS = (
        b"",
        b"   ",
        b"nope",
        b"{bad",
        b'{"jsonrpc":"2.0","id":1,"method":"m"',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1,]}',
        b'{"jsonrpc":"2.0","id":1,"method":"m",}',
        b'{"jsonrpc":"2.0" "id":1}',
        b"{'jsonrpc':'2.0','id':1,'method':'m'}",
        b'{"jsonrpc":"2.0","id":1,"method":"m"} // why',
        b'{"jsonrpc":"2.0",/*x*/"id":1,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m"}{"jsonrpc":"2.0","id":2,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m"} {}',
        b"[{]",
        b"[1,2",
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":01}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":+1}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":.5}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":0x1}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":tru}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\q"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\u12"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{a:1}}',
    )

    @pytest.mark.parametrize("frame", TEXTS)
    def test_frm_01_text_that_is_not_one_json_document_is_a_parse_error(self, frame: bytes) -> None:
        """ERRC-01 JRPC-12 ERR-1: not JSON, truncated, trailing comma, comments, single quotes, two documents."""
        why = refused(frame)
        assert why.refusal.own_code == PARSE_ERROR
        assert why.id is UNSET

    SPOILT = (
        request(b'{"a":"\xff"}'),
        request(b'{"a":"\xc0\xaf"}'),
        request(b'{"a":"\xed\xa0\x80"}'),
        request(b'{"a":"\xf5\x80\x80\x80"}'),
        request(b'{"a":"\xe2\x82"}'),
        request(b'{"\xfe":1}'),
        request(name=b'"m\x80"'),
        request(identity=b'"\xc3\x28"'),
        b'{"jsonrpc":"2.0","id":1,"method":"m","extra":"\xff"}',
        b'[{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xff"}}]',
        b"\xef\xbb\xbf" + request(),
        b"\xff\xfe" + request().decode().encode("utf-16-le"),
        request(name=b'"m\x00"'),
        request(b'{"a":"\x00"}'),
        request(b'{"a":"\x1f"}'),
        request(b'{"a":"line\nbreak"}'),
        b"\x00" + request(),
        request() + b"\x00",
    )

    @pytest.mark.parametrize("frame", SPOILT)
    def test_frm_02_bytes_that_are_not_clean_utf_8_are_a_parse_error(self, frame: bytes) -> None:
        """RPC-10 JRPC-14: also where the broken text stands in a member that nobody would read."""
        assert refused(frame).refusal.own_code == PARSE_ERROR

    @pytest.mark.parametrize("escape", [rb"\ud800", rb"\udfff", rb"\ud800\ud800", rb"\ud83dx", rb"a\udc00b" * 9])
    @pytest.mark.parametrize("place", ["method", "id", "params"])
    def test_frm_03_a_lone_surrogate_is_an_error(self, escape: bytes, place: str) -> None:
        text = b'"' + escape + b'"'
        frame = {
            "method": request(name=text),
            "id": request(identity=text),
            "params": request(b'{"text":' + text + b"}"),
        }[place]
        assert refused(frame).refusal.own_code == PARSE_ERROR

    def test_a_pair_of_surrogates_is_one_character(self) -> None:
        """JRPC-14: what is written as an escaped pair is read as the character it stands for."""
        assert plain(read(request(rb'{"a":"\ud83d\ude00"}')).params) == {"a": "😀"}

    DEPTHS = (1001, 5000, 100_000)

    @pytest.mark.parametrize("depth", DEPTHS)
    @pytest.mark.parametrize("closed", [True, False])
    @pytest.mark.parametrize("shape", ["arrays", "objects", "both"])
    def test_frm_05_too_deep_nesting_is_refused_fast_and_small(self, shape: str, closed: bool, depth: int) -> None:
        opening = {"arrays": b"[", "objects": b'{"a":', "both": b'[{"a":'}[shape]
        closing = {"arrays": b"]", "objects": b"}", "both": b"}]"}[shape]
        nested = opening * depth + b"1" + (closing * depth if closed else b"")
        for frame in (request(b'{"a":' + nested + b"}"), nested, request(identity=nested)):
            assert refused(frame).refusal.own_code in (PARSE_ERROR, INVALID_REQUEST)
            assert best_of(5, lambda frame=frame: refused(frame)) < 0.02
        tracemalloc.start()
        refused(frame)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * MIB + len(frame)

    def test_frm_05_moderate_nesting_is_read(self) -> None:
        nested = b"[" * 400 + b"]" * 400
        assert isinstance(read(request(b'{"a":' + nested + b"}")), Request)

    def test_frm_05_a_batch_that_is_nested_too_deeply_is_refused_whole(self) -> None:
        deep = b"[" * 5000 + b"]" * 5000
        found = read_batch(Batch(b"[" + request(b'{"a":' + deep + b"}") + b"]"))
        assert isinstance(found, Rejected)

    NUMBERS = (b"1" + b"0" * 4300, b"9" * 1_000_000, b"-" + b"8" * 4301, b"1" * 100_000 + b".5", b"1e" + b"9" * 100_000)

    @pytest.mark.parametrize("number", NUMBERS, ids=lambda number: f"{number[:4].decode()}…x{len(number)}")
    def test_frm_06_enormous_numbers_take_no_time_and_are_never_rounded_as_ids(self, number: bytes) -> None:
        assert refused(request(identity=number)).refusal.own_code == INVALID_REQUEST
        assert best_of(5, lambda: refused(request(identity=number))) < 0.02
        assert best_of(5, lambda: read(request(b'{"a":' + number + b"}"))) < 0.02

    ODD_NUMBERS = ((b"-0", 0), (b"18446744073709551616", 2**64), (b"-9223372036854775809", -(2**63) - 1))

    @pytest.mark.parametrize(("number", "value"), ODD_NUMBERS)
    def test_frm_06_odd_integers_are_exact(self, number: bytes, value: int) -> None:
        assert read(request(identity=number)).id == value
        assert plain(read(request(b'{"a":' + number + b"}")).params) == {"a": value}

    @pytest.mark.parametrize("number", [b"1e400", b"1E+2", b"1.0", b"-1.5"])
    def test_frm_06_numbers_that_are_no_integers_are_no_ids(self, number: bytes) -> None:
        assert refused(request(identity=number)).refusal.own_code == INVALID_REQUEST

    @pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity", b"nan", b"-nan", b"inf"])
    def test_frm_07_nan_and_infinity_literals_are_parse_errors(self, literal: bytes) -> None:
        for frame in (request(b'{"a":' + literal + b"}"), request(identity=literal), literal):
            assert refused(frame).refusal.own_code == PARSE_ERROR

    def test_frm_08_of_duplicate_keys_the_last_counts_everywhere(self) -> None:
        """What is checked is what is run: envelope and params follow the same rule."""
        twice = (
            b'{"jsonrpc":"2.0","id":1,"method":"safe","params":{},'
            b'"id":2,"method":"tools/call","params":{"name":"a","name":"b"}}'
        )
        message = read(twice)
        assert isinstance(message, Request)
        assert (message.id, message.method) == (2, "tools/call")
        assert msgspec.json.decode(message.params, type=CallToolParams).name == "b"
        assert json.loads(twice)["method"] == "tools/call"

    LOOK_ALIKES = (b"Name", b"NAME", b"name ", b"na\\u0000me", "nam\u00e9".encode(), "ﬁle".encode(), b"_name")

    @pytest.mark.parametrize("key", LOOK_ALIKES)
    def test_frm_08_keys_that_only_look_alike_are_other_keys(self, key: bytes) -> None:
        params = read(request(b'{"' + key + b'":"evil","name":"good"}')).params
        assert msgspec.json.decode(params, type=CallToolParams).name == "good"
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(read(request(b'{"' + key + b'":"evil"}')).params, type=CallToolParams)

    @pytest.mark.parametrize(
        "key", ["\u0130d", "\u0131d", "metho\u217e", "\u017f", "\u212a", "ID", "Method", "jsonRPC"]
    )
    def test_frm_08_no_other_spelling_stands_for_a_member_of_the_envelope(self, key: str) -> None:
        frame = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", key: 7}, ensure_ascii=False).encode()
        assert read(frame) == Request(1, "m", read(frame).params)

    GOOD_IDS = ("", "0", 0, -1, 1, "1", 2**53 + 1, 2**63, 2**64, 10**30, "x" * 4096, "🦀", "\u2028", "\x7f", '"', "\\")

    @pytest.mark.parametrize("identity", GOOD_IDS)
    def test_frm_09_a_valid_id_comes_back_exactly(self, identity: int | str) -> None:
        """RPC-2 RPC-5 always:JRPC-09: bit for bit, and with its JSON type."""
        message = read(members(jsonrpc="2.0", id=identity, method="ping"))
        assert message.id == identity
        assert type(message.id) is type(identity)
        assert json.loads(encode(Success(message.id, {})))["id"] == identity

    BAD_IDS = (b"null", b"1.5", b"1.0", b"true", b"false", b"{}", b"[]", b"[1]", b'{"a":1}', b"1e3")

    @pytest.mark.parametrize("identity", BAD_IDS)
    def test_frm_09_an_invalid_id_is_refused(self, identity: bytes) -> None:
        """RPC-2 JRPC-09: no null, no float, no truth, nothing nested; and there is no id to answer under."""
        why = refused(request(identity=identity))
        assert why.refusal.own_code == INVALID_REQUEST
        assert why.id is UNSET

    @pytest.mark.parametrize("frame", [b"[]", b" [ ] ", b"3", b'"x"', b"null", b"true", b"1.5", b"-0"])
    def test_frm_10_scalars_and_empty_arrays_are_no_messages(self, frame: bytes) -> None:
        """JRPC-12: JSON, but not an object."""
        why = refused(frame)
        assert why.refusal.own_code == INVALID_REQUEST
        assert why.id is UNSET

    ENVELOPES = (
        (b"{}", UNSET),
        (members(id=1, method="m"), 1),
        (members(jsonrpc="1.0", id="a", method="m"), "a"),
        (members(jsonrpc=2.0, id=3, method="m"), 3),
        (members(jsonrpc=2, id=3, method="m"), 3),
        (members(jsonrpc=None, id=3, method="m"), 3),
        (members(jsonrpc=["2.0"], id=3, method="m"), 3),
        (members(jsonrpc="2.0 ", id=3, method="m"), 3),
        (members(jsonrpc="2.0", id=3, method=7), 3),
        (members(jsonrpc="2.0", id=3, method=None), 3),
        (members(jsonrpc="2.0", id=3, method=["m"]), 3),
        (members(jsonrpc="2.0", id=3, method={"m": 1}), 3),
        (members(jsonrpc="2.0", method=7), UNSET),
        (members(jsonrpc="2.0", id=3), 3),
        (members(jsonrpc="2.0"), UNSET),
        (members(jsonrpc="2.0", id=3, method="m", result={}), 3),
        (members(jsonrpc="2.0", id=3, method="m", error={"code": 1, "message": "x"}), 3),
        (members(jsonrpc="2.0", id=3, method="m", result={}, error={"code": 1, "message": "x"}), 3),
        (members(jsonrpc="2.0", method="m", result={}), UNSET),
    )

    @pytest.mark.parametrize(("frame", "identity"), ENVELOPES)
    def test_frm_11_a_malformed_envelope_is_refused_under_its_id(self, frame: bytes, identity: Any) -> None:
        """RPC-1 JRPC-01 JRPC-03 JRPC-07 ERRC-02 ERRC-21 ERR-1: -32600, with the id where it can be read."""
        why = refused(frame)
        assert why.refusal.own_code == INVALID_REQUEST
        assert why.id == identity
        assert type(why.id) is type(identity)
        assert not why.response

    def test_frm_11_a_method_of_a_mebibyte_is_refused_under_its_id(self) -> None:
        why = refused(request(name=b'"' + b"m" * MIB + b'"'))
        assert (why.refusal.own_code, why.id) == (INVALID_REQUEST, 1)
        assert "m" * 600 not in why.refusal.message

    BAD_RESPONSES = (
        members(jsonrpc="2.0", id=4, result={}, error={"code": 1, "message": "x"}),
        members(jsonrpc="2.0", id=4, error=None),
        members(jsonrpc="2.0", id=4, error=7),
        members(jsonrpc="2.0", id=4, error={}),
        members(jsonrpc="2.0", id=4, error={"code": 1.5, "message": "x"}),
        members(jsonrpc="2.0", id=4, error={"code": "1", "message": "x"}),
        members(jsonrpc="2.0", id=4, error={"code": True, "message": "x"}),
        members(jsonrpc="2.0", id=4, error={"code": 1, "message": 7}),
        members(id=4, result={}),
        members(jsonrpc="1.0", id=4, result={}),
    )

    @pytest.mark.parametrize("frame", BAD_RESPONSES)
    def test_a_malformed_response_is_known_as_one(self, frame: bytes) -> None:
        """JRPC-04 RPC-6 RPC-7: its id is one of our own requests, so it must never be answered under that id."""
        why = refused(frame)
        assert why.response
        assert why.id == 4
        assert why.refusal.own_code == INVALID_REQUEST

    NAMELESS_RESPONSES = (
        members(jsonrpc="2.0", result={}),
        members(jsonrpc="2.0", id=None, result={}),
        members(jsonrpc="2.0", id=None, result={}, error={"code": 1, "message": "x"}),
        members(jsonrpc="2.0", id=[], error={"code": 1, "message": "x"}),
    )

    @pytest.mark.parametrize("frame", NAMELESS_RESPONSES)
    def test_a_response_to_nobody_is_refused(self, frame: bytes) -> None:
        """RPC-6: only an error may come without an id."""
        why = refused(frame)
        assert why.response
        assert why.id is UNSET

    def test_the_checks_run_in_their_order(self) -> None:
        """JRPC-10 SIZE-04: size, JSON, object, version, kind; the first fault is the one that is told."""
        garbage = b"{bad" * 100
        assert refused(garbage, max_size=len(garbage) - 1).refusal.own_code == TOO_LARGE
        assert refused(garbage).refusal.own_code == PARSE_ERROR
        assert "object" in refused(b"7").refusal.message
        assert '"jsonrpc"' in refused(members(id=[], method=7)).refusal.message
        assert "id" in refused(members(jsonrpc="2.0", id=[], method=7)).refusal.message
        assert "method" in refused(members(jsonrpc="2.0", id=1, method=7)).refusal.message

    def test_the_kinds_of_failure_are_told_apart_with_their_detail(self) -> None:
        """JRPC-12: each is its own class of refusal, and its text says what is wrong."""
        told = {type(refused(frame, 40).refusal).__name__: refused(frame, 40).refusal.message for frame in (
            b"{bad", b"7", b"{}", b" " * 41)}  # fmt: skip
        assert told.keys() == {"ParseError", "InvalidRequest", "MessageTooLarge"}
        assert all(len(text) > 15 for text in told.values())

    @THOROUGHLY
    @given(EVERYTHING)
    def test_frm_16_anything_at_all_is_a_message_or_unreadable(self, noise: str | bytes) -> None:
        """RPC-7: and every refusal has an integer code and one line of text."""
        frame = noise if isinstance(noise, bytes) else noise.encode("utf-8", "surrogatepass")
        try:
            decode(frame)
            return
        except Unreadable as unreadable:
            why = unreadable.refusal
        assert type(why.own_code) is int
        assert why.message
        assert "\n" not in why.message


class TestSizes:
    def test_a_message_over_the_limit_is_refused_before_it_is_read(self) -> None:
        """SIZE-04 SIZE-06 ERRC-13: -32012 with the limit and its unit, whatever the bytes are."""
        long = request(b'{"a":"' + b"x" * 1025 + b'"}')
        for frame, identity in ((b"\xff" * 1025, UNSET), (b"[" * 1025, UNSET), (long, read(long).id)):
            why = refused(frame, 1024)
            assert why.refusal.own_code == TOO_LARGE
            assert why.refusal.data == {"maxSize": 1024, "unit": "bytes"}
            assert why.id == identity

    def test_the_limit_is_the_carriers_choice(self) -> None:
        """JRPC-11 SIZE-03: the same bytes pass one limit and fail a lower one; the limit itself passes."""
        frame = request(b'{"a":"' + b"x" * 2000 + b'"}')
        assert isinstance(decode(frame, len(frame)), Request)
        assert refused(frame, len(frame) - 1).refusal.own_code == TOO_LARGE

    def test_sixteen_mebibytes_pass_by_default_and_one_byte_more_does_not(self) -> None:
        """SIZE-01: 16,777,216 bytes."""
        assert MAX_MESSAGE_SIZE == 16_777_216
        room = MAX_MESSAGE_SIZE - len(request(b'{"a":""}'))
        assert isinstance(decode(request(b'{"a":"' + b"x" * room + b'"}')), Request)
        assert refused(request(b'{"a":"' + b"x" * (room + 1) + b'"}')).refusal.own_code == TOO_LARGE

    def test_an_element_of_a_batch_may_be_as_large_as_the_batch(self) -> None:
        element = request(b'{"a":"' + b"x" * 17 * MIB + b'"}')
        (message,) = decode(b"[" + element + b"]", 32 * MIB)
        assert isinstance(message, Request)

    def test_a_huge_id_builds_nothing(self) -> None:
        """FRM-05 FRM-09: five million empty objects in place of an id are skipped, not built."""
        frame = request(identity=b"[" + b"{}," * MIB + b"{}]")
        tracemalloc.start()
        assert refused(frame).refusal.own_code == INVALID_REQUEST
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < len(frame) + 2 * MIB


class TestBatches:
    def test_an_array_gives_its_messages_in_order(self) -> None:
        """BATC-01 RPC-11: two requests and a notification are three messages."""
        batch = decode(
            b'[{"jsonrpc":"2.0","id":1,"method":"a"},'
            b' {"jsonrpc":"2.0","method":"b"} , {"jsonrpc":"2.0","id":"2","method":"c"}]'
        )
        assert isinstance(batch, list)
        assert [type(item) for item in batch] == [Request, Notification, Request]
        assert [getattr(item, "method", None) for item in batch] == ["a", "b", "c"]

    def test_a_bad_element_spoils_itself_only(self) -> None:
        """BATC-01 BATC-02 RPC-11: each element has its own fault, under its own id where there is one."""
        batch = decode(b'[1,{"jsonrpc":"2.0","id":1,"method":"a"},{"id":2,"method":"b"},[],[[]],null,{}]')
        assert isinstance(batch, list)
        faults = [item.id if isinstance(item, Rejected) else item.method for item in batch]
        assert faults == [UNSET, "a", 2, UNSET, UNSET, UNSET, UNSET]
        assert all(item.refusal.own_code == INVALID_REQUEST for item in batch if isinstance(item, Rejected))

    @pytest.mark.parametrize("blanks", [0, 1, 63, 64, 65, 1000])
    def test_a_batch_may_stand_behind_blanks(self, blanks: int) -> None:
        frame = b" " * blanks + b"[" + request() + b"]"
        assert decode(frame) == decode(frame.lstrip())
        assert isinstance(decode(frame), list)

    def test_a_batch_of_responses_is_read_as_well(self) -> None:
        """BATC-08 RPC-11: answers may come as an array, in any order."""
        batch = decode(
            b'[{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}]'
        )
        assert isinstance(batch, list)
        assert [type(item) for item in batch] == [Success, Failure]

    @THOROUGHLY
    @given(st.lists(st.tuples(IDS, OBJECTS), min_size=1, max_size=6))
    def test_frm_16_a_batch_survives_the_wire(self, parts: list[tuple[int | str, dict[str, Any]]]) -> None:
        """BATC-01 JRPC-15: what is written as a batch is read as the same batch."""
        sent = [Request(identity, "m", params) for identity, params in parts]
        received = decode(encode(sent))
        assert isinstance(received, list)
        assert [(item.id, plain(item.params)) for item in received] == parts


class TestCheapRefusals:
    """What cannot be read costs no more than reading it: nothing is raised, built or kept for a bad element."""

    @staticmethod
    def peak(work: Callable[[], object]) -> int:
        work()
        tracemalloc.start()
        work()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    WIDE = (
        b"[" + b"1," * 500_000 + b"1]",
        b"[" + b"[]," * 300_000 + b"1]",
        b"[" + b"{}," * 300_000 + b"1]",
        b'{"a":[' + b"[]," * 300_000 + b"1",
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":[' + b"[]," * 300_000 + b"1]}}",
    )

    @pytest.mark.parametrize("frame", WIDE, ids=range(len(WIDE)))
    def test_a_wide_frame_is_judged_in_little_time_and_memory(self, frame: bytes) -> None:
        def judge() -> None:
            message = codec.read(frame)
            if isinstance(message, Batch):
                check_array(message)
                read_batch(message)

        assert best_of(3, judge) < 20e-6 + 2 * 20e-9 * len(frame)
        assert self.peak(judge) < len(frame)

    def test_an_unreadable_frame_is_a_value(self) -> None:
        for frame in (b"1", b"nope", b"{}", b'{"id":1}', b'{"jsonrpc":"2.0","id":1,"error":7}', b"x" * 2000):
            rejected = codec.read(frame, 1000)
            assert isinstance(rejected, Rejected)
            assert rejected.refusal.__traceback__ is None

    def test_a_batch_is_not_looked_into_before_somebody_asks(self) -> None:
        frame = b'  [1, {"jsonrpc":"2.0","id":1,"method":"ping"}, "never closed'
        batch = codec.read(frame)
        assert batch == Batch(frame)
        rejected = check_array(batch)
        assert rejected is not None
        assert rejected.refusal.own_code == PARSE_ERROR

    def test_elements_that_cannot_be_read_are_counted_and_then_the_batch_is_refused(self) -> None:
        good = b'{"jsonrpc":"2.0","id":1,"method":"a"}'
        for bad in (b"1", b"{}", b"[]", b'{"id":1}'):
            found = read_batch(Batch(b"[" + b",".join([good, *[bad] * MAX_UNREADABLE]) + b"]"))
            assert isinstance(found, list)
            assert len(found) == MAX_UNREADABLE + 1
            refusal = read_batch(Batch(b"[" + b",".join([good, *[bad] * (MAX_UNREADABLE + 1)]) + b"]"))
            assert isinstance(refusal, Rejected)
            assert refusal.id is UNSET

    def test_a_batch_of_many_is_refused_at_the_first_too_many(self) -> None:
        frame = b"[" + b",".join([b'{"jsonrpc":"2.0","method":"n"}'] * (MAX_BATCH + 1)) + b"]"
        refusal = read_batch(Batch(frame))
        assert isinstance(refusal, Rejected)
        assert f"at most {MAX_BATCH} messages" in refusal.refusal.message

    def test_an_id_over_its_bound_is_answered_under_none(self) -> None:
        for identity in ('"' + "i" * 5000 + '"', "9" * 4200):
            for rest in ('"method":"m"', '"method":7', '"result":{}', '"error":{"code":1,"message":"x"}'):
                rejected = codec.read(f'{{"jsonrpc":"2.0","id":{identity},{rest}}}'.encode())
                assert isinstance(rejected, Rejected)
                assert rejected.id is UNSET
                assert rejected.response is ("method" not in rest)
            broken = codec.read(f'{{"jsonrpc":"2.0","id":{identity},"method":"m","params":{{"a":NaN}}}}'.encode())
            assert isinstance(broken, Rejected)
            assert broken.id is UNSET

    def test_a_message_that_would_take_too_much_memory_is_refused_under_its_id(self) -> None:
        for opening, response in ((b'"method":"m","params":{"a":', False), (b'"result":{"a":', True)):
            frame = b'{"jsonrpc":"2.0","id":7,' + opening + b"[" + b"[]," * 800_000 + b"1]}}"
            rejected = codec.read(frame)
            assert isinstance(rejected, Rejected)
            assert (rejected.id, rejected.response) == (7, response)
            assert "too many values" in rejected.refusal.message
            broken = codec.read(frame[:-2])
            assert isinstance(broken, Rejected)
            assert "too many values" in broken.refusal.message
            late = b'{"jsonrpc":"2.0",' + opening + b"[" + b"[]," * 800_000 + b'1]},"id":7}'
            rejected = codec.read(late)
            assert isinstance(rejected, Rejected)
            assert (rejected.id, rejected.response) == (7, response)
        assert isinstance(read(request(b'{"a":"' + b"x" * 15_000_000 + b'"}')), Request)

    def test_a_message_of_just_the_limit_that_is_too_heavy_is_refused_for_its_weight(self) -> None:
        frame = request(b"[" + b"[]," * 800_000 + b"1]")
        assert "too many values" in refused(frame, len(frame)).refusal.message
        assert refused(frame, len(frame) - 1).refusal.own_code == TOO_LARGE

    @pytest.mark.parametrize("rest", ['"method":"m"', '"result":{}', '"error":{"code":1,"message":"m"}'])
    def test_an_id_of_just_its_bound_is_read(self, rest: str) -> None:
        first = 10**MAX_ID_LENGTH
        for longest, over in (
            ("i" * MAX_ID_LENGTH, "i" * (MAX_ID_LENGTH + 1)),
            (first - 1, first),
            (1 - first, -first),
        ):
            message: Any = codec.read(f'{{"jsonrpc":"2.0","id":{json.dumps(longest)},{rest}}}'.encode())
            assert message.id == longest
            assert codec.read(f'{{"jsonrpc":"2.0","id":{json.dumps(over)},{rest}}}'.encode()).id is UNSET  # type: ignore[union-attr]

    def test_a_method_of_just_its_bound_is_read(self) -> None:
        longest = "m" * MAX_METHOD_LENGTH
        assert read(members(jsonrpc="2.0", id=1, method=longest)).method == longest
        rejected = refused(members(jsonrpc="2.0", id=1, method=longest + "m"))
        assert (rejected.id, rejected.response) == (1, False)
        assert "longer than 512 characters" in rejected.refusal.message

    def test_a_batch_of_just_its_bound_is_read(self) -> None:
        found = read_batch(Batch(b"[" + b",".join([b'{"jsonrpc":"2.0","method":"n"}'] * MAX_BATCH) + b"]"))
        assert isinstance(found, list)
        assert len(found) == MAX_BATCH

    @pytest.mark.parametrize(
        ("opening", "end"),
        [
            (b'{"jsonrpc":"2.0","id":7,"method":"m","params":', b"}"),
            (b'{"jsonrpc":"2.0","method":"m","params":', b',"id":7}'),
            (b'{"jsonrpc":"2.0","id":7,"result":', b"}"),
            (b'{"jsonrpc":"2.0","result":', b',"id":7}'),
            (b'[{"jsonrpc":"2.0","id":7,"method":"m","params":', b"}]"),
        ],
    )
    def test_a_message_of_just_the_weight_that_is_allowed_is_read(
        self, opening: bytes, end: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        frame = opening + b'{"a":[' + b"1," * 20_000 + b"1]}" + end
        for allowed, fits in ((weight(frame), True), (weight(frame) - 1, False)):
            monkeypatch.setattr(codec, "MAX_MESSAGE_WEIGHT", allowed)
            monkeypatch.setattr(codec, "HEAVY", len(frame) - 1)
            message = codec.read(frame)
            found = read_batch(message) if isinstance(message, Batch) else message
            assert isinstance(found, Rejected) is not fits

    def test_data_of_an_error_that_is_too_long_is_left_out(self) -> None:
        def failure(data: str) -> Any:
            return read(members(jsonrpc="2.0", id=1, error={"code": 1, "message": "m", "data": data}))

        assert failure("x" * (MAX_ERROR_DATA - 2)).error.data is not None
        assert failure("x" * MAX_ERROR_DATA).error == ErrorObject(1, "m", None)

    @pytest.mark.parametrize("character", ["é", "€", "😀"])
    @pytest.mark.parametrize("shift", range(4))
    def test_a_long_text_is_checked_in_parts_that_split_no_character(self, character: str, shift: int) -> None:
        start = UTF_8_PART - 36 - shift
        before = start - len(request(b'{"a":"')) + len(b"}")
        text = "x" * before + character * 20
        good = request(b'{"a":"' + text.encode() + b'"}')
        assert good.index(character.encode()) == start
        assert plain(read(good).params) == {"a": text}
        for broken in (good.replace(character.encode(), character.encode()[:-1], 1), good[:-3] + b"\xc3" + good[-3:]):
            assert refused(broken).refusal.own_code == PARSE_ERROR

    @pytest.mark.parametrize("parts", [1, 2, 3])
    def test_a_text_that_ends_where_a_part_ends_is_read(self, parts: int) -> None:
        room = parts * UTF_8_PART - len(request(b'{"a":""}'))
        frame = request(b'{"a":"' + "é".encode() + b"x" * (room - 2) + b'"}')
        assert len(frame) == parts * UTF_8_PART
        assert plain(read(frame).params)["a"].startswith("éx")
        assert refused(frame[:-3] + b"\xff" + frame[-2:]).refusal.own_code == PARSE_ERROR
        assert "position 0" in str(refused(b"\xff" + frame).refusal)

    def test_a_long_text_with_one_wide_character_takes_no_multiple_of_itself(self) -> None:
        frame = request(b'{"a":"' + b"x" * 2_000_000 + "😀".encode() + b'"}')
        assert self.peak(lambda: decode(frame)) < len(frame) // 2


class TestRoundTrips:
    @THOROUGHLY
    @given(IDS, JSON)
    def test_frm_16_any_json_value_survives_the_wire(self, identity: int | str, value: Any) -> None:
        """RPC-5 RPC-10 JRPC-06 JRPC-09 JRPC-14: every value comes back equal, and writing it again changes nothing."""
        frame = encode(Success(identity, value))
        assert b"\n" not in frame
        assert frame.decode("utf-8")
        message = read(frame)
        assert isinstance(message, Success)
        assert message.id == identity
        assert type(message.id) is type(identity)
        assert plain(message.result) == value
        assert encode(message) == frame

    @THOROUGHLY
    @given(st.one_of(
        st.builds(Request, IDS, st.text(), OBJECTS),
        st.builds(Notification, st.text(), OBJECTS),
        st.builds(Success, IDS, OBJECTS),
        st.builds(Failure, IDS | st.none(), st.builds(ErrorObject, st.integers(), st.text(), JSON)),
    ))  # fmt: skip
    def test_frm_16_every_kind_survives_the_wire(self, message: Message) -> None:
        """JRPC-06 JRPC-15: a message written and read is the same message."""
        back = read(encode(message))
        assert type(back) is type(message)
        for name in message.__struct_fields__:
            assert plain(getattr(back, name)) == getattr(message, name)
        assert encode(back) == encode(message)

    def test_line_separators_of_unicode_do_not_break_the_line(self) -> None:
        """JRPC-14: one message is one line, however its text is broken."""
        text = "a\nb\r\nc\u2028d\u2029e\x85f\x0b\x0c"
        frame = encode(Notification("m", {"t": text}))
        assert b"\n" not in frame
        assert b"\r" not in frame
        assert plain(read(frame).params) == {"t": text}


class TestWriting:
    def test_what_json_cannot_say_is_an_encode_error(self) -> None:
        """FRM-04: a lone surrogate, an object of no JSON type, a cycle, odd keys: EncodeError, never another."""
        cycle: list[Any] = []
        cycle.append(cycle)
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        for value in ("\ud800", {"a": "\udfff"}, object(), cycle, {(1, 2): 3}, deep, lambda: None, 1j):
            with pytest.raises(EncodeError) as caught:
                encode(Success(1, value))
            assert isinstance(caught.value, FerruleError)
            assert str(caught.value)
        while deep:  # taken apart by hand: freeing a hundred thousand levels at once would overflow the C stack
            deep = deep.pop()

    def test_what_goes_beside_a_message_counts_against_its_limit(self) -> None:
        """SIZE-06: an event's frame, or a line's end, must fit too."""
        message = Success(1, "x")
        size = len(encode(message))
        assert encode_within(message, size) == encode(message)
        assert encode_within(message, size + 5, beside=5) == encode(message)
        with pytest.raises(EncodeError, match=f"{size + 6} bytes long"):
            encode_within(message, size + 5, beside=6)

    def test_large_integers_are_written_exactly(self) -> None:
        assert json.loads(encode(Success(10**30, 2**70))) == {"jsonrpc": "2.0", "id": 10**30, "result": 2**70}

    def test_what_contains_itself_cannot_be_written(self) -> None:
        endless: list[Any] = []
        endless.append(endless)
        with pytest.raises(EncodeError, match="nested too deeply or contains itself"):
            encode(Success(1, endless))
        with pytest.raises(EncodeError, match="unsupported"):
            encode(Success(1, object()))
        with pytest.raises(EncodeError, match="unsupported"):
            encode_within(Success(1, object()), 1000)


class TestDifferential:
    """What we accept, every other decoder reads alike: method, id and name."""

    CORPUS = (
        request(b'{"name":"add","arguments":{"a":1,"b":[true,null,"\\u00e9"]}}', b'"tools/call"', b"17"),
        request(b'{"name":"caf\xc3\xa9","_meta":{"progressToken":"t"}}', b'"tools/call"', b'"id-1"'),
        b'{"id":-5,"params":{"uri":"file:///x","name":"n","name":"m"},"method":"resources/read","jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"name":"\\n\\t\\"q\\""}}',
        b'  {"jsonrpc" : "2.0" ,\t"id":9007199254740993 , "method":"a\\/b","params":{"name":"\\ud83d\\ude00"}}  ',
        b'{"jsonrpc":"2.0","id":1,"id":"one","method":"x","method":"y","params":{"name":"1"},"params":{"name":"2"}}',
    )
    PIECES = (
        b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"\\u0000", b"\\ud800", b"\xff", b"\xc3\xa9", b"NaN", b"1e999",
        b'"id":2,', b'"method":"z",', b'"name":"w",', b"null", b"0", b"-", b" ", b"\n", b"\x00", b'"\\u0069d":3,',
        b"9" * 30,
    )  # fmt: skip

    def mutated(self, seed: int, count: int) -> Iterator[bytes]:
        chance = random.Random(seed)
        for _ in range(count):
            frame = bytearray(chance.choice(self.CORPUS))
            for _ in range(chance.choice((1, 1, 2, 4))):
                place = chance.randrange(len(frame) + 1)
                deed = chance.randrange(4)
                if deed == 0:
                    frame[place:place] = chance.choice(self.PIECES)
                elif deed == 1:
                    del frame[place : place + chance.choice((1, 1, 3, 9))]
                elif deed == 2 and place < len(frame):
                    frame[place] ^= 1 << chance.randrange(8)
                else:
                    other = chance.choice(self.CORPUS)
                    start = chance.randrange(len(other))
                    frame[place : place + 5] = other[start : start + chance.choice((5, 5, 12))]
            yield bytes(frame)

    def test_frm_18_no_accepted_message_is_read_differently_by_another_decoder(self) -> None:
        """FRM-08: neither by the standard library, nor by msgspec without types, nor by pydantic."""
        pydantic_core = pytest.importorskip("pydantic_core")
        accepted = 0
        for frame in self.mutated(seed=20261115, count=1_000_000 if LONG else 50_000):
            try:
                message = decode(frame)
            except Unreadable:
                continue
            if isinstance(message, Request | Notification):
                accepted += 1
                for decoder in (json.loads, msgspec.json.decode, pydantic_core.from_json):
                    self.compare(frame, message, decoder)
        assert accepted > (100_000 if LONG else 5_000)

    @staticmethod
    def compare(frame: bytes, message: Request | Notification, decoder: Callable[[bytes], Any]) -> None:
        try:
            other = decoder(frame)
        except ValueError as reason:
            # A number that no decoder holds, such as 1e999, is passed on unread: nothing was read differently.
            if "out of range" in str(reason):
                return
            raise AssertionError(f"only we read {frame!r}: {reason}") from None
        identity = other.get("id", UNSET)
        ours = getattr(message, "id", UNSET)
        assert (other["method"], type(identity), identity) == (message.method, type(ours), ours), frame
        try:
            name = msgspec.json.decode(message.params, type=CallToolParams).name
        except msgspec.DecodeError:
            return
        assert other["params"]["name"] == name, frame
