"""The server: decorators to offer things, options, and serving them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from ferrule.errors import SetupError
from ferrule.runtime.link import Link
from ferrule.schema.apps import APPS
from ferrule.schema.keys import check_extensions, check_keys
from ferrule.schema.methods import METHODS, Method
from ferrule.schema.model import MetaOnly, Params, Result
from ferrule.schema.notices import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED
from ferrule.schema.prompts import GetPromptResult, Prompt
from ferrule.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from ferrule.schema.tools import CallToolResult, Tool
from ferrule.server.calls.context import Context
from ferrule.server.extensions.extension import Extension
from ferrule.server.foreign_names import OPTIONS, SERVER, answering
from ferrule.server.hosting.host import Host
from ferrule.server.hosting.lifespans import Lifespan, listed
from ferrule.server.hosting.local import LocalCalls
from ferrule.server.hosting.runner import Runner
from ferrule.server.middleware.hooks import Middleware
from ferrule.server.middleware.stack import AnyLayer, checked
from ferrule.server.notifications.subscriptions import CallbackSubscriber, Subscriber
from ferrule.server.offers.descriptions import ToolOptions
from ferrule.server.offers.entry import ResourceLike, decorator, handler_name, is_prompt, is_resource, is_tool
from ferrule.server.offers.mount_point import Rule
from ferrule.server.offers.prompts import PromptOptions
from ferrule.server.offers.resource_entry import ResourceOptions
from ferrule.server.offers.tool_entry import ToolEntry
from ferrule.server.offers.tools import Recipe
from ferrule.server.settings import ServerSettings, require_texts
from ferrule.settings.option import read
from ferrule.settings.sources import read_sourced
from ferrule.transports.contract import Listener
from ferrule.wire.channel import Origin

if TYPE_CHECKING:
    from ferrule.registry.local import LocalRegistry
    from ferrule.server.extensions.apps import Apps
    from ferrule.server.extensions.skills import Skills
    from ferrule.server.folder.folder import Folder
    from ferrule.server.keywords import (
        OpenApiKeywords,
        PageKeywords,
        PromptKeywords,
        ResourceKeywords,
        ServerKeywords,
        ToolKeywords,
    )
    from ferrule.server.offers.mounts import Mounts
    from ferrule.supervision.supervisor import Supervisor
    from ferrule.telemetry.health import HealthMonitor
    from ferrule.telemetry.metrics import Metrics
    from ferrule.transports.graphql.keywords import GraphqlKeywords
    from ferrule.transports.http.asgi.app import AsgiApp
    from ferrule.transports.keywords import (
        AsgiKeywords,
        HttpKeywords,
        ListenerKeywords,
        StdioKeywords,
        TcpKeywords,
        UnixKeywords,
        WebSocketKeywords,
        WebSocketListenerKeywords,
    )

logger = logging.getLogger("ferrule.server")

F = TypeVar("F", bound=Callable[..., Any])
Offered = TypeVar("Offered", ToolOptions, ResourceOptions, PromptOptions)
BESIDE_SETTINGS = ("version", "lifespan", "middleware")
"""The options of a server that are no settings."""
E = TypeVar("E", bound=Extension)
AddedLayer = TypeVar("AddedLayer", bound=AnyLayer)
AddedRule = TypeVar("AddedRule", bound=Rule)


@answering(SERVER)
class Server:
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
        require_texts(name=name, version=version, instructions=instructions or "")
        settings = self.settings = read_sourced(
            "server", ServerSettings, options, "Server", beside=BESIDE_SETTINGS, hints=OPTIONS
        )
        check_extensions(settings.extensions or (), "Server")
        self.name = name
        self.version = version
        self.instructions = instructions
        self.host = Host(self, settings, listed(lifespan))
        self.offers = self.host.offers
        self.threads = self.host.services.threads
        self._runner = Runner(self.host)
        self.listeners = self._runner.listeners
        self._local = LocalCalls(self.host)
        for layer in (*self.host.own_layers(), *middleware):
            self.middleware(layer)

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
        return decorator(lambda f: self.add_tool(f, **options))

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
        return decorator(lambda f: self.add_prompt(f, **options))

    def resource(self, uri: str, **options: Unpack[ResourceKeywords]) -> Callable[[F], F]:
        """Offer a function as a resource, or as a template when the URI has variables."""
        if not isinstance(uri, str):
            raise SetupError('@app.resource needs the URI: @app.resource("notes://{id}")')
        return decorator(lambda f: self.add_resource(uri, f, **options))

    resource_template = resource

    def completion(self, place: str = "") -> Callable[[F], F]:
        """Suggest values for a prompt, a template, one of their parameters, any parameter of a name, or for all."""
        if not isinstance(place, str):
            raise SetupError('@app.completion needs parentheses: @app.completion("language") or @app.completion()')

        return decorator(lambda fn: self.offers.complete(place, fn))

    def method(self, name: str, *, params: type[Params] = MetaOnly, result: type[Result] = Result) -> Callable[[F], F]:
        """Answer a method of your own; the handler gets its params, a Context if it takes one, and dependencies."""
        from ferrule.server.extensions.own_methods import answerer

        if not isinstance(name, str):
            raise SetupError('@app.method needs the name: @app.method("vendor/name")')
        if name in METHODS:
            raise SetupError(f"app.method: {name} is a method of the protocol itself; use app.middleware to change it")
        row = Method(name, params, result, read_only=False)
        return decorator(lambda fn: self.host.methods.add(row, answerer(self.host.services, fn)))

    def add_tool(self, fn: Any, handler: Callable[..., Any] | None = None, **options: Unpack[ToolKeywords]) -> Tool:
        """Offer a tool: `add_tool(fn)`, `add_tool("name", fn)`, `add_tool(transformed(…))`, `add_tool(ToolLike)`."""
        if isinstance(fn, str):
            options["name"], fn = fn, handler
        if options.get("ui") is not None:
            self.apps()
        if isinstance(fn, Recipe):
            return fn.offer(self.offers.tools, _options(ToolOptions, options, "a tool")).tool
        made = _options(ToolOptions, options, f"the tool {handler_name(fn, options)}")
        if is_tool(fn):
            return self.offers.tools.add_object(fn, made).tool
        return self.offers.tools.add(fn, made).tool

    def remove_tool(self, name: str) -> None:
        """Offer a tool no longer."""
        self.offers.tools.remove(name)

    def add_resource(
        self, uri: str | ResourceLike, fn: Callable[..., Any] | None = None, **options: Unpack[ResourceKeywords]
    ) -> Resource | ResourceTemplate:
        """Offer a resource, or a template when the URI has variables; or an object (`ResourceLike`)."""
        made = _options(ResourceOptions, options, f"the resource {uri}")
        if is_resource(uri):
            return self.offers.resources.add_object(uri, made).listed
        if not isinstance(uri, str) or fn is None:
            raise SetupError(f"app.add_resource needs a URI and a function, or an object, not {uri!r} alone")
        return self.offers.resources.add(uri, fn, made).listed

    add_resource_template = add_resource

    def remove_resource(self, uri: str) -> None:
        """Offer a resource or template no longer."""
        self.offers.resources.remove(uri)

    remove_resource_template = remove_resource

    def add_prompt(
        self, fn: Any, handler: Callable[..., Any] | None = None, **options: Unpack[PromptKeywords]
    ) -> Prompt:
        """Offer a prompt: `add_prompt(fn)`, `add_prompt("name", fn)` or an object (`PromptLike`)."""
        if isinstance(fn, str):
            options["name"], fn = fn, handler
        made = _options(PromptOptions, options, f"the prompt {handler_name(fn, options)}")
        if is_prompt(fn):
            return self.offers.prompts.add_object(fn, made).prompt
        return self.offers.prompts.add(fn, made).prompt

    def remove_prompt(self, name: str) -> None:
        """Offer a prompt no longer."""
        self.offers.prompts.remove(name)

    def get_tool(self, name: str) -> ToolEntry:
        """Return one of the tools, for `transformed`."""
        catalogue = self.offers.tools.catalogue
        entry = catalogue.registered.get(name)
        if entry is None:
            raise SetupError(f"there is no tool {name!r}{catalogue.hint(name)}")
        return entry

    # -- middleware and other servers

    def middleware(self, layer: AddedLayer) -> AddedLayer:
        """Run something around calls: a `Middleware`, or an `async def layer(call, proceed)`."""
        checked(layer, "app.middleware")
        self.host.layers.add(layer)
        if isinstance(layer, Middleware):
            layer.joined(self)
        self.host.recompose()
        for holder in self.offers.mounted_in:
            holder.recompose()
        return layer

    add_middleware = middleware

    def mount(self, server: Server, prefix: str = "", *, namespace: str = "") -> Server:
        """Offer all that another server offers, now and later: `weather` makes `weather_tool` and `x://weather/…`.

        `namespace` is the name FastMCP has for `prefix`.
        """
        self._mount(server, prefix or namespace, live=True)
        return server

    def import_server(self, server: Server, prefix: str = "") -> Server:
        """Offer all that another server offers now; what it adds or removes later is not followed."""
        self._mount(server, prefix, live=False)
        return server

    @cached_property
    def mounts(self) -> Mounts:
        """The servers that are mounted here."""
        from ferrule.server.offers.mounts import Mounts

        return Mounts(self.offers)

    def _mount(self, other: Server, prefix: str, *, live: bool) -> None:
        if isinstance(other, str):
            raise SetupError(f"mount takes the server first: app.mount(server, prefix={other!r})")
        if not isinstance(other, Server):
            raise SetupError(f"mount takes a Server, not {other!r}")
        mount = self.mounts.prepare(other.offers, prefix)
        self.host.lifespans.check_startable(other.host.lifespans)
        auth = other.host.services.settings.auth
        if auth is not None and auth is not self.host.services.settings.auth:
            logger.warning("the auth of %r is not asked in %r: callers are verified by the host", other.name, self.name)
        self.mounts.begin(mount, live=live)
        self.host.lifespans.mounted.append(other.host.lifespans)
        if APPS in other.host.extensions:
            self.apps()

    def unmount(self, server: Server) -> None:
        """Offer nothing of another server any more; its lifespan ends when this server's does."""
        ended = self.mounts.end(server.offers)
        for _ in range(ended):
            self.host.lifespans.mounted.remove(server.host.lifespans)

    def add_folder(self, path: str | os.PathLike[str], *, prefix: str = "", watch: float | None = 1.0) -> Folder:
        """Offer what the files of a folder offer, each with an `app = Server()`; looks for changes every `watch` s."""
        from ferrule.server.folder.folder import Folder

        folder = Folder(self.host, self.mounts, path, prefix, watch)
        self.host.lifespans.mounted.append(folder)
        return folder

    # -- fixed tools in front of what is offered

    def tool_search(self, *, max_results: int = 5, always_visible: Collection[str] = ()) -> None:
        """List `search_tools` and `call_tool` in the place of all tools but some; all can be called still."""
        from ferrule.server.discovery.tool_search import ToolSearch

        ToolSearch(self.offers, max_results, always_visible).offer()

    def offer_as_tools(self, *, resources: bool = True, prompts: bool = True) -> None:
        """Offer `list_resources`, `read_resource`, `list_prompts`, `get_prompt`, for clients that know tools alone."""
        from ferrule.server.discovery.as_tools import offer_as_tools

        offer_as_tools(self.offers, resources=resources, prompts=prompts)

    # -- who sees what

    def enable(self, *names: str, tags: Iterable[str] = (), kind: str | None = None) -> None:
        """Offer again what was disabled, by name, URI or tag; from any thread."""
        self._switch(names, tags, kind, on=True)

    def disable(self, *names: str, tags: Iterable[str] = (), kind: str | None = None) -> None:
        """Neither list nor run, by name, URI or tag, until it is enabled again; from any thread."""
        self._switch(names, tags, kind, on=False)

    def _switch(self, names: Sequence[str], tags: Iterable[str], kind: str | None, *, on: bool) -> None:
        visibility = self.offers.visibility
        visibility.check(names, tags, kind)
        # In the loop, where no call is between two looks at the table.
        self.host.services.changes.soon(lambda: visibility.switch(names, tags, kind, on=on))

    def visible(self, rule: AddedRule) -> AddedRule:
        """Let a function of (context, component) say who sees what; what one does not see, one cannot use."""
        self.offers.visibility.add_rule(rule)
        return rule

    # -- extensions and web requests

    def extend(self, extension: E) -> E:
        """Speak an extension of the protocol: declare it, and answer its methods."""
        if not isinstance(extension, Extension):
            raise SetupError(
                f"app.extend takes an Extension, not {extension!r}: app.extend(Extension('com.example/x'))"
            )
        self.host.extensions.join(extension)
        return extension

    def skills(
        self,
        *folders: str | os.PathLike[str],
        prefix: str = "",
        directory_read: bool = True,
        watch: float | None = 1.0,
        max_file_size: int = 4 * 1024 * 1024,
    ) -> Skills:
        """Offer folders of skills, each with a SKILL.md: `app.skills("skills")`; the options are those of `Skills`."""
        from ferrule.server.extensions.skills import Skills

        skills = Skills(
            *folders, prefix=prefix, directory_read=directory_read, watch=watch, max_file_size=max_file_size
        )
        return self.extend(skills)

    @overload
    def page(self, uri: str, html: str | os.PathLike[str], **options: Unpack[PageKeywords]) -> None: ...
    @overload
    def page(self, uri: str, html: None = None, **options: Unpack[PageKeywords]) -> Callable[[F], F]: ...
    def page(self, uri: str, html: str | os.PathLike[str] | None = None, **options: Unpack[PageKeywords]) -> Any:
        """Offer a page for `@app.tool(ui=…)`: its text, its Path, or, as a decorator, a function that returns it."""
        return self.apps().page(uri, html, **options)

    def apps(self) -> Apps:
        """Return the MCP Apps extension of this server, which it speaks from now on."""
        from ferrule.server.extensions.apps import Apps

        if APPS not in self.host.extensions:
            self.extend(Apps())
        return self.host.extensions[APPS]  # type: ignore[return-value]  # nothing else has this name

    def custom_route(
        self,
        path: str,
        methods: Sequence[str] = ("GET",),
        *,
        auth: bool = True,
        name: str | None = None,
        include_in_schema: bool = True,
    ) -> Callable[[F], F]:
        """Answer plain web requests at a path: `{id}` takes one segment, `{rest:path}` any number.

        The handler gets a `WebRequest` and gives text, bytes, anything JSON can say, or a `WebResponse`. With
        `auth=False` the server's verifier is not asked who calls. `name` and
        `include_in_schema` are taken from programs that were written for Starlette, and change nothing.
        """
        return decorator(lambda fn: self.host.add_route(path, methods, fn, auth=auth))

    # -- what can be seen of it

    @property
    def health(self) -> HealthMonitor:
        """The checks of this server, and what they found: `app.health.register("db", check, required=True)`."""
        return self.host.monitor().health

    @property
    def metrics(self) -> Metrics:
        """The metrics of this server, recorded from the first time they are asked for."""
        return self.host.monitor().metrics

    # -- notifications, from any thread and without waiting

    def notify_resource_updated(self, uri: str, **extra: object) -> None:
        """Notify subscribers that a resource changed."""
        self.offers.updated(uri, extra)

    def notify_tools_changed(self) -> None:
        """Notify subscribers that the list of tools changed."""
        self.offers.changed(TOOLS_CHANGED)

    def notify_resources_changed(self) -> None:
        """Notify subscribers that the list of resources changed."""
        self.offers.changed(RESOURCES_CHANGED)

    def notify_prompts_changed(self) -> None:
        """Notify subscribers that the list of prompts changed."""
        self.offers.changed(PROMPTS_CHANGED)

    def subscribe(self, uri: str, callback: Callable[[str], Any]) -> Subscriber:
        """Call a function of this process when a resource changes; return what `unsubscribe` takes."""
        subscriber = CallbackSubscriber(callback, (uri,))
        self.host.services.subscriptions.add(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Let a function of this process hear no more."""
        self.host.services.subscriptions.remove(subscriber)

    def on_roots_changed(self, handler: Callable[[], object]) -> Callable[[], object]:
        """Call a function when a client says that its roots changed."""
        self.host.roots_handlers.append(handler)
        return handler

    # -- calls of this process, without a client

    def list_tools(self) -> list[Tool]:
        """Return the tools as they are listed."""
        return self._local.list_tools()

    def list_resources(self) -> list[Resource]:
        """Return the resources as they are listed."""
        return self._local.list_resources()

    def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return the templates as they are listed."""
        return self._local.list_resource_templates()

    def list_prompts(self) -> list[Prompt]:
        """Return the prompts as they are listed."""
        return self._local.list_prompts()

    async def call_tool(
        self, name: str, arguments: Mapping[str, object] | None = None, *, raise_on_error: bool = True
    ) -> CallToolResult:
        """Call a tool in process, without a client; raises ToolError when it failed, unless `raise_on_error` is off."""
        return await self._local.call_tool(name, arguments, raise_on_error=raise_on_error)

    async def read_resource(self, uri: str, context: Context | None = None) -> ReadResourceResult:
        """Read a resource in process."""
        return await self._local.read_resource(uri, context)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Fill in a prompt in process."""
        return await self._local.get_prompt(name, arguments)

    # -- serving

    async def serve(self, *listeners: Listener, ready: Callable[[], object] | None = None) -> None:
        """Serve one or several transports until they end or `stop` is called; calls `ready` when all can be reached.

        A transport that ends, or is closed by itself, takes only its own peers along; one that dies is bound again.
        """
        await self._runner.serve(*listeners, ready=ready)

    @property
    def supervisor(self) -> Supervisor | None:
        """The tree of what runs while the server serves; None before it was served."""
        return self._runner.supervisor

    @property
    def registry(self) -> LocalRegistry:
        """Who is there: this server, its transports and its links, by kind, name and capability."""
        return self._runner.registration.registry

    async def stop(self, grace: float | None = None) -> None:
        """Stop serving: let running calls end, then close every transport; what has yet to begin is given up.

        An ASGI app of this server is not ended by this, but by the application it lives in, or its own `stop`.
        """
        await self._runner.stop(grace)

    @overload
    async def run_async(self, transport: Literal["stdio"] | None = None, **options: Unpack[StdioKeywords]) -> None: ...
    @overload
    async def run_async(
        self, transport: Literal["http", "streamable-http", "sse"], **options: Unpack[HttpKeywords]
    ) -> None: ...
    @overload
    async def run_async(self, transport: Literal["ws"], **options: Unpack[WebSocketListenerKeywords]) -> None: ...
    @overload
    async def run_async(self, transport: Literal["graphql"], **options: Unpack[GraphqlKeywords]) -> None: ...
    @overload
    async def run_async(self, transport: Literal["tcp"], **options: Unpack[TcpKeywords]) -> None: ...
    @overload
    async def run_async(self, transport: Literal["unix"], **options: Unpack[UnixKeywords]) -> None: ...
    @overload
    async def run_async(self, transport: str, **options: Unpack[ListenerKeywords]) -> None: ...
    async def run_async(self, transport: str | None = None, **options: object) -> None:
        """Serve one transport by name, with signals that stop it in order."""
        await self._runner.run_async(transport, options)

    @overload
    def run(self, transport: Literal["stdio"] | None = None, **options: Unpack[StdioKeywords]) -> None: ...
    @overload
    def run(
        self,
        transport: Literal["http", "streamable-http", "sse"],
        *,
        workers: int | None = None,
        worker_max_age: float | None = None,
        worker_max_memory: int | None = None,
        worker_ready_timeout: float = 60.0,
        **options: Unpack[HttpKeywords],
    ) -> None: ...
    @overload
    def run(
        self,
        transport: Literal["ws"],
        *,
        workers: int | None = None,
        worker_max_age: float | None = None,
        worker_max_memory: int | None = None,
        worker_ready_timeout: float = 60.0,
        **options: Unpack[WebSocketListenerKeywords],
    ) -> None: ...
    @overload
    def run(self, transport: Literal["graphql"], **options: Unpack[GraphqlKeywords]) -> None: ...
    @overload
    def run(
        self,
        transport: Literal["tcp"],
        *,
        workers: int | None = None,
        worker_max_age: float | None = None,
        worker_max_memory: int | None = None,
        worker_ready_timeout: float = 60.0,
        **options: Unpack[TcpKeywords],
    ) -> None: ...
    @overload
    def run(self, transport: Literal["unix"], **options: Unpack[UnixKeywords]) -> None: ...
    @overload
    def run(self, transport: str, **options: Unpack[ListenerKeywords]) -> None: ...
    def run(self, transport: str | None = None, **options: object) -> None:
        """Serve one transport by name until it ends or a signal comes; blocks.

        With `workers`, so many processes serve at one address, each of which imports the program anew. What handlers
        started and left running is not waited for, only named in the log.
        """
        self._runner.run(transport, options)

    def asgi(
        self, path: str = "/mcp", *, websocket: bool | WebSocketKeywords = False, **options: Unpack[AsgiKeywords]
    ) -> AsgiApp:
        """Return this server as an ASGI app, to serve or to mount; the options are those of `EndpointSettings`."""
        return self._runner.asgi(path, websocket, options)

    async def enter(self) -> None:
        """Start what the server needs while anyone uses it; every enter is matched by a leave."""
        await self.host.enter()

    async def leave(self) -> None:
        """End what `enter` started, when the last user leaves."""
        await self.host.leave()

    def link(self, origin: Origin) -> Link:
        """Return a receiver for one new peer, as the transport in memory uses it; listeners are given `host`."""
        return self.host.link(origin)

    async def drain(self, grace: float) -> None:
        """Refuse new calls on open links, and wait for the running ones, at most `grace` seconds."""
        await self.host.drain(grace)


def _options(kind: type[Offered], options: Mapping[str, object], what: str) -> Offered:
    made = read(kind, options, what, hints=OPTIONS)
    check_keys(made.meta or (), what)
    return made
