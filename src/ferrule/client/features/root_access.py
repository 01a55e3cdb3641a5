"""Which roots of a client can be read: the others are not offered, and a change of that is noticed."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ferrule.schema.roots import Root

logger = logging.getLogger("ferrule.client")

FRESH = 0.2
"""Seconds that a look holds good: each starts a thread, and a server may ask as often as it likes."""

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


def is_inside(uri: str) -> bool:
    """Whether a file URI stays where it begins: no segment is `..`, whichever slash divides them, encoded or not."""
    try:
        path = unquote(urlsplit(uri).path)
    except ValueError:
        return False
    return ".." not in path.replace("\\", "/").split("/")


def local_path(uri: str) -> str | None:
    """Return the path of a file URI; None where it is one of another machine (RFC 8089 §2)."""
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path)
    if os.name == "nt":
        path = path.lstrip("/")
    return path


def is_readable(root: Root) -> bool:
    """Whether a root can be read now; one of another machine, which we cannot look at, is taken to be. May block."""
    path = local_path(root.uri)
    if path is None:
        return True
    try:
        mode = os.R_OK
        if Path(path).is_dir():
            mode |= os.X_OK
        return os.access(path, mode)
    except ValueError:
        return False  # a null byte


class RootAccess:
    """What was found of the roots when a server last asked for them, or when they were last looked at."""

    __slots__ = ("_clock", "_in_thread", "_known", "_looked_at", "_looking", "_unreadable")

    def __init__(self, in_thread: InThread, clock: Callable[[], float] = time.monotonic) -> None:
        self._in_thread = in_thread
        """A file system may take long to say that it is gone, and the loop must not wait for that."""
        self._clock = clock
        self._known: list[Root] = []
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self._unreadable: set[str] = set()

    async def readable(self, roots: Iterable[Root]) -> list[Root]:
        """Return the roots that can be read now, and remember which were looked at."""
        asked = list(roots)
        async with self._looking:
            if asked != self._known or self._clock() - self._looked_at > FRESH:
                self._known = asked
                await self._look()
        found: list[Root] = []
        for root in asked:
            if root.uri not in self._unreadable:
                found.append(root)
        return found

    async def has_changed(self) -> bool:
        """Look again at what a server was told of. Return whether other roots can be read than before."""
        async with self._looking:
            before = self._unreadable
            await self._look()
            return self._unreadable != before

    async def _look(self) -> None:
        known = self._known
        local = []
        for root in known:
            if local_path(root.uri) is not None:
                local.append(root)
        if not local:
            self._unreadable = set()
            return
        found = await self._in_thread(lambda: {root.uri for root in local if not is_readable(root)})
        for uri in sorted(found - self._unreadable):
            logger.warning("the root %s cannot be read and is not offered", uri)
        for uri in sorted(self._unreadable - found):
            logger.info("the root %s can be read again, or is no longer one", uri)
        self._unreadable = found
        self._looked_at = self._clock()
