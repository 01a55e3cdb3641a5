"""The client: one method a feature."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec
from msgspec import Raw, structs

from ferrule.budgets.collector import decode_long
from ferrule.client.features.answers import AnswerHandler, Answering, root
from ferrule.client.features.batch import Batch
from ferrule.client.features.cache import Cache
from ferrule.client.features.pages import given
from ferrule.client.features.progress import ProgressHandler
from ferrule.client.features.skills import SkillRequests
from ferrule.client.features.subscription import Changes, Listening, covers
from ferrule.client.features.tasks import ProgressRelay
from ferrule.client.features.tool_calls import TaskChoice, ToolRequests
from ferrule.client.features.tool_facts import ToolFacts
from ferrule.client.link.connection import ClientConnection
from ferrule.client.link.conversation import Conversation, RequestOptions
from ferrule.client.link.inbox import Deliver, Inbox
from ferrule.client.link.keeper import Keeper
from ferrule.client.link.replay import LOST
from ferrule.client.notifications import Phases
from ferrule.client.settings import read_settings, require_level
from ferrule.errors import (
    Cancelled,
    PeerError,
)
from ferrule.schema.completion import Completion, CompletionContext, PromptReference, Reference, ResourceReference
from ferrule.schema.methods import METHODS
from ferrule.schema.notices import RESOURCE_UPDATED, ROOTS_CHANGED
from ferrule.schema.prompts import GetPromptResult, Prompt
from ferrule.schema.resources import Resource, ResourceTemplate
from ferrule.schema.roots import Root
from ferrule.schema.rounds import COMPLETE
from ferrule.schema.tools import CallToolResult
from ferrule.wire.messages import Notification

if TYPE_CHECKING:
    from ferrule.client.keywords import ClientKeywords


class Debounce:
    """Lets the last of several questions about one field go on, and ends those before it."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Future[None]] = {}

    async def settle(self, field: Hashable, pause: float) -> None:
        """Wait until nobody asked about a field for a while; raises Cancelled once somebody asks again."""
        earlier = self._waiting.get(field)
        if earlier is not None and not earlier.done():
            earlier.set_result(None)
        mine = self._waiting[field] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(mine, pause)
        except TimeoutError:
            return
        finally:
            if self._waiting.get(field) is mine:
                del self._waiting[field]
        raise Cancelled("a later question about the same argument took the place of this one")


logger = logging.getLogger("ferrule.client")

T = TypeVar("T")

FINAL = (None, COMPLETE)
"""The kinds of result that end a call; any other is looked at twice."""

_read_call_result: Callable[[Raw], CallToolResult] = METHODS["tools/call"].decode_result


class Client(ToolRequests, ClientConnection, SkillRequests):
    """Reaches one server and uses what it offers."""

    def __init__(
        self,
        target: Any,
        *,
        sampling: AnswerHandler | None = None,
        elicitation: AnswerHandler | None = None,
        url_elicitation: AnswerHandler | None = None,
        roots: Iterable[Any] | Callable[[], Any] | None = None,
        **options: Unpack[ClientKeywords],
    ) -> None:
        settings = self.settings = read_settings(options)
        self.target = target
        self.answering = Answering(
            sampling,
            elicitation,
            url_elicitation,
            roots,
            sampling_tools=settings.sampling_tools,
            sampling_context=settings.sampling_context,
            extensions=settings.declared_extensions,
            rate=settings.question_rate,
            tasks=settings.kept_questions,
        )
        self._observers = settings.observers
        self.cache = Cache()
        self.notices = Inbox()
        self._conversation: Conversation | None = None
        self._reconnecting = Keeper(self._reopen, self._give_up)
        self._listening = Listening(self._talk, self._ready, self._rescued)
        self._phases = Phases()
        self._debounce = Debounce()
        self._level: str | None = None
        self._tools = ToolFacts()
        self.followed = {}
        self._watchers: dict[str, list[Deliver]] = {}
        self._usual = self._how(settings.tool_timeout)

    # -- tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = True,
        task: TaskChoice = "auto",
    ) -> CallToolResult:
        """Call a tool; raises ToolError when it failed, unless `raise_on_error` is off.

        A call that becomes a task is followed to its end; `task` wants one, refuses one, or says how long to keep it.
        """
        how = self._usual
        if timeout is not None or on_progress is not None or meta is not None:
            how = self._how(given(timeout, self.settings.tool_timeout), on_progress, meta)
        if task != "auto" or name in self._tools.only_as_task:
            return await self._call_as_task(
                name, arguments or {}, how, choice=task, timeout=timeout, raise_on_error=raise_on_error
            )
        conversation = self._conversation or self._talk()
        link = conversation.link
        if link is not None and link.congested:
            how = structs.replace(how, timeout=await link.make_room("tools/call", how.timeout))
        try:
            awaited = conversation.call_tool(name, arguments or {}, how)
            raw: Raw = await awaited.waiter
        except asyncio.CancelledError:
            conversation.abandon(awaited)
            raise
        except LOST as error:
            raw, _ = await self._again(error, "tools/call", {"name": name, "arguments": arguments or {}}, how)
            conversation = self._talk()
        except PeerError as refusal:
            if not await self._demands_task(name, refusal):
                raise
            return await self._call_as_task(
                name, arguments or {}, how, choice=True, timeout=timeout, raise_on_error=raise_on_error
            )
        try:
            result = decode_long(_read_call_result, raw, len(raw))
            final = result.result_type in FINAL
        except (msgspec.DecodeError, RecursionError):
            final = False
        if not final:
            params = {"name": name, "arguments": arguments or {}}
            raw = await conversation.completed("tools/call", params, how, raw)
            created = self._created(name, raw, ProgressRelay(on_progress)) if self._takes_tasks else None
            result = self._read("tools/call", raw) if created is None else await self._own_result(created, timeout)
        if result.is_error or name in self._tools.output_checks:
            if not result.is_error and self._tools.fits(name, result.structured_content, memoryview(raw).nbytes):
                return result
            return await self.judged(name, result, raise_on_error)
        return result

    # -- resources

    async def list_resources(self, *, timeout: float | None = None) -> list[Resource]:
        """Return all resources, from all pages."""
        return await self._listed(lambda: self.iter_resources(timeout=timeout))

    def iter_resources(self, *, timeout: float | None = None) -> AsyncIterator[Resource]:
        """Return the resources one after another, page by page."""
        return self._pages("resources/list", "resources", timeout)

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[ResourceTemplate]:
        """Return all templates, from all pages."""
        return await self._listed(lambda: self.iter_resource_templates(timeout=timeout))

    def iter_resource_templates(self, *, timeout: float | None = None) -> AsyncIterator[ResourceTemplate]:
        """Return the templates one after another, page by page."""
        return self._pages("resources/templates/list", "resource_templates", timeout)

    def subscribe(self, uri: str) -> Changes:
        """Hear of a resource's changes: `async with client.subscribe(uri) as changes: async for uri in changes: …`."""
        return Changes(self._listening, str(uri))

    async def subscribe_resource(self, uri: str, callback: Callable[[str], Any] | None = None) -> None:
        """Hear of a resource's changes until `unsubscribe_resource`; the callback gets the URI."""
        await self._ready()
        await self._listening.want(uri)
        if callback is not None:
            notify = callback
            watcher = self.notices.on(RESOURCE_UPDATED, lambda p: notify(p["uri"]) if covers(uri, p["uri"]) else None)
            self._watchers.setdefault(uri, []).append(watcher)

    async def unsubscribe_resource(self, uri: str) -> None:
        """Hear of a resource's changes no more."""
        for watcher in self._watchers.pop(uri, ()):
            self.notices.off(RESOURCE_UPDATED, watcher)
        await self._listening.unwant(uri)

    # -- prompts and completion

    async def list_prompts(self, *, timeout: float | None = None) -> list[Prompt]:
        """Return all prompts, from all pages."""
        return await self._listed(lambda: self.iter_prompts(timeout=timeout))

    def iter_prompts(self, *, timeout: float | None = None) -> AsyncIterator[Prompt]:
        """Return the prompts one after another, page by page."""
        return self._pages("prompts/list", "prompts", timeout)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Get a prompt, filled in."""
        params = {"name": name, "arguments": arguments or {}}
        raw = await self._ask("prompts/get", params, self._plain(timeout))
        return self._read("prompts/get", raw)  # type: ignore[no-any-return]

    async def complete(
        self,
        ref: Reference | Mapping[str, Any] | str,
        argument: Mapping[str, str],
        *,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
        debounce: float = 0.0,
    ) -> Completion:
        """Return suggestions for an argument of a prompt (by name) or a variable of a template (by URI).

        With `debounce` the server is asked once so many seconds passed without a later call for the same argument,
        which makes the earlier ones end with Cancelled: call it at every key that is pressed.
        """
        if debounce > 0:
            await self._debounce.settle((str(ref), argument.get("name")), debounce)
        trim = (await self._present(given(timeout, self.settings.request_timeout))).trim
        params: dict[str, Any] = {"ref": trim(_reference(ref)), "argument": dict(argument)}
        if context:
            known = trim(CompletionContext(arguments=dict(context)))
        else:
            known = None
        if known is not None:
            params["context"] = known
        raw = await self._ask("completion/complete", params, self._plain(timeout))
        return self._read("completion/complete", raw).completion  # type: ignore[no-any-return]

    # -- the rest of the protocol

    async def ping(self, timeout: float | None = None) -> float:
        """Return how long the server takes to answer; in the stateless era it is asked to discover itself."""
        patience = given(timeout, self.settings.ping_timeout)
        if (await self._present(patience)).stateless:
            method = "server/discover"
        else:
            method = "ping"
        started = time.perf_counter()
        await self._ask(method, {}, RequestOptions(patience))
        return time.perf_counter() - started

    async def set_log_level(self, level: str) -> None:
        """Choose the least level of log messages the server sends; in the stateless era each request says it."""
        require_level(level)
        conversation = await self._present(self.settings.request_timeout)
        conversation.require("logging")
        if conversation.stateless:
            conversation.want_level(level)
        else:
            await self._ask("logging/setLevel", {"level": level}, self._plain())
        self._level = level

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Any:
        """Send any request and give its result as plain values."""
        members = dict(params or {})
        meta = members.pop("_meta", None)
        how = self._how(given(timeout, self.settings.request_timeout), meta=meta)
        if method == "tools/call" or method.startswith("tasks/"):
            # Who calls by hand wants the answer; who asks about tasks by hand knows them.
            how = structs.replace(how, tasks=method != "tools/call")
        result = msgspec.json.decode(await self._ask(method, members, how))
        if isinstance(result, dict):
            self._require_complete(method, result.get("resultType"))
        return result

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send any notification."""
        channel = (await self._present(self.settings.request_timeout)).live().channel
        assert channel is not None
        channel.send(Notification(method, dict(params)) if params else Notification(method))
        await channel.wait_writable()

    async def cancel(self, request_id: int | str, reason: str = "") -> None:
        """Stop waiting for one of our requests and tell the server."""
        link = self._talk().live()
        awaited = link.session.awaited.get(request_id)
        if awaited is not None:
            link.abandon(awaited, reason)
            if not awaited.waiter.done():
                awaited.waiter.set_exception(Cancelled(reason or f"{awaited.method} was cancelled"))

    def batch(self, *, timeout: float | None = None) -> Batch:
        """Send several requests as one array: `async with client.batch() as b: tools = b.request("tools/list")`."""
        patience = given(timeout, self.settings.request_timeout)
        return Batch(self._talk(), patience, allowed=self.settings.allow_batch, present=self._present)

    async def send_batch(self, requests: Iterable[tuple[str, Mapping[str, Any] | None]]) -> list[Any]:
        """Send requests as one array; gives each one's result or exception."""
        async with self.batch() as batch:
            futures = []
            for method, params in requests:
                futures.append(batch.request(method, dict(params or {})))
        return list(await asyncio.gather(*futures, return_exceptions=True))

    async def add_root(self, given: Any, name: str | None = None) -> None:
        """Work in one more folder, and tell the server."""
        added = root(given)
        self.answering.keep_roots([*self.roots, Root(uri=added.uri, name=name or added.name, meta=added.meta)])
        await self._tell_roots()

    async def remove_root(self, given: Any) -> None:
        """Work in a folder no more, and tell the server."""
        gone = root(given).uri
        self.answering.keep_roots([kept for kept in self.roots if kept.uri != gone])
        await self._tell_roots()

    async def _tell_roots(self) -> None:
        conversation = self._conversation
        if conversation is None or conversation.stateless or conversation.over:
            return
        if conversation.opening.capabilities.roots is not None:
            await self.notify(ROOTS_CHANGED)

    # -- answering

    def set_sampling_handler(self, handler: AnswerHandler | None) -> None:
        """Answer sampling requests from now on; what was declared at the opening stays declared."""
        self.answering.sampling = handler

    def remove_sampling_handler(self) -> None:
        """Answer sampling requests no more."""
        self.answering.sampling = None


def _reference(ref: Reference | Mapping[str, Any] | str) -> Reference:
    if isinstance(ref, str):
        return ResourceReference(ref) if "://" in ref or "{" in ref else PromptReference(ref)
    return msgspec.convert(ref, Reference) if isinstance(ref, Mapping) else ref
