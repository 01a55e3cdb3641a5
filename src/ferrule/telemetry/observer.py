"""Observer: called for every request, link, connection, HTTP exchange and child process, in plain values.

Rule 1: an observer changes nothing. What it raises is logged, once a minute at most, and goes no further.
Rule 2: a request that was received ends with exactly one `request_finished`, also one that was refused or could not be
read; a request that was sent ends with exactly one `request_answered`.
Rule 3: where no observer was given nothing here is called, and a server on stdio does not even load it.

The module is a leaf: the runtime and the transports both report to it, and neither may import the other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, Protocol

from msgspec import UNSET, Struct, UnsetType

from ferrule.errors import (
    Busy,
    CapabilityOff,
    Forbidden,
    HeaderMismatch,
    Internal,
    InvalidParams,
    InvalidRequest,
    InvalidUri,
    MessageTooLarge,
    MethodNotFound,
    MissingCapability,
    NoTarget,
    NotInitialized,
    Overloaded,
    ParseError,
    PromptNotFound,
    RateLimited,
    Refusal,
    ResourceNotFound,
    ResultTooLarge,
    SetupError,
    StoreUnavailable,
    ToolBusy,
    ToolFailed,
    ToolNotFound,
    ToolTimedOut,
    Unauthorized,
    UnsupportedVersion,
    UrlElicitationRequired,
)
from ferrule.schema.model import Implementation, meta_in
from ferrule.telemetry.metrics import Histogram
from ferrule.wire.channel import Origin
from ferrule.wire.messages import Id

logger = logging.getLogger("ferrule.observer")

COMPLAIN_EVERY = 60.0
"""Seconds between two log records about observers that raise."""

Verdict = Literal["accepted", "anonymous", "refused", "failed"]
"""What a verifier said of a caller; `failed` where it could not tell."""
OutcomeKind = Literal["ok", "tool_error", "error", "input_required", "refused", "cancelled", "timed_out", "lost"]

REASONS: dict[type[Refusal], str] = {
    ParseError: "unreadable",
    InvalidRequest: "invalid_request",
    NotInitialized: "not_initialized",
    MethodNotFound: "unknown_method",
    CapabilityOff: "capability_off",
    MissingCapability: "missing_capability",
    UnsupportedVersion: "unsupported_version",
    InvalidParams: "invalid_params",
    InvalidUri: "invalid_uri",
    ToolNotFound: "unknown_tool",
    PromptNotFound: "unknown_prompt",
    ResourceNotFound: "unknown_resource",
    MessageTooLarge: "message_too_large",
    ResultTooLarge: "result_too_large",
    HeaderMismatch: "header_mismatch",
    Forbidden: "forbidden",
    Unauthorized: "unauthorized",
    Busy: "busy",
    ToolBusy: "tool_busy",
    Overloaded: "overloaded",
    NoTarget: "no_target",
    RateLimited: "rate_limited",
    StoreUnavailable: "store_unavailable",
    ToolFailed: "tool_failed",
    ToolTimedOut: "tool_timed_out",
    UrlElicitationRequired: "url_elicitation_required",
    Internal: "internal",
}
"""Why a request was refused or failed, in a word that can be the label of a metric."""


def reason_of(refusal: Refusal, *, readable: bool = True) -> str:
    """Return why a request was refused, in one word; of one that could not be read, that or that it was too large."""
    if not readable and not isinstance(refusal, MessageTooLarge):
        return "unreadable"
    for kind in type(refusal).__mro__:
        if kind in REASONS:
            return REASONS[kind]
    return "refusal"


attempts: ContextVar[int] = ContextVar("ferrule_attempt", default=1)
"""Which attempt what is sent now is; a router sets it when a call goes on to another target."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How a request ended.

    | kind | meaning |
    |---|---|
    | `ok` | answered with a result |
    | `tool_error` | answered with a result whose `isError` is true |
    | `error` | answered with a JSON-RPC error after the handler had started |
    | `input_required` | answered with questions; the peer asks again with the answers |
    | `refused` | answered with a JSON-RPC error before any handler had started |
    | `cancelled` | the caller cancelled it or is gone |
    | `timed_out` | no answer in time: of a tool with a time limit, or of the peer |
    | `lost` | sent, and no answer can come any more; or not sent at all |
    """

    kind: OutcomeKind
    code: int | None = None
    """The code of the JSON-RPC error; None without one."""
    reason: str = ""
    """Why, in one word: one of `REASONS`, the name of an exception, or empty."""
    message: str = ""
    """The message of the JSON-RPC error, or the words of whoever cancelled."""
    size: int = 0
    """Bytes of the result; 0 without one."""


class ObservedLink(Struct, eq=False, kw_only=True):
    """One peer while it is connected: a session of the handshake era, or one connection."""

    side: Literal["client", "server"]
    """Which side we are."""
    transport: str
    """`stdio`, `memory`, `http`, `tcp`, `unix`, `websocket`, or the name of a transport of your own."""
    address: str = ""
    """Of the peer, where the transport knows it."""
    opened: float = 0.0
    """When, on the clock of `time.monotonic`; so are all times here."""
    closed: float | None = None
    revision: str = ""
    """The agreed protocol revision; known when the link closes, empty where none was agreed."""
    peer: str = ""
    """The name the peer gives itself; known when the link closes."""
    upstream: str = ""
    """What a client calls its server, or all its targets together (its option `upstream`)."""
    replica: str = ""
    """Which of several targets it is; empty where there is one."""


class ObservedRequest(Struct, eq=False, kw_only=True):
    """One request, received or sent: the same object from its first event to its last, so it may be a key."""

    id: Id | None
    """None where none could be read."""
    method: str
    """Empty where the message could not be read."""
    name: str = ""
    """The tool, the prompt or the URI of the resource that is asked for; empty for other methods."""
    transport: str
    revision: str = ""
    """The protocol revision of the request; empty where it is not known."""
    size: int = 0
    """Bytes of the params of a request that was received; 0 for one that was sent."""
    meta: bytes = b""
    """The `_meta` of a request that was received, as JSON; empty without one."""
    retry: bool = False
    """Whether it brings the answers to questions of an earlier round."""
    stateless: bool = False
    """Whether it belongs to the stateless era."""
    peer: Implementation | None = None
    """The program that asks, where it has named itself; None for a request that was sent."""
    trace_id: str = ""
    """The trace it belongs to, where a tracer knows one, in hexadecimal digits."""
    span: Any = None
    """The `RequestSpan` of a request that is traced; None for the others."""
    origin: Origin
    """What the transport knows about the sender."""
    link: ObservedLink | None = None
    """The link it belongs to; None for a request without a session."""
    began: float
    """When it was read, or sent."""
    started: float | None = None
    """When its handler started; None before, and for a request that was sent."""
    ended: float | None = None
    """When it was answered or given up."""
    session: str = ""
    """How the id of the session begins that a request of ours goes with, where the transport has one."""
    attempt: int = 1
    """Which attempt a request of ours is: more than 1 where a router sends its call to another target."""
    round: int = 0
    """Which round of a call that asks it is, from 2 on, known when it has ended; 0 for a first one, or not known."""

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        if self.ended is None:
            ended = time.monotonic()
        else:
            ended = self.ended
        return ended - self.began


class ObservedNotification(Struct, frozen=True, kw_only=True):
    """One notification, received or sent."""

    method: str
    transport: str
    size: int = 0
    """Bytes of its params."""
    params: bytes = b""
    """Its params, as JSON."""
    link: ObservedLink | None = None


class ObservedConnection(Struct, eq=False, kw_only=True):
    """One connection to a listener of ours; one that becomes a WebSocket closes as `http` and opens as `websocket`."""

    transport: str
    address: str = ""
    opened: float = 0.0
    closed: float | None = None


class ObservedExchange(Struct, frozen=True, kw_only=True):
    """One HTTP request to our own engine and its response."""

    method: str
    """Empty where the head could not be read."""
    path: str
    """Without the query."""
    status: int
    """0 where the client was gone before there was one."""
    received: int
    """Bytes of the body of the request."""
    sent: int
    """Bytes of the response, its head included."""
    began: float
    ended: float
    address: str = ""


class ObservedChild(Struct, eq=False, kw_only=True):
    """One child process."""

    command: str
    """The program, without its arguments."""
    pid: int
    started: float
    exited: float | None = None
    exit_code: int | None = None
    """Minus the number of the signal that killed it; None while it runs."""


class Observer:
    """Told of what happens in a server or a client; every method is a no-op, override those you want.

    All are called in the thread of the event loop, in the middle of the work: they must be quick and must not wait.
    """

    def request_admitted(self, request: ObservedRequest) -> None:
        """Called when a request was read and may run; it starts now or waits for its turn."""

    def request_started(self, request: ObservedRequest) -> None:
        """Called when the handler of a request is about to run."""

    def request_finished(self, request: ObservedRequest, outcome: Outcome) -> None:
        """Called once for every request that came, admitted or not, when it was answered or given up."""

    def request_recorded(self, request: ObservedRequest, outcome: Outcome, arguments: bytes, result: bytes) -> None:
        """Called after `request_finished`, with the contents as JSON.

        The arguments are those of a tool, or the params of any other method; the result is empty where there is none.
        """

    def notification_received(self, notification: ObservedNotification) -> None:
        """Called when a notification came."""

    def notification_sent(self, notification: ObservedNotification) -> None:
        """Called when a server sent a notification to one of its peers: progress, a log message, a change."""

    def request_sent(self, request: ObservedRequest) -> None:
        """Called when a request of ours is about to be sent."""

    def request_answered(self, request: ObservedRequest, outcome: Outcome) -> None:
        """Called once for every request of ours, when it was answered or given up."""

    def question_recorded(self, request: ObservedRequest, params: bytes) -> None:
        """Called after `request_sent`, with the params as JSON."""

    def answer_recorded(self, request: ObservedRequest, outcome: Outcome, result: bytes) -> None:
        """Called after `request_answered`, with the result as JSON; empty where there is none."""

    def link_opened(self, link: ObservedLink) -> None:
        """Called when a peer is connected."""

    def link_closed(self, link: ObservedLink, error: Exception | None) -> None:
        """Called when a peer is gone; without an error it went in order."""

    def connection_opened(self, connection: ObservedConnection) -> None:
        """Called when a listener of ours accepted a connection."""

    def connection_closed(self, connection: ObservedConnection) -> None:
        """Called when a connection to a listener of ours is gone."""

    def connection_refused(self, transport: str, reason: str) -> None:
        """Called when a listener of ours turned a connection away."""

    def caller_verified(self, transport: str, verdict: Verdict) -> None:
        """Called when a verifier was asked who a caller is; a verdict that is kept is not asked for again."""

    def exchange_finished(self, exchange: ObservedExchange) -> None:
        """Called when our HTTP engine has sent a response, or has lost the client."""

    def child_started(self, child: ObservedChild) -> None:
        """Called when a child process was started."""

    def child_exited(self, child: ObservedChild) -> None:
        """Called when a child process has ended."""

    def router_decided(self, kind: str, target: str, reason: str) -> None:
        """Called when a router picked or left out a target, or refused a call; kinds are those of `RouterEvent`."""


class RevisionMeter(Protocol):
    """Where the requests of one transport and revision are counted that ended well."""

    revision: str
    transport: TransportMeter
    tools: Mapping[str, Histogram]
    """Of calls of tools, by name; any name is there."""
    methods: Mapping[str, Histogram]
    """Of all other methods; any method is there."""


class TransportMeter(Protocol):
    """Where the sessions and notifications of one transport are counted, and the requests that ended well."""

    name: str
    """Of the transport."""
    latest: RevisionMeter
    """Where the requests of the revision are counted that was asked for last: most links speak one."""

    def of(self, revision: str) -> RevisionMeter:
        """Return where the requests of one revision are counted."""

    def opened(self) -> None:
        """Called when a peer is connected."""

    def closed(self, revision: str, seconds: float, error: Exception | None) -> None:
        """Called when a peer is gone: which revision it spoke, and how long it was connected."""

    def count_connections(self, change: int) -> None:
        """Called when a listener accepted a connection (1), or one is gone (-1)."""

    def notified(self, method: str) -> None:
        """Called when a notification came."""

    def verified(self, verdict: Verdict) -> None:
        """Called when a verifier was asked who a caller is."""


class Meter(Protocol):
    """What an observer has that needs no values of what is usual: how often, and how long it took, is enough."""

    def over(self, transport: str) -> TransportMeter:
        """Return where one transport is counted; all its links share it."""


class MeteredObserver(Observer):
    """An observer that is served faster as a meter; whatever another one calls `meter` is its own."""

    meter: Meter


def _events(*beginnings: str) -> tuple[str, ...]:
    """Return the names of events that begin so; without any, of all."""
    names = []
    for name in vars(Observer):
        if not name.startswith("_") and name.startswith(beginnings or ""):
            names.append(name)
    return tuple(names)


EVENTS = _events()
LINK_EVENTS = _events("request_", "notification_", "question_", "answer_", "link_")
"""What happens on links; the rest is reported by transports."""
CONNECTION_EVENTS = _events("connection_")


class Complaints:
    """Logs that observers fail, in one record a minute at most."""

    def __init__(self) -> None:
        self._complained = -COMPLAIN_EVERY
        self._unreported = 0

    def add(self, event: str, error: Exception) -> None:
        """Log a failure, or count it for the next record."""
        now = time.monotonic()
        if now - self._complained < COMPLAIN_EVERY:
            self._unreported += 1
            return
        self._complained = now
        more = self._unreported
        self._unreported = 0
        logger.error(
            "an observer failed in %s, which was ignored (%d more failures since the last record)",
            event,
            more,
            exc_info=error,
        )


class Observers(Observer):
    """Any number of observers as one, which never raises."""

    def __init__(self, observers: Sequence[Observer], tracer: Any = None) -> None:
        self.tracer = tracer
        """The `Tracer` that makes spans of requests; None where nobody does."""
        self.upstream = ""
        """What a client calls its server; and which of several targets that is."""
        self.replica = ""
        self.meter: Meter | None = None
        """What requests that end well are reported to instead, where metrics are all that is wanted."""
        if tracer is None and len(observers) == 1 and isinstance(observers[0], MeteredObserver):
            self.meter = observers[0].meter
        self._wanted: set[str] = set()
        self._complaints = Complaints()
        for event in EVENTS:
            callbacks = _callbacks(observers, event)
            if callbacks:
                self._wanted.add(event)
                setattr(self, event, self._guarded(event, callbacks))  # in place of the no-op of the class
        self.observes_links = self.wants(*LINK_EVENTS)
        """Whether anybody wants to know of links and requests; every link asks."""
        self.observes_admission = self.wants("request_admitted")
        self.observes_start = self.wants("request_started")
        self.observes_contents = self.wants("request_recorded")
        self.observes_questions = self.wants("question_recorded", "answer_recorded")
        self.observes_sent = self.wants("notification_sent")
        """Whether links are made that report each notification they send."""

    def wants(self, *events: str) -> bool:
        """Return whether any of the observers overrides any of these methods."""
        return not self._wanted.isdisjoint(events)

    def _guarded(self, event: str, callbacks: Sequence[Callable[..., None]]) -> Callable[..., None]:
        def tell(*values: object) -> None:
            for callback in callbacks:
                try:
                    callback(*values)
                except Exception as error:
                    self._complaints.add(event, error)

        return tell

    def refused(
        self, identity: Id | UnsetType | None, method: str, refusal: Refusal, origin: Origin, params: object = None
    ) -> None:
        """Report a request that a transport itself refused, before any link saw it.

        Without a method it could not be read. `params` are as they came: what they say of a trace holds for its span.
        """
        now = time.monotonic()
        request = ObservedRequest(
            id=None if identity is UNSET else identity,
            method=method,
            transport=origin.carrier,
            revision=origin.version,
            origin=origin,
            began=now,
            ended=now,
        )
        outcome = Outcome(
            kind="refused",
            code=refusal.own_code,
            reason=reason_of(refusal, readable=bool(method)),
            message=refusal.message,
        )
        if self.tracer is not None and method:
            incoming = self.tracer.incoming(meta_in(params), origin)
            if incoming.sampled:
                request.span = self.tracer.received(request, incoming, time.time_ns())
        self.request_finished(request, outcome)
        if request.span is not None:
            request.span.answered(request, outcome)


def _callbacks(observers: Sequence[Observer], event: str) -> tuple[Callable[..., None], ...]:
    """Return the methods for one event, without those that nobody overrode."""
    found = []
    for observer in observers:
        method = getattr(observer, event)
        if getattr(method, "__func__", method) is not getattr(Observer, event):
            found.append(method)
    return tuple(found)


def observers_of(given: object, whose: str, *, more: Sequence[Observer] = (), tracer: Any = None) -> Observers | None:
    """Return what the options of a server or client name, as one; None where nobody wants to know anything.

    `given` is the option `observer`, `more` are observers of ours. Raises SetupError for what is no observer.
    """
    if given is None:
        observers: Sequence[Observer] = ()
    elif isinstance(given, Observer):
        observers = (given,)
    elif isinstance(given, list | tuple) and all(isinstance(each, Observer) for each in given):
        observers = given
    else:
        raise SetupError(f"{whose}: observer must be an Observer or a list of them, not {given!r}")
    if not observers and not more and tracer is None:
        return None
    return Observers((*observers, *more), tracer)
