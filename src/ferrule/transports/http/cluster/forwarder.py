"""Forwarder: requests that another node answers, and those of others that are answered here.

Rule 1: a request is answered once. It is tried elsewhere only where its node is dead and never said that it took it.
Rule 2: what cannot arrive any more is cut, so that a client comes back for the rest of its stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum

import msgspec

from ferrule.errors import Busy
from ferrule.stores.contracts import Notice, Subscription
from ferrule.stores.stores import Stores
from ferrule.transports.http.cluster.frames import (
    BEGIN,
    FINISH,
    GONE,
    NOT_HERE,
    PART,
    PIECE,
    REQUEST,
    TAKEN,
    WHOLE,
    ForwardedRequest,
    Frame,
    encode,
    read_answer,
    read_identity,
    read_request,
    unpack,
    write_identity,
)
from ferrule.transports.http.cluster.outbox import TOPIC, Outbox
from ferrule.transports.http.cluster.remote_responder import RemoteResponder
from ferrule.transports.http.endpoint.cluster import ClusterEndpoint
from ferrule.transports.http.heads import RETRY_AFTER, TEXT_HEAD
from ferrule.transports.http.message import HttpRequest, Responder

logger = logging.getLogger("ferrule.http")

LOOK_EVERY = 0.25
"""Seconds between two looks whether the store can be used while requests wait for other nodes."""
LOOKS_PER_LEASE = 4
"""Every so many looks, whether those nodes live."""
MOST_BACKLOG = 4 * 1024 * 1024
"""Bytes a client may lag behind an answer of another node before it is cut."""
MOST_PIECES = 128 * 1024 * 1024
"""Bytes of all that is half received from other nodes."""
MOST_OUTBOXES = 10_000
BROKEN = b"Bad gateway: the node that has this session is gone; what became of the request is unknown\n"


class Outcome(Enum):
    """What became of a request that was sent to another node."""

    ANSWERED = 1
    NOT_HERE = 2
    """The session is not there."""
    LOST = 3
    """It was not taken, and its node cannot be reached."""


class Asked:
    """A request of ours that another node answers."""

    __slots__ = ("begun", "node", "outcome", "responder", "taken")

    def __init__(self, node: str, responder: Responder) -> None:
        self.node = node
        self.responder = responder
        self.taken = self.begun = False
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: Outcome) -> None:
        """Say what became of it, once."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def fail(self) -> None:
        """Called when its node cannot be reached any more."""
        if self.begun:
            self.responder.abort()
            self.settle(Outcome.ANSWERED)
        elif self.taken:
            self.responder.reply(502, TEXT_HEAD + RETRY_AFTER, BROKEN)
            self.settle(Outcome.ANSWERED)
        else:
            self.settle(Outcome.LOST)


class Forwarder:
    """The requests between this node and others."""

    def __init__(self, stores: Stores, endpoint_of: Callable[[str], ClusterEndpoint | None]) -> None:
        self._stores = stores
        self._endpoint_of = endpoint_of
        """Returns the endpoint of this node that has a session."""
        self._outboxes: dict[str, Outbox] = {}
        self._asked: dict[int, Asked] = {}
        self._last = 0
        self._answering: dict[tuple[str, int], RemoteResponder] = {}
        self._pieces: dict[tuple[str, int], list[bytes]] = {}
        self._pieces_size = 0
        self._subscription: Subscription | None = None
        self._watch: asyncio.Task[None] | None = None
        self.forwarded = 0
        """How many requests went to other nodes."""

    def open(self) -> None:
        """Hear what other nodes say."""
        self._subscription = self._stores.bus.subscribe(TOPIC, self._heard, self._missed)

    async def close(self) -> None:
        """Say what waits to be said, and hear no more."""
        for asked in list(self._asked.values()):
            asked.fail()
        for remote in list(self._answering.values()):
            remote.abort()
        for outbox in list(self._outboxes.values()):
            await outbox.close()
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    def _outbox(self, node: str) -> Outbox:
        outbox = self._outboxes.get(node)
        if outbox is None:
            if len(self._outboxes) >= MOST_OUTBOXES:
                self._forget_idle()
            outbox = self._outboxes[node] = Outbox(self._stores.bus, node, self._unreachable)
        return outbox

    def _forget_idle(self) -> None:
        for node, outbox in list(self._outboxes.items()):
            if not outbox.backlog:
                del self._outboxes[node]

    # -- ours, answered by another

    async def forward(self, node: str, session: str, request: HttpRequest, responder: Responder) -> Outcome:
        """Let another node answer a request; returns when that is done, or cannot be."""
        self._last += 1
        number = self._last
        asked = self._asked[number] = Asked(node, responder)
        outbox = self._outbox(node)

        def gone() -> None:
            asked.settle(Outcome.ANSWERED)
            outbox.send(GONE, number)

        responder.watch(gone)
        said = ForwardedRequest(
            session,
            request.method,
            request.query,
            request.headers,
            request.body,
            request.address,
            request.secure,
            request.http,
            write_identity(request.identity),
            request.recheck_at,
        )
        outbox.send(REQUEST, number, encode(said))
        self.forwarded += 1
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._watch_nodes())
        try:
            return await asked.outcome
        finally:
            del self._asked[number]
            self._drop_pieces(node, number)

    async def _watch_nodes(self) -> None:
        """While requests wait for other nodes, notice that those are dead, or that nothing can be heard of them."""
        looks = 0
        while self._asked:
            await asyncio.sleep(LOOK_EVERY)
            looks += 1
            nodes = {asked.node for asked in self._asked.values()}
            if self._stores.backend.state != "ready":
                for node in nodes:
                    self._unreachable(node)
            elif looks % LOOKS_PER_LEASE == 0:
                for node in nodes:
                    if not await self._lives(node):
                        self._unreachable(node)
        self._watch = None

    async def _lives(self, node: str) -> bool:
        try:
            return await self._stores.nodes.find(node) is not None
        except Busy:
            return True  # nobody knows; where it lasts, the state of the store says so

    def _unreachable(self, node: str) -> None:
        for asked in list(self._asked.values()):
            if asked.node == node:
                asked.fail()
        for key, remote in list(self._answering.items()):
            if key[0] == node:
                self._answering.pop(key, None)
                remote.lose()

    def _missed(self) -> None:
        """Called when something that was said to us may be lost: nobody knows what."""
        for asked in list(self._asked.values()):
            # A request that was not taken may have been, and answered.
            asked.taken = True
            asked.fail()
        self._pieces.clear()
        self._pieces_size = 0

    # -- what is heard

    def _heard(self, notice: Notice) -> None:
        try:
            for frame in unpack(notice.body):
                self._take(notice.sender, frame)
        except Exception:
            logger.exception("failed on what another node said")

    def _take(self, sender: str, frame: Frame) -> None:
        if frame.kind == PIECE:
            self._add_piece(sender, frame)
            return
        content = self._whole(sender, frame)
        if frame.kind == REQUEST:
            self._answer(sender, frame.exchange, content)
        elif frame.kind == GONE:
            remote = self._answering.pop((sender, frame.exchange), None)
            if remote is not None:
                remote.lose()
        else:
            asked = self._asked.get(frame.exchange)
            if asked is not None and asked.node == sender and not asked.outcome.done():
                self._continue(asked, frame.kind, frame.exchange, content)

    def _add_piece(self, sender: str, frame: Frame) -> None:
        self._pieces_size += len(frame.content)
        if self._pieces_size > MOST_PIECES:
            self._missed()
            return
        self._pieces.setdefault((sender, frame.exchange), []).append(frame.content)

    def _whole(self, sender: str, frame: Frame) -> bytes:
        pieces = self._pieces.pop((sender, frame.exchange), None)
        if pieces is None:
            return frame.content
        for piece in pieces:
            self._pieces_size -= len(piece)
        return b"".join([*pieces, frame.content])

    def _drop_pieces(self, sender: str, exchange: int) -> None:
        for piece in self._pieces.pop((sender, exchange), ()):
            self._pieces_size -= len(piece)

    def _continue(self, asked: Asked, kind: int, number: int, content: bytes) -> None:
        responder = asked.responder
        if kind == TAKEN:
            asked.taken = True
        elif kind == NOT_HERE:
            asked.settle(Outcome.NOT_HERE)
        elif kind == WHOLE:
            answer = read_answer(content)
            responder.reply(answer.status, answer.head, answer.body)
            asked.settle(Outcome.ANSWERED)
        elif kind == BEGIN:
            answer = read_answer(content)
            asked.begun = True
            responder.begin(answer.status, answer.head, answer.body)
        elif kind == PART:
            responder.write(content)
            if responder.backlog > MOST_BACKLOG:
                responder.abort()
                asked.settle(Outcome.ANSWERED)
                self._outbox(asked.node).send(GONE, number)
        elif kind == FINISH:
            responder.finish()
            asked.settle(Outcome.ANSWERED)
        else:
            responder.abort()
            asked.settle(Outcome.ANSWERED)

    # -- others', answered here

    def _answer(self, sender: str, exchange: int, content: bytes) -> None:
        outbox = self._outbox(sender)
        try:
            said = read_request(content)
            identity = read_identity(said.identity)
        except (msgspec.MsgspecError, ValueError):
            logger.warning("a request of another node cannot be read: do all nodes run the same version?")
            outbox.send(NOT_HERE, exchange)
            return
        endpoint = self._endpoint_of(said.session)
        if endpoint is None:
            outbox.send(NOT_HERE, exchange)
            return
        outbox.send(TAKEN, exchange)
        key = (sender, exchange)
        remote = self._answering[key] = RemoteResponder(outbox, exchange, lambda: self._answering.pop(key, None))
        request = HttpRequest(said.method, "", said.query, said.headers, said.body, said.address, said.secure)
        request.http = said.http
        request.identity = identity
        request.recheck_at = said.recheck_at
        try:
            endpoint.answer(request, remote)
        except Exception:
            remote.abort()
            raise
