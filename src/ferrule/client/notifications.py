"""What a client hears of by itself: notifications, log messages, changes of lists and of its own phase."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ferrule.client.features.cache import Cache
from ferrule.client.features.subscription import FLAGS, list_kind
from ferrule.client.features.tool_facts import ToolFacts
from ferrule.client.link.conversation import Conversation
from ferrule.client.link.keeper import ConnectionHandler, Keeper
from ferrule.client.state import ClientState
from ferrule.errors import CallFailed, PeerError
from ferrule.protocol.call import Note
from ferrule.protocol.session import Phase
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.notices import LOG_MESSAGE, OLD_NAMES, TOOLS_CHANGED

PhaseHandler = Callable[[Phase, Phase], object]


class Phases:
    """The phase that was told last, and who is told of the next."""

    def __init__(self) -> None:
        self._last = Phase.PRE_INITIALIZATION
        self._handlers: list[PhaseHandler] = []

    def on_change(self, handler: PhaseHandler) -> None:
        """Call `handler(old, new)` when the phase changes."""
        self._handlers.append(handler)

    def tell(self, phase: Phase) -> None:
        """Tell everyone of a phase, unless it was told already; a failing handler harms nobody else."""
        before = self._last
        self._last = phase
        if before is phase:
            return
        for handler in tuple(self._handlers):
            try:
                handler(before, phase)
            except Exception:
                logger.exception("a handler of the change from %s to %s failed", before, phase)


logger = logging.getLogger("ferrule.client")


class Notifications(ClientState):
    """The listening half of a client."""

    cache: Cache
    _phases: Phases
    _tools: ToolFacts
    _reconnecting: Keeper

    def _talk(self) -> Conversation:
        raise NotImplementedError

    def on_notification(self, method: str, handler: Any = None) -> Any:
        """Handle a notification by `f(params)`, `f(method, params)`, a queue or "module:function"; also a decorator."""
        if handler is None:
            return lambda fn: self.on_notification(method, fn)
        self.notices.on(method, handler)
        conversation = self._conversation
        told = conversation is not None and conversation.stateless and not conversation.over
        if told and OLD_NAMES.get(method, method) in FLAGS:
            assert conversation is not None
            conversation.scope.spawn(self._listen_for_lists())
        return handler

    def remove_notification_handler(self, method: str) -> None:
        """Handle a notification no more."""
        self.notices.off(method)

    def on_log(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Call `handler(level, data, logger)` for the server's log messages."""
        self.notices.on(LOG_MESSAGE, lambda p: handler(p.get("level"), p.get("data"), p.get("logger")))
        return handler

    def on_phase_change(self, handler: PhaseHandler) -> PhaseHandler:
        """Call `handler(old, new)` when the phase changes."""
        self._phases.on_change(handler)
        return handler

    def on_connected(self, handler: Callable[[], Any]) -> Callable[[], Any]:
        """Call `handler()` when the conversation is open."""
        self._phases.on_change(lambda _, new: handler() if new is Phase.INITIALIZED else None)
        return handler

    def on_disconnected(self, handler: Callable[[], Any]) -> Callable[[], Any]:
        """Call `handler()` when an open conversation ends, by our will or not."""
        self._phases.on_change(lambda old, _: handler() if old is Phase.INITIALIZED else None)
        return handler

    def on_connection(self, handler: ConnectionHandler) -> ConnectionHandler:
        """Call `handler(notice)` when the link is lost, is tried again, is restored, or given up."""
        self._reconnecting.on_notice(handler)
        return handler

    @property
    def reconnecting(self) -> bool:
        """Whether the link was lost and a new one is being opened, or waited for."""
        return self._reconnecting.active

    def on_error(self, handler: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
        """Call `handler(kind, reason)` when the conversation fails: the exception's name and its sentence."""

        def failed(_: Phase, new: Phase) -> None:
            if new is Phase.ERROR:
                error = self._talk().failure
                handler(type(error).__name__, str(error))

        self._phases.on_change(failed)
        return handler

    async def watch_lists(self, *kinds: str) -> None:
        """Hear of changes of lists, `"tools"`, `"prompts"`, `"resources"`; the handshake era tells unasked."""
        wanted = list(map(list_kind, kinds))
        await self._listening.ready()
        await self._listening.want_kinds(wanted)

    async def _listen_for_lists(self) -> None:
        """Hear of the lists someone here handles changes of, as far as the server tells of them."""
        kinds = self._told_kinds()
        try:
            await self._listening.want_kinds(kinds)
        except (PeerError, CallFailed) as error:
            logger.warning("the server declares %s but refuses to tell of changes: %s", ", ".join(kinds), error)

    def _told_kinds(self) -> list[str]:
        """Return the lists someone here handles changes of, as far as the server tells of them."""
        offered = self.server_capabilities
        told = []
        for kind in FLAGS:
            if offered is not None and _tells_of(kind, offered):
                told.append(kind)
        found: list[str] = []
        for kind in told:
            if kind in self.notices.methods:
                found.append(kind)
        return found

    def _heard(self, note: Note) -> None:
        conversation = self._talk()
        if self._listening.stale(note):
            return
        uri = self._listening.hear(note)
        self.cache.drop(note.method, uri)
        if note.method == TOOLS_CHANGED:
            self._tools.changed()
        link = conversation.link
        if link is not None:
            self.notices.receive(note, link.scope)


def _tells_of(kind: str, offered: ServerCapabilities) -> bool:
    declared = getattr(offered, kind.split("/")[1], None)
    return declared is not None and bool(declared.list_changed)
