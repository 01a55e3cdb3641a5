"""The sessions of one endpoint: found by an id nobody can guess, ended when they are idle, old or too many.

Rule: whoever opens too many pushes out sessions of its own. One that nobody has used since its handshake goes first,
then the idlest of whoever holds most.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest
from operator import attrgetter

from msgspec import Struct, structs

from ferrule.budgets.shares import Shares
from ferrule.budgets.weight import weight
from ferrule.transports.http.endpoint.caller import EVERYONE, NO_HEADERS
from ferrule.transports.http.endpoint.exchange import NullChannel
from ferrule.transports.http.endpoint.session import HttpSession, SessionChannel, polls_of
from ferrule.transports.http.endpoint.streams import EndpointStreams
from ferrule.transports.shutdown import tell_lost
from ferrule.wire.channel import Origin, Receiver
from ferrule.wire.messages import Message, Success

ID_BYTES = 24
"""Bytes of chance in an id; three are four characters, so ids that are made together can be cut apart."""
ID_LENGTH = ID_BYTES * 4 // 3
IDS_AT_ONCE = 64
"""How many ids are made of one reading of the system's random numbers."""
LEAST_SHARE = 64
"""How many of the idlest sessions are looked at, at least, in search of one that is not in use."""

INTRODUCTION = 512
"""Bytes of an `initialize` that are free: a session counts once more for each so many beyond that have begun."""

MOST_UNUSED = 8
"""While more than one session in so many was not used since its handshake, one of those makes room."""

_used = attrgetter("used")
_started = attrgetter("started")

IsBusy = Callable[[Receiver], bool]


class EndpointSession(HttpSession):
    """A session that is in the table, with the way out for what belongs to no exchange."""

    __slots__ = ("owner", "size", "standing", "unused")

    ages_while_read = True
    """Whether it can grow too old while somebody reads a stream of it: most clients always do."""

    def __init__(self, identity: str, link: Receiver, binding: str | None, shared: EndpointStreams) -> None:
        super().__init__(identity, link, binding, shared)
        self.standing = SessionChannel(self)
        self.owner = ""
        """On whose account it is: the principal's, or the address it was opened from."""
        self.size = 1
        """How many sessions it counts as."""
        self.unused = True
        """Whether nothing was asked in it since its handshake."""


class MovedSession(Struct, frozen=True):
    """A session as another process can go on with it: the messages of its client to replay there."""

    id: str
    introduction: bytes
    """Its `initialize`."""
    replay: list[bytes] = []
    """Later messages that still hold: that the client is ready, its log level, its subscriptions."""
    binding: str | None = None
    """Whom it is bound to."""
    principal: str | None = None
    address: str = ""
    generation: int = 2
    """Which of its owners goes on with it, counted from 1: no two of them give their streams the same names."""


class ReplayChannel(NullChannel):
    """The channel of messages that are replayed: nobody waits for the answers."""

    def __init__(self) -> None:
        self.greeted = False
        """Whether the handshake was made."""
        self.polls = False
        """Whether in the revision that was agreed readers are sent away and come back."""

    def send(self, message: Message | Sequence[Message]) -> None:
        """Notice that the handshake was made, and what came of it."""
        if not self.greeted and type(message) is Success:
            self.greeted = True
            self.polls = polls_of(message)


class Eviction:
    """Which session of a table makes room where there are too many: who holds them, and which nobody has used.

    It is made when there are too many for the first time: until then nobody need be asked to make room, and thousands
    of sessions may come and go.
    """

    __slots__ = ("_idlest", "_is_active", "_open", "_shares", "_unused", "_unused_shares")

    def __init__(self, sessions: Mapping[str, EndpointSession], is_active: Callable[[EndpointSession], bool]) -> None:
        self._open = sessions
        self._is_active = is_active
        self._shares: Shares[str] = Shares()
        self._unused: dict[str, dict[str, EndpointSession]] = {}
        """By owner, the sessions nobody has used since their handshake, the oldest first."""
        self._unused_shares: Shares[str] = Shares()
        self._idlest: dict[str | None, list[tuple[float, str]]] = {}
        """By owner, some of its idlest sessions, the idlest last; under None those of all."""
        for session in sessions.values():
            self.added(session)

    def added(self, session: EndpointSession) -> None:
        """Called when a session is in the table."""
        owner = session.owner
        self._shares.take(owner, session.size)
        if session.unused:
            self._unused.setdefault(owner, {})[session.id] = session
            self._unused_shares.take(owner, session.size)

    def taken_up(self, session: EndpointSession) -> None:
        """Called when a session that nobody had used is used: count it no longer among those."""
        unused = self._unused[session.owner]
        del unused[session.id]
        if not unused:
            del self._unused[session.owner]
        self._unused_shares.give(session.owner, session.size)

    def ended(self, session: EndpointSession) -> None:
        """Called when a session is in the table no more."""
        owner = session.owner
        self._shares.give(owner, session.size)
        if not self._shares.held(owner):
            self._idlest.pop(owner, None)
        if session.unused:
            self.taken_up(session)

    def choose(self, newest: EndpointSession, now: float) -> EndpointSession:
        """Return which session has to make room: one that was never used, or the idlest of whoever holds most."""
        while self._unused_shares.total * MOST_UNUSED > self._shares.total:
            session = self._longest_unused()
            if session is newest:
                break
            if not self._is_active(session):
                return session
            session.unused = False
            self.taken_up(session)
        return self._choose_idlest(newest, now)

    def _longest_unused(self) -> EndpointSession:
        """Return, of whoever has most unused sessions, the one opened longest ago."""
        owner = self._unused_shares.largest()
        assert owner is not None
        return next(iter(self._unused[owner].values()))

    def _choose_idlest(self, newest: EndpointSession, now: float) -> EndpointSession:
        """Return the idlest session of whoever holds most; one in use only where all of the idlest are."""
        owner = self._shares.largest()
        if owner is not None and self._shares.held(owner) < LEAST_SHARE:
            owner = None  # nobody holds many: the idlest of all goes
        idlest = self._idlest.get(owner)
        in_use: EndpointSession | None = None
        while idlest or in_use is None:
            if not idlest:
                idlest = self._idlest[owner] = self._find_idlest(owner, newest)
            used, identity = idlest.pop()
            session = self._open.get(identity)
            if session is None or session.used != used:
                continue
            if not self._is_active(session):
                return session
            session.used = now
            in_use = in_use or session
        return in_use

    def _find_idlest(self, owner: str | None, newest: EndpointSession) -> list[tuple[float, str]]:
        """Return some of the idlest sessions of an owner, or of all; the idlest stands last.

        Looking for the idlest is dear, so a share of all is returned at once. The newest is there only if it is alone.
        """
        among = []
        for each in self._open.values():
            if owner in (None, each.owner) and each is not newest:
                among.append(each)
        if not among:
            among.append(newest)
        share = max(LEAST_SHARE, len(among) // 100)
        return nsmallest(share, ((each.used, each.id) for each in among))[::-1]


class Sessions:
    """The sessions of one endpoint."""

    def __init__(
        self,
        link: Callable[[Origin], Receiver],
        busy: IsBusy,
        shared: EndpointStreams,
        mark: str = "",
        ended: Callable[[EndpointSession], None] | None = None,
    ) -> None:
        self._link = link
        self._busy = busy
        self._shared = shared
        self.mark = mark
        """How ids begin: with the worker that has the session, where there are several."""
        self._ended = ended
        """Called with each session that is over, where other nodes could go on with it."""
        self.on_add: Callable[[EndpointSession], None] | None = None
        """Called with each session whose handshake was made."""
        self._open: dict[str, EndpointSession] = {}
        self._records: dict[str, MovedSession] = {}
        """What another process needs to go on with each, where there are others."""
        self._suspended: dict[str, EndpointSession] = {}
        self._last_origin = EVERYONE
        self._next_look = 0.0
        """Before then no session can be idle for too long or too old: both times only grow."""
        self._spare_ids = ""
        """Ids that nobody has yet, one behind the other."""
        self._total = 0
        """How many sessions those in the table count as."""
        self._eviction: Eviction | None = None
        """Chooses which session makes room; None until there were too many."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[EndpointSession]:
        return iter(list(self._open.values()))

    def prepare(self, origin: Origin, *, lasting: bool = True) -> EndpointSession:
        """Make a session that is not in the table yet: its handshake may still fail."""
        identity = self._new_id() if lasting else ""
        kept = structs.replace(origin, headers=NO_HEADERS, lasting=lasting)
        if kept == self._last_origin:
            kept = self._last_origin  # many sessions may come from one sender
        self._last_origin = kept
        link = self._link(kept)
        session = EndpointSession(identity, link, origin.binding, self._shared)
        session.owner = origin.principal or origin.address
        link.channel_opened(session.standing)
        return session

    def _new_id(self) -> str:
        spare = self._spare_ids or secrets.token_urlsafe(ID_BYTES * IDS_AT_ONCE)
        self._spare_ids = spare[ID_LENGTH:]
        return self.mark + spare[:ID_LENGTH]

    def add(self, session: EndpointSession, introduction: bytes = b"", origin: Origin = EVERYONE) -> None:
        """Keep a session whose handshake was made with a message; others make room where there are too many.

        One with a message so long that it holds more than all others of whoever holds most is over at once.
        """
        cost = weight(introduction)
        if cost > INTRODUCTION:
            session.size = math.ceil(cost / INTRODUCTION)
        self._open[session.id] = session
        self._total += session.size
        if self.mark or self._ended is not None:
            self._records[session.id] = MovedSession(
                session.id,
                introduction,
                [],
                session.binding,
                origin.principal,
                origin.address,
                generation=session.generation + 1,
            )
        if self._eviction is not None:
            self._eviction.added(session)
        if self._total > self._shared.settings.max_sessions:
            self._make_room(session)
        if self.on_add is not None and not session.over:
            self.on_add(session)

    def find(self, identity: bytes, binding: str | None) -> EndpointSession | None:
        """Return a session to the principal it is bound to; to anybody else it does not exist."""
        session = self._open.get(identity.decode("latin-1"))
        if session is None or session.binding != binding or session.over:
            return None
        session.used = self._shared.now
        if session.unused:
            self._take_up(session)
        return session

    def _take_up(self, session: EndpointSession) -> None:
        """Count a session no longer among those nobody has used."""
        session.unused = False
        if self._eviction is not None:
            self._eviction.taken_up(session)

    def _make_room(self, newest: EndpointSession) -> None:
        """End sessions until there are no more than there may be, or the newest is the only one."""
        if self._eviction is None:
            self._eviction = Eviction(self._open, self._active)
        while self._total > self._shared.settings.max_sessions and len(self._open) > 1:
            self.end(self._eviction.choose(newest, self._shared.now))

    def end(self, session: EndpointSession, *, deleted: bool = False, moves: bool = False) -> None:
        """End a session, perhaps because its client deletes it: what runs is cancelled, and nothing of it is kept.

        Of one that moves, what was said is kept for its next owner.
        """
        if self._ended is not None and not moves:
            self._ended(session)
        self._records.pop(session.id, None)
        self._suspended.pop(session.id, None)
        if self._open.pop(session.id, None) is not None:
            self._total -= session.size
            if self._eviction is not None:
                self._eviction.ended(session)
        tell_lost(session.link, session.standing, None)
        session.end(deleted=deleted, moves=moves)
        self._shared.undelivered.forget(session.standing)

    def record(self, session: EndpointSession, replay: Sequence[bytes]) -> MovedSession:
        """Return what another process needs to go on with a session, with the messages to replay there."""
        return structs.replace(self._records[session.id], replay=list(replay))

    def suspend(self, session: EndpointSession) -> None:
        """Serve a session no more until it is certain that no other node does."""
        if self._open.get(session.id) is session:
            self._suspended[session.id] = session
            session.over = True

    def resume(self, session: EndpointSession) -> None:
        """Serve a session again that was suspended."""
        if self._suspended.pop(session.id, None) is not None:
            session.over = False

    def adopt(self, record: MovedSession) -> EndpointSession | None:
        """Go on with a session that another process began.

        Return None where its handshake cannot be made again, or there is no room for it.
        """
        if record.id in self._open or not record.introduction:
            return None
        origin = Origin(EVERYONE.carrier, record.address, NO_HEADERS, record.principal)
        link = self._link(origin)
        session = EndpointSession(record.id, link, record.binding, self._shared)
        session.generation = record.generation
        session.owner = record.principal or record.address
        link.channel_opened(session.standing)
        channel = ReplayChannel()
        for frame in (record.introduction, *record.replay):
            link.frame_received(frame, channel, origin)
        if not channel.greeted:
            link.channel_lost(session.standing, None)
            return None
        session.polls = channel.polls
        self.add(session, record.introduction, origin)
        if session.over:
            return None
        return session

    def end_all(self) -> None:
        """End every session; those that other nodes can go on with are theirs."""
        for session in self:
            self.end(session, moves=self._ended is not None)

    def sweep(self, now: float) -> None:
        """End the sessions that are idle for too long or too old; one in which a call runs is neither."""
        if now < self._next_look:
            return
        settings = self._shared.settings
        idle = now - settings.session_idle_timeout
        old = now - settings.session_lifetime
        over = []
        for each in self._open.values():
            if each.used < idle or each.started < old:
                over.append(each)
        self._next_look = now
        if not over:
            idlest = min(map(_used, self._open.values()), default=now)
            oldest = min(map(_started, self._open.values()), default=now)
            self._next_look = min(idlest + settings.session_idle_timeout, oldest + settings.session_lifetime)
        for session in over:
            lasting = session.started >= old or not session.ages_while_read
            if self._busy(session.link) or (lasting and _is_read(session)):
                session.used = now
                continue
            session.used = session.last_active
            if session.used < idle or session.started < old:
                self.end(session)

    def _active(self, session: EndpointSession) -> bool:
        return self._busy(session.link) or _is_read(session)


def _is_read(session: EndpointSession) -> bool:
    return any(stream.attached for stream in session.streams)
