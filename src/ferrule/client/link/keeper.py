"""Keeps one client in conversation with its server: opens, asks, asks again what was lost, restores what was known.

Reconnection: a lost link is replaced by a new one, as the plan says (`reconnect.py`).
Replay: what was lost with a link and does no harm twice is asked again.
Restoring: a new link, and a new session of the same link, are told what the old one knew.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Protocol

from msgspec import Raw, structs

from ferrule.client.era.contract import Params
from ferrule.client.link.connector import Connector
from ferrule.client.link.conversation import Conversation, RequestOptions
from ferrule.client.link.link import GRACE
from ferrule.client.link.reconnect import ConnectionNotice, Reconnection
from ferrule.client.settings import ClientSettings
from ferrule.errors import (
    AlreadyInitialized,
    CallFailed,
    ConnectionTimedOut,
    LinkLost,
    NotConnected,
    PeerError,
    TimedOut,
    TimedOutReconnecting,
)
from ferrule.protocol.call import Note
from ferrule.protocol.session import Phase
from ferrule.supervision.child import ChildState, RestartKind, State, sentence
from ferrule.supervision.event_loop import require_asyncio
from ferrule.transports.contract import Transport
from ferrule.wire.channel import Gap
from ferrule.wire.messages import Notification

logger = logging.getLogger("ferrule.client")

LOST = (LinkLost, TimedOut, NotConnected)
"""How a call fails whose link may be gone: before or after it was sent, in silence, while a new one is opened."""


PhaseHandler = Callable[[Phase, Phase], object]


class Phases:
    """The phase that was told last, and who is told of the next."""

    def __init__(self) -> None:
        self.last = Phase.PRE_INITIALIZATION
        """The phase that was told last."""
        self._handlers: list[PhaseHandler] = []

    def on_change(self, handler: PhaseHandler) -> None:
        """Call `handler(old, new)` when the phase changes."""
        self._handlers.append(handler)

    def on_enter(self, phase: Phase, handler: Callable[[], object]) -> None:
        """Call `handler()` when a phase begins."""

        def changed(_: Phase, new: Phase) -> None:
            if new is phase:
                handler()

        self.on_change(changed)

    def on_leave(self, phase: Phase, handler: Callable[[], object]) -> None:
        """Call `handler()` when a phase is over."""

        def changed(old: Phase, _: Phase) -> None:
            if old is phase:
                handler()

        self.on_change(changed)

    def tell(self, phase: Phase) -> None:
        """Call the handlers of a phase, unless it is the last one; a failing handler harms nobody else."""
        before = self.last
        self.last = phase
        if before is phase:
            return
        for handler in tuple(self._handlers):
            try:
                handler(before, phase)
            except Exception:
                logger.exception("a handler of the change from %s to %s failed", before, phase)


class Knowledge(Protocol):
    """What a client has told its server and learned from it, as far as the end of a link or session touches it."""

    def receive(self, note: Note) -> None:
        """Take a notification."""

    def opened(self, conversation: Conversation) -> None:
        """Called when a conversation is open."""

    def begin(self) -> None:
        """Forget everything: another server may answer now."""

    def forget(self) -> None:
        """Forget what the server has taught: it need not hold in the next conversation."""

    def forget_subscriptions(self) -> None:
        """Want to hear of nothing any more."""

    def end_subscriptions(self) -> None:
        """End every stream of changes."""

    async def restore(self, *, resubscribe: bool) -> None:
        """Restore what the server knew before, and notify everyone here that changes may have been missed."""

    async def resubscribe(self) -> None:
        """Subscribe again."""

    async def listen_for_lists(self) -> None:
        """Hear of the lists someone here handles changes of."""

    def tell_missed(self) -> None:
        """Notify every subscriber of a change, once: there may have been one that nobody heard of."""

    @property
    def hears(self) -> bool:
        """Whether anybody here wants notifications."""


class Keeper:
    """The conversation of one client, whichever it is at the moment."""

    knowledge: Knowledge
    """Set by whoever composes the client."""

    def __init__(self, connector: Connector, settings: ClientSettings) -> None:
        self._connector = connector
        self._settings = settings
        self.conversation: Conversation | None = None
        self.phases = Phases()
        self.reconnection = Reconnection(self._reopen, self._give_up)
        self._brief = 0
        """How many subscriptions in a row the server ended soon after it had taken them."""
        self._listened_at = -math.inf

    # -- beginning and end

    async def connect(self, timeout: float | None) -> None:
        """Reach the server and settle the protocol; the time-out is for the handshake."""
        if self.conversation is not None and not self.conversation.over:
            raise AlreadyInitialized(f"the client is connected already ({self.phase})")
        require_asyncio("Client", "use asyncio.run(main()), or SyncClient in a thread")
        transport = self._connector.transport()
        await self.close(0.0)
        self.knowledge.begin()
        self.reconnection.begin(self._connector.plan)
        await self._converse(transport, timeout)
        await self.knowledge.listen_for_lists()

    async def _converse(self, transport: Transport, timeout: float | None) -> None:
        conversation = self._connector.conversation(transport, self.knowledge.receive, timeout)
        self.conversation = conversation
        conversation.on_change(self._changed)
        conversation.lasting = self.reconnection.scope
        conversation.resume = self._resume
        self._changed()
        try:
            await conversation.open()
        finally:
            self._changed()
        self._watch_gaps(conversation)
        self.knowledge.opened(conversation)

    async def close(self, drain: float) -> None:
        """Ask nothing more, wait up to `drain` seconds for what was asked, and end."""
        await self.reconnection.stop()
        if self.conversation is not None:
            self.knowledge.end_subscriptions()
            await self.conversation.close(drain)
            self._changed()

    @property
    def phase(self) -> Phase:
        """How far the conversation is."""
        if self.conversation is None:
            return Phase.PRE_INITIALIZATION
        return self.conversation.phase

    def describe(self) -> ChildState:
        """Return the state of the link, and of the server process behind it where there is one, as of any child."""
        restart: RestartKind = "temporary"
        if self._connector.plan is not None:
            restart = "permanent"
        return ChildState(
            name="link",
            path="client/link",
            state=self._link_state(),
            restart=restart,
            restarts=self.reconnection.restarts,
            error=sentence(self.reconnection.reason),
        )

    def _link_state(self) -> State:
        if self.reconnection.active:
            return "failed" if self.reconnection.failed else "restarting"
        conversation = self.conversation
        if conversation is None:
            return "waiting"
        if not conversation.over:
            return "starting" if conversation.opened is None else "running"
        return "stopped" if self.reconnection.scope is None else "ended"

    def current(self) -> Conversation:
        """Return the conversation; raises NotConnected where there never was one."""
        if self.conversation is None:
            raise NotConnected(
                f"the client is not connected ({self.phase}): use `async with Client(...)` or `await client.connect()`"
            )
        return self.conversation

    async def when_connected(self, timeout: float | None) -> Conversation:
        """Return the conversation, as soon as there is one again if it was lost."""
        reconnection = self.reconnection
        if reconnection.active:
            lost = LinkLost(reconnection.condition, sent=False)
            reconnection.require_repeatable(lost, "nothing was sent", safe=True)
            await reconnection.wait(timeout)
        return self.current()

    async def ready(self) -> None:
        """Wait until there is a conversation, if one is being opened."""
        await self.when_connected(self._settings.request_timeout)

    async def notify(self, method: str, params: Params | None) -> None:
        """Send a notification."""
        channel = (await self.when_connected(self._settings.request_timeout)).live().channel
        assert channel is not None
        if params:
            channel.send(Notification(method, params))
        else:
            channel.send(Notification(method))
        await channel.wait_writable()

    # -- asking, and asking again (replay)

    async def ask(self, method: str, params: Params, how: RequestOptions) -> Raw:
        """Ask the server and return its complete result."""
        raw, _ = await self.ask_in_rounds(method, params, how)
        return raw

    async def ask_in_rounds(self, method: str, params: Params, how: RequestOptions) -> tuple[Raw, bool]:
        """Ask as `ask` does, and return besides whether the first round was the last."""
        try:
            return await self.current().ask_in_rounds(method, params, how)
        except LOST as error:
            return await self.ask_again(error, method, params, how)

    async def ask_again(self, error: CallFailed, method: str, params: Params, how: RequestOptions) -> tuple[Raw, bool]:
        """Ask once more when there is a new link; raises what the caller shall see where that is not to be."""
        clock = asyncio.get_running_loop().time
        deadline = math.inf
        if how.timeout is not None:
            deadline = clock() + how.timeout
        while True:
            if isinstance(error, TimedOut):
                raise await self._silence(error) from None
            safe = self._connector.rules.repeatable(method, params)
            self.reconnection.require_repeatable(error, method, safe=safe)
            await self.reconnection.wait(_left(deadline, clock()))
            left = structs.replace(how, timeout=_left(deadline, clock()))
            try:
                return await self.current().ask_in_rounds(method, params, left)
            except LOST as again:
                error = again

    async def _resume(self, error: CallFailed, method: str, params: Params, how: RequestOptions) -> tuple[Raw, bool]:
        """Go on with a call between whose rounds its conversation was lost; another may have been opened meanwhile."""
        if isinstance(error, LinkLost) and error.sent:
            return await self.ask_again(error, method, params, how)
        return await self.ask_in_rounds(method, params, how)

    async def _silence(self, error: TimedOut) -> TimedOut:
        """Mark the link as lost if the server does not answer a probe either. Return the error to raise.

        Over HTTP, where each request has a connection of its own, the link stays.
        """
        conversation = self.conversation
        if conversation is None or conversation.separate:
            return error
        if not isinstance(error, ConnectionTimedOut) and await self._is_silent(conversation):
            error = ConnectionTimedOut(f"{error}, nor when it was asked to discover itself")
        if isinstance(error, ConnectionTimedOut):
            conversation.lose(error)
            if self.reconnection.active:
                return TimedOutReconnecting(f"{error}; reconnecting")
        return error

    async def _is_silent(self, conversation: Conversation) -> bool:
        """Find out whether a server answers nothing at all, where the link does not find out by itself."""
        if conversation.era.link_probes or self.reconnection.plan is None or not self._settings.probe_on_timeout:
            return False
        try:
            await conversation.ask(conversation.era.liveness, {}, RequestOptions(self._settings.ping_timeout))
        except TimedOut:
            return True
        except (CallFailed, PeerError):
            return False
        return False

    # -- after a loss (reconnection)

    @property
    def _resubscribes(self) -> bool:
        plan = self.reconnection.plan
        return plan is not None and plan.resubscribe

    def _changed(self) -> None:
        conversation = self.conversation
        self.phases.tell(self.phase)
        if conversation is None or not conversation.over:
            return
        if conversation.opened is not None and not conversation.closing:
            self.reconnection.lost(conversation.failure)
        if not (self.reconnection.active and self._resubscribes):
            self.knowledge.end_subscriptions()

    async def _reopen(self) -> None:
        """Make one attempt to open a new conversation in place of the lost one, and to restore what it knew."""
        await self._release()
        self.knowledge.forget()
        if not self._resubscribes:
            self.knowledge.forget_subscriptions()
        await self._converse(self._connector.transport(), None)
        await self.knowledge.restore(resubscribe=self._resubscribes)
        if self.current().over:
            raise LinkLost(f"the new link was lost at once: {self.current().failure}")

    async def _give_up(self, sentence: str) -> None:
        await self._release()
        self.current().give_up(sentence)
        self.knowledge.end_subscriptions()
        self.phases.tell(self.phase)

    async def _release(self) -> None:
        """Let go of the lost conversation; a child process may end in peace, nobody else is waited for."""
        lost = self.current()
        if lost.starts_server:
            await lost.release(GRACE)
        else:
            await lost.release(0.0)

    # -- a subscription that ends while its link lives (HTTP)

    def rescues(self) -> bool:
        """Begin to restore the subscriptions that just ended. Return False if they will not be."""
        conversation = self.conversation
        if not self._resubscribes or conversation is None or conversation.closing:
            return False
        if conversation.over:
            return self.reconnection.active
        self.reconnection.spawn(self._listen_again(conversation))
        return True

    async def _listen_again(self, conversation: Conversation) -> None:
        plan = self.reconnection.plan
        clock = asyncio.get_running_loop().time
        if plan is not None and clock() - self._listened_at >= plan.longest_delay:
            self._brief = 0
        else:
            self._brief += 1
        if await self._retry(conversation, self.knowledge.resubscribe, self._brief):
            self._listened_at = clock()
            self.knowledge.tell_missed()
        elif not conversation.over:
            self.knowledge.end_subscriptions()

    async def _retry(
        self, conversation: Conversation, action: Callable[[], Awaitable[object]], before: int = 0
    ) -> bool:
        """Try until it succeeds, as late and as often as the plan says, while the conversation lasts."""
        plan = self.reconnection.plan
        for attempt in count(1):
            if plan is None or (plan.max_attempts is not None and attempt > plan.max_attempts):
                break
            await plan.sleep(plan.delay(before + attempt))
            if conversation is not self.conversation or conversation.over:
                break
            try:
                await action()
                return True
            except PeerError as refusal:
                logger.warning("the server does not take the subscriptions it had: %s", refusal)
                break
            except CallFailed as error:
                logger.info("attempt %d to hear of changes again failed: %s", attempt, error)
        return False

    # -- a session, or its stream of notifications, that ends while the link lives (HTTP)

    def _watch_gaps(self, conversation: Conversation) -> None:
        link = conversation.link
        if link is not None and link.channel is not None:
            link.channel.hear_gaps(lambda gap: self._gap(conversation, gap))

    def _gap(self, conversation: Conversation, gap: Gap) -> None:
        if gap == "session":
            self.reconnection.spawn(self._renew(conversation))
        elif self.reconnection.plan is not None:
            self.reconnection.spawn(self._reopen_stream(conversation))

    async def _renew(self, conversation: Conversation) -> None:
        """Open a new session in place of one the server forgot, and tell it what the old one knew."""
        await conversation.renew()
        if conversation.over or self.reconnection.plan is None:
            return
        self.knowledge.forget()
        if not self._resubscribes:
            self.knowledge.end_subscriptions()
        try:
            await self.knowledge.restore(resubscribe=self._resubscribes)
        except LinkLost as error:
            logger.warning("what the session knew could not be restored: %s", error)
            if not conversation.over and self._resubscribes:
                await self._listen_again(conversation)
        self.reconnection.tell(ConnectionNotice("restored", LinkLost("the server ended the session")))

    async def _reopen_stream(self, conversation: Conversation) -> None:
        """The stream for notifications is gone: see whether the server still knows us, then ask for it again."""
        if not self.knowledge.hears:
            return
        how = RequestOptions(self._settings.ping_timeout)
        if await self._retry(conversation, lambda: conversation.ask("ping", {}, how)):
            link = conversation.link
            if link is not None and link.channel is not None:
                link.channel.stand()
                self.knowledge.tell_missed()


def _left(deadline: float, now: float) -> float | None:
    """Return the seconds left until a deadline; None where there is none."""
    if deadline == math.inf:
        return None
    return max(deadline - now, 0.0)
