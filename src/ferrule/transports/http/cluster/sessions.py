"""ClusterSessions: which sessions this node owns, and how a request finds the node that has its session.

Rule 1: a session has one owner, who keeps it in memory. A request that comes to another node is forwarded to the owner
while that lives; when it is dead, or has left the session, the node at which the client knocks claims it.
Rule 2: the store is read only where a client changed node. What changes is written behind.
Rule 3: a node that others may count as dead serves no session until it knows which are still its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Protocol

from msgspec import Struct, structs

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.errors import Busy, StoreUnavailable
from ferrule.stores.contracts import SessionRecord
from ferrule.stores.stores import Stores
from ferrule.supervision.scope import Scope
from ferrule.transports.http.cluster.forwarder import Forwarder, Outcome
from ferrule.transports.http.endpoint.caller import binding_of
from ferrule.transports.http.endpoint.cluster import ClusterEndpoint
from ferrule.transports.http.endpoint.sessions import EndpointSession, MovedSession
from ferrule.transports.http.heads import RETRY_AFTER, refuse
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.wire.channel import Receiver

logger = logging.getLogger("ferrule.http")

WRITE_AFTER = 0.02
"""Seconds in which changes of sessions are collected before they are written."""
TOUCH_EVERY = 30.0
"""Seconds between two notes that a session is in use."""
TOGETHER = 128
"""How many sessions are written at once."""
MOST_SOUGHT = 2000
"""How many requests may look for their sessions at once; those that another node answers are not counted."""
MOST_SOUGHT_BYTES = 16 * 1024 * 1024
"""Bytes of the bodies of all of them, those that another node answers too."""
MOST_ROUTES = 50_000
"""Of how many sessions of other nodes it is remembered where they are."""
PATIENCE = 15.0
"""Seconds a request waits for a session whose owner is between life and death: longer than a lease."""
PAUSE = 0.05
LONGEST_PAUSE = 1.0
UNAVAILABLE = StoreUnavailable.text
CUT_OFF = "Unavailable: this node cannot make sure that the session is still its own"
REVISION = "handshake"


class LinkMemory(Protocol):
    """What the server remembers of a session, as far as another node must know it."""

    def replay_frames(self, link: Any) -> Sequence[bytes]:
        """Return the messages since the handshake that still hold, for another node to replay."""

    def written_values(self, link: Any) -> bytes:
        """Return the values of `ctx.state`, encoded; empty where there are none."""

    def restore_session(self, link: Any, key: str, values: bytes | None) -> None:
        """Let a link continue the session with this key; with the values of `ctx.state` where another node began it."""


class OwnedSession(Struct, eq=False):
    """A session of this node."""

    record: SessionRecord
    endpoint: ClusterEndpoint
    session: EndpointSession
    kept: bool = False
    """Whether the store has it."""
    touched: float = 0.0
    """When its use was last noted, by the clock of the endpoint."""


class Sought(Struct, eq=False):
    """A request that looks for its session."""

    endpoint: ClusterEndpoint
    identity: str
    request: HttpRequest
    responder: Responder
    not_found: Callable[[], None]
    held: int
    """Bytes of its body that are on the account of those that are sought."""


class ClusterSessions:
    """The sessions of a cluster, as one of its nodes sees them."""

    def __init__(self, stores: Stores, memory: LinkMemory) -> None:
        self._stores = stores
        self._store = stores.sessions
        self._memory = memory
        self.node = stores.bus.node
        self.events = stores.events
        self.held: Callable[[], bool] = lambda: True
        """Returns whether this node has a lease."""
        self.forwarder = Forwarder(stores, self._endpoint_of)
        self._owned: dict[str, OwnedSession] = {}
        self._by_link: dict[Receiver, str] = {}
        self._ending: set[str] = set()
        """Sessions that are over, and whose record is about to be."""
        self._changed: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._routes: dict[str, str] = {}
        """Where sessions of other nodes were last, the one that was added last at the end."""
        self._adopting: dict[str, asyncio.Task[bool | None]] = {}
        self._sought = 0
        self._bodies = Account("requests whose sessions are elsewhere", MOST_SOUGHT_BYTES, within=process.requests)
        self._leaving: set[int] = set()
        self._has_unkept = False
        self.cut_off = False
        """Whether other nodes may have claimed the sessions of this one."""
        self.is_uncertain = False
        """Whether the store was away, and may not know sessions that other nodes have."""
        self._scope = Scope(asyncio.get_running_loop())

    # -- life

    def open(self) -> None:
        """Begin."""
        self.forwarder.open()
        self._scope.spawn(self._write_behind())
        self._scope.spawn(self._touch())

    async def close(self) -> None:
        """End; all endpoints have left."""
        await self.forwarder.close()
        await self._scope.close()

    def join(self, endpoint: ClusterEndpoint) -> None:
        """Answer requests of other nodes at an endpoint from now on."""
        self._leaving.discard(id(endpoint))

    async def leave(self, endpoint: ClusterEndpoint) -> Sequence[EndpointSession]:
        """Leave the sessions of an endpoint to the other nodes. Return those that could not be left."""
        self._leaving.add(id(endpoint))
        left = [owned for owned in self._owned.values() if owned.endpoint is endpoint]
        for owned in left:
            self._forget(owned)
        stay: list[EndpointSession] = []
        for position in range(0, len(left), TOGETHER):
            together = left[position : position + TOGETHER]
            released = await asyncio.gather(*[self._release(owned) for owned in together])
            for owned, is_released in zip(together, released, strict=True):
                if not is_released:
                    stay.append(owned.session)
        return stay

    async def _release(self, owned: OwnedSession) -> bool:
        try:
            record = self._described(owned)
            if await self._store.save(record):
                await self._store.release(record)
            elif not owned.kept:
                return False  # the store was away when it began here, and may not know it
        except Busy:
            logger.info("a session could not be left to others: the store is away")
            return False
        except Exception:
            logger.exception("a session could not be left to others")
            return False
        return True

    def _forget(self, owned: OwnedSession) -> None:
        self._owned.pop(owned.record.id, None)
        self._by_link.pop(owned.session.link, None)
        self._changed.pop(owned.record.id, None)

    def owns(self, identity: str) -> bool:
        """Return whether this node has a session."""
        return identity in self._owned

    # -- what is kept of sessions

    def keep(self, endpoint: ClusterEndpoint, session: EndpointSession) -> asyncio.Future[None]:
        """Let other nodes know of a new session; done when they do, or when that has to wait."""
        moved = endpoint.sessions.record(session, ())
        record = SessionRecord(
            id=moved.id,
            revision=REVISION,
            introduction=moved.introduction,
            principal=moved.binding or "",
            caller=moved.principal,
            address=moved.address,
            owner=self.node,
            epoch=1,
        )
        owned = self._own(record, endpoint, session)
        self._memory.restore_session(session.link, _key(record.id), None)
        return self._scope.spawn(self._create(owned))

    def _own(self, record: SessionRecord, endpoint: ClusterEndpoint, session: EndpointSession) -> OwnedSession:
        owned = OwnedSession(record, endpoint, session, touched=session.used)
        self._owned[record.id] = owned
        self._by_link[session.link] = record.id
        self._routes.pop(record.id, None)
        return owned

    async def _create(self, owned: OwnedSession) -> None:
        record = self._described(owned)
        try:
            created = await self._store.create(record)
        except Busy:
            self._has_unkept = True  # kept when the store is back
            return
        if created is not None:
            owned.record = structs.replace(record, epoch=created.epoch)
            owned.kept = True
            if id(owned.endpoint) in self._leaving and self._owned.get(record.id) is owned:
                self._forget(owned)
                await self._release(owned)
        elif self._owned.get(record.id) is owned:
            self._let_go(owned)

    def _described(self, owned: OwnedSession) -> SessionRecord:
        """Return the record of a session as it is now."""
        link = owned.session.link
        said = tuple(self._memory.replay_frames(link))
        state = self._memory.written_values(link)
        return structs.replace(owned.record, said=said, initialized=bool(said), state=state)

    def changed(self, link: Receiver) -> None:
        """Called when a client has said something that another node would have to know."""
        identity = self._by_link.get(link)
        if identity is not None:
            self._changed[identity] = None
            self._wake.set()

    async def _write_behind(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(WRITE_AFTER)
            self._wake.clear()
            identities = list(self._changed)[:TOGETHER]
            for identity in identities:
                del self._changed[identity]
            await asyncio.gather(*[self._write(identity) for identity in identities])
            if self._changed:
                self._wake.set()

    async def _write(self, identity: str) -> None:
        owned = self._owned.get(identity)
        if owned is None or not owned.kept:
            return
        try:
            await self._save(owned)
        except Busy:
            owned.kept = False
            self._has_unkept = True  # written when the store is back
        except Exception:
            # One session that cannot be written must not keep the others from it.
            logger.exception("what changed in a session could not be written")

    async def _save(self, owned: OwnedSession) -> None:
        record = self._described(owned)
        is_ours = await self._store.save(record)
        if self._owned.get(record.id) is not owned:
            return
        if is_ours:
            owned.record = record
        else:
            await self._make_sure(owned)

    async def _touch(self) -> None:
        """Note once in a while which sessions are in use, and write what could not be written."""
        while True:
            await asyncio.sleep(TOUCH_EVERY)
            for owned in list(self._owned.values()):
                if owned.session.used > owned.touched and owned.kept:
                    owned.touched = owned.session.used
                    self._store.touch(owned.record)
                    await asyncio.sleep(0)

    def ended(self, session: EndpointSession) -> None:
        """Called when a session is over."""
        owned = self._owned.get(session.id)
        if owned is not None and owned.session is session:
            self._forget(owned)
            self._ending.add(session.id)
            self._scope.spawn(self._delete(session.id))

    async def _delete(self, identity: str) -> None:
        try:
            await self._store.delete(identity)
        except Busy:
            logger.info("a session that is over is not forgotten by the store before its time: the store is away")
        finally:
            self._ending.discard(identity)

    # -- losing and finding the store

    @property
    def unkept(self) -> bool:
        """Whether there are sessions that the store does not have as they are."""
        return self._has_unkept

    def suspend(self) -> None:
        """Serve no session from now on: others may have claimed them."""
        self.cut_off = True
        for owned in self._owned.values():
            owned.endpoint.sessions.suspend(owned.session)

    async def make_sure(self) -> None:
        """Find out which sessions are still ours, and go on with those."""
        self._has_unkept = False
        owned = list(self._owned.values())
        for position in range(0, len(owned), TOGETHER):
            await asyncio.gather(*[self._make_sure(each) for each in owned[position : position + TOGETHER]])
        self.cut_off = False

    async def _make_sure(self, owned: OwnedSession) -> None:
        """Keep a session that nobody else has; let go of one that another node owns. Raises Busy."""
        record = self._described(owned)
        if not await self._store.save(record):
            found = await self._store.get(record.id)
            if found is None:
                created = await self._store.create(structs.replace(record, epoch=1))
                if created is not None:
                    record = structs.replace(record, epoch=created.epoch)
            elif (found.owner, found.epoch) == (record.owner, record.epoch):
                await self._store.save(record)
            elif self._owned.get(record.id) is owned:
                self._let_go(owned)
                return
        owned.record = record
        owned.kept = True
        owned.endpoint.sessions.resume(owned.session)

    def _let_go(self, owned: OwnedSession) -> None:
        """Another node has the session."""
        self._forget(owned)
        owned.endpoint.sessions.end(owned.session, moves=True)

    # -- finding the node that has a session

    def _endpoint_of(self, identity: str) -> ClusterEndpoint | None:
        owned = self._owned.get(identity)
        if owned is None or self.cut_off:
            return None
        return owned.endpoint

    def look_for(
        self,
        endpoint: ClusterEndpoint,
        identity: str,
        request: HttpRequest,
        responder: Responder,
        not_found: Callable[[], None],
    ) -> None:
        """Answer a request of a session that is not here, wherever that is."""
        if identity in self._ending:
            not_found()
        elif self.cut_off and identity in self._owned:
            refuse(responder, 503, CUT_OFF, RETRY_AFTER)
        elif self._sought >= MOST_SOUGHT or not self._bodies.take(len(request.body)):
            refuse(responder, 503, "Unavailable: too many requests look for their sessions", RETRY_AFTER)
        else:
            # Counted here: many may come before the first of them is looked for.
            self._sought += 1
            sought = Sought(endpoint, identity, request, responder, not_found, len(request.body))
            self._scope.spawn(self._look(sought)).add_done_callback(lambda _: self._looked(sought))

    def _looked(self, sought: Sought) -> None:
        self._sought -= 1
        self._give_back(sought)

    def _give_back(self, sought: Sought) -> None:
        """Take a body from the account: nobody holds it any more, or it is on that of whoever works on it."""
        self._bodies.give(sought.held)
        sought.held = 0

    async def _look(self, sought: Sought) -> None:
        responder = sought.responder
        try:
            await self._seek(sought)
        except Busy:
            if not responder.gone:
                refuse(responder, 503, UNAVAILABLE, RETRY_AFTER, code=StoreUnavailable.code)
        except asyncio.CancelledError:
            if not responder.gone:
                refuse(responder, 503, "Unavailable: the server is stopping", RETRY_AFTER)
            raise

    async def _seek(self, sought: Sought) -> None:
        """Answer a request, find the node that does, or say that there is none; raises Busy."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        pause = PAUSE
        while not sought.responder.gone and not self._is_here(sought):
            owner = self._routes.get(sought.identity) or await self._owner(sought)
            if owner is None:
                sought.not_found()
                return
            if owner == self.node and sought.identity in self._owned and not self.cut_off:
                continue
            if owner != self.node and await self._is_answered_by(owner, sought):
                return
            left = until - loop.time()
            if left <= 0:
                raise StoreUnavailable("the node that has a session does not answer")
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _is_here(self, sought: Sought) -> bool:
        """Answer a request whose session came here meanwhile, is at another endpoint of this node, or is another's."""
        owned = self._owned.get(sought.identity)
        if owned is None or self.cut_off:
            return False
        if owned.record.principal == (binding_of(sought.request) or ""):
            self._give_back(sought)
            owned.endpoint.answer(sought.request, sought.responder)
        else:
            sought.not_found()
        return True

    async def _is_answered_by(self, owner: str, sought: Sought) -> bool:
        self._sought -= 1
        try:
            outcome = await self.forwarder.forward(owner, sought.identity, sought.request, sought.responder)
        finally:
            self._sought += 1
        if outcome is Outcome.ANSWERED:
            return True
        self._routes.pop(sought.identity, None)
        self._require_store()
        return False

    def _require_store(self) -> None:
        if self._stores.backend.state != "ready":
            raise StoreUnavailable("it cannot be used now")

    async def _owner(self, sought: Sought) -> str | None:
        """Return the node that has a session, which is this one from now on if nobody else has it; None for none."""
        identity = sought.identity
        record = await self._store.get(identity)
        if record is None and self.is_uncertain:
            raise StoreUnavailable("it is just back, and may not know all sessions yet")
        if record is None or record.principal != (binding_of(sought.request) or ""):
            return None
        if not record.owner or record.owner == self.node or await self._stores.nodes.find(record.owner) is None:
            adopting = self._adopting.get(identity)
            if adopting is None:
                adopting = self._adopting[identity] = self._scope.spawn(self._adopt(sought.endpoint, identity))
                adopting.add_done_callback(lambda _: self._adopting.pop(identity, None))
            adopted = await asyncio.shield(adopting)
            if adopted is None:
                return None
            if adopted:
                return self.node
            record = await self._store.get(identity)
            if record is None:
                return None
        if not self._stores.reaches_others:
            raise StoreUnavailable("the process that has a session may live, and cannot be reached")
        self._remember(identity, record.owner)
        return record.owner

    def _remember(self, identity: str, owner: str) -> None:
        self._routes[identity] = owner
        if len(self._routes) > MOST_ROUTES:
            del self._routes[next(iter(self._routes))]

    async def _adopt(self, endpoint: ClusterEndpoint, identity: str) -> bool | None:
        """Go on with a session that nobody has; return False where another node was first, None where it cannot be."""
        if not self.held() or id(endpoint) in self._leaving:
            raise StoreUnavailable("this node has no lease")
        record = await self._store.claim(identity, self.node)
        if record is None:
            return False
        moved = MovedSession(
            record.id,
            record.introduction,
            list(record.said),
            record.principal or None,
            record.caller,
            record.address,
            generation=record.epoch,
        )
        session = endpoint.sessions.adopt(moved)
        if session is None:
            await self._store.delete(identity)
            return None
        owned = self._own(record, endpoint, session)
        owned.kept = True
        self._memory.restore_session(session.link, _key(identity), record.state)
        return True


def _key(identity: str) -> str:
    """Return what stands for a session where its id must not be told."""
    return blake2b(identity.encode(), digest_size=16).hexdigest()
