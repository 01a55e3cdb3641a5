"""The era of self-describing requests: who asks, asking back inside a result, and the form of every result."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from ferrule.errors import (
    CapabilityNotSupported,
    Internal,
    InvalidParams,
    InvalidRequest,
    MissingCapability,
    RateLimited,
    Refusal,
    UnsupportedVersion,
)
from ferrule.protocol.call import Call
from ferrule.protocol.era import Eras
from ferrule.protocol.handshake import REVISIONS, Handshake
from ferrule.protocol.needs import Need, Question
from ferrule.protocol.seal import Expired, Keyring, Seal, Tampered
from ferrule.protocol.session import Session
from ferrule.protocol.stateless import CacheHints, Sealing, Stateless
from ferrule.protocol.tasks import TaskWish
from ferrule.schema.completion import CompleteResult, Completion
from ferrule.schema.content import ResourceContents, TextContent
from ferrule.schema.lifecycle import DiscoverResult, ServerCapabilities
from ferrule.schema.methods import METHODS
from ferrule.schema.model import EmptyResult, Implementation, Result
from ferrule.schema.prompts import GetPromptResult, ListPromptsResult
from ferrule.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    PlainContents,
    ReadResourceResult,
)
from ferrule.schema.tools import CallToolResult, ListToolsResult, PlainResult
from ferrule.wire.channel import Origin
from ferrule.wire.messages import Request

R5 = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
VERSION, CAPABILITIES = PREFIX + "protocolVersion", PREFIX + "clientCapabilities"
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
SERVER_INFO = {PREFIX + "serverInfo": {"name": "s", "version": "9"}}

SEAT = Question("elicitation/create", {"message": "Which seat?", "mode": "form", "requestedSchema": {"type": "object"}})
MEAL = Question("elicitation/create", {"message": "Which meal?", "mode": "form", "requestedSchema": {"type": "object"}})


class Watch:
    """A clock that is set by hand, and nonces that count."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.nonces = 0

    def nonce(self) -> bytes:
        self.nonces += 1
        return self.nonces.to_bytes(12, "big")


def new_era(
    watch: Watch | None = None, *, keys: tuple[str, ...] = ("k" * 32,), max_size: int = 65536, **options: Any
) -> Stateless:
    watch = watch or Watch()
    sealing = Sealing(Seal(Keyring(keys), max_size), lambda: watch.now, watch.nonce, 600.0)
    options.setdefault("implementation", Implementation(name="s", version="9"))
    return Stateless(sealing, beside=tuple(REVISIONS), **options)


def received(
    era: Stateless,
    params: dict[str, Any],
    *,
    method: str = "tools/call",
    principal: str | None = None,
    identity: Any = 1,
) -> Call:
    """The call a server makes of a request, on a link that knows nothing of earlier ones."""
    session = Session(Eras(Handshake(), era), METHODS, Origin("test", principal=principal), None)
    call = session.receive(Request(identity, method, Raw(msgspec.json.encode(params))), None)
    assert isinstance(call, Call)
    return call


def stamped(params: dict[str, Any] | None = None, declared: Any = EVERYTHING, **meta: Any) -> dict[str, Any]:
    return {**(params or {"name": "t", "arguments": {"a": 1}}), "_meta": {VERSION: R5, CAPABILITIES: declared, **meta}}


def refusal_of(era: Stateless, params: dict[str, Any], method: str = "tools/call") -> Refusal:
    with pytest.raises(Refusal) as caught:
        received(era, params, method=method)
    return caught.value


def written(result: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(result))


def asking(call: Call, *questions: Question) -> Any:
    """What the client gets when a handler asks these; or the answers, when all are known."""
    answers = call.answers = call.era.recall(call)
    places = [answers.key_for(question) for question in questions]
    known = [answers.find(place, question) for place, question in zip(places, questions, strict=True)]
    missing = [(p, q) for p, q, answer in zip(places, questions, known, strict=True) if answer is None]
    if not missing:
        return [msgspec.json.decode(answer) for answer in known]
    with pytest.raises(Need) as need:
        call.era.ask(call, missing)
    return written(call.era.pause(call, need.value))


class TestWhoAsks:
    def test_everything_is_read_from_the_request_itself(self) -> None:
        """STL-1 STL-5 VER-6: version, capabilities, identity and log level."""
        info = {"name": "c", "version": "3"}
        call = received(
            new_era(), stamped(None, {"roots": {}}, **{PREFIX + "clientInfo": info, PREFIX + "logLevel": "error"})
        )
        assert call.peer.version == R5
        assert call.peer.capabilities.roots is not None
        assert call.peer.implementation == Implementation(name="c", version="3")
        assert call.peer.log_level == "error"

    def test_nothing_is_remembered_from_an_earlier_request(self) -> None:
        """STL-5 STL-8: two conversations interleave on one link and know nothing of each other."""
        era = new_era()
        session = Session(Eras(Handshake(), era), METHODS, Origin("test"), None)

        def ask(identity: int, declared: Any, **meta: Any) -> Call:
            return session.receive(
                Request(identity, "tools/call", Raw(msgspec.json.encode(stamped(None, declared, **meta)))), None
            )

        rich = ask(
            1, EVERYTHING, **{PREFIX + "logLevel": "debug", PREFIX + "clientInfo": {"name": "c", "version": "1"}}
        )
        poor = ask(2, {})
        assert (poor.peer.log_level, poor.peer.implementation, poor.peer.capabilities.roots) == (None, None, None)
        assert rich.peer.capabilities.roots is not None
        assert session.peer is None

    def test_a_client_need_not_say_its_name(self) -> None:
        """STL-4: a missing clientInfo is fine."""
        assert received(new_era(), stamped()).peer.implementation is None

    def test_what_every_request_must_say_is_missed(self) -> None:
        """STL-4: -32602, and the text names it."""
        params = stamped()
        del params["_meta"][CAPABILITIES]
        why = refusal_of(new_era(), params)
        assert isinstance(why, InvalidParams)
        assert "clientCapabilities" in why.message

    BROKEN = (
        {VERSION: 7},
        {VERSION: None},
        {CAPABILITIES: []},
        {CAPABILITIES: {"roots": 7}},
        {PREFIX + "logLevel": "loud"},
        {PREFIX + "clientInfo": {"version": "1"}},
        {"progressToken": {}},
    )

    @pytest.mark.parametrize("meta", BROKEN)
    def test_malformed_metadata_is_refused(self, meta: dict[str, Any]) -> None:
        """STL-4 LOG-6: -32602, an unknown log level too."""
        assert refusal_of(new_era(), stamped(None, {}, **meta)).own_code == -32602

    @pytest.mark.parametrize("version", ["2025-11-25", "2024-11-05", "2030-01-01", "", "draft"])
    def test_a_version_we_do_not_serve_is_refused_with_those_we_do(self, version: str) -> None:
        """VER-7 VER-9: -32022 with the list and what was asked for; older versions have no such form."""
        era = new_era()
        why = refusal_of(era, stamped(None, {}, **{VERSION: version}))
        assert isinstance(why, UnsupportedVersion)
        assert era.code(why) == -32022
        assert why.data == {"supported": [R5, *REVISIONS], "requested": version}
        assert why.data["supported"] == era.supported

    def test_its_number_is_sent_though_nothing_was_agreed(self) -> None:
        """VER-7: also as the first message of a link."""
        session = Session(Eras(Handshake(), new_era()), METHODS, Origin("test"), None)
        request = Request(1, "tools/list", Raw(msgspec.json.encode(stamped({}, {}, **{VERSION: "2030-01-01"}))))
        with pytest.raises(UnsupportedVersion) as refused:
            session.receive(request, None)
        assert session.refuse(1, refused.value).error.code == -32022

    LADDER = (
        ({}, "nope/x", -32601),
        ({VERSION: "2030-01-01"}, "nope/x", -32022),
        ({VERSION: "2030-01-01", CAPABILITIES: UNSET}, "tools/list", -32602),
        ({}, "initialize", -32601),
        ({}, "ping", -32601),
        ({}, "logging/setLevel", -32601),
        ({}, "resources/subscribe", -32601),
        ({}, "tasks/result", -32601),
    )

    @pytest.mark.parametrize(("meta", "method", "code"), LADDER)
    def test_the_checks_come_in_their_order(self, meta: dict[str, Any], method: str, code: int) -> None:
        """VER-7 STL-4 RPC-19 PING-3: first the metadata, then the version, then the method."""
        params = stamped({}, {}, **meta)
        params["_meta"] = {key: value for key, value in params["_meta"].items() if value is not UNSET}
        assert refusal_of(new_era(), params, method).own_code == code

    def test_a_method_of_this_era_needs_its_mark(self) -> None:
        """DISC-1: `server/discover` takes nothing but `_meta`."""
        assert received(new_era(), stamped({}), method="server/discover").method == "server/discover"


class TestAskingBack:
    def test_a_question_ends_the_round_with_what_is_missing(self) -> None:
        """MRTR-2 spec:TOOL-21: keyed requests without ids or envelope, and a state; nothing of a cache."""
        asked = asking(received(new_era(), stamped()), SEAT, Question("roots/list", {}, key="where"))
        assert asked.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
        assert asked["resultType"] == "input_required"
        assert asked["_meta"] == SERVER_INFO
        assert asked["inputRequests"]["where"] == {"method": "roots/list"}
        (other,) = (value for key, value in asked["inputRequests"].items() if key != "where")
        assert other == {"method": SEAT.method, "params": SEAT.params}
        assert isinstance(asked["requestState"], str)

    def test_a_url_has_no_elicitation_id_there(self) -> None:
        """ELIC-8 MRTR-2: the state tells the answer's place."""
        params = {"message": "?", "mode": "url", "url": "https://x", "elicitationId": "1"}
        asked = asking(received(new_era(), stamped()), Question("elicitation/create", params, key="go"))
        assert asked["inputRequests"]["go"]["params"] == {"message": "?", "mode": "url", "url": "https://x"}

    MAY_ASK = {"tools/call", "prompts/get", "resources/read"}  # noqa: RUF012 - never changed

    @pytest.mark.parametrize("method", [name for name, row in METHODS.items() if row.stateless])
    def test_three_methods_may_ask_and_no_other(self, method: str) -> None:
        """MRTR-1: the others cannot return input_required."""
        params = {
            "tools/call": {"name": "t"},
            "prompts/get": {"name": "p"},
            "resources/read": {"uri": "a://b"},
            "subscriptions/listen": {"notifications": {}},
            "completion/complete": {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
            "tasks/get": {"taskId": "t"},
            "tasks/update": {"taskId": "t", "inputResponses": {}},
            "tasks/cancel": {"taskId": "t"},
        }.get(method, {})
        call = received(new_era(), stamped(params), method=method)
        if method in self.MAY_ASK:
            with pytest.raises(Need):
                call.era.ask(call, [("seat", SEAT)])
        else:
            with pytest.raises(InvalidRequest, match="cannot ask"):
                call.era.ask(call, [("seat", SEAT)])

    LACKING = (
        ({}, SEAT, {"elicitation": {"form": {}}}),
        ({"elicitation": {"url": {}}}, SEAT, {"elicitation": {"form": {}}}),
        ({"elicitation": {}}, Question("elicitation/create", {"mode": "url"}), {"elicitation": {"url": {}}}),
        ({"elicitation": {}}, Question("sampling/createMessage", {}), {"sampling": {}}),
        ({"sampling": {}}, Question("sampling/createMessage", {"tools": []}), {"sampling": {"tools": {}}}),
        ({"sampling": {}}, Question("roots/list", {}), {"roots": {}}),
    )

    @pytest.mark.parametrize(("declared", "question", "required"), LACKING)
    def test_what_this_request_did_not_declare_is_not_asked(
        self, declared: Any, question: Question, required: Any
    ) -> None:
        """MRTR-3 STL-6 CAPN-05: the request fails with -32021 and the object it would have to declare."""
        call = received(new_era(), stamped(None, declared))
        with pytest.raises(CapabilityNotSupported) as lacking:
            call.era.ask(call, [("known", Question("ping", {})), ("q", question)])
        why = call.era.lacking(lacking.value)
        assert isinstance(why, MissingCapability)
        assert call.era.code(why) == -32021
        assert why.data == {"requiredCapabilities": required}


def test_a_refusal_over_a_rate_has_a_status_of_its_own() -> None:
    assert new_era().status(RateLimited(1.0)) == 429
    assert new_era().status(Internal()) is None


class TestRounds:
    def test_three_rounds_end_with_every_answer(self) -> None:
        """MRTR-8 MRTR-9 STL-10: another server with the same key goes on where the first one stopped."""
        first = asking(received(new_era(), stamped()), SEAT, MEAL)
        seat, meal = first["inputRequests"]
        again = stamped() | {"inputResponses": {seat: {"row": 3}}, "requestState": first["requestState"]}
        second = asking(received(new_era(), again, identity=2), SEAT, MEAL)
        assert second["inputRequests"].keys() == {meal}
        last = stamped() | {"inputResponses": {meal: "soup"}, "requestState": second["requestState"]}
        assert asking(received(new_era(), last, identity="3"), SEAT, MEAL) == [{"row": 3}, "soup"]

    def test_a_state_says_which_round_it_begins(self) -> None:
        era = new_era()
        need = Need([("seat", SEAT)])
        call = received(era, stamped())
        for number in (2, 3, 4):
            asked = written(era.pause(call, need))
            call = received(era, stamped() | {"requestState": asked["requestState"]})
            call.answers = era.recall(call)
            assert call.answers.journal.round == number

    def test_a_round_may_come_again_as_often_as_the_client_likes(self) -> None:
        """MRTR-8: nothing is kept for it, so nothing is used up."""
        era = new_era()
        asked = asking(received(era, stamped()), SEAT)
        (seat,) = asked["inputRequests"]
        again = stamped() | {"inputResponses": {seat: 1}, "requestState": asked["requestState"]}
        assert [asking(received(era, again, identity=n), SEAT) for n in range(3)] == [[1], [1], [1]]

    def test_responses_without_a_state_are_answers_too(self) -> None:
        """MRTR-9: a client that was asked everything in the first round has no earlier answers to bring."""
        asked = asking(received(new_era(), stamped()), SEAT)
        (seat,) = asked["inputRequests"]
        assert asking(received(new_era(), stamped() | {"inputResponses": {seat: 1}}), SEAT) == [1]

    def test_unknown_answers_are_ignored_and_missing_ones_asked_again(self) -> None:
        """MRTR-9: not an error."""
        era = new_era()
        asked = asking(received(era, stamped()), SEAT)
        again = stamped() | {"inputResponses": {"who": 1}, "requestState": asked["requestState"]}
        assert asking(received(era, again), SEAT)["inputRequests"] == asked["inputRequests"]

    @pytest.mark.parametrize("responses", [7, "x", [], None, [{}], True])
    def test_malformed_responses_are_an_error(self, responses: Any) -> None:
        """MRTR-9: -32602."""
        call = received(new_era(), stamped() | {"inputResponses": responses})
        with pytest.raises(InvalidParams):
            call.era.recall(call)

    @pytest.mark.parametrize("state", [7, [], {}, True])
    def test_a_state_that_is_no_text_is_an_error(self, state: Any) -> None:
        """MRTR-6: before anything runs."""
        assert refusal_of(new_era(), stamped() | {"requestState": state}).own_code == -32602

    def recalled(self, era: Stateless, params: dict[str, Any], **who: Any) -> Any:
        call = received(era, params, **who)
        return call.era.recall(call)

    def test_a_state_that_was_touched_is_refused(self) -> None:
        """MRTR-6: every letter of it counts."""
        era = new_era()
        state = asking(received(era, stamped()), SEAT)["requestState"]
        for place in range(0, len(state), 7):
            forged = state[:place] + ("A" if state[place] != "A" else "B") + state[place + 1 :]
            with pytest.raises(Tampered):
                self.recalled(era, stamped() | {"requestState": forged})
        for forged in ("", "x", state + "A", state[:-4], "{}"):
            with pytest.raises(Tampered):
                self.recalled(era, stamped() | {"requestState": forged})

    def test_a_state_belongs_to_its_principal_and_request(self) -> None:
        """MRTR-7: neither another user, nor other arguments, nor another tool or method may use it."""
        era = new_era()
        state = asking(received(era, stamped(), principal="alice"), SEAT)["requestState"]
        mine = {"requestState": state}
        self.recalled(era, stamped() | mine, principal="alice")
        for who in ("bob", None, ""):
            with pytest.raises(Tampered):
                self.recalled(era, stamped() | mine, principal=who)
        for changed in ({"name": "t", "arguments": {"a": 2}}, {"name": "u", "arguments": {"a": 1}}, {"name": "t"}):
            with pytest.raises(Tampered):
                self.recalled(era, stamped(changed) | mine, principal="alice")
        state = asking(received(era, stamped({"name": "t"}), principal="alice"), SEAT)["requestState"]
        with pytest.raises(Tampered):
            self.recalled(
                era, stamped({"name": "t"}) | {"requestState": state}, method="prompts/get", principal="alice"
            )

    def test_a_state_belongs_to_its_server_in_every_version(self) -> None:
        """MRTR-7: with the same keys another server cannot open it, and a newer version of the same can."""
        mine = {"requestState": asking(received(new_era(), stamped()), SEAT)["requestState"]}
        self.recalled(new_era(implementation=Implementation(name="s", version="10")), stamped() | mine)
        for other in (Implementation(name="t", version="9"), None):
            with pytest.raises(Tampered):
                self.recalled(new_era(implementation=other), stamped() | mine)

    def test_a_state_that_is_none_is_refused_before_the_params_are_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        era = new_era()
        monkeypatch.setattr(Stateless, "_binding", lambda *_: pytest.fail("the params were read"))
        for state in ("", "nope", "x" * 70_000, "AQ" * 40):
            with pytest.raises(Tampered):
                self.recalled(era, stamped() | {"requestState": state})

    def test_metadata_and_responses_may_differ_on_the_retry(self) -> None:
        """MRTR-4 MRTR-7: a retry has another id, other metadata and new responses, and its keys in any order."""
        era = new_era()
        state = asking(received(era, stamped()), SEAT)["requestState"]
        retry = {
            "requestState": state,
            "arguments": {"a": 1},
            "inputResponses": {"x": 1},
            "_meta": {CAPABILITIES: EVERYTHING, VERSION: R5, "progressToken": 9, "traceparent": "00-x"},
            "name": "t",
        }
        assert self.recalled(era, retry, identity="new").responses.keys() == {"x"}

    def test_a_state_grows_old(self) -> None:
        """MRTR-7: after ten minutes it is refused, also as the last of several rounds."""
        watch = Watch()
        era = new_era(watch)
        state = asking(received(era, stamped()), SEAT)["requestState"]
        watch.now += 599.9
        self.recalled(era, stamped() | {"requestState": state})
        watch.now += 0.2
        with pytest.raises(Expired):
            self.recalled(era, stamped() | {"requestState": state})

    def test_a_key_that_is_unknown_opens_nothing_and_an_old_one_still_does(self) -> None:
        """MRTR-6: keys can be changed without a gap."""
        old, new = "o" * 32, "n" * 32
        state = asking(received(new_era(keys=(old,)), stamped()), SEAT)["requestState"]
        self.recalled(new_era(keys=(new, old)), stamped() | {"requestState": state})
        with pytest.raises(Tampered):
            self.recalled(new_era(keys=(new,)), stamped() | {"requestState": state})

    def test_every_state_has_a_nonce_of_its_own(self) -> None:
        era = new_era(Watch())
        states = {asking(received(era, stamped()), SEAT)["requestState"] for _ in range(5)}
        assert len(states) == 5

    def test_a_journal_that_is_too_large_names_its_largest_entry(self) -> None:
        era = new_era(max_size=2000)
        asked = asking(received(era, stamped()), SEAT)
        (seat,) = asked["inputRequests"]
        again = stamped() | {"inputResponses": {seat: "x" * 5000}, "requestState": asked["requestState"]}
        call = received(era, again)
        answers = call.answers = era.recall(call)
        answers.find(answers.key_for(SEAT), SEAT)
        with pytest.raises(Internal, match=seat):
            era.pause(call, Need([("meal", MEAL)]))

    @settings(deadline=None)
    @given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4), st.text(max_size=8))
    def test_any_arguments_find_their_state_again(self, arguments: dict[str, Any], name: str) -> None:
        """MRTR-7: the binding is to what they say, not to how they are written."""
        era = new_era()
        params = stamped({"name": name, "arguments": arguments})
        state = asking(received(era, params), SEAT)["requestState"]
        turned = stamped({"arguments": dict(reversed(arguments.items())), "name": name})
        assert self.recalled(era, turned | {"requestState": state}).responses == {}


class TestResults:
    RESULTS = (
        EmptyResult(),
        CallToolResult(content=[TextContent("t")]),
        GetPromptResult(messages=[]),
        CompleteResult(completion=Completion(values=[])),
        ListToolsResult(tools=[]),
        ReadResourceResult(contents=[]),
        DiscoverResult(supported_versions=[R5], capabilities=ServerCapabilities()),
    )

    @pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
    def test_every_result_names_its_kind_and_its_server(self, result: Result) -> None:
        """RPC-16 RPC-18 STL-7 DISC-2: resultType and serverInfo, whatever else there is."""
        call = received(new_era(), stamped())
        shaped = written(call.era.shape_result(call, result))
        assert shaped["resultType"] == "complete"
        assert shaped["_meta"] == SERVER_INFO

    def test_a_method_with_nothing_to_return_says_just_that(self) -> None:
        """RPC-18: also an extension's that gives None or a plain object."""
        call = received(new_era(), stamped())
        nothing = {"resultType": "complete", "_meta": SERVER_INFO}
        assert written(call.era.shape_result(call, EmptyResult())) == nothing
        assert written(call.era.shape_result(call, None)) == nothing
        assert written(call.era.shape_result(call, {})) == nothing
        given = {"n": 1, "_meta": {"x": 2}, "resultType": "task"}
        assert written(call.era.shape_result(call, given)) == {
            "n": 1,
            "resultType": "task",
            "_meta": {**SERVER_INFO, "x": 2},
        }

    def test_the_servers_name_may_be_kept_back(self) -> None:
        """STL-7: switched off, no result has it."""
        call = received(new_era(implementation=None), stamped())
        assert written(call.era.shape_result(call, EmptyResult())) == {"resultType": "complete"}
        assert "_meta" not in asking(call, SEAT)

    def test_a_results_own_metadata_stays(self) -> None:
        """META-1: beside the server's."""
        call = received(new_era(), stamped())
        shaped = written(call.era.shape_result(call, CallToolResult(content=[], meta={"com.example/x": [1]})))
        assert shaped["_meta"] == {**SERVER_INFO, "com.example/x": [1]}

    @pytest.mark.parametrize("kind", [lambda meta: CallToolResult(content=[], meta=meta), lambda meta: {"_meta": meta}])
    def test_a_result_that_names_another_server_is_taken_at_its_word(self, kind: Any) -> None:
        """META-1: a handler that passes on a result says who made it."""
        own = {PREFIX + "serverInfo": {"name": "other", "version": "1"}}
        call = received(new_era(), stamped())
        assert written(call.era.shape_result(call, kind(own)))["_meta"] == own

    CACHEABLE = (
        DiscoverResult(supported_versions=[], capabilities=ServerCapabilities()),
        ListToolsResult(tools=[]),
        ListPromptsResult(prompts=[]),
        ListResourcesResult(resources=[]),
        ListResourceTemplatesResult(resource_templates=[]),
        ReadResourceResult(contents=[]),
    )

    @pytest.mark.parametrize("result", CACHEABLE, ids=lambda result: type(result).__name__)
    def test_what_can_be_kept_says_how_long_and_by_whom(self, result: Any) -> None:
        """CACHE-1: the server's hints, or those of the result itself."""
        era = new_era(hints=CacheHints(5000, "public"))
        call = received(era, stamped())
        own = msgspec.structs.replace(result, ttl_ms=7, cache_scope="private")
        shaped = written(era.shape_result(call, msgspec.structs.replace(result)))
        assert (shaped["ttlMs"], shaped["cacheScope"]) == (5000, "public")
        shaped = written(era.shape_result(call, own))
        assert (shaped["ttlMs"], shaped["cacheScope"]) == (7, "private")
        plain = written(new_era().shape_result(call, msgspec.structs.replace(result)))
        assert (plain["ttlMs"], plain["cacheScope"]) == (0, "private")

    def test_what_cannot_be_kept_says_nothing_of_it(self) -> None:
        """CACHE-1 MRTR-11: neither a tool's result nor a question has hints."""
        era = new_era(hints=CacheHints(5000, "public"))
        call = received(era, stamped())
        assert "ttlMs" not in written(era.shape_result(call, CallToolResult(content=[])))
        assert not {"ttlMs", "cacheScope"} & asking(call, SEAT).keys()

    def test_a_plain_result_gets_the_same_form_as_any_other(self) -> None:
        """STL-7: its members are written ahead, what stands before them is not."""
        for era in (new_era(), new_era(implementation=None)):
            call = received(era, stamped())
            plain = PlainResult(b'"content":[{"type":"text","text":"7"}],"structuredContent":{"result":7}', 7)
            assert written(era.shape_result(call, plain)) == written(era.shape_result(call, plain.whole()))
            contents = PlainContents(b'"contents":[{"uri":"a://b","mimeType":"text/plain","text":"x"}]')
            text = ResourceContents(uri="a://b", mime_type="text/plain", text="x")
            whole = ReadResourceResult(contents=[text])
            assert written(era.shape_result(call, contents)) == written(era.shape_result(call, whole))

    def test_a_results_own_metadata_comes_before_the_servers(self) -> None:
        """META-1: a handler that names another server is not overruled."""
        call = received(new_era(), stamped())
        own = {PREFIX + "serverInfo": {"name": "behind", "version": "1"}}
        assert written(call.era.shape_result(call, CallToolResult(content=[], meta=own)))["_meta"] == own
        assert written(call.era.shape_result(call, {"_meta": own}))["_meta"] == own

    def test_what_is_encoded_already_was_shaped_before(self) -> None:
        call = received(new_era(), stamped())
        raw = Raw(b'{"tools":[]}')
        assert call.era.shape_result(call, raw) is raw


class TestTasks:
    EXTENSION = "io.modelcontextprotocol/tasks"

    def test_a_call_may_become_a_task_where_the_client_declares_the_extension(self) -> None:
        era = new_era()
        for declared, wish in (({}, TaskWish.NO), ({"extensions": {self.EXTENSION: {}}}, TaskWish.ALLOWED)):
            call = received(era, stamped(None, declared))
            assert era.task_wish(call) is wish
            if wish is TaskWish.ALLOWED:
                era.admit_to_tasks(call)
            else:
                with pytest.raises(MissingCapability):
                    era.admit_to_tasks(call)

    def test_a_tool_that_runs_as_a_task_only_names_the_extension(self) -> None:
        why = new_era().task_demanded("pack")
        assert isinstance(why, MissingCapability)
        assert why.message == "The tool pack runs as a task only"
        assert why.data == {"requiredCapabilities": {"extensions": {self.EXTENSION: {}}}}

    def test_a_question_inside_a_result_says_nothing_of_a_cache(self) -> None:
        """MRTR-11: nor does a cacheable result that is none yet."""
        era = new_era(hints=CacheHints(5000, "public"))
        shaped = written(
            era.shape_result(received(era, stamped()), ListToolsResult(tools=[], result_type="input_required"))
        )
        assert not {"ttlMs", "cacheScope"} & shaped.keys()
        assert shaped["resultType"] == "input_required"
