"""A client's side of one conversation: open it, ask in it, answer what the server asks back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Raw, Struct, structs

from ferrule.client.answering import Answering
from ferrule.client.opening import FallBack, Opened, Opening, unreached
from ferrule.client.patience import Patience
from ferrule.client.progress import Progress, progress_told
from ferrule.client.rounds import answers_to, input_required
from ferrule.errors import (
    AlreadyInitialized,
    CallFailed,
    CapabilityNotSupported,
    InitializeFailed,
    LinkLost,
    NotConnected,
    TooManyRounds,
)
from ferrule.protocol.call import Awaited, Note, Peer
from ferrule.protocol.capabilities import server_offers
from ferrule.protocol.era import Eras
from ferrule.protocol.handshake import Handshake
from ferrule.protocol.introduction import Introduction
from ferrule.protocol.session import Phase
from ferrule.runtime.asking import LinkOptions
from ferrule.runtime.dispatch import Dispatcher
from ferrule.runtime.link import Link
from ferrule.schema.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from ferrule.schema.methods import METHODS, Method
from ferrule.schema.tasks import TASKS_EXTENSION
from ferrule.schema.tools import ToolCall
from ferrule.supervision.scope import Scope
from ferrule.transports.contract import Transport
from ferrule.wire.channel import Origin
from ferrule.wire.messages import Id

logger = logging.getLogger("ferrule.client")

Heard = Callable[[Note], None]

Resume = Callable[[CallFailed, str, dict[str, Any], "Asking"], Awaitable[tuple[Raw, bool]]]

ANSWERED = {name: row for name, row in METHODS.items() if row.by_client or name == "ping"}

EVERYTHING = ServerCapabilities(
    tools=ListCapability(), resources=ResourcesCapability(), prompts=ListCapability(), completions={}, logging={}
)
"""A server that offers all; what a revision trims from it is nothing a server of that revision can declare."""

GRACE = 2.0
"""How many seconds the other end may take to let go."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""How long to leave alone a server that sheds load: twice as long each time, up to the longest."""


class Asking(Struct, frozen=True):
    """How one request is asked."""

    timeout: float | None = None
    limit: float | None = None
    on_progress: Progress | None = None
    meta: dict[str, Any] | None = None
    tasks: bool | None = None
    """Whether this request says that it may be answered with a task; None for what the client says always."""


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
        self.closing = False
        self._allowed: dict[str, Allowed] = {}
        self._options = options
        self._heard = heard
        self._era = Handshake()
        self._on_change: Callable[[], None] = lambda: None
        self._level = opening.log_level
        self._introductions: dict[bool, Introduction] = {}
        self._ended = "the client was closed"
        self.lasting: Scope | None = None
        """Where input is gathered that the next conversation can still use; None: it ends with this one."""
        self.resume: Resume | None = None
        """How a round is asked that was lost with this conversation; None: it is lost for good."""

    # -- opening and closing

    async def open(self) -> None:
        """Reach the server and settle the era."""
        try:
            await self._connect()
            self.opened = await self._settle()
        except BaseException as error:
            reason = unreached(error) if isinstance(error, LinkLost) else error
            if self.closing and isinstance(error, Exception):
                # Whatever it was that failed, it failed because its end had come.
                reason = NotConnected("the client was closed while it was connecting")
            self.closing = self.closing or not isinstance(reason, Exception)
            await self._end(reason if isinstance(reason, Exception) else None)
            if reason is not error:
                raise reason from None
            raise

    async def _settle(self) -> Opened:
        assert self.link is not None
        if self.opening.probes:
            try:
                return await self.opening.discover(self.link, self.opening.probe_timeout)
            except FallBack as verdict:
                if not self.opening.falls_back:
                    raise verdict.reason from verdict.reason.__cause__
                if verdict.respawn or self.link.closed:
                    await self._connect()
        self.link.session.enter(Phase.INITIALIZING)
        self._on_change()
        try:
            return await self.opening.initialize(self.link, self._era)
        except InitializeFailed as failure:
            if not self.opening.is_stateless_after_all(failure):
                raise
        try:
            return await self.opening.discover(self.link, self.opening.init_timeout)
        except FallBack as verdict:
            raise verdict.reason from verdict.reason.__cause__

    async def _connect(self) -> None:
        self._require_wanted()
        patience = Patience()
        questions = {name: patience.around(handler) for name, handler in self.answering.handlers().items()}
        dispatcher = Dispatcher(questions, self.answering.instant(), {}, other_notes=self._heard)
        link = Link(
            Eras(self._era, self._era),
            ANSWERED,
            dispatcher,
            Origin("client"),
            options=self._options,
            on_closed=self._lost,
        )
        self.link = patience.link = link
        await self.transport.connect(link)
        self._require_wanted()

    def _require_wanted(self) -> None:
        if self.closing:
            raise NotConnected(self._ended)

    def _lost(self, link: Link, error: Exception | None) -> None:
        if link is self.link and self.opened is not None:
            self._on_change()

    def on_change(self, handler: Callable[[], None]) -> None:
        """Call a function when the phase changes by itself: the handshake begins, or the link is lost."""
        self._on_change = handler

    async def close(self, drain: float = 0.0) -> None:
        """Ask nothing more, wait a while for what was asked, then release everything."""
        self.closing = True
        link = self.link
        if link is not None and not link.closed and self.opened is not None and drain > 0:
            waiting = [awaited.waiter for awaited in link.session.awaited.values() if _will_be_answered(awaited)]
            if waiting:
                await asyncio.wait(waiting, timeout=drain)
        await self._end(None)

    async def release(self, grace: float) -> None:
        """Let go of what a lost conversation still holds, within a time that whoever is at the other end may take."""
        await self._end(None, grace)

    def lose(self, error: Exception) -> None:
        """Take a link for lost whose server is silent."""
        link = self.link
        if link is not None and not link.closed:
            link.close(error)
            if link.channel is not None:
                link.channel.close("the server is silent")

    def give_up(self, sentence: str) -> None:
        """Settle that this lost conversation is the last one."""
        self.closing, self._ended = True, sentence
        if self.link is not None:
            self.link.session.enter(Phase.CLOSED)

    async def _end(self, error: Exception | None, grace: float = GRACE) -> None:
        link = self.link
        if link is not None:
            if self.closing and not link.closed:
                _withdraw(link)
            link.close(error)
            if self.closing:
                link.session.enter(Phase.CLOSED)
            if link.channel is not None:
                link.channel.close("the client is done")
        await self.transport.close(grace)
        if link is not None:
            await link.scope.close()

    # -- facts

    @property
    def over(self) -> bool:
        """Whether the link is gone, by our will or not."""
        return self.link is not None and self.link.closed

    @property
    def separate(self) -> bool:
        """Whether every call has a way of its own to the server, as over HTTP: there one cannot tell of another."""
        return self.link is not None and getattr(self.link.channel, "always_answers", False)

    @property
    def phase(self) -> Phase:
        """How far the conversation is; a link that ends without our will is lost, however politely it ended."""
        if self.link is None:
            return Phase.PRE_INITIALIZATION
        return Phase.ERROR if self.link.closed and not self.closing else self.link.session.phase

    @property
    def failure(self) -> Exception:
        """Why the conversation failed."""
        error = None if self.link is None else self.link.error
        return error or LinkLost("the server closed the link")

    @property
    def scope(self) -> Scope:
        """Where this conversation's tasks live."""
        return self.live().scope

    def live(self) -> Link:
        """Give the link, if it is open."""
        if self.link is None:
            raise NotConnected("the client is not connected: use `async with Client(...)` or `await client.connect()`")
        if self.closing:
            raise NotConnected(self._ended)
        if self.link.closed:
            raise LinkLost(f"the link was lost: {self.failure}", sent=False) from self.link.error
        return self.link

    @property
    def peer(self) -> Peer | None:
        """The server as it declared itself."""
        return None if self.link is None else self.link.session.peer

    def trim(self, value: Any) -> Any:
        """Give a value the form the agreed revision knows."""
        peer = self.peer
        return value if peer is None else peer.revision.trim(value)

    @property
    def stateless(self) -> bool:
        """Whether the stateless era was settled on."""
        return self.opened is not None and self.opened.stateless

    def want_level(self, level: str) -> None:
        """Ask for log messages of this level with every request from now on (stateless era)."""
        assert self.opened is not None
        assert self.peer is not None
        introduction = self.opening.introduction(self.peer.version, level)
        self.opened = structs.replace(self.opened, introduction=introduction)
        self._level = level
        self._introductions.clear()

    def _introduction(self, opened: Opened, tasks: bool | None) -> Introduction:
        """Give how a request says who sends it; one may say for itself whether it can be answered with a task."""
        extensions = self.opening.capabilities.extensions or {}
        if tasks is None or not opened.stateless or tasks is (TASKS_EXTENSION in extensions):
            return opened.introduction
        if tasks not in self._introductions:
            assert self.peer is not None
            others = {name: settings for name, settings in extensions.items() if name != TASKS_EXTENSION}
            declared = {**others, TASKS_EXTENSION: {}} if tasks else others
            capabilities = structs.replace(self.opening.capabilities, extensions=declared or None)
            opening = structs.replace(self.opening, capabilities=capabilities)
            self._introductions[tasks] = opening.introduction(self.peer.version, self._level)
        return self._introductions[tasks]

    # -- asking

    async def ask(self, method: str, params: dict[str, Any], how: Asking) -> Raw:
        """Ask the server and give its complete result, going through as many rounds of input as it needs."""
        return (await self.ask_simply(method, params, how))[0]

    async def ask_simply(self, method: str, params: dict[str, Any], how: Asking) -> tuple[Raw, bool]:
        """Ask as `ask` does, and tell besides whether the first round was the last."""
        if method not in self._allowed:
            self.allow(method)
        raw = await self._once(method, params, how)
        final = await self.completed(method, params, how, raw)
        return final, final is raw

    async def completed(self, method: str, params: dict[str, Any], how: Asking, raw: Raw) -> Raw:
        """Give the complete result a first answer leads to: that answer itself, unless it asks for input."""
        allowed = self._allowed.get(method)
        if allowed is not None and allowed.may_ask and b'"input_required"' in bytes(raw):
            return await self._rounds(method, params, how, raw)
        return raw

    def abandon(self, awaited: Awaited) -> None:
        """Stop waiting for an answer nobody wants any more."""
        if self.link is not None and not self.link.closed:
            self.link.abandon(awaited, "the caller does not want the answer any more")

    def allow(self, method: str) -> Allowed:
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
        if row.name == "initialize":
            raise AlreadyInitialized("the handshake has been made already")
        self.require(row.capability)

    def require(self, capability: str) -> None:
        """Say no at once to what the server never declared, unless its revision has no word for it."""
        peer = self.live().session.peer
        if peer is None or not self.strict or not isinstance(peer.capabilities, ServerCapabilities):
            return
        name = capability.partition(".")[0]
        declarable = not name or getattr(peer.revision.trim(EVERYTHING), name) is not None
        if declarable and not server_offers(peer.capabilities, capability):
            raise CapabilityNotSupported(capability)

    def start(self, method: str, params: dict[str, Any], how: Asking) -> Awaited:
        """Send a request and give its entry, whose waiter will hold the result."""
        link, opened = self.link, self.opened
        if link is None or link.closed or self.closing:
            link = self.live()
        if opened is None:
            raise NotConnected("the conversation is not open yet")
        stamp, meta, progress = self._introduction(opened, how.tasks).stamp, how.meta, how.on_progress
        if progress is None:
            return link.start(method, stamp(params, None, meta), None, how.timeout, how.limit)
        told = progress_told(progress, link.scope)
        return link.start(method, lambda token: stamp(params, token, meta), None, how.timeout, how.limit, told)

    def call_tool(self, name: str, arguments: Mapping[str, Any], how: Asking) -> Awaited:
        """Send a call of a tool as `start` does; one that says nothing unusual takes a way without detours."""
        if "tools/call" not in self._allowed:
            self.allow("tools/call")
        link, opened = self.link, self.opened
        if opened is None or how.on_progress is not None or how.meta is not None:
            return self.start("tools/call", {"name": name, "arguments": arguments}, how)
        if link is None or link.closed or self.closing:
            link = self.live()
        params = ToolCall(name, arguments, opened.introduction.plain)
        return link.start("tools/call", params, None, how.timeout, how.limit)

    def listen(self, wanted: dict[str, Any], begun: Callable[[Id], None]) -> Awaited:
        """Open a subscription; its id is told before it is sent, since the server may acknowledge it at once."""
        link, opened = self.live(), self.opened
        assert opened is not None
        stamp = self._introduction(opened, True if "taskIds" in wanted else None).stamp

        def stamped(identity: Id) -> Any:
            begun(identity)
            return stamp({"notifications": wanted}, None, None)

        return link.start("subscriptions/listen", stamped)

    async def _rounds(self, method: str, params: dict[str, Any], how: Asking, raw: Raw) -> Raw:
        pause = FIRST_PAUSE
        for _ in range(self.max_rounds):
            asked = input_required(raw)
            if asked is None:
                return raw
            again = dict(params)
            if asked.input_requests:
                again["inputResponses"] = await answers_to(
                    asked, self.answering.answer, self.lasting or self.scope, method
                )
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            if asked.request_state is not None:
                again["requestState"] = asked.request_state
            try:
                raw = await self._once(method, again, how)
            except (LinkLost, NotConnected) as loss:
                if self.resume is None:
                    raise
                return (await self.resume(loss, method, again, how))[0]
        if input_required(raw) is None:
            return raw
        raise TooManyRounds(f"{method}: the server asked for input more than {self.max_rounds} times")

    async def _once(self, method: str, params: dict[str, Any], how: Asking) -> Raw:
        if self.link is not None and self.link.congested:
            how = structs.replace(how, timeout=await self.link.make_room(method, how.timeout))
        awaited = self.start(method, params, how)
        try:
            return await awaited.waiter  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self.abandon(awaited)
            raise


def _withdraw(link: Link) -> None:
    """Tell the server what it need not finish: one that ends in order would finish it first."""
    for awaited in list(link.session.awaited.values()):
        link.abandon(awaited, "the client is closing")
        if not awaited.waiter.done():
            awaited.waiter.set_exception(LinkLost("the client was closed before the answer came"))


def _will_be_answered(awaited: Awaited) -> bool:
    row = METHODS.get(awaited.method)
    return row is None or not row.standing
