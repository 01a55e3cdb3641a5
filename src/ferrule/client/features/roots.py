"""The folders a client works in, as its server is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ferrule.client.features.answers import QuestionHandlers, root
from ferrule.client.link.conversation import Conversation
from ferrule.client.link.keeper import Keeper
from ferrule.errors import CallFailed
from ferrule.schema.notices import ROOTS_CHANGED
from ferrule.schema.roots import Root

GivenRoot = str | Path | Root | Mapping[str, Any]


class Roots:
    """Adds and removes folders, and tells the server when the list changed."""

    def __init__(self, keeper: Keeper, answering: QuestionHandlers, check_interval: float | None) -> None:
        self._keeper = keeper
        self._answering = answering
        self._check_interval = check_interval

    @property
    def listed(self) -> list[Root]:
        """The folders this client works in."""
        return list(self._answering.roots or ())

    async def add(self, given: GivenRoot, name: str | None) -> None:
        """Work in one more folder, and tell the server."""
        added = root(given)
        self._answering.keep_roots([*self.listed, Root(uri=added.uri, name=name or added.name, meta=added.meta)])
        await self._tell()

    async def remove(self, given: GivenRoot) -> None:
        """Work in a folder no more, and tell the server."""
        gone = root(given).uri
        self._answering.keep_roots([kept for kept in self.listed if kept.uri != gone])
        await self._tell()

    def watch(self, conversation: Conversation) -> None:
        """Look from time to time whether the roots a server was told of can still be read."""
        if self._check_interval is not None and conversation.link is not None and _is_told(conversation):
            conversation.link.scope.spawn(self._watch(conversation, self._check_interval))

    async def _watch(self, conversation: Conversation, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            if conversation.over:
                return
            if await self._answering.root_access.has_changed():
                with suppress(CallFailed):
                    await self._tell()

    async def _tell(self) -> None:
        conversation = self._keeper.conversation
        if conversation is not None and not conversation.over and _is_told(conversation):
            await self._keeper.notify(ROOTS_CHANGED, None)


def _is_told(conversation: Conversation) -> bool:
    """Whether a server is told of changes: its era has that, and we declared roots."""
    return conversation.era.tells_roots and conversation.negotiation.capabilities.roots is not None
