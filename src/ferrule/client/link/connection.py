"""Opening a client's conversation, ending it, and opening it again after a loss."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ferrule.client.features.pages import given
from ferrule.client.features.subscription import Listening
from ferrule.client.link.conversation import Conversation
from ferrule.client.link.inbox import Deliver
from ferrule.client.link.link import GRACE
from ferrule.client.link.opening import Opening
from ferrule.client.link.reconnect import plan_for
from ferrule.client.link.restore import Restore
from ferrule.client.targets import is_object, transport_for
from ferrule.errors import AlreadyInitialized, CallFailed, LinkLost, NotConnected
from ferrule.runtime.requests import LinkOptions
from ferrule.schema.lifecycle import InitializeResult, ServerCapabilities
from ferrule.schema.model import Implementation
from ferrule.schema.notices import RESOURCE_UPDATED
from ferrule.supervision.event_loop import require_asyncio
from ferrule.transports.contract import ObservedTransport, Transport

if TYPE_CHECKING:
    from ferrule.telemetry.observer import Observers

DRAIN = 5.0
"""How long a closing client waits for answers."""


class ClientConnection(Restore):
    """The half of a client that begins and ends conversations."""

    target: Any
    _observers: Observers | None
    _watchers: dict[str, list[Deliver]]

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(drain=DRAIN if error is None else 0.0)

    async def connect(self, *, timeout: float | None = None) -> None:
        """Reach the server and settle the protocol; the time-out is for the handshake."""
        if self._conversation is not None and not self._conversation.over:
            raise AlreadyInitialized(f"the client is connected already ({self.phase})")
        require_asyncio("Client", "use asyncio.run(main()), or SyncClient in a thread")
        transport = self._transport()
        await self.close()
        self._forget()
        self._forget_wishes()
        self._level = None
        self._tools.clear()
        self._reconnecting.begin(plan_for(self.settings.reconnect, usual=not is_object(self.target)))
        await self._converse(transport, timeout)
        await self._listen_for_lists()

    async def _converse(self, transport: Transport, timeout: float | None) -> None:
        settings = self.settings
        conversation = self._conversation = Conversation(
            transport,
            self._opening(timeout),
            self.answering,
            self._heard,
            options=LinkOptions(
                ping_timeout=settings.ping_timeout,
                probe_on_timeout=settings.probe_on_timeout,
                allow_batch=settings.allow_batch,
                half_closes=False,
                tell_unreadable=False,
            ),
            max_rounds=settings.max_rounds,
            strict=settings.strict,
            observers=self._observers,
        )
        conversation.on_change(self._changed)
        conversation.lasting, conversation.resume = self._reconnecting.scope, self._resume
        self._changed()
        try:
            await conversation.open()
        finally:
            self._changed()
        self._watch_gaps(conversation)
        interval = self.settings.root_check_interval
        declared = conversation.opening.capabilities.roots
        if interval is None or declared is None or conversation.stateless or conversation.link is None:
            return
        conversation.link.scope.spawn(self._watch_roots(conversation, interval))

    async def _watch_roots(self, conversation: Conversation, interval: float) -> None:
        """Tell the server when a root it was told of can no longer be read, or can be again (roots/list_changed)."""
        while True:
            await asyncio.sleep(interval)
            if conversation.over:
                return
            if await self.answering.root_access.has_changed():
                with contextlib.suppress(CallFailed):
                    await self._tell_roots()

    async def initialize(self, *, timeout: float | None = None) -> InitializeResult:
        """Connect, and give what the server says of itself, in either era."""
        await self.connect(timeout=timeout)
        return InitializeResult(
            protocol_version=self.protocol_version or "",
            capabilities=self.server_capabilities or ServerCapabilities(),
            server_info=self.server_info or Implementation(name="", version=""),
            instructions=self.instructions,
        )

    def _transport(self) -> Transport:
        transport = transport_for(self.target, **self.settings.transport_options)
        if self._observers is not None and isinstance(transport, ObservedTransport):
            transport.observer = self._observers
        return transport

    def _opening(self, timeout: float | None) -> Opening:
        settings = self.settings
        return Opening(
            settings.mode,
            settings.protocol_version,
            self.answering.capabilities,
            Implementation(name=settings.name, version=settings.version),
            given(timeout, settings.init_timeout),
            settings.probe_timeout,
            settings.log_level,
            settings.send_client_info,
        )

    async def reconnect(self) -> None:
        """End the conversation and start a new one; a child process is started afresh."""
        await self.close(drain=0.0)
        await self.connect()

    async def close(self, drain: float = DRAIN) -> None:
        """Ask nothing more, wait up to `drain` seconds for what was asked, and end; harmless when called again."""
        await self._reconnecting.stop()
        if self._conversation is not None:
            self._listening.end()
            await self._conversation.close(drain)
            self._changed()

    # -- after a loss

    def _changed(self) -> None:
        conversation = self._conversation
        self._phases.tell(self.phase)
        if conversation is None or not conversation.over:
            return
        if conversation.opened is not None and not conversation.closing:
            self._reconnecting.lost(conversation.failure)
        if not (self._reconnecting.active and self._resubscribes):
            self._listening.end()

    async def _reopen(self) -> None:
        """Make one attempt to open a new conversation in place of the lost one, and to restore what it knew."""
        await self._release()
        self._forget()
        if not self._resubscribes:
            self._forget_wishes()
        await self._converse(self._transport(), None)
        await self._restore()
        if self._talk().over:
            raise LinkLost(f"the new link was lost at once: {self._talk().failure}")

    async def _give_up(self, sentence: str) -> None:
        await self._release()
        self._talk().give_up(sentence)
        self._listening.end()
        self._phases.tell(self.phase)

    async def _release(self) -> None:
        """Let go of the lost conversation; a child process may end in peace, nobody else is waited for."""
        lost = self._talk()
        await lost.release(GRACE if lost.starts_server else 0.0)

    def _forget(self) -> None:
        """Forget what this conversation has taught: it need not hold in the next."""
        self.cache.clear()
        self._tools.changed()

    def _forget_wishes(self) -> None:
        """Forget every subscription."""
        self._listening = Listening(self._talk, self._ready, self._rescued)
        for watchers in self._watchers.values():
            for watcher in watchers:
                self.notices.off(RESOURCE_UPDATED, watcher)
        self._watchers.clear()

    async def _tell_roots(self) -> None:
        raise NotImplementedError

    def _talk(self) -> Conversation:
        if self._conversation is None:
            raise NotConnected(
                f"the client is not connected ({self.phase}): use `async with Client(...)` or `await client.connect()`"
            )
        return self._conversation
