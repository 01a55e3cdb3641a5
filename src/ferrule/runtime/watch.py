"""What a link tells its observers: calls, requests of ours and the link itself, as plain values."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ferrule.errors import Cancelled, FerruleError, InvalidAnswer, PeerError, Refusal, TimedOut
from ferrule.protocol.call import Awaited, Call
from ferrule.protocol.session import READING_FAILURES, Session
from ferrule.schema.methods import METHODS
from ferrule.schema.model import MetaOnly, read_meta
from ferrule.schema.rounds import INPUT_REQUIRED, InputRequired
from ferrule.telemetry.observer import (
    LINK_EVENTS,
    ObservedLink,
    ObservedNotification,
    ObservedRequest,
    Observers,
    Outcome,
    OutcomeKind,
    reason_of,
)
from ferrule.wire.channel import Origin
from ferrule.wire.codec import UNWRITABLE, write
from ferrule.wire.messages import Failure, Id, Notification, Request, Success

NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "resources/subscribe": "uri",
    "resources/unsubscribe": "uri",
}
"""The member of a method's params that says what the request is about."""

_read_meta_only = msgspec.json.Decoder(MetaOnly).decode


class Verdict(Struct, rename="camel", gc=False):
    """The members of a result that tell how the request ended."""

    is_error: bool | None = None
    result_type: str = ""


_read_verdict = msgspec.json.Decoder(Verdict).decode


class LinkWatch:
    """Reports what happens on one link to its observers."""

    __slots__ = ("_link", "_observer", "_pinging", "_session", "_tells_admitted", "_tells_started", "_transport")

    def __init__(
        self,
        observer: Observers,
        session: Session,
        transport: str,
        side: Literal["server", "client"],
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
            self._link = ObservedLink(side=side, transport=transport, address=address)
        self._pinging: ObservedRequest | None = None
        self._tells_admitted = observer.wants("request_admitted")
        self._tells_started = observer.wants("request_started")

    # -- the link

    def opened(self) -> None:
        """Called when the peer can be reached."""
        if self._link is not None:
            self._link.opened = monotonic()
            self._observer.link_opened(self._link)

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

    def begun(self, call: Call) -> None:
        """Called when a request may run and its handler is about to."""
        self.admitted(call)
        self.started(call)

    def admitted(self, call: Call) -> None:
        """Called when a request may run."""
        request = call.observed = self.request(call, monotonic())
        if self._tells_admitted:
            self._observer.request_admitted(request)

    def request(self, call: Call, began: float) -> ObservedRequest:
        """Return what observers see of a call."""
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
            origin=call.origin,
            link=self._link,
            began=began,
        )

    def started(self, call: Call) -> None:
        """Called when the handler of a call is about to run."""
        request = call.observed
        if request is not None:
            request.started = monotonic()
            if self._tells_started:
                self._observer.request_started(request)

    @staticmethod
    def measured(reply: Success) -> Success:
        """Return the reply with its result written already: so its size is known, and it is still written once."""
        try:
            return Success(reply.id, Raw(write(reply.result)))
        except UNWRITABLE:
            return reply  # the channel says why, as it always does

    def finished(self, call: Call, reply: Success | Failure, outcome: Any) -> None:
        """Called when a call was answered; the reply is what was sent, the outcome what it was made of."""
        request = call.observed
        call.observed = None
        kind: OutcomeKind = "ok"
        if isinstance(reply, Success):
            if call.expired:
                kind = "timed_out"
            elif call.row.may_ask:
                kind = kind_of(outcome)
            size = len(reply.result) if isinstance(reply.result, Raw) else 0
            self._finish(request, Outcome(kind=kind, size=size))
            return
        kind = "error"
        if request.started is None:
            kind = "refused"
        elif call.expired:
            kind = "timed_out"
        self._finish(request, _failed(kind, reply, outcome))

    def cancelled(self, call: Call, reason: str, message: str = "") -> None:
        """Called when a call will not be answered, for nobody waits for it any more."""
        request = call.observed
        call.observed = None
        if request is not None:
            self._finish(request, Outcome(kind="cancelled", reason=reason, message=message))

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
        observed = ObservedRequest(
            id=None if request_id is UNSET else request_id,
            method="" if request is None else request.method,
            transport=self._transport,
            revision=self._revision(params, origin),
            size=len(params) if isinstance(params, Raw) else 0,
            origin=origin,
            link=self._link,
            began=monotonic(),
        )
        self._finish(observed, _failed("refused", failure, refusal, readable=request is not None))

    def _finish(self, request: ObservedRequest, outcome: Outcome) -> None:
        request.ended = monotonic()
        self._observer.request_finished(request, outcome)

    def _revision(self, params: object, origin: Origin) -> str:
        """Return the revision of a request that was refused: what it says itself, else what was agreed."""
        if isinstance(params, Raw):
            try:
                given = _read_meta_only(params).meta
                if given is UNSET:
                    meta = None
                else:
                    meta = read_meta(given)
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
        params = notification.params
        observed = ObservedNotification(
            method=notification.method,
            transport=self._transport,
            size=len(params) if isinstance(params, Raw) else 0,
            link=self._link,
        )
        self._observer.notification_received(observed)

    # -- we ask

    def sent(self, awaited: Awaited, params: object) -> None:
        """Called when a request of ours is about to be sent."""
        request = self._ours(awaited, params)
        awaited.observed = request
        awaited.waiter.add_done_callback(lambda waiter: self._settled(awaited, waiter))
        self._observer.request_sent(request)

    def not_sent(self, awaited: Awaited, error: FerruleError) -> None:
        """Called when a request of ours could not be sent."""
        self._answered(awaited, _given_up(error))

    def pinged(self, awaited: Awaited) -> None:
        """Called when a keep-alive ping is about to be sent."""
        self._pinging = self._ours(awaited, None)
        self._observer.request_sent(self._pinging)

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
        request.ended = monotonic()
        self._observer.request_answered(request, Outcome(kind=kind))

    def _ours(self, awaited: Awaited, params: object) -> ObservedRequest:
        peer = self._session.peer
        return ObservedRequest(
            id=awaited.id,
            method=awaited.method,
            name=_name(awaited.method, params),
            transport=self._transport,
            revision="" if peer is None else peer.version,
            origin=self._session.origin,
            link=self._link,
            began=monotonic(),
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
            self._answered(awaited, Outcome(kind=kind, size=len(result)))

    def _answered(self, awaited: Awaited, outcome: Outcome) -> None:
        request = awaited.observed
        awaited.observed = None
        if request is not None:
            request.ended = monotonic()
            self._observer.request_answered(request, outcome)


def watch_on(
    session: Session,
    observer: Observers,
    transport: str,
    side: Literal["server", "client"],
    *,
    address: str = "",
    shared: bool = False,
) -> LinkWatch | None:
    """Return what reports of a link; None where nobody wants to know of links and requests."""
    if not observer.wants(*LINK_EVENTS):
        return None
    return LinkWatch(observer, session, transport, side, address=address, shared=shared)


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
