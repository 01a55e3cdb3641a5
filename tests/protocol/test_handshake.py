"""The era of `initialize`: agreeing on a version, asking in older words, and the numbers of errors."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from ferrule import errors
from ferrule.errors import CapabilityNotSupported, InvalidParams, InvalidRequest, Refusal, UnsupportedVersion
from ferrule.protocol.call import Call, Peer
from ferrule.protocol.era import Eras
from ferrule.protocol.handshake import ERLMCP, REVISIONS, Handshake, OfferRefused
from ferrule.protocol.needs import Need, Question
from ferrule.protocol.seal import Keyring, Seal
from ferrule.protocol.session import Phase, Session
from ferrule.protocol.stateless import Sealing, Stateless
from ferrule.protocol.tasks import TaskWish
from ferrule.schema.lifecycle import InitializeParams, InitializeResult, ListCapability, ServerCapabilities
from ferrule.schema.methods import METHODS
from ferrule.schema.model import ClientCapabilities, Implementation
from ferrule.schema.tools import CallToolResult
from ferrule.wire.channel import Origin
from ferrule.wire.messages import Request

R1, R2, R3, R4, R5 = "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"
STATELESS = Stateless(Sealing(Seal(Keyring(["k" * 32])), lambda: 0.0, lambda: bytes(12), 600.0))
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}


class HttpExchange:
    """A link that writes down what it was told to ask."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, Any, Any]] = []

    def ask(self, method: str, params: Any, channel: Any) -> Awaitable[Raw]:
        self.questions.append((method, params, channel))
        return self.answer()

    async def answer(self) -> Raw:
        return Raw(b"{}")


def new_session(era: Handshake) -> Session:
    return Session(Eras(era, STATELESS), METHODS, Origin("test"), HttpExchange())


def offer(version: str, declared: Any = None) -> InitializeParams:
    return InitializeParams(
        protocol_version=version,
        capabilities=msgspec.convert(declared or {}, ClientCapabilities),
        client_info=Implementation(name="c", version="1"),
    )


def call_from(version: str, declared: Any, era: Handshake | None = None) -> Call:
    """A tools/call from a client of this revision with these capabilities."""
    peer = Peer(REVISIONS[version], msgspec.convert(declared, ClientCapabilities))
    row = METHODS["tools/call"]
    return Call(1, row, None, Raw(b"{}"), None, era or Handshake(), peer, "the channel", Origin("test"), HttpExchange())


def asked(call: Call, *questions: Question) -> list[tuple[str, Any, Any]]:
    """What goes out when a handler asks these."""
    for coroutine in call.era.ask(call, [(str(place), question) for place, question in enumerate(questions)]):
        coroutine.close()
    return call.link.questions


def form(**properties: Any) -> Question:
    schema = {"type": "object", "properties": properties, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    return Question("elicitation/create", {"message": "?", "mode": "form", "requestedSchema": schema})


class TestNegotiation:
    OFFERS = (
        (R1, R1),
        (R2, R2),
        (R3, R3),
        (R4, R4),
        (R5, R4),
        ("2027-01-01", R4),
        ("1999-12-31", R4),
        ("", R4),
        ("latest", R4),
        ("2025-11-25 ", R4),
    )

    @pytest.mark.parametrize(("offered", "answered"), OFFERS)
    def test_an_offer_we_speak_is_echoed_and_any_other_gets_our_newest(self, offered: str, answered: str) -> None:
        """VER-2 VER-4 ERRC-17 LIFE-9 SESS-07: a counter-offer, never an error, and never 2026-07-28."""
        era = Handshake()
        session = new_session(era)
        assert era.open(session, offer(offered), {}).version == answered
        assert session.peer is not None
        assert session.peer.version == answered
        assert session.phase is Phase.INITIALIZED

    def test_a_server_of_few_versions_offers_its_own_newest(self) -> None:
        """VER-2 VER-4: also when it could speak more."""
        era = Handshake((R1, R3, R5))
        assert era.versions == (R3, R1)
        assert [era.offered(version).version for version in (R1, R2, R3, R4, R5)] == [R1, R3, R3, R3, R3]

    @given(st.text())
    def test_any_offer_is_answered_with_a_version_of_this_era(self, version: str) -> None:
        """VER-2 VER-4: whatever it says."""
        assert Handshake().offered(version).version in REVISIONS

    def test_a_stateless_server_names_its_versions_to_a_client_that_initializes(self) -> None:
        """VER-11: the error has the versions in its text and in its data."""
        era = Handshake(())
        session = new_session(era)
        with pytest.raises(UnsupportedVersion) as refused:
            era.open(session, offer(R4), {})
        assert refused.value.data == {"supported": [R5], "requested": R4}
        assert R5 in refused.value.message
        assert era.code(refused.value) == -32022
        assert session.phase is Phase.PRE_INITIALIZATION

    def test_the_erlmcp_profile_refuses_a_version_instead(self) -> None:
        """ERRC-17: -32062, with what is supported."""
        era = Handshake(erlmcp_codes=True)
        with pytest.raises(UnsupportedVersion) as refused:
            era.open(new_session(era), offer("2020-01-01"), {})
        assert era.code(refused.value) == -32062
        assert era.open(new_session(era), offer(R2), {}).version == R2

    def test_what_the_client_declared_is_kept_as_it_came(self) -> None:
        """CAPN-01 CAPN-04: typed, and raw with its unknown keys."""
        era = Handshake()
        session = new_session(era)
        declared = {"roots": {}, "holograms": {"deep": 1}}
        era.open(session, offer(R4, declared), declared)
        assert session.peer is not None
        assert session.peer.capabilities.roots is not None
        assert session.peer.declared == declared

    @pytest.mark.parametrize("version", [R1, R2, R3, R4])
    def test_a_client_takes_every_version_it_speaks(self, version: str) -> None:
        """CORR-07 CAPN-04 SESS-07 SESS-25: then peer, capabilities and phase are set."""
        session = new_session(Handshake())
        session.enter(Phase.INITIALIZING)
        offered = ServerCapabilities(tools=ListCapability(list_changed=True))
        result = InitializeResult(
            protocol_version=version, capabilities=offered, server_info=Implementation(name="s", version="2")
        )
        assert Handshake().opened(session, result, ClientCapabilities())
        assert session.peer is not None
        assert (session.peer.version, session.peer.capabilities) == (version, offered)
        assert session.phase is Phase.INITIALIZED

    @pytest.mark.parametrize("version", [R5, "2030-01-01", "", "2025-11-25x"])
    def test_a_client_does_not_take_another(self, version: str) -> None:
        """VER-3 SESS-08: the phase is error, and nothing was agreed."""
        session = new_session(Handshake())
        session.enter(Phase.INITIALIZING)
        result = InitializeResult(
            protocol_version=version,
            capabilities=ServerCapabilities(),
            server_info=Implementation(name="s", version="1"),
        )
        assert not Handshake().opened(session, result, ClientCapabilities())
        assert (session.phase, session.peer) == (Phase.ERROR, None)

    def test_a_client_of_few_versions_does_not_take_the_others(self) -> None:
        """VER-3: what it could speak does not count."""
        session = new_session(Handshake((R4,)))
        result = InitializeResult(
            protocol_version=R1, capabilities=ServerCapabilities(), server_info=Implementation(name="s", version="1")
        )
        assert not Handshake((R4,)).opened(session, result, ClientCapabilities())


class TestAsking:
    def test_questions_go_out_as_requests_on_the_calls_own_channel(self) -> None:
        """All of them at once, each as it was asked."""
        question = Question("sampling/createMessage", {"messages": [], "maxTokens": 5})
        sent = asked(call_from(R4, EVERYTHING), Question("roots/list", {}), question)
        assert sent == [("roots/list", {}, "the channel"), (question.method, question.params, "the channel")]

    @pytest.mark.parametrize("method", ["roots/list", "sampling/createMessage", "elicitation/create"])
    @pytest.mark.parametrize("version", [R1, R2, R3, R4])
    def test_what_the_client_did_not_declare_is_not_asked(self, method: str, version: str) -> None:
        """CAPN-05 CAPN-07 CAP-4 LIFE-7 ROOT-6: nothing is sent at all, not even the questions it could answer."""
        call = call_from(version, {"roots": {}} if method != "roots/list" else {"sampling": {}})
        other = (
            Question("roots/list", {})
            if method != "roots/list"
            else Question("sampling/createMessage", {"messages": []})
        )
        with pytest.raises(CapabilityNotSupported):
            asked(
                call, other, Question(method, {"message": "?", "messages": [], "requestedSchema": {"properties": {}}})
            )
        assert call.link.questions == []

    @pytest.mark.parametrize("version", [R1, R2])
    def test_a_revision_without_elicitation_is_not_asked_though_it_declares_it(self, version: str) -> None:
        """LIFE-7: the method does not exist there."""
        with pytest.raises(CapabilityNotSupported, match="elicitation"):
            asked(call_from(version, EVERYTHING), form(a={"type": "string"}))

    def test_the_newest_revision_gets_the_question_unchanged(self) -> None:
        """ELIC-3 ELIC-5: with its mode, its choices and its defaults."""
        question = form(seat={"type": "string", "oneOf": [{"const": "a", "title": "Aisle"}], "default": "a"})
        assert asked(call_from(R4, EVERYTHING), question)[0][1] == question.params

    def test_2025_06_18_gets_plain_forms(self) -> None:
        """ELIC-3 ELIC-4 ELIC-5: no mode, `enumNames` for titles, defaults on booleans only, no `$schema`."""
        question = form(
            seat={"type": "string", "oneOf": [{"const": "a", "title": "Aisle"}, {"const": "w"}], "default": "a"},
            sure={"type": "boolean", "default": False},
            count={"type": "integer", "minimum": 1, "default": 3},
            kind={"type": "string", "enum": ["x", "y"]},
        )
        (_, sent, _) = asked(call_from(R3, EVERYTHING), question)[0]
        assert sent == {
            "message": "?",
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "seat": {"type": "string", "enum": ["a", "w"], "enumNames": ["Aisle", "w"]},
                    "sure": {"type": "boolean", "default": False},
                    "count": {"type": "integer", "minimum": 1},
                    "kind": {"type": "string", "enum": ["x", "y"]},
                },
            },
        }

    def test_2025_06_18_cannot_be_asked_by_url_or_for_lists(self) -> None:
        """ELIC-2 ELIC-8: the handler learns it as a missing capability."""
        url = Question("elicitation/create", {"message": "?", "mode": "url", "url": "https://x", "elicitationId": "1"})
        with pytest.raises(CapabilityNotSupported, match=r"elicitation\.url"):
            asked(call_from(R3, EVERYTHING), url)
        with pytest.raises(CapabilityNotSupported, match="'many'"):
            asked(call_from(R3, EVERYTHING), form(many={"type": "array", "items": {"type": "string", "enum": ["a"]}}))

    def test_the_newest_revision_can_be_asked_by_url(self) -> None:
        """ELIC-8: with its elicitationId."""
        params = {"message": "?", "mode": "url", "url": "https://x", "elicitationId": "1"}
        assert asked(call_from(R4, EVERYTHING), Question("elicitation/create", params))[0][1] == params

    TEXT = {"type": "text", "text": "hi"}  # noqa: RUF012 - never changed

    @pytest.mark.parametrize("version", [R1, R2, R3])
    def test_older_revisions_get_one_block_a_message(self, version: str) -> None:
        """SAMP-4: a list of one is written as that one; more cannot be said."""
        question = Question(
            "sampling/createMessage", {"messages": [{"role": "user", "content": [self.TEXT]}], "maxTokens": 1}
        )
        (_, sent, _) = asked(call_from(version, EVERYTHING), question)[0]
        assert sent["messages"] == [{"role": "user", "content": self.TEXT}]
        two = Question("sampling/createMessage", {"messages": [{"role": "user", "content": [self.TEXT] * 2}]})
        with pytest.raises(CapabilityNotSupported, match="one content block"):
            asked(call_from(version, EVERYTHING), two)

    @pytest.mark.parametrize("version", [R1, R2, R3])
    def test_older_revisions_are_asked_for_their_roots_in_the_same_words(self, version: str) -> None:
        question = Question("roots/list", {"_meta": {"x": 1}})
        assert asked(call_from(version, EVERYTHING), question) == [("roots/list", question.params, "the channel")]

    @pytest.mark.parametrize(("version", "kept"), [(R1, False), (R2, False), (R3, True)])
    def test_metadata_of_blocks_came_with_2025_06_18(self, version: str, kept: bool) -> None:
        block = {"type": "text", "text": "a", "_meta": {"x": 1}}
        question = Question("sampling/createMessage", {"messages": [{"role": "user", "content": block}]})
        (asks,) = asked(call_from(version, EVERYTHING), question)
        assert ("_meta" in asks[1]["messages"][0]["content"]) is kept

    @pytest.mark.parametrize("version", [R1, R2, R3, R4])
    def test_context_needs_a_capability_of_its_own_in_the_newest_revision_only(self, version: str) -> None:
        """Earlier a client that could be sampled could be asked to add context."""
        question = Question("sampling/createMessage", {"messages": [], "maxTokens": 1, "includeContext": "thisServer"})
        if version == R4:
            with pytest.raises(CapabilityNotSupported, match=r"sampling\.context"):
                asked(call_from(version, {"sampling": {}}), question)
        (_, sent, _) = asked(call_from(version, {"sampling": {} if version != R4 else {"context": {}}}), question)[0]
        assert sent["includeContext"] == "thisServer"

    def test_the_newest_revision_takes_lists_of_blocks(self) -> None:
        """SAMP-4: they go out as they are."""
        messages = [{"role": "user", "content": [self.TEXT, self.TEXT]}]
        question = Question("sampling/createMessage", {"messages": messages, "maxTokens": 1})
        assert asked(call_from(R4, EVERYTHING), question)[0][1]["messages"] == messages

    def test_a_missing_capability_is_an_invalid_request_there(self) -> None:
        """ERR-2 ERRC-11: the numbers of the stateless era are not sent in this one."""
        refusal = Handshake().lacking(CapabilityNotSupported("sampling.tools"))
        assert isinstance(refusal, InvalidRequest)
        assert "sampling.tools" in refusal.message

    def test_nothing_is_recalled_and_nobody_is_paused(self) -> None:
        """MRTR-1: input_required does not exist before 2026-07-28."""
        call = call_from(R4, EVERYTHING)
        assert call.era.recall(call).responses == {}
        with pytest.raises(InvalidRequest):
            call.era.pause(call, Need([]))


class TestSealing:
    @pytest.mark.parametrize("version", [R1, R2, R3, R4])
    def test_a_result_says_nothing_of_the_stateless_era(self, version: str) -> None:
        """RPC-18: no resultType, no hints; and nothing to return is an empty object."""
        call = call_from(version, {})
        sealed = call.era.shape_result(call, CallToolResult(content=[]))
        assert msgspec.json.decode(msgspec.json.encode(sealed)) == {"content": []}
        assert msgspec.json.encode(call.era.shape_result(call, None)) == b"{}"

    def test_what_is_encoded_already_is_left_alone(self) -> None:
        call = call_from(R1, {})
        raw = Raw(b'{"tools":[]}')
        assert call.era.shape_result(call, raw) is raw


PROFILES: list[tuple[Refusal, int, int, int]] = [
    (errors.ResourceNotFound("a://b"), -32002, -32602, -32001),
    (errors.ToolNotFound("t"), -32602, -32602, -32002),
    (errors.PromptNotFound("p"), -32602, -32602, -32003),
    (errors.CapabilityOff(data={"capability": "tools"}), -32601, -32601, -32004),
    (errors.NotInitialized(), -32600, -32600, -32005),
    (errors.MessageTooLarge(1024), -32012, -32600, -32012),
    (errors.InvalidUri("x", "no scheme"), -32602, -32602, -32022),
    (errors.UnsupportedVersion("x", [R4]), -32022, -32022, -32022),
    (errors.ParseError(), -32700, -32700, -32700),
    (errors.InvalidRequest(), -32600, -32600, -32600),
    (errors.MethodNotFound(), -32601, -32601, -32601),
    (errors.InvalidParams(), -32602, -32602, -32602),
    (errors.Internal(), -32603, -32603, -32603),
    (errors.Busy(), -32000, -32603, -32000),
    (errors.RateLimited(0.5), -32000, -32603, -32010),
    (errors.StoreUnavailable("it is away"), -32000, -32603, -32000),
    (errors.Overloaded(2.5), -32000, -32603, -32000),
    (errors.NoTarget({"a": "breaker open"}), -32000, -32603, -32000),
    (errors.ToolBusy("the tool t", 1, 1), -32000, -32603, -32038),
    (errors.ToolFailed(), -32603, -32603, -32031),
    (errors.ToolTimedOut(), -32603, -32603, -32032),
    (errors.ResultTooLarge(), -32603, -32603, -32036),
    (errors.Forbidden(), -32600, -32600, -32600),
    (errors.Unauthorized(), -32600, -32600, -32600),
    (errors.UrlElicitationRequired(), -32042, -32600, -32042),
    (errors.HeaderMismatch(), -32020, -32020, -32020),
    (errors.MissingCapability({"roots": {}}), -32021, -32021, -32021),
]
"""A refusal, and its number in the handshake era, in the stateless era and in the erlmcp profile."""


class TestTasks:
    def wish(self, version: str, params: Any) -> TaskWish:
        era = Handshake()
        session = new_session(era)
        era.open(session, offer(version), {})
        call = session.receive(Request(1, "tools/call", Raw(msgspec.json.encode(params))), None)
        assert isinstance(call, Call)
        return era.task_wish(call)

    def test_a_call_becomes_a_task_when_it_asks_to(self) -> None:
        """A revision without tasks does not know the member."""
        assert self.wish(R4, {"name": "t"}) is TaskWish.NO
        assert self.wish(R4, {"name": "t", "task": {}}) is TaskWish.ASKED
        for version in (R1, R2, R3):
            assert self.wish(version, {"name": "t", "task": {}}) is TaskWish.UNKNOWN


RESERVED = {-32000, -32002, -32012, -32020, -32021, -32022, -32042}


class TestNumbers:
    def test_a_reserved_number_is_sent_only_where_the_protocol_knows_it(self) -> None:
        """Any other of that range becomes an internal error, any number outside of it is sent as it is."""
        seeded = {numbers.code for numbers in ERLMCP.values()}
        for code in range(-32769, -31997):
            sent = Handshake().code(Refusal("no", code=code))
            reserved = -32768 <= code <= -32000
            known = code in RESERVED | seeded | {-32700, -32600, -32601, -32602, -32603}
            assert sent == (code if known or not reserved else -32603)

    @pytest.mark.parametrize(("refusal", "handshake", "stateless", "erlmcp"), PROFILES, ids=lambda v: type(v).__name__)
    def test_every_refusal_has_its_number_in_each_profile(
        self, refusal: Refusal, handshake: int, stateless: int, erlmcp: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        """ERRC-01 ERRC-02 ERRC-03 ERRC-04 ERRC-05 ERRC-08 ERRC-09 ERRC-10 ERRC-11 ERRC-12 ERRC-14 ERR-1 ERR-2 ERR-3.

        ERRC-20 ERRC-27 ELIC-10 RES-4: each common error has a constructor, and none is without a text.
        """
        assert Handshake().code(refusal) == handshake
        assert STATELESS.code(refusal) == stateless
        assert Handshake(erlmcp_codes=True).code(refusal) == erlmcp
        assert caplog.records == [], "a number of our own is none to warn of"
        assert refusal.message
        assert msgspec.json.encode(refusal.data)

    def test_the_table_names_every_refusal_there_is(self) -> None:
        """ERRC-20: none is forgotten."""
        known = {
            kind for kind in vars(errors).values()
            if isinstance(kind, type) and issubclass(kind, Refusal) and kind is not Refusal
        }  # fmt: skip
        assert {type(row[0]) for row in PROFILES} == known

    def test_what_was_not_found_is_named(self) -> None:
        """ERRC-08 ERRC-09 ERRC-10: by uri, tool and prompt."""
        assert errors.ResourceNotFound("a://b").data == {"uri": "a://b"}
        assert errors.ToolNotFound("t").data == {"tool": "t"}
        assert errors.PromptNotFound("p").data == {"prompt": "p"}


def test_an_offer_that_is_refused_has_the_number_of_invalid_params_while_there_are_versions() -> None:
    refusal = OfferRefused("1999-01-01", ())
    assert Handshake().code(refusal) == InvalidParams.code
    assert Handshake(()).code(refusal) == refusal.own_code
    assert Handshake(erlmcp_codes=True).code(refusal) == -32062
