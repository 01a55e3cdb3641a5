"""Serving: the lifespan, the transports that run, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ferrule.errors import FerruleError, SetupError
from ferrule.identity.verifier import Verifier
from ferrule.protocol.era import Eras
from ferrule.runtime.link import Link
from ferrule.runtime.sessionless import SessionlessLink
from ferrule.server.foreign_names import refuse_foreign
from ferrule.server.hosting.host import Host
from ferrule.server.settings import read_run_settings
from ferrule.settings.sources import use_beside_program
from ferrule.supervision.event_loop import require_asyncio
from ferrule.supervision.signals import Shutdown, UnwaitedExecutor, awaited_at_exit, left_running
from ferrule.supervision.tracebacks import in_one_sentence
from ferrule.transports.contract import AnnouncedListener, MeteredListener
from ferrule.transports.contract import Listener as TransportListener
from ferrule.transports.registry import TRANSPORTS, TransportKind
from ferrule.wire.channel import Origin, Receiver

if TYPE_CHECKING:
    from ferrule.server.hosting.monitor import Monitor
    from ferrule.telemetry.observer import Observers
    from ferrule.transports.http.asgi.app import AsgiApp
    from ferrule.transports.http.routes.custom import CustomRoute
    from ferrule.transports.keywords import AsgiKeywords, WebSocketKeywords

logger = logging.getLogger("ferrule.server")

LAST_GRACE = 1.0
STDERR = 2


class Entrance:
    """The acceptor of one listener: its links are the server's, and it knows which of them are its own."""

    mirrored: Callable[[str], Mapping[str, tuple[str, ...]]]
    busy: Callable[[Receiver], bool]

    def __init__(self, host: Host, entrances: set[Entrance], *, hosted: bool = False) -> None:
        self._host = host
        self._entrances = entrances
        """All those of the server that are in use."""
        self.hosted = hosted
        """Whether it belongs to somebody else's application, which ends it: `Server.stop` does not."""
        self._users = 0
        self.closing = False
        """Whether its peers are being let go."""
        # Asked for every request: an entrance puts nothing between.
        self.mirrored = host.mirrored
        self.busy = host.busy

    async def enter(self) -> None:
        """Start what the server needs while anyone uses it; every enter is matched by a leave."""
        await self._host.enter()
        self._users += 1
        self._entrances.add(self)

    async def leave(self) -> None:
        """End what `enter` started, when the last user leaves."""
        self._users -= 1
        if not self._users:
            self._entrances.discard(self)
            self.closing = False
        await self._host.leave()

    @property
    def eras(self) -> Eras:
        """The protocol generations the server speaks."""
        return self._host.eras

    @property
    def verifier(self) -> Verifier:
        """Who decides who a caller is."""
        return self._host.verifier

    @property
    def custom_routes(self) -> Sequence[CustomRoute]:
        """What is offered over HTTP beside MCP."""
        return self._host.custom_routes

    @property
    def observer(self) -> Observers | None:
        """Who is told of connections and exchanges."""
        return self._host.observer

    def monitor(self) -> Monitor:
        """Return what tells of the server's health and its metrics."""
        return self._host.monitor()

    def link(self, origin: Origin) -> Link:
        """Return a receiver for one new peer."""
        return self._host.link(origin, self)

    def sessionless_link(self, origin: Origin, version: str = "") -> SessionlessLink:
        """Return one receiver for everyone who asks without a session."""
        return self._host.sessionless_link(origin, version, self)

    async def drain(self, grace: float) -> None:
        """Take no more calls from here, and wait until the running ones are answered, at most `grace` seconds.

        With the last entrance the server ends: then whatever else runs in it is waited for too.
        """
        self.closing = True
        if all(entrance.closing for entrance in self._entrances):
            await self._host.drain(grace)
        else:
            own = self._host.links.through(self)
            await asyncio.gather(*(link.drain(grace) for link in own))


class Serving:
    """Serves one server on transports, and stops it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._name = host.services.name
        self._grace = host.services.settings.shutdown_grace
        self._listeners: list[TransportListener] = []
        self._entrances: set[Entrance] = set()
        """By which peers come in now: one for each listener, one for each ASGI app that runs."""
        self._starting: set[asyncio.Task[Any]] = set()

    async def serve(self, *listeners: TransportListener, ready: Callable[[], object] | None = None) -> None:
        """Serve one or several transports until they end or `stop` is called; tells `ready` when all can be reached.

        A transport that ends, or is closed by itself, takes only its own peers along.
        """
        if any(isinstance(listener, MeteredListener) and listener.shows_metrics for listener in listeners):
            _ = self._host.monitor().metrics
        entrances = [Entrance(self._host, self._entrances) for _ in listeners]
        async with contextlib.AsyncExitStack() as stack:
            if await self._begun_unless_stopped(self._enter_by(entrances, stack)):
                await self._serve_all(list(zip(listeners, entrances, strict=True)), ready)

    async def _enter_by(self, entrances: Sequence[Entrance], stack: contextlib.AsyncExitStack) -> None:
        await self._host.enter()
        stack.push_async_callback(self._host.leave)
        for entrance in entrances:
            await entrance.enter()
            stack.push_async_callback(entrance.leave)

    async def _serve_all(
        self, served: Sequence[tuple[TransportListener, Entrance]], ready: Callable[[], object] | None
    ) -> None:
        self._listeners.extend(listener for listener, _ in served)
        waiting = len(served)

        def one_is_ready() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting and ready is not None:
                ready()

        tasks = []
        for listener, entrance in served:
            bound = self._host.binding(type(listener).__name__, one_is_ready)
            tasks.append(asyncio.ensure_future(_serve_one(listener, entrance, bound)))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for listener, _ in served:
                self._host.bound(type(listener).__name__)
                self._listeners.remove(listener)

    async def _begun_unless_stopped(self, beginning: Awaitable[None]) -> bool:
        """Wait for what has to begin, and tell so; False when `stop` came first."""
        task = asyncio.current_task()
        assert task is not None
        self._starting.add(task)
        try:
            await beginning
        except asyncio.CancelledError:
            if task in self._starting or task.uncancel():
                raise
            return False
        else:
            if task in self._starting:
                return True
            task.uncancel()
            with contextlib.suppress(asyncio.CancelledError):
                # A lifespan may have swallowed the cancellation, or begun before it came: then it comes here.
                await asyncio.sleep(0)
            return False
        finally:
            self._starting.discard(task)

    async def stop(self, grace: float | None = None) -> None:
        """Stop serving: let running calls end, then close every transport; what has yet to begin is given up.

        An ASGI app of this server is not ended by this, but by the application it lives in, or its own `stop`.
        """
        while self._starting:
            self._starting.pop().cancel()
        within = self._grace if grace is None else grace
        # Known to all of them before the first one asks whether it is the last.
        for entrance in self._entrances:
            entrance.closing = entrance.closing or not entrance.hosted
        await asyncio.gather(*(listener.close(within) for listener in list(self._listeners)))

    async def run_async(self, transport: str | None, options: Mapping[str, object]) -> None:
        """Serve one transport by name, with signals that stop it in order."""
        require_asyncio("app.run_async()", "use app.run(), or `await app.run_async()` within asyncio.run(main())")
        await self._run(transport, options)

    async def _run(self, transport: str | None, options: Mapping[str, object]) -> None:
        use_beside_program()
        name = transport or read_run_settings({}).transport
        kind = _kind(name)
        listener = _listener(name, options)
        if kind.hint and sys.stdin is not None and sys.stdin.isatty():
            _say(f"{self._name} {kind.hint}. Ctrl-C ends it.")
        loop = asyncio.get_running_loop()
        stopping: set[asyncio.Task[None]] = set()
        stop = Shutdown(loop, lambda: stopping.add(loop.create_task(self.stop())))
        with stop:
            await self.serve(listener, ready=lambda: self._tell_where(listener))
            if stopping:
                await asyncio.wait(stopping)

    def _tell_where(self, listener: TransportListener) -> None:
        """Say where clients find us, where that is not simply the process that started us."""
        if isinstance(listener, AnnouncedListener):
            _say(f"{self._name} serves MCP at {listener.url}. Ctrl-C ends it.")

    def run(self, transport: str | None, options: Mapping[str, object]) -> None:
        """Serve one transport by name until it ends or a signal comes; blocks.

        What handlers started and left running is not waited for, only named in the log.
        """
        _require_no_loop()
        _occupy_standard_numbers()
        known = awaited_at_exit()
        runner = asyncio.Runner(loop_factory=_loop_factory())
        runner.get_loop().set_default_executor(UnwaitedExecutor(thread_name_prefix="asyncio"))
        try:
            runner.run(self._run(transport, options))
        except FerruleError as error:
            raise in_one_sentence(error, str(error)) from None
        except Exception as error:
            if error is not self._host.lifespans.not_begun:
                raise
            sentence = f"the lifespan of the server {self._name!r} failed: {type(error).__name__}: {error}"
            raise in_one_sentence(error, sentence) from None
        finally:
            _close(runner)
            if left := left_running(known):
                logger.warning("the server has ended, but Python waits for what still runs: %s", left)

    def asgi(self, path: str, websocket: bool | WebSocketKeywords, options: AsgiKeywords) -> AsgiApp:
        """Return this server as an ASGI app, to serve or to mount; the options are those of `EndpointSettings`."""
        refuse_foreign("asgi", options)
        module = importlib.import_module("ferrule.transports.http.asgi.app")
        entrance = Entrance(self._host, self._entrances, hosted=True)
        made: AsgiApp = module.AsgiApp(entrance, self._grace, path, websocket, **options)
        return made


def _kind(transport: str) -> TransportKind:
    kind = TRANSPORTS.get(transport)
    if kind is None:
        raise SetupError(f"unknown transport {transport!r}: this version has {', '.join(TRANSPORTS)}")
    return kind


def _listener(transport: str, options: Mapping[str, object]) -> TransportListener:
    kind = _kind(transport)
    refuse_foreign(transport, options, ours=("host", "port", "auth"))
    return kind.new_listener(options)


def _say(line: str) -> None:
    """Tell a person on stderr; a server serves whether or not that can be written."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def _require_no_loop() -> None:
    """Refuse to block a loop that runs already, as in a notebook or an async main."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SetupError("app.run() blocks, and an event loop runs here already: use `await app.run_async(...)`")


def _occupy_standard_numbers() -> None:
    """Let no descriptor of the loop's get the number of a standard stream we were started without."""
    # uvloop ends the process when it has to close one of them.
    null = os.open(os.devnull, os.O_RDWR)
    while null <= STDERR:
        null = os.open(os.devnull, os.O_RDWR)
    os.close(null)


async def _serve_one(listener: TransportListener, entrance: Entrance, ready: Callable[[], None]) -> None:
    try:
        await listener.serve(entrance, ready)
    finally:
        # Also of one that ended by itself: nobody comes in by it, so it keeps no other from being the last.
        entrance.closing = True


def _close(runner: asyncio.Runner) -> None:
    """End what still runs, and leave behind what will not end: closing the runner would wait for it for ever."""
    stuck = runner.get_loop().run_until_complete(_end_tasks())
    if stuck:
        logger.error("%d tasks ignore their cancellation and are left behind", stuck)
    else:
        runner.close()


async def _end_tasks() -> int:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        return len((await asyncio.wait(tasks, timeout=LAST_GRACE))[1])
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
