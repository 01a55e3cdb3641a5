"""The book-keeping of those who ask without a session, called as what it is: plain functions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET, Raw

from ferrule.errors import InvalidParams, MethodNotFound, Refusal, UnsupportedVersion
from ferrule.protocol.call import Call, Ignored
from ferrule.protocol.era import Eras
from ferrule.protocol.handshake import REVISIONS, Handshake
from ferrule.protocol.seal import Keyring, Seal
from ferrule.protocol.session import SessionlessSession
from ferrule.protocol.stateless import Sealing, Stateless
from ferrule.schema.methods import METHODS
from ferrule.wire.channel import ChannelDefaults, Origin
from ferrule.wire.messages import Failure, Notification, Request, Success

MODERN = b'"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}'
SEALING = Sealing(Seal(Keyring(["k" * 32])), lambda: 0.0, lambda: bytes(12), 600.0)


class Exchange(ChannelDefaults):
    """A way back of its own."""

    def send(self, message: Any) -> None:
        raise AssertionError("the rules send nothing themselves")


def sessionless(version: str = "") -> SessionlessSession:
    handshake = Handshake()
    eras = Eras(handshake, Stateless(SEALING, beside=handshake.versions))
    session = SessionlessSession(eras, METHODS, Origin("test"), None)  # type: ignore[arg-type]
    if version:
        session.agree(handshake.stranger(version))
    return session


def request(identity: Any = 1, method: str = "tools/list", meta: bytes = MODERN) -> Request:
    return Request(identity, method, Raw(b'{"_meta":{%b}}' % meta))


def test_equal_ids_run_side_by_side_and_each_is_finished_for_itself() -> None:
    session = sessionless()
    calls = [session.admit(request(1), Exchange()) for _ in range(3)]  # type: ignore[arg-type]
    assert all(session.runs(call) for call in calls)
    reply = session.finish(calls[1], {"n": 1})
    assert isinstance(reply, Success)
    assert reply.id == 1
    assert [session.runs(call) for call in calls] == [True, False, True]
    assert session.finish(calls[1], {}) is None
    assert isinstance(session.finish(calls[0], InvalidParams("no")), Failure)
    assert len(session.running) == 1


def test_a_call_comes_from_whoever_sent_it() -> None:
    session = sessionless()
    sender = Origin("test", "192.0.2.1")
    assert session.admit(request(), Exchange(), sender).origin is sender  # type: ignore[arg-type]
    assert session.admit(request(), Exchange()).origin is session.origin  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        Notification("notifications/cancelled", Raw(b'{"requestId":1}')),
        Notification("notifications/initialized"),
        Success(1, Raw(b"{}")),
        Failure(1, None),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_request_touches_nobody(message: Any) -> None:
    """HTM-3."""
    session = sessionless()
    call = session.admit(request(1), Exchange())  # type: ignore[arg-type]
    assert isinstance(session.receive(message, Exchange()), Ignored)  # type: ignore[arg-type]
    assert session.runs(call)
    assert not call.cancelled


def test_a_request_is_admitted_by_its_own_words() -> None:
    session = sessionless()
    call = session.receive(request("x"), Exchange())  # type: ignore[arg-type]
    assert isinstance(call, Call)
    assert (call.id, call.peer.revision.version) == ("x", "2026-07-28")


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        (request(method="nobody/knows"), MethodNotFound),
        (request(method="ping"), MethodNotFound),
        (request(meta=MODERN.replace(b"2026-07-28", b"2099-01-01")), UnsupportedVersion),
        (request(meta=b'"io.modelcontextprotocol/protocolVersion":"2026-07-28"'), InvalidParams),
    ],
)
def test_a_request_that_is_not_admitted_leaves_nothing_behind(asked: Request, refusal: type[Refusal]) -> None:
    session = sessionless()
    with pytest.raises(refusal):
        session.admit(asked, Exchange())  # type: ignore[arg-type]
    assert session.running == {}


@pytest.mark.parametrize("version", list(REVISIONS))
def test_a_session_for_all_can_be_of_one_older_revision(version: str) -> None:
    session = sessionless(version)
    call = session.admit(request(meta=b""), Exchange())  # type: ignore[arg-type]
    assert call.peer.revision.version == version


def test_the_id_of_what_cannot_be_read_does_not_depend_on_who_asked_before() -> None:
    """RPC-8."""
    session = sessionless()
    assert session.nameless_id is UNSET
    session.met_stateless = False
    assert session.nameless_id is UNSET
    assert [sessionless(version).nameless_id for version in REVISIONS] == [UNSET, None, None, None]
