"""One session of the HTTP+SSE pair by itself: its stream and its ways out, without doors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from ferrule.errors import EncodeError, SetupError
from ferrule.stores.memory import MemoryEventLog
from ferrule.transports.http.endpoint.keepalive import Keepalive
from ferrule.transports.http.endpoint.streams import EndpointStreams
from ferrule.transports.http.message import header_lines
from ferrule.transports.http.old_sse.session import PostChannel, SseSession, SseSessionStream, key
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.messages import ErrorObject, Failure, Notification, Success

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pair_desk import Page


def shared(**settings: Any) -> EndpointStreams:
    return EndpointStreams(MemoryEventLog(), Keepalive(2.0, 15.0, lambda _now: None), EndpointSettings(**settings))


def new_session(*, created: bool = False, **settings: Any) -> tuple[SseSession, Page]:
    session = SseSession("s", None, shared(**settings), lambda _session: None, created=created)  # type: ignore[arg-type]
    page = Page()
    session.stream.begin(page, b"", "/messages", 0, b"")
    return session, page


def test_no_header_can_name_a_session_of_the_pair() -> None:
    with pytest.raises(SetupError):
        header_lines({"Mcp-Session-Id": key("s")})


@given(st.integers(min_value=0, max_value=10**12 - 1))
def test_the_id_of_an_event_gives_its_number(number: int) -> None:
    assert SseSessionStream(shared(), "a-b", created=False).position(f"a-b-{number}") == number


@given(st.text())
def test_any_other_id_gives_none(event_id: str) -> None:
    stream = SseSessionStream(shared(), "\ud800", created=False)
    assert stream.position(event_id) is None if event_id else stream.position(event_id) == 0


def test_what_cannot_be_read_is_refused_once_and_all_else_goes_on_the_stream() -> None:
    session, page = new_session()
    answer = Page()
    posted = PostChannel(session.standing, answer, b"", 1000)
    unreadable = Failure(UNSET, ErrorObject(-32700, "no"))
    posted.send(unreadable)
    posted.accept()
    assert answer.status == 400
    posted.send(unreadable)
    posted.send(Failure(1, ErrorObject(-32601, "no")))
    assert [each.get("id") for each in page.messages] == [None, 1]


def test_an_error_of_a_known_request_is_said_on_the_stream() -> None:
    session, page = new_session()
    answer = Page()
    posted = PostChannel(session.standing, answer, b"", 1000)
    posted.send(Failure(1, ErrorObject(-32601, "no")))
    posted.accept()
    assert (answer.status, page.messages[0]["id"]) == (202, 1)


def test_nothing_is_said_or_kept_after_the_end() -> None:
    session, page = new_session()
    session.end()
    session.standing.send(Success(1, Raw(b"{}")))
    assert [each.name for each in page.events] == ["error", "close"]
    assert len(session.shared.log) == 0  # type: ignore[arg-type]


def test_a_message_over_the_limit_is_not_said() -> None:
    session, page = new_session(max_body_size=1024)
    with pytest.raises(EncodeError):
        session.standing.send(Success(1, Raw(json.dumps("x" * 1024).encode())))
    assert not page.events


@pytest.mark.parametrize(("created", "name"), [(False, "message"), (True, "notification")])
def test_a_notification_is_named_so_where_the_session_was_created(created: bool, name: str) -> None:
    session, page = new_session(created=created)
    session.standing.send(Notification("notifications/message"))
    session.standing.send(Success(1, Raw(b"{}")))
    assert [each.name for each in page.events] == [name, "message"]
