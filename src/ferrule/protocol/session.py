"""The book-keeping of one conversation: who is there, what runs, what we wait for.

Rule 1: no I/O, no clock, no tasks. Everything that happens here can be replayed.
Rule 2: a session is the same on both sides; only `_withdrawn` looks which one it is.
Rule 3: no version is known here; the eras are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ferrule.errors import (
    MAX_QUOTE,
    CapabilityOff,
    FerruleError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    Refusal,
    quoted,
)
from ferrule.protocol.call import Asker, Awaited, Call, Cancel, Era, Event, Ignored, Note, Peer, Reply, Withdrawn
from ferrule.protocol.era import Eras
from ferrule.schema.methods import Method
from ferrule.schema.model import ClientCapabilities, EmptyResult, Meta, MetaOnly, is_remembered, read_meta
from ferrule.schema.notices import CANCELLED, OLD_NAMES, CancelledParams
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.messages import ErrorObject, Failure, HttpError, Id, Message, Notification, Request, Success

MAX_ID = 2**53 - 1
"""Beyond this a JavaScript peer would round."""

MOST_OUTLASTING = 1000
"""How many requests that were answered with a task are remembered for their progress."""

_read_meta_only = msgspec.json.Decoder(MetaOnly).decode

READING_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Phase(StrEnum):
    """How far a conversation is."""

    PRE_INITIALIZATION = "pre_initialization"
    INITIALIZING = "initializing"
    INITIALIZED = "initialized"
    ERROR = "error"
    CLOSED = "closed"


NEXT_PHASES = {
    Phase.PRE_INITIALIZATION: {Phase.INITIALIZING, Phase.INITIALIZED, Phase.ERROR, Phase.CLOSED},
    Phase.INITIALIZING: {Phase.INITIALIZED, Phase.ERROR, Phase.CLOSED},
    Phase.INITIALIZED: {Phase.ERROR, Phase.CLOSED},
    Phase.ERROR: {Phase.PRE_INITIALIZATION, Phase.CLOSED},
    Phase.CLOSED: set(),
}

CONNECTION_STATES = {
    Phase.PRE_INITIALIZATION: "connecting",
    Phase.INITIALIZING: "connected",
    Phase.INITIALIZED: "ready",
    Phase.ERROR: "disconnected",
    Phase.CLOSED: "disconnected",
}


class IllegalTransition(FerruleError):
    """The conversation cannot go from its phase to the one asked for."""


class Met(Struct, frozen=True):
    """A sender of the stateless era: what it says of itself, what that means, and who it is."""

    words: Raw
    """Its `_meta` as it is written."""
    meta: Meta | None
    peer: Peer | None


NOBODY = Met(Raw(b""), None, None)
NO_METHODS: Mapping[str, Method] = {}
"""What may be asked in a session that is over, or while it seems that nothing may be."""
NONE_ADMITTED: frozenset[str] = frozenset()


def _everything(_: str) -> bool:
    return True


class Session:
    """One conversation, from either side."""

    __slots__ = (
        "admitted",
        "awaited",
        "eras",
        "handshake",
        "link",
        "met",
        "met_stateless",
        "methods",
        "next_id",
        "offers",
        "origin",
        "outlasting",
        "peer",
        "peer_ready",
        "phase",
        "running",
        "stateless",
        "withheld",
    )

    by_channel = False
    """Whether a running call is known by its channel instead of by its id: then the same id may run many times."""

    def __init__(self, eras: Eras, methods: Mapping[str, Method], origin: Origin, link: Asker) -> None:
        self.eras = eras
        self.handshake = eras.handshake
        self.stateless = eras.stateless
        self.admitted: frozenset[str] = NONE_ADMITTED
        """The methods the agreed peer may ask without further checks; empty before the handshake."""
        self.methods = methods
        self.offers: Callable[[str], bool] = _everything
        """Whether this side declares a capability: what it does not is told before what is wrong with the params."""
        self.origin = origin
        self.link = link
        self.phase = Phase.PRE_INITIALIZATION
        self.peer: Peer | None = None
        self.peer_ready = False
        self.met_stateless = False
        """Whether the last request that an era judged was one of the stateless era: `refuse` answers in its words."""
        self.met = NOBODY
        """The sender of the last request of the stateless era: the next request says the same of its own."""
        self.running: dict[Id, Call] = {}
        self.awaited: dict[Id, Awaited] = {}
        self.outlasting: dict[Id, Awaited] | None = None
        """Requests of ours that were answered with a task, whose progress is still told."""
        self.next_id = 1
        self.withheld: Mapping[str, Method] | None = None
        """What the peer may ask, while no request of its is admitted (see `withhold`)."""

    def withhold(self) -> None:
        """Admit no request for now: who answers `server/discover` is a stateless server, which may send none."""
        if self.withheld is None:
            self.withheld = self.methods
            self.methods = NO_METHODS

    def enter(self, phase: Phase) -> None:
        """Go on to another phase."""
        if phase is self.phase:
            return
        if phase not in NEXT_PHASES[self.phase]:
            raise IllegalTransition(f"a session cannot go from {self.phase} to {phase}")
        self.phase = phase
        if phase is Phase.INITIALIZING and self.withheld is not None:
            self.methods = self.withheld
            self.withheld = None

    @property
    def connection_state(self) -> str:
        """The phase in the words of a connection: disconnected, connecting, connected, ready."""
        return CONNECTION_STATES[self.phase]

    @property
    def nameless_id(self) -> UnsetType | None:
        """The id for an error whose request could not be read."""
        if self.peer is None:
            return UNSET if self.met_stateless else None
        return self.peer.revision.nameless_id

    @property
    def one_way(self) -> bool:
        """Whether only the peer answers here: the client's side of the stateless era."""
        if self.peer is None:
            return self.withheld is not None
        return not self.peer.revision.two_way

    # -- the peer speaks

    def receive(self, message: Message, channel: Channel, origin: Origin | None = None) -> Event:
        """Decide what a message means. Raises Refusal for a request that is not admitted."""
        kind = type(message)
        if kind is Request:
            return self.admit(message, channel, origin)  # type: ignore[arg-type]
        if kind is Notification:
            return self._notified(message, channel)  # type: ignore[arg-type]
        return self._answered(message)  # type: ignore[arg-type]

    def admit(self, request: Request, channel: Channel, origin: Origin | None = None) -> Call:
        """Make a call of a request, or refuse it."""
        key = request.id
        if self.by_channel:
            key = id(channel)
        if key in self.running:
            raise InvalidRequest("Invalid request: this id is in use by a running request")
        if origin is None:
            origin = self.origin
        method = request.method
        row = self.methods.get(method)
        if row is None:
            raise self._unknown(request, origin)
        raw = request.params
        decode = row.decode_params or row.params_decoder()
        try:
            params = decode(raw)
        except READING_FAILURES as reason:
            raise self._malformed(row, raw, reason, origin) from None
        words = params.meta
        if words is UNSET and method in self.admitted:
            era = self.handshake
            peer = self.peer
            meta = None
        else:
            met = self.met
            if words == met.words and row.stateless:
                era = self.stateless
                peer = met.peer
                meta = met.meta
                self.met_stateless = True
            else:
                era, peer, meta = self._settle(request, row, words, origin)
        call = self.running[key] = Call(
            request.id,
            row,
            params,
            raw,
            meta,
            era,
            peer,  # type: ignore[arg-type]
            channel,
            origin,
            self.link,
        )
        if row.may_ask and (params.request_state is not None or params.input_responses is not UNSET):
            # Whoever has made a handshake is asked while its call waits, and never calls again for it.
            call.retry = era is not self.handshake or method not in self.admitted
        return call

    def _settle(
        self, request: Request, row: Method, words: Raw | UnsetType, origin: Origin
    ) -> tuple[Era, Peer | None, Meta | None]:
        """Return the era of a request, who sent it, and what its `_meta` says; raises Refusal."""
        meta: Meta | None = None
        if words is not UNSET:
            try:
                meta = read_meta(words)
            except READING_FAILURES as reason:
                raise self._malformed(row, request.params, reason, origin) from None
        own_version = meta is not None and meta.version is not UNSET
        if request.method in self.admitted and not own_version:
            return self.handshake, self.peer, meta
        era = self.eras.era_of(meta, origin)
        peer = era.admit(self, row, meta)
        if own_version and is_remembered(words):  # type: ignore[arg-type]  # nothing long is kept
            self.met = Met(Raw(bytes(words)), meta, peer)  # type: ignore[arg-type]
        return era, peer, meta

    def agree(self, peer: Peer) -> None:
        """The handshake is made: from here on the peer and what it may ask are known."""
        self.peer = peer
        self.met_stateless = False
        self.enter(Phase.INITIALIZED)
        if not self.origin.version:
            self.admitted = self.eras.admitted(self.methods, peer.revision)

    def now_ready(self) -> None:
        """The peer may be asked from here on."""
        self.peer_ready = True
        if not self.running:
            # A dict that was used stays large, and thousands of sessions may be idle after their handshake.
            self.running = {}

    def _unknown(self, request: Request, origin: Origin) -> Refusal:
        """A method nobody knows is refused as its era asks: by number, and not before the handshake."""
        name = quoted(request.method)
        row = Method(name, MetaOnly, EmptyResult)
        try:
            meta = self._meta_of(request.params)
            self.eras.era_of(meta, origin).admit(self, row, meta)
        except Refusal as refusal:
            return refusal
        return MethodNotFound(f"Method not found: {name}", {"method": name})

    def _malformed(self, row: Method, raw: Raw, reason: Exception, origin: Origin) -> Refusal:
        """Refuse bad params, after whatever else there is to refuse the request for."""
        try:
            meta = self._meta_of(raw)
            self.eras.era_of(meta, origin).admit(self, row, meta)
        except Refusal as refusal:
            return refusal
        if not self.offers(row.capability):
            name = row.capability.partition(".")[0]
            return CapabilityOff(f"Method not found: this server offers no {name}", {"capability": name})
        details = quoted(str(reason))
        return InvalidParams(f"Invalid params: {details}", {"method": row.name, "details": details})

    def _meta_of(self, raw: Raw) -> Meta | None:
        try:
            given = _read_meta_only(raw).meta
            if given is UNSET:
                return None
            return read_meta(given)
        except READING_FAILURES as reason:
            if bytes(raw)[:1] not in (b"{", b"["):
                raise InvalidRequest("Invalid request: params must be an object") from None
            details = quoted(str(reason))
            raise InvalidParams(f"Invalid params: {details}", {"details": details}) from None

    def _notified(self, notification: Notification, channel: Channel) -> Event:
        method = OLD_NAMES.get(notification.method, notification.method)
        if method == CANCELLED:
            return self._cancelled(notification.params)
        return Note(method, notification.params, channel, self.link)

    def _cancelled(self, raw: Raw) -> Event:
        try:
            params = msgspec.json.decode(raw, type=CancelledParams)
        except READING_FAILURES as reason:
            return Ignored(f"a malformed cancellation: {quoted(str(reason))}")
        if params.request_id is UNSET:
            return Ignored("a cancellation that names no request")
        call = self.running.get(params.request_id)
        if call is None:
            return self._withdrawn(params)
        if call.method == "initialize":
            return Ignored("a cancellation of initialize")
        del self.running[call.id]
        call.cancelled = True
        call.reason = params.reason or ""
        return Cancel(call, call.reason)

    def _withdrawn(self, params: CancelledParams) -> Event:
        """Some servers say so when they give up on a request of ours; a client's late cancel is about its own."""
        if self.peer is not None and isinstance(self.peer.capabilities, ClientCapabilities):
            return Ignored(f"a cancellation of an unknown request {params.request_id!r}")
        awaited = self.awaited.pop(params.request_id, None)  # type: ignore[arg-type]
        if awaited is None:
            return Ignored(f"a cancellation of an unknown request {params.request_id!r}")
        return Withdrawn(awaited, params.reason or "the peer cancelled it")

    def _answered(self, message: Success | Failure) -> Event:
        if message.id in (None, UNSET):
            awaited = None
        else:
            awaited = self.awaited.pop(message.id, None)
        if awaited is None:
            if isinstance(message, Failure):
                detail = f": {quoted(message.error.message)}"
            else:
                detail = ""
            return Ignored(f"a response to an unknown request {message.id!r}{detail}", "warning")
        return Reply(awaited, message)

    # -- we answer

    def finish(self, call: Call, outcome: object) -> Success | Failure | None:
        """Make the reply of a call's outcome; None when the peer does not want it any more."""
        running = self.running.pop(call.id, None)
        if running is not call:
            if running is not None:
                self.running[call.id] = running
            return None
        if isinstance(outcome, Refusal):
            return reply(call, outcome)
        return Success(call.id, outcome)

    def runs(self, call: Call) -> bool:
        """Return whether a call is neither answered nor cancelled yet."""
        return self.running.get(call.id) is call

    def refuse(self, request_id: Id | UnsetType, refusal: Refusal) -> Failure:
        """Make the reply to a request that was not admitted."""
        era = self.eras.stateless if self.met_stateless else self.eras.handshake
        name = self.nameless_id if request_id is UNSET else request_id
        return refused(name, refusal, era)

    def shortened(self, failure: Failure) -> Failure:
        """Return a refusal in few words, where it repeats more of its request than a message holds."""
        request_id = failure.id
        if isinstance(request_id, str) and len(request_id) > MAX_QUOTE:
            request_id = self.nameless_id
        return Failure(request_id, ErrorObject(failure.error.code, quoted(failure.error.message)))

    # -- we ask

    def expect(
        self, method: str, waiter: object, now: float, channel: Channel | None = None, timeout: float | None = None
    ) -> Awaited:
        """Register a request of ours under a new id; its reply is waited for up to `timeout` seconds without news."""
        request_id = self.next_id
        while request_id in self.awaited:
            request_id += 1
        if request_id > MAX_ID:
            raise FerruleError("this session has used up its request ids: open a new one")
        self.next_id = request_id + 1
        deadline = None if timeout is None else now + timeout
        awaited = Awaited(request_id, method, waiter, now, channel, deadline, None, timeout)
        self.awaited[request_id] = awaited
        return awaited

    def abandon(self, request_id: Id, reason: str = "") -> Notification | None:
        """Stop waiting for a request. Return what to tell the peer, None when there is nothing to tell."""
        awaited = self.awaited.pop(request_id, None)
        if awaited is None or not awaited.cancellable:
            return None
        params: dict[str, object] = {"requestId": request_id}
        if reason:
            params["reason"] = reason
        return Notification(CANCELLED, params)

    def expired(self, now: float) -> list[Awaited]:
        """Return the requests whose time is up."""
        expired = []
        for awaited in self.awaited.values():
            if awaited.deadline is not None and awaited.deadline <= now:
                expired.append(awaited)
        return expired

    def next_deadline(self) -> float | None:
        """Return when the next request's time is up."""
        return min((a.deadline for a in self.awaited.values() if a.deadline is not None), default=None)

    def progressed(self, token: Id, progress: float, now: float) -> Awaited | None:
        """Note progress on a request of ours; None when nothing waits for it or it does not increase."""
        awaited = self.awaited.get(token)
        if awaited is None and self.outlasting is not None:
            awaited = self.outlasting.get(token)
        if awaited is None or (awaited.progressed is not None and progress <= awaited.progressed):
            return None
        awaited.progressed = progress
        if awaited.timeout is not None:
            awaited.renew_deadline(now)
        return awaited

    def outlast(self, awaited: Awaited) -> None:
        """Go on noting progress on a request that was answered with a task; the oldest of too many is forgotten."""
        if self.outlasting is None:
            self.outlasting = {}
        awaited.timeout = None
        self.outlasting[awaited.id] = awaited
        if len(self.outlasting) > MOST_OUTLASTING:
            del self.outlasting[next(iter(self.outlasting))]

    def close(self, phase: Phase = Phase.CLOSED) -> list[Awaited]:
        """End the conversation, in which nothing is admitted any more. Return whoever still waits."""
        self.methods = NO_METHODS
        self.admitted = NONE_ADMITTED
        if self.phase is not Phase.CLOSED:
            self.phase = phase
        awaited = self.awaited
        if not awaited:
            return []
        waiting = list(awaited.values())
        awaited.clear()
        return waiting


def reply(call: Call, refusal: Refusal) -> Failure:
    """Make the reply of a call that is refused."""
    return refused(call.id, call.peer.revision.trim(refusal), call.era)


def refused(request_id: Id | UnsetType | None, refusal: Refusal, era: Era) -> Failure:
    """Make the reply that refuses a request."""
    error = ErrorObject(era.code(refusal), refusal.message, era.data(refusal))
    status = era.status(refusal)
    if status is not None or refusal.headers:
        error = HttpError.of(error, status, refusal.headers)
    return Failure(request_id, error)


class SessionlessSession(Session):
    """Many conversations of one request each; a call is known by its way back, which no other call has.

    Rule: nothing one exchange says can touch another: ids are the asker's own business, and a cancellation that names
    one is not heard.
    """

    __slots__ = ()

    by_channel = True

    @property
    def nameless_id(self) -> UnsetType | None:
        """The id for an error whose request could not be read: by the revision of the link, whoever asked before."""
        if self.peer is None:
            return UNSET
        return self.peer.revision.nameless_id

    def receive(self, message: Message, channel: Channel, origin: Origin | None = None) -> Event:
        """Decide what a message means: a request is admitted, anything else is dropped."""
        if type(message) is Request:
            return self.admit(message, channel, origin)
        return Ignored("only requests have a meaning without a session")

    def finish(self, call: Call, outcome: object) -> Success | Failure | None:
        """Make the reply of a call's outcome; None when its asker is gone."""
        if self.running.pop(id(call.channel), None) is None:
            return None
        if isinstance(outcome, Refusal):
            return reply(call, outcome)
        return Success(call.id, outcome)

    def runs(self, call: Call) -> bool:
        """Return whether a call is neither answered nor cancelled yet."""
        return self.running.get(id(call.channel)) is call
