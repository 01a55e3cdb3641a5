"""What a client knows of its conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ferrule.client.features.answers import Answering
from ferrule.client.features.subscription import Listening
from ferrule.client.link.conversation import Conversation
from ferrule.client.link.inbox import Inbox
from ferrule.protocol.call import Awaited
from ferrule.protocol.session import CONNECTION_STATES, Phase
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import ClientCapabilities, Implementation
from ferrule.schema.roots import Root


class ClientState:
    """The knowing half of a client."""

    answering: Answering
    notices: Inbox
    _conversation: Conversation | None
    _listening: Listening

    @property
    def phase(self) -> Phase:
        """How far the conversation is."""
        if self._conversation is None:
            return Phase.PRE_INITIALIZATION
        return self._conversation.phase

    @property
    def connection_state(self) -> str:
        """The phase in the words of a connection: disconnected, connecting, connected, ready."""
        link = None if self._conversation is None else self._conversation.link
        if link is None:
            return "disconnected"
        return CONNECTION_STATES[self.phase]

    @property
    def protocol_version(self) -> str | None:
        """The protocol revision that was settled on."""
        peer = None if self._conversation is None else self._conversation.peer
        if peer is None:
            return None
        return peer.version

    @property
    def server_info(self) -> Implementation | None:
        """The server's own name and version; for display and logs only."""
        peer = None if self._conversation is None else self._conversation.peer
        if peer is None:
            return None
        return peer.implementation

    @property
    def server_capabilities(self) -> ServerCapabilities | None:
        """What the server declared."""
        peer = None if self._conversation is None else self._conversation.peer
        capabilities = None if peer is None else peer.capabilities
        if isinstance(capabilities, ServerCapabilities):
            return capabilities
        return None

    def extension(self, name: str) -> dict[str, Any] | None:
        """Return the settings with which the server declares an extension, None when it does not."""
        peer = None if self._conversation is None else self._conversation.peer
        if peer is None:
            return None
        return peer.extension(name)

    @property
    def negotiated(self) -> frozenset[str]:
        """What either side may use, in the words of the protocol: `tools`, `resources.subscribe`, `sampling`."""
        peer = None if self._conversation is None else self._conversation.peer
        if peer is None:
            return frozenset()
        ours = self._conversation.opening.declared(peer.revision)  # type: ignore[union-attr]
        return frozenset({*_named(peer.capabilities), *_named(ours)})

    @property
    def notification_handlers(self) -> frozenset[str]:
        """The notifications someone here handles."""
        return self.notices.methods

    @property
    def instructions(self) -> str | None:
        """How the server says it should be used."""
        opened = None if self._conversation is None else self._conversation.opened
        if opened is None:
            return None
        return opened.instructions

    @property
    def pending(self) -> list[Awaited]:
        """Our requests that are not answered yet, with method and start time."""
        link = None if self._conversation is None else self._conversation.link
        if link is None:
            return []
        return list(link.session.awaited.values())

    @property
    def subscriptions(self) -> set[str]:
        """The resources this client hears of."""
        return set(self._listening.uris)

    @property
    def roots(self) -> list[Root]:
        """The folders this client works in."""
        return list(self.answering.roots or ())


def _named(capabilities: ServerCapabilities | ClientCapabilities) -> Iterator[str]:
    """Name the features a side declared, and their parts."""
    for feature, parts in msgspec.to_builtins(capabilities).items():
        yield feature
        yield from (f"{feature}.{part}" for part, declared in parts.items() if declared is not False)
