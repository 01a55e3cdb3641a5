"""The sessions of one endpoint: found by an id nobody can guess, ended when they are idle, old or too many."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from heapq import nsmallest

from ferrule.transports.http.session import HttpSession, Standing
from ferrule.transports.http.streams import Streaming
from ferrule.wire.channel import Origin, Receiver

ID_BYTES = 24
NO_HEADERS: Mapping[str, str] = {}
"""A session outlives the request that opened it; every call has the headers of its own."""

LEAST_SHARE = 64
"""How many of the idlest sessions are looked at, at least, in search of one that is not in use."""

IsBusy = Callable[[Receiver], bool]


class Open(HttpSession):
    """A session that is in the table, with the way out for what belongs to no exchange."""

    __slots__ = ("standing",)

    def __init__(self, identity: str, link: Receiver, principal: str | None, shared: Streaming) -> None:
        super().__init__(identity, link, principal, shared)
        self.standing = Standing(self)


class Sessions:
    """The sessions of one endpoint."""

    def __init__(self, link: Callable[[Origin], Receiver], busy: IsBusy, shared: Streaming) -> None:
        self._link = link
        self._busy = busy
        self._shared = shared
        self._open: dict[str, Open] = {}
        self._idlest: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Open]:
        return iter(list(self._open.values()))

    def prepare(self, origin: Origin, *, lasting: bool = True) -> Open:
        """Make a session that is not in the table yet: its handshake may still fail."""
        identity = secrets.token_urlsafe(ID_BYTES) if lasting else ""
        link = self._link(Origin(origin.carrier, origin.address, NO_HEADERS, origin.principal, lasting=lasting))
        session = Open(identity, link, origin.principal, self._shared)
        link.channel_opened(session.standing)
        return session

    def add(self, session: Open) -> None:
        """Keep a session whose handshake was made, in the place of the idlest where there are too many."""
        while len(self._open) >= self._shared.settings.max_sessions:
            self._evict()
        self._open[session.id] = session

    def find(self, identity: bytes, principal: str | None) -> Open | None:
        """Give a session to the principal that opened it, and to nobody else."""
        session = self._open.get(identity.decode("latin-1"))
        if session is None or session.principal != principal:
            return None
        session.used = self._shared.now
        return session

    def end(self, session: Open) -> None:
        """End a session: what runs in it is cancelled, and nothing of it is kept."""
        self._open.pop(session.id, None)
        session.link.channel_lost(session.standing, None)
        session.end()

    def end_all(self) -> None:
        """End every session."""
        for session in self:
            self.end(session)

    def sweep(self, now: float) -> None:
        """End the sessions that are idle for too long or too old; one in which something runs is neither."""
        settings = self._shared.settings
        idle, old = now - settings.session_idle_timeout, now - settings.session_lifetime
        over = [each for each in self._open.values() if each.used < idle or each.started < old]
        for session in over:
            if self._active(session):
                session.used = now
                continue
            session.used = session.left
            if session.used < idle or session.started < old:
                self.end(session)

    def _active(self, session: Open) -> bool:
        return self._busy(session.link) or any(stream.attached for stream in session.streams)

    def _evict(self) -> None:
        """End the idlest session, one in use only where all of the idlest are."""
        in_use: Open | None = None
        while self._idlest or in_use is None:
            if not self._idlest:
                self._note_idlest()
            used, identity = self._idlest.pop()
            session = self._open.get(identity)
            if session is None or session.used != used:
                continue
            if not self._active(session):
                self.end(session)
                return
            session.used = self._shared.now
            in_use = in_use or session
        self.end(in_use)

    def _note_idlest(self) -> None:
        """Looking for the idlest among all is dear, so a share of them is noted at once."""
        share = max(LEAST_SHARE, len(self._open) // 100)
        idlest = nsmallest(share, ((each.used, each.id) for each in self._open.values()))
        self._idlest = idlest[::-1]
