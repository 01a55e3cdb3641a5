"""MetricsRecorder: the observer that turns what happens in servers and clients into metrics.

Rule: what a peer wrote is a label only where it names something that exists. The name of a tool counts when a handler
of that name was found, a method when it is known, a revision when it was agreed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ferrule.codes import ErrorCode
from ferrule.schema.methods import METHODS
from ferrule.schema.notices import NOTICES
from ferrule.telemetry.metrics import OTHER, Child, Gauge, Histogram, Metrics
from ferrule.telemetry.observer import (
    MeteredObserver,
    ObservedChild,
    ObservedConnection,
    ObservedLink,
    ObservedNotification,
    ObservedRequest,
    Outcome,
    RevisionMeter,
    TransportMeter,
    Verdict,
)

NETWORK_TRANSPORTS = {
    "stdio": "pipe",
    "memory": "memory",
    "http": "tcp",
    "websocket": "tcp",
    "tcp": "tcp",
    "unix": "unix",
}
"""The values of `network.transport` in the OpenTelemetry conventions; a transport of others has its own name."""

NOT_FOUND = ("unknown_tool", "unknown_prompt", "unknown_resource", "unknown_method")
"""Reasons of refusals that mean that what was asked for does not exist."""

FAILURES = {"tool_error": "tool_error", "cancelled": "cancelled", "timed_out": "timeout", "lost": "lost"}
"""The value of `error.type` where there is no JSON-RPC code."""

CODES = frozenset(code.value for code in ErrorCode)
CALL = "tools/call"

MAX_KEPT = 4_096
"""How many combinations of facts are kept with their histograms."""

Facts = tuple[str, str, str, str, str]
"""Method, tool, `error.type`, transport and revision of a request."""


def error_type(outcome: Outcome) -> str:
    """Return the value of `error.type`: the code as text, or what went wrong; empty where nothing did."""
    if outcome.code is not None:
        return str(outcome.code)
    if outcome.kind in ("error", "refused"):
        return outcome.reason or outcome.kind
    return FAILURES.get(outcome.kind, "")


class Children(dict[str, Child]):
    """The children of a metric by one name, found when they are needed and kept: of histograms by method, say.

    Only what exists is asked for: a tool of this name was called and ended well, a revision was agreed.
    """

    def __init__(self, find: Callable[[str], Child]) -> None:
        super().__init__()
        self._find: Callable[[str], Child] = find

    def __missing__(self, name: str) -> Child:
        child = self._find(name)
        if len(self) < MAX_KEPT:
            self[name] = child
        return child


class RevisionRecorder:
    """The requests of one transport and revision that ended well; all its links share it."""

    def __init__(self, transport: TransportRecorder, revision: str) -> None:
        self.transport: TransportMeter = transport
        self.revision = revision
        self.tools: Mapping[str, Histogram] = Children(lambda name: transport.durations(CALL, name, revision))
        self.methods: Mapping[str, Histogram] = Children(lambda method: transport.durations(method, "", revision))


class TransportRecorder:
    """What is usual on links of one transport, recorded without values; links of all revisions share it."""

    def __init__(self, metrics: Metrics, transport: str) -> None:
        self.name = transport
        self._served = metrics.histogram("mcp_server_operation_duration_seconds")
        self._network = NETWORK_TRANSPORTS.get(transport, transport)
        self._kept: dict[str, RevisionRecorder] = {}
        self.latest: RevisionMeter = self.of("")
        self._sessions = metrics.gauge("ferrule_sessions").labels(transport)
        self._sessions_opened = metrics.counter("ferrule_sessions_opened_total").labels(transport)
        ended = metrics.counter("ferrule_sessions_ended_total")
        self._sessions_ended = Children(lambda reason: ended.labels(transport, reason))
        durations = metrics.histogram("mcp_server_session_duration_seconds")
        self._session_durations = Children(lambda revision: durations.labels(self._network, revision))
        self._connections = metrics.gauge("ferrule_connections")
        self._open_connections: Gauge | None = None
        """How many connections this transport has, once there was one."""
        notifications = metrics.counter("ferrule_notifications_total")
        self._notifications = Children(lambda method: notifications.labels(kind_of_notification(method)))
        self._auth_checks = metrics.counter("ferrule_auth_checks_total")

    def of(self, revision: str) -> RevisionRecorder:
        """Return what records the requests of one revision."""
        kept = self._kept.get(revision)
        if kept is None:
            kept = self._kept[revision] = RevisionRecorder(self, revision)
        self.latest = kept
        return kept

    def durations(self, method: str, tool: str, revision: str) -> Histogram:
        """Return where a request that ended well is recorded."""
        return self._served.labels(method, tool, "", self._network, revision)

    def opened(self) -> None:
        """Called when a peer is connected."""
        self._sessions.value += 1
        self._sessions_opened.value += 1

    def closed(self, revision: str, seconds: float, error: Exception | None) -> None:
        """Called when a peer is gone: which revision it spoke, and how long it was connected."""
        reason = "closed" if error is None else "lost"
        self._sessions.value -= 1
        self._sessions_ended[reason].value += 1
        self._session_durations[revision].observe(seconds)

    def count_connections(self, change: int) -> None:
        """Called when a listener accepted a connection (1), or one is gone (-1)."""
        gauge = self._open_connections
        if gauge is None:
            gauge = self._open_connections = self._connections.labels(self.name)
        gauge.value += change

    def notified(self, method: str) -> None:
        """Called when a notification came."""
        self._notifications[method if method in NOTICES else OTHER].value += 1

    def verified(self, verdict: Verdict) -> None:
        """Called when a verifier was asked who a caller is."""
        self._auth_checks.labels(verdict, self.name).value += 1


class LinkRecorder:
    """What is usual on links, recorded without values."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._transports: dict[str, TransportRecorder] = {}

    def over(self, transport: str) -> TransportRecorder:
        """Return what records the links of one transport."""
        found = self._transports.get(transport)
        if found is None:
            found = self._transports[transport] = TransportRecorder(self._metrics, transport)
        return found


def kind_of_notification(method: str) -> str:
    """Return the label of a notification; a peer may have written anything into its method."""
    if method in NOTICES:
        return method.removeprefix("notifications/")
    return OTHER


class MetricsRecorder(MeteredObserver):
    """Records operations, sessions, connections, refusals and child processes."""

    def __init__(self, metrics: Metrics, *, upstream: str = "") -> None:
        self._upstream = upstream
        """What requests that are sent go to; empty where that has no name."""
        self._served = metrics.histogram("mcp_server_operation_duration_seconds")
        self.meter = LinkRecorder(metrics)
        """What a link that reports to nobody else uses."""
        self._asked = metrics.histogram("mcp_client_operation_duration_seconds")
        self._served_histograms: dict[Facts, Histogram] = {}
        self._asked_histograms: dict[Facts, Histogram] = {}
        self._refusals = metrics.counter("ferrule_refusals_total")
        self._server_sessions = metrics.histogram("mcp_server_session_duration_seconds")
        self._client_sessions = metrics.histogram("mcp_client_session_duration_seconds")
        self._sessions = metrics.gauge("ferrule_sessions")
        self._sessions_opened = metrics.counter("ferrule_sessions_opened_total")
        self._sessions_ended = metrics.counter("ferrule_sessions_ended_total")
        self._upstream_links = metrics.gauge("ferrule_upstream_links")
        self._connections = metrics.gauge("ferrule_connections")
        self._connections_refused = metrics.counter("ferrule_connections_refused_total")
        self._notifications = metrics.counter("ferrule_notifications_total")
        self._children = metrics.gauge("ferrule_children")
        self._auth_checks = metrics.counter("ferrule_auth_checks_total")

    # Operations

    def request_finished(self, request: ObservedRequest, outcome: Outcome) -> None:
        """Called when a request that came was answered or given up."""
        failure = ""
        if outcome.kind != "ok":
            failure = error_type(outcome)
            if outcome.kind == "refused":
                self._refusals.labels(outcome.reason).add()
        method = request.method
        if request.started is None or outcome.reason in NOT_FOUND:
            histogram = self._find_refused(method, request.transport, failure)
        else:
            facts = (method, request.name if method == CALL else "", failure, request.transport, request.revision)
            kept = self._served_histograms.get(facts)
            histogram = kept or self._find_served(facts)
        if request.ended is not None:
            histogram.observe(request.ended - request.began)

    def _find_served(self, facts: Facts) -> Histogram:
        """Return the histogram of a request whose handler ran, and keep it for the next."""
        method, name, failure, transport, revision = facts
        network = NETWORK_TRANSPORTS.get(transport, transport)
        histogram = self._served.labels(method, name, failure, network, revision)
        if len(self._served_histograms) < MAX_KEPT:
            self._served_histograms[facts] = histogram
        return histogram

    def _find_refused(self, method: str, transport: str, failure: str) -> Histogram:
        """Return the histogram of a request that found no handler; a peer may have written anything into it."""
        if method not in METHODS:
            method = OTHER
        network = NETWORK_TRANSPORTS.get(transport, transport)
        return self._served.labels(method, "", failure, network, "")

    def request_answered(self, request: ObservedRequest, outcome: Outcome) -> None:
        """Called when a request of ours was answered or given up."""
        failure = ""
        method = request.method
        name = request.name if method == CALL else ""
        if outcome.kind != "ok":
            failure = error_type(outcome)
            if outcome.code is not None:
                # A peer that refuses chooses the number, and may have been asked for what does not exist.
                name = ""
                if outcome.code not in CODES:
                    failure = OTHER
        facts = (method, name, failure, request.transport, request.revision)
        kept = self._asked_histograms.get(facts)
        histogram = kept or self._find_asked(facts)
        if request.ended is not None:
            histogram.observe(request.ended - request.began)

    def _find_asked(self, facts: Facts) -> Histogram:
        """Return the histogram of a request of ours, and keep it for the next."""
        method, name, failure, transport, revision = facts
        network = NETWORK_TRANSPORTS.get(transport, transport)
        histogram = self._asked.labels(method, name, failure, network, revision, self._upstream)
        if len(self._asked_histograms) < MAX_KEPT:
            self._asked_histograms[facts] = histogram
        return histogram

    def notification_received(self, notification: ObservedNotification) -> None:
        """Called when a notification came."""
        self._notifications.labels(kind_of_notification(notification.method)).add()

    # Links and connections

    def link_opened(self, link: ObservedLink) -> None:
        """Called when a peer is connected."""
        if link.side == "client":
            self._upstream_links.labels(self._upstream).add()
            return
        self._sessions.labels(link.transport).add()
        self._sessions_opened.labels(link.transport).add()

    def link_closed(self, link: ObservedLink, error: Exception | None) -> None:
        """Called when a peer is gone."""
        seconds = 0.0
        if link.closed is not None:
            seconds = link.closed - link.opened
        network = NETWORK_TRANSPORTS.get(link.transport, link.transport)
        if link.side == "client":
            self._upstream_links.labels(self._upstream).add(-1)
            self._client_sessions.labels(network, link.revision).observe(seconds)
            return
        reason = "closed" if error is None else "lost"
        self._sessions.labels(link.transport).add(-1)
        self._sessions_ended.labels(link.transport, reason).add()
        self._server_sessions.labels(network, link.revision).observe(seconds)

    def connection_opened(self, connection: ObservedConnection) -> None:
        """Called when a listener accepted a connection."""
        self._connections.labels(connection.transport).add()

    def connection_closed(self, connection: ObservedConnection) -> None:
        """Called when a connection to a listener is gone."""
        self._connections.labels(connection.transport).add(-1)

    def connection_refused(self, transport: str, reason: str) -> None:
        """Called when a listener turned a connection away."""
        self._connections_refused.labels(transport, reason).add()

    def caller_verified(self, transport: str, verdict: Verdict) -> None:
        """Called when a verifier was asked who a caller is."""
        self._auth_checks.labels(verdict, transport).add()

    def child_started(self, child: ObservedChild) -> None:
        """Called when a child process was started."""
        self._children.labels(self._upstream).add()

    def child_exited(self, child: ObservedChild) -> None:
        """Called when a child process has ended."""
        self._children.labels(self._upstream).add(-1)
