"""The id of a frame that cannot be read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from ferrule.wire.codec import Unreadable, decode
from ferrule.wire.messages import HEAD_SIZE
from ferrule.wire.rescue import MAX_BRACKETS, MAX_READ_AGAIN, Rescued, rescue, rescue_from_head

SPOILT = {
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":[-Infinity]}',
    "half a pair": rb'{"a":"\ud83d"}',
    "no UTF-8": b'{"a":"\xff"}',
    "too deep": b'{"a":' * 3000 + b"1" + b"}" * 3000,
}
ORDERS = {
    "id first": b'{"jsonrpc":"2.0","id":%b,"%b":%b}',
    "id last": b'{"%b":%b,"jsonrpc":"2.0","id":%b}',
}


def frame(order: str, identity: bytes, name: bytes, value: bytes) -> bytes:
    parts = (identity, name, value) if order == "id first" else (name, value, identity)
    return ORDERS[order] % parts


@pytest.mark.parametrize("identity", [b"7", b'"7"', b"-1", b"0", b'""', b'"\\u00e9"', b"9007199254740993"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("spoilt", [name for name in SPOILT if name != "too deep"])
def test_the_id_of_a_message_with_an_impossible_value_is_found_wherever_it_stands(
    spoilt: str, order: str, identity: bytes
) -> None:
    """FRM-03, FRM-07, JRPC-09: whoever asked is told, under the very id it gave."""
    with pytest.raises(Unreadable) as caught:
        decode(frame(order, identity, b"result", SPOILT[spoilt]))
    found, wanted = caught.value.id, json.loads(identity)
    assert (found, type(found)) == (wanted, type(wanted))
    assert caught.value.response


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_request_is_told_from_a_response(spoilt: str) -> None:
    with pytest.raises(Unreadable) as caught:
        decode(b'{"jsonrpc":"2.0","id":3,"method":"m","params":%b}' % SPOILT[spoilt])
    assert (caught.value.id, caught.value.response) == (3, False)


@pytest.mark.parametrize("spoilt", ["NaN", "half a pair"])
def test_the_reason_names_what_is_no_json(spoilt: str) -> None:
    with pytest.raises(Unreadable, match="NaN, infinity and half a surrogate pair have no form in JSON"):
        decode(frame("id first", b"1", b"params", SPOILT[spoilt]))


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}',
        b"{'id':1}",
        b'[{"id":1,"a":NaN}]',
        b"NaN",
        b"",
        b"\xff",
    ],
)
def test_frm_01_what_is_no_json_by_any_reading_has_no_id(text: bytes) -> None:
    """FRM-01"""
    assert rescue(text).id is UNSET


def read_from(depth: int, text: bytes) -> Rescued:
    """Rescue an id from so many calls further down the stack."""
    if depth:
        return read_from(depth - 1, text)
    return rescue(text)


@pytest.mark.parametrize("brackets", [MAX_BRACKETS - 100, MAX_BRACKETS + 100, 850, 900, 950, 1000])
def test_frm_01_how_deep_the_stack_is_does_not_decide_on_the_id_of_broken_json(brackets: int) -> None:
    """FRM-01: one reading meets the fault, another the end of the stack."""
    broken = b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * brackets + b"!"
    found = {read_from(depth, broken).id for depth in range(0, 300, 10)}
    assert found == {1 if brackets > MAX_BRACKETS else UNSET}


def test_frm_01_broken_json_with_few_brackets_has_no_id() -> None:
    """FRM-01: the brackets of the message and of its params are two of them."""
    start = b'{"id":1,"params":['
    assert rescue(start + b"{}," * (MAX_BRACKETS - 2) + b"!").id is UNSET
    assert rescue(start + b"{}," * (MAX_BRACKETS - 1) + b"!").id == 1


@pytest.mark.parametrize("identity", [b"null", b"true", b"1.0", b"NaN", b"{}", b"[1]", rb'"\ud800"', b'"\xff"'])
def test_what_is_no_id_is_not_taken_for_one(identity: bytes) -> None:
    """FRM-09"""
    assert rescue(b'{"id":%b,"a":NaN}' % identity).id is UNSET


class TestHead:
    LONG = b'{"content":[{"type":"text","text":"' + b"x" * MAX_READ_AGAIN

    @pytest.mark.parametrize(
        ("head", "found"),
        [
            (b'{"jsonrpc":"2.0","id":5,"result":', Rescued(5, response=True)),
            (b' { "id" : "a" , "jsonrpc" : "2.0" , "error" : ', Rescued("a", response=True)),
            (b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":', Rescued(5)),
            (b'{"jsonrpc":"2.0","method":"tools/call","id":5,"params":', Rescued(5)),
            (b'{"result":', Rescued(response=True)),
            (b'{"params":', Rescued()),
            (b"[", Rescued()),
            (b"", Rescued()),
        ],
    )
    def test_members_ahead_of_the_long_one_are_seen(self, head: bytes, found: Rescued) -> None:
        """SIZE-06: a message over the limit is answered under its id."""
        assert rescue_from_head(head + self.LONG) == found
        assert rescue(head + self.LONG) == found

    def test_an_id_is_looked_for_in_the_first_kibibyte(self) -> None:
        member = b'"id":7,'
        room = 1024 - len(b"{" + member)
        for spaces, identity in ((room, 7), (room + 1, UNSET)):
            frame = b"{" + b" " * spaces + member + b'"params":{"a":"' + b"x" * 20_000
            assert rescue_from_head(frame).id == identity

    def test_an_id_inside_another_member_is_not_the_id(self) -> None:
        assert rescue_from_head(b'{"params":{"id":5},"x":').id is UNSET

    @pytest.mark.parametrize("identity", [b"1.5", b"1e5", b"-1.0", b"01", b"1x", b'"a"b', b"1{", b"true", b"[1]"])
    def test_frm_09_the_beginning_of_what_is_no_id_is_not_taken_for_one(self, identity: bytes) -> None:
        """FRM-09: another request may have that id."""
        assert rescue_from_head(b'{"jsonrpc":"2.0","id":%b,"result":' % identity + self.LONG).id is UNSET

    @pytest.mark.parametrize(
        "head",
        [b'{"a":1{"id":5,"b":', b',"id":5,"b":', b'{"a":1,{"id":5,"b":', b'{"a":,"id":5,"b":', b'{"a\n":1,"id":5,"b":'],
    )
    def test_an_id_that_is_no_member_of_the_outermost_object_is_not_the_id(self, head: bytes) -> None:
        assert rescue_from_head(head + self.LONG).id is UNSET

    @pytest.mark.parametrize("identity", [b"1" * HEAD_SIZE, b'"' + b"a" * HEAD_SIZE + b'"'])
    def test_an_id_that_goes_on_beyond_the_head_is_not_cut(self, identity: bytes) -> None:
        assert rescue_from_head(b'{"id":' + identity).id is UNSET
        assert rescue_from_head(b'{"id":12').id is UNSET

    @given(st.binary(max_size=2000))
    def test_any_bytes_are_looked_at_without_harm(self, noise: bytes) -> None:
        """FRM-16"""
        for text in (noise, b'{"id":' + noise, b'{"jsonrpc":"2.0",' + noise):
            assert isinstance(rescue(text), Rescued)
            assert isinstance(rescue_from_head(text), Rescued)
