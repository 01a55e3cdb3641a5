"""All that our server and client say, recorded from real traffic and judged by the revision it was said in."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import traffic_expected as expected
import traffic_matrix as matrix
import traffic_schemas
from traffic_record import EXTENSION, R1, R2, R3, R4, R5, REVISIONS, Said, Traffic
from traffic_run import local_traffic, stdio_traffic
from traffic_types import TypesJudge

import ferrule

HANDSHAKE = REVISIONS[:-1]
META = "io.modelcontextprotocol/"
CACHEABLE = {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"} | {
    "resources/read"
}
MAY_ASK = {"tools/call", "prompts/get", "resources/read"}
LISTEN_NOTICES = {f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")} | {
    "notifications/resources/updated"
}

by_revision = pytest.mark.parametrize("revision", REVISIONS)
by_place = pytest.mark.parametrize("recording", [local_traffic, stdio_traffic], ids=["memory", "stdio"])
by_handshake = pytest.mark.parametrize("revision", HANDSHAKE)

Recording = Callable[[str], Traffic]


def refuse_flaws(complaints: Callable[[Said], list[str]], traffic: Traffic) -> None:
    """Fail with all that is wrong, each kind of flaw once, with the first message that has it."""
    found: dict[str, dict[str, Any]] = {}
    for said in traffic.said:
        for complaint in complaints(said):
            found.setdefault(complaint, said.message)
    if found:
        page = "\n".join(f"{complaint}\n    in {str(message)[:300]}" for complaint, message in found.items())
        pytest.fail(f"{traffic}:\n{page}", pytrace=False)


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object within a value."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(part)


def results(traffic: Traffic, methods: Iterable[str] | None = None) -> list[Said]:
    """Return the server's results, all of them or those of some methods."""
    return [said for said in traffic.of("server", "result") if methods is None or said.answers in methods]


# What the judges say


@by_place
@by_revision
def test_every_message_fits_the_models_of_mcp_types(revision: str, recording: Recording) -> None:
    """RPC-1 RPC-2 RPC-6 RPC-18 CAP-1 CAP-2 LIFE-1 LIFE-2 SESS-23 ERRC-27 TOOL-2 TOOL-3 TOOL-4 TOOL-5 TOOL-06 RES-2
    RES-3 RES-11 TMPL-1 PROMPT-2 PROMPT-3 COMP-2 LOG-2 PROG-2 ROOT-2 SAMP-2 SAMP-3 SAMP-4 ELIC-3 ELIC-4 ELIC-5 ELIC-8
    MRTR-2 SUB-1 DISC-1 DISC-2 spec:TOOL-10
    """
    refuse_flaws(TypesJudge(revision).complaints, recording(revision))


@by_place
@by_revision
def test_every_message_fits_the_official_schema(revision: str, recording: Recording) -> None:
    if not traffic_schemas.available(revision):
        pytest.skip(f"{traffic_schemas.path(revision)} is not here")
    judge = traffic_schemas.SchemaJudge(revision)
    traffic = recording(revision)
    refuse_flaws(judge.complaints, traffic)
    assert not [flaw for array in traffic.arrays for flaw in judge.array_complaints(*array)]


# That everything was said


@by_revision
def test_every_method_of_the_revision_is_exercised(revision: str) -> None:
    assert sorted(set(expected.methods(revision)) - local_traffic(revision).sayings) == []


def test_what_is_listed_as_never_sent_is_sent_by_nobody() -> None:
    sending = [path.name for path in SOURCE.rglob("*.py") if SENDING.search(path.read_text(encoding="utf-8"))]
    assert sending == []
    for revision in REVISIONS:
        assert not expected.NEVER_SENT.keys() & local_traffic(revision).sayings


SOURCE = Path(ferrule.__file__).parent
SENDING = re.compile(r"(?<!call\.)channel\.send\(Notification\(PROGRESS")


@by_revision
def test_over_stdio_as_much_is_said_as_in_memory(revision: str) -> None:
    """STDI-01"""
    unheard = {("server", "result", "subscriptions/listen")}  # said when the client has stopped listening
    missing = set(expected.methods(revision)) - stdio_traffic(revision).sayings
    assert sorted(missing - (set(expected.methods(revision)) - local_traffic(revision).sayings) - unheard) == []


@pytest.mark.parametrize("revision", [R4, R5])
def test_every_member_of_what_is_said_is_said_at_least_once(revision: str) -> None:
    """ICON-1"""
    judge, traffic = TypesJudge(revision), local_traffic(revision)
    for said in traffic.said:
        judge.complaints(said)
    assert sorted(expected.members(revision, traffic.sayings) - judge.seen) == []


@by_revision
def test_every_error_the_revision_has_is_sent_and_no_other(revision: str) -> None:
    """ERR-2 ERR-3 ERR-5 ELIC-10"""
    traffic = local_traffic(revision)
    assert {int(code) for code in traffic.names("server", "error")} == expected.SERVER_CODES[revision]
    assert {int(code) for code in traffic.names("client", "error")} == expected.CLIENT_CODES[revision]


@by_revision
def test_results_hold_every_kind_of_content_the_revision_has(revision: str) -> None:
    """PROMPT-4 spec:TOOL-12"""
    for method in ("tools/call", "prompts/get"):
        said = results(local_traffic(revision), [method])
        for found in walk([s.message for s in said]):
            assert base64.b64decode(found.get("blob", found.get("data", "")), validate=True) is not None
        assert {kind for s in said for kind in expected.block_kinds(s.message)} - TOOL_BLOCKS == expected.BLOCKS[
            revision
        ]


TOOL_BLOCKS = {"tool_use", "tool_result"}


@by_revision
def test_metadata_survives_wherever_the_revision_has_it(revision: str) -> None:
    """META-1"""
    judge = TypesJudge(revision)
    for said in local_traffic(revision).said:
        judge.complaints(said)
    kinds = {kind for kind, since in METADATA_SINCE.items() if revision >= since}
    assert sorted(kinds - {kind for kind, member in judge.seen if member == "_meta"}) == []


METADATA_SINCE = {
    **dict.fromkeys(("CallToolRequestParams", "GetPromptResult", "CallToolResult"), R1),
    **dict.fromkeys((*matrix.LISTED, *matrix.BLOCKS, *matrix.CONTENTS, "ResourceLink", "Root"), R3),
    **dict.fromkeys(("SamplingMessage", "ToolUseContent", "ToolResultContent"), R4),
    "CreateMessageResult": R1,
    "ResourceUpdatedNotificationParams": R1,
}
"""Where users put metadata in this traffic, and since when they may."""


@pytest.mark.parametrize("revision", REVISIONS[2:])
def test_only_an_accepted_form_has_content(revision: str) -> None:
    """ELIC-7"""
    answers = [
        found
        for said in local_traffic(revision).said
        if said.sender == "client"
        for found in walk(said.message)
        if "action" in found
    ]
    assert {found["action"] for found in answers} == {"accept", "decline"}
    assert all("content" not in found for found in answers if found["action"] == "decline")
    assert any("content" in found for found in answers)


# What holds in every revision


@by_place
@by_revision
def test_every_response_answers_a_request_and_repeats_its_id(revision: str, recording: Recording) -> None:
    """RPC-5 RPC-6"""
    for said in recording(revision).said:
        if said.kind == "result" or (said.kind == "error" and said.message.get("id") is not None):
            assert said.answers or said.message["id"] in range(10), said.message


@by_handshake
def test_a_session_uses_each_id_once(revision: str) -> None:
    """RPC-3"""
    traffic = stdio_traffic(revision)
    for sender in ("client", "server"):
        ids = [said.message["id"] for said in traffic.of(sender, "request")]
        assert len(ids) == len(set(ids))


@by_revision
def test_an_error_is_one_short_sentence_under_an_integer(revision: str) -> None:
    """RPC-7"""
    for sender in ("client", "server"):
        for said in local_traffic(revision).of(sender, "error"):
            error = said.message["error"]
            assert type(error["code"]) is int
            assert 0 < len(error["message"]) < 300
            assert "\n" not in error["message"]


@by_revision
def test_only_one_revision_has_arrays(revision: str) -> None:
    """RPC-12 RPC-13 BATC-09"""
    traffic = local_traffic(revision)
    refusals = [said for said in traffic.of("server", "error") if "batches" in said.message["error"]["message"]]
    if revision == R2:
        assert {sender for sender, _ in traffic.arrays} == {"client", "server"}
    else:
        assert traffic.arrays == []
        assert {said.name for said in refusals} == {"-32600"}
    assert not [m for _, messages in traffic.arrays for m in messages if m.get("method") == "initialize"]


@by_place
def test_an_array_is_answered_by_an_array_with_an_answer_to_each_request(recording: Recording) -> None:
    """RPC-11 BATC-02"""
    arrays = recording(R2).arrays
    asked = next(messages for sender, messages in arrays if sender == "client")
    answers = next(messages for sender, messages in arrays if sender == "server")
    assert {m["id"] for m in asked if "id" in m} == {m["id"] for m in answers}
    assert any("id" not in m for m in asked)
    assert all("method" not in m for m in answers)


@by_place
@by_revision
def test_a_cancellation_names_a_request_of_its_sender_that_runs(revision: str, recording: Recording) -> None:
    """CANC-1 CANC-01"""
    told = 0
    for conversation in conversations(recording(revision)):
        running: set[tuple[str, Any]] = set()
        for said in conversation:
            other = "server" if said.sender == "client" else "client"
            if said.kind == "request":
                running.add((said.sender, said.message["id"]))
            elif said.name == "notifications/cancelled":
                told += 1
                assert (said.sender, said.message["params"]["requestId"]) in running
                assert said.message["params"]["reason"]
            running.discard((other, said.message.get("id")))
    assert told


@by_revision
def test_what_was_cancelled_is_not_answered(revision: str) -> None:
    """STDIO-8"""
    for conversation in conversations(stdio_traffic(revision)):
        cancelled: set[tuple[str, Any]] = set()
        for said in conversation:
            if said.name == "notifications/cancelled":
                cancelled.add((said.sender, said.message["params"]["requestId"]))
            elif said.kind in {"result", "error"}:
                assert ("server" if said.sender == "client" else "client", said.message.get("id")) not in cancelled


def conversations(traffic: Traffic) -> list[list[Said]]:
    """Take the traffic apart where a client opens a conversation."""
    parts: list[list[Said]] = [[]]
    for said in traffic.said:
        if said.sender == "client" and said.name in {"initialize", "server/discover"} and said.message.get("id") == 1:
            parts.append([])
        parts[-1].append(said)
    return parts


@by_place
@by_revision
def test_progress_grows_until_its_request_is_answered(revision: str, recording: Recording) -> None:
    """PROG-3"""
    told: list[float] = []
    running: set[Any] = set()
    for said in recording(revision).said:
        if said.kind == "request":
            running.add((said.message.get("params") or {}).get("_meta", {}).get("progressToken"))
        elif said.name == "notifications/progress":
            assert said.message["params"]["progressToken"] in running
            told.append(said.message["params"]["progress"])
        elif said.sender == "server":
            running.discard(said.message.get("id"))
    assert told == [1, 1.5, 3]


@by_revision
def test_every_level_of_logging_is_sent_with_any_data(revision: str) -> None:
    """LOG-2 LOGG-01"""
    notices = [s.message["params"] for s in local_traffic(revision).said if s.name == "notifications/message"]
    assert {notice["level"] for notice in notices} == set(LEVELS)
    assert {type(notice["data"]) for notice in notices} == {dict, str, type(None)}
    assert {notice.get("logger") for notice in notices} == {"traffic", None}


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


# What only one era has


@by_place
@by_handshake
def test_the_handshake_era_knows_nothing_of_the_stateless_one(revision: str, recording: Recording) -> None:
    for said in recording(revision).said:
        for found in walk(said.message):
            assert not found.keys() & {"resultType", "ttlMs", "cacheScope", "inputRequests", "requestState"}, (
                said.message
            )
            assert not [key for key in found if key.startswith(META)], said.message


@by_place
@by_handshake
def test_the_client_alone_says_that_it_is_initialized(revision: str, recording: Recording) -> None:
    """LIFE-3 LIFE-4"""
    for conversation in conversations(recording(revision))[1:]:
        opening = [str(said) for said in conversation if said.sender == "client"][:2]
        assert opening == ["client request initialize", "client notification notifications/initialized"]
    assert ("server", "notification", "notifications/initialized") not in recording(revision).sayings


@by_place
def test_a_stateless_request_says_who_asks(recording: Recording) -> None:
    """STL-1 STL-2 STL-3 VER-6"""
    requests = recording(R5).of("client", "request")
    for said in requests:
        meta = said.message["params"]["_meta"]
        assert meta[f"{META}protocolVersion"] == R5
        assert isinstance(meta[f"{META}clientCapabilities"], dict)
        assert meta[f"{META}clientInfo"]["name"] == "ferrule"
    assert any("progressToken" in said.message["params"]["_meta"] for said in requests)
    assert any(f"{META}logLevel" in said.message["params"]["_meta"] for said in requests)


@by_place
def test_a_stateless_result_says_its_kind_and_who_made_it(recording: Recording) -> None:
    """RPC-16 STL-7 DISC-2 MRTR-1"""
    for said in results(recording(R5)):
        result = said.message["result"]
        assert result["resultType"] in {"complete", "input_required"}
        assert result["resultType"] == "complete" or said.answers in MAY_ASK
        assert result["_meta"][f"{META}serverInfo"]["name"] == "traffic"


@by_place
def test_a_stateless_result_has_cache_hints_where_it_may_be_kept_and_nowhere_else(recording: Recording) -> None:
    """CACHE-1"""
    for said in results(recording(R5)):
        hints = said.message["result"].keys() & {"ttlMs", "cacheScope"}
        kept = said.answers in CACHEABLE and said.message["result"]["resultType"] == "complete"
        assert hints == ({"ttlMs", "cacheScope"} if kept else set()), said.message


@by_place
def test_a_stateless_server_asks_nothing_and_a_client_answers_nothing(recording: Recording) -> None:
    """RPC-14 STDIO-6"""
    traffic = recording(R5)
    assert traffic.of("server", "request") == []
    assert traffic.of("client", "result") == []
    assert {str(said) for said in traffic.of("client", "error")} == set()


@by_place
def test_a_stateless_client_sends_no_ping(recording: Recording) -> None:
    assert ("client", "request", "ping") not in recording(R5).sayings


def test_a_stateless_server_knows_no_ping() -> None:
    """PING-3"""
    answers = [said for said in local_traffic(R5).said if said.answers == "ping"]
    assert {str(said) for said in answers} == {"server error -32601"}


@by_place
def test_every_notice_of_a_listening_carries_its_id(recording: Recording) -> None:
    """SUB-3 SUB-6"""
    acknowledged: set[Any] = set()
    told = 0
    for said in recording(R5).of("server", "notification"):
        tag = (said.message.get("params") or {}).get("_meta", {}).get(f"{META}subscriptionId")
        if said.name == "notifications/subscriptions/acknowledged":
            acknowledged.add(tag)
        elif said.name in LISTEN_NOTICES:
            told += 1
            assert tag in acknowledged, said.message
        else:
            assert tag is None
    assert told


def test_the_server_ends_a_listening_with_its_result() -> None:
    """SUB-9 SUB-10"""
    traffic = local_traffic(R5)
    (ended,) = results(traffic, ["subscriptions/listen"])
    assert ended.message["result"]["_meta"][f"{META}subscriptionId"] == ended.message["id"]
    assert ("server", "notification", "notifications/cancelled") not in traffic.sayings


@by_place
def test_a_retry_repeats_its_request_with_the_answers_under_a_new_id(recording: Recording) -> None:
    """MRTR-4 MRTR-5"""
    traffic = recording(R5)
    asked = {said.message["id"]: said.message for said in traffic.of("client", "request")}
    states = {
        said.message["result"]["requestState"]: (asked[said.message["id"]], said.message["result"])
        for said in results(traffic, MAY_ASK)
        if said.message["result"]["resultType"] == "input_required" and said.message["id"] in asked
    }
    retries = [m for m in asked.values() if "requestState" in m["params"]]
    assert len(retries) >= 10
    for retry in retries:
        first, question = states.pop(retry["params"]["requestState"])
        assert retry["id"] != first["id"]
        assert retry["params"]["inputResponses"].keys() == question["inputRequests"].keys()
        assert plain(retry) == plain(first)


def plain(request: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a round adds."""
    params = {key: value for key, value in request["params"].items() if key not in {"inputResponses", "requestState"}}
    return {**request, "id": None, "params": params}


@by_revision
def test_an_extension_is_spoken_in_the_frame_of_its_revision(revision: str) -> None:
    (result,) = results(local_traffic(revision), [EXTENSION])
    assert ("resultType" in result.message["result"]) == (revision == R5)


def test_the_oldest_revision_completes_without_a_capability() -> None:
    """COMP-2"""
    traffic = local_traffic(R1)
    (opened,) = results(stdio_traffic(R1), ["initialize"])
    assert "completions" not in opened.message["result"]["capabilities"]
    assert ("client", "request", "completion/complete") in traffic.sayings
