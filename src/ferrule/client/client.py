"""The client: one method a feature, each handed to the part that does it."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec
from msgspec import Raw, structs

from ferrule.client.era.contract import TaskChoice
from ferrule.client.features.answers import ASKED_ON, AnswerHandler, AskedOn, QuestionHandlers
from ferrule.client.features.batch import Batch
from ferrule.client.features.cache import Cache
from ferrule.client.features.completions import Completions
from ferrule.client.features.progress import ProgressHandler
from ferrule.client.features.requests import Requests, given
from ferrule.client.features.roots import GivenRoot, Roots
from ferrule.client.features.skills import ROWS as SKILL_ROWS
from ferrule.client.features.skills import LoadedSkill, SkillRequests
from ferrule.client.features.subscription import Changes
from ferrule.client.features.task_requests import TaskRequests
from ferrule.client.features.tasks import Task
from ferrule.client.features.tool_calls import ToolCalls
from ferrule.client.features.tool_facts import HandlingRules, ToolFacts
from ferrule.client.link.connector import Connector
from ferrule.client.link.conversation import RequestOptions
from ferrule.client.link.keeper import Keeper, PhaseHandler
from ferrule.client.link.reconnect import ConnectionHandler
from ferrule.client.notifications import Notifications
from ferrule.client.settings import ClientSettings, read_settings, require_level
from ferrule.client.state import ServerState
from ferrule.client.targets import is_group, is_several
from ferrule.errors import Cancelled, SetupError
from ferrule.protocol.call import Awaited
from ferrule.protocol.foreign import Foreign
from ferrule.protocol.session import Phase
from ferrule.schema.completion import Completion, Reference
from ferrule.schema.lifecycle import InitializeResult, ServerCapabilities
from ferrule.schema.methods import METHODS
from ferrule.schema.model import Implementation
from ferrule.schema.prompts import GetPromptResult, Prompt
from ferrule.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from ferrule.schema.roots import Root
from ferrule.schema.skills import Skill
from ferrule.schema.tasks import Task as TaskState
from ferrule.schema.tools import CallToolResult, Tool

DRAIN = 5.0
"""How long a closing client waits for answers."""

ROWS = {**METHODS, **SKILL_ROWS}

if TYPE_CHECKING:
    from ferrule.client.keywords import ClientKeywords
    from ferrule.supervision.child import ChildState


class Client:
    """Reaches one server, one of several that offer the same, or several side by side, and uses what they offer."""

    def __new__(
        cls,
        target: object,
        *,
        sampling: AnswerHandler | None = None,
        elicitation: AnswerHandler | None = None,
        url_elicitation: AnswerHandler | None = None,
        roots: Iterable[object] | Callable[[], object] | None = None,
        **options: Unpack[ClientKeywords],
    ) -> Self:
        """Return a client; with a list of targets, one that routes each call to one of them; with a dict, of all."""
        if cls is Client and is_group(target):
            routed: type[Self] = importlib.import_module("ferrule.routing.client").RoutedClient
            return super().__new__(routed)
        if cls is Client and is_several(target):
            combined: type[Self] = importlib.import_module("ferrule.routing.combined.client").CombinedClient
            return super().__new__(combined)
        return super().__new__(cls)

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
        settings = read_settings(options)
        answering = _answering(sampling, elicitation, url_elicitation, roots, settings)
        tools = ToolFacts()
        self.settings = settings
        self.answering = answering
        self._connector = Connector(target, settings, answering, HandlingRules(ROWS, tools))
        keeper = self._keeper = Keeper(self._connector, settings)
        requests = self._requests = Requests(keeper, settings, ROWS)
        self._roots = Roots(keeper, answering, settings.root_check_interval)
        self._notifications = keeper.knowledge = Notifications(keeper, requests, tools, self._roots)
        self._tasks = TaskRequests(keeper, requests, self._notifications, tools, answering, settings.task_patience)
        self._tools = ToolCalls(keeper, requests, self._tasks, tools, settings)
        self._skills = SkillRequests(keeper, requests, strict=settings.strict)
        self._completions = Completions(keeper, requests, settings.request_timeout)
        self._state = ServerState(keeper)
        self._phases = keeper.phases

    # -- beginning and end

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(DRAIN if error is None else 0.0)

    async def connect(self, *, timeout: float | None = None) -> None:
        """Reach the server and settle the protocol; the time-out is for the handshake."""
        await self._keeper.connect(timeout)

    async def initialize(self, *, timeout: float | None = None) -> InitializeResult:
        """Connect, and return what the server says of itself, in either era."""
        await self.connect(timeout=timeout)
        return InitializeResult(
            protocol_version=self.protocol_version or "",
            capabilities=self.server_capabilities or ServerCapabilities(),
            server_info=self.server_info or Implementation(name="", version=""),
            instructions=self.instructions,
        )

    async def reconnect(self) -> None:
        """End the conversation and start a new one; a child process is started afresh."""
        await self.close(0.0)
        await self.connect()

    async def close(self, drain: float = DRAIN) -> None:
        """Ask nothing more, wait up to `drain` seconds for what was asked, and end; harmless when called again."""
        await self._keeper.close(drain)

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
        """Call a tool; raises ToolError when it failed, unless `raise_on_error` is off.

        A call that becomes a task is followed to its end; `task` wants one, refuses one, or says how long to keep it.
        """
        return await self._tools.call(name, arguments or {}, timeout, on_progress, meta, raise_on_error, task)

    async def list_tools(self, *, timeout: float | None = None) -> list[Tool]:
        """Return all tools, from all pages."""
        return await self._tools.list(timeout)

    def iter_tools(self, *, timeout: float | None = None) -> AsyncIterator[Tool]:
        """Return the tools one after another, page by page."""
        return self._tools.pages(timeout)

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
        return await self._tools.start_task(name, arguments or {}, self._tools.how(timeout, meta=meta), ttl)

    def task(self, task_id: str) -> Task:
        """Come back to a task by its id, also one that another client or an earlier process has started."""
        return Task(self._tasks, task_id)

    async def list_tasks(self, *, timeout: float | None = None) -> list[TaskState]:
        """Return this session's or this principal's tasks, from all pages (handshake era)."""
        return [state async for state in self._tasks.pages(timeout)]

    def iter_tasks(self, *, timeout: float | None = None) -> AsyncIterator[TaskState]:
        """Return the tasks one after another, page by page (handshake era)."""
        return self._tasks.pages(timeout)

    async def get_task(self, task_id: str) -> TaskState:
        """Look how a task stands."""
        return await self._tasks.get(task_id)

    async def cancel_task(self, task_id: str) -> None:
        """Ask the server to end a task."""
        await self._tasks.cancel(task_id)

    # -- resources

    async def list_resources(self, *, timeout: float | None = None) -> list[Resource]:
        """Return all resources, from all pages."""
        return await self._requests.listed(lambda: self.iter_resources(timeout=timeout))

    def iter_resources(self, *, timeout: float | None = None) -> AsyncIterator[Resource]:
        """Return the resources one after another, page by page."""
        return self._requests.pages("resources/list", "resources", timeout)

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[ResourceTemplate]:
        """Return all templates, from all pages."""
        return await self._requests.listed(lambda: self.iter_resource_templates(timeout=timeout))

    def iter_resource_templates(self, *, timeout: float | None = None) -> AsyncIterator[ResourceTemplate]:
        """Return the templates one after another, page by page."""
        return self._requests.pages("resources/templates/list", "resource_templates", timeout)

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ReadResourceResult:
        """Read a resource."""
        return await self._requests.read_resource(uri, timeout)

    def subscribe(self, uri: str) -> Changes:
        """Hear of a resource's changes: `async with client.subscribe(uri) as changes: async for uri in changes: …`."""
        return Changes(self._notifications.subscriptions, str(uri))

    async def subscribe_resource(self, uri: str, callback: Callable[[str], Any] | None = None) -> None:
        """Hear of a resource's changes until `unsubscribe_resource`; the callback gets the URI."""
        await self._notifications.subscribe(uri, callback)

    async def unsubscribe_resource(self, uri: str) -> None:
        """Hear of a resource's changes no more."""
        await self._notifications.unsubscribe(uri)

    # -- skills

    async def list_skills(self, *, timeout: float | None = None) -> list[Skill]:
        """Return the skills the server lists, from all pages; it may serve others too."""
        return await self._requests.listed(lambda: self.iter_skills(timeout=timeout))

    def iter_skills(self, *, timeout: float | None = None) -> AsyncIterator[Skill]:
        """Return the skills one after another, page by page."""
        return self._skills.pages(timeout)

    async def get_skill(self, uri: str, *, timeout: float | None = None) -> Skill:
        """Return one skill as it is now, by the URI of its SKILL.md."""
        return await self._skills.get(uri, timeout)

    async def load_skill(
        self, skill: Skill | str, *, dynamic: bool = False, timeout: float | None = None
    ) -> LoadedSkill:
        """Read the SKILL.md of a skill and check it against its entry; one without digests only if `dynamic`."""
        return await self._skills.load(skill, timeout, dynamic=dynamic)

    async def read_skill_file(
        self, skill: LoadedSkill, path: str, *, timeout: float | None = None
    ) -> ReadResourceResult:
        """Read a file of a loaded skill: the same as `await skill.read(path)`."""
        return await skill.read(path, timeout=timeout)

    async def read_directory(self, uri: str, *, timeout: float | None = None) -> list[Resource]:
        """Return what is directly in a directory of the server's."""
        return await self._skills.read_directory(uri, timeout)

    # -- prompts and completion

    async def list_prompts(self, *, timeout: float | None = None) -> list[Prompt]:
        """Return all prompts, from all pages."""
        return await self._requests.listed(lambda: self.iter_prompts(timeout=timeout))

    def iter_prompts(self, *, timeout: float | None = None) -> AsyncIterator[Prompt]:
        """Return the prompts one after another, page by page."""
        return self._requests.pages("prompts/list", "prompts", timeout)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Get a prompt, filled in."""
        result: GetPromptResult = await self._requests.ask(
            "prompts/get", {"name": name, "arguments": arguments or {}}, timeout
        )
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
        """Return suggestions for an argument of a prompt (by name) or a variable of a template (by URI).

        With `debounce` the server is asked once so many seconds passed without a later call for the same argument,
        which makes the earlier ones end with Cancelled: call it at every key that is pressed.
        """
        return await self._completions.complete(ref, argument, context, timeout, debounce)

    # -- the rest of the protocol

    async def ping(self, timeout: float | None = None) -> float:
        """Return how long the server takes to answer; in the stateless era it is asked to discover itself."""
        patience = given(timeout, self.settings.ping_timeout)
        method = (await self._keeper.when_connected(patience)).era.liveness
        started = time.perf_counter()
        await self._keeper.ask(method, {}, RequestOptions(patience))
        return time.perf_counter() - started

    async def set_log_level(self, level: str) -> None:
        """Choose the least level of log messages the server sends; in the stateless era each request says it."""
        require_level(level)
        await self._notifications.set_level(level, self.settings.request_timeout)

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Any:
        """Send any request and return its result as plain values."""
        members = dict(params or {})
        meta = members.pop("_meta", None)
        how = self._requests.how(given(timeout, self.settings.request_timeout), meta=meta)
        if method == "tools/call" or method.startswith("tasks/"):
            # Who calls by hand wants the answer; who asks about tasks by hand knows them.
            how = structs.replace(how, tasks=method != "tools/call")
        result = msgspec.json.decode(await self._keeper.ask(method, members, how))
        if isinstance(result, dict):
            self._requests.require_complete(method, result.get("resultType"))
        return result

    async def forward(
        self,
        method: str,
        params: Raw | bytes | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        caller: object = None,
    ) -> Foreign:
        """Send the params of any request as JSON, and return its result as the server wrote it, with the revision.

        What `_meta` says of whom the params came from is replaced. Questions the server asks meanwhile are answered
        by this client's handlers, who find `caller` in `client.asked_on`.
        """
        return await self._requests.forward(method, params, timeout, on_progress, caller)

    async def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """Send any notification."""
        await self._keeper.notify(method, dict(params or {}))

    async def cancel(self, request_id: int | str, reason: str = "") -> None:
        """Stop waiting for one of our requests and tell the server."""
        link = self._keeper.current().live()
        awaited = link.session.awaited.get(request_id)
        if awaited is not None:
            link.abandon(awaited, reason)
            if not awaited.waiter.done():
                awaited.waiter.set_exception(Cancelled(reason or f"{awaited.method} was cancelled"))

    def batch(self, *, timeout: float | None = None) -> Batch:
        """Send several requests as one array: `async with client.batch() as b: tools = b.request("tools/list")`."""
        patience = given(timeout, self.settings.request_timeout)
        return Batch(self._keeper, patience, allowed=self.settings.allow_batch)

    async def send_batch(self, requests: Iterable[tuple[str, Mapping[str, object] | None]]) -> list[Any]:
        """Send requests as one array; returns each one's result or exception."""
        async with self.batch() as batch:
            futures = []
            for method, params in requests:
                futures.append(batch.request(method, dict(params or {})))
        return list(await asyncio.gather(*futures, return_exceptions=True))

    # -- answering

    @property
    def asked_on(self) -> AskedOn | None:
        """On which of our calls the question came that is being answered here; None where that cannot be known."""
        return ASKED_ON.get()

    @property
    def roots(self) -> list[Root]:
        """The folders this client works in."""
        return self._roots.listed

    async def add_root(self, given: GivenRoot, name: str | None = None) -> None:
        """Work in one more folder, and tell the server."""
        await self._roots.add(given, name)

    async def remove_root(self, given: GivenRoot) -> None:
        """Work in a folder no more, and tell the server."""
        await self._roots.remove(given)

    def set_sampling_handler(self, handler: AnswerHandler | None) -> None:
        """Answer sampling requests from now on; what was declared at the opening stays declared."""
        self.answering.sampling = handler

    def remove_sampling_handler(self) -> None:
        """Answer sampling requests no more."""
        self.answering.sampling = None

    # -- hearing

    def on_notification(self, method: str, handler: object = None) -> Any:
        """Handle a notification by `f(params)`, `f(method, params)`, a queue or "module:function"; also a decorator."""
        if handler is None:
            return lambda fn: self.on_notification(method, fn)
        self._notifications.on(method, handler)
        return handler

    def remove_notification_handler(self, method: str) -> None:
        """Handle a notification no more."""
        self._notifications.inbox.off(method)

    def on_log(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Call `handler(level, data, logger)` for the server's log messages."""
        self._notifications.on_log(handler)
        return handler

    async def watch_lists(self, *kinds: str) -> None:
        """Hear of changes of lists, `"tools"`, `"prompts"`, `"resources"`; the handshake era tells unasked."""
        await self._notifications.watch_lists(kinds)

    def on_phase_change(self, handler: PhaseHandler) -> PhaseHandler:
        """Call `handler(old, new)` when the phase changes."""
        self._phases.on_change(handler)
        return handler

    def on_connected(self, handler: Callable[[], object]) -> Callable[[], object]:
        """Call `handler()` when the conversation is open."""
        self._phases.on_enter(Phase.INITIALIZED, handler)
        return handler

    def on_disconnected(self, handler: Callable[[], object]) -> Callable[[], object]:
        """Call `handler()` when an open conversation ends, by our will or not."""
        self._phases.on_leave(Phase.INITIALIZED, handler)
        return handler

    def on_connection(self, handler: ConnectionHandler) -> ConnectionHandler:
        """Call `handler(notice)` when the link is lost, is tried again, is restored, or given up."""
        self._keeper.reconnection.on_notice(handler)
        return handler

    def on_error(self, handler: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
        """Call `handler(kind, reason)` when the conversation fails: the exception's name and its sentence."""

        def failed() -> None:
            error = self._keeper.current().failure
            handler(type(error).__name__, str(error))

        self._phases.on_enter(Phase.ERROR, failed)
        return handler

    # -- what is known

    @property
    def target(self) -> Any:
        """The server as it was given."""
        return self._connector.target

    @property
    def router(self) -> Any:
        """The router of a client of several targets, `Client([target, …])`; raise SetupError for any other."""
        raise SetupError("only a client of several targets has a router: give a list, as in Client([target, …])")

    @property
    def servers(self) -> Mapping[str, Any]:
        """The servers of a client of several, by name, each with its client and why it is away."""
        raise SetupError('only a client of several servers names them: give a dict, as in Client({"a": target, …})')

    @property
    def source(self) -> str | None:
        """The name of the server whose question or notification is being handled here; None if there is but one."""
        return None

    @property
    def cache(self) -> Cache:
        """The results that are kept."""
        return self._requests.cache

    @property
    def phase(self) -> Phase:
        """How far the conversation is."""
        return self._keeper.phase

    @property
    def reconnecting(self) -> bool:
        """Whether the link was lost and a new one is being opened, or waited for."""
        return self._keeper.reconnection.active

    @property
    def link_state(self) -> ChildState:
        """The state of the link and of the server process behind it, how often it was restarted, and why it is away."""
        return self._keeper.describe()

    @property
    def connection_state(self) -> str:
        """The phase in the words of a connection: disconnected, connecting, connected, ready."""
        return self._state.connection

    @property
    def protocol_version(self) -> str | None:
        """The protocol revision that was settled on."""
        return self._state.version

    @property
    def server_info(self) -> Implementation | None:
        """The server's own name and version; for display and logs only."""
        return self._state.implementation

    @property
    def server_capabilities(self) -> ServerCapabilities | None:
        """What the server declared."""
        return self._state.capabilities

    def extension(self, name: str) -> dict[str, Any] | None:
        """Return the settings with which the server declares an extension, None when it does not."""
        return self._state.extension(name)

    @property
    def negotiated(self) -> frozenset[str]:
        """What either side may use, in the words of the protocol: `tools`, `resources.subscribe`, `sampling`."""
        return self._state.negotiated

    @property
    def notification_handlers(self) -> frozenset[str]:
        """The notifications someone here handles."""
        return self._notifications.inbox.methods

    @property
    def instructions(self) -> str | None:
        """How the server says it should be used."""
        return self._state.instructions

    @property
    def pending(self) -> list[Awaited]:
        """Our requests that are not answered yet, with method and start time."""
        return self._state.pending

    @property
    def subscriptions(self) -> set[str]:
        """The resources this client hears of."""
        return set(self._notifications.subscriptions.uris)


def _answering(
    sampling: AnswerHandler | None,
    elicitation: AnswerHandler | None,
    url_elicitation: AnswerHandler | None,
    roots: Iterable[object] | Callable[[], object] | None,
    settings: ClientSettings,
) -> QuestionHandlers:
    return QuestionHandlers(
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
