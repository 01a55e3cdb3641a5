"""The end of a process: the signals that ask for it, and what still runs then."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end the process. The first one received starts a graceful shutdown; a second one, of either kind, exits
immediately.

In a terminal SIGHUP counts as one of them: the terminal was closed. A service without a terminal gets it from whoever
wants it to read its configuration again; there is nothing to read again here, and nobody expects it to end.
"""

logger = logging.getLogger("ferrule.supervision")

Result = TypeVar("Result")

LAST_GRACE = 1.0
"""How many seconds threads and processes that handlers started have to end once the server has."""


class Shutdown:
    """Watches for the signals that end a process, while it is installed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        self._loop = loop
        self._stop = stop
        self._asked = False
        self._before: dict[int, Any] = {}
        """What handled each signal before, where the loop cannot handle signals itself, as on Windows."""
        self._handlers: dict[int, Callable[[int], None]] = dict.fromkeys(SIGNALS, self._signalled)
        if sys.platform == "win32":
            # Ctrl-Break, by which a parent asks.
            self._handlers[signal.SIGBREAK] = self._signalled
        hangup = hangup_signal()
        if hangup is not None:
            self._handlers[hangup] = self._signalled if has_terminal() else _ignored

    def __enter__(self) -> Shutdown:
        for number, handler in self._handlers.items():
            try:
                self._loop.add_signal_handler(number, handler, number)
            except NotImplementedError:
                self._handle(number, handler)
            except (RuntimeError, ValueError):
                return self
        return self

    def __exit__(self, *exc: object) -> None:
        for number in self._handlers:
            try:
                self._loop.remove_signal_handler(number)
            except NotImplementedError:
                if number in self._before:
                    signal.signal(number, self._before.pop(number))
            except (RuntimeError, ValueError):
                return

    def _handle(self, number: int, handler: Callable[[int], None]) -> None:
        """Let Python handle a signal, and hand it to the loop."""

        def hand_over(number: int, frame: object) -> None:
            self._loop.call_soon_threadsafe(handler, number)

        # Only the main thread may.
        with suppress(ValueError):
            self._before[number] = signal.signal(number, hand_over)

    def _signalled(self, number: int) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        self._stop()


def run_program(
    runner: asyncio.Runner, main: Callable[[], Coroutine[Any, Any, Result]], close: Callable[[], None]
) -> Result:
    """Run what `main` makes, and `close` the runner; Ctrl-C before it began leaves nothing that Python warns of."""
    program = None
    try:
        # Makes the loop, which takes a while: Ctrl-C in it finds no coroutine yet.
        runner.get_loop()
        program = main()
        return runner.run(program)
    finally:
        close()
        # Closing has ended every task, so this one never became one.
        if program is not None and inspect.getcoroutinestate(program) == inspect.CORO_CREATED:
            program.close()


def run_coroutine(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run what `main` makes on an event loop of its own, as `asyncio.run` does with what is made already."""
    runner = asyncio.Runner()
    return run_program(runner, main, runner.close)


def hangup_signal() -> int | None:
    """Return SIGHUP; None where the system has none, or where it is ignored already (`nohup`)."""
    number = getattr(signal, "SIGHUP", None)
    if number is None or signal.getsignal(number) is signal.SIG_IGN:
        return None
    return int(number)


def has_terminal() -> bool:
    """Whether we were started in a terminal: then SIGHUP means that it was closed."""
    try:
        return os.isatty(0)
    except OSError:
        return False


def _ignored(number: int) -> None:
    logger.info("%s: nothing to do, the server goes on", signal.Signals(number).name)


class UnwaitedExecutor(ThreadPoolExecutor):
    """The default executor of a loop that can be closed while a thread of `asyncio.to_thread` is still busy."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Start no more work, and do not wait for what runs."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)


def awaited_at_exit() -> list[Any]:
    """Return the threads, and the processes of multiprocessing, that Python waits for before it ends."""
    found: list[Any] = list(threading.enumerate())
    if "multiprocessing" in sys.modules:
        found += sys.modules["multiprocessing"].active_children()
    return [each for each in found if not each.daemon]


def left_running(known: Collection[object], grace: float = LAST_GRACE) -> str:
    """Return the names of what Python would wait for, started since `known` and alive after `grace` seconds."""
    until = time.monotonic() + grace
    alive = []
    for each in awaited_at_exit():
        if each not in known:
            each.join(max(0.0, until - time.monotonic()))
            if each.is_alive():
                alive.append(each.name)
    return ", ".join(alive)
