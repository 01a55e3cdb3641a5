"""The client of several servers that offer the same: `Client([target, …])` returns one.

Each method goes to the client of a target. Which one:

| what | goes to |
|---|---|
| requests | one target that works, and another if that does no harm |
| tasks | the target that has them |
| subscriptions, the log level, roots, handlers | every target, also when it is connected again |
| what is known of the server, batches | the first target that is connected |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from ferrule.client.client import DRAIN, Client
from ferrule.client.era.contract import TaskChoice
from ferrule.client.features.answers import AnswerHandler
from ferrule.client.features.batch import Batch
from ferrule.client.features.cache import Cache
from ferrule.client.features.progress import ProgressHandler
from ferrule.client.features.roots import GivenRoot
from ferrule.client.features.skills import LoadedSkill
from ferrule.client.features.subscription import Changes
from ferrule.client.features.tasks import Task
from ferrule.client.link.reconnect import ConnectionHandler
from ferrule.errors import AlreadyInitialized, CallFailed, ConnectFailed, FerruleError, PeerError, SetupError
from ferrule.protocol.call import Awaited
from ferrule.protocol.foreign import Foreign
from ferrule.protocol.session import CONNECTION_STATES, Phase
from ferrule.routing.call import tool_call_of
from ferrule.routing.members import Members
from ferrule.routing.replica import CONNECT_TIMEOUT
from ferrule.routing.router import Router
from ferrule.schema.completion import Completion, Reference
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import Implementation
from ferrule.schema.prompts import GetPromptResult, Prompt
from ferrule.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from ferrule.schema.roots import Root
from ferrule.schema.skills import Skill
from ferrule.schema.tasks import Task as TaskState
from ferrule.schema.tools import CallToolResult, Tool

if TYPE_CHECKING:
    from ferrule.client.keywords import ClientKeywords
    from ferrule.supervision.child import ChildState

T = TypeVar("T")

MAX_TASKS = 10_000
"""Tasks whose target is remembered; the oldest are forgotten first."""


class CalledTool(Struct):
    """Of the params of a call, which tool it is."""

    name: str = ""


_read_called = msgspec.json.Decoder(CalledTool).decode


class RoutedClient(Client):
    """Uses several servers that offer the same as one."""

    def __init__(
        self,
        target: Sequence[object],
        *,
        sampling: AnswerHandler | None = None,
        elicitation: AnswerHandler | None = None,
        url_elicitation: AnswerHandler | None = None,
        roots: Iterable[object] | Callable[[], object] | None = None,
        **options: Unpack[ClientKeywords],
    ) -> None:
        answers = {
            "sampling": sampling,
            "elicitation": elicitation,
            "url_elicitation": url_elicitation,
            "roots": roots,
        }
        members = self._members = Members(target, answers, options)
        self._router = members.router
        self._target = target
        self._broadcast = members.broadcast
        self._phases = members.phases
        self._owners: dict[str, Client] = {}
        """Who has a task, by its id."""
        self.settings = members.first.settings
        self.answering = members.first.answering
        self._key: str | None = None
        if self._router.settings.balance == "hash":
            self._key = self._router.settings.affinity or uuid4().hex

    # -- beginning and end

    async def connect(self, *, timeout: float | None = None) -> None:
        """Connect to every target; raise ConnectFailed if none can be reached."""
        if self._members.running:
            raise AlreadyInitialized(f"the client is connected already ({self.phase})")
        failed = await self._members.start(timeout or CONNECT_TIMEOUT)
        if len(failed) == len(self._router.clients):
            await self.close(0.0)
            reasons = "; ".join(f"{name}: {error}" for name, error in failed.items())
            raise ConnectFailed(f"none of the {len(failed)} targets can be reached: {reasons}")

    async def close(self, drain: float = DRAIN) -> None:
        """Close every client, after the answers that still come within `drain` seconds; harmless when called again."""
        await self._members.close(drain)

    @property
    def _first(self) -> Client:
        return self._members.first

    async def _ask(
        self,
        method: str,
        work: Callable[[Client, float | None], Awaitable[T]],
        timeout: float | None,
        *,
        safe: bool = True,
    ) -> T:
        """Ask one target, and another if that does no harm."""
        return await self._router.call(work, method, safe=safe, timeout=timeout, key=self._key)

    # -- tools

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = True,
        task: TaskChoice = "auto",
    ) -> Coroutine[Any, Any, CallToolResult]:
        """Call a tool of one of the targets; raises ToolError when it failed, unless `raise_on_error` is off."""
        safe = name in self._router.safe_tools
        options = None
        if on_progress is not None or meta is not None or not raise_on_error or task != "auto":
            options = {"on_progress": on_progress, "meta": meta, "raise_on_error": raise_on_error, "task": task}
        asked = (name, arguments, options)
        return self._router.call(tool_call_of, "tools/call", asked, safe=safe, timeout=timeout, key=self._key)

    async def list_tools(self, *, timeout: float | None = None) -> list[Tool]:
        """Return all tools, from all pages of one target."""
        return await self._ask("tools/list", lambda client, left: client.list_tools(timeout=left), timeout)

    async def iter_tools(self, *, timeout: float | None = None) -> AsyncIterator[Tool]:
        """Return the tools one after another; they are listed as a whole, since a cursor is one target's own."""
        for tool in await self.list_tools(timeout=timeout):
            yield tool

    # -- tasks

    async def start_task(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Task:
        """Call a tool as a task and do not wait for its end; `ttl` asks for so many seconds of life."""

        async def start(client: Client, left: float | None) -> Task:
            task = await client.start_task(name, arguments, ttl=ttl, timeout=left, meta=meta)
            self._remember(task.id, client)
            return task

        return await self._ask("tools/call", start, timeout, safe=self._router.is_safe("tools/call", {"name": name}))

    def _remember(self, task_id: str, client: Client) -> None:
        if task_id not in self._owners and len(self._owners) >= MAX_TASKS:
            del self._owners[next(iter(self._owners))]
        self._owners[task_id] = client

    def task(self, task_id: str) -> Task:
        """Come back to a task by its id; one that another client started is found by `get_task` first."""
        return self._owners.get(task_id, self._first).task(task_id)

    async def list_tasks(self, *, timeout: float | None = None) -> list[TaskState]:
        """Return the tasks of all targets that are connected (handshake era)."""
        found = []
        for client in self._router.connected:
            for state in await client.list_tasks(timeout=timeout):
                self._remember(state.task_id, client)
                found.append(state)
        return found

    async def iter_tasks(self, *, timeout: float | None = None) -> AsyncIterator[TaskState]:
        """Return the tasks of all targets one after another (handshake era)."""
        for state in await self.list_tasks(timeout=timeout):
            yield state

    async def get_task(self, task_id: str) -> TaskState:
        """Look how a task stands; every target is asked for one that this client did not start."""
        owner = self._owners.get(task_id)
        if owner is not None:
            return await owner.get_task(task_id)
        unknown: FerruleError | None = None
        for client in self._router.connected:
            try:
                state = await client.get_task(task_id)
            except (PeerError, CallFailed) as error:
                unknown = unknown or error
                continue
            self._remember(task_id, client)
            return state
        if unknown is None:
            return await self._first.get_task(task_id)
        raise unknown

    async def cancel_task(self, task_id: str) -> None:
        """Ask the target that has a task to end it."""
        if task_id not in self._owners:
            await self.get_task(task_id)
        await self._owners[task_id].cancel_task(task_id)

    # -- resources

    async def list_resources(self, *, timeout: float | None = None) -> list[Resource]:
        """Return all resources, from all pages of one target."""
        return await self._ask("resources/list", lambda client, left: client.list_resources(timeout=left), timeout)

    async def iter_resources(self, *, timeout: float | None = None) -> AsyncIterator[Resource]:
        """Return the resources one after another."""
        for resource in await self.list_resources(timeout=timeout):
            yield resource

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[ResourceTemplate]:
        """Return all templates, from all pages of one target."""
        return await self._ask(
            "resources/templates/list", lambda client, left: client.list_resource_templates(timeout=left), timeout
        )

    async def iter_resource_templates(self, *, timeout: float | None = None) -> AsyncIterator[ResourceTemplate]:
        """Return the templates one after another."""
        for template in await self.list_resource_templates(timeout=timeout):
            yield template

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ReadResourceResult:
        """Read a resource."""
        return await self._ask("resources/read", lambda client, left: client.read_resource(uri, timeout=left), timeout)

    def subscribe(self, uri: str) -> Changes:
        """Hear of a resource's changes from every target."""
        return Changes(self._broadcast, str(uri))

    async def subscribe_resource(self, uri: str, callback: Callable[[str], Any] | None = None) -> None:
        """Hear of a resource's changes from every target until `unsubscribe_resource`; the callback gets the URI."""
        await self._broadcast.subscribe(str(uri), callback)

    async def unsubscribe_resource(self, uri: str) -> None:
        """Hear of a resource's changes no more."""
        await self._broadcast.unsubscribe(str(uri))

    # -- skills

    async def list_skills(self, *, timeout: float | None = None) -> list[Skill]:
        """Return the skills one target lists, from all pages."""
        return await self._ask("skills/list", lambda client, left: client.list_skills(timeout=left), timeout)

    async def iter_skills(self, *, timeout: float | None = None) -> AsyncIterator[Skill]:
        """Return the skills one after another."""
        for skill in await self.list_skills(timeout=timeout):
            yield skill

    async def get_skill(self, uri: str, *, timeout: float | None = None) -> Skill:
        """Return one skill as it is now, by the URI of its SKILL.md."""
        return await self._ask("skills/get", lambda client, left: client.get_skill(uri, timeout=left), timeout)

    async def load_skill(
        self, skill: Skill | str, *, dynamic: bool = False, timeout: float | None = None
    ) -> LoadedSkill:
        """Read the SKILL.md of a skill and check it against its entry; its files are read from the same target."""

        def load(client: Client, left: float | None) -> Awaitable[LoadedSkill]:
            return client.load_skill(skill, dynamic=dynamic, timeout=left)

        return await self._ask("resources/read", load, timeout)

    async def read_directory(self, uri: str, *, timeout: float | None = None) -> list[Resource]:
        """Return what is directly in a directory of the servers."""
        return await self._ask(
            "resources/directory/read", lambda client, left: client.read_directory(uri, timeout=left), timeout
        )

    # -- prompts and completion

    async def list_prompts(self, *, timeout: float | None = None) -> list[Prompt]:
        """Return all prompts, from all pages of one target."""
        return await self._ask("prompts/list", lambda client, left: client.list_prompts(timeout=left), timeout)

    async def iter_prompts(self, *, timeout: float | None = None) -> AsyncIterator[Prompt]:
        """Return the prompts one after another."""
        for prompt in await self.list_prompts(timeout=timeout):
            yield prompt

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Get a prompt, filled in."""

        def get(client: Client, left: float | None) -> Awaitable[GetPromptResult]:
            return client.get_prompt(name, arguments, timeout=left)

        return await self._ask("prompts/get", get, timeout)

    async def complete(
        self,
        ref: Reference | Mapping[str, object] | str,
        argument: Mapping[str, str],
        *,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
        debounce: float = 0.0,
    ) -> Completion:
        """Return suggestions for an argument; with `debounce`, all of them come from one target."""
        if debounce:
            return await self._first.complete(ref, argument, context=context, timeout=timeout, debounce=debounce)

        def complete(client: Client, left: float | None) -> Awaitable[Completion]:
            return client.complete(ref, argument, context=context, timeout=left)

        return await self._ask("completion/complete", complete, timeout)

    # -- the rest of the protocol

    async def ping(self, timeout: float | None = None) -> float:
        """Return how long one of the targets takes to answer."""
        return await self._ask("ping", lambda client, left: client.ping(left), timeout)

    async def set_log_level(self, level: str) -> None:
        """Choose the least level of log messages the targets send."""
        await self._broadcast.set_level(level)

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Any:
        """Send any request to one of the targets and return its result as plain values."""
        return await self._router.request(method, params, timeout=timeout, key=self._key)

    async def forward(
        self,
        method: str,
        params: Raw | bytes | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        caller: object = None,
    ) -> Foreign:
        """Send the params of any request as JSON to one of the targets, and return its result as that wrote it."""

        def forward(client: Client, left: float | None) -> Awaitable[Foreign]:
            return client.forward(method, params, timeout=left, on_progress=on_progress, caller=caller)

        called: dict[str, object] = {}
        if method == "tools/call" and params is not None:
            with suppress(msgspec.DecodeError):
                called["name"] = _read_called(params).name
        return await self._ask(method, forward, timeout, safe=self._router.is_safe(method, called))

    async def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """Send any notification to one of the targets; one that cannot be delivered is in `router.dead_letters`."""
        await self._router.notify(method, params, key=self._key)

    async def cancel(self, request_id: int | str, reason: str = "") -> None:
        """Refuse: several targets use the same ids. Cancel the asyncio task that waits for the call instead."""
        raise SetupError("several targets use the same request ids: cancel the task that waits for the call instead")

    def batch(self, *, timeout: float | None = None) -> Batch:
        """Send several requests as one array to the first target that is connected."""
        return self._first.batch(timeout=timeout)

    # -- answering

    @property
    def roots(self) -> list[Root]:
        """The folders this client works in."""
        return self._first.roots

    async def add_root(self, given: GivenRoot, name: str | None = None) -> None:
        """Work in one more folder, and tell every target."""
        await self._change_roots(lambda client: client.add_root(given, name))

    async def remove_root(self, given: GivenRoot) -> None:
        """Work in a folder no more, and tell every target."""
        await self._change_roots(lambda client: client.remove_root(given))

    async def _change_roots(self, change: Callable[[Client], Awaitable[None]]) -> None:
        for client in self._router.clients.values():
            # One that cannot be told now is asked for the roots when it is connected again.
            with suppress(CallFailed):
                await change(client)
        roots = self.roots
        self._members.later(lambda client: client.answering.keep_roots(roots))

    def set_sampling_handler(self, handler: AnswerHandler | None) -> None:
        """Answer sampling requests from now on; what was declared at the opening stays declared."""
        self._members.each(lambda client: client.set_sampling_handler(handler))

    def remove_sampling_handler(self) -> None:
        """Answer sampling requests no more."""
        self._members.each(lambda client: client.remove_sampling_handler())

    # -- hearing

    def on_notification(self, method: str, handler: object = None) -> Any:
        """Handle a notification of any target by `f(params)`, `f(method, params)`, a queue or "module:function"."""
        if handler is None:
            return lambda fn: self.on_notification(method, fn)
        self._members.each(lambda client: client.on_notification(method, handler))
        return handler

    def remove_notification_handler(self, method: str) -> None:
        """Handle a notification no more."""
        self._members.each(lambda client: client.remove_notification_handler(method))

    def on_log(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Call `handler(level, data, logger)` for the log messages of every target."""
        self._members.each(lambda client: client.on_log(handler))
        return handler

    async def watch_lists(self, *kinds: str) -> None:
        """Hear of changes of lists, `"tools"`, `"prompts"`, `"resources"`, from every target."""
        await self._broadcast.watch_lists(kinds)

    def on_connection(self, handler: ConnectionHandler) -> ConnectionHandler:
        """Call `handler(notice)` when the last connected target is lost, and when one is restored."""
        self._members.on_notice.append(handler)
        return handler

    def on_error(self, handler: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
        """Call `handler(kind, reason)` when no target is connected any more."""

        def failed() -> None:
            error = self._members.failure
            handler(type(error).__name__, str(error))

        self._phases.on_enter(Phase.ERROR, failed)
        return handler

    # -- what is known

    @property
    def target(self) -> Any:
        """The targets as they were given."""
        return self._target

    @property
    def router(self) -> Router:
        """Who picks the targets: see `router.targets`, `router.stats()`, `router.drain(name)`."""
        return self._router

    @property
    def cache(self) -> Cache:
        """The results that are kept of the first target that is connected."""
        return self._first.cache

    @property
    def phase(self) -> Phase:
        """How far the conversations are: initialized while any target is connected."""
        return self._members.phase

    @property
    def reconnecting(self) -> bool:
        """Whether no target is connected, and each is tried again."""
        return self.phase is Phase.ERROR

    @property
    def link_state(self) -> ChildState:
        """The state of the link of the first target that is connected; `router.targets` has those of all."""
        return self._first.link_state

    @property
    def connection_state(self) -> str:
        """The phase in the words of a connection: disconnected, connecting, ready."""
        if not self._members.running:
            return "disconnected"
        return CONNECTION_STATES[self.phase]

    @property
    def protocol_version(self) -> str | None:
        """The protocol revision of the first target that is connected."""
        return self._first.protocol_version

    @property
    def server_info(self) -> Implementation | None:
        """The name and version of the first target that is connected."""
        return self._first.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities | None:
        """What the first target that is connected declared."""
        return self._first.server_capabilities

    def extension(self, name: str) -> dict[str, Any] | None:
        """Return the settings with which the first connected target declares an extension, None when it does not."""
        return self._first.extension(name)

    @property
    def negotiated(self) -> frozenset[str]:
        """What either side may use, in the words of the protocol."""
        return self._first.negotiated

    @property
    def notification_handlers(self) -> frozenset[str]:
        """The notifications someone here handles."""
        return self._first.notification_handlers

    @property
    def instructions(self) -> str | None:
        """How the first target that is connected says it should be used."""
        return self._first.instructions

    @property
    def pending(self) -> list[Awaited]:
        """Our requests that no target has answered yet."""
        found = []
        for client in self._router.clients.values():
            found.extend(client.pending)
        return found

    @property
    def subscriptions(self) -> set[str]:
        """The resources this client hears of."""
        return set(self._broadcast.uris)
