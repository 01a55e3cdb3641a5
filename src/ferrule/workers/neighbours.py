"""Requests of sessions that another worker has: the connection is handed over, or the request is forwarded.

Rule 1: the id of a session begins with the slot of its worker.
Rule 2: a connection is handed over with all that was read of it: from then on its client speaks to the right worker
without a detour. Where that cannot be (TLS, HTTP/2, an application around us), or where a connection wanders from
worker to worker because somebody in between mixes sessions on it, each request is forwarded.
Rule 3: so is each that has shown a proof of possession, which counts once over all workers. A forwarded request is
judged where it came in, with the certificate of its connection and its proof; the worker that answers it is told who
sent it.
Rule 4: a worker that takes the place of another does not know all its sessions at first. Who asks for one that is not
there yet waits until all were given.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

import msgspec
from msgspec import Struct

from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.identity.principal import Principal
from ferrule.transports.http.cluster.frames import BEGIN, CUT, FINISH, GONE, PART, REQUEST, WHOLE, read_answer
from ferrule.transports.http.cluster.remote_responder import RemoteResponder
from ferrule.transports.http.endpoint.sessions import MovedSession
from ferrule.transports.http.heads import TEXT_HEAD
from ferrule.transports.http.message import HttpRequest, Responder, Transfer, Transferable
from ferrule.transports.sockets.accept import AcceptedSocket
from ferrule.workers.mesh import Mesh
from ferrule.workers.pipe import CONNECTION, GIVEN, NOTICE, SESSION, Frame, Pipe
from ferrule.workers.questions import Answer, Questions
from ferrule.workers.reports import Reports

SLOTS = "0123456789abcdefghijklmnopqrstuv"
"""How a slot is written in an id: so there are at most 32 workers."""
MARK = "."
"""Stands behind the slot, so that an id from a time without workers is nobody's."""
MAX_FORWARDED = 1000
"""How many requests may wait for other workers at once."""
MOST_FORWARDED_BYTES = 16 * 1024 * 1024
"""Bytes of the bodies of those that wait for a session of ours. While more than this waits for another worker, no more
requests go there; a larger one goes alone. Over `pipe.MAX_UNSENT` the pipe that all share would be cut."""
MOST_BACKLOG = 4 * 1024 * 1024
"""Bytes a client may lag behind the answer of another worker before it is cut."""
OWNER_GONE = b"Bad gateway: the worker that has this session is gone; initialize again\n"
GIVING_TIME = 5.0
"""How many seconds a request waits for its session, at most."""
ASK_LIMIT = 2.0
"""How many seconds another worker may take to answer what a client waits for."""
TOO_MANY = b"Unavailable: too many requests wait for other workers\n"


def slot_of(identity: str) -> int | None:
    """Return the slot of the worker that made an id; None where none did."""
    if identity[1:2] != MARK or identity[0] not in SLOTS:
        return None
    return SLOTS.index(identity[0])


class Forwarded(Struct, frozen=True):
    """A request as it goes to another worker."""

    method: str
    path: str
    query: str
    headers: dict[bytes, bytes]
    body: bytes
    address: str
    secure: bool
    http: str = "1.1"
    identity: bytes | None = None
    """Who sent it, as was found out where it came in: its certificate and its proof of possession are of use there
    only. None where that cannot be written down: then it is found out anew."""
    recheck_at: float = math.inf


class Given(Struct, frozen=True):
    """What goes along with a connection that is handed over."""

    received: bytes
    transfers: int


LeaveTo = Callable[[Callable[[Transfer], None], Callable[[MovedSession], None]], Awaitable[None]]
"""Leaves all connections and sessions: `Http.leave_to`."""

_encode = msgspec.msgpack.Encoder().encode
_read_request = msgspec.msgpack.Decoder(Forwarded).decode
_read_record = msgspec.msgpack.Decoder(MovedSession).decode
_read_given = msgspec.msgpack.Decoder(Given).decode
_read_identity = msgspec.msgpack.Decoder(Principal | None).decode


def _written(identity: Principal | None) -> bytes | None:
    """Return who sent a request, for another worker; None for claims that only this process can hold."""
    try:
        return _encode(identity)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _is_proven(request: HttpRequest) -> bool:
    """Return whether a request has shown a proof that counts once: it cannot be judged again by another worker."""
    return request.identity is not None and "jkt" in request.identity.confirmation


class WorkerNeighbours:
    """The other workers, for an endpoint of this one."""

    def __init__(self, mesh: Mesh, questions: Questions, *, succeeds: bool = False) -> None:
        self._mesh = mesh
        self._questions = questions
        self._loop = asyncio.get_running_loop()
        self.reports = Reports(questions)
        """What workers report of themselves."""
        self.mark = f"{SLOTS[mesh.slot]}{MARK}"
        """How the ids begin that are made here."""
        self.handle: Callable[[HttpRequest, Responder], None] | None = None
        """What judges requests here, and answers them; None while nothing is served."""
        self.answer: Callable[[HttpRequest, Responder], None] | None = None
        """What answers requests whose senders are verified."""
        self.adopt: Callable[[AcceptedSocket, bytes, int], None] | None = None
        """What serves a connection that is handed over to us."""
        self.adopt_session: Callable[[MovedSession], object] | None = None
        """What goes on with a session whose worker ends."""
        self.on_told: Callable[[bytes], None] = _ignore
        """Called with what another worker tells all."""
        mesh.on(NOTICE, self._told)
        self._asked: dict[int, tuple[Pipe, Responder]] = {}
        """The requests we have forwarded, by their number."""
        self._last = 0
        self._early: list[tuple[HttpRequest, Responder]] = []
        """Those that ask for a session of ours that may still be given to us."""
        self._held = Account("requests that wait for their sessions", MOST_FORWARDED_BYTES, within=process.requests)
        self._awaits_sessions = succeeds
        self._answering: dict[tuple[Pipe, int], RemoteResponder] = {}
        """The requests of others that are answered here."""
        for kind, take in (
            (REQUEST, self._answer),
            (CONNECTION, self._adopt),
            (SESSION, self._take_session),
            (GIVEN, lambda pipe, frame: self._all_given()),
            (GONE, self._asker_gone),
            (WHOLE, self._whole),
            (BEGIN, self._begin),
            (PART, self._part),
            (FINISH, self._finish),
            (CUT, self._cut),
        ):
            mesh.on(kind, take)
        mesh.on_lost(self._pipe_lost)

    # -- all of us

    def tell(self, content: bytes) -> None:
        """Send something to all other workers."""
        for slot in range(self._mesh.count):
            pipe = self._mesh.to(slot)
            if pipe is not None:
                pipe.send(NOTICE, 0, content)

    def _told(self, pipe: Pipe, frame: Frame) -> None:
        self.on_told(frame.content)

    def on_question(self, topic: str, answer: Answer) -> None:
        """Answer what other workers ask about a topic."""
        self._questions.on(topic, answer)

    async def ask(self, identity: str, topic: str, content: bytes) -> bytes | None:
        """Return what the worker says that made an id; None where it says nothing, or none of the others made it."""
        slot = slot_of(identity)
        if slot is None:
            return None
        return await self._questions.ask(slot, topic, content, ASK_LIMIT)

    async def ask_all(self, topic: str, content: bytes) -> list[bytes]:
        """Return what the other workers say, those that say something in time."""
        asked = [self._questions.ask(slot, topic, content, ASK_LIMIT) for slot in range(self._mesh.count)]
        return [said for said in await asyncio.gather(*asked) if said is not None]

    def chosen(self, number: int) -> str:
        """Return how the ids begin of the worker that all choose for a number; it may be this one."""
        return f"{SLOTS[number % self._mesh.count]}{MARK}"

    # -- ours, answered by another

    def pass_on(self, identity: str, request: HttpRequest, responder: Responder) -> bool:
        """Let the worker that made an id answer a request; return False where that is none of the others."""
        slot = slot_of(identity)
        if slot == self._mesh.slot:
            return self._hold(request, responder)
        pipe = None if slot is None else self._mesh.to(slot)
        if pipe is None:
            return False
        if _is_proven(request) or not self._hand_over(pipe, request, responder):
            self._forward(pipe, request, responder)
        return True

    def _hold(self, request: HttpRequest, responder: Responder) -> bool:
        """Let a request wait for its session, where that may still come."""
        if not self._awaits_sessions:
            return False
        if len(self._early) >= MAX_FORWARDED or not self._held.take(len(request.body)):
            responder.reply(503, TEXT_HEAD, TOO_MANY)
            return True
        if not self._early:
            self._loop.call_later(GIVING_TIME, self._all_given)
        self._early.append((request, responder))
        return True

    def _all_given(self) -> None:
        """Answer those that waited for a session: it is there, or does not come."""
        self._awaits_sessions = False
        early = self._early
        self._early = []
        for request, responder in early:
            self._held.give(len(request.body))
            # They were judged before they had to wait.
            answer = self.answer or self.handle
            if answer is not None and not responder.gone:
                answer(request, responder)

    def _hand_over(self, pipe: Pipe, request: HttpRequest, responder: Responder) -> bool:
        # Python takes fifty microseconds to compare an object with a protocol.
        if not hasattr(responder, "transfer"):
            return False
        transfer = cast("Transferable", responder).transfer(request.body)
        if transfer is None:
            return False
        given = Given(transfer.received, transfer.transfers)
        # After the end of our half, which comes in the next turn: woken before, the other worker may take the core for
        # itself, and we go on later with cold caches.
        self._loop.call_soon(pipe.send, CONNECTION, 0, _encode(given), transfer.descriptor)
        return True

    def _forward(self, pipe: Pipe, request: HttpRequest, responder: Responder) -> None:
        is_full = pipe.backlog > 0 and pipe.backlog + len(request.body) > MOST_FORWARDED_BYTES
        if is_full or len(self._asked) >= MAX_FORWARDED:
            responder.reply(503, TEXT_HEAD, TOO_MANY)
            return
        self._last = (self._last + 1) % 2**32
        number = self._last
        self._asked[number] = (pipe, responder)
        sent = Forwarded(
            request.method,
            request.path,
            request.query,
            request.headers,
            request.body,
            request.address,
            request.secure,
            request.http,
            _written(request.identity),
            request.recheck_at,
        )
        pipe.send(REQUEST, number, _encode(sent))

        def gone() -> None:
            if self._asked.pop(number, None) is not None:
                pipe.send(GONE, number)

        responder.watch(gone)

    def _whole(self, pipe: Pipe, frame: Frame) -> None:
        found = self._asked.pop(frame.exchange, None)
        if found is not None:
            _, responder = found
            answer = read_answer(frame.content)
            responder.reply(answer.status, answer.head, answer.body)

    def _begin(self, pipe: Pipe, frame: Frame) -> None:
        found = self._asked.get(frame.exchange)
        if found is not None:
            _, responder = found
            answer = read_answer(frame.content)
            responder.begin(answer.status, answer.head, answer.body)

    def _part(self, pipe: Pipe, frame: Frame) -> None:
        found = self._asked.get(frame.exchange)
        if found is None:
            return
        _, responder = found
        responder.write(frame.content)
        if responder.backlog > MOST_BACKLOG:
            # The worker that answers sees only that we take everything.
            del self._asked[frame.exchange]
            responder.abort()
            pipe.send(GONE, frame.exchange)

    def _finish(self, pipe: Pipe, frame: Frame) -> None:
        found = self._asked.pop(frame.exchange, None)
        if found is not None:
            _, responder = found
            responder.finish()

    def _cut(self, pipe: Pipe, frame: Frame) -> None:
        found = self._asked.pop(frame.exchange, None)
        if found is not None:
            _, responder = found
            responder.abort()

    # -- the end of this worker

    async def leave(self, leave_to: LeaveTo) -> None:
        """Hand what is served here to the worker that takes our place, if there is one."""
        pipe = self._mesh.successor()
        if pipe is None:
            return

        def give(transfer: Transfer) -> None:
            # It did not wander: it stays in its place.
            pipe.send(CONNECTION, 0, _encode(Given(transfer.received, 0)), transfer.descriptor)

        def give_session(record: MovedSession) -> None:
            pipe.send(SESSION, 0, _encode(record))

        with suppress(TimeoutError):
            async with asyncio.timeout(GIVING_TIME):
                await leave_to(give, give_session)
        pipe.send(GIVEN, 0)

    def _take_session(self, pipe: Pipe, frame: Frame) -> None:
        if self.adopt_session is not None:
            self.adopt_session(_read_record(frame.content))

    # -- others', answered here

    def _adopt(self, pipe: Pipe, frame: Frame) -> None:
        if frame.connected is None:
            return
        if self.adopt is None:
            frame.connected.close()
        else:
            given = _read_given(frame.content)
            self.adopt(frame.connected, given.received, given.transfers)

    def _answer(self, pipe: Pipe, frame: Frame) -> None:
        said = _read_request(frame.content)
        key = (pipe, frame.exchange)
        responder = RemoteResponder(pipe, frame.exchange, lambda: self._answering.pop(key, None))
        if self.handle is None:
            responder.reply(502, TEXT_HEAD, OWNER_GONE)
            return
        self._answering[key] = responder
        request = HttpRequest(said.method, said.path, said.query, said.headers, said.body, said.address, said.secure)
        request.http = said.http
        answer = self.handle
        if said.identity is not None and self.answer is not None:
            request.identity = _read_identity(said.identity)
            request.recheck_at = said.recheck_at
            answer = self.answer
        try:
            answer(request, responder)
        except Exception:
            responder.abort()
            raise

    def _asker_gone(self, pipe: Pipe, frame: Frame) -> None:
        responder = self._answering.pop((pipe, frame.exchange), None)
        if responder is not None:
            responder.lose()

    def _pipe_lost(self, pipe: Pipe) -> None:
        for number, (used, responder) in list(self._asked.items()):
            if used is pipe:
                del self._asked[number]
                with suppress(RuntimeError):  # it has begun, and is cut
                    responder.reply(502, TEXT_HEAD, OWNER_GONE)
                    continue
                responder.abort()
        for key, remote in list(self._answering.items()):
            if key[0] is pipe:
                self._answering.pop(key, None)
                remote.lose()


def _ignore(content: bytes) -> None:
    """Nobody wants to know."""
