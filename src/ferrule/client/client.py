"""The client: one method a feature."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar, Unpack

import msgspec
from msgspec import Raw

from ferrule.client.answering import Answering, Callback, root
from ferrule.client.batch import Batch
from ferrule.client.cache import Cache
from ferrule.client.conversation import Asking, Conversation, Progress
from ferrule.client.fetching import given
from ferrule.client.notices import Deliver, Notices
from ferrule.client.opening import Opening
from ferrule.client.phases import Phases
from ferrule.client.settings import ClientOptions, ClientSettings, require_level
from ferrule.client.skills import Skilled
from ferrule.client.subscription import Changes, Listening, covers
from ferrule.client.targets import transport_for
from ferrule.errors import (
    AlreadyInitialized,
    Cancelled,
    InvalidAnswer,
    NotConnected,
    SetupError,
    ToolError,
)
from ferrule.runtime.asking import LinkOptions
from ferrule.schema.completion import Completion, CompletionContext, PromptReference, Reference, ResourceReference
from ferrule.schema.lifecycle import InitializeResult, ServerCapabilities
from ferrule.schema.methods import METHODS
from ferrule.schema.model import Implementation
from ferrule.schema.notices import RESOURCE_UPDATED, ROOTS_CHANGED
from ferrule.schema.prompts import GetPromptResult, Prompt
from ferrule.schema.resources import Resource, ResourceTemplate
from ferrule.schema.roots import Root
from ferrule.schema.rounds import COMPLETE
from ferrule.schema.tools import CallToolResult, Tool
from ferrule.transports.child import ChildProcess
from ferrule.transports.contract import Transport
from ferrule.validation.checking import given_schema
from ferrule.wire.messages import Notification

logger = logging.getLogger("ferrule.client")

T = TypeVar("T")

DRAIN = 5.0
"""How long a closing client waits for answers."""

PATIENCE, CHILD_PATIENCE = 10.0, 30.0
"""How long a server may take to answer the handshake, and one that has to be started first."""

FINAL = (None, COMPLETE)
"""The kinds of result that end a call; any other is looked at twice."""

_read_call_result: Callable[[Raw], CallToolResult] = METHODS["tools/call"].decode_result


class Client(Skilled):
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
        try:
            settings = self.settings = ClientSettings(**options)
        except TypeError as reason:
            raise SetupError(f"Client: {reason}") from None
        self.target = target
        self.answering = Answering(
            sampling,
            elicitation,
            url_elicitation,
            roots,
            sampling_tools=settings.sampling_tools,
            sampling_context=settings.sampling_context,
            extensions=settings.extensions,
        )
        self.cache = Cache()
        self.notices = Notices()
        self._conversation: Conversation | None = None
        self._listening = Listening(self._talk)
        self._phases = Phases()
        self._output_checks: dict[str, Any] = {}
        self._watchers: dict[str, list[Deliver]] = {}
        self._usual = self._how(settings.tool_timeout)

    # -- opening and closing

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(drain=DRAIN if error is None else 0.0)

    async def connect(self, *, timeout: float | None = None) -> None:
        """Reach the server and settle the protocol; the time-out is for the handshake."""
        if self._conversation is not None and not self._conversation.over:
            raise AlreadyInitialized(f"the client is connected already ({self.phase})")
        transport = self._transport()
        await self.close()
        conversation = self._conversation = Conversation(
            transport,
            self._opening(transport, timeout),
            self.answering,
            self._heard,
            options=LinkOptions(
                ping_timeout=self.settings.ping_timeout,
                probe_on_timeout=self.settings.probe_on_timeout,
                allow_batch=self.settings.allow_batch,
                tell_unreadable=False,
            ),
            max_rounds=self.settings.max_rounds,
            strict=self.settings.strict,
        )
        self._forget()
        self._listening = Listening(lambda: conversation)
        conversation.on_change(self._changed)
        self._changed()
        try:
            await conversation.open()
        finally:
            self._changed()
        await self._listen_for_lists()

    async def initialize(self, *, timeout: float | None = None) -> InitializeResult:
        """Connect, and give what the server says of itself, in either era."""
        await self.connect(timeout=timeout)
        return InitializeResult(
            protocol_version=self.protocol_version or "",
            capabilities=self.server_capabilities or ServerCapabilities(),
            server_info=self.server_info or Implementation(name="", version=""),
            instructions=self.instructions,
        )

    def _transport(self) -> Transport:
        return transport_for(self.target, **self.settings.transport_options)

    def _opening(self, transport: Transport, timeout: float | None) -> Opening:
        settings = self.settings
        patience = CHILD_PATIENCE if isinstance(transport, ChildProcess) else PATIENCE
        return Opening(
            settings.mode,
            settings.protocol_version,
            self.answering.capabilities,
            Implementation(name=settings.name, version=settings.version),
            given(timeout, given(settings.init_timeout, patience)),
            settings.probe_timeout,
            settings.log_level,
            settings.send_client_info,
        )

    async def reconnect(self) -> None:
        """End the conversation and start a new one; a child process is started afresh."""
        await self.close(drain=0.0)
        await self.connect()

    async def close(self, drain: float = DRAIN) -> None:
        """Ask nothing more, wait up to `drain` seconds for what was asked, and end; harmless when called again."""
        if self._conversation is not None:
            self._listening.end()
            await self._conversation.close(drain)
            self._changed()

    def _forget(self) -> None:
        """What one conversation has taught need not hold in the next."""
        self.cache.clear()
        self._output_checks.clear()
        for watchers in self._watchers.values():
            for watcher in watchers:
                self.notices.off(RESOURCE_UPDATED, watcher)
        self._watchers.clear()

    def _changed(self) -> None:
        if self._conversation is not None and self._conversation.over:
            self._listening.end()
        self._phases.tell(self.phase)

    def _talk(self) -> Conversation:
        if self._conversation is None:
            raise NotConnected(
                f"the client is not connected ({self.phase}): use `async with Client(...)` or `await client.connect()`"
            )
        return self._conversation

    # -- tools

    async def list_tools(self, *, timeout: float | None = None) -> list[Tool]:
        """Give all tools, from all pages."""
        return await self._listed(lambda: self.iter_tools(timeout=timeout))

    async def iter_tools(self, *, timeout: float | None = None) -> AsyncIterator[Tool]:
        """Give the tools one after another, page by page."""
        async for tool in self._pages("tools/list", "tools", timeout):
            self._output_checks.pop(tool.name, None)
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
            how = self._how(given(timeout, self.settings.tool_timeout), on_progress, meta)
        conversation = self._conversation or self._talk()
        awaited = conversation.call_tool(name, arguments or {}, how)
        try:
            raw: Raw = await awaited.waiter
        except asyncio.CancelledError:
            conversation.abandon(awaited)
            raise
        try:
            result = _read_call_result(raw)
            final = result.result_type in FINAL
        except (msgspec.DecodeError, RecursionError):
            final = False
        if not final:
            params = {"name": name, "arguments": arguments or {}}
            result = self._read("tools/call", await conversation.completed("tools/call", params, how, raw))
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
        return await self._listed(lambda: self.iter_resources(timeout=timeout))

    def iter_resources(self, *, timeout: float | None = None) -> AsyncIterator[Resource]:
        """Give the resources one after another, page by page."""
        return self._pages("resources/list", "resources", timeout)

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[ResourceTemplate]:
        """Give all templates, from all pages."""
        return await self._listed(lambda: self.iter_resource_templates(timeout=timeout))

    def iter_resource_templates(self, *, timeout: float | None = None) -> AsyncIterator[ResourceTemplate]:
        """Give the templates one after another, page by page."""
        return self._pages("resources/templates/list", "resource_templates", timeout)

    def subscribe(self, uri: str) -> Changes:
        """Hear of a resource's changes: `async with client.subscribe(uri) as changes: async for uri in changes: …`."""
        return Changes(self._listening, str(uri))

    async def subscribe_resource(self, uri: str, callback: Callable[[str], Any] | None = None) -> None:
        """Hear of a resource's changes until `unsubscribe_resource`; the callback gets the URI."""
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
        """Give all prompts, from all pages."""
        return await self._listed(lambda: self.iter_prompts(timeout=timeout))

    def iter_prompts(self, *, timeout: float | None = None) -> AsyncIterator[Prompt]:
        """Give the prompts one after another, page by page."""
        return self._pages("prompts/list", "prompts", timeout)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Get a prompt, filled in."""
        params = {"name": name, "arguments": arguments or {}}
        raw = await self._talk().ask("prompts/get", params, self._plain(timeout))
        return self._read("prompts/get", raw)  # type: ignore[no-any-return]

    async def complete(
        self,
        ref: Reference | Mapping[str, Any] | str,
        argument: Mapping[str, str],
        *,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Completion:
        """Give suggestions for an argument of a prompt (by name) or a variable of a template (by URI)."""
        conversation = self._talk()
        trim = conversation.trim
        params: dict[str, Any] = {"ref": trim(_reference(ref)), "argument": dict(argument)}
        known = trim(CompletionContext(arguments=dict(context))) if context else None
        if known is not None:
            params["context"] = known
        raw = await conversation.ask("completion/complete", params, self._plain(timeout))
        return self._read("completion/complete", raw).completion  # type: ignore[no-any-return]

    # -- the rest of the protocol

    async def ping(self, timeout: float | None = None) -> float:
        """Tell how long the server takes to answer; in the stateless era it is asked to discover itself."""
        started = time.perf_counter()
        method = "server/discover" if self._talk().stateless else "ping"
        await self._talk().ask(method, {}, Asking(given(timeout, self.settings.ping_timeout)))
        return time.perf_counter() - started

    async def set_log_level(self, level: str) -> None:
        """Choose the least level of log messages the server sends; in the stateless era each request says it."""
        require_level(level)
        conversation = self._talk()
        conversation.require("logging")
        if conversation.stateless:
            conversation.want_level(level)
        else:
            await conversation.ask("logging/setLevel", {"level": level}, self._plain(None))

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Any:
        """Send any request and give its result as plain values."""
        members = dict(params or {})
        meta = members.pop("_meta", None)
        how = self._how(given(timeout, self.settings.request_timeout), meta=meta)
        result = msgspec.json.decode(await self._talk().ask(method, members, how))
        if isinstance(result, dict):
            self._require_complete(method, result.get("resultType"))
        return result

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
            if not awaited.waiter.done():
                awaited.waiter.set_exception(Cancelled(reason or f"{awaited.method} was cancelled"))

    def batch(self, *, timeout: float | None = None) -> Batch:
        """Send several requests as one array: `async with client.batch() as b: tools = b.request("tools/list")`."""
        patience = given(timeout, self.settings.request_timeout)
        return Batch(self._talk(), patience, allowed=self.settings.allow_batch)

    async def send_batch(self, requests: Iterable[tuple[str, Mapping[str, Any] | None]]) -> list[Any]:
        """Send requests as one array; gives each one's result or exception."""
        async with self.batch() as batch:
            futures = [batch.request(method, dict(params or {})) for method, params in requests]
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

    def set_sampling_handler(self, handler: Callback | None) -> None:
        """Answer sampling requests from now on; what was declared at the opening stays declared."""
        self.answering.sampling = handler

    def remove_sampling_handler(self) -> None:
        """Answer sampling requests no more."""
        self.answering.sampling = None


def _reference(ref: Reference | Mapping[str, Any] | str) -> Reference:
    if isinstance(ref, str):
        return ResourceReference(ref) if "://" in ref or "{" in ref else PromptReference(ref)
    return msgspec.convert(ref, Reference) if isinstance(ref, Mapping) else ref
