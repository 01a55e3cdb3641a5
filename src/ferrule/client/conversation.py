"""A client's side of one conversation: open it, ask in it, answer what the server asks back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ferrule.client.answering import Answering
from ferrule.client.opening import FallBack, Opened, Opening
from ferrule.errors import (
    CapabilityNotSupported,
    ChildFailed,
    InitializeFailed,
    InvalidAnswer,
    LinkLost,
    NotConnected,
    TooManyRounds,
    VersionMismatch,
)
from ferrule.protocol.call import Awaited, Note, Peer
from ferrule.protocol.capabilities import server_offers
from ferrule.protocol.era import Eras
from ferrule.protocol.handshake import Handshake
from ferrule.protocol.session import Phase
from ferrule.runtime.asking import LinkOptions
from ferrule.runtime.dispatch import Dispatcher
from ferrule.runtime.link import Link
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.methods import METHODS, Method
from ferrule.schema.rounds import COMPLETE, INPUT_REQUIRED, InputRequired
from ferrule.supervision.scope import Scope
from ferrule.transports.contract import Transport
from ferrule.wire.channel import Origin

logger = logging.getLogger("ferrule.client")

Progress = Callable[[float, float | None, str | None], Any]
Heard = Callable[[Note], None]

ANSWERED = {name: row for name, row in METHODS.items() if row.by_client or name == "ping"}

_read_round = msgspec.json.Decoder(InputRequired).decode


class Asking(Struct, frozen=True):
    """How one request is asked."""

    timeout: float | None = None
    limit: float | None = None
    on_progress: Progress | None = None
    meta: dict[str, Any] | None = None


class Allowed(Struct, frozen=True):
    """A method this server may be asked, and whether it may answer by asking back."""

    may_ask: bool


class Conversation:
    """One client and one server, from the opening to the end."""

    def __init__(
        self,
        transport: Transport,
        opening: Opening,
        answering: Answering,
        heard: Heard,
        *,
        options: LinkOptions,
        max_rounds: int = 10,
        strict: bool = True,
    ) -> None:
        self.transport = transport
        self.opening = opening
        self.answering = answering
        self.max_rounds = max_rounds
        self.strict = strict
        self.link: Link | None = None
        self.opened: Opened | None = None
        self._allowed: dict[str, Allowed] = {}
        self._options = options
        self._heard = heard
        self._era = Handshake()
        self._on_lost: Callable[[Exception | None], None] | None = None

    # -- opening and closing

    async def open(self) -> None:
        """Reach the server and settle the era."""
        try:
            await self._connect()
            self.opened = await self._settle()
        except BaseException as error:
            await self.close()
            if isinstance(error, LinkLost):
                raise _unreached(error) from error
            raise

    async def _settle(self) -> Opened:
        if self.opening.probes:
            assert self.link is not None
            try:
                return await self.opening.discover(self.link)
            except FallBack as verdict:
                if not self.opening.falls_back:
                    raise VersionMismatch("the server does not speak the stateless protocol") from None
                if verdict.respawn or self.link.closed:
                    await self._connect()
        assert self.link is not None
        return await self.opening.initialize(self.link, self._era)

    async def _connect(self) -> None:
        dispatcher = Dispatcher(self.answering.handlers(), self.answering.instant(), {}, other_notes=self._heard)
        link = Link(
            Eras(self._era, self._era),
            ANSWERED,
            dispatcher,
            Origin("client"),
            options=self._options,
            on_closed=self._lost,
        )
        self.link = link
        await self.transport.connect(link)

    def _lost(self, link: Link, error: Exception | None) -> None:
        if link is self.link and self._on_lost is not None:
            self._on_lost(error)

    def on_lost(self, handler: Callable[[Exception | None], None]) -> None:
        """Call a function when the link ends."""
        self._on_lost = handler

    async def close(self, grace: float = 2.0) -> None:
        """End the conversation and release everything it held."""
        link = self.link
        if link is not None:
            link.close()
            if link.channel is not None:
                link.channel.close("the client is done")
        await self.transport.close(grace)
        if link is not None:
            await link.scope.close()

    # -- facts

    @property
    def scope(self) -> Scope:
        """Where this conversation's tasks live."""
        return self.live().scope

    def live(self) -> Link:
        """Give the link, if it is open."""
        if self.link is None:
            raise NotConnected("the client is not connected: use `async with Client(...)` or `await client.connect()`")
        if self.link.closed:
            if self.link.session.phase is Phase.CLOSED:
                raise NotConnected("the client was closed")
            raise LinkLost(f"the link was lost: {self.link.error}") from self.link.error
        return self.link

    @property
    def peer(self) -> Peer | None:
        """The server as it declared itself."""
        return None if self.link is None else self.link.session.peer

    @property
    def stateless(self) -> bool:
        """Whether the stateless era was settled on."""
        return self.opened is not None and self.opened.stateless

    # -- asking

    async def ask(self, method: str, params: dict[str, Any], how: Asking) -> Raw:
        """Ask the server and give its complete result, going through as many rounds of input as it needs."""
        allowed = self._allowed.get(method)
        if allowed is None:
            allowed = self._allow(method)
        awaited = self.start(method, params, how)
        try:
            raw: Raw = await awaited.waiter
        except asyncio.CancelledError:
            self.abandon(awaited)
            raise
        if allowed.may_ask and b'"input_required"' in bytes(raw):
            return await self._rounds(method, params, how, raw)
        return raw

    def abandon(self, awaited: Awaited) -> None:
        """Stop waiting for an answer nobody wants any more."""
        if self.link is not None and not self.link.closed:
            self.link.abandon(awaited, "the caller does not want the answer any more")

    def _allow(self, method: str) -> Allowed:
        """Decide once whether this server may be asked this, and whether it may ask back."""
        row = METHODS.get(method)
        if row is not None:
            self._require(row)
        allowed = Allowed(row is not None and row.may_ask and self.stateless)
        if self.opened is not None:
            self._allowed[method] = allowed
        return allowed

    def _require(self, row: Method) -> None:
        """Say no at once to what the server never offered, and to what its era does not have."""
        peer = self.live().session.peer
        if peer is None or not self.strict:
            return
        known = row.stateless if self.stateless else row.handshake and row.name not in peer.revision.absent
        if not known:
            raise CapabilityNotSupported(row.name, f"{row.name} does not exist in the protocol of {peer.version}")
        if isinstance(peer.capabilities, ServerCapabilities) and not server_offers(peer.capabilities, row.capability):
            raise CapabilityNotSupported(row.capability)

    def start(self, method: str, params: dict[str, Any], how: Asking) -> Awaited:
        """Send a request and give its entry, whose waiter will hold the result."""
        link, opened = self.link, self.opened
        if link is None or link.closed:
            link = self.live()
        if opened is None:
            raise NotConnected("the conversation is not open yet")
        stamp, meta, progress = opened.introduction.stamp, how.meta, how.on_progress
        if progress is None:
            return link.start(method, stamp(params, None, meta), None, how.timeout, how.limit)
        told = _progress_told(progress, link.scope)
        return link.start(method, lambda token: stamp(params, token, meta), None, how.timeout, how.limit, told)

    async def _rounds(self, method: str, params: dict[str, Any], how: Asking, raw: Raw) -> Raw:
        for _ in range(self.max_rounds):
            asked = _input_required(raw)
            if asked is None:
                return raw
            again = dict(params)
            if asked.input_requests:
                again["inputResponses"] = await self._answers(asked)
            if asked.request_state is not None:
                again["requestState"] = asked.request_state
            raw = await self._again(method, again, how)
        if _input_required(raw) is None:
            return raw
        raise TooManyRounds(f"{method}: the server asked for input more than {self.max_rounds} times")

    async def _again(self, method: str, params: dict[str, Any], how: Asking) -> Raw:
        awaited = self.start(method, params, how)
        try:
            return await awaited.waiter  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self.abandon(awaited)
            raise

    async def _answers(self, asked: InputRequired) -> dict[str, Any]:
        requests = asked.input_requests or {}
        answers = (self.answering.answer(request.method, request.params) for request in requests.values())
        return dict(zip(requests, await asyncio.gather(*answers), strict=True))


def _input_required(raw: Raw) -> InputRequired | None:
    try:
        asked = _read_round(raw)
    except msgspec.DecodeError as reason:
        raise InvalidAnswer(f"the server's request for input is malformed: {reason}") from None
    if asked.result_type in (None, COMPLETE):
        return None
    if asked.result_type != INPUT_REQUIRED:
        raise InvalidAnswer(f"the server answered with an unknown kind of result: {asked.result_type!r}")
    return asked


def _progress_told(progress: Progress, scope: Scope) -> Progress:
    def tell(done: float, total: float | None, message: str | None) -> None:
        value = progress(done, total, message)
        if asyncio.iscoroutine(value):
            scope.spawn(value)

    return tell


def _unreached(error: LinkLost) -> Exception:
    """One sentence on why a server could not be reached."""
    cause = error.__cause__
    if isinstance(cause, ChildFailed):
        return cause
    return InitializeFailed(f"the server ended the link before the conversation was open: {cause or error}")
