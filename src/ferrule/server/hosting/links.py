"""The open links of one server, and what it remembers of each."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.protocol.call import Call, Note
from ferrule.protocol.handshake import Handshake
from ferrule.protocol.session import Phase
from ferrule.runtime.link import Link
from ferrule.runtime.sessionless import SessionlessLink
from ferrule.schema.notices import INITIALIZED, LOG_LEVELS
from ferrule.server.hosting.principals import Principals, holder_of
from ferrule.server.notifications.subscriptions import ChangeNotice, Subscriber, Subscriptions
from ferrule.server.offers.switches import Switches
from ferrule.server.settings import ServerSettings
from ferrule.wire.codec import write
from ferrule.wire.messages import Message, Notification, Request

if TYPE_CHECKING:
    from ferrule.balancing.token_bucket import TokenBucket

logger = logging.getLogger("ferrule.server")

_read_values = msgspec.msgpack.Decoder(dict[str, Any]).decode

TURN_EVERY = 0.01
"""Seconds after which a handler that only reports lets the event loop turn."""
MOST_VALUES = 256 * 1024
"""Bytes of a session's `ctx.state` that other nodes get to know."""
SILENT = Subscriber(channel=None)
"""The subscriber of a link that was not greeted yet."""


class Pace:
    """How much may be told of running calls, each kind for itself."""

    __slots__ = ("logs", "progress")

    def __init__(self, settings: ServerSettings) -> None:
        from ferrule.balancing.token_bucket import TokenBucket

        self.progress = TokenBucket(settings.progress_rate, settings.progress_rate)
        rate = settings.log_rate
        if rate is None:
            self.logs = None
        else:
            self.logs = TokenBucket(rate, rate)


class LinkState(Struct, eq=False):
    """What is remembered of one link; what few links need is made when it is needed."""

    subscriber: Subscriber = SILENT
    values: dict[str, Any] | None = None
    pace: Pace | None = None
    log_level: int = LOG_LEVELS["info"]
    last_turn: float = 0.0
    init_timer: asyncio.TimerHandle | None = None
    switches: Switches | None = None
    """What this session sees otherwise than others."""
    owner: str = ""
    """Whose the results and tasks are that are kept for this link."""
    session_id: str = ""
    """What the session is called where its transport has no name for it."""
    entrance: object = None
    """By which it came in; None for one that came to the server itself."""


class LinkWatcher(Protocol):
    """Is told of the links of a server."""

    def link_opened(self, link: Link, entrance: object) -> None:
        """Called when there is a new link, with the entrance it came in by."""

    def link_closed(self, link: Link) -> None:
        """Called when a link is over."""


class Traffic(Struct):
    """Bytes that came and that were written over one transport, where it counts them."""

    received: int = 0
    sent: int = 0


class LinkFigures(Struct):
    """What all links of a server do at one moment."""

    running: int = 0
    """Calls whose handler runs."""
    waiting: int = 0
    """Calls that wait for their turn."""
    asked: int = 0
    """Requests to peers that wait for their answer."""
    traffic: dict[str, Traffic] = {}
    """By transport, of links that are over too."""


class Links:
    """The open links of one server."""

    def __init__(self, subscriptions: Subscriptions, handshake: Handshake, settings: ServerSettings) -> None:
        self._subscriptions = subscriptions
        self._handshake = handshake
        self._settings = settings
        self._states: dict[Link, LinkState] = {}
        self.principals = Principals()
        self.on_forget: Callable[[str], None] | None = None
        """Called with the owner whose session is over, where results may be kept for it."""
        self.on_session_changed: Callable[[Link], None] | None = None
        """Called when a client has said something that another node would have to know; None where there is none."""
        self.watcher: LinkWatcher | None = None
        """Told of links that open and close, where somebody wants to know."""
        self.dropped_progress = 0
        self.dropped_logs = 0
        """Notices that were not sent, because they were too many."""
        self._over: dict[str, Traffic] = {}
        """The traffic of links that are over, by transport."""

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._states))

    def __len__(self) -> int:
        return len(self._states)

    def through(self, entrance: object) -> list[Link]:
        """Return the links that came in by one entrance."""
        found: list[Link] = []
        for link, state in self._states.items():
            if state.entrance is entrance:
                found.append(link)
        return found

    def entrance_of(self, link: Link) -> object:
        """Return by which entrance a link came in; None for one that came to the server itself."""
        return self._states[link].entrance

    def remember(self, link: Link, entrance: object = None) -> None:
        """Begin to watch over a link."""
        self._states[link] = LinkState(entrance=entrance)
        if self.watcher is not None:
            self.watcher.link_opened(link, entrance)

    def opened(self, link: Link) -> None:
        """Called when a link has its channel: unless that is a patient one, the peer has to initialize in time."""
        if link.channel is None or link.channel.traits.patient:
            return
        state = self._states.get(link)
        within = self._settings.init_timeout
        if state is None or within is None:
            return
        state.init_timer = link.loop.call_later(within, self._init_timed_out, link)

    def replay_frames(self, link: Link) -> list[bytes]:
        """Return what the client of a session has said since its handshake that still holds, as frames."""
        state = self._states.get(link)
        if state is None or not link.session.peer_ready:
            return []
        said: list[Message] = [Notification(INITIALIZED)]
        for name, rank in LOG_LEVELS.items():
            if rank == state.log_level != LOG_LEVELS["info"]:
                said.append(Request(f"level-{name}", "logging/setLevel", {"level": name}))
        for number, uri in enumerate(sorted(state.subscriber.uris)):
            said.append(Request(f"subscription-{number}", "resources/subscribe", {"uri": uri}))
        return [write(each) for each in said]

    def said(self, call: Call) -> None:
        """Called when what is remembered of a session has changed."""
        if self.on_session_changed is not None:
            self.on_session_changed(self.of(call))

    def written_values(self, link: Link) -> bytes:
        """Return the values of a session's `ctx.state`, encoded; empty where there are none, or too many."""
        state = self._states.get(link)
        if state is None or not state.values:
            return b""
        try:
            written = msgspec.msgpack.encode(state.values)
        except (TypeError, ValueError, OverflowError, RecursionError) as reason:
            logger.warning("ctx.state of a session stays at this node: %s", reason)
            return b""
        if len(written) > MOST_VALUES:
            logger.warning("ctx.state of a session stays at this node: it has more than %d bytes", MOST_VALUES)
            return b""
        return written

    def restore_session(self, link: Link, key: str, values: bytes | None) -> None:
        """Let a link continue the session with this key; with the values of `ctx.state` where another node began it."""
        state = self._states.get(link)
        if state is None:
            return
        state.owner = f"session {key}"
        if values is not None:
            if values:
                state.values = _read_values(values)
            # Nobody listened for it while it had no node.
            self._subscriptions.tell_all_to(state.subscriber)

    def forget(self, link: Link, error: Exception | None) -> None:
        """Release what a link held."""
        state = self._states.pop(link, None)
        if state is not None:
            if self.watcher is not None:
                self.watcher.link_closed(link)
            _add_traffic(self._over, link)
            if state.subscriber is not SILENT:
                self._subscriptions.remove(state.subscriber)
            if state.owner and self.on_forget is not None:
                self.on_forget(state.owner)
            _stop(state)

    def greet(self, link: Link, kinds: Iterable[str]) -> None:
        """Called when a client has made the handshake, and which lists it was told it will hear of."""
        state = self._states[link]
        _stop(state)
        if state.subscriber is not SILENT:
            self._subscriptions.remove(state.subscriber)
        state.subscriber = Subscriber(link.channel, kinds, owner=link)

    def ready(self, link: Link) -> None:
        """Called when a client is ready: from now on it hears of changed lists, and is pinged."""
        state = self._states.get(link)
        if state is not None:
            _log_ready(link)
            self._subscriptions.add_to_lists(state.subscriber)
            if self.on_session_changed is not None:
                self.on_session_changed(link)
            if link.channel is not None and not link.channel.traits.watches_itself:
                link.keep_alive()

    def _init_timed_out(self, link: Link) -> None:
        if link.session.peer is None and not link.session.met_stateless and link.channel is not None:
            logger.error("a peer did not initialize within %s s: closed", self._settings.init_timeout)
            link.session.enter(Phase.ERROR)
            link.channel.close("initialize timed out")

    def of(self, call: Call) -> Link:
        """Return the link a call came in on."""
        return call.link  # type: ignore[return-value]  # every link of a server is a Link

    def knows(self, call: Call) -> bool:
        """Return whether a call came in on a link of this server, and that link is open."""
        return self.of(call) in self._states

    def behind(self, note: Note) -> Link:
        """Return the link a notification came in on."""
        return note.link  # type: ignore[return-value]  # every link of a server is a Link

    def has_session(self, call: Call) -> bool:
        """Return whether anything of this caller is remembered for its next request."""
        return not isinstance(self.of(call), SessionlessLink)

    def subscriber(self, call: Call) -> Subscriber | None:
        """Return what hears of changes for the link a call came in on; None for one that made no handshake."""
        state = self._states.get(self.of(call))
        if state is None or state.subscriber is SILENT or not self.has_session(call):
            return None
        subscriber = state.subscriber
        if not subscriber.holder:  # most links only hear of lists, which are no bytes of anybody's
            subscriber.holder = holder_of(self.of(call).session.origin)
        return subscriber

    def state(self, call: Call) -> LinkState:
        """Return what is remembered of the link a call came in on."""
        return self._states[self.of(call)]

    def values(self, call: Call) -> dict[str, Any]:
        """Return the values kept between requests of one session, or of one principal where there are no sessions."""
        state = self._session(call)
        if state is not None:
            if state.values is None:
                state.values = {}
            self.said(call)
            return state.values
        return self.principals.state(self._principal(call, "ctx.state")).values

    def session_id(self, call: Call) -> str | None:
        """Return the id of the caller's session; None where there is none."""
        state = self._session(call)
        if state is None:
            return None
        named = call.origin.headers.get("mcp-session-id")
        if named:
            return named
        if not state.session_id:
            state.session_id = os.urandom(16).hex()
        return state.session_id

    def _session(self, call: Call) -> LinkState | None:
        state = self._states.get(self.of(call))
        if call.era is self._handshake and state is not None and state.subscriber is not SILENT:
            return state
        return None

    def _principal(self, call: Call, what: str) -> str:
        if call.origin.principal is None:
            raise SetupError(
                f"{what} needs a session or an authenticated principal, and this request has neither: a client has a"
                ' session in the handshake era, as with Client(app, mode="handshake"); in the stateless era'
                " keep the value outside, under a key that the client sends"
            )
        return call.origin.principal

    def own_switches(self, call: Call) -> Switches | None:
        """Return what the caller's session, or without one its principal, sees otherwise than others."""
        state = self._session(call)
        if state is not None:
            return state.switches
        if call.origin.principal is None:
            return None
        known = self.principals.find(call.origin.principal)
        if known is None:
            return None
        return known.switches

    def keep_switches(self, call: Call, switches: Switches) -> None:
        """Remember what the caller sees otherwise than others."""
        state = self._session(call)
        if state is not None:
            state.switches = switches
        else:
            self.principals.state(self._principal(call, "ctx.enable or ctx.disable")).switches = switches

    def tell_one(self, call: Call, kind: str) -> None:
        """Notify the caller's session, or without one whoever listens for its principal, that a list changed."""
        state = self._session(call)
        if state is None:
            self._subscriptions.changed(kind, self._principal(call, kind))
        elif kind in state.subscriber.kinds and self.of(call).session.peer_ready:
            state.subscriber.tell(ChangeNotice(kind, {}))

    def owner(self, call: Call) -> str | None:
        """Return whose a kept result is: the principal's, else the session's; without either, whoever knows its URI."""
        if call.origin.principal is not None:
            return f"principal {call.origin.principal}"
        state = self._states.get(self.of(call))
        if state is None or not self.has_session(call):
            return None
        if not state.owner:
            # Nobody guesses it, and no other session has it, also when this one is over.
            state.owner = f"session {os.urandom(16).hex()}"
        return state.owner

    def wants_log(self, call: Call, rank: int) -> bool:
        """Return whether the caller wants a log message of this rank."""
        if call.era is self._handshake:
            state = self._states.get(self.of(call))
            return state is not None and rank >= state.log_level
        level = call.peer.log_level
        return level is not None and rank >= LOG_LEVELS[level] and self.running(call)

    def running(self, call: Call) -> bool:
        """Return whether a call is neither answered nor cancelled yet."""
        return self.of(call).session.runs(call)

    def may_tell_progress(self, call: Call) -> bool:
        """Return whether one more progress notice may go out now on this call's link."""
        bucket = self.progress_bucket(call)
        if bucket is not None and bucket.take(self.of(call).loop.time()):
            return True
        self.dropped_progress += 1
        return False

    def progress_bucket(self, call: Call) -> TokenBucket | None:
        """Return what says how many progress notices may go out for a call; None where its link is gone."""
        pace = self._pace(call)
        if pace is None:
            return None
        return pace.progress

    def may_log(self, call: Call) -> bool:
        """Return whether one more log message may go out now on this call's link."""
        if self._settings.log_rate is None:
            return True
        pace = self._pace(call)
        if pace is not None and pace.logs is not None and pace.logs.take(self.of(call).loop.time()):
            return True
        self.dropped_logs += 1
        return False

    def _pace(self, call: Call) -> Pace | None:
        """Return how fast a link may be told; sessionless calls share none, and one that is gone has none."""
        link = self.of(call)
        state = self._states.get(link)
        if state is None:
            return None
        holder: Any = call if isinstance(link, SessionlessLink) else state
        pace: Pace | None = holder.pace
        if pace is None:
            pace = holder.pace = Pace(self._settings)
        return pace

    def figures(self) -> LinkFigures:
        """Return what all links do now, for a metric."""
        figures = LinkFigures()
        for carrier, over in self._over.items():
            figures.traffic[carrier] = Traffic(over.received, over.sent)
        for link in self._states:
            figures.running += link.running
            figures.waiting += link.waiting
            figures.asked += len(link.session.awaited)
            _add_traffic(figures.traffic, link)
        return figures

    def owes_a_turn(self, call: Call) -> bool:
        """Return whether a handler that only reports should yield to the event loop now: every TURN_EVERY seconds."""
        state = self._states.get(self.of(call))
        now = self.of(call).loop.time()
        if state is None:
            return True
        if now - state.last_turn < TURN_EVERY:
            return False
        state.last_turn = now
        return True


def _log_ready(link: Link) -> None:
    peer = link.session.peer
    if peer is not None and logger.isEnabledFor(logging.INFO):
        name = "" if peer.implementation is None else peer.implementation.name
        logger.info("initialized: %r in %s over %s", name, peer.version, link.session.origin.carrier)


def _add_traffic(traffic: dict[str, Traffic], link: Link) -> None:
    """Count the bytes of a link, where its channel counts them."""
    channel = link.channel
    if channel is None or not channel.bytes_in:
        return
    carrier = link.session.origin.carrier
    total = traffic.get(carrier)
    if total is None:
        total = traffic[carrier] = Traffic()
    total.received += channel.bytes_in
    total.sent += channel.bytes_out


def _stop(state: LinkState) -> None:
    if state.init_timer is not None:
        state.init_timer.cancel()
        state.init_timer = None
