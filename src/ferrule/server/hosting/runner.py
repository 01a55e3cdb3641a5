"""Runner: serves one server on transports, from the start of a program to its orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ferrule.budgets.allocator import allocator
from ferrule.errors import FerruleError, SetupError
from ferrule.server.foreign_names import refuse_foreign
from ferrule.server.hosting.entrance import Entrance
from ferrule.server.hosting.host import Host
from ferrule.server.hosting.listeners import Listeners, kind_of, new_listener
from ferrule.server.hosting.registration import ServerRegistration
from ferrule.server.hosting.tree import ServingTree
from ferrule.server.settings import RunSettings, read_run_settings
from ferrule.settings.sources import use_beside_program
from ferrule.supervision.child import Child
from ferrule.supervision.event_loop import require_asyncio
from ferrule.supervision.signals import Shutdown, UnwaitedExecutor, awaited_at_exit, left_running, run_program
from ferrule.supervision.supervisor import Supervisor
from ferrule.transports.contract import AnnouncedListener, MeteredListener
from ferrule.transports.contract import Listener as TransportListener

if TYPE_CHECKING:
    from ferrule.transports.http.asgi.app import AsgiApp
    from ferrule.transports.keywords import AsgiKeywords, WebSocketKeywords

logger = logging.getLogger("ferrule.server")

WORKER_OPTIONS = ("workers", "worker_max_age", "worker_max_memory", "worker_ready_timeout")
"""The options of `run` that are not of its transport."""
LAST_GRACE = 1.0
STDERR = 2


class Runner:
    """Serves one server on transports, and stops it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._name = host.services.name
        self._grace = host.services.settings.shutdown_grace
        self._entrances: set[Entrance] = set()
        """By which peers come in now: one for each listener, one for each ASGI app that runs."""
        self._asgi_apps = 0
        self._trees: list[ServingTree] = []
        """One for each `serve` that runs."""
        self.registration = ServerRegistration(host)
        self.listeners = Listeners(host, self.registration, self._entrances)
        self._exporters: list[Child] = []
        self.supervisor: Supervisor | None = None
        """The tree of what runs while the server serves, the last one where it has ended; None before the first."""

    async def serve(self, *listeners: TransportListener, ready: Callable[[], object] | None = None) -> None:
        """Serve one or several transports until they end or `stop` is called; calls `ready` when all can be reached.

        A transport that ends, or is closed by itself, takes only its own peers along; one that dies is bound again.
        """
        named = [(None, listener) for listener in listeners]
        await self._serve(named, ready)

    async def _serve(
        self, listeners: Sequence[tuple[str | None, TransportListener]], ready: Callable[[], object] | None
    ) -> None:
        if any(isinstance(listener, MeteredListener) and listener.shows_metrics for _, listener in listeners):
            _ = self._host.monitor().metrics
        # Where the server is served twice at once, its telemetry is exported once.
        exporters = () if self._trees else self._exporters
        tree = ServingTree(self._host, self.registration, self.listeners, exporters)
        for name, listener in listeners:
            tree.add(listener, name, ready)
        self._trees.append(tree)
        self.supervisor = tree.supervisor
        try:
            await tree.run()
        finally:
            self._trees.remove(tree)

    def add_exporter(self, child: Child) -> None:
        """Run a child of `app/telemetry` whenever the server serves; it is restarted for ever and harms nobody."""
        self._exporters.append(child)
        if self._trees:
            self._trees[0].telemetry.add(child)

    async def stop(self, grace: float | None = None) -> None:
        """Stop serving: let running calls end, then close every transport; what has yet to begin is given up.

        An ASGI app of this server is not ended by this, but by the application it lives in, or its own `stop`.
        """
        within = self._grace if grace is None else grace
        # Known to all of them before the first one asks whether it is the last.
        for entrance in self._entrances:
            entrance.closing = entrance.closing or not entrance.hosted
        await asyncio.gather(*(tree.stop(within) for tree in self._trees))

    async def run_async(self, transport: str | None, options: Mapping[str, object]) -> None:
        """Serve one transport by name, with signals that stop it in order."""
        require_asyncio("app.run_async()", "use app.run(), or `await app.run_async()` within asyncio.run(main())")
        await self._run(transport, options)

    async def _run(self, transport: str | None, options: Mapping[str, object]) -> None:
        use_beside_program()
        name = transport or read_run_settings({}).transport
        kind = kind_of(name)
        listener = new_listener(name, options)
        if kind.hint and sys.stdin is not None and sys.stdin.isatty():
            _say(f"{self._name} {kind.hint}. Ctrl-C ends it.")
        allocator.own_process()
        loop = asyncio.get_running_loop()
        stopping: set[asyncio.Task[None]] = set()
        stop = Shutdown(loop, lambda: stopping.add(loop.create_task(self.stop())))
        with stop:
            await self._serve([(kind.name, listener)], lambda: self._tell_where(listener))
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
        given = dict(options)
        try:
            use_beside_program()
            asked = {name: given.pop(name) for name in WORKER_OPTIONS if name in given}
            settings = read_run_settings(asked)
            if settings.workers is None:
                run_blocking(lambda: self._run(transport, given))
            else:
                self._oversee(settings.workers, transport or settings.transport, given, settings)
        except FerruleError as error:
            from ferrule.supervision.tracebacks import in_one_sentence

            raise in_one_sentence(error, str(error)) from None
        except Exception as error:
            if error is not self._host.lifespans.not_begun:
                raise
            from ferrule.supervision.tracebacks import in_one_sentence

            sentence = f"the lifespan of the server {self._name!r} failed: {type(error).__name__}: {error}"
            raise in_one_sentence(error, sentence) from None

    def _oversee(self, workers: int, transport: str, options: dict[str, object], settings: RunSettings) -> None:
        """Serve by several processes, each of which imports the program anew."""
        if sys.platform == "win32":
            raise SetupError(
                "several workers hand connections to each other over Unix sockets, and Python has none on Windows: "
                "leave workers out, or start several servers at ports of their own"
            )
        _require_no_loop()
        kind_of(transport)
        overseer = importlib.import_module("ferrule.workers.overseer")
        overseer.require_program()
        place = place_of(self._host.services.app)
        overseer.oversee(
            workers,
            [place],
            sys.argv[1:],
            transport,
            options,
            max_age=settings.worker_max_age,
            max_memory=settings.worker_max_memory,
            ready_timeout=settings.worker_ready_timeout,
        )

    def asgi(self, path: str, websocket: bool | WebSocketKeywords, options: AsgiKeywords) -> AsgiApp:
        """Return this server as an ASGI app, to serve or to mount; the options are those of `EndpointSettings`."""
        refuse_foreign("asgi", options)
        module = importlib.import_module("ferrule.transports.http.asgi.app")
        self._asgi_apps += 1
        name = "asgi"
        if self._asgi_apps > 1:
            name = f"asgi-{self._asgi_apps}"
        entrance = Entrance(self._host, self._entrances, name, hosted=True)
        made: AsgiApp = module.AsgiApp(entrance, self._grace, path, websocket, **options)

        def used(in_use: bool) -> None:
            if in_use:
                self.registration.server_began()
                self.registration.transport_opened(name, made)
            else:
                self.registration.transport_closed(name)
                self.registration.server_ended()

        entrance.on_use = used
        return made


def run_blocking(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run what `main` makes on a fast event loop; what it left running is not waited for, only named in the log."""
    _require_no_loop()
    _occupy_standard_numbers()
    known = awaited_at_exit()
    runner = asyncio.Runner(loop_factory=_loop_factory())

    def close() -> None:
        _close(runner)
        if left := left_running(known):
            logger.warning("the server has ended, but Python waits for what still runs: %s", left)

    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(UnwaitedExecutor(thread_name_prefix="asyncio"))
        await main()

    run_program(runner, run, close)


def place_of(app: object) -> str:
    """Return where other processes find a server: the program and the name it has there; raises SetupError."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if main is None or file is None:
        raise SetupError("workers import your program, and there is no file of it: use `ferrule run FILE --workers N`")
    for name, value in vars(main).items():
        if value is app:
            # A plain server does without pathlib.
            return f"{os.path.abspath(file)}:{name}"  # noqa: PTH100
    raise SetupError(
        f"workers import {file}, and find no server in it: assign it to a name of the module, as `app = Server(…)`"
    )


def _say(line: str) -> None:
    """Write a line to stderr; a server serves whether or not that works."""
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


def _close(runner: asyncio.Runner) -> None:
    """End what still runs, and leave behind what will not end: closing the runner would wait for it for ever."""
    stuck = runner.get_loop().run_until_complete(_end_tasks())
    if stuck:
        logger.error("%d tasks ignore their cancellation and are left behind", stuck)
    else:
        runner.close()


async def _end_tasks() -> int:
    """Cancel all tasks. Return how many of them ignore it."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if not tasks:
        return 0
    _, stuck = await asyncio.wait(tasks, timeout=LAST_GRACE)
    return len(stuck)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        if sys.platform == "win32":
            # The usual loop there cannot wait for a listening socket.
            return asyncio.SelectorEventLoop
        return None
    return uvloop.new_event_loop
