"""What a link tells its observers: calls, requests of ours and the link itself, as plain values."""

from __future__ import annotations

import asyncio
import random
from contextvars import Context
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ferrule.errors import Cancelled, FerruleError, InvalidAnswer, PeerError, Refusal, TimedOut
from ferrule.protocol.call import Awaited, Call
from ferrule.protocol.session import READING_FAILURES, Session
from ferrule.schema.methods import METHODS
from ferrule.schema.model import Meta, meta_in, read_meta
from ferrule.schema.rounds import INPUT_REQUIRED, InputRequired
from ferrule.telemetry.observer import (
    ObservedLink,
    ObservedNotification,
    ObservedRequest,
    Observers,
    Outcome,
    OutcomeKind,
    attempts,
    reason_of,
)
from ferrule.wire.channel import Origin
from ferrule.wire.codec import UNWRITABLE, write
from ferrule.wire.messages import Failure, Id, Notification, Request, Success

if TYPE_CHECKING:
    from ferrule.telemetry.tracer import Incoming, Outgoing, Tracer, UnsampledContexts

CALL = "tools/call"
HTTP = "http"
NAMED_BY = {
    CALL: "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "resources/subscribe": "uri",
    "resources/unsubscribe": "uri",
}
"""The member of a method's params that says what the request is about."""

NOTHING = Raw(b"")

_chance = random.random


class Verdict(Struct, rename="camel", gc=False):
    """The members of a result that tell how the request ended."""

    is_error: bool | None = None
    result_type: str = ""


_read_verdict = msgspec.json.Decoder(Verdict).decode


class LinkWatch:
    """Reports what happens on one link to its observers, and lets a tracer make spans of its requests.

    Rule: where there is a tracer and no observer, nothing is made of a request that is not sampled.
    """

    __slots__ = (
        "_link",
        "_observer",
        "_observes",
        "_pinging",
        "_ratio",
        "_session",
        "_tells_admitted",
        "_tells_contents",
        "_tells_questions",
        "_tells_started",
        "_tracer",
        "_transport",
        "_unsampled",
        "_untraced",
        "received",
        "traces",
    )

    counts_only = False
    """Whether a call that is about to run needs nothing but the time: the link sets `began` by itself then."""

    def __init__(
        self,
        observer: Observers,
        session: Session,
        transport: str,
        side: Literal["client", "server"],
        *,
        address: str = "",
        shared: bool = False,
    ) -> None:
        self._observer = observer
        self._session = session
        self._transport = transport
        self._link: ObservedLink | None = None
        """None for the one link of all who have no session, which is no peer."""
        if not shared:
            self._link = ObservedLink(
                side=side,
                transport=transport,
                address=address,
                upstream=observer.upstream,
                replica=observer.replica,
            )
        self._pinging: ObservedRequest | None = None
        self._tells_admitted = observer.observes_admission
        self._tells_started = observer.observes_start
        self._tells_contents = observer.observes_contents
        self._tells_questions = observer.observes_questions
        self._observes = observer.observes_links
        self._tracer = observer.tracer
        self._ratio = 0.0
        self._unsampled: UnsampledContexts | None = None
        if self._tracer is not None:
            self._ratio = self._tracer.ratio
            self._unsampled = self._tracer.unsampled_contexts()
        self._untraced: Meta | None = None
        """A `_meta` that says nothing of a trace; the next request often has the same."""
        self.traces = self._tracer is not None
        """Whether it is of interest when a frame came."""
        self.received = 0
        """When the frame came that is being read, in nanoseconds since 1970; 0 where it came in no frame."""

    # -- the link

    def opened(self, context: Context | None) -> Context | None:
        """Called when the peer can be reached; return the context its calls run in, None for the one they come in."""
        if self._link is not None:
            self._link.opened = monotonic()
            self._observer.link_opened(self._link)
            if self._unsampled is not None and self._transport != HTTP:
                # What comes over one connection comes in one context, so this is done once.
                return self._unsampled.based_on(context)
        return context

    def opened_at(self, when: float | None) -> None:
        """Take over a link that was opened before, where it is a peer's own."""
        if self._link is not None and when is not None:
            self._link.opened = when

    def closed(self, error: Exception | None) -> None:
        """Called when the link is over."""
        link = self._link
        peer = self._session.peer
        if link is None or not link.opened:
            return
        link.closed = monotonic()
        if peer is not None:
            link.revision = peer.version
            if peer.implementation is not None:
                link.peer = peer.implementation.name
        self._observer.link_closed(link, error)

    # -- the peer asks

    def begun(self, call: Call, context: Context | None) -> Context | None:
        """Called when a request may run and its handler is about to; return the context it runs in."""
        self.admitted(call, context)
        if call.observed is not None:
            self.started(call)
        if call.context is not None:
            return call.context  # type: ignore[no-any-return]
        return context

    def admitted(self, call: Call, context: Context | None) -> None:
        """Called when a request may run, in this context unless a tracer makes another."""
        incoming = None
        if self._tracer is not None:
            if call.meta is not self._untraced or self._transport == HTTP:
                incoming = self._incoming(call, self._tracer, context)
            elif _chance() < self._ratio:
                incoming = self._tracer.begun_here
            if not self._observes and (incoming is None or not incoming.sampled):
                return
        request = call.observed = self.request(call, monotonic())
        if incoming is not None:
            self._begin_span(request, incoming)
            if request.span is not None:
                call.context = request.span.run_in(context)
        if self._tells_admitted:
            self._observer.request_admitted(request)

    def request(self, call: Call, began: float) -> ObservedRequest:
        """Return what observers see of a call."""
        call.began = began
        meta = call.params.meta
        method = call.row.name
        return ObservedRequest(
            id=call.id,
            method=method,
            name=_name(method, call.params),
            transport=self._transport,
            revision=call.peer.revision.version,
            size=len(call.raw),
            meta=b"" if meta is UNSET else bytes(meta),
            retry=call.retry,
            stateless=not call.peer.revision.two_way,
            peer=call.peer.implementation,
            origin=call.origin,
            link=self._link,
            began=began,
        )

    def _incoming(self, call: Call, tracer: Tracer, context: Context | None) -> Incoming:
        """Decide whether a call is traced; one that is not runs where its spans are not recorded."""
        meta = call.params.meta
        incoming = tracer.incoming(b"" if meta is UNSET else bytes(meta), call.origin)
        trace = incoming.trace
        if not trace.traceparent and not trace.baggage:
            self._untraced = call.meta
        if trace.traceparent or trace.baggage or self._transport == HTTP:
            assert self._unsampled is not None
            call.context = self._unsampled.based_on(context, trace)
        return incoming

    def _begin_span(self, request: ObservedRequest, incoming: Incoming) -> None:
        assert self._tracer is not None
        request.trace_id = incoming.trace.trace_id
        if incoming.sampled:
            request.span = self._tracer.received(request, incoming, self.received or time_ns())
            self.received = 0
        if request.span is not None:
            request.trace_id = request.span.trace_id

    def started(self, call: Call) -> None:
        """Called when the handler of a call is about to run."""
        request = call.observed
        request.started = monotonic()
        if self._tells_started:
            self._observer.request_started(request)
        if request.span is not None:
            request.span.mark("started")

    @staticmethod
    def encoded(call: Call, reply: Success | Failure) -> Success | Failure:
        """Return the reply with its result written already: so its size is known, and it is still written once."""
        span = call.observed.span
        if span is not None:
            span.mark("finished")
        if isinstance(reply, Success) and type(reply.result) is not Raw:
            try:
                reply = Success(reply.id, Raw(write(reply.result)))
            except UNWRITABLE:
                return reply  # the channel says why, as it always does
        if span is not None:
            span.mark("encoded")
        return reply

    def finished(self, call: Call, reply: Success | Failure, outcome: Any) -> None:
        """Called when a call was answered; the reply is what was sent, the outcome what it was made of."""
        request = call.observed
        call.observed = None
        if call.retry and call.answers is not None and call.answers.journal.round > 1:
            request.round = call.answers.journal.round
        kind: OutcomeKind = "ok"
        if isinstance(reply, Success):
            if call.expired:
                kind = "timed_out"
            elif call.row.may_ask:
                kind = kind_of(outcome)
            result = reply.result if isinstance(reply.result, Raw) else NOTHING
            self._finish(request, Outcome(kind=kind, size=len(result)), _arguments(call.params, call.raw), result)
            return
        kind = "error"
        if request.started is None:
            kind = "refused"
        elif call.expired:
            kind = "timed_out"
        self._finish(request, _failed(kind, reply, outcome), _arguments(call.params, call.raw))

    def cancelled(self, call: Call, reason: str, message: str = "") -> None:
        """Called when a call will not be answered, for nobody waits for it any more."""
        request = call.observed
        call.observed = None
        if request is not None:
            outcome = Outcome(kind="cancelled", reason=reason, message=message)
            self._finish(request, outcome, _arguments(call.params, call.raw))

    def refused(
        self,
        request_id: Id | UnsetType,
        request: Request | None,
        refusal: Refusal,
        failure: Failure,
        origin: Origin | None,
    ) -> None:
        """Called when a message was not admitted; without a request, because it could not be read."""
        origin = origin or self._session.origin
        params = UNSET if request is None else request.params
        raw = params if isinstance(params, Raw) else NOTHING
        observed = ObservedRequest(
            id=None if request_id is UNSET else request_id,
            method="" if request is None else request.method,
            transport=self._transport,
            revision=self._revision(params, origin),
            size=len(raw),
            origin=origin,
            link=self._link,
            began=monotonic(),
        )
        if self._tracer is not None and request is not None:
            self._begin_span(observed, self._tracer.incoming(meta_in(params), origin))
        self._finish(observed, _failed("refused", failure, refusal, readable=request is not None), raw)

    def _finish(self, request: ObservedRequest, outcome: Outcome, arguments: Raw, result: Raw = NOTHING) -> None:
        request.ended = monotonic()
        self._observer.request_finished(request, outcome)
        if self._tells_contents:
            self._observer.request_recorded(request, outcome, bytes(arguments), bytes(result))
        span = request.span
        if span is not None:
            if self._tracer is not None and self._tracer.contents and request.method == CALL:
                span.show(arguments, result)
            span.answered(request, outcome)

    def _revision(self, params: object, origin: Origin) -> str:
        """Return the revision of a request that was refused: what it says itself, else what was agreed."""
        if isinstance(params, Raw):
            try:
                given = meta_in(params)
                meta = read_meta(Raw(given)) if given else None
            except READING_FAILURES:
                meta = None
            if meta is not None and meta.version is not UNSET:
                return meta.version
        if origin.version:
            return origin.version
        if self._session.peer is None:
            return ""
        return self._session.peer.version

    def notified(self, notification: Notification) -> None:
        """Called when a notification came."""
        self._observer.notification_received(self._notification(notification))

    def _notification(self, notification: Notification) -> ObservedNotification:
        params = _written(notification.params)
        return ObservedNotification(
            method=notification.method,
            transport=self._transport,
            size=len(params),
            params=params,
            link=self._link,
        )

    def told(self, notification: Notification) -> None:
        """Called when a notification was sent."""
        self._observer.notification_sent(self._notification(notification))

    # -- we ask

    def sent(self, awaited: Awaited, params: object) -> object:
        """Called when a request of ours is about to be sent; return its params, which may name the trace now."""
        tracer = self._tracer
        outgoing = None
        if tracer is not None:
            outgoing = tracer.outgoing(params)
            if not self._observes and not outgoing.sampled:
                return outgoing.stamped(params)
        request = self._ours(awaited, params)
        awaited.observed = request
        awaited.waiter.add_done_callback(lambda waiter: self._settled(awaited, waiter))
        if outgoing is not None:
            params = self._traced(request, outgoing, params)
        self._observer.request_sent(request)
        if self._tells_questions:
            self._observer.question_recorded(request, _written(params))
        return params

    def _traced(self, request: ObservedRequest, outgoing: Outgoing, params: object) -> object:
        """Begin the span of a request of ours, where it is sampled. Return its params with its trace."""
        assert self._tracer is not None
        request.trace_id = outgoing.passed_on.trace_id
        if outgoing.sampled:
            request.span = self._tracer.sent(request, outgoing.parent)
        if request.span is None:
            return outgoing.stamped(params)
        request.trace_id = request.span.trace_id
        return self._tracer.stamped(params, request.span.carried)

    def not_sent(self, awaited: Awaited, error: FerruleError) -> None:
        """Called when a request of ours could not be sent."""
        self._answered(awaited, _given_up(error))

    def pinged(self, awaited: Awaited) -> None:
        """Called when a keep-alive ping is about to be sent."""
        self._pinging = self._ours(awaited, None)
        self._observer.request_sent(self._pinging)
        if self._tells_questions:
            self._observer.question_recorded(self._pinging, b"")

    def ponged(self, *, alive: bool, closed: bool) -> None:
        """Called when a keep-alive ping was answered, or was not in time, or the link is closed."""
        request = self._pinging
        self._pinging = None
        if request is None:
            return
        kind: OutcomeKind = "timed_out"
        if alive:
            kind = "ok"
        elif closed:
            kind = "lost"
        self._report_answer(request, Outcome(kind=kind), NOTHING)

    def _ours(self, awaited: Awaited, params: object) -> ObservedRequest:
        peer = self._session.peer
        return ObservedRequest(
            id=awaited.id,
            method=awaited.method,
            name=_name(awaited.method, params),
            transport=self._transport,
            revision="" if peer is None else peer.version,
            stateless=peer is not None and not peer.revision.two_way,
            origin=self._session.origin,
            link=self._link,
            began=monotonic(),
            session="" if awaited.channel is None else awaited.channel.short_session,
            attempt=attempts.get(),
        )

    def _settled(self, awaited: Awaited, waiter: asyncio.Future[Raw]) -> None:
        if waiter.cancelled():
            self._answered(awaited, Outcome(kind="cancelled"))
            return
        error = waiter.exception()
        if error is not None:
            self._answered(awaited, _given_up(error))
        else:
            result = waiter.result()
            row = METHODS.get(awaited.method)
            if row is not None and row.may_ask:
                kind = kind_of(result)
            else:
                kind = "ok"
            self._answered(awaited, Outcome(kind=kind, size=len(result)), result)

    def _answered(self, awaited: Awaited, outcome: Outcome, result: Raw = NOTHING) -> None:
        request = awaited.observed
        awaited.observed = None
        if request is not None:
            self._report_answer(request, outcome, result)
            if request.span is not None:
                request.span.finish(request, outcome)

    def _report_answer(self, request: ObservedRequest, outcome: Outcome, result: Raw) -> None:
        request.ended = monotonic()
        self._observer.request_answered(request, outcome)
        if self._tells_questions:
            self._observer.answer_recorded(request, outcome, bytes(result))


def watch_on(
    session: Session,
    observer: Observers,
    transport: str,
    side: Literal["client", "server"],
    *,
    address: str = "",
    shared: bool = False,
) -> LinkWatch | None:
    """Return what reports of a link; None where nobody wants to know of links and requests."""
    if observer.tracer is None and not observer.observes_links:
        return None
    return LinkWatch(observer, session, transport, side, address=address, shared=shared)


def _written(params: object) -> bytes:
    """Return params as JSON; empty for none, and for what cannot be written, which the channel says."""
    if params is None or params is UNSET:
        return b""
    if isinstance(params, Raw):
        return bytes(params)
    try:
        return write(params)
    except UNWRITABLE:
        return b""


def kind_of(result: object) -> OutcomeKind:
    """Return how a request ended that was answered with this result, which may be written already."""
    if not isinstance(result, Raw):
        if isinstance(result, InputRequired):
            return "input_required"
        if getattr(result, "is_error", None):
            return "tool_error"
        return "ok"
    try:
        verdict = _read_verdict(result)
    except READING_FAILURES:
        return "ok"
    if verdict.is_error:
        return "tool_error"
    if verdict.result_type == INPUT_REQUIRED:
        return "input_required"
    return "ok"


def _failed(kind: OutcomeKind, failure: Failure, refusal: Refusal, *, readable: bool = True) -> Outcome:
    reason = reason_of(refusal, readable=readable)
    return Outcome(kind=kind, code=failure.error.code, reason=reason, message=failure.error.message)


def _given_up(error: BaseException) -> Outcome:
    """Return the outcome of a request of ours that failed with an exception."""
    reason = type(error).__name__
    message = str(error)
    if isinstance(error, PeerError):
        return Outcome(kind="error", code=error.code, message=error.message)
    if isinstance(error, TimedOut):
        return Outcome(kind="timed_out", reason=reason, message=message)
    if isinstance(error, Cancelled):
        return Outcome(kind="cancelled", message=message)
    if isinstance(error, InvalidAnswer):
        return Outcome(kind="error", reason=reason, message=message)
    return Outcome(kind="lost", reason=reason, message=message)


def _name(method: str, params: object) -> str:
    """Return which tool, prompt or resource a request is about."""
    member = NAMED_BY.get(method)
    if member is None:
        return ""
    if isinstance(params, dict):
        found = params.get(member)
    else:
        found = getattr(params, member, "")
    if isinstance(found, str):
        return found
    return ""


def _arguments(params: object, raw: Raw) -> Raw:
    """Return the arguments of a tool as they were written, of other methods the params."""
    found = getattr(params, "arguments", None)
    if isinstance(found, Raw):
        return found
    return raw
