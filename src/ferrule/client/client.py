"""The client: one method a feature."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Unpack

import msgspec
from msgspec import Raw

from ferrule.client.answering import Answering, Callback, root
from ferrule.client.batch import Batch
from ferrule.client.cache import Cache
from ferrule.client.conversation import Asking, Conversation, Progress
from ferrule.client.facts import Facts
from ferrule.client.notices import Notices
from ferrule.client.opening import Opening
from ferrule.client.settings import ClientOptions, ClientSettings
from ferrule.client.subscription import FLAGS, Changes, Listening
from ferrule.client.targets import transport_for
from ferrule.errors import (
    AlreadyInitialized,
    CapabilityNotSupported,
    InvalidAnswer,
    NotConnected,
    PeerError,
    SetupError,
    ToolError,
)
from ferrule.protocol.call import Note
from ferrule.protocol.session import Phase
from ferrule.runtime.asking import LinkOptions
from ferrule.schema.completion import Completion, PromptReference, Reference, ResourceReference
from ferrule.schema.methods import METHODS
from ferrule.schema.model import Implementation
from ferrule.schema.notices import LOG_MESSAGE, ROOTS_CHANGED
from ferrule.schema.prompts import GetPromptResult, Prompt
from ferrule.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from ferrule.schema.roots import Root
from ferrule.schema.tools import CallToolResult, Tool
from ferrule.validation.checking import given_schema
from ferrule.wire.messages import Notification

logger = logging.getLogger("ferrule.client")

MAX_PAGES = 10_000

_read_call_result: Callable[[Raw], CallToolResult] = METHODS["tools/call"].decode_result


class Client(Facts):
    """Reaches one server and uses what it offers."""

    def __init__(
        self,
        target: Any,
        *,
        sampling: Callback | None = None,
        elicitation: Callback | None = None,
        url_elicitation: Callback | None = None,
        roots: Iterable[Any] | Callable[[], Any] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        settings = self.settings = ClientSettings(**options)
        self.target = target
        self.answering = Answering(
            sampling,
            elicitation,
            url_elicitation,
            roots,
            sampling_tools=settings.sampling_tools,
            sampling_context=settings.sampling_context,
        )
        self.cache = Cache()
        self.notices = Notices()
        self._conversation: Conversation | None = None
        self._listening = Listening(self._talk)
        self._phase_handlers: list[Callable[[Phase, Phase], Any]] = []
        self._last_phase = Phase.PRE_INITIALIZATION
        self._output_checks: dict[str, Any] = {}
        self._usual = Asking(settings.tool_timeout, settings.max_request_time)

    # -- opening and closing

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Reach the server and settle the protocol."""
        if self._conversation is not None and self.phase is Phase.INITIALIZED:
            raise AlreadyInitialized("the client is connected already")
        settings = self.settings
        child = {"env": settings.env, "cwd": settings.cwd, "stderr": settings.stderr}
        transport = transport_for(self.target, **child)
        slow_start = type(transport).__name__ == "ChildProcess"
        opening = Opening(
            settings.mode,
            settings.protocol_version,
            self.answering.capabilities,
            Implementation(name=settings.name, version=settings.version),
            settings.init_timeout or (30.0 if slow_start else 10.0),
            settings.probe_timeout,
            settings.log_level,
        )
        conversation = Conversation(
            transport,
            opening,
            self.answering,
            self._heard,
            options=LinkOptions(
                ping_timeout=settings.ping_timeout,
                probe_on_timeout=settings.probe_on_timeout,
                allow_batch=settings.allow_batch,
            ),
            max_rounds=settings.max_rounds,
            strict=settings.strict,
        )
        conversation.on_lost(self._lost)
        self._conversation = conversation
        self._tell_phase()
        await conversation.open()
        self._tell_phase()
        await self._listen_for_lists()

    async def reconnect(self) -> None:
        """End the conversation and start a new one; a child process is started afresh."""
        await self.close()
        self.cache.clear()
        self._conversation = None
        self._listening = Listening(self._talk)
        await self.connect()

    async def close(self, drain: float = 2.0) -> None:
        """End the conversation; harmless when called again."""
        if self._conversation is not None:
            self._listening.end()
            await self._conversation.close(drain)
            self._tell_phase()

    def _lost(self, error: Exception | None) -> None:
        self._listening.end()
        self._tell_phase()

    def _talk(self) -> Conversation:
        if self._conversation is None:
            raise NotConnected("the client is not connected: use `async with Client(...)` or `await client.connect()`")
        return self._conversation

    # -- tools

    async def list_tools(self, *, timeout: float | None = None) -> list[Tool]:
        """Give all tools, from all pages."""
        return [tool async for tool in self.iter_tools(timeout=timeout)]

    async def iter_tools(self, *, timeout: float | None = None) -> AsyncIterator[Tool]:
        """Give the tools one after another, page by page."""
        async for tool in self._pages("tools/list", "tools", timeout):
            if tool.output_schema is not None and self.settings.validate_results:
                self._output_checks[tool.name] = tool.output_schema
            yield tool

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: Progress | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = True,
    ) -> CallToolResult:
        """Call a tool; raises ToolError when it failed, unless told to give the result all the same."""
        how = self._usual
        if timeout is not None or on_progress is not None or meta is not None:
            how = Asking(timeout or how.timeout, how.limit, on_progress, meta)
        raw = await self._talk().ask("tools/call", {"name": name, "arguments": arguments or {}}, how)
        try:
            result = _read_call_result(raw)
        except (msgspec.DecodeError, RecursionError) as reason:
            raise _malformed("tools/call", reason) from None
        if result.is_error:
            if raise_on_error:
                raise ToolError(result.text or f"the tool {name} failed", result=result)
        elif name in self._output_checks:
            self._check_output(name, result)
        return result

    def _check_output(self, name: str, result: CallToolResult) -> None:
        check = self._output_checks[name]
        if isinstance(check, dict):
            try:
                _, check = given_schema(check, f"the output schema of the tool {name}")
            except SetupError as reason:
                logger.warning("results of the tool %s are not checked: %s", name, reason)
                del self._output_checks[name]
                return
            self._output_checks[name] = check
        value = result.structured_content
        found = check.violations(value, len(msgspec.json.encode(value)))
        if found:
            raise InvalidAnswer(f"the result of the tool {name} does not fit its output schema: {found[0].message}")

    # -- resources

    async def list_resources(self, *, timeout: float | None = None) -> list[Resource]:
        """Give all resources, from all pages."""
        return [resource async for resource in self.iter_resources(timeout=timeout)]

    def iter_resources(self, *, timeout: float | None = None) -> AsyncIterator[Resource]:
        """Give the resources one after another, page by page."""
        return self._pages("resources/list", "resources", timeout)

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[ResourceTemplate]:
        """Give all templates, from all pages."""
        return [template async for template in self.iter_resource_templates(timeout=timeout)]

    def iter_resource_templates(self, *, timeout: float | None = None) -> AsyncIterator[ResourceTemplate]:
        """Give the templates one after another, page by page."""
        return self._pages("resources/templates/list", "resource_templates", timeout)

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ReadResourceResult:
        """Read a resource."""
        return await self._fetch("resources/read", {"uri": str(uri)}, timeout)  # type: ignore[no-any-return]

    def subscribe(self, uri: str) -> Changes:
        """Hear of a resource's changes: `async with client.subscribe(uri) as changes: async for uri in changes: …`."""
        return Changes(self._listening, uri)

    async def subscribe_resource(self, uri: str, callback: Callable[[str], Any] | None = None) -> None:
        """Hear of a resource's changes until `unsubscribe_resource`; the callback gets the URI."""
        if callback is not None:
            notify = callback
            self.on_notification(
                "notifications/resources/updated", lambda params: notify(uri) if params.get("uri") == uri else None
            )
        await self._listening.want(uri)

    async def unsubscribe_resource(self, uri: str) -> None:
        """Hear of a resource's changes no more."""
        await self._listening.unwant(uri)

    # -- prompts and completion

    async def list_prompts(self, *, timeout: float | None = None) -> list[Prompt]:
        """Give all prompts, from all pages."""
        return [prompt async for prompt in self.iter_prompts(timeout=timeout)]

    def iter_prompts(self, *, timeout: float | None = None) -> AsyncIterator[Prompt]:
        """Give the prompts one after another, page by page."""
        return self._pages("prompts/list", "prompts", timeout)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Get a prompt, filled in."""
        params = {"name": name, "arguments": arguments or {}}
        raw = await self._talk().ask("prompts/get", params, self._how(timeout))
        return _read("prompts/get", raw)  # type: ignore[no-any-return]

    async def complete(
        self,
        ref: Reference | Mapping[str, Any] | str,
        argument: Mapping[str, str],
        *,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Completion:
        """Give suggestions for an argument of a prompt (by name) or a variable of a template (by URI)."""
        params: dict[str, Any] = {"ref": _reference(ref), "argument": dict(argument)}
        if context:
            params["context"] = {"arguments": dict(context)}
        raw = await self._talk().ask("completion/complete", params, self._how(timeout))
        return _read("completion/complete", raw).completion  # type: ignore[no-any-return]

    # -- the rest of the protocol

    async def ping(self, timeout: float | None = None) -> float:
        """Tell how long the server takes to answer; in the stateless era it is asked to discover itself."""
        started = time.perf_counter()
        method = "server/discover" if self._talk().stateless else "ping"
        await self._talk().ask(method, {}, Asking(timeout or self.settings.ping_timeout))
        return time.perf_counter() - started

    async def set_log_level(self, level: str) -> None:
        """Choose the least level of log messages the server sends."""
        conversation = self._talk()
        if conversation.stateless:
            raise CapabilityNotSupported(
                "logging/setLevel", "this revision sets the level when the client is made: log_level=…"
            )
        await conversation.ask("logging/setLevel", {"level": level}, self._how(None))

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Any:
        """Send any request and give its result as plain values."""
        return msgspec.json.decode(await self._talk().ask(method, dict(params or {}), self._how(timeout)))

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send any notification."""
        channel = self._talk().live().channel
        assert channel is not None
        channel.send(Notification(method, dict(params)) if params else Notification(method))
        await channel.wait_writable()

    async def cancel(self, request_id: int | str, reason: str = "") -> None:
        """Stop waiting for one of our requests and tell the server."""
        link = self._talk().live()
        awaited = link.session.awaited.get(request_id)
        if awaited is not None:
            link.abandon(awaited, reason)
            awaited.waiter.cancel()

    def batch(self, *, timeout: float | None = None) -> Batch:
        """Send several requests as one array: `async with client.batch() as b: tools = b.request("tools/list")`."""
        return Batch(self._talk(), timeout or self.settings.request_timeout, allowed=self.settings.allow_batch)

    async def send_batch(self, requests: Iterable[tuple[str, Mapping[str, Any] | None]]) -> list[Any]:
        """Send requests as one array; gives each one's result or exception."""
        async with self.batch() as batch:
            futures = [batch.request(method, dict(params or {})) for method, params in requests]
        return list(await asyncio.gather(*futures, return_exceptions=True))

    async def add_root(self, given: Any, name: str | None = None) -> None:
        """Work in one more folder, and tell the server."""
        added = root(given)
        self.answering.roots = [*self.roots, Root(uri=added.uri, name=name or added.name)]
        await self._tell_roots()

    async def remove_root(self, given: Any) -> None:
        """Work in a folder no more, and tell the server."""
        gone = root(given).uri
        self.answering.roots = [kept for kept in self.roots if kept.uri != gone]
        await self._tell_roots()

    async def _tell_roots(self) -> None:
        if self._conversation is not None and not self._conversation.stateless:
            await self.notify(ROOTS_CHANGED)

    # -- handlers

    def on_notification(self, method: str, handler: Any = None) -> Any:
        """Handle a notification by `f(params)`, `f(method, params)`, a queue or "module:function"; also a decorator."""
        if handler is None:
            return lambda fn: (self.on_notification(method, fn), fn)[1]
        self.notices.on(method, handler)
        return handler

    def remove_notification_handler(self, method: str) -> None:
        """Handle a notification no more."""
        self.notices.off(method)

    def on_log(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Call `handler(level, data, logger)` for the server's log messages."""
        self.notices.on(LOG_MESSAGE, lambda p: handler(p.get("level"), p.get("data"), p.get("logger")))
        return handler

    def on_phase_change(self, handler: Callable[[Phase, Phase], Any]) -> Callable[[Phase, Phase], Any]:
        """Call `handler(old, new)` when the phase changes."""
        self._phase_handlers.append(handler)
        return handler

    def set_sampling_handler(self, handler: Callback | None) -> None:
        """Answer sampling requests from now on; what was declared at the opening stays declared."""
        self.answering.sampling = handler

    def remove_sampling_handler(self) -> None:
        """Answer sampling requests no more."""
        self.answering.sampling = None

    async def watch_lists(self, *kinds: str) -> None:
        """Hear of changes of lists, `"tools"`, `"prompts"`, `"resources"`; the handshake era tells unasked."""
        for kind in kinds:
            await self._listening.want_kind(f"notifications/{kind}/list_changed")

    async def _listen_for_lists(self) -> None:
        """Hear of the lists someone here handles changes of, as far as the server tells of them."""
        for kind in FLAGS:
            offered = getattr(self.server_capabilities, kind.split("/")[1], None)
            if not self.notices.listens(kind) or offered is None or not offered.list_changed:
                continue
            try:
                await self._listening.want_kind(kind)
            except PeerError as error:
                logger.warning("the server declares %s but refuses to tell of changes: %s", kind, error)

    def _heard(self, note: Note) -> None:
        conversation = self._talk()
        if self._listening.stale(note):
            return
        uri = self._listening.hear(note)
        self.cache.drop(note.method, uri)
        link = conversation.link
        if link is not None:
            self.notices.receive(note, link.scope)

    def _tell_phase(self) -> None:
        before, self._last_phase = self._last_phase, self.phase
        if before is not self._last_phase:
            for handler in self._phase_handlers:
                handler(before, self._last_phase)

    # -- asking

    def _how(self, timeout: float | None) -> Asking:
        return Asking(timeout or self.settings.request_timeout, self.settings.max_request_time)

    async def _fetch(self, method: str, params: dict[str, Any], timeout: float | None) -> Any:
        """Ask for something that may be kept, unless it is kept already."""
        conversation = self._talk()
        keeps = self.settings.cache and conversation.stateless
        if keeps:
            kept = self.cache.find(method, params, time.monotonic())
            if kept is not None:
                return _read(method, kept)
        raw = await conversation.ask(method, params, self._how(timeout))
        result = _read(method, raw)
        if keeps:
            self.cache.keep(method, params, raw, time.monotonic())
        return result

    async def _pages(self, method: str, member: str, timeout: float | None) -> AsyncIterator[Any]:
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            try:
                page = await self._fetch(method, params, timeout)
            except PeerError:
                self.cache.drop_pages(method)
                raise
            for item in getattr(page, member):
                yield item
            if page.next_cursor is None:
                return
            if page.next_cursor == cursor:
                raise InvalidAnswer(f"{method}: the server gave the same cursor again")
            cursor = page.next_cursor
        raise InvalidAnswer(f"{method}: more than {MAX_PAGES} pages")


def _read(method: str, raw: Raw) -> Any:
    try:
        return METHODS[method].decode_result(raw)
    except (msgspec.DecodeError, RecursionError) as reason:
        raise _malformed(method, reason) from None


def _malformed(method: str, reason: Exception) -> InvalidAnswer:
    return InvalidAnswer(f"the server's answer to {method} is malformed: {reason}")


def _reference(ref: Reference | Mapping[str, Any] | str) -> Any:
    if isinstance(ref, str):
        return ResourceReference(ref) if "://" in ref or "{" in ref else PromptReference(ref)
    return ref
