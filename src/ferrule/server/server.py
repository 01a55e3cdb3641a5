"""The server: decorators to offer things, options, and serving them."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from msgspec import structs

from ferrule.errors import SetupError
from ferrule.identity.verifier import ALLOW_ALL, Verifier
from ferrule.protocol.call import Call, Note
from ferrule.protocol.capabilities import server_offers
from ferrule.protocol.era import Eras
from ferrule.protocol.handshake import Handshake
from ferrule.protocol.seal import Keyring, Seal
from ferrule.protocol.stateless import CacheHints, Sealing, Stateless
from ferrule.runtime.dispatch import Handler
from ferrule.runtime.link import Link
from ferrule.runtime.requests import LinkOptions
from ferrule.runtime.sessionless import SessionlessLink
from ferrule.schema.keys import check_extensions, check_keys
from ferrule.schema.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from ferrule.schema.methods import METHODS, Method
from ferrule.schema.model import Implementation, MetaOnly, Params, Result
from ferrule.schema.prompts import Prompt
from ferrule.schema.resources import Resource, ResourceTemplate
from ferrule.schema.tasks import TASKS_EXTENSION
from ferrule.schema.tools import Tool
from ferrule.server.calls.kept_results import KeptResults
from ferrule.server.calls.threads import Threads
from ferrule.server.extensions.extension import Extensions
from ferrule.server.extensions.shortcuts import ExtensionShortcuts
from ferrule.server.foreign_names import OPTIONS, SERVER, answering
from ferrule.server.hosting.composition import Composition
from ferrule.server.hosting.lifespans import Lifespan
from ferrule.server.hosting.link_state import Links
from ferrule.server.hosting.listeners import Entrance
from ferrule.server.hosting.local import LocalCalls
from ferrule.server.hosting.routes import CustomRoutes
from ferrule.server.hosting.serving import Serving
from ferrule.server.middleware.stack import AnyLayer
from ferrule.server.notifications.announcements import Announcements
from ferrule.server.notifications.changes import ChangeNotices
from ferrule.server.notifications.subscriptions import Subscriptions
from ferrule.server.offers.completions import Completions
from ferrule.server.offers.descriptions import ToolOptions
from ferrule.server.offers.entry import Recipe
from ferrule.server.offers.prompts import PromptOptions, Prompts
from ferrule.server.offers.resources import ResourceOptions, Resources
from ferrule.server.offers.tools import Tools
from ferrule.server.offers.visibility import Visibility
from ferrule.server.settings import ServerSettings
from ferrule.settings.option import read
from ferrule.settings.sources import read_sourced
from ferrule.wire.channel import Origin, Receiver

if TYPE_CHECKING:
    from ferrule.server.keywords import OpenApiKeywords, PromptKeywords, ResourceKeywords, ServerKeywords, ToolKeywords

logger = logging.getLogger("ferrule.server")

F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L", bound=Link)
Offered = TypeVar("Offered", ToolOptions, ResourceOptions, PromptOptions)
BESIDE_SETTINGS = ("version", "lifespan", "middleware")
"""The options of a server that are no settings."""


@answering(SERVER)
class Server(LocalCalls, Announcements, Composition, CustomRoutes, ExtensionShortcuts, Serving):
    """Offers tools, resources and prompts to any MCP client, in every protocol revision."""

    def __init__(
        self,
        name: str = "ferrule",
        instructions: str | None = None,
        *,
        version: str = "0.0.0",
        lifespan: Lifespan | Sequence[Lifespan] | None = None,
        middleware: Iterable[AnyLayer] = (),
        **options: Unpack[ServerKeywords],
    ) -> None:
        _require_texts(name=name, version=version, instructions=instructions or "")
        settings = self.settings = read_sourced(
            "server", ServerSettings, options, "Server", beside=BESIDE_SETTINGS, hints=OPTIONS
        )
        check_extensions(settings.extensions or (), "Server")
        self.name = name
        self.version = version
        self.instructions = instructions
        self.implementation = _implementation(name, version, settings)
        self.threads = Threads(settings.max_threads)
        self.kept_results = KeptResults(settings.result_ttl, settings.max_kept_bytes)
        self._capabilities: ServerCapabilities | None = None
        self._declared = ServerCapabilities()
        Composition.__init__(self)
        self.visibility = Visibility(self, settings.include_tags, settings.exclude_tags)
        self.tools = Tools(self, page_size=settings.page_size, on_change=self.notify_tools_changed)
        self.resources = Resources(self, page_size=settings.page_size, on_change=self.notify_resources_changed)
        self.prompts = Prompts(self, page_size=settings.page_size, on_change=self.notify_prompts_changed)
        self.completions = Completions(self)
        self.subscriptions = Subscriptions(settings.max_subscriptions)
        self.extensions = Extensions(self, settings.extensions or {})
        self.changes = ChangeNotices(self.subscriptions, settings.list_changed_interval, settings.update_interval)
        Serving.__init__(self, lifespan)
        CustomRoutes.__init__(self)
        self.methods: dict[str, Method] = {name: row for name, row in METHODS.items() if not row.by_client}
        self._own_handlers: dict[str, Handler] = {}
        self._roots_handlers: list[Callable[[], Any]] = []
        self.handshake = Handshake(
            tuple(settings.versions), erlmcp_codes=settings.error_profile == "erlmcp", strict=settings.strict_version
        )
        self.stateless = Stateless(
            self._sealing(),
            implementation=self.implementation,
            beside=self.handshake.versions,
            hints=CacheHints(int(settings.cache_ttl * 1000), settings.cache_scope),
        )
        self.eras = Eras(self.handshake, self.stateless)
        self.links = Links(self.subscriptions, self.handshake, settings)
        self.links.on_forget = self.kept_results.forget
        self._forget, self._offered = self.links.forget, self._offers  # bound once: every session holds them
        self._link_options, self._crowd_options = _link_options(settings)
        self.observer = settings.observers
        for layer in middleware:
            self.middleware(layer)

    def _sealing(self) -> Sealing:
        keys = self.settings.request_state_keys or (os.urandom(32),)
        return Sealing(Seal(Keyring(keys)), time.time, lambda: os.urandom(12), self.settings.request_state_lifetime)

    @classmethod
    def from_openapi(cls, spec: Any, client: Any, **options: Unpack[OpenApiKeywords]) -> Self:
        """Offer a web API by its OpenAPI description; the client (an `httpx.AsyncClient`, say) makes the requests."""
        from ferrule.server.openapi.importer import from_openapi

        return from_openapi(cls, spec, client, options)

    @classmethod
    def from_fastapi(cls, application: Any, *, run_lifespan: bool = True, **options: Unpack[OpenApiKeywords]) -> Self:
        """Offer a FastAPI application; it is called in this process, without a network."""
        from ferrule.server.openapi.importer import from_fastapi

        return from_fastapi(cls, application, options, run_lifespan=run_lifespan)

    # -- offering

    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(self, fn: str | None = None, /, **options: Unpack[ToolKeywords]) -> Callable[[F], F]: ...
    def tool(self, fn: Any = None, /, **options: Unpack[ToolKeywords]) -> Any:
        """Offer a function as a tool; with or without parentheses."""
        if isinstance(fn, str):
            options["name"] = fn
        elif fn is not None:
            self.add_tool(fn, **options)
            return fn
        return _decorator(lambda f: self.add_tool(f, **options))

    @overload
    def prompt(self, fn: F, /) -> F: ...
    @overload
    def prompt(self, fn: str | None = None, /, **options: Unpack[PromptKeywords]) -> Callable[[F], F]: ...
    def prompt(self, fn: Any = None, /, **options: Unpack[PromptKeywords]) -> Any:
        """Offer a function as a prompt; with or without parentheses."""
        if isinstance(fn, str):
            options["name"] = fn
        elif fn is not None:
            self.add_prompt(fn, **options)
            return fn
        return _decorator(lambda f: self.add_prompt(f, **options))

    def resource(self, uri: str, **options: Unpack[ResourceKeywords]) -> Callable[[F], F]:
        """Offer a function as a resource, or as a template when the URI has variables."""
        if not isinstance(uri, str):
            raise SetupError('@app.resource needs the URI: @app.resource("notes://{id}")')
        return _decorator(lambda f: self.add_resource(uri, f, **options))

    resource_template = resource

    def completion(self, place: str = "") -> Callable[[F], F]:
        """Suggest values for a prompt, a template, one of their parameters, any parameter of a name, or for all."""
        if not isinstance(place, str):
            raise SetupError('@app.completion needs parentheses: @app.completion("language") or @app.completion()')

        def add(fn: Callable[..., Any]) -> None:
            self.completions.add(place, fn)
            self._capabilities = None

        return _decorator(add)

    def method(self, name: str, *, params: type[Params] = MetaOnly, result: type[Result] = Result) -> Callable[[F], F]:
        """Answer a method of your own; the handler gets its params, a Context if it takes one, and dependencies."""
        from ferrule.server.extensions.own_methods import answerer

        if not isinstance(name, str):
            raise SetupError('@app.method needs the name: @app.method("vendor/name")')
        if name in METHODS:
            raise SetupError(f"app.method: {name} is a method of the protocol itself; use app.middleware to change it")
        row = Method(name, params, result, read_only=False)
        return _decorator(lambda fn: self.add_method(row, answerer(self, fn)))

    def add_method(self, row: Method, handler: Handler) -> None:
        """Answer one more method."""
        self.methods[row.name] = row
        self._own_handlers[row.name] = handler
        self.recompose()

    def add_tool(self, fn: Any, handler: Callable[..., Any] | None = None, **options: Unpack[ToolKeywords]) -> Tool:
        """Offer a tool: `add_tool(fn)`, `add_tool("name", fn)` or `add_tool(transformed(…))`."""
        if isinstance(fn, str):
            options["name"], fn = fn, handler
        if options.get("ui") is not None:
            self.apps()
        if isinstance(fn, Recipe):
            return fn.offer(self, _options(ToolOptions, options, "a tool")).tool  # type: ignore[no-any-return]
        return self.tools.add(fn, _options(ToolOptions, options, f"the tool {_name(fn, options)}")).tool

    def remove_tool(self, name: str) -> None:
        """Offer a tool no longer."""
        self.tools.catalogue.remove(name)

    def add_resource(
        self, uri: str, fn: Callable[..., Any], **options: Unpack[ResourceKeywords]
    ) -> Resource | ResourceTemplate:
        """Offer a resource, or a template when the URI has variables."""
        return self.resources.add(uri, fn, _options(ResourceOptions, options, f"the resource {uri}")).listed

    add_resource_template = add_resource

    def remove_resource(self, uri: str) -> None:
        """Offer a resource or template no longer."""
        self.resources.remove(uri)

    remove_resource_template = remove_resource

    def add_prompt(
        self, fn: Any, handler: Callable[..., Any] | None = None, **options: Unpack[PromptKeywords]
    ) -> Prompt:
        """Offer a prompt: `add_prompt(fn)` or `add_prompt("name", fn)`."""
        if isinstance(fn, str):
            options["name"], fn = fn, handler
        return self.prompts.add(fn, _options(PromptOptions, options, f"the prompt {_name(fn, options)}")).prompt

    def remove_prompt(self, name: str) -> None:
        """Offer a prompt no longer."""
        self.prompts.catalogue.remove(name)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop this server lives in, while anyone uses it."""
        return self.changes.loop

    @property
    def capabilities(self) -> ServerCapabilities:
        """What this server declares: what it was told to, else what it offers now."""
        if self._capabilities is None:
            self._capabilities = self._declared = self.settings.capabilities or self._derived()
            extensions = self.extensions.declared(handshake=False)
            if extensions:
                told = self._capabilities.extensions or {}
                self._capabilities = structs.replace(self._capabilities, extensions={**told, **extensions})
        return self._capabilities

    def _derived(self) -> ServerCapabilities:
        # What is switched off or removed counts: it may come back, and a capability cannot; whoever was told of one has
        # its list answered, possibly empty (MCP, server/resources, "Capabilities"). Tasks outlive the tools they ran.
        changes = ListCapability(list_changed=True)
        tools = self.tools.catalogue.registered or self._declared.tools
        prompts = self.prompts.catalogue.registered or self._declared.prompts
        return ServerCapabilities(
            tools=changes if tools else None,
            prompts=changes if prompts else None,
            resources=ResourcesCapability(subscribe=True, list_changed=True) if self._reads() else None,
            completions={} if self.completions.offered else None,
            logging={} if self._may_log() else None,
            tasks=self.tasks.offered if self.tools.know_tasks else None,
            extensions={TASKS_EXTENSION: {}} if self.tools.know_tasks else None,
        )

    def _reads(self) -> bool:
        """Return whether there is anything to read: resources, or results that are answered with a link."""
        if self.resources.offered or self._declared.resources:
            return True
        return any(entry.links for entry in self.tools.catalogue.registered.values())

    def _may_log(self) -> bool:
        bindings = [
            *(entry.binding for entry in self.tools.catalogue.registered.values()),
            *(entry.binding for entry in self.prompts.catalogue.registered.values()),
            *(entry.binding for entry in self.resources.catalogue.registered.values()),
            *(entry.binding for entry in self.resources.templates.registered.values()),
        ]
        return any(binding.context_parameter is not None for binding in bindings)

    # -- links

    @property
    def verifier(self) -> Verifier:
        """Who decides who a caller is."""
        return self.settings.auth or ALLOW_ALL

    def link(self, origin: Origin, entrance: Entrance | None = None) -> Link:
        """Return a receiver for one new peer."""
        return self._linked(Link, origin, self._link_options, entrance)

    def crowd(self, origin: Origin, version: str = "", entrance: Entrance | None = None) -> SessionlessLink:
        """Return one receiver for everyone who asks without a session, of the stateless era or of one revision."""
        crowd = self._linked(SessionlessLink, origin, self._crowd_options, entrance)
        if version:
            crowd.session.agree(self.handshake.stranger(version))
        return crowd

    def busy(self, link: Receiver) -> bool:
        """Return whether calls run on a link."""
        return isinstance(link, Link) and bool(link.session.running)

    def mirrored(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Return which arguments of a tool its HTTP headers mirror."""
        return self.tools.mirrored(tool)

    def _linked(self, kind: type[L], origin: Origin, options: LinkOptions, entrance: Entrance | None) -> L:
        link = kind(
            self.eras,
            self.methods,
            self.dispatcher,
            origin,
            options=options,
            on_opened=self.links.opened,
            on_closed=self._forget,
        )
        link.session.offers = self._offered
        if self.observer is not None:
            from ferrule.runtime.watch import watch_on

            shared = issubclass(kind, SessionlessLink)
            link.watch = watch_on(
                link.session, self.observer, origin.carrier, "server", address=origin.address, shared=shared
            )
        self.links.remember(link, entrance)
        return link

    def _offers(self, capability: str) -> bool:
        return server_offers(self.capabilities, capability)

    @property
    def sessions(self) -> list[Link]:
        """The links that are open now."""
        return list(self.links)

    def roots_changed(self, note: Note) -> None:
        """Called when a client's roots changed."""
        link = self.links.behind(note)
        for handler in self._roots_handlers:
            try:
                value = handler()
            except Exception:
                logger.exception("a handler of changed roots failed")
            else:
                if inspect.iscoroutine(value):
                    link.scope.spawn(value)

    def wants_log(self, call: Call, rank: int) -> bool:
        """Return whether the caller wants a log message of this rank."""
        return self.capabilities.logging is not None and self.links.wants_log(call, rank)


def _implementation(name: str, version: str, settings: ServerSettings) -> Implementation:
    """Say who we are."""
    return Implementation(
        name=name,
        version=version,
        title=settings.title,
        description=settings.description,
        website_url=settings.website_url,
        icons=settings.icons,
    )


def _link_options(settings: ServerSettings) -> tuple[LinkOptions, LinkOptions]:
    """Return the options of a session's link, and of the one link of those without a session."""
    one = LinkOptions(
        max_running=settings.max_concurrent_per_session,
        max_waiting=settings.max_waiting_per_session,
        allow_batch=settings.allow_batch,
        keepalive_interval=settings.keepalive_interval,
        pong_timeout=settings.pong_timeout,
        max_missed=settings.max_missed,
    )
    return one, structs.replace(one, max_running=settings.max_concurrent, max_waiting=settings.max_waiting)


def _require_texts(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, str):
            raise SetupError(f"Server: {name} must be a str, not {value!r}")


def _decorator(register: Callable[[Any], Any]) -> Callable[[F], F]:
    def decorate(fn: F) -> F:
        register(fn)
        return fn

    return decorate


def _name(fn: Any, options: Mapping[str, Any]) -> str:
    """Say what a handler is called, for errors."""
    return str(options.get("name") or getattr(fn, "__name__", type(fn).__name__))


def _options(kind: type[Offered], options: Mapping[str, Any], what: str) -> Offered:
    made = read(kind, options, what, hints=OPTIONS)
    check_keys(made.meta or (), what)
    return made
