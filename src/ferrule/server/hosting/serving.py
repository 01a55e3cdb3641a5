"""Serving: the lifespan, the transports that run, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from ferrule.errors import FerruleError, SetupError
from ferrule.server.extensions.extension import Extension, Extensions
from ferrule.server.foreign_names import refuse_foreign
from ferrule.server.hosting.lifespans import Lifespan, entered, listed
from ferrule.server.hosting.link_state import Links
from ferrule.server.hosting.listeners import Entrance
from ferrule.server.notifications.changes import ChangeNotices
from ferrule.server.offers.mounts import Mount
from ferrule.server.settings import ServerSettings, read_run_settings
from ferrule.settings.sources import use_beside_program
from ferrule.supervision.event_loop import require_asyncio
from ferrule.supervision.signals import Shutdown, UnwaitedExecutor, awaited_at_exit, left_running
from ferrule.supervision.tracebacks import in_one_sentence
from ferrule.transports.contract import AnnouncedListener
from ferrule.transports.contract import Listener as TransportListener
from ferrule.transports.registry import TRANSPORTS, TransportKind

if TYPE_CHECKING:
    from ferrule.runtime.tasks.tasks import Tasks
    from ferrule.server.server import Server
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

LAST_GRACE = 1.0
STDERR = 2


class Serving:
    """The serving half of a server."""

    name: str
    settings: ServerSettings
    changes: ChangeNotices
    links: Links
    _tasks: Tasks | None
    mounts: list[Mount]
    extensions: Extensions

    def __init__(self, lifespan: Lifespan | Sequence[Lifespan] | None) -> None:
        self.lifespan_value: Any = None
        self._begun = False
        self._not_begun: BaseException | None = None
        """Why the lifespan could not begin."""
        self._lifespans = listed(lifespan)
        self._lifespan_exit: contextlib.AsyncExitStack | None = None
        self._users = 0
        self._lock: asyncio.Lock | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._listeners: list[TransportListener] = []
        self.entrances: set[Entrance] = set()
        """By which peers come in now: one for each listener, one for each ASGI app that runs."""
        self._starting: set[asyncio.Task[Any]] = set()

    async def enter(self) -> None:
        """Start what the server needs while anyone uses it; every enter is matched by a leave."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._home is not loop:
            self._lock = asyncio.Lock()
            self._home = loop
        async with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self.changes.begin(loop)
            try:
                await self._enter_lifespan()
            except BaseException as error:
                self._users -= 1
                self.changes.loop = None
                self._not_begun = error
                raise

    async def _enter_lifespan(self) -> None:
        """Begin our lifespans, the extensions', then those of mounted servers; what had begun ends if one cannot."""
        async with contextlib.AsyncExitStack() as stack:
            self.lifespan_value = await entered(self._lifespans, self._whole(), stack)
            for extension in self.extensions:
                own = extension.lifespan(self._whole())
                if own is not None:
                    await stack.enter_async_context(own)
            for mount in self.mounts:
                await mount.child.enter()
                stack.push_async_callback(mount.child.leave)
            # Tasks use what was entered above, so they end before it does.
            stack.push_async_callback(self._close_tasks)
            self._lifespan_exit = stack.pop_all()
            self._begun = True

    def yielded(self) -> Any:
        """Return what the lifespan yielded; SetupError while nobody has begun it, as in a call without a client."""
        if self._lifespans and not self._begun:
            raise SetupError(
                f"the lifespan of the server {self.name!r} has not begun: call it through a Client,"
                f" or `await app.enter()` before and `await app.leave()` after"
            )
        return self.lifespan_value

    async def _close_tasks(self) -> None:
        if self._tasks is not None:
            await self._tasks.close()

    def check_startable(self, other: Server) -> None:
        """Raise SetupError if a server to be mounted has yet to begin something, and we are beyond beginning."""
        waiting = other.begins_something and not other.is_in_use
        if self.is_in_use and waiting:
            raise SetupError(
                f"the server {other.name!r} has a lifespan and {self.name!r} is running already:"
                f" mount it before, or `await {other.name}.enter()` first and `leave()` at the end"
            )

    @property
    def is_in_use(self) -> bool:
        """Whether anyone uses this server now."""
        return self._users > 0

    @property
    def begins_something(self) -> bool:
        """Whether this server, one of its extensions or one mounted in it has a lifespan."""
        own = any(type(extension).lifespan is not Extension.lifespan for extension in self.extensions)
        return bool(self._lifespans) or own or any(mount.child.begins_something for mount in self.mounts)

    async def leave(self) -> None:
        """End what `enter` started, when the last user leaves."""
        assert self._lock is not None
        async with self._lock:
            self._users -= 1
            if self._users == 0 and self._lifespan_exit is not None:
                stack = self._lifespan_exit
                self._lifespan_exit = None
                try:
                    await stack.aclose()
                finally:
                    self.lifespan_value = self.changes.loop = None
                    self._begun = False

    async def serve(self, *listeners: TransportListener, ready: Callable[[], Any] | None = None) -> None:
        """Serve one or several transports until they end or `stop` is called; tells `ready` when all can be reached.

        A transport that ends, or is closed by itself, takes only its own peers along.
        """
        entrances = [Entrance(self._whole()) for _ in listeners]
        async with contextlib.AsyncExitStack() as stack:
            if await self._begun_unless_stopped(self._enter_by(entrances, stack)):
                await self._serve_all(list(zip(listeners, entrances, strict=True)), ready)

    async def _enter_by(self, entrances: Sequence[Entrance], stack: contextlib.AsyncExitStack) -> None:
        await self.enter()
        stack.push_async_callback(self.leave)
        for entrance in entrances:
            await entrance.enter()
            stack.push_async_callback(entrance.leave)

    async def _serve_all(
        self, served: Sequence[tuple[TransportListener, Entrance]], ready: Callable[[], Any] | None
    ) -> None:
        self._listeners.extend(listener for listener, _ in served)
        waiting = len(served)

        def one_is_ready() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting and ready is not None:
                ready()

        tasks = [asyncio.ensure_future(_serve_one(*each, one_is_ready)) for each in served]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for listener, _ in served:
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

    async def drain(self, grace: float) -> None:
        """Refuse nothing, but wait until running calls are answered, at most `grace` seconds."""
        kept = [] if self._tasks is None else [self._tasks]
        await asyncio.gather(*(each.drain(grace) for each in (*kept, *self.links)))

    async def stop(self, grace: float | None = None) -> None:
        """Stop serving: let running calls end, then close every transport; what has yet to begin is given up.

        An ASGI app of this server is not ended by this, but by the application it lives in, or its own `stop`.
        """
        while self._starting:
            self._starting.pop().cancel()
        within = self.settings.shutdown_grace if grace is None else grace
        # Known to all of them before the first one asks whether it is the last.
        for entrance in self.entrances:
            entrance.closing = entrance.closing or not entrance.hosted
        await asyncio.gather(*(listener.close(within) for listener in list(self._listeners)))

    @overload
    async def run_async(self, transport: Literal["stdio"] | None = None, **options: Unpack[StdioKeywords]) -> None: ...
    @overload
    async def run_async(
        self, transport: Literal["http", "streamable-http", "sse"], **options: Unpack[HttpKeywords]
    ) -> None: ...
    @overload
    async def run_async(self, transport: Literal["ws"], **options: Unpack[WebSocketListenerKeywords]) -> None: ...
    @overload
    async def run_async(self, transport: Literal["tcp"], **options: Unpack[TcpKeywords]) -> None: ...
    @overload
    async def run_async(self, transport: Literal["unix"], **options: Unpack[UnixKeywords]) -> None: ...
    @overload
    async def run_async(self, transport: str, **options: Unpack[ListenerKeywords]) -> None: ...
    async def run_async(self, transport: str | None = None, **options: object) -> None:
        """Serve one transport by name, with signals that stop it in order."""
        require_asyncio("app.run_async()", "use app.run(), or `await app.run_async()` within asyncio.run(main())")
        await self._run(transport, options)

    async def _run(self, transport: str | None, options: Mapping[str, object]) -> None:
        use_beside_program()
        name = transport or read_run_settings({}).transport
        kind = _kind(name)
        listener = _listener(name, options)
        if kind.hint and sys.stdin is not None and sys.stdin.isatty():
            _say(f"{self.name} {kind.hint}. Ctrl-C ends it.")
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
            _say(f"{self.name} serves MCP at {listener.url}. Ctrl-C ends it.")

    @overload
    def run(self, transport: Literal["stdio"] | None = None, **options: Unpack[StdioKeywords]) -> None: ...
    @overload
    def run(self, transport: Literal["http", "streamable-http", "sse"], **options: Unpack[HttpKeywords]) -> None: ...
    @overload
    def run(self, transport: Literal["ws"], **options: Unpack[WebSocketListenerKeywords]) -> None: ...
    @overload
    def run(self, transport: Literal["tcp"], **options: Unpack[TcpKeywords]) -> None: ...
    @overload
    def run(self, transport: Literal["unix"], **options: Unpack[UnixKeywords]) -> None: ...
    @overload
    def run(self, transport: str, **options: Unpack[ListenerKeywords]) -> None: ...
    def run(self, transport: str | None = None, **options: object) -> None:
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
            if error is not self._not_begun:
                raise
            sentence = f"the lifespan of the server {self.name!r} failed: {type(error).__name__}: {error}"
            raise in_one_sentence(error, sentence) from None
        finally:
            _close(runner)
            if left := left_running(known):
                logger.warning("the server has ended, but Python waits for what still runs: %s", left)

    def asgi(
        self, path: str = "/mcp", *, websocket: bool | WebSocketKeywords = False, **options: Unpack[AsgiKeywords]
    ) -> AsgiApp:
        """Return this server as an ASGI app, to serve or to mount; the options are those of `EndpointSettings`."""
        refuse_foreign("asgi", options)
        module = importlib.import_module("ferrule.transports.http.asgi.app")
        entrance = Entrance(self._whole(), hosted=True)
        made: AsgiApp = module.AsgiApp(entrance, self.settings.shutdown_grace, path, websocket, **options)
        return made

    def _whole(self) -> Server:
        return self  # type: ignore[return-value]  # only a Server has this half


def _kind(transport: str) -> TransportKind:
    kind = TRANSPORTS.get(transport)
    if kind is None:
        raise SetupError(f"unknown transport {transport!r}: this version has {', '.join(TRANSPORTS)}")
    return kind


def _listener(transport: str, options: Mapping[str, Any]) -> TransportListener:
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
