"""What peers meet: the links of one server, and who answers what on them."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from ferrule.errors import Overloaded
from ferrule.identity.verifier import ALLOW_ALL, Verifier
from ferrule.protocol.call import Call, Note
from ferrule.protocol.capabilities import server_offers
from ferrule.protocol.era import Eras
from ferrule.protocol.seal import Keyring, Seal
from ferrule.protocol.stateless import CacheHints, Sealing, Stateless
from ferrule.runtime.dispatch import Dispatcher, Handler, Layer
from ferrule.runtime.link import Link
from ferrule.runtime.requests import LinkOptions
from ferrule.runtime.sessionless import SessionlessLink
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.model import Implementation
from ferrule.server.application import Application
from ferrule.server.calls.services import Services
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.extensions.extension import Extensions, MethodTable
from ferrule.server.hosting.builtins import Builtins, Greeting
from ferrule.server.hosting.lifespans import Lifespan, Lifespans
from ferrule.server.middleware.hooks import Middleware
from ferrule.server.middleware.stack import MiddlewareStack
from ferrule.server.offers.offers import Offers
from ferrule.server.settings import ServerSettings
from ferrule.wire.channel import Origin, Receiver

if TYPE_CHECKING:
    from ferrule.runtime.tasks.tasks import Tasks
    from ferrule.server.hosting.monitor import Monitor
    from ferrule.telemetry.observer import Observer, Observers
    from ferrule.telemetry.receipt_log import ReceiptLog
    from ferrule.transports.http.routes.custom import CustomRoute, Endpoint
    from ferrule.transports.http.routes.web import WebRequest

logger = logging.getLogger("ferrule.server")

L = TypeVar("L", bound=Link)


class Host:
    """The parts of one server put together; for transports, the acceptor they bring peers to."""

    def __init__(self, app: Application, settings: ServerSettings, lifespans: Sequence[Lifespan]) -> None:
        self.layers = MiddlewareStack()
        self.services = services = Services(app, settings, capabilities=lambda: self.capabilities)
        self.offers = Offers(services, self.layers, on_change=self._forget_capabilities, on_recompose=self.recompose)
        self.methods = MethodTable(self.recompose)
        self.extensions = Extensions(services, self.methods, self.offers.tools.catalogue, self.recompose)
        self.lifespans = Lifespans(app, lifespans, self.extensions, services.changes, close=self._close_tasks)
        services.lifespan = self.lifespans.yielded
        self.links = services.links
        self.custom_routes: list[CustomRoute] = []
        """What is offered over HTTP beside MCP."""
        self.roots_handlers: list[Callable[[], Any]] = []
        """Called when the roots of a client changed."""
        self._settings = settings
        self._capabilities: ServerCapabilities | None = None
        self._declared = ServerCapabilities()
        self._dispatcher: Dispatcher | None = None
        self._tasks: Tasks | None = None
        implementation = _implementation(app, settings)
        stateless = _stateless(services, implementation)
        self.eras = Eras(services.handshake, stateless)
        self._greeting = Greeting(implementation, stateless.supported)
        self._offered = self._offers  # bound once: every session holds them
        self._forget = self.links.forget
        self._link_options = _link_options(settings)
        self._shared_options = structs.replace(
            self._link_options, max_running=settings.max_concurrent, max_waiting=settings.max_waiting
        )
        self.receipts = settings.receipt_log
        """What keeps receipts of requests; None where nobody wants any."""
        self._own_observers = _observers(self.receipts)
        """The observers that options ask for, besides those a user gives."""
        self.observer: Observers | None = settings.observers(*self._own_observers)
        """Who is told of connections and exchanges."""
        self.on_capabilities_changed: Callable[[], None] | None = None
        """Called when what is declared may have changed."""
        if self.receipts is not None and self.receipts.receipts.required:
            self.layers.add(_requiring(self.receipts))
        self.unbound: set[str] = set()
        """The listeners that should serve and cannot be reached now."""
        self._users = 0
        self._monitor: Monitor | None = None
        if settings.metrics:
            _ = self.monitor().metrics
        if settings.log_format is not None:
            from ferrule.telemetry.logs import write_logs

            write_logs(settings.log_format)

    def own_layers(self) -> list[Middleware]:
        """Return the middleware that options ask for; it surrounds what is added by hand."""
        if self._settings.rate is None:
            return []
        from ferrule.server.middleware.rate_limit import WORK, RateLimit

        return [RateLimit(self._settings.rate, methods=WORK)]

    # -- what is declared, and who answers what

    @property
    def capabilities(self) -> ServerCapabilities:
        """What this server declares: what it was told to, else what it offers now."""
        if self._capabilities is None:
            declared = self._settings.capabilities
            if declared is None:
                tasks = self.tasks.offered if self.offers.tools.know_tasks else None
                declared = self.offers.capabilities(self._declared, tasks)
            self._declared = declared
            extensions = self.extensions.declared(handshake=False)
            if extensions:
                declared = structs.replace(declared, extensions={**(declared.extensions or {}), **extensions})
            self._capabilities = declared
        return self._capabilities

    def _forget_capabilities(self) -> None:
        self._capabilities = None
        if self.on_capabilities_changed is not None:
            self.on_capabilities_changed()

    def recompose(self) -> None:
        """Put together anew what is declared and who answers what, also for those who are connected."""
        self._forget_capabilities()
        self._dispatcher = None
        for link in self.links:
            link.dispatcher = self.dispatcher

    @property
    def dispatcher(self) -> Dispatcher:
        """The handlers of this server, composed once with its middleware."""
        if self._dispatcher is None:
            self._dispatcher = self._composed()
        return self._dispatcher

    def _composed(self) -> Dispatcher:
        builtins = Builtins(
            self.offers,
            self.extensions,
            self._greeting,
            tasks=lambda: self.tasks,
            roots_changed=self._roots_changed,
        )
        around = self.layers.around
        looked_into = bool(around("tools/call"))
        handlers = builtins.handlers(looked_into=looked_into)
        handlers.update(self.methods.handlers)
        for name, handler in handlers.items():
            # A tool's own errors never get here: they become results, and are mended where that happens.
            if name != "tools/call":
                handlers[name] = self.layers.with_mended_errors(handler)
        notes, others = self.layers.listening({**builtins.notes(), **self.extensions.notes})
        dispatcher = Dispatcher(handlers, builtins.instant(), notes, around, other_notes=others)
        if looked_into:
            dispatcher.handlers["tools/call"] = self.offers.tools.with_told_errors(dispatcher.handlers["tools/call"])
        if self.offers.tools.know_tasks:
            self._run_as_tasks(dispatcher)
        return dispatcher

    def _run_as_tasks(self, dispatcher: Dispatcher) -> None:
        """Let calls of tools become tasks; a server without such tools does not even ask."""
        from ferrule.server.calls.tasks import TaskCalls

        declared = self._settings.capabilities
        if declared is None or server_offers(declared, "tasks.requests.tools.call"):
            proceed = dispatcher.handlers["tools/call"]
            dispatcher.handlers["tools/call"] = TaskCalls(self.offers, self.tasks, proceed)

    @property
    def tasks(self) -> Tasks:
        """The calls that go on after they were answered; what keeps them is made when they are first spoken of."""
        if self._tasks is None:
            from ferrule.runtime.tasks.tasks import Tasks
            from ferrule.server.calls.tasks import ToolTasks

            self._tasks = Tasks(ToolTasks(self.services), self._settings.tasks)
        return self._tasks

    async def _close_tasks(self) -> None:
        if self._tasks is not None:
            await self._tasks.close()

    def _roots_changed(self, note: Note) -> None:
        """Called when a client's roots changed."""
        link = self.links.behind(note)
        for handler in self.roots_handlers:
            try:
                value = handler()
            except Exception:
                logger.exception("a handler of changed roots failed")
            else:
                if inspect.iscoroutine(value):
                    link.scope.spawn(value)

    # -- what a transport uses

    async def enter(self) -> None:
        """Start what the server needs while anyone uses it; every enter is matched by a leave."""
        if self.receipts is None:
            await self.lifespans.enter()
        else:
            await self._enter_with(self.receipts)
        self._users += 1
        if self._monitor is not None:
            self._monitor.start()

    async def _enter_with(self, receipts: ReceiptLog) -> None:
        await receipts.enter()
        try:
            await self.lifespans.enter()
        except BaseException:
            await receipts.leave()
            raise

    async def leave(self) -> None:
        """End what `enter` started, when the last user leaves."""
        self._users -= 1
        if self._monitor is not None and not self._users:
            await self._monitor.stop()
        try:
            await self.lifespans.leave()
        finally:
            if self.receipts is not None:
                await self.receipts.leave()

    def monitor(self) -> Monitor:
        """Return what tells of the server's health and its metrics; made when it is first asked for."""
        if self._monitor is None:
            from ferrule.server.hosting.monitor import Monitor

            self._monitor = Monitor(self.services, self.layers, tasks=self._running_tasks, observe=self._observe)
            self._monitor.health.conditions.append(lambda: [f"{name} is not bound" for name in sorted(self.unbound)])
            if self._users:
                self._monitor.start()
        return self._monitor

    def _running_tasks(self) -> int:
        if self._tasks is None:
            return 0
        return len(self._tasks.live)

    def _observe(self, observer: Observer) -> None:
        self._own_observers.append(observer)
        self.observer = self._settings.observers(*self._own_observers)

    @property
    def verifier(self) -> Verifier:
        """Who decides who a caller is."""
        return self._settings.auth or ALLOW_ALL

    def link(self, origin: Origin, entrance: object = None) -> Link:
        """Return a receiver for one new peer."""
        return self._linked(Link, origin, self._link_options, entrance)

    def sessionless_link(self, origin: Origin, version: str = "", entrance: object = None) -> SessionlessLink:
        """Return one receiver for everyone who asks without a session, of the stateless era or of one revision."""
        link = self._linked(SessionlessLink, origin, self._shared_options, entrance)
        if version:
            link.session.agree(self.services.handshake.stranger(version))
        return link

    def _linked(self, kind: type[L], origin: Origin, options: LinkOptions, entrance: object) -> L:
        link = kind(
            self.eras,
            self.methods.rows,
            self.dispatcher,
            origin,
            options=options,
            on_opened=self.links.opened,
            on_closed=self._forget,
        )
        link.session.offers = self._offered
        if self.observer is not None:
            self._watch(link, self.observer, origin, shared=issubclass(kind, SessionlessLink))
        self.links.remember(link, entrance)
        return link

    def _watch(self, link: Link, observer: Observers, origin: Origin, *, shared: bool) -> None:
        """Let observers know of a link, by the cheapest means."""
        if observer.meter is not None:
            from ferrule.runtime.meter import LinkMeter

            link.watch = LinkMeter(observer, observer.meter.over(origin.carrier), link.session, shared=shared)
        else:
            from ferrule.runtime.watch import watch_on

            link.watch = watch_on(
                link.session, observer, origin.carrier, "server", address=origin.address, shared=shared
            )

    def _offers(self, capability: str) -> bool:
        return server_offers(self.capabilities, capability)

    @property
    def sessions(self) -> list[Link]:
        """The links that are open now."""
        return list(self.links)

    def busy(self, link: Receiver) -> bool:
        """Return whether calls run on a link."""
        return isinstance(link, Link) and bool(link.session.running)

    def mirrored(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Return which arguments of a tool its HTTP headers mirror."""
        return self.offers.tools.mirrored(tool)

    async def drain(self, grace: float) -> None:
        """Refuse new calls on open links, and wait for the running ones, at most `grace` seconds."""
        waiting = []
        if self._tasks is not None:
            waiting.append(self._tasks.drain(grace))
        for link in self.links:
            waiting.append(link.drain(grace))
        await asyncio.gather(*waiting)

    def add_route(self, path: str, methods: Sequence[str], fn: Callable[..., Any], *, auth: bool) -> None:
        """Answer plain web requests at a path."""
        # A server on stdio should not pay for HTTP, so its half is imported when there is something to route.
        custom = importlib.import_module("ferrule.transports.http.routes.custom")
        self.custom_routes.append(custom.CustomRoute(path, methods, self._endpoint(fn), auth=auth))

    def _endpoint(self, fn: Callable[..., Any]) -> Endpoint:
        if inspect.iscoroutinefunction(fn):
            return fn
        bulkhead = Bulkhead(self.services.threads)

        async def answer(request: WebRequest) -> Any:
            value = await bulkhead.run(lambda: fn(request))
            if inspect.isawaitable(value):
                return await value
            return value

        return answer


def _observers(receipts: ReceiptLog | None) -> list[Observer]:
    """Return the observers of ours that a server has."""
    if receipts is None:
        return []
    return [receipts]


def _requiring(receipts: ReceiptLog) -> Layer:
    """Return the layer that refuses a call for whose receipt there is no room."""

    async def layer(call: Call, proceed: Handler) -> object:
        if not receipts.is_kept_of(call.method):
            return await proceed(call)
        if not receipts.take_room():
            raise Overloaded(message="Overloaded: receipts of calls are required here, and cannot be kept now")
        try:
            return await proceed(call)
        finally:
            receipts.give_back_room()

    return layer


def _stateless(services: Services, implementation: Implementation) -> Stateless:
    settings = services.settings
    keys = settings.request_state_keys or (os.urandom(32),)
    sealing = Sealing(Seal(Keyring(keys)), time.time, lambda: os.urandom(12), settings.request_state_lifetime)
    return Stateless(
        sealing,
        implementation=implementation,
        beside=services.handshake.versions,
        hints=CacheHints(int(settings.cache_ttl * 1000), settings.cache_scope),
    )


def _implementation(app: Application, settings: ServerSettings) -> Implementation:
    """Say who we are."""
    return Implementation(
        name=app.name,
        version=app.version,
        title=settings.title,
        description=settings.description,
        website_url=settings.website_url,
        icons=settings.icons,
    )


def _link_options(settings: ServerSettings) -> LinkOptions:
    """Return the options of a session's link."""
    return LinkOptions(
        max_running=settings.max_concurrent_per_session,
        max_waiting=settings.max_waiting_per_session,
        allow_batch=settings.allow_batch,
        keepalive_interval=settings.keepalive_interval,
        pong_timeout=settings.pong_timeout,
        max_missed=settings.max_missed,
    )
