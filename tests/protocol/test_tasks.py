"""How either era speaks of tasks, without a loop."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from ferrule.errors import InvalidParams, MethodNotFound
from ferrule.protocol.handshake import REVISIONS as HANDSHAKE_REVISIONS
from ferrule.protocol.handshake import Handshake
from ferrule.protocol.needs import Question
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.protocol.tasks import first_form, input_request, related, wanted
from ferrule.schema.model import EmptyResult
from ferrule.schema.tasks import CancelTaskResult, CreateTaskResult, Task

RELATED = "io.modelcontextprotocol/related-task"


@pytest.mark.parametrize(
    ("raw", "ttl"), [(b"{}", None), (b'{"ttl":5}', 5), (b'{"ttl":0}', 0), (b'{"ttl":1.5,"x":1}', 1.5)]
)
def test_a_wish_for_a_task_is_read(raw: bytes, ttl: Any) -> None:
    """TSKX-2"""
    assert wanted(Raw(raw)).ttl == ttl


def test_no_wish_leaves_it_to_the_server() -> None:
    assert wanted(UNSET).ttl is None


@pytest.mark.parametrize("raw", [b"[]", b"1", b'{"ttl":"x"}', b'{"ttl":-1}', b"null"])
def test_a_malformed_wish_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidParams, match="Invalid task"):
        wanted(Raw(raw))


def test_one_revision_of_the_handshake_era_has_tasks() -> None:
    """TSKX-1, COMPAT-8"""
    assert [version for version, each in HANDSHAKE_REVISIONS.items() if each.tasks_by_request] == ["2025-11-25"]
    assert not STATELESS.tasks_by_request


def test_a_question_of_a_task_says_so_and_keeps_what_it_said() -> None:
    """TSKX-8"""
    question = Question("sampling/createMessage", {"maxTokens": 1, "_meta": {"a": 1}}, "k")
    told = related(question, "t")
    assert told.params == {"maxTokens": 1, "_meta": {"a": 1, RELATED: {"taskId": "t"}}}
    assert (told.method, told.key) == (question.method, question.key)
    assert question.params["_meta"] == {"a": 1}


def test_a_question_inside_a_result_has_no_id() -> None:
    assert msgspec.to_builtins(input_request(Question("roots/list", {}))) == {"method": "roots/list"}
    asked = input_request(Question("elicitation/create", {"message": "?", "elicitationId": "1"}))
    assert msgspec.json.decode(asked.params) == {"message": "?"}


def test_the_first_form_has_other_names_for_times_and_no_outcome() -> None:
    task = Task(
        task_id="t",
        status="completed",
        created_at="c",
        last_updated_at="u",
        ttl_ms=None,
        poll_interval_ms=5,
        result=Raw(b"{}"),
        result_type="complete",
        meta={"a": 1},
    )
    assert msgspec.json.decode(msgspec.json.encode(first_form(task))) == {
        "taskId": "t",
        "status": "completed",
        "createdAt": "c",
        "lastUpdatedAt": "u",
        "ttl": None,
        "pollInterval": 5,
    }


def test_a_cancellation_is_only_acknowledged_in_the_second_form() -> None:
    """TASK-13"""
    cancelled = CancelTaskResult(task_id="t", status="cancelled", result_type="complete", meta={"a": 1})
    assert STATELESS.trim(cancelled) == EmptyResult(result_type="complete", meta={"a": 1})


def test_a_new_task_had_an_envelope_first() -> None:
    task = CreateTaskResult(task_id="t", status="working", created_at="c", last_updated_at="u", ttl_ms=7)
    written = msgspec.json.decode(msgspec.json.encode(HANDSHAKE_REVISIONS["2025-11-25"].trim(task)))
    assert written == {
        "task": {"taskId": "t", "status": "working", "createdAt": "c", "lastUpdatedAt": "u", "ttl": 7},
    }


def test_a_task_is_kept_for_no_longer_than_can_be_reckoned_with() -> None:
    assert wanted(Raw(b'{"ttl":0}')).ttl == 0
    assert wanted(Raw(b'{"ttl":1e300}')).ttl == 10**15


def test_a_tool_that_runs_as_a_task_only_is_not_found_by_a_plain_call() -> None:
    refusal = Handshake().task_demanded("slow")
    assert isinstance(refusal, MethodNotFound)
    assert "slow runs as a task only" in refusal.message
    assert refusal.data == {"tool": "slow"}
