"""The plain records of a conversation."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET, Raw

from ferrule.errors import MissingCapability
from ferrule.protocol.call import Awaited, Call, Peer, Revision
from ferrule.protocol.capabilities import require_extension
from ferrule.protocol.handshake import NEWEST, REVISIONS, Handshake
from ferrule.protocol.stateless import REVISIONS as STATELESS_REVISIONS
from ferrule.schema.methods import METHODS
from ferrule.schema.model import ClientCapabilities
from ferrule.wire.channel import Origin


def test_a_call_is_named_by_its_method_and_begins_unharmed() -> None:
    peer = Peer(NEWEST, ClientCapabilities())
    call = Call(1, METHODS["ping"], None, Raw(b"{}"), None, Handshake(), peer, None, Origin("test"), None)
    assert (call.method, call.cancelled, call.retry, call.task) == ("ping", False, False, None)
    assert (call.expired, call.held) == (False, 0)


def test_a_call_is_itself_and_no_other() -> None:
    """Two requests with equal members are still two requests."""
    peer = Peer(NEWEST, ClientCapabilities())
    one, other = (
        Call(1, METHODS["ping"], None, Raw(b"{}"), None, Handshake(), peer, None, Origin("test"), None)
        for _ in range(2)
    )
    assert one != other
    assert len({one, other}) == 2


def test_a_revision_trims_only_the_types_it_has_a_rule_for() -> None:
    revision = Revision("x", nameless_id=UNSET, trims={str: str.upper})
    assert revision.trim("a") == "A"
    assert revision.trim(7) == 7


def test_a_peer_speaks_the_version_of_its_revision() -> None:
    """SESS-25: the version agreed on can be read."""
    assert Peer(NEWEST, ClientCapabilities()).version == "2025-11-25"


FACTS = (
    ("2024-11-05", False, True, False, False, False),
    ("2025-03-26", True, True, False, False, False),
    ("2025-06-18", False, True, False, False, False),
    ("2025-11-25", False, True, True, True, True),
    ("2026-07-28", False, False, True, False, False),
)


@pytest.mark.parametrize(
    ("version", "batches", "two_way", "faults_in_results", "tasks_by_request", "polls"),
    FACTS,
)
def test_the_revisions_differ_in_what_they_have(
    version: str, batches: bool, two_way: bool, faults_in_results: bool, tasks_by_request: bool, polls: bool
) -> None:
    """RPC-11 RPC-13 RPC-14 BATC-09: arrays in 2025-03-26 only, requests of the server not from 2026-07-28 on."""
    revision = {**REVISIONS, **STATELESS_REVISIONS}[version]
    assert (revision.batches, revision.two_way, revision.faults_in_results) == (batches, two_way, faults_in_results)
    assert (revision.tasks_by_request, revision.polls) == (tasks_by_request, polls)


def test_a_request_of_ours_waits_without_limit_unless_told() -> None:
    awaited = Awaited(1, "ping", None, 5.0)
    assert (awaited.deadline, awaited.limit, awaited.cancellable) == (None, None, True)


def test_a_request_of_ours_is_named_by_its_method_and_what_it_asks_for() -> None:
    awaited = Awaited(1, "tools/call", None, 5.0)
    assert awaited.named == "tools/call"
    awaited.subject = "add"
    assert awaited.named == "tools/call 'add'"


@pytest.mark.parametrize(
    ("declared", "settings"),
    [(None, None), ({}, None), ({"x": {}}, {}), ({"x": {"a": 1}}, {"a": 1}), ({"x": True}, None), ({"y": {}}, None)],
)
def test_an_extension_is_declared_by_an_object(declared: dict[str, Any] | None, settings: Any) -> None:
    peer = Peer(NEWEST, ClientCapabilities(extensions=declared))
    assert peer.extension("x") == settings
    if settings is None:
        with pytest.raises(MissingCapability, match="the client extension x") as refused:
            require_extension(peer, "x")
        assert refused.value.data == {"requiredCapabilities": {"extensions": {"x": {}}}}
    else:
        require_extension(peer, "x")
