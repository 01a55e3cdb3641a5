"""What a server remembers of each link, and what follows from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.protocol.handshake import Handshake
from ferrule.protocol.session import Phase
from ferrule.runtime.limits import TokenBucket
from ferrule.runtime.link import Link
from ferrule.server.context import LEVELS
from ferrule.server.settings import ServerSettings
from ferrule.server.subscriptions import Listener, Subscriptions, to_channel
from ferrule.wire.channel import Channel

logger = logging.getLogger("ferrule.server")

TURN_EVERY = 0.01
OWNED_CARRIERS = frozenset({"stdio", "memory"})
"""Carriers whose peer owns this process or lives in it: there is nothing to protect from its silence."""


class LinkState(Struct, eq=False):
    """What is remembered of one link."""

    listener: Listener
    values: dict[str, Any]
    progress: TokenBucket
    log_level: int = LEVELS["info"]
    last_turn: float = 0.0
    init_timer: asyncio.TimerHandle | None = None


class Links:
    """The open links of one server."""

    def __init__(self, subscriptions: Subscriptions, handshake: Handshake, settings: ServerSettings) -> None:
        self._subscriptions = subscriptions
        self._handshake = handshake
        self._settings = settings
        self._states: dict[Link, LinkState] = {}
        self._principal_values: dict[str, dict[str, Any]] = {}

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._states))

    def __len__(self) -> int:
        return len(self._states)

    def remember(self, link: Link) -> None:
        """Begin to watch over a link."""
        rate = self._settings.progress_rate
        state = LinkState(Listener(lambda _method, _params: None), {}, TokenBucket(rate, rate))
        if self._settings.init_timeout is not None and link.session.origin.carrier not in OWNED_CARRIERS:
            state.init_timer = link.loop.call_later(self._settings.init_timeout, self._silent, link)
        self._states[link] = state

    def forget(self, link: Link, error: Exception | None) -> None:
        """Release what a link held."""
        state = self._states.pop(link, None)
        if state is not None:
            self._subscriptions.remove(state.listener)
            _stop(state)

    def greet(self, link: Link, kinds: Iterable[str]) -> None:
        """A client has made the handshake, and was told of which lists it will hear."""
        state = self._states[link]
        _stop(state)
        if link.channel is not None:
            state.listener = Listener(to_channel(link.channel), kinds)

    def ready(self, channel: Channel) -> None:
        """A client is ready to hear from us: of changed lists, and whether it still lives."""
        link = self.at(channel)
        if link is not None:
            link.session.peer_ready = True
            self._subscriptions.add(self._states[link].listener)
            link.keep_alive()

    def at(self, channel: Channel) -> Link | None:
        """Give the link whose own channel this is."""
        return next((link for link in self._states if link.channel is channel), None)

    def _silent(self, link: Link) -> None:
        if link.session.peer is None and not link.session.modern and link.channel is not None:
            logger.error("a peer did not initialize within %s s: closed", self._settings.init_timeout)
            link.session.enter(Phase.ERROR)
            link.channel.close("initialize timed out")

    def of(self, call: Call) -> Link:
        """Give the link a call came in on."""
        return call.link  # type: ignore[return-value]  # every link of a server is a Link

    def state(self, call: Call) -> LinkState:
        """Give what is remembered of the link a call came in on."""
        return self._states[self.of(call)]

    def values(self, call: Call) -> dict[str, Any]:
        """Give the values kept between requests of one session, or of one principal where there are no sessions."""
        state = self._states.get(self.of(call))
        if call.era is self._handshake and state is not None:
            return state.values
        if call.origin.principal is None:
            raise SetupError("ctx.state needs a session or an authenticated principal, and this request has neither")
        return self._principal_values.setdefault(call.origin.principal, {})

    def wants_log(self, call: Call, rank: int) -> bool:
        """Tell whether the caller wants a log message of this rank."""
        if call.era is self._handshake:
            state = self._states.get(self.of(call))
            return state is not None and rank >= state.log_level
        level = call.peer.log_level
        return level is not None and rank >= LEVELS[level] and self.running(call)

    def running(self, call: Call) -> bool:
        """Tell whether a call is neither answered nor cancelled yet."""
        return self.of(call).session.running.get(call.id) is call

    def may_tell_progress(self, call: Call) -> bool:
        """Tell whether one more progress notice may go out on this call's link now."""
        state = self._states.get(self.of(call))
        return state is not None and state.progress.take(self.of(call).loop.time())

    def owes_a_turn(self, call: Call) -> bool:
        """Tell whether the handlers of a link have told in vain for so long that the loop should turn."""
        state, now = self._states.get(self.of(call)), self.of(call).loop.time()
        if state is None or now - state.last_turn < TURN_EVERY:
            return state is None
        state.last_turn = now
        return True


def _stop(state: LinkState) -> None:
    if state.init_timer is not None:
        state.init_timer.cancel()
        state.init_timer = None
