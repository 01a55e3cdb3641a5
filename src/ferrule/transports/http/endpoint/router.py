"""Which handler takes an HTTP request, decided here only.

Rule: whatever can refuse a request here runs before any handler: the guard, then the verifier, then the endpoint of the
era.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from ferrule.errors import SetupError
from ferrule.stores.contracts import EventLog
from ferrule.stores.memory import LogBounds, MemoryEventLog
from ferrule.stores.metered import MeteredEventLog
from ferrule.telemetry.system_recorder import StoreRecorder
from ferrule.transports.http import mirror
from ferrule.transports.http.endpoint.acceptor import HttpAcceptor, verifier_routes
from ferrule.transports.http.endpoint.caller import CARRIER, STOPPING, Callers
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.endpoint.handshake import HandshakeEndpoint
from ferrule.transports.http.endpoint.head_cache import (
    UNREADABLE,
    Proceed,
    SessionVerdict,
    ToolCallVerdict,
    remember,
    remember_for_all,
    remember_judged,
    unmistakable,
)
from ferrule.transports.http.endpoint.keepalive import Keepalive
from ferrule.transports.http.endpoint.neighbours import WorkerReports
from ferrule.transports.http.endpoint.probes import HealthProbes, MetricsProbe
from ferrule.transports.http.endpoint.sessions import EndpointSession, MovedSession, Sessions
from ferrule.transports.http.endpoint.stateless import StatelessEndpoint
from ferrule.transports.http.endpoint.streams import EndpointStreams
from ferrule.transports.http.endpoint.worker_probes import WorkerProbes
from ferrule.transports.http.heads import EMPTY_HEAD, RETRY_AFTER, TEXT_HEAD, refuse
from ferrule.transports.http.message import Handle, HttpRequest, Responder, header_lines
from ferrule.transports.http.old_sse.endpoint import SseEndpoint
from ferrule.transports.http.old_sse.polling import Polling
from ferrule.transports.http.routes.custom import CustomRoute, RoutesEndpoint
from ferrule.transports.http.settings import HEALTH_PATHS, METRICS_PATH, EndpointSettings

UNSUPPORTED = "Bad request: unsupported MCP-Protocol-Version"


class HttpEndpoint:
    """One endpoint for every client: judges a request, finds its era, and hands it to that era's endpoint."""

    def __init__(
        self,
        acceptor: HttpAcceptor,
        settings: EndpointSettings,
        *,
        bound_to: str,
        log: EventLog | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._acceptor = acceptor
        self.settings = settings
        self._unwatch: list[Callable[[], None]] = []
        """What ends the metrics of this endpoint."""
        bounds = LogBounds(settings.max_events, settings.max_event_bytes, settings.event_age)
        self._log = self._logged(MemoryEventLog(bounds) if log is None else log)
        self.guard = Guard(settings, bound_to)
        self.clock = clock
        """Seconds since 1970, as credentials count."""
        self.callers = Callers(acceptor.verifier, self.guard, clock=clock, observer=acceptor.observer)
        self.self_verifying: set[str] = set()
        """Paths that settle by themselves who calls, or do not care."""
        self._keepalive = Keepalive(settings.quiet, settings.stream_keepalive, self._sweep)
        self._keepalive.clock = clock
        self._streams = EndpointStreams(self._log, self._keepalive, settings)
        self.draining = False
        self._entered = False
        self.handshake: HandshakeEndpoint
        self.stateless: StatelessEndpoint
        self._custom: RoutesEndpoint
        self._of_verifier: Sequence[CustomRoute] = ()
        self._sse: SseEndpoint | None = None
        self._speaks_handshake = bool(acceptor.eras.handshake.versions)
        self._has_sessions = not settings.stateless and self._speaks_handshake
        self._methods = "GET, POST, DELETE, OPTIONS" if self._has_sessions else "POST, OPTIONS"
        self._allow = header_lines({"Allow": self._methods})
        self.mirrored = acceptor.mirrored
        """Returns which arguments of a tool its headers mirror."""
        self._stateless_versions = frozenset(map(str.encode, acceptor.eras.stateless.versions))
        self.routes: dict[str, Handle] = {settings.path: self._mcp}
        self._health: HealthProbes | None = None
        self._worker_probes: WorkerProbes | None = None
        self._add_probes(settings)

    def _logged(self, log: EventLog) -> EventLog:
        """Return a log of events whose operations are in the metrics, where there are any."""
        if not self.settings.metrics:
            return log
        # Recorded from here on, so that whoever reports to observers has them.
        metrics = self._acceptor.monitor().metrics
        metered = MeteredEventLog(log, StoreRecorder(metrics).record)
        count = metrics.watch("ferrule_store_operations_total", "event_append", source=lambda: metered.appended)
        self._unwatch.append(count)
        return metered

    def _add_probes(self, settings: EndpointSettings) -> None:
        if settings.health:
            health = self._acceptor.monitor().health
            self._health = HealthProbes(health, self.guard, lambda: self.draining)
            self.routes |= self._health.routes
            self.self_verifying |= set(HEALTH_PATHS)
        if settings.metrics:
            metrics = self._acceptor.monitor().metrics
            self.routes |= MetricsProbe(metrics, self.guard).routes
            self._unwatch += [
                metrics.watch("ferrule_streams", source=lambda: self._keepalive.open_streams),
                metrics.watch("ferrule_stream_cuts_total", source=lambda: self._keepalive.cuts),
            ]

    def _answer_for_all(self, reports: WorkerReports) -> None:
        """Let the probes tell of all workers, of which this process is one."""
        if self._health is not None:
            reports.own_health = self._health.report
        if self.settings.metrics:
            reports.own_metrics = self._acceptor.monitor().metrics
        self._worker_probes = WorkerProbes(reports, self.guard)
        for path, answer in self._worker_probes.routes.items():
            if path in self.routes:
                self.routes[path] = answer

    def count_bytes(self, traffic: Callable[[], tuple[int, int]]) -> None:
        """Show in the metrics how many bytes were read and written, as a function returns them."""
        if self.settings.metrics:
            metrics = self._acceptor.monitor().metrics
            self._unwatch += [
                metrics.watch("ferrule_received_bytes_total", CARRIER, source=lambda: traffic()[0]),
                metrics.watch("ferrule_sent_bytes_total", CARRIER, source=lambda: traffic()[1]),
            ]

    # -- life

    async def start(self) -> None:
        """Get ready for requests."""
        loop = asyncio.get_running_loop()
        beside = [self.settings.sse_path] if self.settings.sse else []
        self._of_verifier = verifier_routes(self._acceptor.verifier, self.settings.path, beside)
        routes = self._acceptor.custom_routes
        self._custom = RoutesEndpoint(routes, self.guard, self.callers, also=self._of_verifier)
        await self._acceptor.enter()
        self._entered = True
        cluster = self._acceptor.cluster
        self._streams.now = loop.time()
        neighbours = self._acceptor.neighbours
        mark = ""
        if neighbours is not None:
            mark = neighbours.mark
            self._answer_for_all(neighbours.reports)
        ended = None if cluster is None else cluster.ended
        self.sessions = Sessions(self._acceptor.link, self._acceptor.busy, self._streams, mark, ended)
        self.handshake = HandshakeEndpoint(self._acceptor, self.sessions, self._streams, self.guard)
        if cluster is not None:
            self._streams.log = self._logged(cluster.events)
            self.handshake.cluster_endpoint = self
            cluster.join(self)
        self.stateless = StatelessEndpoint(self._acceptor, self.settings, self._keepalive)
        self._open_sse()
        self._check_custom()
        self._keepalive.start(loop)

    def _open_sse(self) -> None:
        settings = self.settings
        if settings.sse or settings.poll_routes:
            sse = self._sse = SseEndpoint(self._acceptor, self.sessions, self._streams, self.guard)
            if settings.sse:
                self.routes |= sse.routes(settings.sse_path, settings.messages_path)
                # A client of the pair knows the address of the stream alone.
                self.callers.endpoints = dict.fromkeys((settings.sse_path, settings.messages_path), settings.sse_path)
            if settings.poll_routes:
                self.routes |= Polling(sse).routes()

    def _check_custom(self) -> None:
        for route in (*self._acceptor.custom_routes, *self._of_verifier):
            if route.path in (*HEALTH_PATHS, METRICS_PATH):
                # Whoever writes a page of their own for it wants that one.
                self.routes.pop(route.path, None)
            elif route.path in self.routes:
                raise SetupError(f"custom_route: the path {route.path} is served by the server itself; choose another")

    def leave_to(self, give: Callable[[MovedSession], None]) -> None:
        """Let another process go on with all sessions, also those that are still opened here.

        A no-op where there is a cluster: that goes on with them by way of the store.
        """
        if self._acceptor.cluster is not None:
            return

        def leave(session: EndpointSession) -> None:
            give(self._moved(session))

        for session in self.sessions:
            leave(session)
        self.sessions.on_add = leave

    async def leave_by_store(self, give: Callable[[MovedSession], None]) -> None:
        """Leave all sessions to the cluster, where there is one; give those to another process that it cannot take."""
        cluster = self._acceptor.cluster
        if cluster is not None:
            for session in await cluster.leave(self):
                if not session.over:
                    give(self._moved(session))

    def _moved(self, session: EndpointSession) -> MovedSession:
        return self.sessions.record(session, self._acceptor.replay_frames(session.link))

    def adopt(self, record: MovedSession) -> None:
        """Go on with a session that another process has left to this one."""
        session = self.sessions.adopt(record)
        cluster = self._acceptor.cluster
        if session is not None and cluster is not None:
            cluster.keep(self, session)

    async def drain(self, grace: float) -> None:
        """Take no new clients, and wait until running calls are answered, at most `grace` seconds."""
        self.draining = True
        if self._sse is not None:
            self._sse.draining = True
        self.handshake.drain()
        await asyncio.gather(self._acceptor.drain(grace), self._custom.close(grace))

    async def close(self) -> None:
        """Release everything."""
        self._keepalive.stop()
        while self._unwatch:
            self._unwatch.pop()()
        if self._entered:
            self._entered = False
            if self._sse is not None:
                await self._sse.close()
            cluster = self._acceptor.cluster
            if cluster is not None:
                await cluster.leave(self)
            self.sessions.end_all()
            self.stateless.close()
            await self.callers.close()
            await self._custom.close()
            if self._worker_probes is not None:
                await self._worker_probes.close()
            await self.handshake.close()
            await self._acceptor.leave()

    def _sweep(self, now: float) -> None:
        self._streams.now = now
        self._streams.log.sweep(now)
        self.sessions.sweep(now)
        if self._sse is not None:
            self._sse.sweep(now)

    # -- requests

    def handle(self, request: HttpRequest, responder: Responder) -> None:
        """Answer a request about whose head nothing is known, now or later."""
        route = self.routes.get(request.path)
        if route is not None:
            if (self.callers.open_to_all and request.certificate is None) or request.path in self.self_verifying:
                route(request, responder)
            else:
                self.callers.admit(request, responder, route)
        elif not self._custom.handle(request, responder):
            place = request.root + self.settings.path
            responder.reply(404, TEXT_HEAD, f"Not found; MCP is served at {place}\n".encode())

    def answer(self, request: HttpRequest, responder: Responder) -> None:
        """Answer a request whose sender is verified, as one that another worker or node has passed on."""
        request.decision = None  # another listener may have read its head: what is decided here is not for that one
        self.routes.get(request.path, self._mcp)(request, responder)

    def _mcp(self, request: HttpRequest, responder: Responder) -> None:
        verdict = self.guard.judge(request)
        if verdict.status:
            refuse(responder, verdict.status, verdict.why)
            return
        head = verdict.head
        method = request.method
        if method == "POST":
            self._judge_post(request, responder, head)
        elif method == "OPTIONS":
            responder.reply(204, EMPTY_HEAD + self._allow + head + self.guard.preflight(request, self._methods))
        elif method not in ("GET", "DELETE") or not self._has_sessions:
            refuse(responder, 405, f"Method not allowed; use {self._methods}", self._allow + head)
        elif not self.handshake.speaks(request):
            refuse(responder, 400, UNSUPPORTED, head)
        elif method == "GET":
            self.handshake.get(request, responder, head)
        else:
            self._proceed(self.handshake.delete, request, responder, head)

    def _judge_post(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        headers = request.headers
        if not self.guard.is_json[headers.get(b"content-type", b"")] or b"content-encoding" in headers:
            refuse(responder, 415, "Unsupported media type: send application/json, not encoded otherwise", head)
        elif not self.guard.takes_both[headers.get(b"accept", b"")]:
            refuse(responder, 406, "Not acceptable: accept both application/json and text/event-stream", head)
        else:
            self._proceed(self._post, request, responder, head)

    def _proceed(self, proceed: Proceed, request: HttpRequest, responder: Responder, head: bytes) -> None:
        """Go on with a request whose head has passed, and let the same head pass from now on."""
        remember_judged(self, request, proceed, head)
        proceed(request, responder, head)

    def _post(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        """Take a POST whose head has passed: what is left depends on its body, its session, and how we are."""
        headers = request.headers
        body = request.body
        if len(body) > self.settings.max_body_size:
            refuse(responder, 413, f"Too large: the limit is {self.settings.max_body_size} bytes", head)
        elif self.draining and b"mcp-session-id" not in headers:
            refuse(responder, 503, STOPPING, head + RETRY_AFTER)
        elif headers.get(mirror.VERSION_FIELD) in self._stateless_versions:
            self._post_stateless(request, _peek(body), responder, head)
        elif not unmistakable(body) or b"mcp-session-id" not in headers:
            self._closer_look(request, responder, head)
        elif self.handshake.speaks(request):
            session = self.handshake.post(request, responder, head)
            if session is not None:
                remember(self, request, SessionVerdict(self, session, head, request.identity))
        else:
            self._closer_look(request, responder, head)

    def _post_stateless(
        self, request: HttpRequest, body: mirror.Peek | None, responder: Responder, head: bytes
    ) -> None:
        fits = self.stateless.post(request, body, responder, head)
        if fits and body is not None and body.method == "tools/call":
            remember(self, request, ToolCallVerdict(self, body, head, request.identity))
            remember_for_all(self, request, body, head)

    def _closer_look(self, request: HttpRequest, responder: Responder, head: bytes) -> None:
        """Read as much of a body as tells its era."""
        peek = _peek(request.body)
        if not self._speaks_handshake or (peek is not None and peek.version is not None):
            self.stateless.post(request, peek, responder, head)
        elif not self.handshake.speaks(request):
            refuse(responder, 400, UNSUPPORTED, head)
        elif peek is None:
            self.handshake.unreadable(request, responder, head)
        elif peek.method != "initialize":
            self.handshake.post(request, responder, head)
        elif self.draining:
            refuse(responder, 503, STOPPING, head + RETRY_AFTER)
        else:
            self.handshake.initialize(request, responder, head)


def _peek(body: bytes) -> mirror.Peek | None:
    try:
        return mirror.peek(body)
    except UNREADABLE:
        return None
