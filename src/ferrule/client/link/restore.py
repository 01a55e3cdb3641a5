"""What a server knew of a client before a loss, said to it again: subscriptions, the log level, the lists watched."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import msgspec
from msgspec import Raw

from ferrule.client.features.pages import PagedRequests
from ferrule.client.link.conversation import Conversation, RequestOptions
from ferrule.client.link.reconnect import ConnectionNotice
from ferrule.errors import CallFailed, LinkLost, PeerError
from ferrule.protocol.call import Note
from ferrule.schema.notices import RESOURCE_UPDATED

logger = logging.getLogger("ferrule.client")


class Restore(PagedRequests):
    """The half of a client that says again what a server has forgotten."""

    _level: str | None
    _brief = 0
    """How many subscriptions in a row the server ended soon after it had taken them."""
    _listened_at = -math.inf

    @property
    def _resubscribes(self) -> bool:
        plan = self._reconnecting.plan
        return plan is not None and plan.resubscribe

    async def _ready(self) -> None:
        await self._present(self.settings.request_timeout)

    async def _restore(self) -> None:
        """Tell the server what it knew before, and everyone here that changes may have been missed."""
        await self._restore_level()
        if self._resubscribes:
            try:
                await self._listening.restore()
            except LinkLost:
                raise
            except (PeerError, CallFailed) as error:
                logger.warning("the server does not take the subscriptions it had: %s", error)
                self._listening.end()
        await self._listen_for_lists()
        self._tell_missed()

    async def _restore_level(self) -> None:
        conversation = self._talk()
        if self._level is None:
            return
        if conversation.stateless:
            conversation.want_level(self._level)
            return
        try:
            await conversation.ask("logging/setLevel", {"level": self._level}, self._plain())
        except PeerError as error:
            logger.warning("the server does not take the log level it had: %s", error)

    def _tell_missed(self) -> None:
        """Tell every subscriber of a change, once: there may have been one that nobody heard of."""
        for uri in list(self._listening.uris):
            self._tell_of(RESOURCE_UPDATED, {"uri": uri})
        for kind in self._told_kinds():
            self._tell_of(kind, {})

    def _tell_of(self, method: str, params: dict[str, Any]) -> None:
        link = self._talk().link
        if link is not None and link.channel is not None and not link.closed:
            self._heard(Note(method, Raw(msgspec.json.encode(params)), link.channel, link))

    # -- a subscription that ends while its link lives (HTTP)

    def _rescued(self) -> bool:
        """Return whether the subscriptions that just ended will be restored, and see to it."""
        conversation = self._conversation
        if not self._resubscribes or conversation is None or conversation.closing:
            return False
        if conversation.over:
            return self._reconnecting.active
        self._reconnecting.spawn(self._listen_again(conversation))
        return True

    async def _listen_again(self, conversation: Conversation) -> None:
        plan = self._reconnecting.plan
        clock = asyncio.get_running_loop().time
        lasted = plan is not None and clock() - self._listened_at >= plan.longest_delay
        self._brief = 0 if lasted else self._brief + 1
        if await self._in_the_end(conversation, self._listening.restore, self._brief):
            self._listened_at = clock()
            self._tell_missed()
        elif not conversation.over:
            self._listening.end()

    async def _in_the_end(
        self, conversation: Conversation, deed: Callable[[], Awaitable[Any]], before: int = 0
    ) -> bool:
        """Try until it succeeds, as late and as often as the plan says, while the conversation lasts."""
        plan = self._reconnecting.plan
        for attempt in count(1):
            if plan is None or (plan.max_attempts is not None and attempt > plan.max_attempts):
                break
            await plan.sleep(plan.delay(before + attempt))
            if conversation is not self._conversation or conversation.over:
                break
            try:
                await deed()
                return True
            except PeerError as refusal:
                logger.warning("the server does not take the subscriptions it had: %s", refusal)
                break
            except CallFailed as error:
                logger.info("attempt %d to hear of changes again failed: %s", attempt, error)
        return False

    # -- a session that the transport renewed by itself (HTTP)

    def _watch_gaps(self, conversation: Conversation) -> None:
        """Where a transport can lose what was told and yet live on, learn of it."""
        link = conversation.link
        if link is not None and link.channel is not None and self._reconnecting.plan is not None:
            link.channel.hear_gaps(lambda renewed: self._gap(conversation, renewed))

    def _gap(self, conversation: Conversation, renewed: bool) -> None:
        self._reconnecting.spawn(self._renewed(conversation) if renewed else self._look_after(conversation))

    async def _renewed(self, conversation: Conversation) -> None:
        """Start over with a server that has a new session for us: it knows nothing of what we wanted."""
        self._forget()
        if not self._resubscribes:
            self._listening.end()
        try:
            await self._restore()
        except LinkLost as error:
            logger.warning("what the session knew could not be restored: %s", error)
            if not conversation.over and self._resubscribes:
                await self._listen_again(conversation)
        self._reconnecting.tell(ConnectionNotice("restored", LinkLost("the server ended the session")))

    async def _look_after(self, conversation: Conversation) -> None:
        """The stream for notifications is gone: see whether the server still knows us, then ask for it again."""
        if not (self._listening.uris or self.notices.methods):
            return
        how = RequestOptions(self.settings.ping_timeout)
        if await self._in_the_end(conversation, lambda: conversation.ask("ping", {}, how)):
            link = conversation.link
            if link is not None and link.channel is not None:
                link.channel.stand()
                self._tell_missed()

    def _forget(self) -> None:
        raise NotImplementedError
