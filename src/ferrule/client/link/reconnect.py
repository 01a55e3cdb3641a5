"""Reconnection: the plan a user makes, and who waits, tries again and reports it.

Rule: only one layer reconnects at a time. Transports under a client never dial again by themselves, but for HTTP, where
a lost connection is not a lost conversation: there a client only restores what the session knew.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ferrule.errors import (
    CallFailed,
    FerruleError,
    HttpFailed,
    LinkLost,
    NotConnected,
    OutcomeUnknown,
    SetupError,
    TimedOutReconnecting,
    VersionMismatch,
)
from ferrule.settings.option import Fraction, PositiveInt, Seconds, check
from ferrule.supervision.backoff import Backoff
from ferrule.supervision.scope import Scope

logger = logging.getLogger("ferrule.client")

UNWELCOME = frozenset({401, 403})
"""What a server says to those it will not let in, however often they come."""

Replay = Literal["safe", "none"]
Meanwhile = Literal["wait", "fail"]


class Reconnect(Struct, frozen=True, kw_only=True):
    """When a client comes back after a loss, and what it does then; times are seconds."""

    first_delay: Seconds = 1.0
    """How long to wait before the first attempt."""
    factor: Annotated[float, Meta(ge=1)] = 2.0
    """By how much each wait is longer than the one before."""
    longest_delay: Seconds = 30.0
    """The longest wait."""
    jitter: Fraction = 0.5
    """Each delay is shortened by up to this fraction at random, so that not all clients come at once."""
    max_attempts: PositiveInt | None = None
    """How often in a row to try in vain before giving up; None: for ever."""
    resubscribe: bool = False
    """Subscribe again to what was subscribed to; else subscriptions end with the link."""
    replay: Replay = "safe"
    """Ask again what was in flight and cannot do harm twice, or nothing."""
    meanwhile: Meanwhile = "wait"
    """Whether calls made while there is no link wait for one, within their time-out, or fail at once."""
    chance: Callable[[], float] = random.random
    """Where jitter comes from: gives numbers from 0 to 1."""
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    """How to wait: for tests."""

    def __post_init__(self) -> None:
        if self.max_attempts == 0:
            raise SetupError("Reconnect: max_attempts must be at least 1 or None, not 0; use reconnect=False")
        check(self, "Reconnect: ")
        if self.longest_delay < self.first_delay:
            least = f"at least first_delay, {self.first_delay:g} seconds"
            raise SetupError(f"Reconnect: longest_delay must be {least}, not {self.longest_delay!r}")

    def delay(self, number: int) -> float:
        """Return the wait before the attempt of a number, counted from 1."""
        return Backoff(self.first_delay, self.factor, self.longest_delay, self.jitter).delay(number, self.chance)

    def is_longest(self, number: int) -> bool:
        """Return whether the wait before that attempt is the longest one, but for jitter."""
        return self.first_delay * self.factor ** min(number - 1, 64) >= self.longest_delay


class ConnectionNotice(Struct, frozen=True):
    """What happened to the way to the server, for its owner."""

    what: Literal["lost", "retrying", "restored", "gave_up"]
    reason: Exception | None = None
    """Why it was lost, or why the last attempt failed."""
    attempt: int = 0
    """Which attempt comes next, or was the last one."""
    delay: float | None = None
    """Seconds until the next attempt."""
    failed: bool = False
    """Whether the delays have reached the longest one: the server was away too often, or is away for too long."""


def plan_for(asked: Reconnect | bool | None, *, usual: bool) -> Reconnect | None:
    """Return the plan an option asks for, None for none; what was not asked for is as usual."""
    if isinstance(asked, Reconnect):
        return asked
    if asked is None:
        asked = usual
    if asked:
        return Reconnect()
    return None


ConnectionHandler = Callable[[ConnectionNotice], object]


class Reconnection:
    """Opens a lost conversation again, as late and as often as the plan says."""

    def __init__(self, reopen: Callable[[], Awaitable[None]], gave_up: Callable[[str], Awaitable[None]]) -> None:
        self._reopen = reopen
        self._gave_up = gave_up
        self._handlers: list[ConnectionHandler] = []
        self.scope: Scope | None = None
        """What lasts as long as the client is open, whatever becomes of its conversations."""
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._delays = 0
        self._restored_at = 0.0
        self.plan: Reconnect | None = None
        """None: what is lost stays lost."""
        self.active = False
        """Whether a new conversation is being opened, or waited for."""
        self.attempt = 0
        self.reason: Exception | None = None
        self.failed = False
        """Whether the delays have reached the longest one."""
        self.restarts = 0
        """How often it was tried to open a conversation again."""

    def begin(self, plan: Reconnect | None) -> None:
        """Watch over a new conversation."""
        self.plan = plan
        self._delays = 0
        self.failed = False
        self.restarts = 0
        self.scope = Scope(asyncio.get_running_loop())

    async def stop(self) -> None:
        """Come back no more; those who wait learn it at once."""
        scope = self.scope
        self.scope = None
        self.plan = None
        self._end(NotConnected("the client was closed"))
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()
            # An attempt that is cancelled lets go of what it opened, which takes as long as it takes.
            await asyncio.wait([task])
        if scope is not None:
            await scope.close()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something as long as the client is open."""
        if self.scope is None:
            work.close()
        else:
            self.scope.spawn(work)

    # -- the owner

    def on_notice(self, handler: ConnectionHandler) -> None:
        """Call a function with every notice."""
        self._handlers.append(handler)

    def tell(self, notice: ConnectionNotice) -> None:
        """Call the handlers of the owner; one that fails harms nobody else."""
        for handler in tuple(self._handlers):
            try:
                handler(notice)
            except Exception:
                logger.exception("a handler of the connection's notice %r failed", notice.what)

    # -- losing and coming back

    def lost(self, reason: Exception) -> None:
        """Called when the conversation is lost."""
        if self.plan is None or self.scope is None or self.active:
            return
        self.active = True
        self.attempt = 0
        self.reason = reason
        # A server that lets us in and goes again soon is left alone longer each time.
        if asyncio.get_running_loop().time() - self._restored_at >= self.plan.longest_delay:
            self._delays = 0
        self.tell(ConnectionNotice("lost", reason))
        self._task = self.scope.spawn(self._come_back(self.plan))

    async def _come_back(self, plan: Reconnect) -> None:
        while plan.max_attempts is None or self.attempt < plan.max_attempts:
            self.attempt += 1
            self._delays += 1
            self.restarts += 1
            self.failed = plan.is_longest(self._delays)
            delay = plan.delay(self._delays)
            self.tell(ConnectionNotice("retrying", self.reason, self.attempt, delay, self.failed))
            await plan.sleep(delay)
            try:
                await self._reopen()
            except Exception as error:
                self.reason = error
                logger.info("attempt %d to reconnect failed: %s", self.attempt, error)
                if is_final(error):
                    break
            else:
                self._back()
                return
        await self._give_up()

    def _back(self) -> None:
        self._restored_at = asyncio.get_running_loop().time()
        attempt = self.attempt
        self._end(None)
        self.tell(ConnectionNotice("restored", attempt=attempt))

    async def _give_up(self) -> None:
        often = "1 attempt"
        if self.attempt > 1:
            often = f"{self.attempt} attempts"
        sentence = f"the link was lost and not restored in {often}: {self.reason}"
        logger.warning("%s", sentence)
        await self._gave_up(sentence)
        self._end(LinkLost(sentence, sent=False))
        self.tell(ConnectionNotice("gave_up", self.reason, self.attempt))

    def _end(self, failure: Exception | None) -> None:
        self.active = False
        for waiter in self._waiting:
            if waiter.done():
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)

    # -- calls

    def require_repeatable(self, error: CallFailed, what: str, *, safe: bool) -> None:
        """Raise what a caller shall see, unless it may wait for a new link and ask there."""
        plan = self.plan
        if plan is None or not self.active or isinstance(error, OutcomeUnknown):
            raise error
        sent = isinstance(error, LinkLost) and error.sent
        if sent and not safe:
            raise OutcomeUnknown(
                f"unknown outcome: the link was lost after {what} was sent ({self.reason}); it may have run or not, "
                "and was not sent again"
            ) from error
        if sent and plan.replay == "none":
            raise error
        if plan.meanwhile == "fail":
            raise LinkLost(f"{what}: {self.condition}", sent=sent) from error

    @property
    def condition(self) -> str:
        """How things stand, for people."""
        return f"the link was lost and is not restored yet (attempt {self.attempt}): {self.reason}"

    async def wait(self, timeout: float | None) -> None:
        """Wait for the new conversation; raises when it does not come, or not in time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            raise TimedOutReconnecting(f"waited {timeout:.3g} s in vain: {self.condition}; nothing was sent") from None
        finally:
            self._waiting.discard(waiter)


def is_final(error: Exception) -> bool:
    """Return whether another attempt would fail as well: for want of a version, of permission, or of sense."""
    if isinstance(error, HttpFailed):
        return error.status in UNWELCOME
    return isinstance(error, VersionMismatch | SetupError) or not isinstance(error, FerruleError | OSError)
