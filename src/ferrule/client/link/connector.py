"""Making conversations with one server: its transport, how it is opened, and how long a loss is tried to be mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.client.features.answers import QuestionHandlers
from ferrule.client.features.tool_facts import HandlingRules
from ferrule.client.link.conversation import Conversation
from ferrule.client.link.negotiation import Negotiation
from ferrule.client.link.reconnect import Reconnect, plan_for
from ferrule.client.settings import ClientSettings
from ferrule.client.targets import is_object, transport_for
from ferrule.runtime.dispatch import NoteHandler
from ferrule.runtime.requests import LinkOptions
from ferrule.schema.model import Implementation
from ferrule.transports.contract import ObservedTransport, Transport

if TYPE_CHECKING:
    from ferrule.telemetry.observer import Observers


class Connector:
    """Makes the conversations of one client, each on a transport of its own."""

    def __init__(
        self, target: object, settings: ClientSettings, answering: QuestionHandlers, rules: HandlingRules
    ) -> None:
        self.target = target
        self._settings = settings
        self._answering = answering
        self.rules = rules
        self._observers: Observers | None = settings.observers
        self._options = LinkOptions(
            ping_timeout=settings.ping_timeout,
            probe_on_timeout=settings.probe_on_timeout,
            allow_batch=settings.allow_batch,
            half_closes=False,
            tell_unreadable=False,
        )

    @property
    def plan(self) -> Reconnect | None:
        """How to come back after a loss; None for not at all."""
        return plan_for(self._settings.reconnect, usual=not is_object(self.target))

    def transport(self) -> Transport:
        """Return a transport to the server; raises SetupError for a target that cannot be one."""
        transport = transport_for(self.target, **self._settings.transport_options)
        if self._observers is not None and isinstance(transport, ObservedTransport):
            transport.observer = self._observers
        return transport

    def conversation(self, transport: Transport, heard: NoteHandler, timeout: float | None) -> Conversation:
        """Return a conversation that is not open yet; the time-out is for the handshake."""
        return Conversation(
            transport,
            self._negotiation(timeout),
            self._answering,
            heard,
            self.rules,
            options=self._options,
            max_rounds=self._settings.max_rounds,
            strict=self._settings.strict,
            observers=self._observers,
        )

    def _negotiation(self, timeout: float | None) -> Negotiation:
        settings = self._settings
        if timeout is None:
            timeout = settings.init_timeout
        return Negotiation(
            settings.mode,
            settings.protocol_version,
            self._answering.capabilities,
            Implementation(name=settings.name, version=settings.version),
            timeout,
            settings.probe_timeout,
            settings.log_level,
            settings.send_client_info,
        )
