"""The end of a process: the signals that ask for it, and what still runs then."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The first asks for an orderly end, the second for an end at once."""

LAST_GRACE = 1.0
"""How many seconds threads and processes that handlers started have to end once the server has."""


class Shutdown:
    """Watches for the signals that end a process, while it is installed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        self._loop = loop
        self._stop = stop
        self._asked = False

    def __enter__(self) -> Shutdown:
        for number in SIGNALS:
            try:
                self._loop.add_signal_handler(number, self._signalled, number)
            except (NotImplementedError, RuntimeError, ValueError):
                return self
        return self

    def __exit__(self, *exc: object) -> None:
        for number in SIGNALS:
            try:
                self._loop.remove_signal_handler(number)
            except (NotImplementedError, RuntimeError, ValueError):
                return

    def _signalled(self, number: int) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        self._stop()


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
