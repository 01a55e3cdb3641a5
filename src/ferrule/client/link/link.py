"""A client's link to one server, from the opening to the end; what is asked on it is the conversation's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ferrule.client.era.contract import ClientEra
from ferrule.client.era.handshake import HandshakeEra
from ferrule.client.features.answers import ASKED_ON, AskedOn, QuestionHandlers
from ferrule.client.link.era_memory import known_eras
from ferrule.client.link.negotiation import FallBack, Negotiation, NegotiationResult, starts_server, unreached
from ferrule.errors import FerruleError, InitializeFailed, LinkLost, NotConnected
from ferrule.protocol.call import Awaited, Call, Peer
from ferrule.protocol.era import Eras
from ferrule.protocol.handshake import Handshake
from ferrule.protocol.session import Phase
from ferrule.runtime.dispatch import Dispatcher, Handler, NoteHandler
from ferrule.runtime.link import Link
from ferrule.runtime.requests import LinkOptions
from ferrule.schema.methods import METHODS
from ferrule.supervision.scope import Scope
from ferrule.transports.contract import AddressedTransport, NamedTransport, Transport
from ferrule.wire.channel import Origin

if TYPE_CHECKING:
    from ferrule.client.features.question_tasks import QuestionTasks
    from ferrule.telemetry.observer import Observers


class DeadlineHold:
    """Holds the deadlines of one link while a question of its peer is answered, and knows on which call it came."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self._questions = 0

    def around(self, handler: Handler) -> Handler:
        """Return a handler that holds the deadlines while it runs."""

        async def answer(call: Call) -> Any:
            self._questions += 1
            self._hold()
            token = ASKED_ON.set(self._asked_on(call))
            try:
                return await handler(call)
            finally:
                ASKED_ON.reset(token)
                self._questions -= 1
                if not self._questions:
                    self._renew()

        return answer

    def _asked_on(self, call: Call) -> AskedOn | None:
        """Return on which of our requests a question came: the transport knows, or there is only one it can be."""
        assert self.link is not None
        awaited = self.link.session.awaited
        found = None
        if call.origin.request is not None:
            found = awaited.get(call.origin.request)
        else:
            running = [each for each in awaited.values() if _will_be_answered(each)]
            if len(running) == 1:
                found = running[0]
        if found is None:
            return None
        return AskedOn(found.id, found.method, found.subject, found.caller)

    def _hold(self) -> None:
        assert self.link is not None
        for awaited in self.link.session.awaited.values():
            if awaited.timeout is not None:
                awaited.deadline = awaited.limit

    def _renew(self) -> None:
        assert self.link is not None
        now = self.link.loop.time()
        for awaited in self.link.session.awaited.values():
            if awaited.timeout is not None:
                self.link.arm(awaited.renew_deadline(now))


ANSWERED = {name: row for name, row in METHODS.items() if row.by_client or name == "ping"}

GRACE = 2.0
"""How many seconds the other end may take to let go."""


class ClientLink:
    """Reaches a server, settles the era, notices a loss, and lets go of everything at the end."""

    def __init__(
        self,
        transport: Transport,
        negotiation: Negotiation,
        answering: QuestionHandlers,
        heard: NoteHandler,
        *,
        options: LinkOptions,
        observers: Observers | None = None,
    ) -> None:
        self.transport = transport
        self.negotiation = negotiation
        self.answering = answering
        self.link: Link | None = None
        self.opened: NegotiationResult | None = None
        self.era: ClientEra = HandshakeEra()
        """The rules of the era that was settled on; until then, those of a server that knows nothing of us."""
        self.closing = False
        self._options = options
        self._observers = observers
        self._heard = heard
        self._handshake = Handshake()
        self._on_change: Callable[[], None] = lambda: None
        self._ended = "the client was closed"
        self._question_tasks: QuestionTasks | None = None

    # -- opening and closing

    async def open(self) -> None:
        """Reach the server and settle the era."""
        try:
            await self._connect()
            self.opened = await self._settle()
            self.era = self.opened.era
        except BaseException as error:
            reason = unreached(error) if isinstance(error, LinkLost) else error
            if self.closing and isinstance(error, Exception):
                # Whatever it was that failed, it failed because its end had come.
                reason = NotConnected("the client was closed while it was connecting")
            self.closing = self.closing or not isinstance(reason, Exception)
            await self._end(reason if isinstance(reason, Exception) else None)
            if reason is not error:
                raise reason from None
            raise

    async def _settle(self) -> NegotiationResult:
        assert self.link is not None
        address = self._address
        known = self.negotiation.falls_back and known_eras.is_handshake(address)
        if self.negotiation.probes and not known:
            try:
                return await self.negotiation.discover(self.link, self.negotiation.probe_timeout)
            except FallBack as verdict:
                if not self.negotiation.falls_back:
                    raise verdict.reason from verdict.reason.__cause__
                if verdict.respawn or self.link.closed:
                    await self._connect()
        self.link.session.enter(Phase.INITIALIZING)
        self._on_change()
        try:
            opened = await self.negotiation.initialize(self.link, self._handshake)
            if address and self.negotiation.falls_back:
                known_eras.remember(address)
            return opened
        except InitializeFailed as failure:
            known_eras.forget(address)
            if not self.negotiation.is_stateless_after_all(failure):
                raise
        except BaseException:
            known_eras.forget(address)
            raise
        try:
            return await self.negotiation.discover(self.link, self.negotiation.patience(self.link))
        except FallBack as verdict:
            raise verdict.reason from verdict.reason.__cause__

    @property
    def _address(self) -> str:
        """Where the server is, if others may find it there too; empty for a child process and the like."""
        if isinstance(self.transport, AddressedTransport):
            return str(self.transport.address)
        return ""

    async def _connect(self) -> None:
        self._require_wanted()
        hold = DeadlineHold()
        questions = {}
        for name, handler in self.answering.handlers().items():
            questions[name] = hold.around(handler)
        methods = ANSWERED
        if self.answering.tasks is not None:
            from ferrule.client.features.question_tasks import QuestionTasks

            tasks = self._question_tasks = QuestionTasks(self.negotiation.capabilities, self.answering.tasks)
            questions = tasks.handlers(questions)
            methods = {**ANSWERED, **tasks.methods}
        dispatcher = Dispatcher(questions, self.answering.instant(), {}, other_notes=self._heard)
        link = Link(
            Eras(self._handshake, self._handshake),
            methods,
            dispatcher,
            Origin("client"),
            options=self._options,
            on_closed=self._lost,
        )
        if self._observers is not None:
            from ferrule.runtime.watch import watch_on

            if isinstance(self.transport, NamedTransport):
                carrier = self.transport.carrier
            else:
                carrier = type(self.transport).__name__
            link.observe(watch_on(link.session, self._observers, carrier, "client", address=str(self._address)))
        self.link = hold.link = link
        await self.transport.connect(link)
        self._require_wanted()

    def _require_wanted(self) -> None:
        if self.closing:
            raise NotConnected(self._ended)

    def _lost(self, link: Link, error: Exception | None) -> None:
        if link is not self.link:
            return
        if self._question_tasks is not None:
            # As with any other question: nobody is there to hear the answer, also where no new link is opened.
            link.scope.spawn(self._question_tasks.close())
        if error is not None:
            known_eras.forget(self._address)
        if self.opened is not None:
            self._on_change()

    async def renew(self) -> None:
        """Open a new session on the same link, in place of one the server forgot; loses the link where it cannot."""
        try:
            await self.negotiation.renew(self.live(), self._handshake)
        except (FerruleError, msgspec.DecodeError, OSError) as error:
            where = self._address or "the server"
            self.lose(LinkLost(f"{where} ended the session, and no new one could be opened: {error}"))

    def on_change(self, handler: Callable[[], None]) -> None:
        """Call a function when the phase changes by itself: the handshake begins, or the link is lost."""
        self._on_change = handler

    async def close(self, drain: float = 0.0) -> None:
        """Ask nothing more, wait a while for what was asked, then release everything."""
        self.closing = True
        link = self.link
        if link is not None and not link.closed and self.opened is not None and drain > 0:
            waiting = []
            for awaited in link.session.awaited.values():
                if _will_be_answered(awaited):
                    waiting.append(awaited.waiter)
            if waiting:
                await asyncio.wait(waiting, timeout=drain)
        await self._end(None)

    async def release(self, grace: float) -> None:
        """Let go of what a lost conversation still holds, within a time that whoever is at the other end may take."""
        await self._end(None, grace)

    def lose(self, error: Exception) -> None:
        """Close a link whose server is silent, or knows us no more."""
        link = self.link
        if link is not None and not link.closed:
            link.close(error)
            if link.channel is not None:
                link.channel.close(str(error))

    def give_up(self, sentence: str) -> None:
        """Decide that no other conversation follows this lost one."""
        self.closing = True
        self._ended = sentence
        if self.link is not None:
            self.link.session.enter(Phase.CLOSED)

    async def _end(self, error: Exception | None, grace: float = GRACE) -> None:
        link = self.link
        if link is not None:
            if self.closing and not link.closed:
                _withdraw(link)
            link.close(error)
            if self.closing:
                link.session.enter(Phase.CLOSED)
            if link.channel is not None:
                link.channel.close("the client is done")
        await self.transport.close(grace)
        if self._question_tasks is not None:
            await self._question_tasks.close()
        if link is not None:
            await link.scope.close()

    # -- facts

    @property
    def over(self) -> bool:
        """Whether the link is gone, by our will or not."""
        return self.link is not None and self.link.closed

    @property
    def starts_server(self) -> bool:
        """Whether the server is a process that was started for this conversation."""
        return self.link is not None and starts_server(self.link)

    @property
    def separate(self) -> bool:
        """Whether every call has a way of its own to the server, as over HTTP: there one cannot tell of another."""
        if self.link is None or self.link.channel is None:
            return False
        return self.link.channel.traits.always_answers

    @property
    def phase(self) -> Phase:
        """How far the conversation is; a link that ends without our will is lost, however politely it ended."""
        if self.link is None:
            return Phase.PRE_INITIALIZATION
        if self.link.closed and not self.closing:
            return Phase.ERROR
        return self.link.session.phase

    @property
    def failure(self) -> Exception:
        """Why the conversation failed."""
        if self.link is not None and self.link.error is not None:
            return self.link.error
        return LinkLost("the server closed the link")

    @property
    def scope(self) -> Scope:
        """Where this conversation's tasks live."""
        return self.live().scope

    def live(self) -> Link:
        """Return the link, if it is open."""
        if self.link is None:
            raise NotConnected("the client is not connected: use `async with Client(...)` or `await client.connect()`")
        if self.closing:
            raise NotConnected(self._ended)
        if self.link.closed:
            raise LinkLost(f"the link was lost: {self.failure}", sent=False) from self.link.error
        return self.link

    @property
    def peer(self) -> Peer | None:
        """The server as it declared itself; None until the era is settled."""
        if self.link is None or self.opened is None:
            return None
        return self.link.session.peer

    @property
    def version(self) -> str:
        """The protocol revision that was settled on; empty until then."""
        peer = self.peer
        if peer is None:
            return ""
        return peer.version

    def trim(self, value: object) -> Any:
        """Return a value in the form the agreed revision knows."""
        peer = self.peer
        if peer is None:
            return value
        return peer.revision.trim(value)


def _withdraw(link: Link) -> None:
    """Cancel what the server has not answered: one that ends in order would finish it first."""
    for awaited in list(link.session.awaited.values()):
        link.abandon(awaited, "the client is closing")
        if not awaited.waiter.done():
            awaited.waiter.set_exception(LinkLost("the client was closed before the answer came"))


def _will_be_answered(awaited: Awaited) -> bool:
    row = METHODS.get(awaited.method)
    return row is None or not row.standing
