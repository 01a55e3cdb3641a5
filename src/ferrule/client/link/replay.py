"""Asking, and asking again what was lost with its link, where that cannot do harm."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Raw, structs

from ferrule.client.link.conversation import Conversation, RequestOptions
from ferrule.client.notifications import Notifications
from ferrule.client.settings import ClientSettings
from ferrule.errors import (
    CallFailed,
    ConnectionTimedOut,
    LinkLost,
    NotConnected,
    PeerError,
    TimedOut,
    TimedOutReconnecting,
)
from ferrule.schema.methods import METHODS, Method

LOST = (LinkLost, TimedOut, NotConnected)
"""How a call fails whose link may be gone: before or after it was sent, in silence, while a new one is opened."""


class ReplayingClient(Notifications):
    """The asking half of a client."""

    settings: ClientSettings

    async def _present(self, timeout: float | None) -> Conversation:
        """Return the conversation, as soon as there is one again if it was lost."""
        keeper = self._reconnecting
        if keeper.active:
            keeper.require_repeatable(LinkLost(keeper.condition, sent=False), "nothing was sent", safe=True)
            await keeper.wait(timeout)
        return self._talk()

    async def _ask(self, method: str, params: dict[str, Any], how: RequestOptions) -> Raw:
        """Ask the server and give its complete result."""
        return (await self._ask_simply(method, params, how))[0]

    async def _ask_simply(self, method: str, params: dict[str, Any], how: RequestOptions) -> tuple[Raw, bool]:
        """Ask as `_ask` does, and tell besides whether the first round was the last."""
        try:
            return await self._talk().ask_simply(method, params, how)
        except LOST as error:
            return await self._again(error, method, params, how)

    async def _again(
        self, error: CallFailed, method: str, params: dict[str, Any], how: RequestOptions
    ) -> tuple[Raw, bool]:
        """Ask once more when there is a new link; raises what the caller shall see where that is not to be."""
        clock = asyncio.get_running_loop().time
        if how.timeout is None:
            deadline = None
        else:
            deadline = clock() + how.timeout
        while True:
            if isinstance(error, TimedOut):
                raise await self._silence(error) from None
            self._reconnecting.require_repeatable(error, method, safe=self._is_harmless(method, params))
            await self._reconnecting.wait(None if deadline is None else max(deadline - clock(), 0.0))
            if deadline is None:
                left = how
            else:
                left = structs.replace(how, timeout=max(deadline - clock(), 0.0))
            try:
                return await self._talk().ask_simply(method, params, left)
            except LOST as again:
                error = again

    async def _resume(
        self, error: CallFailed, method: str, params: dict[str, Any], how: RequestOptions
    ) -> tuple[Raw, bool]:
        """Go on with a call between whose rounds its conversation was lost; another may have been opened meanwhile."""
        if isinstance(error, LinkLost) and error.sent:
            return await self._again(error, method, params, how)
        return await self._ask_simply(method, params, how)

    async def _silence(self, error: TimedOut) -> TimedOut:
        """Return up a server that answers neither a call nor a ping, unless each call has a way of its own to it."""
        conversation = self._conversation
        if conversation is None or conversation.separate:
            return error
        if not isinstance(error, ConnectionTimedOut) and await self._is_silent(conversation):
            error = ConnectionTimedOut(f"{error}, nor when it was asked to discover itself")
        if isinstance(error, ConnectionTimedOut):
            conversation.lose(error)
            if self._reconnecting.active:
                return TimedOutReconnecting(f"{error}; reconnecting")
        return error

    async def _is_silent(self, conversation: Conversation) -> bool:
        """Find out whether a server of the stateless era, which has no ping, answers nothing at all."""
        settings = self.settings
        if not (conversation.stateless and self._reconnecting.plan is not None and settings.probe_on_timeout):
            return False
        try:
            await conversation.ask("server/discover", {}, RequestOptions(settings.ping_timeout))
        except TimedOut:
            return True
        except (CallFailed, PeerError):
            return False
        return False

    def _is_harmless(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether a request does the same when it is done twice; a tool is asked about when it is listed."""
        if method == "tools/call":
            return params["name"] in self._tools.harmless
        try:
            return self._row(method).read_only
        except KeyError:
            return False

    def _row(self, method: str) -> Method:
        return METHODS[method]
