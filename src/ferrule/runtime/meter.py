"""What a link tells metrics, where nobody else wants to know: how long each request took."""

from __future__ import annotations

from bisect import bisect_left
from contextvars import Context
from time import monotonic
from typing import Any

from msgspec import Raw, UnsetType

from ferrule.errors import FerruleError, Refusal
from ferrule.protocol.call import Awaited, Call
from ferrule.protocol.session import Session
from ferrule.runtime.watch import CALL, LinkWatch, kind_of
from ferrule.telemetry.observer import Observers, TransportMeter
from ferrule.wire.channel import Origin
from ferrule.wire.messages import Failure, Id, Notification, Request, Success

WAITS = object()
"""Stands in `Call.observed` of a call that waits for its turn."""


class LinkMeter:
    """Reports to metrics alone: what is usual is counted, and no value is made for it.

    All else goes through a `LinkWatch`, made for what there is to report: thousands of links may be idle.
    """

    __slots__ = ("_observer", "_opened", "_pinging", "_session", "_usual")

    counts_only = True
    traces = False
    received = 0
    """Never set: it is of no interest when a frame came."""

    def __init__(self, observer: Observers, meter: TransportMeter, session: Session, *, shared: bool) -> None:
        self._observer = observer
        self._session = session
        self._opened: float | None = None if shared else 0.0
        """When the link was opened, 0.0 before that; None for the one link of all who have no session."""
        self._usual = meter.latest
        """Where the requests of the last revision are counted."""
        self._pinging: LinkWatch | None = None
        """What has reported a ping and waits for its end."""

    def _new_watch(self) -> LinkWatch:
        """Return what reports all that is not usual."""
        origin = self._session.origin
        shared = self._opened is None
        watch = LinkWatch(
            self._observer, self._session, self._usual.transport.name, "server", address=origin.address, shared=shared
        )
        watch.opened_at(self._opened)
        return watch

    def opened(self, context: Context | None) -> Context | None:
        """Called when the peer can be reached; return the context its calls run in, as it was."""
        if self._opened is not None:
            self._opened = monotonic()
            self._usual.transport.opened()
        return context

    def closed(self, error: Exception | None) -> None:
        """Called when the link is over."""
        if self._opened:
            peer = self._session.peer
            revision = "" if peer is None else peer.version
            self._usual.transport.closed(revision, monotonic() - self._opened, error)

    def begun(self, call: Call, context: Context | None) -> Context | None:
        """Called when a request may run and its handler is about to; return the context it runs in."""
        call.began = monotonic()
        return context

    def admitted(self, call: Call, context: Context | None) -> None:
        """Called when a request may run, and waits for its turn."""
        call.began = monotonic()
        call.observed = WAITS

    def started(self, call: Call) -> None:
        """Called when the handler of a call that waited is about to run."""
        call.observed = None

    def finished(self, call: Call, reply: Success | Failure, outcome: Any) -> None:
        """Called when a call was answered."""
        # What our own tools have written already ended well, and need not be read again.
        if (type(outcome) is not Raw or call.relayed) and not _ended_well(call, reply, outcome):
            self._watch_of(call).finished(call, reply, outcome)
            return
        usual = self._usual
        revision = call.peer.revision.version
        if revision is not usual.revision:
            usual = self._usual = usual.transport.of(revision)
        method = call.row.name
        if method == CALL:
            durations = usual.tools[call.params.name]
        else:
            durations = usual.methods[method]
        # What `Histogram.observe` does, without a call: this happens once for every request.
        seconds = monotonic() - call.began
        if seconds <= durations.lowest:
            durations.counts[0] += 1
        else:
            durations.counts[bisect_left(durations.edges, seconds)] += 1
        durations.sum += seconds

    def cancelled(self, call: Call, reason: str, message: str = "") -> None:
        """Called when a call will not be answered, for nobody waits for it any more."""
        self._watch_of(call).cancelled(call, reason, message)

    def _watch_of(self, call: Call) -> LinkWatch:
        """Return what reports a call, and give the call the value that observers see of it."""
        watch = self._new_watch()
        waits = call.observed is WAITS
        call.observed = watch.request(call, call.began)
        if not waits:
            call.observed.started = call.began
        return watch

    # -- what is rare

    @staticmethod
    def encoded(call: Call, reply: Success | Failure) -> Success | Failure:
        """Return the reply: its size is of no interest."""
        return reply

    def refused(
        self,
        request_id: Id | UnsetType,
        request: Request | None,
        refusal: Refusal,
        failure: Failure,
        origin: Origin | None,
    ) -> None:
        """Called when a message was not admitted."""
        self._new_watch().refused(request_id, request, refusal, failure, origin)

    def notified(self, notification: Notification) -> None:
        """Called when a notification came."""
        self._usual.transport.notified(notification.method)

    def sent(self, awaited: Awaited, params: object) -> Any:
        """Called when a request of ours is about to be sent; return its params."""
        return self._new_watch().sent(awaited, params)

    def not_sent(self, awaited: Awaited, error: FerruleError) -> None:
        """Called when a request of ours could not be sent."""
        self._new_watch().not_sent(awaited, error)

    def pinged(self, awaited: Awaited) -> None:
        """Called when a keep-alive ping is about to be sent."""
        self._pinging = self._new_watch()
        self._pinging.pinged(awaited)

    def ponged(self, *, alive: bool, closed: bool) -> None:
        """Called when a keep-alive ping was answered, or was not in time, or the link is closed."""
        if self._pinging is not None:
            self._pinging.ponged(alive=alive, closed=closed)
            self._pinging = None


def _ended_well(call: Call, reply: Success | Failure, outcome: object) -> bool:
    if type(reply) is not Success or call.expired:
        return False
    return not call.row.may_ask or kind_of(outcome) == "ok"
