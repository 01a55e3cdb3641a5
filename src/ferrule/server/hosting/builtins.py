"""What every server answers by itself: the handshake, discovery, lists, levels, subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from msgspec import Raw, structs

from ferrule.budgets.weight import full_weight
from ferrule.errors import InvalidParams, InvalidRequest, Refusal
from ferrule.protocol.call import Call, Note
from ferrule.protocol.capabilities import server_offers
from ferrule.protocol.handshake import OfferRefused
from ferrule.runtime.dispatch import Handler, Instant, NoteHandler
from ferrule.schema.completion import PromptReference
from ferrule.schema.lifecycle import (
    DiscoverResult,
    InitializeParams,
    InitializeResult,
    ListCapability,
    ResourcesCapability,
    ServerCapabilities,
)
from ferrule.schema.methods import METHODS
from ferrule.schema.model import SUBSCRIPTION_KEY, EmptyResult, Implementation, quickly
from ferrule.schema.notices import (
    ACKNOWLEDGED,
    INITIALIZED,
    LOG_LEVELS,
    PROMPTS_CHANGED,
    RESOURCES_CHANGED,
    ROOTS_CHANGED,
    TOOLS_CHANGED,
    ListenFilter,
)
from ferrule.server.calls.kept_results import PREFIX as KEPT
from ferrule.server.extensions.extension import Extensions
from ferrule.server.hosting.principals import holder_of
from ferrule.server.notifications.subscriptions import Subscriber
from ferrule.server.offers.catalogue import Catalogue, off, unknown_reference
from ferrule.server.offers.offers import Offers
from ferrule.server.offers.resources import FoundResource
from ferrule.server.offers.tool_entry import ToolEntry
from ferrule.wire.messages import Notification

if TYPE_CHECKING:
    from ferrule.runtime.tasks.tasks import Tasks


class Guards:
    """Stand in front of the handlers of one server, and let through what the caller sees."""

    def __init__(self, offers: Offers) -> None:
        self._tools = offers.tools
        self._prompts = offers.prompts
        self._resources = offers.resources
        self._visibility = offers.visibility
        self._subscriptions = offers.services.subscriptions

    def handlers(self, handlers: dict[str, Any]) -> dict[str, Handler]:
        """Guard what runs somebody's code, or waits."""
        return {
            **handlers,
            "tools/call": partial(self._call_tool, handlers["tools/call"]),
            "prompts/get": self._get_prompt,
            "resources/read": partial(self._read_resource, handlers["resources/read"]),
            "completion/complete": partial(self._complete, handlers["completion/complete"]),
            "subscriptions/listen": partial(self._listen, handlers["subscriptions/listen"]),
        }

    def instant(self, instant: dict[str, Instant]) -> dict[str, Instant]:
        """Guard what is answered on the spot; the lists look at who asks by themselves."""
        return {**instant, "resources/subscribe": partial(self._subscribe, instant["resources/subscribe"])}

    def tool(self, call: Call) -> ToolEntry | None:
        """Return the tool a call names, if there is one and its caller sees it."""
        found: ToolEntry | None = self._find(self._tools.catalogue, call.params.name, call)
        return found

    def resource(self, call: Call) -> FoundResource:
        """Find the resource a call names among those its caller sees; raises Refusal when there is none."""
        return self._found(call.params.uri, call)

    async def _call_tool(self, run: Callable[[Call, Any], Awaitable[object]], call: Call) -> Any:
        entry = self.tool(call)
        if entry is None:
            raise self._tools.missing(call.params.name)
        return await run(call, entry)

    async def _get_prompt(self, call: Call) -> Any:
        entry = self._find(self._prompts.catalogue, call.params.name, call)
        if entry is None:
            raise self._prompts.missing(call.params.name)
        return await self._prompts.fill(call, entry)

    async def _read_resource(self, read: Callable[[Call, Any], Awaitable[object]], call: Call) -> Any:
        uri = call.params.uri
        # What was kept for a caller is found by that caller alone, and is in no list.
        return await read(call, None if uri.startswith(KEPT) else self._found(uri, call))

    async def _complete(self, complete: Handler, call: Call) -> Any:
        """Complete nothing for what the caller does not see."""
        ref = call.params.ref
        if isinstance(ref, PromptReference):
            if self._find(self._prompts.catalogue, ref.name, call) is None:
                raise unknown_reference(ref)
        elif not any(self._find(catalogue, ref.uri, call) for catalogue in self._resources.catalogues):
            raise unknown_reference(ref)
        return await complete(call)

    async def _listen(self, listen: Handler, call: Call) -> Any:
        """Notify no caller of changes to what it does not see."""
        wanted = call.params.notifications
        self._subscriptions.check(wanted.resource_subscriptions or (), wanted.task_ids or ())
        uris = []
        for uri in wanted.resource_subscriptions or ():
            if not self._hides(uri, call):
                uris.append(uri)
        heard = structs.replace(wanted, resource_subscriptions=uris or None)
        call.params = structs.replace(call.params, notifications=heard)
        return await listen(call)

    def _subscribe(self, subscribe: Instant, call: Call) -> Any:
        self._subscriptions.check((call.params.uri,))
        self._found(call.params.uri, call)
        return subscribe(call)

    def _find(self, catalogue: Catalogue[Any], key: str, call: Call) -> Any:
        return self._visibility.find(call, catalogue, key)

    def _found(self, uri: str, call: Call) -> FoundResource:
        return self._resources.find_for(call, uri)

    def _hides(self, uri: str, call: Call) -> bool:
        """Return whether there is something at a URI that the caller does not see."""
        try:
            self._resources.find(uri, lambda kind, entry: True)
        except Refusal:
            return False
        try:
            self._found(uri, call)
        except Refusal:
            return True
        return False


FLAGS = {
    TOOLS_CHANGED: "tools_list_changed",
    PROMPTS_CHANGED: "prompts_list_changed",
    RESOURCES_CHANGED: "resources_list_changed",
}
"""By notice of a changed list, the member of a `subscriptions/listen` that asks for it."""

TASKS = ("tasks", "tasks.list", "tasks.cancel")

MOST_MET = 256
"""How many ways in which clients introduce themselves are remembered."""
HEAVIEST_MET = 8 * 1024
"""Estimated bytes of one that is remembered, text and all; longer ones are read anew each time."""


class Greeting(msgspec.Struct, frozen=True):
    """What a server says of itself to every client."""

    implementation: Implementation
    supported: list[str]
    """The revisions of the stateless era, and the others beside them."""


class Declared(msgspec.Struct):
    """The capabilities of a client, as it wrote them."""

    capabilities: dict[str, Any] = {}


_read_declared = msgspec.json.Decoder(Declared).decode


class Builtins:
    """The answers of one server that need no user's code."""

    def __init__(
        self,
        offers: Offers,
        extensions: Extensions,
        greeting: Greeting,
        *,
        tasks: Callable[[], Tasks],
        roots_changed: NoteHandler,
    ) -> None:
        services = offers.services
        self._offers = offers
        self._extensions = extensions
        self._greeting = greeting
        self._app = services.app
        self._tasks = tasks
        """What keeps tasks, made when it is first asked for."""
        self._roots_changed = roots_changed
        self._declared = services.settings.capabilities
        """The capabilities the server was told to declare."""
        self._capabilities = services.capabilities
        self._handshake = services.handshake
        self._links = services.links
        self._subscriptions = services.subscriptions
        self._met: dict[bytes, tuple[InitializeParams, dict[str, Any]]] = {}
        """By the params of `initialize` as they are written, what clients said of themselves."""
        self._announced: ServerCapabilities | None = None
        """What was declared last."""
        self._kinds: frozenset[str] = frozenset()
        """Which notices of changed lists follow from that."""
        self._trimmed: dict[tuple[str, bool], tuple[ServerCapabilities, Implementation]] = {}
        """What was declared last, and who we are, as each revision has it: by revision and whether the client has a
        session."""

    def instant(self) -> dict[str, Instant]:
        """Return what answers without waiting, by method."""
        offers = self._offers
        instant: dict[str, Instant] = {
            "initialize": self.initialize,
            "ping": self.ping,
            "server/discover": self.discover,
            "tools/list": self._lister(offers.tools.catalogue, "tools"),
            "prompts/list": self._lister(offers.prompts.catalogue, "prompts"),
            "resources/list": self._lister(offers.resources.catalogue, "resources"),
            "resources/templates/list": self._lister(offers.resources.templates, "resources"),
            "resources/subscribe": self.subscribe,
            "resources/unsubscribe": self.unsubscribe,
            "logging/setLevel": self.set_level,
        }
        if offers.visibility.in_use:
            return Guards(offers).instant(instant)
        return instant

    def handlers(self, *, looked_into: bool = False) -> dict[str, Handler]:
        """Return what runs a user's code, or waits; results that somebody looks into are not written ahead."""
        offers = self._offers
        handlers: dict[str, Handler] = {
            "tools/call": offers.tools.call_whole if looked_into else offers.tools.call,
            "resources/read": offers.resources.read_whole if looked_into else offers.resources.read,
            "prompts/get": offers.prompts.fill,
            "completion/complete": offers.completions.complete,
            "subscriptions/listen": self.listen,
            **self._about_tasks(),
        }
        if offers.visibility.in_use:
            handlers = Guards(offers).handlers(handlers)
        if self._declared is None:
            return handlers
        for name in handlers:
            needed = METHODS[name].capability
            if not server_offers(self._declared, needed):
                handlers[name] = _refusing(needed)
        return handlers

    def _about_tasks(self) -> dict[str, Handler]:
        """Return what answers the methods of tasks; a server that has none refuses them."""
        if self._declared is None:
            has_tasks = self._offers.tools.know_tasks
        else:
            has_tasks = server_offers(self._declared, "tasks")
        if has_tasks:
            from ferrule.runtime.tasks.methods import TaskMethods

            return TaskMethods(self._tasks()).handlers()
        found: dict[str, Handler] = {}
        for name, row in METHODS.items():
            if row.capability in TASKS:
                found[name] = _refusing(row.capability)
        return found

    def notes(self) -> dict[str, NoteHandler]:
        """Return what takes notifications, by method."""
        return {INITIALIZED: self.initialized, ROOTS_CHANGED: self._roots_changed}

    def initialize(self, call: Call) -> InitializeResult:
        """Make the handshake."""
        link = self._links.of(call)
        params, declared = self._introduced(call)
        try:
            revision = self._handshake.open(link.session, params, declared)
        except OfferRefused:
            if self._handshake.versions:
                link.loop.call_soon(call.channel.close, "unsupported protocol version")
            raise
        call.peer = link.session.peer  # type: ignore[assignment]  # known from here on
        offered = self._capabilities()
        if offered is not self._announced:
            self._announce(offered)
        self._links.greet(link, self._kinds)
        lasting = link.session.origin.lasting
        trimmed = self._trimmed.get((revision.version, lasting))
        if trimmed is None:
            trimmed = revision.trim(self._declared_to(lasting)), revision.trim(self._greeting.implementation)
            self._trimmed[revision.version, lasting] = trimmed
        capabilities, implementation = trimmed
        result: InitializeResult = quickly(
            InitializeResult,
            protocol_version=revision.version,
            capabilities=self._extended(capabilities),
            server_info=implementation,
            instructions=self._app.instructions,
        )
        return result

    def _announce(self, offered: ServerCapabilities) -> None:
        """Work out what follows from other capabilities than were declared before."""
        self._announced = offered
        self._trimmed = {}
        kinds = frozenset(kind for kind, flag in FLAGS.items() if self._tells(flag))
        if kinds != self._kinds:  # thousands of clients share one set
            self._kinds = kinds

    def _declared_to(self, lasting: bool) -> ServerCapabilities:
        """Return what is declared to a client; without a session, there is nobody to tell of changes later."""
        offered = self._capabilities()
        if lasting:
            return offered
        return structs.replace(
            offered,
            tools=None if offered.tools is None else ListCapability(),
            prompts=None if offered.prompts is None else ListCapability(),
            resources=None if offered.resources is None else ResourcesCapability(),
        )

    def _extended(self, trimmed: ServerCapabilities) -> ServerCapabilities:
        """Add the extensions this era has: they are agreed on beside the revisions, not by them."""
        declared = self._extensions.declared(handshake=True)
        if declared is None:
            return trimmed
        return structs.replace(trimmed, extensions=declared)

    def _introduced(self, call: Call) -> tuple[InitializeParams, dict[str, Any]]:
        """Return what a client said of itself; clients that say the same, as thousands do, share one copy of it."""
        words = bytes(call.raw)
        met = self._met.get(words)
        if met is None:
            try:
                met = call.params, _read_declared(words).capabilities
            except msgspec.ValidationError as reason:
                raise InvalidParams(f"Invalid params: {reason}") from None
            if full_weight(words) <= HEAVIEST_MET:
                if len(self._met) >= MOST_MET:
                    self._met.clear()
                self._met[words] = met
        return met

    def initialized(self, note: Note) -> None:
        """Called when the client is ready for requests of ours."""
        self._links.ready(self._links.behind(note))

    def ping(self, call: Call) -> EmptyResult:
        """Answer a ping."""
        return EmptyResult()

    def discover(self, call: Call) -> DiscoverResult:
        """Return what we are and can do."""
        return DiscoverResult(
            supported_versions=self._greeting.supported,
            capabilities=call.peer.revision.trim(self._capabilities()),
            instructions=self._app.instructions,
        )

    def _lister(self, catalogue: Catalogue[Any], capability: str) -> Instant:
        visibility = self._offers.visibility
        make = partial(visibility.page, catalogue) if visibility.in_use else catalogue.page
        capabilities = self._capabilities
        looked_at: ServerCapabilities | None = None  # where anything else is declared, that is another object

        def page(call: Call) -> Raw:
            nonlocal looked_at
            declared = capabilities()
            if declared is not looked_at:
                self._require(capability)
                looked_at = declared
            return make(call)

        return page

    def set_level(self, call: Call) -> EmptyResult:
        """Remember the least level this client wants."""
        self._require("logging")
        if self._links.has_session(call):
            self._links.state(call).log_level = LOG_LEVELS[call.params.level]
            self._links.said(call)
        return EmptyResult()

    def subscribe(self, call: Call) -> EmptyResult:
        """Let the client's link hear of a resource."""
        self._require("resources.subscribe")
        self._subscriptions.check((call.params.uri,))
        entry, _ = self._offers.resources.find(call.params.uri)
        if entry.scopes:
            entry.admit(call, self._offers.services)
        subscriber = self._links.subscriber(call)
        if subscriber is None:
            raise InvalidRequest("A subscription needs a session, and this server keeps none")
        self._subscriptions.subscribe(subscriber, call.params.uri)
        self._links.said(call)
        return EmptyResult()

    def unsubscribe(self, call: Call) -> EmptyResult:
        """Let the client's link hear of a resource no more."""
        self._require("resources.subscribe")
        subscriber = self._links.subscriber(call)
        if subscriber is not None:
            self._subscriptions.unsubscribe(subscriber, call.params.uri)
            self._links.said(call)
        return EmptyResult()

    async def listen(self, call: Call) -> EmptyResult:
        """Hold a subscription open until the client or the server ends it."""
        subscriber = await self._subscribed(call)
        ended = asyncio.Event()

        def end() -> None:
            self._subscriptions.remove(subscriber)
            ended.set()

        call.on_cancel = end
        try:
            await ended.wait()
        finally:
            end()
        return EmptyResult(meta={SUBSCRIPTION_KEY: call.id})

    async def _subscribed(self, call: Call) -> Subscriber:
        """Let the client hear of what it wants and this server offers, and tell it what that is."""
        wanted = call.params.notifications
        self._subscriptions.check(wanted.resource_subscriptions or (), wanted.task_ids or ())
        honoured, kinds = self._honoured(wanted)
        if wanted.task_ids:
            honoured.task_ids = await self._visible_tasks(call, wanted.task_ids)
        uris = honoured.resource_subscriptions or ()
        tasks = honoured.task_ids or ()
        owner = self._links.of(call) if self._links.has_session(call) else None
        holder = holder_of(call.origin)
        subscriber = Subscriber(call.channel, kinds, uris, call.id, call.origin.principal, tasks, owner, holder)
        self._subscriptions.add(subscriber)
        told = {"_meta": {SUBSCRIPTION_KEY: call.id}, "notifications": honoured}
        try:
            call.channel.send(Notification(ACKNOWLEDGED, told))
        except BaseException:  # it may be too long once it is escaped
            self._subscriptions.remove(subscriber)
            raise
        return subscriber

    def _honoured(self, wanted: ListenFilter) -> tuple[ListenFilter, list[str]]:
        """Choose of what is wanted what this server offers."""
        kinds = []
        for kind, flag in FLAGS.items():
            if getattr(wanted, flag) and self._tells(flag):
                kinds.append(kind)
        if self._declares("resources.subscribe"):
            uris = wanted.resource_subscriptions
        else:
            uris = None
        granted: dict[str, Any] = {FLAGS[kind]: True for kind in kinds}
        return ListenFilter(resource_subscriptions=list(uris) if uris else None, **granted), kinds

    async def _visible_tasks(self, call: Call, wanted: list[str]) -> list[str]:
        """Choose of the tasks a client wants to hear of those it may see."""
        call.era.admit_to_tasks(call)
        found: dict[str, None] = {}
        for task in wanted:
            if await self._tasks().find(call, task) is not None:
                found[task] = None
        return list(found)

    def _tells(self, flag: str) -> bool:
        return self._declares(f"{flag.partition('_')[0]}.list_changed")

    def _declares(self, capability: str) -> bool:
        return server_offers(self._capabilities(), capability)

    def _require(self, capability: str) -> None:
        if not self._declares(capability):
            raise off(capability)


def _refusing(capability: str) -> Handler:
    async def refuse(call: Call) -> NoReturn:
        raise off(capability)

    return refuse
