"""The client of several servers side by side: `Client({"a": target, …})` returns one.

Each server keeps its own client. Which of them a method goes to:

| what | goes to |
|---|---|
| lists | every server that is connected; names and URIs get the server's prefix |
| calls, reads, prompts, completions, subscriptions | the server whose prefix the name or URI has |
| the log level, watched lists, roots, handlers | every server, also when it is connected later |
| what names no server (`request`, `batch`, …) | none: `client.servers[name].client` |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from msgspec import Raw, structs

from ferrule.client.client import DRAIN, Client
from ferrule.client.era.contract import TaskChoice
from ferrule.client.features.answers import AnswerHandler
from ferrule.client.features.batch import Batch
from ferrule.client.features.cache import Cache
from ferrule.client.features.completions import reference_of
from ferrule.client.features.progress import ProgressHandler
from ferrule.client.features.roots import GivenRoot
from ferrule.client.features.skills import LoadedSkill
from ferrule.client.features.subscription import Changes
from ferrule.client.features.tasks import Task
from ferrule.client.link.reconnect import ConnectionHandler
from ferrule.errors import AlreadyInitialized, CallFailed, CapabilityNotSupported, ConnectFailed, PeerError, SetupError
from ferrule.protocol.call import Awaited
from ferrule.protocol.foreign import Foreign
from ferrule.protocol.session import CONNECTION_STATES, Phase
from ferrule.routing.combined.member import Member
from ferrule.routing.combined.members import Members, prompt_names, tool_names
from ferrule.routing.combined.source import SOURCE, answering, hearing
from ferrule.schema.completion import Completion, PromptReference, Reference
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import Implementation
from ferrule.schema.notices import LOG_MESSAGE
from ferrule.schema.prompts import GetPromptResult, Prompt
from ferrule.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from ferrule.schema.roots import Root
from ferrule.schema.skills import Skill, moved_skill
from ferrule.schema.tasks import Task as TaskState
from ferrule.schema.tools import CallToolResult, Tool

if TYPE_CHECKING:
    from ferrule.client.keywords import ClientKeywords
    from ferrule.supervision.child import ChildState

MAX_TASKS = 10_000
"""Tasks whose server is remembered; the oldest are forgotten first."""


class CombinedClient(Client):
    """Uses several servers side by side, each under a prefix of its own."""

    def __init__(
        self,
        target: object,
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
        self._target = target
        self._broadcast = members.broadcast
        self._phases = members.phases
        self._owners: dict[str, Member] = {}
        """Who has a task, by its id."""
        self.settings = members.settings
        self.answering = next(iter(members.servers.values())).client.answering

    # -- beginning and end

    async def connect(self, *, timeout: float | None = None) -> None:
        """Connect to every server; raise ConnectFailed if none can be reached."""
        if self._members.running:
            raise AlreadyInitialized(f"the client is connected already ({self.phase})")
        await self._members.start(timeout)
        if not self._members.connected:
            reasons = self._members.complaints
            await self.close(0.0)
            raise ConnectFailed(f"none of the {len(self.servers)} servers can be reached: {reasons}")

    async def reconnect(self, server: str | None = None) -> None:
        """End the conversations and start new ones; with the name of a server, that one alone."""
        if server is not None:
            await self._members.reconnect(server)
            return
        await self.close(0.0)
        await self.connect()

    async def close(self, drain: float = DRAIN) -> None:
        """Close every client, after the answers that still come within `drain` seconds; harmless when called again."""
        await self._members.close(drain)

    # -- tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = True,
        task: TaskChoice = "auto",
    ) -> CallToolResult:
        """Call a tool of the server whose prefix its name has; raises ToolError when it failed."""
        member, own = await self._members.of_name("tool", name, tool_names)
        result = await member.client.call_tool(
            own,
            arguments,
            timeout=timeout,
            on_progress=on_progress,
            meta=meta,
            raise_on_error=raise_on_error,
            task=task,
        )
        result.content = list(map(member.prefix.block, result.content))
        return result

    async def list_tools(self, *, timeout: float | None = None) -> list[Tool]:
        """Return all tools of all servers that are connected."""
        found = []
        for member, tools in await self._listed("tools", lambda client: client.list_tools(timeout=timeout)):
            for tool in tools:
                found.append(member.prefix.shown(tool, member.prefix.named(tool.name)))
        return found

    async def iter_tools(self, *, timeout: float | None = None) -> AsyncIterator[Tool]:
        """Return the tools one after another."""
        for tool in await self.list_tools(timeout=timeout):
            yield tool

    async def _listed(self, what: str, ask: Callable[[Client], Awaitable[list[Any]]]) -> list[tuple[Member, list[Any]]]:
        """Return a list of every server; one without the capability has an empty one."""

        async def list_of(member: Member) -> list[Any]:
            try:
                return await ask(member.client)
            except CapabilityNotSupported:
                return []

        return await self._members.gather(f"the list of {what}", list_of)

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
        member, own = await self._members.of_name("tool", name, tool_names)
        task = await member.client.start_task(own, arguments, ttl=ttl, timeout=timeout, meta=meta)
        self._remember(task.id, member)
        return task

    def _remember(self, task_id: str, member: Member) -> None:
        if task_id not in self._owners and len(self._owners) >= MAX_TASKS:
            del self._owners[next(iter(self._owners))]
        self._owners[task_id] = member

    def task(self, task_id: str) -> Task:
        """Come back to a task by its id; one that another client started is found by `get_task` first."""
        if task_id not in self._owners:
            raise SetupError(f"no server is known to have the task {task_id!r}: look with `await client.get_task(…)`")
        return self._owners[task_id].client.task(task_id)

    async def list_tasks(self, *, timeout: float | None = None) -> list[TaskState]:
        """Return the tasks of all servers that are connected (handshake era)."""
        found = []
        for member, states in await self._listed("tasks", lambda client: client.list_tasks(timeout=timeout)):
            for state in states:
                self._remember(state.task_id, member)
                found.append(state)
        return found

    async def iter_tasks(self, *, timeout: float | None = None) -> AsyncIterator[TaskState]:
        """Return the tasks of all servers one after another (handshake era)."""
        for state in await self.list_tasks(timeout=timeout):
            yield state

    async def get_task(self, task_id: str) -> TaskState:
        """Look how a task stands; every server is asked for one that this client did not start."""
        owner = self._owners.get(task_id)
        if owner is not None:
            return await owner.client.get_task(task_id)
        for member in self._members.connected:
            with suppress(PeerError, CallFailed):
                state = await member.client.get_task(task_id)
                self._remember(task_id, member)
                return state
        raise CallFailed(f"no server that is connected has the task {task_id!r}")

    async def cancel_task(self, task_id: str) -> None:
        """Ask the server that has a task to end it."""
        if task_id not in self._owners:
            await self.get_task(task_id)
        await self._owners[task_id].client.cancel_task(task_id)

    # -- resources

    async def list_resources(self, *, timeout: float | None = None) -> list[Resource]:
        """Return all resources of all servers that are connected."""
        found = []
        for member, each in await self._listed("resources", lambda client: client.list_resources(timeout=timeout)):
            found += [member.prefix.resource(resource) for resource in each]
        return found

    async def iter_resources(self, *, timeout: float | None = None) -> AsyncIterator[Resource]:
        """Return the resources one after another."""
        for resource in await self.list_resources(timeout=timeout):
            yield resource

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[ResourceTemplate]:
        """Return all templates of all servers that are connected."""
        found = []
        listed = await self._listed("templates", lambda client: client.list_resource_templates(timeout=timeout))
        for member, templates in listed:
            for template in templates:
                found.append(structs.replace(template, uri_template=member.prefix.placed(template.uri_template)))
        return found

    async def iter_resource_templates(self, *, timeout: float | None = None) -> AsyncIterator[ResourceTemplate]:
        """Return the templates one after another."""
        for template in await self.list_resource_templates(timeout=timeout):
            yield template

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ReadResourceResult:
        """Read a resource of the server whose prefix its URI has."""
        member, own = self._members.of_uri(str(uri))
        result = await member.client.read_resource(own, timeout=timeout)
        # The client of the server may keep its own copy.
        return structs.replace(result, contents=member.prefix.contents(result.contents))

    def subscribe(self, uri: str) -> Changes:
        """Hear of a resource's changes."""
        member, own = self._members.of_uri(str(uri))
        changes = member.client.subscribe(own)
        changes.shown = member.prefix.placed
        return changes

    async def subscribe_resource(self, uri: str, callback: Callable[[str], Any] | None = None) -> None:
        """Hear of a resource's changes until `unsubscribe_resource`; the callback gets the URI."""
        member, own = self._members.of_uri(str(uri))
        if callback is None:
            await member.client.subscribe_resource(own)
            return
        tell = answering(member.name, callback)
        await member.client.subscribe_resource(own, lambda changed: tell(member.prefix.placed(changed)))

    async def unsubscribe_resource(self, uri: str) -> None:
        """Hear of a resource's changes no more."""
        member, own = self._members.of_uri(str(uri))
        await member.client.unsubscribe_resource(own)

    # -- skills

    async def list_skills(self, *, timeout: float | None = None) -> list[Skill]:
        """Return the skills all connected servers list."""
        found = []
        for member, skills in await self._listed("skills", lambda client: client.list_skills(timeout=timeout)):
            found += [moved_skill(skill, member.prefix.placed) for skill in skills]
        return found

    async def iter_skills(self, *, timeout: float | None = None) -> AsyncIterator[Skill]:
        """Return the skills one after another."""
        for skill in await self.list_skills(timeout=timeout):
            yield skill

    async def get_skill(self, uri: str, *, timeout: float | None = None) -> Skill:
        """Return one skill as it is now, by the URI of its SKILL.md."""
        member, own = self._members.of_uri(uri)
        return moved_skill(await member.client.get_skill(own, timeout=timeout), member.prefix.placed)

    async def load_skill(
        self, skill: Skill | str, *, dynamic: bool = False, timeout: float | None = None
    ) -> LoadedSkill:
        """Read the SKILL.md of a skill and check it against its entry; its files have the URIs of their server."""
        if isinstance(skill, str):
            member, wanted = self._members.of_uri(skill)
            return await member.client.load_skill(wanted, dynamic=dynamic, timeout=timeout)
        member, _ = self._members.of_uri(skill.uri)
        own = moved_skill(skill, lambda uri: member.prefix.own_uri(uri) or uri)
        return await member.client.load_skill(own, dynamic=dynamic, timeout=timeout)

    async def read_directory(self, uri: str, *, timeout: float | None = None) -> list[Resource]:
        """Return what is directly in a directory of a server's."""
        member, own = self._members.of_uri(uri)
        listed = await member.client.read_directory(own, timeout=timeout)
        return [member.prefix.resource(resource) for resource in listed]

    # -- prompts and completion

    async def list_prompts(self, *, timeout: float | None = None) -> list[Prompt]:
        """Return all prompts of all servers that are connected."""
        found = []
        for member, prompts in await self._listed("prompts", lambda client: client.list_prompts(timeout=timeout)):
            for prompt in prompts:
                found.append(structs.replace(prompt, name=member.prefix.named(prompt.name)))
        return found

    async def iter_prompts(self, *, timeout: float | None = None) -> AsyncIterator[Prompt]:
        """Return the prompts one after another."""
        for prompt in await self.list_prompts(timeout=timeout):
            yield prompt

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Get a prompt of the server whose prefix its name has, filled in."""
        member, own = await self._members.of_name("prompt", name, prompt_names)
        result = await member.client.get_prompt(own, arguments, timeout=timeout)
        for message in result.messages:
            message.content = member.prefix.block(message.content)
        return result

    async def complete(
        self,
        ref: Reference | Mapping[str, object] | str,
        argument: Mapping[str, str],
        *,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
        debounce: float = 0.0,
    ) -> Completion:
        """Return suggestions for an argument of a prompt (by name) or a variable of a template (by URI)."""
        read = reference_of(ref)
        own: Reference
        if isinstance(read, PromptReference):
            member, name = await self._members.of_name("prompt", read.name, prompt_names)
            own = structs.replace(read, name=name)
        else:
            member, uri = self._members.of_uri(read.uri)
            own = structs.replace(read, uri=uri)
        return await member.client.complete(own, argument, context=context, timeout=timeout, debounce=debounce)

    # -- the rest of the protocol

    async def ping(self, timeout: float | None = None) -> float:
        """Return how long the slowest of the connected servers takes to answer."""
        times = await self._members.gather("a ping", lambda member: member.client.ping(timeout))
        return max(seconds for _, seconds in times)

    async def set_log_level(self, level: str) -> None:
        """Choose the least level of log messages the servers send."""
        await self._broadcast.set_level(level)

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Any:
        """Refuse: no server is named."""
        self._refuse("request")

    async def forward(
        self,
        method: str,
        params: Raw | bytes | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        caller: object = None,
    ) -> Foreign:
        """Refuse: no server is named."""
        self._refuse("forward")

    async def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """Refuse: no server is named."""
        self._refuse("notify")

    async def cancel(self, request_id: int | str, reason: str = "") -> None:
        """Refuse: several servers use the same ids. Cancel the asyncio task that waits for the call instead."""
        self._refuse("cancel")

    def batch(self, *, timeout: float | None = None) -> Batch:
        """Refuse: no server is named."""
        self._refuse("batch")

    def _refuse(self, name: str) -> NoReturn:
        first = next(iter(self.servers))
        raise SetupError(f"{name} names no server: use client.servers[{first!r}].client.{name}(…)")

    # -- answering

    @property
    def roots(self) -> list[Root]:
        """The folders this client works in."""
        return next(iter(self.servers.values())).client.roots

    async def add_root(self, given: GivenRoot, name: str | None = None) -> None:
        """Work in one more folder, and tell every server."""
        for member in self.servers.values():
            # One that cannot be told now asks for the roots when it is connected again.
            with suppress(CallFailed):
                await member.client.add_root(given, name)

    async def remove_root(self, given: GivenRoot) -> None:
        """Work in a folder no more, and tell every server."""
        for member in self.servers.values():
            with suppress(CallFailed):
                await member.client.remove_root(given)

    def set_sampling_handler(self, handler: AnswerHandler | None) -> None:
        """Answer sampling requests from now on; what was declared at the opening stays declared."""
        for member in self.servers.values():
            if handler is None:
                member.client.remove_sampling_handler()
            else:
                member.client.set_sampling_handler(answering(member.name, handler))

    def remove_sampling_handler(self) -> None:
        """Answer sampling requests no more."""
        self.set_sampling_handler(None)

    # -- hearing

    def on_notification(self, method: str, handler: object = None) -> Any:
        """Handle a notification of any server; `client.source` and its `_meta` name the server."""
        if handler is None:
            return lambda fn: self.on_notification(method, fn)
        for member in self.servers.values():
            member.client.on_notification(method, hearing(member.name, member.prefix, handler))
        return handler

    def remove_notification_handler(self, method: str) -> None:
        """Handle a notification no more."""
        for member in self.servers.values():
            member.client.remove_notification_handler(method)

    def on_log(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Call `handler(level, data, logger)` for the log messages of every server."""
        self.on_notification(LOG_MESSAGE, lambda p: handler(p.get("level"), p.get("data"), p.get("logger")))
        return handler

    async def watch_lists(self, *kinds: str) -> None:
        """Hear of changes of lists, `"tools"`, `"prompts"`, `"resources"`, from every server that tells of them."""
        await self._broadcast.watch_lists(kinds)

    def on_connection(self, handler: ConnectionHandler) -> ConnectionHandler:
        """Call `handler(notice)` when a server is lost, is tried again, is restored, or given up."""
        for member in self.servers.values():
            member.client.on_connection(answering(member.name, handler))
        return handler

    def on_error(self, handler: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
        """Call `handler(kind, reason)` when the conversation with a server fails."""
        for member in self.servers.values():
            member.client.on_error(answering(member.name, handler))
        return handler

    # -- what is known

    @property
    def target(self) -> Any:
        """The servers as they were given."""
        return self._target

    @property
    def servers(self) -> Mapping[str, Member]:
        """The servers by name: each has its `client`, says whether it is `connected`, and if not, its `error`."""
        return MappingProxyType(self._members.servers)

    @property
    def source(self) -> str | None:
        """The name of the server whose question or notification is being handled here; None elsewhere."""
        return SOURCE.get()

    @property
    def cache(self) -> Cache:
        """Refuse: every server has results of its own."""
        self._refuse("cache")

    @property
    def phase(self) -> Phase:
        """How far the conversations are: initialized while any server is connected."""
        return self._members.phase

    @property
    def reconnecting(self) -> bool:
        """Whether no server is connected, and one is tried again."""
        return self.phase is Phase.ERROR

    @property
    def link_state(self) -> ChildState:
        """Refuse: every server has a link of its own."""
        self._refuse("link_state")

    @property
    def connection_state(self) -> str:
        """The phase in the words of a connection: disconnected, connecting, ready."""
        if not self._members.running:
            return "disconnected"
        return CONNECTION_STATES[self.phase]

    @property
    def protocol_version(self) -> str | None:
        """The protocol revision all connected servers speak; None where they differ."""
        versions = {member.client.protocol_version for member in self._members.connected}
        if len(versions) == 1:
            return versions.pop()
        return None

    @property
    def server_info(self) -> Implementation | None:
        """Always None: each server has a name of its own, in `servers`."""
        return None

    @property
    def server_capabilities(self) -> ServerCapabilities | None:
        """What any of the connected servers declared; None where none is connected."""
        declared: dict[str, Any] = {}
        for member in self._members.connected:
            capabilities = member.client.server_capabilities
            for name in ServerCapabilities.__struct_fields__:
                value = getattr(capabilities, name, None)
                if value is not None:
                    declared.setdefault(name, value)
        if not self._members.connected:
            return None
        return ServerCapabilities(**declared)

    def extension(self, name: str) -> dict[str, Any] | None:
        """Return the settings with which the first connected server declares an extension, None when none does."""
        for member in self._members.connected:
            settings = member.client.extension(name)
            if settings is not None:
                return settings
        return None

    @property
    def negotiated(self) -> frozenset[str]:
        """What either side may use with any of the servers, in the words of the protocol."""
        return frozenset().union(*(member.client.negotiated for member in self._members.connected))

    @property
    def notification_handlers(self) -> frozenset[str]:
        """The notifications someone here handles."""
        return frozenset().union(*(member.client.notification_handlers for member in self.servers.values()))

    @property
    def instructions(self) -> str | None:
        """How the connected servers say they should be used, each under its name."""
        parts = []
        for member in self._members.connected:
            if member.client.instructions:
                parts.append(f"# {member.name}\n\n{member.client.instructions}")
        return "\n\n".join(parts) or None

    @property
    def pending(self) -> list[Awaited]:
        """Our requests that no server has answered yet."""
        found = []
        for member in self.servers.values():
            found += member.client.pending
        return found

    @property
    def subscriptions(self) -> set[str]:
        """The resources this client hears of."""
        found: set[str] = set()
        for member in self.servers.values():
            found.update(map(member.prefix.placed, member.client.subscriptions))
        return found
