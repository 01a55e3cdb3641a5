"""A result of another server is handed on in the form of the caller's revision, and read no further than that takes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from ferrule.errors import CapabilityNotSupported, Internal, InvalidParams
from ferrule.protocol.call import Call, Peer
from ferrule.protocol.era import Eras
from ferrule.protocol.foreign import Foreign
from ferrule.protocol.handshake import REVISIONS, Handshake
from ferrule.protocol.needs import Answers
from ferrule.protocol.seal import Keyring, Seal
from ferrule.protocol.session import Session
from ferrule.protocol.stateless import CacheHints, Sealing, Stateless
from ferrule.schema.methods import METHODS
from ferrule.schema.model import ClientCapabilities, Implementation
from ferrule.wire.channel import Origin
from ferrule.wire.messages import Request

OLDEST, NEWEST, STATELESS = "2024-11-05", "2025-11-25", "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
OURS = {PREFIX + "serverInfo": {"name": "gateway", "version": "9"}}
THEIRS = {PREFIX + "serverInfo": {"name": "behind", "version": "1"}}
TEXT = {"content": [{"type": "text", "text": "5"}]}
ASKS = {"elicitation": {"form": {}}}
FORM = {"method": "elicitation/create", "params": {"message": "?", "mode": "form", "requestedSchema": {}}}
ROUND = {"resultType": "input_required", "inputRequests": {"seat": FORM}, "requestState": "theirs"}

ERA = Stateless(
    Sealing(Seal(Keyring(["k" * 32])), lambda: 1000.0, lambda: bytes(12), 600.0),
    implementation=Implementation(name="gateway", version="9"),
    hints=CacheHints(0, "private"),
)


def call_from(
    version: str, method: str = "tools/call", *, declared: Any = None, principal: str = "ada", **params: Any
) -> Call:
    """A call of a client that speaks this revision."""
    if version in REVISIONS:
        peer = Peer(REVISIONS[version], msgspec.convert(declared or {}, ClientCapabilities))
        return Call(1, METHODS[method], None, Raw(b"{}"), None, Handshake(), peer, None, Origin("test"), None)
    subject = {"uri": "a:b"} if method == "resources/read" else {"name": "add"}
    meta = {PREFIX + "protocolVersion": version, PREFIX + "clientCapabilities": declared or {}}
    session = Session(Eras(Handshake(), ERA), METHODS, Origin("test", principal=principal), None)
    raw = Raw(msgspec.json.encode({**subject, **params, "_meta": meta}))
    call = session.receive(Request(1, method, raw), None)
    assert isinstance(call, Call)
    return call


def handed_on(call: Call, result: Any, version: str) -> Any:
    """What the caller reads of a result that another server wrote in some revision."""
    if not isinstance(result, bytes):
        result = msgspec.json.encode(result)
    return msgspec.json.decode(msgspec.json.encode(call.era.shape_result(call, Foreign(Raw(result), version))))


@pytest.mark.parametrize("written", [b'{"content":[],"x":1}', b' { "content":[],"x":1 } ', b'{"x":1,"content":[]}'])
def test_a_stateless_caller_is_told_that_it_is_complete_and_who_answered(written: bytes) -> None:
    answer = handed_on(call_from(STATELESS), written, NEWEST)
    assert answer == {"resultType": "complete", "_meta": OURS, "content": [], "x": 1}


def test_an_empty_result_is_completed_as_well() -> None:
    assert handed_on(call_from(STATELESS), b"{ }", NEWEST) == {"resultType": "complete", "_meta": OURS}


def test_a_member_that_is_there_already_is_not_written_twice_however_it_is_spelled() -> None:
    for written in (
        rb'{"content":[],"\u005fmeta":{"a":1},"\u0072esultType":"complete"}',
        b'{"content":[],"_meta":{"a":1}}',
    ):
        sealed = msgspec.json.encode(ERA.shape_result(call_from(STATELESS), Foreign(Raw(written), NEWEST)))
        assert sealed.count(b"resultType") == sealed.count(b'"_meta"') == 1
        assert msgspec.json.decode(sealed)["_meta"] == {"a": 1, **OURS}


def test_what_speaks_of_the_other_connection_stays_there() -> None:
    meta = {**THEIRS, PREFIX + "subscriptionId": "7", "vendor/kept": [1]}
    result = {**TEXT, "resultType": "complete", "_meta": meta}
    assert handed_on(call_from(STATELESS), result, STATELESS)["_meta"] == {"vendor/kept": [1], **OURS}
    assert handed_on(call_from(NEWEST), result, STATELESS)["_meta"] == {"vendor/kept": [1]}


def test_a_result_that_may_be_kept_says_for_how_long() -> None:
    call = call_from(STATELESS, "resources/read")
    answer = handed_on(call, {"contents": []}, NEWEST)
    assert (answer["ttlMs"], answer["cacheScope"]) == (0, "private")
    theirs = handed_on(call, {"contents": [], "resultType": "complete", "ttlMs": 9, "cacheScope": "public"}, STATELESS)
    assert (theirs["ttlMs"], theirs["cacheScope"]) == (9, "public")


def test_a_caller_of_the_same_revision_gets_the_very_bytes() -> None:
    for version in (OLDEST, NEWEST):
        written = Raw(b'{ "content" : [], "unknown": {"a": 1} }')
        assert call_from(version).era.shape_result(call_from(version), Foreign(written, version)) is written


def test_a_call_knows_that_its_answer_is_handed_on() -> None:
    for version in (OLDEST, STATELESS):
        call = call_from(version)
        assert not call.relayed
        handed_on(call, TEXT, NEWEST)
        assert call.relayed


def test_what_is_older_than_the_newest_handshake_is_read_there_unchanged() -> None:
    written = Raw(b'{"content":[],"unknown":1}')
    assert call_from(NEWEST).era.shape_result(call_from(NEWEST), Foreign(written, OLDEST)) is written


def test_a_handshake_caller_sees_nothing_of_the_stateless_era() -> None:
    result = {**TEXT, "resultType": "complete", "_meta": THEIRS, "unknown": 1}
    assert handed_on(call_from(NEWEST), result, STATELESS) == {**TEXT, "unknown": 1}
    read = {"contents": [], "resultType": "complete", "ttlMs": 9, "cacheScope": "public"}
    assert handed_on(call_from(NEWEST, "resources/read"), read, STATELESS) == {"contents": []}


def test_structured_content_is_an_object_for_a_handshake_caller() -> None:
    answer = handed_on(call_from(NEWEST), {**TEXT, "resultType": "complete", "structuredContent": [1]}, STATELESS)
    assert answer["structuredContent"] == {"result": [1]}
    assert answer["_meta"] == {"fastmcp": {"wrap_result": True}}
    same = handed_on(call_from(NEWEST), {**TEXT, "resultType": "complete", "structuredContent": {"a": 1}}, STATELESS)
    assert same == {**TEXT, "structuredContent": {"a": 1}}


@pytest.mark.parametrize("version", [NEWEST, STATELESS])
def test_an_older_caller_gets_only_what_its_revision_has(version: str) -> None:
    link = {"type": "resource_link", "uri": "a:b", "name": "b"}
    answer = handed_on(call_from(OLDEST), {"content": [link], "structuredContent": {"a": 1}}, version)
    assert answer == {"content": [{"type": "text", "text": "b: a:b"}]}


def test_lists_are_cut_to_what_each_era_has() -> None:
    tool = {"name": "t", "inputSchema": {"type": "object"}}
    listed = handed_on(call_from(STATELESS, "tools/list"), {"tools": [{**tool, "execution": {}}]}, NEWEST)
    assert listed["tools"] == [tool]
    assert (listed["resultType"], listed["ttlMs"]) == ("complete", 0)
    answer = {"tools": [{**tool, "outputSchema": {"type": "array"}}], "resultType": "complete", "ttlMs": 1}
    listed = handed_on(call_from(NEWEST, "tools/list"), answer, STATELESS)
    assert listed["tools"][0]["outputSchema"]["type"] == "object"
    assert "ttlMs" not in listed


class TestRounds:
    """What the server behind asks in its result is asked of our caller, with its state inside ours."""

    def test_the_state_comes_back_to_whom_it_was_given_and_to_nobody_else(self) -> None:
        first = handed_on(call_from(STATELESS, declared=ASKS), ROUND, STATELESS)
        assert first["resultType"] == "input_required"
        assert first["inputRequests"] == {"seat": FORM}
        assert "theirs" not in first["requestState"]
        answer = {"action": "accept", "content": {}}
        retry = {"requestState": first["requestState"], "inputResponses": {"seat": answer}}
        again = call_from(STATELESS, declared=ASKS, **retry)
        answers = again.era.recall(again)
        assert isinstance(answers, Answers)
        assert answers.journal.relayed == "theirs"
        assert msgspec.json.decode(answers.responses["seat"]) == answer
        with pytest.raises(InvalidParams):
            ERA.recall(call_from(STATELESS, declared=ASKS, principal="eve", **retry))
        with pytest.raises(InvalidParams):
            ERA.recall(call_from(STATELESS, declared=ASKS, arguments={"other": 1}, **retry))

    def test_a_caller_is_not_asked_what_it_cannot_answer(self) -> None:
        with pytest.raises(CapabilityNotSupported):
            handed_on(call_from(STATELESS), ROUND, STATELESS)

    def test_a_round_is_not_handed_to_a_caller_of_the_handshake_era(self) -> None:
        with pytest.raises(Internal, match="asks for input"):
            handed_on(call_from(NEWEST, declared=ASKS), ROUND, STATELESS)

    def test_a_state_that_fits_into_no_other_is_refused_by_name(self) -> None:
        with pytest.raises(Internal, match="server behind this one"):
            handed_on(call_from(STATELESS, declared=ASKS), {**ROUND, "requestState": "x" * 70_000}, STATELESS)


@pytest.mark.parametrize("version", [OLDEST, NEWEST, STATELESS])
@pytest.mark.parametrize(
    "written",
    [b"[]", b'"text"', b"7", b'{"resultType":7}', b'{"resultType":"complete","_meta":[]}', b'{"resultType":"complete"'],
)
def test_a_result_that_is_none_is_an_error_of_the_server_behind(version: str, written: bytes) -> None:
    with pytest.raises(Internal, match="server behind this one"):
        handed_on(call_from(version), written, "2025-06-18" if version == STATELESS else STATELESS)


@pytest.mark.parametrize(
    "wrong",
    [{**ROUND, "inputRequests": [1]}, {**ROUND, "requestState": 7}, {**ROUND, "inputRequests": {"a": {"method": 1}}}],
)
def test_a_round_that_cannot_be_read_is_an_error_of_the_server_behind(wrong: Any) -> None:
    with pytest.raises(Internal, match="cannot be read"):
        handed_on(call_from(STATELESS, declared=ASKS), wrong, STATELESS)
