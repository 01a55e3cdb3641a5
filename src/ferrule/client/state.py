"""What a client knows of its conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ferrule.client.link.keeper import Keeper
from ferrule.protocol.call import Awaited, Peer
from ferrule.protocol.session import CONNECTION_STATES
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import ClientCapabilities, Implementation


class ServerState:
    """The server as it declared itself, and how things stand with it."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    @property
    def _peer(self) -> Peer | None:
        conversation = self._keeper.conversation
        if conversation is None:
            return None
        return conversation.peer

    @property
    def connection(self) -> str:
        """The phase in the words of a connection: disconnected, connecting, connected, ready."""
        conversation = self._keeper.conversation
        if conversation is None or conversation.link is None:
            return "disconnected"
        return CONNECTION_STATES[conversation.phase]

    @property
    def version(self) -> str | None:
        """The protocol revision that was settled on."""
        peer = self._peer
        if peer is None:
            return None
        return peer.version

    @property
    def implementation(self) -> Implementation | None:
        """The server's own name and version."""
        peer = self._peer
        if peer is None:
            return None
        return peer.implementation

    @property
    def capabilities(self) -> ServerCapabilities | None:
        """What the server declared."""
        peer = self._peer
        if peer is not None and isinstance(peer.capabilities, ServerCapabilities):
            return peer.capabilities
        return None

    def extension(self, name: str) -> dict[str, Any] | None:
        """Return the settings with which the server declares an extension, None when it does not."""
        peer = self._peer
        if peer is None:
            return None
        return peer.extension(name)

    @property
    def negotiated(self) -> frozenset[str]:
        """What either side may use, in the words of the protocol: `tools`, `resources.subscribe`, `sampling`."""
        conversation = self._keeper.conversation
        if conversation is None or conversation.peer is None:
            return frozenset()
        ours = conversation.negotiation.declared(conversation.peer.revision)
        return frozenset({*_named(conversation.peer.capabilities), *_named(ours)})

    @property
    def instructions(self) -> str | None:
        """How the server says it should be used."""
        conversation = self._keeper.conversation
        if conversation is None or conversation.opened is None:
            return None
        return conversation.opened.instructions

    @property
    def pending(self) -> list[Awaited]:
        """Our requests that are not answered yet, with method and start time."""
        conversation = self._keeper.conversation
        if conversation is None or conversation.link is None:
            return []
        return list(conversation.link.session.awaited.values())


def _named(capabilities: ServerCapabilities | ClientCapabilities) -> Iterator[str]:
    """Name the features a side declared, and their parts."""
    for feature, parts in msgspec.to_builtins(capabilities).items():
        yield feature
        for part, is_declared in parts.items():
            if is_declared is not False:
                yield f"{feature}.{part}"
