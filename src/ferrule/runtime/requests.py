"""Our own requests on a link: sending them, waiting with a deadline, and knowing whether the peer still lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from ferrule.errors import (
    CallFailed,
    ConnectionTimedOut,
    EncodeError,
    FerruleError,
    LinkLost,
    PeerError,
    SetupError,
    TimedOut,
)
from ferrule.protocol.call import Awaited
from ferrule.protocol.session import Session
from ferrule.schema.notices import ProgressParams
from ferrule.supervision.scope import Scope
from ferrule.wire.channel import REPEATABLE, Channel, Handling
from ferrule.wire.messages import Failure, Id, Request, Success

if TYPE_CHECKING:
    from ferrule.runtime.meter import LinkMeter
    from ferrule.runtime.watch import LinkWatch

logger = logging.getLogger("ferrule.link")

LEAST_SETTABLE_SIZE, MOST_SETTABLE_SIZE = 1024, 100 * 1024 * 1024


class LinkOptions(Struct, frozen=True):
    """How much a link lets a peer ask at once, and how it watches over it."""

    max_running: int = 100
    max_waiting: int = 1024
    max_message_size: int = MOST_SETTABLE_SIZE
    """The outermost bound; a transport refuses what is over its own, which is lower."""
    max_held: int = 16 * 1024 * 1024
    """Estimated bytes of the calls that run or wait; one larger call is taken while nothing else is held."""
    max_standing: int = 128
    """Calls that stay open for as long as the peer wants, such as `subscriptions/listen`."""
    allow_batch: bool = False
    ping_timeout: float = 5.0
    probe_on_timeout: bool = True
    keepalive_interval: float | None = None
    pong_timeout: float = 10.0
    max_missed: int = 1
    half_closes: bool = True
    """Whether a peer may end its side and still be answered, as clients do; what it was asked is lost then."""
    tell_unreadable: bool = True
    """Whether what has no readable id is answered with an error; a client skips such lines."""

    def __post_init__(self) -> None:
        if not LEAST_SETTABLE_SIZE <= self.max_message_size <= MOST_SETTABLE_SIZE:
            raise SetupError(f"max_message_size must be from 1 KiB to 100 MiB, not {self.max_message_size} bytes")


DEFAULTS = LinkOptions()

ENDED = "the peer ended its side of the link and answers nothing more"


class OwnRequests:
    """The asking half of a link. Thousands may be idle at once, so what few of them need is made when it is needed."""

    __slots__ = (
        "__weakref__",
        "_keepalive",
        "_missed",
        "_ready",
        "_scope",
        "_timer",
        "_timer_at",
        "channel",
        "closed",
        "ended",
        "error",
        "loop",
        "options",
        "session",
        "traces",
        "watch",
    )

    def __init__(self, options: LinkOptions) -> None:
        self.loop = asyncio.get_running_loop()
        self.options = options
        self._scope: Scope | None = None
        self.session: Session
        self.channel: Channel | None = None
        self.closed = False
        self.ended = False
        self.error: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._keepalive: asyncio.TimerHandle | None = None
        self._missed = 0
        self._ready: tuple[asyncio.Future[None], ...] = ()
        self.watch: LinkWatch | LinkMeter | None = None
        """What reports to observers; None where there are none."""
        self.traces = False
        """Whether it is of interest when a frame came."""

    def observe(self, watch: LinkWatch | LinkMeter | None) -> None:
        """Report to observers from now on; a no-op where there are none."""
        if watch is not None:
            self.watch = watch
            self.traces = watch.traces

    @property
    def scope(self) -> Scope:
        """The tasks this link started; made with the first of them."""
        if self._scope is None:
            self._scope = Scope(self.loop)
        return self._scope

    def close(self, error: Exception | None = None) -> None:
        """End the link."""
        raise NotImplementedError

    def stop_timers(self) -> None:
        """Let no timer of this link fire any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._keepalive is not None:
            self._keepalive.cancel()

    # -- we ask

    def ask(self, method: str, params: object, channel: Channel) -> Awaitable[Raw]:
        """Send a request of ours, now if the peer is ready for it; what is returned waits for its result."""
        if self.session.peer_ready and not self.ended:
            return self._result(self.start(method, params, channel))
        return self._ask_when_ready(method, params, channel)

    async def _ask_when_ready(self, method: str, params: object, channel: Channel) -> Raw:
        if not self.ended:
            ready: asyncio.Future[None] = self.loop.create_future()
            self._ready += (ready,)
            await ready
        if self.ended:
            raise LinkLost(ENDED, sent=False)
        return await self._result(self.start(method, params, channel))

    def peer_is_ready(self) -> None:
        """Called when the peer takes requests of ours from now on."""
        self.session.now_ready()
        self.wake_askers()

    def peer_ended(self) -> None:
        """Called when the peer sends nothing more: requests of ours, sent or waiting, get no answer."""
        self.ended = True
        for awaited in list(self.session.awaited.values()):
            if not isinstance(awaited.waiter, Pong):
                self.request_failed(awaited.id, LinkLost(ENDED))
        self.wake_askers()

    def wake_askers(self) -> None:
        """Wake whoever waits for the peer to be ready."""
        waiting = self._ready
        self._ready = ()
        for ready in waiting:
            if not ready.done():
                ready.set_result(None)

    async def request(
        self,
        method: str,
        params: object,
        *,
        timeout: float | None = None,
        limit: float | None = None,
        on_progress: Callable[[float, float | None, str | None], object] | None = None,
        handling: Handling | None = None,
    ) -> Raw:
        """Send a request of ours on the link's own channel and wait for its result."""
        awaited = self.start(method, params, None, timeout, limit, on_progress, handling)
        awaited.cancellable = method != "initialize"
        if method == "server/discover" and self.session.peer is None:
            awaited.waiter = FirstAnswer(self.session, awaited.waiter)
        return await self._result(awaited)

    def start(
        self,
        method: str,
        params: object,
        channel: Channel | None = None,
        timeout: float | None = None,
        limit: float | None = None,
        on_progress: Callable[[float, float | None, str | None], object] | None = None,
        handling: Handling | None = None,
        subject: str | None = None,
        caller: object = None,
    ) -> Awaited:
        """Send a request of ours. Return the entry whose waiter will hold the result."""
        out = channel or self.channel
        if out is None or self.closed:
            raise LinkLost("the link is closed", sent=False) from self.error
        now = self.loop.time()
        awaited = self.session.expect(method, self.loop.create_future(), now, out, timeout)
        # Before it is sent: a peer in this process may ask back while it is.
        awaited.subject = subject
        if caller is not None:
            awaited.caller = caller
        if on_progress is not None:
            awaited.on_progress = on_progress
        if limit is not None:
            awaited.allow(now, timeout, limit)
        deadline = awaited.deadline
        if deadline is not None and (self._timer is None or deadline < self._timer_at):
            self.arm(deadline)
        try:
            if callable(params):
                params = params(awaited.id)
            if self.watch is not None:
                params = self.watch.sent(awaited, params)
            if handling is None:
                out.send(Request(awaited.id, method, params))
            else:
                out.send_with(Request(awaited.id, method, params), handling)
        except FerruleError as error:
            self.session.awaited.pop(awaited.id, None)
            if self.watch is not None:
                self.watch.not_sent(awaited, error)
            if isinstance(error, EncodeError):
                raise EncodeError(f"{method} cannot be sent: {error}") from None
            raise
        return awaited

    @property
    def congested(self) -> bool:
        """Whether the peer reads slower than we write, where the channel can tell."""
        channel = self.channel
        return channel is not None and channel.congested and not self.closed

    async def make_room(self, method: str, timeout: float | None) -> float | None:
        """Wait until the peer takes more. Return what is left of the timeout; raises TimedOut when nothing is."""
        channel = self.channel
        began = self.loop.time()
        if channel is None:
            return timeout
        try:
            async with asyncio.timeout(timeout):
                await channel.wait_writable()
        except TimeoutError:
            raise TimedOut(f"{method} was not sent: within {timeout:.3g} s the peer did not read enough") from None
        if timeout is None:
            return None
        return max(timeout - (self.loop.time() - began), 0.0)

    async def _result(self, awaited: Awaited) -> Raw:
        try:
            return await awaited.waiter  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self.abandon(awaited, "the caller does not want the answer any more")
            raise

    def abandon(self, awaited: Awaited, reason: str = "") -> None:
        """Stop waiting for a request of ours and tell the peer."""
        notice = self.session.abandon(awaited.id, reason)
        channel = awaited.channel or self.channel
        if notice is not None and channel is not None:
            channel.send(notice)

    def settle(self, awaited: Awaited, message: Success | Failure) -> None:
        """Hand an answer to whoever waits for it."""
        waiter = awaited.waiter
        if waiter.done():
            return
        if type(message) is Success:
            waiter.set_result(message.result)
            return
        error = message.error  # type: ignore[union-attr]
        waiter.set_exception(PeerError(error.code, error.message, error.data, method=awaited.method))

    def request_failed(self, request_id: Id, error: Exception, channel: Channel | None = None) -> None:
        """A request of ours will get no answer: whoever waits for it learns why."""
        awaited = self.session.awaited.pop(request_id, None)
        if awaited is not None and not awaited.waiter.done():
            awaited.waiter.set_exception(error)

    def request_held(self, identity: Id) -> None:
        """Let a request of ours wait as long as it takes: the peer does not have it yet."""
        awaited = self.session.awaited.get(identity)
        if awaited is not None:
            awaited.deadline = None

    def request_released(self, identity: Id, seconds: float) -> None:
        """Let its time begin anew: it is sent now, after so many seconds."""
        awaited = self.session.awaited.get(identity)
        if awaited is None:
            return
        now = self.loop.time()
        limit = None
        if awaited.limit is not None:
            limit = awaited.limit + seconds - now
        if awaited.timeout is not None or limit is not None:
            self.arm(awaited.allow(now, awaited.timeout, limit))

    def progress(self, raw: Raw) -> None:
        """Note progress on a request of ours, and tell whoever wants to know."""
        try:
            params = msgspec.json.decode(raw, type=ProgressParams)
        except (msgspec.DecodeError, RecursionError) as reason:
            logger.warning("ignored: malformed progress: %s", reason)
            return
        awaited = self.session.progressed(params.progress_token, params.progress, self.loop.time())
        if awaited is None:
            logger.debug("ignored: progress for %r that is unknown or does not increase", params.progress_token)
        elif awaited.on_progress is not None:
            try:
                awaited.on_progress(params.progress, params.total, params.message)
            except Exception:
                logger.exception("the progress callback of %s failed", awaited.method)

    # -- time

    def arm(self, deadline: float) -> None:
        """One timer serves all deadlines: it is set for the earliest and looks for what is due."""
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for awaited in self.session.expired(self.loop.time()):
            self._time_out(awaited)
        deadline = self.session.next_deadline()
        if deadline is not None:
            self.arm(deadline)

    def _time_out(self, awaited: Awaited) -> None:
        waited = self.loop.time() - awaited.started
        self.abandon(awaited, f"no answer within {waited:.3g} s")
        if awaited.waiter.done():
            return
        if isinstance(awaited.waiter, Pong):
            awaited.waiter.set_exception(TimedOut("no pong"))
        elif self._may_probe(awaited):
            self.scope.spawn(self._probe(awaited, waited))
        else:
            awaited.waiter.set_exception(TimedOut(f"{awaited.named} got no answer within {waited:.3g} s"))

    def _may_probe(self, awaited: Awaited) -> bool:
        probing = self.options.probe_on_timeout and awaited.method not in {"ping", "initialize"}
        has_ping = self.session.peer is not None and "ping" in self.session.methods
        return probing and has_ping and not self.closed

    async def _probe(self, awaited: Awaited, waited: float) -> None:
        """Find out whether only the answer is missing or the peer is gone."""
        what = f"{awaited.named} got no answer within {waited:.3g} s"
        error: TimedOut = ConnectionTimedOut(f"{what}, and the peer does not answer pings")
        try:
            await self.request("ping", {}, timeout=self.options.ping_timeout, handling=REPEATABLE)
            error = TimedOut(f"{what}; the peer still answers pings")
        except PeerError:
            error = TimedOut(f"{what}; the peer still answers, though not to pings")
        except CallFailed:
            pass
        finally:
            if not awaited.waiter.done():
                awaited.waiter.set_exception(error)

    def keep_alive(self) -> None:
        """Ping the peer from time to time, and close the link when it stays silent."""
        if self.options.keepalive_interval and self._keepalive is None and not self.closed:
            self._keepalive = self.loop.call_later(self.options.keepalive_interval, self._ping)

    def _ping(self) -> None:
        self._keepalive = None
        if self.closed or self.channel is None:
            return
        now = self.loop.time()
        awaited = self.session.expect("ping", Pong(self), now)
        awaited.cancellable = False
        awaited.deadline = now + self.options.pong_timeout
        self.arm(awaited.deadline)
        if self.watch is not None:
            self.watch.pinged(awaited)
        self.channel.send(Request(awaited.id, "ping"))

    def ponged(self, *, alive: bool) -> None:
        """Called when the peer answered a keep-alive ping, or did not."""
        if self.watch is not None:
            self.watch.ponged(alive=alive, closed=self.closed)
        if self.closed:
            return
        if alive:
            self._missed = 0
        else:
            self._missed += 1
            logger.warning("the peer missed %d keep-alive pings", self._missed)
            if self._missed >= self.options.max_missed and self.channel is not None:
                channel = self.channel
                error = LinkLost("the peer does not answer keep-alive pings")
                self.close(error)
                channel.close("keep-alive failed")
                return
        self.keep_alive()


def lost(error: Exception | None) -> LinkLost:
    """Make the exception for a call whose link ended."""
    failure = LinkLost(f"the link was lost before the answer came: {error}" if error else "the link was closed")
    failure.__cause__ = error
    return failure


class FirstAnswer:
    """Waits for the answer to `server/discover`: whoever gives one belongs to the era in which servers ask nothing.

    What such a server asks right behind its answer is refused before the client has looked at the answer.
    """

    __slots__ = ("_session", "_waiter")

    def __init__(self, session: Session, waiter: asyncio.Future[Raw]) -> None:
        self._session = session
        self._waiter = waiter

    def __await__(self) -> Generator[object, None, Raw]:
        return self._waiter.__await__()

    def done(self) -> bool:
        """Whether the answer, or its absence, is known."""
        return self._waiter.done()

    def set_result(self, result: Raw) -> None:
        """Called when the answer came."""
        self._session.withhold()
        self._waiter.set_result(result)

    def set_exception(self, error: BaseException) -> None:
        """Called when there is an error, or no answer."""
        self._waiter.set_exception(error)


class Pong:
    """Waits for the answer to a keep-alive ping; any answer will do."""

    __slots__ = ("_link", "_settled")

    def __init__(self, link: OwnRequests) -> None:
        self._link = link
        self._settled = False

    def done(self) -> bool:
        """Return whether the answer, or its absence, is known."""
        return self._settled

    def set_result(self, result: object) -> None:
        """Called when the peer answered."""
        self._settled = True
        self._link.ponged(alive=True)

    def set_exception(self, error: BaseException) -> None:
        """Called when there was an error, which is an answer too, or silence, which is not."""
        self._settled = True
        self._link.ponged(alive=isinstance(error, PeerError))
