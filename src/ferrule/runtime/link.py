"""The driver: frames in, answers out.

Rule: nothing here waits for the peer on the way in, and nothing here knows a version.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from time import monotonic, time_ns
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from ferrule.budgets import process
from ferrule.budgets.bounds import MAX_UNREADABLE
from ferrule.budgets.collector import LONG, CollectorPaused
from ferrule.budgets.weight import LIGHT
from ferrule.errors import (
    Busy,
    Cancelled,
    EncodeError,
    Internal,
    InvalidAnswer,
    InvalidRequest,
    Refusal,
)
from ferrule.protocol.call import Call, Cancel, Ignored, Note, Reply, Withdrawn
from ferrule.protocol.era import Eras
from ferrule.protocol.session import Phase, Session, refused
from ferrule.runtime.dispatch import Dispatcher, label_of, unencodable
from ferrule.runtime.holdings import Holdings
from ferrule.runtime.requests import DEFAULTS, LinkOptions, OwnRequests, lost
from ferrule.schema.methods import Method
from ferrule.schema.notices import INITIALIZED, PROGRESS
from ferrule.supervision.logs import keep_short
from ferrule.supervision.start import starting
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.codec import Batch, Decoded, Rejected, check_array, read, read_batch, too_large
from ferrule.wire.messages import Failure, Id, Message, Notification, Request, Success

if TYPE_CHECKING:
    from ferrule.runtime.batch import BatchPart

logger = logging.getLogger("ferrule.link")
keep_short()  # imported by every client and server

REQUESTS = process.requests

NO_BATCHES = Rejected(InvalidRequest("Invalid request: batches are not supported here"))
TOO_MUCH_GARBAGE = "too many messages that cannot be read"


class Link(OwnRequests):
    """One peer, while connected: a session and its channels."""

    __slots__ = (
        "_context",
        "_ends_awaited",
        "_holdings",
        "_idle",
        "_line",
        "_on_closed",
        "_on_opened",
        "_roomy_up_to",
        "_start",
        "_starting",
        "_unreadable",
        "_unreadable_ever",
        "dispatcher",
        "draining",
    )

    def __init__(
        self,
        eras: Eras,
        methods: Mapping[str, Method],
        dispatcher: Dispatcher,
        origin: Origin,
        *,
        options: LinkOptions = DEFAULTS,
        on_opened: Callable[[Link], None] | None = None,
        on_closed: Callable[[Link, Exception | None], None] | None = None,
    ) -> None:
        super().__init__(options)
        self.session = self.new_session(eras, methods, origin)
        self.dispatcher = dispatcher
        self._start = starting(self.loop)
        self._context: Context | None = None
        """What calls run in, where the channel says so; else, in a copy of what they came in."""
        self._starting = False
        self._roomy_up_to = options.max_running
        """Up to this many running calls there is room for one more without a closer look."""
        self.draining = False
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._line: deque[Call] | tuple[()] = ()
        self._holdings: Holdings | None = None
        self._unreadable = 0
        """Messages in a row that could not be read."""
        self._unreadable_ever = 0
        self._idle: tuple[asyncio.Future[None], ...] = ()
        self._ends_awaited = False
        """Whether somebody waits for the end of a call: others in line, or who drains the link."""

    def new_session(self, eras: Eras, methods: Mapping[str, Method], origin: Origin) -> Session:
        """Make the book-keeping of this link."""
        return Session(eras, methods, origin, self)

    @property
    def holdings(self) -> Holdings:
        """What the calls of this link hold; made when the first call stays, since most links are idle."""
        if self._holdings is None:
            self._holdings = self.new_holdings()
        return self._holdings

    def new_holdings(self) -> Holdings:
        """Make the account of what the calls of this link hold."""
        return Holdings(self.options.max_held, self.options.max_standing)

    # -- called by a transport

    def channel_opened(self, channel: Channel) -> None:
        """The first channel of a link is the one for what belongs to no call."""
        if self.channel is None:
            self.channel = channel
            self._context = channel.context
            opened = self._on_opened
            self._on_opened = None  # an idle link should hold little
            if opened is not None:
                opened(self)
            if self.watch is not None:
                self._context = self.watch.opened(self._context)

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        """Take one frame. Return whether it will be answered."""
        if self.traces:
            self.watch.received = time_ns()  # type: ignore[union-attr]
        message = read(frame, self.options.max_message_size)
        if type(message) is Request:
            self._unreadable = 0
            self.request_received(message, channel, origin)
            return True
        kind = type(message)
        if kind is Rejected:
            return self._rejected(message, channel, origin)  # type: ignore[arg-type]
        if kind is Batch:
            return self._batch(message, channel, origin)  # type: ignore[arg-type]
        self._unreadable = 0
        if kind is Success:
            self.message_received(message, channel)  # type: ignore[arg-type]
        else:
            self._event(message, channel)  # type: ignore[arg-type]
        return False

    def message_received(self, message: Request | Success, channel: Channel) -> None:
        """Take a message without an envelope to read: one that was read already, or of a peer in this very process."""
        if type(message) is Request:
            self.request_received(message, channel)
        elif (awaited := self.session.awaited.pop(message.id, None)) is None:
            self._event(message, channel)
        elif not awaited.waiter.done():
            awaited.waiter.set_result(message.result)  # type: ignore[union-attr]

    def _rejected(self, rejected: Rejected, channel: Channel, origin: Origin | None = None) -> bool:
        """Take a message that cannot be read. Return whether it will be answered."""
        if rejected.response:
            return self._response_rejected(rejected, channel)
        if self.watch is not None:
            failure = self.session.refuse(rejected.id, rejected.refusal)
            self.watch.refused(rejected.id, None, rejected.refusal, failure, origin)
        return self._refuse_unreadable(rejected.id, rejected.refusal, channel)

    def _response_rejected(self, rejected: Rejected, channel: Channel) -> bool:
        """Fail whoever waits for a response that cannot be read; its id is one of ours, and never one to answer."""
        awaited = self.session.awaited.pop(rejected.id, None)  # type: ignore[arg-type]
        if awaited is None:
            return self._refuse_unreadable(UNSET, rejected.refusal, channel)
        if not awaited.waiter.done():
            why = rejected.refusal.message
            awaited.waiter.set_exception(InvalidAnswer(f"the answer to {awaited.method} cannot be read: {why}"))
        return False

    def _refuse_unreadable(self, request_id: Id | UnsetType, refusal: Refusal, channel: Channel) -> bool:
        """Count a message that cannot be read, and answer it where the peer wants that. Return whether it is answered.

        A channel on which too many came in a row is closed, or they are no longer answered.
        """
        silent = self.session.one_way or (request_id is UNSET and not self.options.tell_unreadable)
        if channel is self.channel:
            self._unreadable += 1
            if self._unreadable > MAX_UNREADABLE:
                if self._hang_up(channel):
                    return False
                if silent or request_id is UNSET:
                    self._count_skipped()
                    return False
        if silent:
            logger.error("skipped a message that cannot be read: %s", refusal.message)
            return False
        self._log_unreadable(refusal.message)
        self._send_failure(self.session.refuse(request_id, refusal), channel)
        return True

    def _log_unreadable(self, why: str) -> None:
        """Log a message that is answered with an error, each time their number has doubled."""
        self._unreadable_ever += 1
        count = self._unreadable_ever
        if count & (count - 1) == 0:
            logger.error("a message cannot be read (%d so far on this link): %s", count, why)

    def _hang_up(self, channel: Channel) -> bool:
        """Close a channel on which only garbage comes, where it is one that is closed for it. Return whether it is."""
        if not channel.traits.closes_on_garbage:
            return False
        if self._unreadable == MAX_UNREADABLE + 1:
            logger.warning("closed a connection: %d messages in a row cannot be read", self._unreadable)
        channel.close(TOO_MUCH_GARBAGE)
        return True

    def _count_skipped(self) -> None:
        """Log how many messages were skipped, each time their number has doubled."""
        count = self._unreadable
        if count & (count - 1) == 0:
            logger.error("skipped %d messages in a row that cannot be read", count)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        """Answer a frame that was over the limit and never read, under its id if that stands ahead."""
        self._rejected(too_large(max_size, head), channel)

    def end_received(self, channel: Channel) -> None:
        """The peer will ask nothing more; what it asked is still answered."""
        if self.options.half_closes:
            self.peer_ended()

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """End what runs, since nobody is left to answer, and tell whoever waits that nothing will come."""
        if channel is self.channel or self.channel is None:
            self.close(error)

    # -- the peer asks

    def request_received(self, request: Request, channel: Channel, origin: Origin | None = None) -> None:
        """Answer at once what needs no waiting, begin the rest, or let it wait in line."""
        session = self.session
        try:
            call = session.admit(request, channel, origin)
        except Refusal as refusal:
            self._refuse(request, refusal, channel, origin)
            return
        context = self._context
        dispatcher = self.dispatcher
        method = request.method
        if method in dispatcher.instant:
            watch = self.watch
            if watch is not None:
                if watch.counts_only:
                    call.began = monotonic()
                else:
                    watch.begun(call, context)
            self.finish(call, dispatcher.run_now(call, dispatcher.instant[method]))
        elif len(session.running) > self._roomy_up_to and self._full(call):
            if self.watch is not None:
                self.watch.admitted(call, context)
            self._wait_in_line(call)
        elif call.row.standing or len(request.params) > LIGHT or REQUESTS.held >= REQUESTS.brim:
            if self.watch is not None:
                self.watch.admitted(call, context)
            self._start_held(call)
        else:
            watch = self.watch
            if watch is not None:
                if watch.counts_only:
                    call.began = monotonic()
                else:
                    context = watch.begun(call, context)
            start = self._start
            task = start(dispatcher.run(call, self), method, context)
            if task is not None:  # most calls end where they began
                self._carried_on(call, task)
                holdings = self._holdings or self.holdings
                holdings.add(call)

    def _start_held(self, call: Call) -> None:
        """Begin a call that is debited from the start: a long one, one that stands, or any while there is no room."""
        if not self._take_room(call):
            return
        context = self._observe_start(call)
        work = self.dispatcher.run(call, self)
        if len(call.raw) > LONG:
            with CollectorPaused():
                task = self._start(work, call.method, context)
        else:
            task = self._start(work, call.method, context)
        if task is not None:
            self._carried_on(call, task)

    def _carried_on(self, call: Call, task: asyncio.Task[None]) -> None:
        """Note the task of a call that waits; what was cancelled while it ran in place is cancelled now."""
        call.task = task
        if call.cancelled:
            self.scope.cancel(task, label_of(call))

    def _observe_start(self, call: Call) -> Context | None:
        """Report that the handler of a call is about to run. Return the context it runs in."""
        if call.observed is not None and self.watch is not None:
            self.watch.started(call)
        if call.context is not None:
            return call.context  # type: ignore[no-any-return]
        return self._context

    def _refuse(self, request: Request, refusal: Refusal, channel: Channel, origin: Origin | None = None) -> None:
        failure = self.session.refuse(request.id, refusal)
        if self.watch is not None:
            self.watch.refused(request.id, request, refusal, failure, origin)
        if self.session.one_way:
            logger.warning("ignored: the request %s, which this server may not send", request.method)
        else:
            self._send_failure(failure, channel)

    def _send_failure(self, failure: Failure, channel: Channel) -> None:
        try:
            channel.send(failure)
        except EncodeError:
            channel.send(self.session.shortened(failure))

    @property
    def running(self) -> int:
        """How many calls hold a slot; those that wait in line and those that stand for long hold none."""
        if self._holdings is None:
            return len(self.session.running)
        return len(self.session.running) - len(self._line) - self._holdings.standing

    @property
    def waiting(self) -> int:
        """How many calls wait for their turn."""
        return len(self._line)

    def _full(self, call: Call) -> bool:
        return self.draining or (not call.row.standing and self.running > self.options.max_running)

    def _wait_in_line(self, call: Call) -> None:
        if self.draining:
            self.finish(call, Busy("Busy: the server is stopping"))
        elif len(self._line) >= self.options.max_waiting:
            self.finish(call, Busy())
        elif self._take_room(call):
            self._line = self._line or deque()
            self._line.append(call)
            self._ends_awaited = True

    def _take_room(self, call: Call) -> bool:
        """Debit a call before it starts or waits; without room it is refused as busy. Return whether there was."""
        lacking = self.holdings.take(call)
        if lacking:
            self.finish(call, Busy(lacking))
        return not lacking

    def finish(self, call: Call, outcome: object) -> None:
        """Answer a call with what became of it, unless nobody wants to know; called when its handler is done."""
        reply = self.session.finish(call, outcome)
        if reply is not None:
            if call.observed is not None:
                reply = self.watch.encoded(call, reply)  # type: ignore[union-attr]
            try:
                call.channel.send(reply)
            except EncodeError as error:
                outcome = unencodable(call, error)
                reply = refused(call.id, outcome, call.era)
                self._send_failure(reply, call.channel)
            if call.began:
                self.watch.finished(call, reply, outcome)  # type: ignore[union-attr]
        if call.task is not None:
            call.task = None
        if call.held:
            holdings = self._holdings or self.holdings
            if reply is not None and call.row.standing:
                holdings.stand_no_more()
            holdings.release(call)
        if self._ends_awaited:
            self._call_ended()

    def _call_ended(self) -> None:
        """Called when a call is over: start those that waited for its slot, and wake who waits for the last one."""
        if self._line:
            self._start_queued()
        if self._idle and not self.session.running:
            self._wake()
        self._ends_awaited = bool(self._line or self._idle)

    def _start_queued(self) -> None:
        # A call may finish within its start; the next must not start inside it.
        if self._starting:
            return
        self._starting = True
        holdings = self.holdings
        most = self.options.max_running
        try:
            while self._line:
                running = len(self.session.running) - len(self._line) - holdings.standing
                if running >= most:
                    break
                call = self._line.popleft()
                context = self._observe_start(call)
                task = self._start(self.dispatcher.run(call, self), call.row.name, context)
                if task is not None:
                    self._carried_on(call, task)
        finally:
            self._starting = False

    def _event(self, message: Message, channel: Channel) -> None:
        if self.watch is not None and type(message) is Notification:
            self.watch.notified(message)
        event = self.session.receive(message, channel)
        match event:
            case Reply():
                self.settle(event.awaited, event.message)
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
        if call.began and self.watch is not None:
            self.watch.cancelled(call, "caller", call.reason)
        # Where each request has a channel of its own, that one must learn that nothing will come.
        call.channel.withdrawn()
        if call.on_cancel is not None:
            call.on_cancel()
        if call.task is not None:
            self.scope.cancel(call.task, label_of(call))  # its params are held until it ends, in finish
        elif self._line and call in self._line:
            self._line.remove(call)
            self.holdings.release(call)
        if call.row.standing:
            self.holdings.stand_no_more()
        if self._ends_awaited:
            self._call_ended()

    def _note(self, note: Note) -> None:
        if note.method == PROGRESS:
            self.progress(note.params)
            return
        if note.method == INITIALIZED:
            self.peer_is_ready()
        self.dispatcher.note(note)

    def _batch(self, batch: Batch, channel: Channel, origin: Origin | None) -> bool:
        peer = self.session.peer
        if not self.options.allow_batch and (peer is None or not peer.revision.batches):
            return self._rejected(check_array(batch) or NO_BATCHES, channel, origin)
        items = read_batch(batch)
        if isinstance(items, Rejected):
            return self._rejected(items, channel, origin)
        if all(isinstance(item, Rejected) for item in items):
            return self._rejected_batch(items, channel)
        self._unreadable = 0
        return self._take_batch(items, channel, origin)

    def _rejected_batch(self, items: list[Decoded], channel: Channel) -> bool:
        """Count a batch of which nothing can be read as one message that cannot be read, and answer it."""
        if channel is self.channel:
            self._unreadable += 1
            if self._unreadable > MAX_UNREADABLE and self._hang_up(channel):
                return False
        return self._take_batch(items, channel, None)

    def _take_batch(self, items: list[Decoded], channel: Channel, origin: Origin | None) -> bool:
        """Take the elements of a batch; those without a readable id share one answer, which names none of them."""
        from ferrule.runtime.batch import BatchPart, Replies

        replies = Replies(channel, sum(1 for item in items if isinstance(item, Request | Rejected)))
        nameless = False
        for item in items:
            if isinstance(item, Rejected):
                part = BatchPart(replies)
                has_name = item.id is not UNSET and (not item.response or item.id in self.session.awaited)
                if (nameless and not has_name) or not self._rejected(item, part, origin):
                    part.withdrawn()
                elif not has_name:
                    nameless = True
            elif isinstance(item, Request):
                self._batched(item, BatchPart(replies), origin)
            else:
                self._event(item, channel)
        return replies.expected > 0

    def _batched(self, request: Request, part: BatchPart, origin: Origin | None) -> None:
        if request.method == "initialize":
            refusal = InvalidRequest("Invalid request: initialize cannot be part of a batch")
            failure = self.session.refuse(request.id, refusal)
            if self.watch is not None:
                self.watch.refused(request.id, request, refusal, failure, origin)
            self._send_failure(failure, part)
        else:
            self.request_received(request, part, origin)

    # -- the end

    async def drain(self, grace: float) -> None:
        """Take no more calls, and wait until every running one is answered, at most `grace` seconds."""
        self.draining = True
        self._roomy_up_to = -1
        standing = [call for call in self.session.running.values() if call.row.standing]
        for call in standing:
            if call.on_cancel is not None:
                call.on_cancel()
        if not self.session.running or self.closed:
            return
        idle: asyncio.Future[None] = self.loop.create_future()
        self._idle += (idle,)
        self._ends_awaited = True
        await asyncio.wait([idle], timeout=grace)
        self._give_up()

    def _give_up(self) -> None:
        """Answer what did not end in time, so that no request is left without an answer."""
        self._line = ()  # they are answered below, and none is started before that
        for call in list(self.session.running.values()):
            task = call.task
            self.finish(call, Internal("The server stopped before this call was done"))
            call.expired = True
            if task is not None:
                self.scope.cancel(task, label_of(call))

    def _wake(self) -> None:
        waiting = self._idle
        self._idle = ()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def close(self, error: Exception | None = None) -> None:
        """End the link: cancel what runs, fail what waits, forget the peer."""
        if self.closed:
            return
        self.closed = True
        self.error = error
        self.stop_timers()
        session = self.session
        if session.running:
            self._cancel_all()
        for awaited in session.close(Phase.ERROR if error else Phase.CLOSED):
            if not awaited.waiter.done():
                awaited.waiter.set_exception(lost(error))
        if self._ready:
            self.wake_askers()
        if self._idle:
            self._wake()
        if self.watch is not None:
            self.watch.closed(error)
        if self._on_closed is not None:
            self._on_closed(self, error)

    def _cancel_all(self) -> None:
        """Cancel what runs or waits, for nobody is left to answer."""
        for call in list(self.session.running.values()):
            call.cancelled = True
            if call.began and self.watch is not None:
                self.watch.cancelled(call, "link_closed")
            if call.on_cancel is not None:
                call.on_cancel()
            if call.row.standing and call.held:
                self.holdings.stand_no_more()
            if call.task is not None:
                self.scope.cancel(call.task, label_of(call))
            else:
                self.holdings.release(call)
        self.session.running.clear()
        self._line = ()
