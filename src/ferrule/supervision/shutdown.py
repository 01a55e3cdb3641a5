"""Signals: the first asks for an orderly end, the second for an end at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
