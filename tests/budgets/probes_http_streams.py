"""Probes of the streams of a server over HTTP: how many are read, how far a reader lags, what is kept of them."""

from __future__ import annotations

import asyncio
from unittest import mock

from http_bench import BOTH, Peer, Site, message, serving, stands, turns
from table import no_bound, period, probe

from ferrule import Server
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.stores.memory import MemoryEventLog
from ferrule.transports.http.endpoint.exchange import Exchange
from ferrule.transports.http.endpoint.session import HttpSession
from ferrule.transports.http.old_sse.session import SseSession
from ferrule.wire.messages import Notification

no_bound("EndpointSettings(retry=…)", "a wish that we tell the client; one that comes back sooner is served")
no_bound("EndpointSettings(sse_retry=…)", "a wish that we tell the client; one that comes back sooner is served")


class Resting(Server):
    """A server with a tool that never answers."""

    def __init__(self) -> None:
        super().__init__("resting")
        self.add_tool(self.rest)

    async def rest(self) -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return ""


@period("EndpointSettings(quiet=…)", lowered=2.0)
async def quiet(lasts: float, passes: float) -> bool:
    """A call that comes shortly before the timer ticks waits the least: so long, and no longer."""
    async with serving(Resting(), quiet=lasts) as site:
        session = site.greeted()
        peer = site.peer()
        await asyncio.sleep(lasts * 0.999)
        called = message("tools/call", {"name": "rest", "arguments": {}})
        peer.ask("POST", "/mcp", called, accept=BOTH, mcp_session_id=session)
        return await stands(lambda: peer.status == 0, lasts, passes)


@period("EndpointSettings(stream_keepalive=…)", lowered=20.0)
async def silence(lasts: float, passes: float) -> bool:
    async with serving(stream_keepalive=lasts, quiet=lasts / 160) as site:
        reader = site.stream(site.greeted())
        begun = reader.wire.sent
        return await stands(lambda: reader.wire.sent == begun, lasts, passes)


def standing(site: Site, session: str) -> Peer:
    """Open the stream of a session."""
    return site.stream(session)


def listening(site: Site, session: str) -> Peer:
    """Open a subscription of the stateless era."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": STATELESS.version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "1"},
    }
    asked = message("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": meta})
    peer = site.peer()
    method = "subscriptions/listen"
    peer.ask("POST", "/mcp", asked, accept=BOTH, mcp_protocol_version=STATELESS.version, mcp_method=method)
    return peer


def of_pair(site: Site, session: str) -> Peer:
    """Open the stream of the HTTP+SSE pair."""
    peer = site.peer()
    peer.ask("GET", "/sse", accept="text/event-stream")
    return peer


@probe("EndpointSettings(max_streams=…)", lowered=10)
async def read_at_once(limit: int, size: int) -> bool:
    """Whatever opens the last of them, all are counted together."""
    taken = []
    for last in (standing, listening, of_pair):
        async with serving(max_streams=limit, sse=True) as site:
            opened = [standing, listening, of_pair] * size
            statuses = set()
            for open_stream in [*opened[: size - 1], last]:
                peer = open_stream(site, site.greeted())
                await turns(5)
                statuses.add(peer.status)
                if peer.status != 200:
                    break
            assert statuses <= {200, 503}
            taken.append(503 not in statuses)
    assert len(set(taken)) == 1
    return taken[0]


def tell(site: Site, session: str, size: int = 60) -> None:
    """Tell the client of a session something that takes so many bytes."""
    empty = len(b'{"jsonrpc":"2.0","method":"x","params":{"t":""}}')
    site.session(session).standing.send(Notification("x", {"t": "x" * (size - empty)}))


@probe("EndpointSettings(max_stream_backlog=…)", lowered=10_000)
async def lag(limit: int, size: int) -> bool:
    async with serving(max_stream_backlog=limit) as site:
        session = site.greeted()
        subscriber = listening(site, "")
        await turns()
        (subscription,) = (each for bucket in site.endpoint._keepalive._buckets for each in bucket)
        assert isinstance(subscription, Exchange)
        reader = site.stream(session)
        reader.wire.held = subscriber.wire.held = size
        tell(site, session)
        subscription.send(Notification("x", {}))
        assert reader.wire.ended == subscriber.wire.ended
        return not reader.wire.ended


@probe("EndpointSettings(max_events=…)", lowered=20, clamps=True)
async def kept_events(limit: int, size: int) -> bool:
    async with serving(max_events=limit) as site:
        session, begun = lost_reader(site)
        for _ in range(size):
            tell(site, session)
        return await resumes(site, session, begun)


def lost_reader(site: Site) -> tuple[str, str]:
    """Open a session and its stream, whose reader goes away; return the session, and the id it can come back with."""
    session = site.greeted()
    reader = site.stream(session)
    reader.connection.connection_lost(None)
    stream = site.session(session).standing.stream
    assert stream is not None
    return session, f"{stream.name}-0"


async def resumes(site: Site, session: str, last: str) -> bool:
    """Whether a reader that comes back gets all that followed an event."""
    reader = site.stream(session, last)
    await turns()
    assert reader.status in (200, 404)
    return reader.status == 200


@probe("EndpointSettings(max_event_bytes=…)", lowered=10_000, clamps=True)
async def kept_bytes(limit: int, size: int) -> bool:
    async with serving(max_event_bytes=limit) as site:
        session, begun = lost_reader(site)
        stream = begun.removesuffix("-0")
        framing = len(f"id: {stream}-1\ndata: \n\n")
        tell(site, session, 100)
        tell(site, session, size - 100 - 2 * framing)
        return await resumes(site, session, begun)


@period("EndpointSettings(event_age=…)", lowered=300.0)
async def kept_for(lasts: float, passes: float) -> bool:
    async with serving(event_age=lasts) as site:
        session, begun = lost_reader(site)
        tell(site, session)
        log = site.endpoint._streams.log
        assert isinstance(log, MemoryEventLog)
        await stands(lambda: len(log) == 1, lasts, passes)
        return await resumes(site, session, begun)


@probe("ferrule.transports.http.endpoint.session.MOST_FINISHED", clamps=True)
async def ended_and_kept(limit: int, size: int) -> bool:
    async with serving() as site:
        session = HttpSession("id", mock.Mock(), None, site.endpoint._streams)
        for _ in range(size):
            session.finished(session.new_stream())
        return len(session.streams) == size


# -- the HTTP+SSE pair


def pair(site: Site) -> tuple[SseSession, Peer]:
    """Open a session of the pair."""
    before = set(site.endpoint.sessions)
    reader = of_pair(site, "")
    (session,) = set(site.endpoint.sessions) - before
    assert isinstance(session, SseSession)
    return session, reader


@period("EndpointSettings(sse_grace=…)", lowered=60.0)
async def without_reader(lasts: float, passes: float) -> bool:
    async with serving(sse=True, sse_grace=lasts, quiet=0.25) as site:
        _, reader = pair(site)
        reader.connection.connection_lost(None)
        return await stands(lambda: len(site.endpoint.sessions) == 1, lasts, passes)


@probe("EndpointSettings(sse_max_lost=…)", lowered=10, clamps=True)
async def lost(limit: int, size: int) -> bool:
    async with serving(sse=True, sse_max_lost=limit) as site:
        for number in range(1, size + 1):
            of_pair(site, "")
            if len(site.endpoint.sessions) < number:
                return False
        return True


@probe("ferrule.transports.http.old_sse.session.SPARE_EVENTS", clamps=True)
async def heard_and_kept(limit: int, size: int) -> bool:
    async with serving(sse=True, max_event_bytes=2**30) as site:
        session, _ = pair(site)
        stream = session.stream
        for part in (1000, size - 1000):
            framing = len(f"event: message\nid: {stream.name}-1\ndata: \n\n")
            stream.say(b"x" * (part - framing), "message")
        log = site.endpoint._streams.log
        assert isinstance(log, MemoryEventLog)
        assert log.size == size
        # A socket would tell this of a reader whose system has acknowledged everything.
        stream._responder = mock.Mock(unacknowledged=0)
        stream.detach()
        return log.size == size


@period("EndpointSettings(poll_timeout=…)", lowered=30.0)
async def long_poll(lasts: float, passes: float) -> bool:
    async with serving(poll_routes=True, poll_timeout=lasts) as site:
        poller = polling(site)
        return await stands(lambda: poller.status == 0, lasts, passes)


def polling(site: Site) -> Peer:
    """Create a session, and wait for an event of it."""
    poller = site.peer()
    assert poller.ask("POST", "/mcp/sessions/create") == 200
    (session,) = site.endpoint.sessions
    assert isinstance(session, SseSession)
    poller.ask("GET", f"/mcp/events?session_id={session.stream.name}&wait=true")
    return poller


class Stuck(MemoryEventLog):
    """A log that never says what followed an event."""

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Wait for ever."""
        await asyncio.Event().wait()
        return None


@period("ferrule.transports.http.old_sse.endpoint.LAST_WORDS")
async def last_words(lasts: float, passes: float) -> bool:
    """A reader that comes back while the log is stuck is still owed an answer when all ends."""
    async with serving(log=Stuck(), sse=True) as site:
        session, reader = pair(site)
        session.stream.say(b"x", "message")
        reader.connection.connection_lost(None)
        site.peer().ask("GET", "/sse", accept="text/event-stream", last_event_id=f"{session.stream.name}-0")
        await turns()
        assert site.endpoint._sse is not None
        ending = asyncio.create_task(site.endpoint._sse.close())
        return await stands(lambda: not ending.done(), lasts, passes)
