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


class Waiting:
    """A call that waits for its turn."""

    __slots__ = ("since",)

    def __init__(self, since: float) -> None:
        self.since = since


class LinkMeter:
    """Reports to metrics alone: what is usual is counted, and no value is made for it.

    All else goes through a `LinkWatch`, made for what there is to report: thousands of links may be idle.
    """

    __slots__ = ("_meter", "_observer", "_opened", "_pinging", "_session", "received")

    traces = False

    def __init__(self, observer: Observers, meter: TransportMeter, session: Session, *, shared: bool) -> None:
        self._observer = observer
        self._meter = meter
        self._session = session
        self._opened: float | None = None if shared else 0.0
        """When the link was opened; None for the one link of all who have no session."""
        self.received = 0
        self._pinging: LinkWatch | None = None
        """What has reported a ping and waits for its end."""

    def _new_watch(self) -> LinkWatch:
        """Return what reports all that is not usual."""
        origin = self._session.origin
        shared = self._opened is None
        watch = LinkWatch(
            self._observer, self._session, self._meter.transport, "server", address=origin.address, shared=shared
        )
        watch.opened_at(self._opened)
        return watch

    def opened(self, context: Context | None) -> Context | None:
        """Called when the peer can be reached; return the context its calls run in, as it was."""
        if self._opened is not None:
            self._opened = monotonic()
            self._meter.opened()
        return context

    def closed(self, error: Exception | None) -> None:
        """Called when the link is over."""
        self._new_watch().closed(error)

    def begun(self, call: Call, context: Context | None) -> Context | None:
        """Called when a request may run and its handler is about to; return the context it runs in."""
        call.observed = monotonic()
        return context

    def admitted(self, call: Call, context: Context | None) -> None:
        """Called when a request may run, and waits for its turn."""
        call.observed = Waiting(monotonic())

    def started(self, call: Call) -> None:
        """Called when the handler of a call that waited is about to run."""
        waiting = call.observed
        if type(waiting) is Waiting:
            call.observed = waiting.since

    def finished(self, call: Call, reply: Success | Failure, outcome: Any) -> None:
        """Called when a call was answered."""
        began = call.observed
        if type(began) is not float or type(reply) is not Success or call.expired:
            self._finish_whole(call, reply, outcome)
            return
        # What our own tools have written already ended well, and need not be read again.
        if (type(outcome) is not Raw or call.relayed) and call.row.may_ask and kind_of(outcome) != "ok":
            self._finish_whole(call, reply, outcome)
            return
        meter = self._meter
        revision = call.peer.revision.version
        if revision is not meter.revision:
            meter.agree(revision)
        if call.row.name == CALL:
            durations = meter.tools[call.params.name]
        else:
            durations = meter.methods[call.row.name]
        # What `Histogram.observe` does, without a call: this happens once for every request.
        seconds = monotonic() - began
        durations.counts[bisect_left(durations.edges, seconds)] += 1
        durations.sum += seconds

    def _finish_whole(self, call: Call, reply: Success | Failure, outcome: object) -> None:
        self._whole(call).finished(call, reply, outcome)

    def cancelled(self, call: Call, reason: str, message: str = "") -> None:
        """Called when a call will not be answered, for nobody waits for it any more."""
        if call.observed is not None:
            self._whole(call).cancelled(call, reason, message)

    def _whole(self, call: Call) -> LinkWatch:
        """Make the value that observers see of a call. Return what reports it."""
        watch = self._new_watch()
        began = call.observed
        if type(began) is Waiting:
            call.observed = watch.request(call, began.since)
        else:
            call.observed = watch.request(call, began)
            call.observed.started = began
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
        self._meter.notified(notification.method)

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
