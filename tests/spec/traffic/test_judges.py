"""The judges can fail: what is said wrongly is refused, and the matrix they use is that of the official schemas."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import traffic_matrix as matrix
import traffic_schemas
from traffic_record import EXTENSION, R1, R2, R3, R4, R5, REVISIONS, Said
from traffic_run import local_traffic
from traffic_schemas import SchemaJudge, definitions
from traffic_types import TypesJudge

Judge = TypesJudge | SchemaJudge
Place = tuple[str | int, ...]

USERS_OWN = {"_meta", "arguments", "structuredContent", "inputSchema", "outputSchema", "data", "experimental"} | {
    *("extensions", "metadata", "input", "properties", "inputRequests", "inputResponses", "completions", "logging")
}
"""Members that hold what users, extensions or tools say: a judge lets them say it."""

FORMS_CONTENT = ("result", "content")

by_revision = pytest.mark.parametrize("revision", REVISIONS)


def judges(revision: str) -> list[Judge]:
    """Return the judges that are here."""
    found: list[Judge] = [TypesJudge(revision)]
    if traffic_schemas.available(revision):
        found.append(SchemaJudge(revision))
    return found


def examples(revision: str) -> list[Said]:
    """Return one good message of every kind, the one with the most in it."""
    judge, best = TypesJudge(revision), {}
    for said in sorted(local_traffic(revision).said, key=lambda said: len(str(said.message)), reverse=True):
        ours = EXTENSION not in (said.answers, said.message.get("method"))
        if ours and str(said) not in best and not judge.complaints(said):
            best[str(said)] = said
    return list(best.values())


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the place of every member that is ours to name."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield (*path, key)
            if isinstance(part, list) or (key not in USERS_OWN and (*path, key) != FORMS_CONTENT):
                yield from places(part, (*path, key))
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield from places(part, (*path, at))


def changed(said: Said, place: Place, change: Callable[[dict[str, Any], str], None]) -> Said:
    """Return the message with one member changed."""
    message = copy.deepcopy(said.message)
    holder: Any = message
    for step in place[:-1]:
        holder = holder[step]
    change(holder, str(place[-1]))
    return Said(said.sender, message, said.answers, said.early)


def rename(holder: dict[str, Any], key: str) -> None:
    """Misspell a member."""
    holder[f"{key}X"] = holder.pop(key)


def nullify(holder: dict[str, Any], key: str) -> None:
    """Say null where something else is meant."""
    holder[key] = None


def add(holder: dict[str, Any], key: str) -> None:
    """Say something nobody has defined."""
    holder["nobodyDefinedThis"] = 1


def mutations(said: Said, change: Callable[[dict[str, Any], str], None]) -> Iterator[tuple[Place, Said]]:
    """Yield the message with each of its members changed in turn."""
    for place in places(said.message):
        if place[-1] != "error" or len(place) > 1:
            yield place, changed(said, place, change)


MAY_BE_NULL = {"data", "structuredContent"}


@by_revision
@pytest.mark.parametrize("change", [rename, nullify, add])
def test_a_spoilt_message_is_refused(revision: str, change: Callable[[dict[str, Any], str], None]) -> None:
    survivors = []
    tried = 0
    for judge in judges(revision):
        for said in examples(revision):
            for place, spoilt in mutations(said, change):
                if is_no_harm(said, place, change):
                    continue
                tried += 1
                if not refused(judge, spoilt):
                    survivors.append(f"{type(judge).__name__}: {said}: {change.__name__} {place}")
    assert survivors == []
    assert tried > 300


def is_no_harm(said: Said, place: Place, change: Callable[[dict[str, Any], str], None]) -> bool:
    """Return whether a change is one that a judge may let pass: some values may be null, and so may an error's id."""
    nameless = said.kind == "error" and place == ("id",)
    return nameless or (change is nullify and place[-1] in MAY_BE_NULL)


def refused(judge: Judge, said: Said) -> bool:
    """Return whether a judge complains, or cannot even read the message."""
    try:
        return bool(judge.complaints(said))
    except (KeyError, TypeError, AttributeError):
        return True


@by_revision
def test_a_message_in_the_wrong_direction_is_refused(revision: str) -> None:
    one_way = {"tools/list", "tools/call", "initialize", "server/discover", "roots/list", "sampling/createMessage"}
    turned = [
        Said("server" if said.sender == "client" else "client", said.message, said.answers)
        for said in local_traffic(revision).said
        if said.kind == "request" and said.name in one_way
    ]
    assert len({said.name for said in turned}) >= 3
    for judge in judges(revision):
        for said in turned:
            assert any(" request " in complaint and "no request" in complaint for complaint in judge.complaints(said))


@by_revision
def test_a_result_for_another_method_is_refused(revision: str) -> None:
    others = {"tools/list": "prompts/list", "prompts/list": "resources/list", "tools/call": "prompts/get"}
    crossed = [
        Said(said.sender, said.message, others[said.answers])
        for said in examples(revision)
        if said.kind == "result" and said.answers in others
    ]
    assert len(crossed) == len(others)
    for judge in judges(revision):
        assert [str(said) for said in crossed if not judge.complaints(said)] == []


@pytest.mark.parametrize(
    ("said_in", "judged_in", "method"),
    [
        (R2, R1, "tools/list"),
        (R3, R2, "tools/list"),
        (R4, R3, "tools/list"),
        (R5, R4, "tools/list"),
        (R4, R5, "tools/list"),
        (R3, R2, "tools/call"),
        (R4, R3, "initialize"),
        (R4, R3, "prompts/list"),
        (R3, R2, "resources/list"),
    ],
)
def test_a_result_of_another_revision_is_refused(said_in: str, judged_in: str, method: str) -> None:
    said = [s for s in local_traffic(said_in).of("server", "result") if s.answers == method]
    assert said
    for judge in judges(judged_in):
        assert any(judge.complaints(s) for s in said)


@pytest.mark.parametrize("revision", [R3, R4])
def test_a_form_may_be_answered_with_a_fraction(revision: str) -> None:
    """The official schemas say integer where a number is meant."""
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept", "content": {"ratio": 1.25}}}
    for judge in judges(revision):
        assert judge.complaints(Said("client", answer, "elicitation/create")) == []


DEFINED_AS = {
    "CompleteRequestParams": ("CompleteRequest", "params"),
    "ProgressNotificationParams": ("ProgressNotification", "params"),
    "CreateMessageRequestParams": ("CreateMessageRequest", "params"),
    "CallToolRequestParams": ("CallToolRequest", "params"),
    "ElicitRequestFormParams": ("ElicitRequest", "params"),
    "Sampling": ("ClientCapabilities", "sampling"),
    "Elicitation": ("ClientCapabilities", "elicitation"),
}
"""Where the schemas of the older revisions hide what later got a name of its own."""


def members_in(revision: str, kind: str) -> set[str]:
    """Return the members an object has in a revision, by its official schema."""
    defined = definitions(revision)
    if kind in defined:
        return set(defined[kind].get("properties", {}))
    holder, member = DEFINED_AS.get(kind, ("", ""))
    return set(defined.get(holder, {}).get("properties", {}).get(member, {}).get("properties", {}))


@pytest.mark.parametrize("revision", REVISIONS[:-1])
@pytest.mark.parametrize(("kind", "member"), matrix.MEMBER_SINCE)
def test_the_matrix_agrees_with_the_official_schemas(revision: str, kind: str, member: str) -> None:
    if not traffic_schemas.available(revision):
        pytest.skip(f"{traffic_schemas.path(revision)} is not here")
    if revision < matrix.KIND_SINCE.get(kind, revision):
        assert not members_in(revision, kind)
    else:
        assert (member in members_in(revision, kind)) == (not matrix.lacks(revision, kind, member))
