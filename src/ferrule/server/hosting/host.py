"""What peers meet: the links of one server, and who answers what on them."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
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
from ferrule.schema.methods import METHODS
from ferrule.schema.model import Implementation, Params
from ferrule.server.calls.services import Services
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.extensions.extension import Extensions, MethodTable
from ferrule.server.hosting.builtins import Builtins, Greeting
from ferrule.server.hosting.lifespans import Lifespan, Lifespans
from ferrule.server.middleware.hooks import Middleware
from ferrule.server.middleware.stack import MiddlewareStack
from ferrule.server.notifications.changes import Change
from ferrule.server.offers.offers import Offers
from ferrule.server.offers.versions import choose_versions
from ferrule.server.settings import ServerSettings
from ferrule.supervision.counted_lifetime import CountedLifetime
from ferrule.wire.channel import Origin, Receiver

if TYPE_CHECKING:
    from ferrule.runtime.meter import LinkMeter
    from ferrule.runtime.tasks.settings import TaskSettings
    from ferrule.runtime.tasks.tasks import Tasks
    from ferrule.server.application import Application
    from ferrule.server.cluster.node import ServerNode
    from ferrule.server.hosting.monitor import Monitor
    from ferrule.stores.contracts import Seen
    from ferrule.telemetry.observer import Observer, Observers
    from ferrule.telemetry.receipt_log import ReceiptLog
    from ferrule.telemetry.system_recorder import RegistryFacts, SupervisorFacts
    from ferrule.transports.http.endpoint.cluster import Cluster
    from ferrule.transports.http.endpoint.neighbours import Neighbours
    from ferrule.transports.http.routes.custom import CustomRoute, Endpoint
    from ferrule.transports.http.routes.web import WebRequest

logger = logging.getLogger("ferrule.server")

STORES_INTERVAL = 2.0
"""Seconds between two looks whether the stores can be used."""

L = TypeVar("L", bound=Link)


class Host:
    """The parts of one server put together; for transports, the acceptor they bring peers to."""

    _seen: Seen | None = None
    """Where processes of the server note what counts once; None while it is the only one."""

    def __init__(self, app: Application, settings: ServerSettings, lifespans: Sequence[Lifespan]) -> None:
        self.layers = MiddlewareStack()
        self.services = services = Services(app, settings, capabilities=lambda: self.capabilities)
        self.offers = Offers(services, self.layers, on_change=self._forget_capabilities, on_recompose=self.recompose)
        self.methods = MethodTable(self.recompose)
        self.extensions = Extensions(services, self.methods, self.offers.tools.catalogue, self.recompose)
        self.lifespans = Lifespans(app, lifespans, self.extensions, services.changes, close=self._close_tasks)
        services.lifespan = self.lifespans.yielded
        services.answer = self._answer_within
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
        self._report_store: Callable[[str, float, bool], None] | None = None
        """What operations of the store of tasks are reported to; None while nobody counts them."""
        implementation = _implementation(app, settings)
        self._stateless = stateless = _stateless(services, implementation)
        self.eras = Eras(services.handshake, stateless)
        self._greeting = Greeting(implementation, stateless.supported)
        self._declares_bound = self._declares  # bound once: every session holds them
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
        self.node = self._new_node(settings)
        """The server as one of several nodes; None where it has no stores."""
        self.neighbours: Neighbours | None = None
        """The other workers of the server; None where there are none."""
        self.unbound: set[str] = set()
        """The listeners that should serve and cannot be reached now."""
        self._lifetime = CountedLifetime(self._start)
        self._registry_stats: Callable[[], RegistryFacts] | None = None
        self._monitor: Monitor | None = None
        if settings.metrics:
            _ = self.monitor().metrics
        _write_logs(settings)

    def _new_node(self, settings: ServerSettings) -> ServerNode | None:
        if settings.request_state_keys:
            self.verifier.share_keys(settings.request_state_keys)
        if settings.stores is None:
            return None
        from ferrule.server.cluster.node import ServerNode
        from ferrule.stores.stores import stores_of

        seal_with = None if settings.request_state_keys else self._seal_with
        stores = stores_of(settings.stores, self.services.name)
        self._share_seen(stores.seen)
        return ServerNode(stores, self.services, seal_with)

    def _seal_with(self, keys: Sequence[bytes]) -> None:
        """Make what other processes of the server must understand with the keys that all of them have."""
        self._stateless.seal_with(keys)
        self.verifier.share_keys(keys)

    def _share_seen(self, seen: Seen) -> None:
        """Note what counts once where other processes of the server note it too."""
        self._seen = seen
        if self._report_store is not None:
            from ferrule.stores.metered import MeteredSeen

            seen = MeteredSeen(seen, self._report_store)
        self.verifier.share_seen(seen)

    @property
    def cluster(self) -> Cluster | None:
        """The nodes the server is one of, as HTTP needs them."""
        if self.node is None:
            return None
        return self.node.sessions

    def own_layers(self) -> list[Middleware]:
        """Return the middleware that options ask for; it surrounds what is added by hand."""
        if self._settings.rate is None:
            return []
        from ferrule.server.middleware.rate_limit import WORK, RateLimit

        limit = RateLimit(self._settings.rate, methods=WORK)
        if self.node is not None:
            limit.share(self.node.leased_quotas)
        return [limit]

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
            # A tool's own errors never get here: they become results, and are mapped where that happens.
            if name != "tools/call":
                handlers[name] = self.layers.with_mapped_errors(handler)
        notes, others = self.layers.listening({**builtins.notes(), **self.extensions.notes})
        dispatcher = Dispatcher(handlers, builtins.instant(), notes, around, other_notes=others)
        if looked_into:
            dispatcher.handlers["tools/call"] = self.offers.tools.with_told_errors(dispatcher.handlers["tools/call"])
        if self.offers.tools.know_tasks:
            self._run_as_tasks(dispatcher)
        if self.offers.visibility.scoped:
            from ferrule.server.hosting.scope_guard import ScopeGuard

            ScopeGuard(self.offers).surround(dispatcher)
        if self.offers.versioned:
            tools = self.offers.tools.catalogue
            prompts = self.offers.prompts.catalogue
            choose_versions(dispatcher, [("tools/call", tools), ("prompts/get", prompts)])
        return dispatcher

    async def _answer_within(self, method: str, params: Params, call: Call) -> Any:
        """Answer a request as part of a call, with all that surrounds the method."""
        row = call.row
        own_params = call.params
        call.row = METHODS[method]
        call.params = params
        try:
            return await self.dispatcher.handlers[method](call)
        finally:
            call.row = row
            call.params = own_params

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

            self._tasks = Tasks(ToolTasks(self.services), self._task_settings())
            if self.node is not None:
                self.node.share_tasks(self._tasks)
            if self._report_store is not None:
                self._tasks.measure(self._report_store)
        return self._tasks

    def _task_settings(self) -> TaskSettings | None:
        """Return how tasks are kept: where nodes share stores, in those, unless a store of their own was given."""
        settings = self._settings.tasks
        if self.node is None:
            return settings
        return self.node.task_settings(settings)

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
        await self._lifetime.enter()
        if self._monitor is not None:
            self._monitor.start()

    async def leave(self) -> None:
        """End what `enter` started, when the last user leaves."""
        await self._lifetime.leave()

    async def _start(self, stack: AsyncExitStack) -> None:
        """Start the parts, each with what those before it need; the stack ends them in reverse."""
        for part in (self.node, self.receipts, self.lifespans):
            if part is not None:
                await part.enter()
                stack.push_async_callback(part.leave)
        stack.push_async_callback(self._stop_monitor)
        if self._monitor is not None:
            self._monitor.start()
        stack.push_async_callback(self.verifier.close)
        await self.verifier.start()

    async def _stop_monitor(self) -> None:
        if self._monitor is not None:
            await self._monitor.stop()

    def monitor(self) -> Monitor:
        """Return what tells of the server's health and its metrics; made when it is first asked for."""
        if self._monitor is None:
            from ferrule.server.hosting.monitor import Monitor

            self._monitor = Monitor(
                self.services,
                self.layers,
                tasks=self._running_tasks,
                measure_stores=self._measure_stores,
                observe=self.observe,
                receipts=self.receipts,
            )
            self._monitor.health.conditions.append(lambda: [f"{name} is not bound" for name in sorted(self.unbound)])
            if self.node is not None:
                self._monitor.health.conditions.append(self.node.unready)
                self._monitor.health.register("stores", self.node.look, interval=STORES_INTERVAL)
            if self._lifetime.users:
                self._monitor.start()
            self._monitor.registry_stats = self._registry_stats
        return self._monitor

    def replay_frames(self, link: Receiver) -> Sequence[bytes]:
        """Return what a session's client has said since its handshake that still holds, as frames."""
        assert isinstance(link, Link)
        return self.links.replay_frames(link)

    @property
    def shutdown_grace(self) -> float:
        """How many seconds running calls may take to end when the server stops."""
        return self._settings.shutdown_grace

    def join(self, neighbours: Neighbours, keys: Sequence[bytes]) -> None:
        """Be one of several workers, who seal the states of calls with these keys unless the server has its own."""
        self.neighbours = neighbours
        changes = self.services.changes
        changes.relay = lambda change: neighbours.tell(msgspec.msgpack.encode(change))
        neighbours.on_told = lambda told: changes.here(msgspec.msgpack.decode(told, type=Change))
        if not self._settings.request_state_keys:
            self._seal_with(keys)
        from ferrule.server.hosting.worker_seen import WorkerSeen
        from ferrule.server.hosting.worker_tasks import WorkerTasks

        if self.node is None:
            self._share_seen(WorkerSeen(neighbours))

        self.tasks.peers = WorkerTasks(self.tasks, self.services, neighbours)

    def watch_registry(self, stats: Callable[[], RegistryFacts]) -> None:
        """Let metrics show how much the server's registry holds."""
        self._registry_stats = stats
        if self._monitor is not None:
            self._monitor.registry_stats = stats

    def supervised(self, event: SupervisorFacts) -> None:
        """Called when something happened to what is supervised while the server serves."""
        if self._monitor is not None:
            self._monitor.supervised(event)

    def _running_tasks(self) -> int:
        if self._tasks is None:
            return 0
        return len(self._tasks.live)

    def _measure_stores(self, report: Callable[[str, float, bool], None]) -> None:
        """Let metrics count the operations of stores."""
        self._report_store = report
        if self._tasks is not None:
            self._tasks.measure(report)
        if self._seen is not None:
            self._share_seen(self._seen)

    def observe(self, observer: Observer) -> None:
        """Add an observer, for links that are opened from now on."""
        self._own_observers.append(observer)
        self.observer = self._settings.observers(*self._own_observers)

    @property
    def verifier(self) -> Verifier:
        """Who decides who a caller is."""
        return self._settings.auth or ALLOW_ALL

    def link(self, origin: Origin, entrance: object = None) -> Link:
        """Return a receiver for one new peer."""
        return self._linked(self._kind(Link), origin, self._link_options, entrance)

    def sessionless_link(self, origin: Origin, version: str = "", entrance: object = None) -> SessionlessLink:
        """Return one receiver for everyone who asks without a session, of the stateless era or of one revision."""
        link = self._linked(self._kind(SessionlessLink), origin, self._shared_options, entrance)
        if version:
            link.session.agree(self.services.handshake.stranger(version))
        return link

    def _kind(self, kind: type[L]) -> type[L]:
        """Return the class of links; another one where observers want to know of each notification that is sent."""
        if self.observer is None or not self.observer.observes_sent:
            return kind
        from ferrule.runtime.observed_link import observed_kind

        return observed_kind(kind)

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
        link.session.offers = self._declares_bound
        if self.observer is not None:
            self._watch(link, self.observer, origin, shared=issubclass(kind, SessionlessLink))
        self.links.remember(link, entrance)
        return link

    def _watch(self, link: Link, observer: Observers, origin: Origin, *, shared: bool) -> None:
        """Let observers know of a link, by the cheapest means."""
        if observer.meter is not None:
            link.observe(self._meter(observer, observer.meter.over(origin.carrier), link.session, shared=shared))
        else:
            from ferrule.runtime.watch import watch_on

            link.observe(
                watch_on(link.session, observer, origin.carrier, "server", address=origin.address, shared=shared)
            )

    @cached_property
    def _meter(self) -> type[LinkMeter]:
        """What measures links; imported once, since importing again costs each session something too."""
        from ferrule.runtime.meter import LinkMeter

        return LinkMeter

    def _declares(self, capability: str) -> bool:
        """Return whether the server declares a capability."""
        return server_offers(self.capabilities, capability)

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


def _write_logs(settings: ServerSettings) -> None:
    if settings.log_format is not None:
        from ferrule.telemetry.logs import write_logs

        write_logs(settings.log_format)


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
