"""The book-keeping of a conversation, called as what it is: plain functions without loop, clock or carrier."""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from msgspec import UNSET, Raw

from ferrule.errors import (
    MAX_QUOTE,
    Busy,
    FerruleError,
    InvalidParams,
    InvalidRequest,
    MessageTooLarge,
    MethodNotFound,
    NotInitialized,
    Refusal,
    ResourceNotFound,
)
from ferrule.protocol.call import Call, Cancel, Ignored, Note, Peer, Reply, Withdrawn
from ferrule.protocol.era import Eras
from ferrule.protocol.handshake import REVISIONS, Handshake
from ferrule.protocol.seal import Keyring, Seal
from ferrule.protocol.session import MAX_ID, MOST_OUTLASTING, NEXT_PHASES, NOBODY, IllegalTransition, Phase, Session
from ferrule.protocol.stateless import Sealing, Stateless
from ferrule.schema.lifecycle import InitializeParams, ServerCapabilities
from ferrule.schema.methods import METHODS
from ferrule.schema.model import ClientCapabilities, Implementation
from ferrule.schema.notices import OLD_NAMES
from ferrule.wire.channel import ChannelDefaults, Origin
from ferrule.wire.messages import ErrorObject, Failure, Notification, Request, Success

LONG = os.environ.get("FERRULE_LONG") == "1"
R1, R2, R3, R4, R5 = "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"
MODERN = {
    "io.modelcontextprotocol/protocolVersion": R5,
    "io.modelcontextprotocol/clientCapabilities": {},
}
SEALING = Sealing(Seal(Keyring(["k" * 32])), lambda: 0.0, lambda: bytes(12), 600.0)
SERVED = {name: row for name, row in METHODS.items() if not row.by_client}
ASKED_BACK = {name: row for name, row in METHODS.items() if row.by_client or name == "ping"}


class LocalChannel(ChannelDefaults):
    """A channel and a link to nobody: the rules only hand them on."""

    def send(self, message: Any) -> None:
        raise AssertionError("the rules send nothing themselves")


HERE = LocalChannel()


def new_session(methods: Any = SERVED, *, header: str = "", erlmcp: bool = False) -> Session:
    eras = Eras(Handshake(erlmcp_codes=erlmcp), Stateless(SEALING, beside=tuple(REVISIONS)))
    return Session(eras, methods, Origin("test", version=header), HERE)


def greeted(version: str = R4, methods: Any = SERVED, **options: Any) -> Session:
    """A server's session after the handshake."""
    session = new_session(methods, **options)
    offer = InitializeParams(
        protocol_version=version, capabilities=ClientCapabilities(), client_info=Implementation(name="c", version="1")
    )
    session.eras.handshake.open(session, offer, {})
    return session


def client_session(version: str = R4) -> Session:
    """A client's session after the handshake."""
    session = new_session(ASKED_BACK)
    session.enter(Phase.INITIALIZING)
    session.agree(Peer(REVISIONS[version], ServerCapabilities()))
    return session


def ask(identity: int | str, method: str, params: Any = None, *, modern: bool = False) -> Request:
    params = dict(params or {})
    if modern:
        params["_meta"] = {**MODERN, **params.get("_meta", {})}
    return Request(identity, method, Raw(msgspec.json.encode(params)))


def note(method: str, **params: Any) -> Notification:
    return Notification(method, Raw(msgspec.json.encode(params)))


def cancelled(identity: Any, reason: str | None = None) -> Notification:
    extra = {} if reason is None else {"reason": reason}
    return note("notifications/cancelled", requestId=identity, **extra)


def began(session: Session, request: Request) -> Call:
    event = session.receive(request, HERE)
    assert isinstance(event, Call)
    return event


def refusal_of(session: Session, request: Request) -> Refusal:
    before = dict(session.running)
    with pytest.raises(Refusal) as caught:
        session.receive(request, HERE)
    assert session.running == before, "a refused request must leave nothing behind"
    return caught.value


WAYS = {
    Phase.PRE_INITIALIZATION: "initializing initialized error closed",
    Phase.INITIALIZING: "initialized error closed",
    Phase.INITIALIZED: "error closed",
    Phase.ERROR: "pre_initialization closed",
    Phase.CLOSED: "",
}


class TestPhases:
    @pytest.mark.parametrize(("old", "new"), [*itertools.product(Phase, Phase)])
    def test_a_session_goes_on_only_along_the_allowed_ways(self, old: Phase, new: Phase) -> None:
        """SESS-02 SESS-05 SESS-10 SESS-14 SESS-32: all twenty-five pairs of phases."""
        session = new_session()
        session.phase = old
        if new == old or new in WAYS[old].split():
            session.enter(new)
            assert session.phase is new
        else:
            with pytest.raises(IllegalTransition, match=f"{old} to {new}"):
                session.enter(new)
            assert session.phase is old

    def test_the_table_of_ways_covers_every_phase(self) -> None:
        assert NEXT_PHASES.keys() == set(Phase)
        assert {phase: " ".join(sorted(ways)) for phase, ways in NEXT_PHASES.items()} == {
            phase: " ".join(sorted(ways.split())) for phase, ways in WAYS.items()
        }

    STATES = (
        ("pre_initialization", "connecting"),
        ("initializing", "connected"),
        ("initialized", "ready"),
        ("error", "disconnected"),
        ("closed", "disconnected"),
    )

    @pytest.mark.parametrize(("phase", "state"), STATES)
    def test_each_phase_has_its_connection_state(self, phase: str, state: str) -> None:
        """SESS-03 SESS-04: the phase and the state that follows from it can be read on either side."""
        session = new_session()
        session.phase = Phase(phase)
        assert session.connection_state == state
        assert session.phase == phase

    def test_a_server_is_initialized_by_its_own_answer(self) -> None:
        """SESS-03 CAPN-04: the phase, the version and what the client declared are all known then."""
        session = greeted(R3)
        assert session.phase is Phase.INITIALIZED
        assert session.peer is not None
        assert session.peer.version == R3
        assert session.peer.capabilities == ClientCapabilities()
        assert session.peer.implementation == Implementation(name="c", version="1")
        assert not session.peer_ready

    @pytest.mark.parametrize("phase", [Phase.CLOSED, Phase.ERROR])
    def test_after_the_end_nothing_is_admitted(self, phase: Phase) -> None:
        """SESS-14 SESS-15 SESS-10: error and closed allow no method, not even ping."""
        session = greeted()
        session.close(phase)
        assert session.phase is phase
        for place, method in enumerate(SERVED):
            assert isinstance(refusal_of(session, ask(place, method)), Refusal)
        assert isinstance(refusal_of(session, ask("m", "tools/list", modern=True)), MethodNotFound)

    def test_closed_stays_closed(self) -> None:
        """SESS-14: nothing leads out of closed."""
        session = greeted()
        session.close()
        session.close(Phase.ERROR)
        assert session.phase is Phase.CLOSED


GOOD_PARAMS: dict[str, dict[str, Any]] = {
    "initialize": {"protocolVersion": R4, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    "tools/call": {"name": "t"},
    "resources/read": {"uri": "a://b"},
    "resources/subscribe": {"uri": "a://b"},
    "resources/unsubscribe": {"uri": "a://b"},
    "prompts/get": {"name": "p"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}},
    "logging/setLevel": {"level": "info"},
    "subscriptions/listen": {"notifications": {}},
    "tasks/get": {"taskId": "t"},
    "tasks/result": {"taskId": "t"},
    "tasks/update": {"taskId": "t", "inputResponses": {}},
    "tasks/cancel": {"taskId": "t"},
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
    "elicitation/create": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
}

ALL, OLD = {R1, R2, R3, R4, R5}, {R1, R2, R3, R4}
EXISTS: dict[str, set[str]] = {
    "initialize": set(),
    "server/discover": {R5},
    "ping": OLD,
    "tools/list": ALL,
    "tools/call": ALL,
    "resources/list": ALL,
    "resources/templates/list": ALL,
    "resources/read": ALL,
    "resources/subscribe": OLD,
    "resources/unsubscribe": OLD,
    "prompts/list": ALL,
    "prompts/get": ALL,
    "completion/complete": ALL,
    "logging/setLevel": OLD,
    "subscriptions/listen": {R5},
    "roots/list": OLD,
    "sampling/createMessage": OLD,
    "elicitation/create": {R3, R4},
    "tasks/get": {R4, R5},
    "tasks/result": {R4},
    "tasks/list": {R4},
    "tasks/update": {R5},
    "tasks/cancel": {R4, R5},
    "nope/x": set(),
}
"""In which revisions a running session has a method; `initialize` only comes before one."""


class TestAdmission:
    def test_the_table_names_every_method(self) -> None:
        assert set(METHODS) | {"nope/x"} == set(EXISTS)

    @pytest.mark.parametrize("version", sorted(OLD))
    @pytest.mark.parametrize("method", EXISTS)
    def test_after_the_handshake_each_method_exists_in_its_revisions(self, method: str, version: str) -> None:
        """SESS-15 RPC-20 JRPC-23 ERRC-03 LIFE-7 LIFE-13 SESS-17: others are -32601, a second initialize -32600."""
        by_client = method in METHODS and METHODS[method].by_client
        session = client_session(version) if by_client else greeted(version)
        request = ask(1, method, GOOD_PARAMS.get(method))
        if version in EXISTS[method]:
            call = began(session, request)
            assert (call.method, call.peer.version, call.era) == (method, version, session.eras.handshake)
        elif method == "initialize":
            why = refusal_of(session, request)
            assert (why.own_code, session.phase) == (-32600, Phase.INITIALIZED)
            began(session, ask(2, "ping"))
        else:
            why = refusal_of(session, request)
            assert isinstance(why, MethodNotFound)
            assert (why.own_code, why.data) == (-32601, {"method": method})

    @pytest.mark.parametrize("method", [name for name in EXISTS if name not in ASKED_BACK or name == "ping"])
    def test_before_the_handshake_only_initialize_and_ping_are_heard(self, method: str) -> None:
        """SESS-15 SESS-16 SESS-01 LIFE-6 ERRC-12 PING-1 PING-04 FRM-12: anything else is -32600 and never runs."""
        session = new_session()
        request = ask(1, method, GOOD_PARAMS.get(method))
        if method in ("initialize", "ping"):
            assert began(session, request).method == method
        else:
            why = refusal_of(session, request)
            assert isinstance(why, NotInitialized)
            assert "initialize" in why.message
            assert session.refuse(1, why).error.code == -32600

    @pytest.mark.parametrize("revision", [None, R1, R4], ids=["fresh", "R1 link", "R4 link"])
    @pytest.mark.parametrize("method", [name for name in EXISTS if name not in ASKED_BACK or name == "ping"])
    def test_a_request_that_names_its_version_needs_no_handshake(self, method: str, revision: str | None) -> None:
        """COMPAT-1 VER-6 VER-10 STL-5 STL-8 PING-3 RPC-19 DISC-4: its era is its own, whatever the link agreed on."""
        session = greeted(revision) if revision else new_session()
        request = ask(1, method, GOOD_PARAMS.get(method), modern=True)
        if R5 in EXISTS[method]:
            call = began(session, request)
            assert (call.era, call.peer.version) == (session.eras.stateless, R5)
        else:
            why = refusal_of(session, request)
            assert (why.own_code, why.data) == (-32601, {"method": method})

    def test_whoever_made_the_handshake_is_admitted_without_asking_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a peer of its revision may ask is known; asking for each request would cost time."""
        session = greeted()
        monkeypatch.setattr(Handshake, "admit", None)
        call = began(session, ask(1, "tools/list"))
        assert (call.peer, call.era) == (session.peer, session.handshake)

    def test_before_the_handshake_a_peer_is_taken_for_one_of_the_oldest_revision(self) -> None:
        call = began(new_session(), ask(1, "ping"))
        assert call.peer.version == R1
        assert call.peer.capabilities == ClientCapabilities()

    def test_a_header_alone_makes_a_request_stateless(self) -> None:
        """COMPAT-1 STL-4: then its `_meta` is missing, which is -32602."""
        for session in (new_session(header=R5), greeted(header=R5)):
            why = refusal_of(session, ask(1, "tools/list"))
            assert why.own_code == -32602
            assert "protocolVersion" in why.message
        session = greeted(header=R4)
        call = began(session, ask(1, "tools/list"))
        assert call.era is session.handshake
        assert call.peer is session.peer

    MALFORMED = (
        ("tools/call", {}, "name"),
        ("tools/call", {"name": 7}, "name"),
        ("tools/call", {"name": None}, "name"),
        ("resources/read", {}, "uri"),
        ("resources/read", {"uri": ["x"]}, "uri"),
        ("prompts/get", {"name": "p", "arguments": {"a": 1}}, "arguments"),
        ("tools/list", {"cursor": 5}, "cursor"),
        ("logging/setLevel", {"level": "loud"}, "level"),
        ("completion/complete", {"ref": {"type": "x"}, "argument": {"name": "a", "value": "v"}}, "ref"),
        ("tools/list", {"_meta": 3}, "_meta"),
        ("tools/list", {"_meta": {"progressToken": 1.5}}, "progressToken"),
        ("tools/list", {"_meta": {"progressToken": True}}, "progressToken"),
    )

    @pytest.mark.parametrize(("method", "params", "culprit"), MALFORMED)
    def test_params_of_the_wrong_shape_are_refused_before_anything_runs(
        self, method: str, params: Any, culprit: str
    ) -> None:
        """JRPC-20 ERRC-04 ERRC-21 LOG-4 PROG-1: -32602, and data says what is wrong."""
        why = refusal_of(greeted(), ask(1, method, params))
        assert isinstance(why, InvalidParams)
        assert why.own_code == -32602
        assert culprit in why.data["details"]

    WRONG_KINDS = (b"3", b'"x"', b"null", b"true", b"1.5", b"[]", b'[{"name":"t"}]')

    @pytest.mark.parametrize("params", WRONG_KINDS)
    @pytest.mark.parametrize("method", ["tools/call", "ping", "nope/x"])
    def test_params_that_are_no_object_are_refused(self, method: str, params: bytes) -> None:
        """JRPC-08 RPC-2 FRM-11: a list is -32602, any other kind is no request at all, -32600."""
        why = refusal_of(greeted(), Request(1, method, Raw(params)))
        assert why.own_code == (-32602 if params.startswith(b"[") else -32600)

    @pytest.mark.parametrize("missing", ["protocolVersion", "capabilities", "clientInfo"])
    def test_initialize_needs_its_three_members(self, missing: str) -> None:
        """SESS-22 SESS-24 LIFE-1: -32602, and the session is still before its handshake."""
        session = new_session()
        params = {name: value for name, value in GOOD_PARAMS["initialize"].items() if name != missing}
        why = refusal_of(session, ask(1, "initialize", params))
        assert (why.own_code, session.phase) == (-32602, Phase.PRE_INITIALIZATION)
        assert missing in why.data["details"]

    @pytest.mark.parametrize("member", ["name", "version"])
    def test_a_client_has_a_name_and_a_version(self, member: str) -> None:
        """SESS-22: each is required of clientInfo."""
        info = {name: "x" for name in ("name", "version") if name != member}
        params = {**GOOD_PARAMS["initialize"], "clientInfo": info}
        assert refusal_of(new_session(), ask(1, "initialize", params)).own_code == -32602

    BROKEN_CAPABILITIES = (3, "x", [], None, {"roots": True}, {"roots": {"listChanged": "yes"}}, {"sampling": []})

    @pytest.mark.parametrize("capabilities", BROKEN_CAPABILITIES)
    def test_the_structure_of_capabilities_is_checked(self, capabilities: Any) -> None:
        """SESS-24 CAPN-11: they are typed, and a malformed declaration is refused."""
        params = {**GOOD_PARAMS["initialize"], "capabilities": capabilities}
        assert refusal_of(new_session(), ask(1, "initialize", params)).own_code == -32602

    def test_unknown_members_are_no_error_anywhere(self) -> None:
        """RPC-15 CAPN-01 META-5: params, `_meta`, capabilities and clientInfo are open."""
        params = {
            **GOOD_PARAMS["initialize"],
            "capabilities": {"tools": {}, "holograms": {"deep": [1]}, "roots": {"x": 1}},
            "clientInfo": {"name": "c", "version": "1", "mood": "good"},
            "later": 1,
            "_meta": {"com.example/x": {"y": 1}, "io.modelcontextprotocol/related-task": 7, "traceparent": []},
        }
        assert began(new_session(), ask(1, "initialize", params)).params.client_info.name == "c"
        assert began(greeted(), ask(1, "tools/list", {"unknown": {"a": 1}, "_meta": {"x": [{}]}}))

    RETRIES = (
        ({}, False),
        ({"requestState": "s"}, True),
        ({"inputResponses": {}}, True),
        ({"requestState": "s", "inputResponses": {"k": 1}}, True),
    )

    @pytest.mark.parametrize(("params", "retry"), RETRIES)
    @pytest.mark.parametrize("method", ["tools/call", "prompts/get", "tools/list"])
    def test_a_request_that_brings_answers_or_state_is_a_retry(self, method: str, params: Any, retry: bool) -> None:
        """Of the methods that may ask; any other has no such members."""
        call = began(new_session(), ask(1, method, {"name": "t", **params}, modern=True))
        assert call.retry is (retry and method != "tools/list")

    def test_the_first_fault_is_the_one_told(self) -> None:
        """The phase comes before the method, and the method before the arguments."""
        assert isinstance(refusal_of(new_session(), ask(1, "tools/call", {})), NotInitialized)
        assert isinstance(refusal_of(new_session(), ask(1, "nope/x")), NotInitialized)
        assert isinstance(refusal_of(greeted(), ask(1, "server/discover", {"cursor": 1})), MethodNotFound)
        assert isinstance(refusal_of(greeted(), ask(1, "tools/call", {})), InvalidParams)

    def test_a_capability_that_is_off_is_told_before_bad_arguments(self) -> None:
        """CAPN-09: -32601 names it; good arguments are judged by whoever offers the feature."""
        session = greeted()
        session.offers = {"": True, "tools": True}.__contains__
        assert isinstance(refusal_of(session, ask(1, "tools/call", {})), InvalidParams)
        for method, capability in (("resources/read", "resources"), ("resources/subscribe", "resources")):
            why = refusal_of(session, ask(1, method, {"uri": 7}))
            assert (why.own_code, why.data) == (-32601, {"capability": capability})
        assert isinstance(refusal_of(new_session(), ask(1, "resources/read", {})), NotInitialized)

    def test_an_error_repeats_little_of_a_huge_method(self) -> None:
        """FRM-11 RPC-7: the message stays one short sentence."""
        why = refusal_of(greeted(), ask(1, "m" * 1024 * 1024))
        assert why.own_code == -32601
        assert len(why.message) < 600
        assert len(why.data["method"]) < 600

    def test_what_a_sender_says_at_length_is_not_remembered(self) -> None:
        """Who sent the last request is known from its words, as long as these are few."""
        session = new_session()
        few = began(session, ask(1, "tools/list", {}, modern=True))
        assert session.met.meta is few.meta
        much = {**MODERN, "io.modelcontextprotocol/clientCapabilities": {"experimental": {"a": [[]] * 1000}}}
        call = began(session, ask(2, "tools/list", {"_meta": much}))
        assert call.peer.capabilities.experimental is not None
        assert session.met.meta is few.meta
        assert session.met.peer is few.peer

    def test_senders_that_alternate_are_each_known_by_their_own_words(self) -> None:
        session = new_session()
        for number in range(6):
            name = f"client {number % 2}"
            info = {"io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}
            for again in range(2):
                call = began(session, ask(10 * number + again, "tools/list", {"_meta": info}, modern=True))
                assert call.era is session.stateless
                assert call.peer.implementation == Implementation(name=name, version="1")

    def test_words_without_a_version_name_nobody(self) -> None:
        """Whoever says no version belongs to the handshake era, however often it says the same."""
        session = new_session()
        for number in range(3):
            call = began(session, ask(number, "ping", {"_meta": {"progressToken": 1}}))
            assert call.era is session.handshake
            assert session.met is NOBODY

    def test_a_call_after_a_handshake_is_no_retry_whatever_it_says(self) -> None:
        """Its caller is asked while the call waits; only the stateless era calls again with answers."""
        state = {"name": "add", "requestState": "s"}
        for extra in ({}, {"_meta": {"progressToken": 1}}):
            assert not began(greeted(), ask(1, "tools/call", {**state, **extra})).retry
        assert began(new_session(), ask(1, "tools/call", state, modern=True)).retry

    @pytest.mark.parametrize("modern", [False, True], ids=["handshake", "stateless"])
    def test_metadata_over_its_bound_is_refused_in_few_words(self, modern: bool) -> None:
        session = new_session() if modern else greeted()
        for extra in ({"x": "y" * 70_000}, {"progressToken": "y" * 5000}):
            meta = {**(MODERN if modern else {}), **extra}
            refusal = refusal_of(session, ask(1, "tools/list", {"_meta": meta}))
            assert isinstance(refusal, InvalidParams)
            assert len(refusal.message) < 200

    def test_a_request_keeps_its_params_raw_beside_the_read_ones(self) -> None:
        """META-1: what the protocol does not read is still there for who does."""
        request = ask(1, "tools/call", {"name": "t", "arguments": {"a": 1}, "_meta": {"x/y": 1, "progressToken": 0}})
        call = began(greeted(), request)
        assert msgspec.json.decode(call.raw)["_meta"]["x/y"] == 1
        assert call.meta is not None
        assert call.meta.progress_token == 0
        assert bytes(call.params.arguments) == b'{"a":1}'


class TestAnswering:
    def test_a_call_is_answered_once_under_its_id(self) -> None:
        """always:RPC-5 RPC-6 JRPC-22 JRPC-09: exactly one reply, with the id as it came."""
        session = greeted()
        for identity in (1, "1", "", 0, -7, 2**60, "é"):
            call = began(session, ask(identity, "tools/call", {"name": "t"}))
            reply = session.finish(call, {"content": []})
            assert reply == Success(identity, {"content": []})
            assert type(reply.id) is type(identity)
            assert session.finish(call, {"content": []}) is None
        assert not session.running

    def test_one_and_one_as_text_are_two_requests(self) -> None:
        """RPC-5: both run side by side and each gets its own answer."""
        session = greeted()
        number, text = began(session, ask(1, "tools/list")), began(session, ask("1", "tools/list"))
        assert session.running == {1: number, "1": text}
        assert session.finish(text, {}) == Success("1", {})
        assert session.running == {1: number}

    def test_an_id_in_use_is_refused_and_free_again_after_its_answer(self) -> None:
        """RPC-4: two running requests never share an id; after the answer it may come back."""
        session = greeted()
        first = began(session, ask(1, "tools/list"))
        assert isinstance(refusal_of(session, ask(1, "ping")), InvalidRequest)
        assert session.finish(first, {}) == Success(1, {})
        assert began(session, ask(1, "ping")) is not first

    def test_the_end_of_an_older_call_does_not_end_a_newer_one_with_its_id(self) -> None:
        session = greeted()
        old = began(session, ask(1, "tools/list"))
        assert isinstance(session.receive(cancelled(1), HERE), Cancel)
        new = began(session, ask(1, "tools/list"))
        assert session.finish(old, {}) is None
        assert session.running == {1: new}
        assert session.finish(new, {}) == Success(1, {})

    def test_a_refusal_has_code_message_and_data(self) -> None:
        """RPC-7 JRPC-18 ERRC-27 RES-4: integer code, one sentence, data only where there is some."""
        session = greeted()
        call = began(session, ask(1, "resources/read", {"uri": "a://b"}))
        reply = session.finish(call, ResourceNotFound("a://b"))
        assert reply == Failure(1, ErrorObject(-32002, "Resource not found: a://b", {"uri": "a://b"}))
        call = began(session, ask(2, "ping"))
        assert session.finish(call, Busy()) == Failure(2, ErrorObject(-32000, Busy.text, {"retryAfter": 1}))

    def test_the_number_of_a_refusal_is_the_eras(self) -> None:
        """ERR-3 RES-4 ERRC-08: the same refusal has another number in the stateless era."""
        session = greeted()
        old = began(session, ask(1, "resources/read", {"uri": "a://b"}))
        new = began(session, ask(2, "resources/read", {"uri": "a://b"}, modern=True))
        assert session.finish(old, ResourceNotFound("a://b")).error.code == -32002
        assert session.finish(new, ResourceNotFound("a://b")).error.code == -32602

    NAMELESS = ((None, None), (R1, None), (R2, None), (R3, None), (R4, UNSET))

    @pytest.mark.parametrize(("version", "identity"), NAMELESS)
    def test_an_error_to_an_unreadable_request_has_the_revisions_empty_id(
        self, version: str | None, identity: Any
    ) -> None:
        """RPC-8 JRPC-09: null before 2025-11-25 and before the handshake, no id at all after."""
        session = new_session() if version is None else greeted(version)
        assert session.refuse(UNSET, InvalidRequest()).id is identity

    def test_an_error_on_a_stateless_link_has_no_id(self) -> None:
        """RPC-8 SIZE-06: and oversize has a number the revision allows."""
        session = new_session()
        began(session, ask(1, "tools/list", modern=True))
        reply = session.refuse(UNSET, MessageTooLarge(1024))
        assert reply.id is UNSET
        assert reply.error.code == -32600
        assert reply.error.data == {"maxSize": 1024, "unit": "bytes"}


class TestRefusing:
    def test_a_refusal_that_repeats_too_much_is_said_in_few_words(self) -> None:
        session = greeted(R3)
        long = session.refuse("i" * (MAX_QUOTE + 1), InvalidParams("x" * 5000, {"much": "y" * 5000}))
        short = session.shortened(long)
        assert short.id is None
        assert short.error.code == -32602
        assert len(short.error.message) <= MAX_QUOTE + 1
        assert short.error.data is None
        for identity in ("i" * MAX_QUOTE, 7):
            assert session.shortened(session.refuse(identity, InvalidParams("no"))).id == identity
        assert session.shortened(session.refuse("i" * (MAX_QUOTE + 1), InvalidParams("no"))).id is None

    def test_each_request_says_anew_in_which_era_errors_are_told(self) -> None:
        """Also one whose metadata came before."""
        session = new_session()
        for identity in (1, 2):
            began(session, ask(identity, "tools/list", modern=True))
            assert session.met_stateless
            refusal_of(session, ask("old", "tools/list"))
            assert not session.met_stateless

    def test_a_handshake_decides_in_which_era_errors_are_told(self) -> None:
        session = new_session()
        began(session, ask(1, "tools/list", modern=True))
        session.agree(Peer(REVISIONS[R4], ClientCapabilities()))
        assert session.refuse(2, ResourceNotFound("a://b")).error.code == -32002

    def test_only_the_client_of_a_stateless_server_is_never_asked(self) -> None:
        assert not new_session().one_way
        assert not client_session().one_way
        withholding = new_session(ASKED_BACK)
        withholding.withhold()
        assert withholding.one_way
        session = new_session(ASKED_BACK)
        session.enter(Phase.INITIALIZING)
        session.agree(Peer(msgspec.structs.replace(REVISIONS[R4], two_way=False), ServerCapabilities()))
        assert session.one_way

    def test_a_call_runs_until_it_is_answered(self) -> None:
        session = greeted()
        call = began(session, ask(1, "tools/list"))
        assert session.runs(call)
        session.finish(call, {})
        assert not session.runs(call)


class TestCancelling:
    def test_a_cancelled_call_is_forgotten_and_never_answered(self) -> None:
        """CANC-1 CANC-2 CANC-01 STDIO-8: the call knows it and its reason; its outcome makes no reply."""
        session = greeted()
        call = began(session, ask(1, "tools/call", {"name": "t"}))
        event = session.receive(cancelled(1, "enough"), HERE)
        assert isinstance(event, Cancel)
        assert (event.call, event.reason, call.cancelled, call.reason) == (call, "enough", True, "enough")
        assert not session.running
        assert session.finish(call, {"content": []}) is None
        assert session.finish(call, Busy()) is None

    def test_a_cancellation_names_its_request_by_type_too(self) -> None:
        """RPC-5 CANC-1: "1" does not cancel 1."""
        session = greeted()
        call = began(session, ask(1, "tools/list"))
        assert isinstance(session.receive(cancelled("1"), HERE), Ignored)
        assert session.running == {1: call}

    HARMLESS = (
        cancelled(99),
        cancelled("99"),
        cancelled(None),
        cancelled(1.5),
        cancelled(True),
        cancelled([1]),
        cancelled({"id": 1}),
        note("notifications/cancelled"),
        note("notifications/cancelled", reason="no id"),
        note("notifications/cancelled", requestId=1, reason=7),
        Notification("notifications/cancelled", Raw(b"3")),
        Notification("notifications/cancelled", Raw(b"[1]")),
        Notification("notifications/cancelled", Raw(b"null")),
    )

    @pytest.mark.parametrize("notification", HARMLESS)
    def test_frm_12_a_cancellation_that_is_unknown_or_malformed_does_nothing(self, notification: Notification) -> None:
        """CANC-3: no answer, and the running call runs on."""
        session = greeted()
        call = began(session, ask(1, "tools/list"))
        assert isinstance(session.receive(notification, HERE), Ignored)
        assert session.running == {1: call}

    def test_a_late_cancellation_does_nothing(self) -> None:
        """CANC-3: the answer is out already."""
        session = greeted()
        session.finish(began(session, ask(1, "tools/list")), {})
        assert isinstance(session.receive(cancelled(1), HERE), Ignored)

    def test_initialize_cannot_be_cancelled(self) -> None:
        """LIFE-8 CANC-1: a cancellation of initialize is ignored."""
        session = new_session()
        call = began(session, ask(1, "initialize", GOOD_PARAMS["initialize"]))
        session.expect("ping", "waiter", 0.0)
        assert isinstance(session.receive(cancelled(1), HERE), Ignored)
        assert session.running == {1: call}
        assert session.awaited.keys() == {1}

    def test_a_clients_late_cancellation_leaves_our_own_question_alone(self) -> None:
        """CANC-1 CANC-3: both sides count from 1, so the id of its finished request may be that of our question."""
        session = greeted()
        session.finish(began(session, ask(1, "tools/list")), {})
        question = session.expect("elicitation/create", "waiter", 0.0)
        assert question.id == 1
        assert isinstance(session.receive(cancelled(1), HERE), Ignored)
        assert session.awaited == {1: question}

    def test_a_server_may_withdraw_from_our_request(self) -> None:
        """CANC-03 CANC-02: tolerated by a client: the caller will learn the reason."""
        session = client_session()
        awaited = session.expect("tools/call", "waiter", 0.0)
        event = session.receive(cancelled(awaited.id, "too slow"), HERE)
        assert isinstance(event, Withdrawn)
        assert (event.awaited, event.reason) == (awaited, "too slow")
        assert not session.awaited
        assert isinstance(session.receive(cancelled(awaited.id), HERE), Ignored)


class TestNotifications:
    @pytest.mark.parametrize("method", ["notifications/x", "notifications/initialized", "", "tools/call", "nope"])
    def test_a_notification_is_just_told_in_any_phase(self, method: str) -> None:
        """RPC-9 NOTI-01 NOTI-12 FRM-12: it is never refused, so it is never answered."""
        for session in (new_session(), greeted(R1), client_session()):
            for params in (b"{}", b"3", b"null", b"[]", b'{"a":1}'):
                event = session.receive(Notification(method, Raw(params)), HERE)
                assert isinstance(event, Note)
                assert (event.method, bytes(event.params), event.channel) == (method, params, HERE)

    @pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
    def test_an_old_name_is_understood(self, old: str, new: str) -> None:
        """NOTI-02: names of older peers are aliases on receipt."""
        event = client_session().receive(note(old, uri="a://b"), HERE)
        assert isinstance(event, Note)
        assert event.method == new

    def test_the_old_names_are_those_of_the_table(self) -> None:
        """NOTI-02: each old name and the one that stands for it."""
        expected = {
            "resources/updated": "notifications/resources/updated",
            "resources/listChanged": "notifications/resources/list_changed",
            "tools/listChanged": "notifications/tools/list_changed",
            "prompts/listChanged": "notifications/prompts/list_changed",
            "logging/message": "notifications/message",
            "roots/list_changed": "notifications/roots/list_changed",
        }
        assert expected.items() <= OLD_NAMES.items()


class TestAsking:
    def test_ids_count_from_one_and_never_repeat(self) -> None:
        """CORR-01 RPC-3: 1, 2, 3, whatever became of the earlier ones."""
        session = client_session()
        assert [session.expect("ping", None, 0.0).id for _ in range(3)] == [1, 2, 3]
        session.receive(Success(2, {}), HERE)
        session.abandon(3)
        assert session.expect("ping", None, 0.0).id == 4

    def test_waiting_requests_show_their_kind_and_since_when_they_wait(self) -> None:
        """CORR-02: the book lists what is in flight."""
        session = client_session()
        session.expect("tools/list", "a", 10.0)
        session.expect("ping", "b", 12.5)
        assert [(a.id, a.method, a.started) for a in session.awaited.values()] == [
            (1, "tools/list", 10.0),
            (2, "ping", 12.5),
        ]

    def test_a_colliding_id_never_overwrites_a_waiting_request(self) -> None:
        """CORR-05: the next free id is taken instead."""
        session = client_session()
        first, second = session.expect("ping", "a", 0.0), session.expect("ping", "b", 0.0)
        session.next_id = 1
        third = session.expect("ping", "c", 0.0)
        assert third.id == 3
        assert session.awaited == {1: first, 2: second, 3: third}

    def test_ids_end_where_a_peer_would_round_them(self) -> None:
        """CORR-06: the last id is 2^53-1; after it the session says that it is used up."""
        session = client_session()
        session.next_id = MAX_ID
        assert session.expect("ping", None, 0.0).id == 2**53 - 1
        for _ in range(3):
            with pytest.raises(FerruleError, match="used up"):
                session.expect("ping", None, 0.0)
        assert session.awaited.keys() == {2**53 - 1}

    def test_the_last_id_is_not_taken_twice(self) -> None:
        """CORR-06 CORR-05: a counter set back to a live last id fails instead of wrapping into it."""
        session = client_session()
        session.next_id = MAX_ID
        session.expect("ping", None, 0.0)
        session.next_id = MAX_ID
        with pytest.raises(FerruleError, match="used up"):
            session.expect("ping", None, 0.0)

    def test_a_response_finds_its_request_once(self) -> None:
        """CORR-03 CORR-08: on either side; a second response is an unknown one."""
        for session in (client_session(), greeted()):
            awaited = session.expect("ping", "waiter", 0.0)
            event = session.receive(Success(1, Raw(b"{}")), HERE)
            assert isinstance(event, Reply)
            assert event.awaited is awaited
            assert not session.awaited
            again = session.receive(Success(1, Raw(b"{}")), HERE)
            assert isinstance(again, Ignored)
            assert again.level == "warning"

    STRAYS = (
        Success(999, Raw(b"{}")),
        Success("1", Raw(b"{}")),
        Failure(999, ErrorObject(-1, "no")),
        Failure(None, ErrorObject(-32700, "what?")),
        Failure(UNSET, ErrorObject(-32700, "what?")),
    )

    @pytest.mark.parametrize("response", STRAYS)
    def test_frm_12_a_response_nobody_waits_for_is_ignored_with_a_warning(self, response: Success | Failure) -> None:
        """CORR-04 RPC-5 RPC-8: also an error without id, absent or null."""
        session = client_session()
        awaited = session.expect("ping", "waiter", 0.0)
        event = session.receive(response, HERE)
        assert isinstance(event, Ignored)
        assert event.level == "warning"
        assert session.awaited == {1: awaited}

    def test_abandoning_tells_the_peer_once_and_leaves_nothing(self) -> None:
        """CANC-01 CANC-2 CORR-09: requestId and reason; a late answer is unknown then."""
        session = client_session()
        session.expect("tools/call", "waiter", 0.0)
        assert session.abandon(1, "bored") == Notification(
            "notifications/cancelled", {"requestId": 1, "reason": "bored"}
        )
        assert session.abandon(1) is None
        assert not session.awaited
        assert isinstance(session.receive(Success(1, Raw(b"{}")), HERE), Ignored)
        session.expect("tools/call", "waiter", 0.0)
        assert session.abandon(2) == Notification("notifications/cancelled", {"requestId": 2})

    def test_what_cannot_be_cancelled_is_abandoned_in_silence(self) -> None:
        """LIFE-8: initialize is never cancelled."""
        session = new_session(ASKED_BACK)
        session.expect("initialize", "waiter", 0.0).cancellable = False
        assert session.abandon(1, "timed out") is None
        assert not session.awaited

    def test_ten_thousand_timeouts_leave_nothing_behind(self) -> None:
        """CORR-09: the book does not grow."""
        session = client_session()
        for number in range(10_000):
            session.expect("ping", None, float(number)).deadline = number + 1.0
            for awaited in session.expired(number + 1.0):
                session.abandon(awaited.id)
        assert not session.awaited
        assert session.next_deadline() is None

    def test_the_end_gives_whoever_waits_and_clears_the_book(self) -> None:
        """CORR-10: fifty in flight are fifty to be told."""
        session = client_session()
        waiting = [session.expect("tools/call", number, 0.0) for number in range(50)]
        assert session.close(Phase.ERROR) == waiting
        assert not session.awaited
        assert session.close() == []


class TestTime:
    def test_only_what_is_due_is_due(self) -> None:
        """TIME-1: each request has its own limit, or none."""
        session = client_session()
        late, soon, never = (session.expect("x", None, 0.0) for _ in range(3))
        late.deadline, soon.deadline = 20.0, 5.0
        assert session.next_deadline() == 5.0
        assert session.expired(4.999) == []
        assert session.expired(5.0) == [soon]
        assert session.expired(100.0) == [late, soon]
        session.abandon(soon.id)
        session.abandon(late.id)
        assert session.next_deadline() is None
        assert session.awaited == {never.id: never}

    def test_a_request_is_due_when_its_time_is_up(self) -> None:
        session = client_session()
        assert session.expect("x", None, 50.0, None, 5.0).deadline == 55.0
        assert session.expect("x", None, 50.0).deadline is None

    def test_the_next_id_that_is_free_is_taken(self) -> None:
        session = client_session()
        assert session.expect("x", None, 0.0).id == 1
        session.next_id = 1
        assert session.expect("x", None, 0.0).id == 2

    def test_progress_moves_the_deadline_of_a_request_without_a_maximum(self) -> None:
        """TIME-2."""
        session = client_session()
        awaited = session.expect("x", None, 50.0, None, 5.0)
        assert awaited.limit is None
        session.progressed(awaited.id, 1, 53.0)
        assert awaited.deadline == 58.0
        assert session.next_deadline() == 58.0

    def test_progress_starts_the_clock_again_up_to_the_limit(self) -> None:
        """TIME-2: the deadline moves with progress, the absolute maximum does not."""
        session = client_session()
        awaited = session.expect("tools/call", None, 100.0)
        assert awaited.allow(100.0, 5.0, 12.0) == 105.0
        assert session.progressed(1, 0.1, 104.0) is awaited
        assert awaited.deadline == 109.0
        session.progressed(1, 0.2, 109.0)
        assert awaited.deadline == 112.0
        session.progressed(1, 0.3, 111.0)
        assert awaited.deadline == 112.0

    SPANS = ((5.0, None, 5.0), (None, 7.0, 7.0), (5.0, 7.0, 5.0), (9.0, 7.0, 7.0), (0.0, None, 0.0))

    @pytest.mark.parametrize(("timeout", "limit", "span"), SPANS)
    def test_the_nearer_of_two_limits_counts(self, timeout: float | None, limit: float | None, span: float) -> None:
        """TIME-2: an absolute maximum holds also without a timeout, and from the start."""
        assert client_session().expect("x", None, 50.0).allow(50.0, timeout, limit) == 50.0 + span

    def test_progress_without_a_timeout_moves_nothing(self) -> None:
        session = client_session()
        awaited = session.expect("tools/call", None, 0.0)
        awaited.allow(0.0, None, 7.0)
        assert session.progressed(1, 1, 5.0) is awaited
        assert awaited.deadline == 7.0

    def test_progress_only_counts_while_it_grows(self) -> None:
        """PROG-3: equal and smaller values are dropped, fractions are fine, zero and below may be first."""
        session = client_session()
        session.expect("tools/call", None, 0.0)
        taken = [value for value in (-1, -1, 0, 0.5, 0.5, 0.25, 2, 1e9, 3) if session.progressed(1, value, 0.0)]
        assert taken == [-1, 0, 0.5, 2, 1e9]

    def test_only_so_many_requests_that_became_tasks_are_remembered(self) -> None:
        """The one that was answered longest ago is forgotten first."""
        session = client_session()
        for _ in range(MOST_OUTLASTING + 10):
            awaited = session.expect("tools/call", None, 0.0)
            session.receive(Success(awaited.id, None), HERE)
            session.outlast(awaited)
        assert session.outlasting is not None
        assert len(session.outlasting) == MOST_OUTLASTING
        assert session.progressed(10, 1.0, 0.0) is None
        assert session.progressed(11, 1.0, 0.0) is not None
        assert session.progressed(MOST_OUTLASTING + 10, 1.0, 0.0) is not None

    def test_progress_for_nobody_is_dropped(self) -> None:
        """PROG-3 FRM-12: an unknown token, one of another type, one that is done."""
        session = client_session()
        session.expect("tools/call", None, 0.0)
        assert session.progressed("1", 1.0, 0.0) is None
        assert session.progressed(2, 1.0, 0.0) is None
        session.receive(Success(1, {}), HERE)
        assert session.progressed(1, 1.0, 0.0) is None


class TestOutlasting:
    """A request that was answered with a task: its progress goes on."""

    def test_progress_is_still_noted(self) -> None:
        session = client_session()
        awaited = session.expect("tools/call", None, 0.0)
        awaited.allow(0.0, 5.0, None)
        session.receive(Success(1, {}), HERE)
        session.outlast(awaited)
        assert session.progressed(1, 1.0, 3.0) is awaited
        assert awaited.deadline == 5.0
        assert session.progressed(2, 1.0, 3.0) is None

    def test_the_oldest_of_too_many_is_forgotten(self) -> None:
        session = client_session()
        for _ in range(MOST_OUTLASTING + 2):
            session.outlast(session.expect("tools/call", None, 0.0))
        assert session.outlasting is not None
        assert list(session.outlasting) == list(range(3, MOST_OUTLASTING + 3))


class Conversation(RuleBasedStateMachine):
    """Any order of events: every request gets exactly one outcome, and nothing is left in the books."""

    calls = Bundle("calls")
    questions = Bundle("questions")
    IDS = st.sampled_from([0, 1, 2, 3, "1", "2", "", "x"])
    METHODS = st.sampled_from(["ping", "tools/list", "tools/call", "initialize", "nope", "server/discover"])

    def __init__(self) -> None:
        super().__init__()
        self.session = new_session()
        self.running: dict[Any, Call] = {}
        self.waiting: dict[Any, Any] = {}
        self.asked = self.refused = self.answered = self.silenced = self.left = 0

    @property
    def is_open(self) -> bool:
        return self.session.phase is not Phase.CLOSED

    @rule(target=calls, identity=IDS, method=METHODS, modern=st.booleans(), good=st.booleans())
    def the_peer_asks(self, identity: Any, method: str, modern: bool, good: bool) -> Any:
        self.asked += 1
        params = GOOD_PARAMS.get(method) if good else {"cursor": 5, "name": 5}
        try:
            call = self.session.receive(ask(identity, method, params, modern=modern), HERE)
        except Refusal as refusal:
            reply = self.session.refuse(identity, refusal)
            assert reply.id == identity
            assert type(reply.id) is type(identity)
            self.refused += 1
            return None
        assert isinstance(call, Call)
        assert self.is_open
        assert identity not in self.running
        if method == "initialize":
            self.session.eras.handshake.open(self.session, call.params, {})
        self.running[identity] = call
        return call

    @rule(call=consumes(calls), well=st.booleans())
    def a_call_ends(self, call: Any, well: bool) -> None:
        if call is None:
            return
        reply = self.session.finish(call, {} if well else Busy())
        if self.running.get(call.id) is call:
            del self.running[call.id]
            assert reply is not None
            assert reply.id == call.id
            self.answered += 1
        else:
            assert reply is None

    @rule(identity=IDS)
    def the_peer_cancels(self, identity: Any) -> None:
        event = self.session.receive(cancelled(identity), HERE)
        call = self.running.get(identity)
        if call is not None and call.method != "initialize":
            assert isinstance(event, Cancel)
            assert event.call is call
            del self.running[identity]
            self.silenced += 1
        elif isinstance(event, Withdrawn):
            assert self.waiting.pop(identity) is event.awaited
        else:
            assert isinstance(event, Ignored)

    @precondition(lambda self: self.is_open)
    @rule(target=questions)
    def we_ask(self) -> Any:
        awaited = self.session.expect("ping", None, 0.0)
        assert awaited.id not in self.waiting
        self.waiting[awaited.id] = awaited
        return awaited

    @rule(awaited=questions, well=st.booleans())
    def the_peer_answers(self, awaited: Any, well: bool) -> None:
        response = Success(awaited.id, Raw(b"{}")) if well else Failure(awaited.id, ErrorObject(1, "x"))
        event = self.session.receive(response, HERE)
        if self.waiting.pop(awaited.id, None) is awaited:
            assert isinstance(event, Reply)
            assert event.awaited is awaited
        else:
            assert isinstance(event, Ignored)

    @rule(awaited=questions)
    def we_give_up(self, awaited: Any) -> None:
        notice = self.session.abandon(awaited.id)
        assert (notice is not None) == (self.waiting.pop(awaited.id, None) is awaited)

    @rule(chance=st.integers(0, 9))
    def the_link_ends(self, chance: int) -> None:
        if chance == 0:
            self.left += len(self.running)
            self.running.clear()
            self.session.running.clear()
            assert self.session.close() == list(self.waiting.values())
            self.waiting.clear()

    @invariant()
    def the_books_agree(self) -> None:
        assert self.session.running == self.running
        assert self.session.awaited == self.waiting
        done = self.refused + self.answered + self.silenced + self.left
        assert self.asked == done + len(self.running), "every request has exactly one outcome"


TestConversation = Conversation.TestCase
TestConversation.settings = settings(
    max_examples=5_000 if LONG else 60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class TestWithholding:
    def test_until_the_handshake_begins_nothing_is_admitted(self) -> None:
        session = new_session(ASKED_BACK)
        session.withhold()
        session.withhold()
        assert session.methods == {}
        session.enter(Phase.INITIALIZING)
        assert session.methods == ASKED_BACK
        assert session.withheld is None

    def test_who_never_was_withheld_keeps_what_it_may_ask(self) -> None:
        session = new_session(ASKED_BACK)
        session.enter(Phase.INITIALIZING)
        assert session.methods == ASKED_BACK


def test_a_session_that_is_ready_has_let_go_of_what_the_handshake_took() -> None:
    session = greeted()
    for number in range(3):
        session.running[number] = session  # type: ignore[assignment]
    session.now_ready()
    assert len(session.running) == 3
    session.running.clear()
    session.running[1] = session  # type: ignore[assignment]
    del session.running[1]
    session.now_ready()
    assert session.peer_ready
    assert sys.getsizeof(session.running) == sys.getsizeof({})
