"""The driver: frames in, answers out.

Rule: nothing here waits for the peer on the way in, and nothing here knows a version.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from ferrule.errors import (
    Busy,
    Cancelled,
    ConnectionTimedOut,
    EncodeError,
    InvalidRequest,
    LinkLost,
    MessageTooLarge,
    PeerError,
    Refusal,
    TimedOut,
)
from ferrule.protocol.call import Awaited, Call, Cancel, Ignored, Note, Reply, Withdrawn
from ferrule.protocol.era import Eras
from ferrule.protocol.session import Phase, Session, refused
from ferrule.runtime.batch import BatchChannel
from ferrule.runtime.dispatch import Dispatcher, unencodable
from ferrule.schema.methods import Method
from ferrule.schema.notices import PROGRESS, ProgressParams
from ferrule.supervision.scope import Scope
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.codec import MAX_MESSAGE_SIZE, Decoded, Unreadable, decode
from ferrule.wire.messages import Failure, Message, Request, Success

logger = logging.getLogger("ferrule.link")

_read_progress = msgspec.json.Decoder(ProgressParams).decode


class LinkOptions(Struct, frozen=True):
    """How much a link lets a peer ask at once, and how it watches over it."""

    max_running: int = 100
    max_waiting: int = 1024
    max_message_size: int = MAX_MESSAGE_SIZE
    allow_batch: bool = False
    ping_timeout: float = 5.0
    probe_on_timeout: bool = True
    keepalive_interval: float | None = None
    pong_timeout: float = 10.0
    max_missed: int = 1


DEFAULTS = LinkOptions()


class Link:
    """One peer, while connected: a session and its channels."""

    def __init__(
        self,
        eras: Eras,
        methods: Mapping[str, Method],
        dispatcher: Dispatcher,
        origin: Origin,
        *,
        options: LinkOptions = DEFAULTS,
        on_closed: Callable[[Link, Exception | None], None] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.session = Session(eras, methods, origin, self)
        self.dispatcher = dispatcher
        self.options = options
        self.scope = Scope(self.loop)
        self.channel: Channel | None = None
        self.closed = False
        self.draining = False
        self.error: Exception | None = None
        self._on_closed = on_closed
        self._line: deque[Call] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._keepalive: asyncio.TimerHandle | None = None
        self._missed = 0

    # -- what a carrier drives

    def channel_opened(self, channel: Channel) -> None:
        """The first channel of a link is the one for what belongs to no call."""
        if self.channel is None:
            self.channel = channel

    def frame_received(self, frame: bytes, channel: Channel) -> None:
        """Take one frame."""
        try:
            message = decode(frame, self.options.max_message_size)
        except Unreadable as unreadable:
            channel.send(self.session.refuse(unreadable.id, unreadable.refusal))
            return
        kind = type(message)
        if kind is Request:
            self.request_received(message, channel)  # type: ignore[arg-type]
        elif kind is Success and (awaited := self.session.answered(message)) is not None:  # type: ignore[arg-type]
            if not awaited.waiter.done():
                awaited.waiter.set_result(message.result)  # type: ignore[union-attr]
        elif kind is list:
            self._batch(message, channel)  # type: ignore[arg-type]
        else:
            self._event(message, channel)  # type: ignore[arg-type]

    def frame_refused(self, max_size: int, channel: Channel) -> None:
        """Answer a frame that was over the limit and never read."""
        channel.send(self.session.refuse(UNSET, MessageTooLarge(max_size)))

    def end_received(self, channel: Channel) -> None:
        """The peer will ask nothing more; what it asked is still answered."""
        self.draining = True

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """Whatever runs has nobody to answer any more, whoever waits learns that nothing will come."""
        if channel is self.channel or self.channel is None:
            self.close(error)

    # -- the peer asks

    def request_received(self, request: Request, channel: Channel) -> None:
        """Answer at once what needs no waiting, begin the rest, or let it wait in line."""
        try:
            call = self.session.admit(request, channel)
        except Refusal as refusal:
            channel.send(self.session.refuse(request.id, refusal))
            return
        instant = self.dispatcher.instant.get(request.method)
        if instant is not None:
            self._finish(call, self.dispatcher.run_now(call, instant))
        elif len(self.session.running) > self.options.max_running and not call.row.standing:
            self._wait_in_line(call)
        else:
            call.task = self.scope.begin(self.dispatcher.run(call, self._finish))

    def _wait_in_line(self, call: Call) -> None:
        if len(self._line) >= self.options.max_waiting:
            self._finish(call, Busy())
        else:
            self._line.append(call)

    def _finish(self, call: Call, outcome: Any) -> None:
        reply = self.session.finish(call, outcome)
        if reply is not None:
            try:
                call.channel.send(reply)
            except EncodeError as error:
                failure = unencodable(call, error)
                call.channel.send(refused(call.id, failure, call.era.code(failure)))
        call.task = None
        if self._line:
            self._start_waiting()
        if self._idle and not self.session.running:
            self._wake()

    def _start_waiting(self) -> None:
        while self._line and len(self.session.running) - len(self._line) < self.options.max_running:
            call = self._line.popleft()
            if not call.cancelled:
                call.task = self.scope.begin(self.dispatcher.run(call, self._finish))

    def _event(self, message: Message, channel: Channel) -> None:
        event = self.session.receive(message, channel)
        match event:
            case Reply():
                self._settle(event.awaited, event.message)
            case Note():
                self._note(event)
            case Withdrawn():
                if not event.awaited.waiter.done():
                    event.awaited.waiter.set_exception(Cancelled(event.reason))
            case Cancel():
                self._cancel(event.call)
            case Ignored():
                logger.log(logging.WARNING if event.level == "warning" else logging.DEBUG, "ignored: %s", event.why)

    def _cancel(self, call: Call) -> None:
        if isinstance(call.channel, BatchChannel):
            call.channel.dropped()
        if call.on_cancel is not None:
            call.on_cancel()
        if call.task is not None:
            self.scope.cancel(call.task)
        if self._line:
            self._start_waiting()
        if self._idle and not self.session.running:
            self._wake()

    def _note(self, note: Note) -> None:
        if note.method == PROGRESS:
            self._progress(note.params)
        else:
            self.dispatcher.note(note)

    def _batch(self, items: list[Decoded], channel: Channel) -> None:
        peer = self.session.peer
        if not self.options.allow_batch and (peer is None or not peer.revision.batches):
            channel.send(self.session.refuse(UNSET, InvalidRequest("Invalid request: batches are not supported here")))
            return
        expected = sum(1 for item in items if isinstance(item, Request | Unreadable))
        replies = BatchChannel(channel, expected)
        for item in items:
            if isinstance(item, Unreadable):
                replies.send(self.session.refuse(item.id, item.refusal))
            elif isinstance(item, Request):
                self._batched(item, replies)
            else:
                self._event(item, channel)

    def _batched(self, request: Request, replies: BatchChannel) -> None:
        if request.method == "initialize":
            refusal = InvalidRequest("Invalid request: initialize cannot be part of a batch")
            replies.send(self.session.refuse(request.id, refusal))
        else:
            self.request_received(request, replies)

    # -- we ask

    def ask(self, method: str, params: Any, channel: Channel) -> Awaitable[Raw]:
        """Send a request of ours now; what is returned waits for its result."""
        return self._result(self.start(method, params, channel))

    async def request(self, method: str, params: Any, **options: Any) -> Raw:
        """Send a request of ours on the link's own channel and wait for its result."""
        awaited = self.start(method, params, None, **options)
        awaited.cancellable = method != "initialize"
        return await self._result(awaited)

    def start(
        self,
        method: str,
        params: Any,
        channel: Channel | None = None,
        timeout: float | None = None,
        limit: float | None = None,
        on_progress: Callable[[float, float | None, str | None], Any] | None = None,
    ) -> Awaited:
        """Send a request of ours; gives the entry whose waiter will hold the result."""
        out = channel or self.channel
        if out is None or self.closed:
            raise LinkLost("the link is closed") from self.error
        now = self.loop.time()
        request, awaited = self.session.request(method, params, self.loop.create_future(), now)
        if on_progress is not None:
            awaited.on_progress = on_progress
        if timeout is not None:
            awaited.timeout = timeout
            awaited.deadline = deadline = now + timeout
            if limit is not None:
                awaited.limit = now + limit
            if self._timer is None or deadline < self._timer_at:
                self.arm(deadline)
        try:
            out.send(request)
        except EncodeError:
            del self.session.awaited[awaited.id]
            raise
        return awaited

    async def _result(self, awaited: Awaited) -> Raw:
        try:
            return await awaited.waiter  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self.abandon(awaited, "the caller does not want the answer any more")
            raise

    def abandon(self, awaited: Awaited, reason: str = "") -> None:
        """Stop waiting for a request of ours and tell the peer."""
        notice = self.session.abandon(awaited.id, reason)
        if notice is not None and self.channel is not None:
            self.channel.send(notice)

    def _settle(self, awaited: Awaited, message: Success | Failure) -> None:
        waiter = awaited.waiter
        if waiter.done():
            return
        if type(message) is Success:
            waiter.set_result(message.result)
            return
        error = message.error  # type: ignore[union-attr]
        waiter.set_exception(PeerError(error.code, error.message, error.data, method=awaited.method))

    def _progress(self, raw: Raw) -> None:
        try:
            params = _read_progress(raw)
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
            awaited.waiter.set_exception(TimedOut(f"{awaited.method} got no answer within {waited:.3g} s"))

    def _may_probe(self, awaited: Awaited) -> bool:
        probing = self.options.probe_on_timeout and awaited.method not in {"ping", "initialize"}
        return probing and self.session.peer is not None and not self.closed

    async def _probe(self, awaited: Awaited, waited: float) -> None:
        """Find out whether only the answer is missing or the peer is gone."""
        what = f"{awaited.method} got no answer within {waited:.3g} s"
        error: Exception = TimedOut(f"{what}; the peer still answers pings")
        try:
            await self.request("ping", {}, timeout=self.options.ping_timeout)
        except PeerError:
            pass
        except (TimedOut, LinkLost):
            error = ConnectionTimedOut(f"{what}, and the peer does not answer pings")
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
        request, awaited = self.session.request("ping", {}, Pong(self), now)
        awaited.cancellable = False
        awaited.deadline = now + self.options.pong_timeout
        self.arm(awaited.deadline)
        self.channel.send(request)

    def ponged(self, alive: bool) -> None:
        """Learn whether the peer answered a keep-alive ping."""
        if alive:
            self._missed = 0
        else:
            self._missed += 1
            logger.warning("the peer missed %d keep-alive pings", self._missed)
            if self._missed >= self.options.max_missed and self.channel is not None:
                channel, error = self.channel, LinkLost("the peer does not answer keep-alive pings")
                self.close(error)
                channel.close("keep-alive failed")
                return
        self.keep_alive()

    # -- the end

    async def drain(self, grace: float) -> None:
        """Wait until every running call is answered, at most `grace` seconds."""
        self.draining = True
        standing = [call for call in self.session.running.values() if call.row.standing]
        for call in standing:
            if call.on_cancel is not None:
                call.on_cancel()
        if not self.session.running or self.closed:
            return
        idle: asyncio.Future[None] = self.loop.create_future()
        self._idle.append(idle)
        await asyncio.wait([idle], timeout=grace)

    def _wake(self) -> None:
        waiting, self._idle = self._idle, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def close(self, error: Exception | None = None) -> None:
        """End the link: cancel what runs, fail what waits, forget the peer."""
        if self.closed:
            return
        self.closed = True
        self.error = error
        for timer in (self._timer, self._keepalive):
            if timer is not None:
                timer.cancel()
        for call in list(self.session.running.values()):
            call.cancelled = True
            if call.on_cancel is not None:
                call.on_cancel()
            if call.task is not None:
                self.scope.cancel(call.task)
        self.session.running.clear()
        self._line.clear()
        for awaited in self.session.close(Phase.ERROR if error else Phase.CLOSED):
            if not awaited.waiter.done():
                awaited.waiter.set_exception(lost(error))
        self._wake()
        if self._on_closed is not None:
            self._on_closed(self, error)


def lost(error: Exception | None) -> LinkLost:
    """Make the exception for a call whose link ended."""
    failure = LinkLost(f"the link was lost before the answer came: {error}" if error else "the link was closed")
    failure.__cause__ = error
    return failure


class Pong:
    """Waits for the answer to a keep-alive ping; any answer will do."""

    __slots__ = ("_link", "_settled")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._settled = False

    def done(self) -> bool:
        """Tell whether the answer, or its absence, is known."""
        return self._settled

    def set_result(self, result: Any) -> None:
        """The peer lives."""
        self._settled = True
        self._link.ponged(True)

    def set_exception(self, error: BaseException) -> None:
        """An error is an answer too; silence is not."""
        self._settled = True
        self._link.ponged(isinstance(error, PeerError))
