"""Probes of the bounds of a server over HTTP."""

from __future__ import annotations

from unittest import mock

from table import probe

from ferrule.stores.memory import LogBounds, MemoryEventLog
from ferrule.telemetry.exposition import OPENMETRICS, content_type_for
from ferrule.transports.http.endpoint import session as http_session
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.endpoint.keepalive import Keepalive
from ferrule.transports.http.endpoint.session import HttpSession, SessionChannel
from ferrule.transports.http.endpoint.sessions import Sessions
from ferrule.transports.http.endpoint.streams import EndpointStreams
from ferrule.transports.http.engine.body import ChunkedBody
from ferrule.transports.http.engine.connection import Connection
from ferrule.transports.http.engine.head_parser import Unacceptable
from ferrule.transports.http.engine.state import EngineState
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.old_sse.endpoint import query_of
from ferrule.transports.http.routes.web import WebRequest
from ferrule.transports.http.settings import EndpointSettings, EngineSettings
from ferrule.wire.channel import Origin
from ferrule.wire.messages import Notification


def chunked(wire: bytes) -> bool:
    """Return whether a body in chunks is taken."""
    body = ChunkedBody(2**30)
    try:
        body.feed(wire, 0)
    except Unacceptable:
        return False
    return body.done


@probe("ferrule.transports.http.engine.body.MAX_TRAILERS")
async def trailers(limit: int, size: int) -> bool:
    return chunked(b"0\r\n" + b"a:b\r\n" * size + b"\r\n")


@probe("ferrule.transports.http.engine.body.MAX_FRAMING")
async def framing(limit: int, size: int) -> bool:
    return chunked(b"0\r\na:" + b"x" * (size - 4) + b"\r\n\r\n")


@probe("EngineSettings(max_buffered=…)", lowered=100_000)
async def unfinished_bodies(limit: int, size: int) -> bool:
    state = EngineState(_ignore, EngineSettings(max_buffered=limit), 2**30)
    connection = mock.Mock(spec=Connection)
    taken = state.debit(connection, 10_000) and state.debit(connection, size - 10_000)
    state.credit(connection, state.requests.held)
    return taken


def _ignore(request: HttpRequest, responder: Responder) -> None: ...


@probe("ferrule.transports.http.endpoint.guard.LONGEST_REMEMBERED", clamps=True)
async def remembered_header(limit: int, size: int) -> bool:
    guard = Guard(EndpointSettings(), "127.0.0.1")
    value = b"application/json;" + b" " * (size - 17)
    return guard.is_json[value] and value in guard.is_json


@probe("ferrule.transports.http.old_sse.endpoint.MOST_NAMES")
async def names_of_a_query(limit: int, size: int) -> bool:
    query = "&".join(["a=b"] * size + ["session_id=x"])
    return "session_id" in query_of(HttpRequest("GET", "/sse", query, {}))


@probe("ferrule.transports.http.routes.web.MAX_FIELDS")
async def fields_of_a_form(limit: int, size: int) -> bool:
    body = "&".join(f"a{number}=b" for number in range(size)).encode()
    try:
        return len(await WebRequest(HttpRequest("POST", "/", "", {}, body), {}).form()) == size
    except ValueError:
        return False


@probe("ferrule.telemetry.exposition.LONGEST_ACCEPT", clamps=True)
async def accepted_format(limit: int, size: int) -> bool:
    return content_type_for("application/openmetrics-text".rjust(size)) == OPENMETRICS


class Link:
    """A receiver that does nothing."""

    def channel_opened(self, channel: object) -> None: ...

    def channel_lost(self, channel: object, error: object) -> None: ...


def shared(**settings: int) -> EndpointStreams:
    """Return what the streams of one endpoint share."""
    return EndpointStreams(MemoryEventLog(), Keepalive(2.0, 15.0, lambda now: None), EndpointSettings(**settings))


def told(standing: SessionChannel, size: int) -> None:
    """Tell a client without a stream something that takes so many bytes."""
    empty = len(b'{"jsonrpc":"2.0","method":"x","params":{"t":""}}')
    standing.send(Notification("x", {"t": "x" * (size - empty)}))


@probe("ferrule.transports.http.endpoint.session.MAX_UNDELIVERED_BYTES", lowered=10_000, clamps=True)
async def undelivered(limit: int, size: int) -> bool:
    with mock.patch.object(http_session, "MAX_UNDELIVERED_BYTES", limit):
        session = HttpSession("id", Link(), None, shared(max_body_size=100 * 2**20))
        told(SessionChannel(session), size)
        return session.shared.undelivered.total == size


@probe("ferrule.transports.http.endpoint.session.MAX_ALL_UNDELIVERED_BYTES", lowered=10_000, clamps=True)
async def unheard_of_all(limit: int, size: int) -> bool:
    with mock.patch.object(http_session, "MAX_ALL_UNDELIVERED_BYTES", limit):
        all_of_them = shared(max_body_size=100 * 2**20)
        for number in range(10):
            rest = size - 1000 * 9 if number == 9 else 1000
            told(SessionChannel(HttpSession(f"{number}", Link(), None, all_of_them)), rest)
        return all_of_them.undelivered.total == size


@probe("ferrule.transports.http.endpoint.session.MAX_ALL_FINISHED", lowered=20, clamps=True)
async def ended_streams(limit: int, size: int) -> bool:
    with mock.patch.object(http_session, "MAX_ALL_FINISHED", limit):
        all_of_them = shared()
        for number in range(size):
            session = HttpSession(f"{number}", Link(), None, all_of_them)
            session.finished(session.new_stream())
        return all_of_them.finished.total == size


@probe("ferrule.transports.http.endpoint.session.MOST_UNDELIVERED", clamps=True)
async def unheard_events(limit: int, size: int) -> bool:
    standing = SessionChannel(HttpSession("id", Link(), None, shared()))
    for _ in range(size):
        told(standing, 60)
    return len(standing._undelivered or ()) == size


@probe("EndpointSettings(max_sessions=…)", lowered=10, clamps=True)
async def sessions(limit: int, size: int) -> bool:
    table = Sessions(lambda origin: Link(), lambda link: False, shared(max_sessions=limit))
    for _ in range(size):
        table.add(table.prepare(Origin("http", "192.0.2.1")))
    return len(table) == size


@probe("LogBounds(total=…)", lowered=10_000, clamps=True)
async def events_of_all(limit: int, size: int) -> bool:
    log = MemoryEventLog(LogBounds(total=limit, owner=10**9, bytes=10**9))
    for number in range(10):
        log.append(f"{number}.1", 1, b"x" * (size - 9 * (size // 10) if number == 9 else size // 10), 0.0)
    return log.size == size


@probe("LogBounds(owner=…)", lowered=10_000, clamps=True)
async def events_of_one(limit: int, size: int) -> bool:
    log = MemoryEventLog(LogBounds(owner=limit, bytes=10**9, total=10**9))
    for number in range(10):
        log.append(f"me.{number}", 1, b"x" * (size - 9 * (size // 10) if number == 9 else size // 10), 0.0)
    return log.size == size
