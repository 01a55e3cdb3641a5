"""A client's side of one conversation: ask in it, and answer what the server asks back until it has its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct, structs

from ferrule.budgets.bounds import MAX_QUESTIONS
from ferrule.client.era.contract import Params
from ferrule.client.features.answers import AskedOn, QuestionHandlers
from ferrule.client.features.progress import ProgressHandler, progress_told
from ferrule.client.features.tool_facts import HandlingRules, without_tools
from ferrule.client.link.link import ClientLink
from ferrule.client.link.negotiation import Negotiation
from ferrule.errors import (
    AlreadyInitialized,
    CallFailed,
    CapabilityNotSupported,
    FerruleError,
    HeaderMismatch,
    InvalidAnswer,
    LinkLost,
    NotConnected,
    PeerError,
    Refusal,
    TooManyRounds,
)
from ferrule.protocol.call import Awaited
from ferrule.protocol.capabilities import server_offers
from ferrule.runtime.dispatch import NoteHandler
from ferrule.runtime.requests import LinkOptions
from ferrule.schema.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from ferrule.schema.methods import METHODS, Method
from ferrule.schema.rounds import COMPLETE, INPUT_REQUIRED, InputRequired
from ferrule.schema.tasks import TASK
from ferrule.schema.tools import ToolCall
from ferrule.supervision.scope import Scope
from ferrule.transports.contract import Transport
from ferrule.wire.channel import REPEATABLE, Handling
from ferrule.wire.messages import Id

if TYPE_CHECKING:
    from ferrule.telemetry.observer import Observers


MAX_FRESH_PAGES = 50
"""How many pages of tools are read to find out which headers a call lacks."""


class Cursor(Struct, rename="camel"):
    """Of a page, where the next one begins."""

    next_cursor: str | None = None


_read_cursor = msgspec.json.Decoder(Cursor).decode
_read_round = msgspec.json.Decoder(InputRequired).decode


def input_required(raw: Raw) -> InputRequired | None:
    """Return what a result asks for, None when it is complete or a task; raises InvalidAnswer for any other."""
    try:
        asked = _read_round(raw)
    except msgspec.DecodeError as reason:
        raise InvalidAnswer(f"the server's request for input is malformed: {reason}") from None
    if asked.result_type in (None, COMPLETE, TASK):
        return None
    if asked.result_type != INPUT_REQUIRED:
        raise InvalidAnswer(f"the server answered with an unknown kind of result: {asked.result_type!r}")
    if asked.input_requests is not None and len(asked.input_requests) > MAX_QUESTIONS:
        raise InvalidAnswer(f"the server asks more than {MAX_QUESTIONS} questions at once")
    if not asked.input_requests and asked.request_state is None:
        raise InvalidAnswer("the server's request for input does not say which")
    return asked


async def answers_to(
    asked: InputRequired, answer: Callable[..., Coroutine[Any, Any, Any]], scope: Scope, method: str
) -> dict[str, Any]:
    """Answer all questions of a round side by side; the first failure ends the others."""
    requests = asked.input_requests or {}
    tasks = [scope.spawn(answer(each.method, each.params)) for each in requests.values()]
    try:
        return dict(zip(requests, await asyncio.gather(*tasks), strict=True))
    except Refusal as refusal:
        raise InvalidAnswer(f"{method}: the server's request for input cannot be answered: {refusal}") from None
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if caller is None or caller.cancelling():
            raise
        # Not the caller was cancelled but those who answered for it: their owner has ended.
        raise NotConnected(f"{method}: the client was closed while the server's question was being answered") from None
    finally:
        for task in tasks:
            task.cancel()


Resume = Callable[[CallFailed, str, Params, "RequestOptions"], Awaitable[tuple[Raw, bool]]]

EVERYTHING = ServerCapabilities(
    tools=ListCapability(), resources=ResourcesCapability(), prompts=ListCapability(), completions={}, logging={}
)
"""A server that offers all; what a revision trims from it is nothing a server of that revision can declare."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""How long to leave alone a server that sheds load: twice as long each time, up to the longest."""


class RequestOptions(Struct, frozen=True):
    """How one request is asked."""

    timeout: float | None = None
    limit: float | None = None
    on_progress: ProgressHandler | None = None
    meta: dict[str, Any] | None = None
    caller: object = None
    """What the question of a server on this request is known by: see `AskedOn`."""
    tasks: bool | None = None
    """Whether this request says that it may be answered with a task; None for what the client says always."""


class Allowed(Struct, frozen=True):
    """A method this server may be asked, and whether it may answer by asking back."""

    may_ask: bool


class Conversation(ClientLink):
    """One client and one server: what may be asked, how it is asked, and the rounds that lead to an answer."""

    def __init__(
        self,
        transport: Transport,
        negotiation: Negotiation,
        answering: QuestionHandlers,
        heard: NoteHandler,
        rules: HandlingRules,
        *,
        options: LinkOptions,
        max_rounds: int = 10,
        strict: bool = True,
        observers: Observers | None = None,
    ) -> None:
        super().__init__(transport, negotiation, answering, heard, options=options, observers=observers)
        self._rules = rules
        self.max_rounds = max_rounds
        self.strict = strict
        self._allowed: dict[str, Allowed] = {}
        self.lasting: Scope | None = None
        """Where input is gathered that the next conversation can still use; None: it ends with this one."""
        self.resume: Resume | None = None
        """How a round is asked that was lost with this conversation; None: it is lost for good."""

    # -- asking

    async def ask(self, method: str, params: Params, how: RequestOptions) -> Raw:
        """Ask the server and give its complete result, going through as many rounds of input as it needs."""
        return (await self.ask_in_rounds(method, params, how))[0]

    async def ask_in_rounds(self, method: str, params: Params, how: RequestOptions) -> tuple[Raw, bool]:
        """Ask as `ask` does. Return besides whether the first round was the last."""
        if method not in self._allowed:
            self.allow(method)
        raw, request_id = await self._once(method, params, how)
        if method == "tools/list" and self.mirrors:
            raw = self._learned(raw)
        final = await self.completed(method, params, how, raw, request_id)
        return final, final is raw

    async def completed(
        self, method: str, params: Params, how: RequestOptions, raw: Raw, request_id: Id | None = None
    ) -> Raw:
        """Return the complete result a first answer leads to: that answer itself, unless it asks for input."""
        allowed = self._allowed.get(method)
        if allowed is not None and allowed.may_ask and b'"input_required"' in bytes(raw):
            return await self._rounds(method, params, how, raw, request_id)
        return raw

    def handling(self, requests: Iterable[tuple[str, Mapping[str, object]]]) -> Handling | None:
        """Return how several requests may be handled that are sent as one message."""
        if all(self._rules.repeatable(method, params) for method, params in requests):
            return REPEATABLE
        return None

    def abandon(self, awaited: Awaited) -> None:
        """Stop waiting for an answer nobody wants any more."""
        if self.link is not None and not self.link.closed:
            self.link.abandon(awaited, "the caller does not want the answer any more")

    def allow(self, method: str) -> Allowed:
        """Decide once whether this server may be asked this, and whether it may ask back."""
        row = METHODS.get(method)
        if row is not None:
            self._require(row)
        allowed = Allowed(row is not None and self.era.may_ask(row))
        if self.opened is not None:
            self._allowed[method] = allowed
        return allowed

    def _require(self, row: Method) -> None:
        """Refuse at once what the server never offered, and what its era does not have."""
        peer = self.live().session.peer
        if peer is None or self.opened is None or not self.strict:
            return
        if not self.era.has(row, peer.revision):
            raise CapabilityNotSupported(row.name, f"{row.name} does not exist in the protocol of {peer.version}")
        if row.name == "initialize":
            raise AlreadyInitialized("the handshake has been made already")
        self.require(row.capability)

    def require(self, capability: str) -> None:
        """Refuse at once what the server never declared, unless its revision has no word for it."""
        peer = self.live().session.peer
        if peer is None or self.opened is None or not self.strict:
            return
        if not isinstance(peer.capabilities, ServerCapabilities):
            return
        name = capability.partition(".")[0]
        declarable = not name or getattr(peer.revision.trim(EVERYTHING), name) is not None
        if declarable and not server_offers(peer.capabilities, capability):
            raise CapabilityNotSupported(capability)

    def start(self, method: str, params: Params, how: RequestOptions) -> Awaited:
        """Send a request and give its entry, whose waiter will hold the result."""
        link = self.link
        if link is None or link.closed or self.closing:
            link = self.live()
        if self.opened is None:
            raise NotConnected("the conversation is not open yet")
        stamp = self.era.introduced(how.tasks).stamp
        meta = how.meta
        progress = how.on_progress
        handling = self._rules.handling(method, params)
        subject = _subject(params)
        if progress is None:
            said = stamp(params, None, meta)
            return link.start(method, said, None, how.timeout, how.limit, None, handling, subject, how.caller)
        told = progress_told(progress, link.scope)
        return link.start(
            method,
            lambda token: stamp(params, token, meta),
            None,
            how.timeout,
            how.limit,
            told,
            handling,
            subject,
            how.caller,
        )

    def call_tool(self, name: str, arguments: Mapping[str, object], how: RequestOptions) -> Awaited:
        """Send a call of a tool as `start` does; one that says nothing unusual takes the shortest path."""
        if "tools/call" not in self._allowed:
            self.allow("tools/call")
            if self.opened is None:
                return self.start("tools/call", {"name": name, "arguments": arguments}, how)
        if how.on_progress is not None or how.meta is not None:
            return self.start("tools/call", {"name": name, "arguments": arguments}, how)
        link = self.link
        if link is None or link.closed or self.closing:
            link = self.live()
        params = ToolCall(name, arguments, self.era.introduction.plain)
        handling = self._rules.of_tools.get(name)
        return link.start("tools/call", params, None, how.timeout, how.limit, None, handling, name)

    def listen(self, wanted: Params, begun: Callable[[Id], None]) -> Awaited:
        """Open a subscription; its id is told before it is sent, since the server may acknowledge it at once."""
        link = self.live()
        tasks = None
        if "taskIds" in wanted:
            tasks = True
        stamp = self.era.introduced(tasks).stamp

        def stamped(request_id: Id) -> Any:
            begun(request_id)
            return stamp({"notifications": wanted})

        return link.start("subscriptions/listen", stamped)

    async def _rounds(self, method: str, params: Params, how: RequestOptions, raw: Raw, request_id: Id | None) -> Raw:
        pause = FIRST_PAUSE
        for number in range(2, self.max_rounds + 2):
            asked = input_required(raw)
            if asked is None:
                return raw
            again = dict(params)
            if asked.input_requests:
                asked_on = AskedOn(request_id, method, _subject(params), how.caller)
                answer = partial(self.answering.answer_on, asked_on)
                again["inputResponses"] = await answers_to(asked, answer, self.lasting or self.scope, method)
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            if asked.request_state is not None:
                again["requestState"] = asked.request_state
            try:
                raw, request_id = await self._once(method, again, how, number)
            except (LinkLost, NotConnected) as loss:
                if self.resume is None:
                    raise
                return (await self.resume(loss, method, again, how))[0]
        if input_required(raw) is None:
            return raw
        raise TooManyRounds(f"{method}: the server asked for input more than {self.max_rounds} times")

    async def _once(self, method: str, params: Params, how: RequestOptions, number: int = 1) -> tuple[Raw, Id]:
        """Ask in a round of a call, wait for the first answer, and return it with the id of the request."""
        if self.link is not None and self.link.congested:
            how = structs.replace(how, timeout=await self.link.make_room(method, how.timeout))
        awaited = self.start(method, params, how)
        if number > 1 and awaited.observed is not None:
            awaited.observed.round = number
        try:
            return await awaited.waiter, awaited.id
        except asyncio.CancelledError:
            self.abandon(awaited)
            raise
        except PeerError as refusal:
            if not await self.lists_afresh(method, refusal, how.timeout):
                raise
        return await self.last(method, params, how), awaited.id

    async def last(self, method: str, params: Params, how: RequestOptions) -> Raw:
        """Ask without another try: an error that the server answers with is raised."""
        awaited = self.start(method, params, how)
        try:
            return await awaited.waiter  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self.abandon(awaited)
            raise

    # -- what headers mirror of tools (HTTP)

    @property
    def mirrors(self) -> bool:
        """Whether headers repeat what a request says."""
        return self.link is not None and self.link.channel is not None and self.link.channel.traits.mirrors

    def _learned(self, raw: Raw) -> Raw:
        """Note from a list of tools what their calls mirror. Return it without those that cannot be called."""
        invalid = self._rules.learn(raw)
        if not invalid or not self.era.mirrors_arguments:
            return raw
        return without_tools(raw, frozenset(invalid))

    async def lists_afresh(self, method: str, refusal: PeerError, timeout: float | None) -> bool:
        """Return whether a call was refused for its headers and the tools have been listed anew: call it again then."""
        if refusal.code != HeaderMismatch.code or method != "tools/call":
            return False
        if not self.mirrors or not self.era.mirrors_arguments:
            return False
        cursor: str | None = None
        try:
            for _ in range(MAX_FRESH_PAGES):
                params = {}
                if cursor is not None:
                    params["cursor"] = cursor
                raw = await self.last("tools/list", params, RequestOptions(timeout))
                self._rules.learn(raw)
                cursor = _read_cursor(raw).next_cursor
                if cursor is None:
                    break
        except (FerruleError, msgspec.DecodeError):
            return False
        return True


def _subject(params: Mapping[str, Any]) -> str | None:
    """Return the tool, prompt or resource a request is about."""
    return params.get("name") or params.get("uri")
