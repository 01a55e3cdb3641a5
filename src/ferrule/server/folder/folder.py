"""A folder of files as a part of a server: what each file offers is mounted, and exchanged when the file changes.

Rule 1: a file that cannot be loaded, or offers what is taken, changes nothing: one line is logged, and what it offered
before is offered on.
Rule 2: calls that run are not touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from ferrule.errors import SetupError
from ferrule.server.folder.source_files import FileServer, SourceFiles, Stamp
from ferrule.server.hosting.host import Host
from ferrule.server.offers.mounts import Mounts
from ferrule.supervision.scope import Scope

logger = logging.getLogger("ferrule.server")


class Folder:
    """The files of one folder, offered by a server; begins and ends with it."""

    def __init__(
        self, host: Host, mounts: Mounts, path: str | os.PathLike[str], prefix: str, watch: float | None
    ) -> None:
        if watch is not None and watch <= 0:
            raise SetupError(f"add_folder: watch is a number of seconds above 0, or None, not {watch!r}")
        self._mounts = mounts
        self._threads = host.services.threads
        self._prefix = prefix
        self._watch = watch
        self._files = SourceFiles(path)
        self._stamps: dict[Path, Stamp] = {}
        self._servers: dict[Path, FileServer] = {}
        self._faults: dict[Path, str] = {}
        self._scope: Scope | None = None
        self._lock = asyncio.Lock()
        self._take(self._look())
        if self._faults:
            for each in list(self._servers):
                self._withdraw(each)
            raise SetupError("; ".join(self._faults.values()))

    # -- lifetime

    @property
    def begins_something(self) -> bool:
        """Whether anything has to begin: a watch over the files."""
        return self._watch is not None

    async def enter(self) -> None:
        """Begin to watch the files."""
        if self._watch is not None:
            self._scope = Scope(asyncio.get_running_loop())
            self._scope.spawn(self._look_often(self._watch))

    async def leave(self) -> None:
        """Watch no more."""
        if self._scope is not None:
            await self._scope.close()

    async def _look_often(self, interval: float) -> None:
        said = ""
        while True:
            await asyncio.sleep(interval)
            try:
                await self.refresh()
            except (OSError, SetupError) as reason:
                if str(reason) != said:
                    said = str(reason)
                    logger.warning("the folder %s cannot be read: %s", self._files.root, said)

    # -- what is offered

    @property
    def files(self) -> list[str]:
        """The files whose offers are offered now."""
        return [self._files.shown(path) for path in self._servers]

    @property
    def faults(self) -> list[str]:
        """What is wrong with files as they are now, a sentence each."""
        return list(self._faults.values())

    async def refresh(self) -> bool:
        """Look at the folder now, and offer what changed. Return whether anything did."""
        async with self._lock:
            # In a thread, since importing may take long.
            return self._take(await self._threads.run(self._look))

    def _look(self) -> dict[Path, FileServer | SetupError | None]:
        """Load what changed since the last look: a file's server, why there is none, or None for one that is gone."""
        stamps = self._files.stamps()
        changed = []
        for path in [*stamps, *self._stamps]:
            if stamps.get(path) != self._stamps.get(path) and path not in changed:
                changed.append(path)
        if any(self._files.is_private(path) for path in changed):
            # Who imports it is not known: all are loaded anew.
            self._files.forget_private()
            changed = [*stamps, *(path for path in changed if path not in stamps)]
        found: dict[Path, FileServer | SetupError | None] = {}
        for path in changed:
            if self._files.is_private(path):
                continue
            try:
                found[path] = self._files.load(path) if path in stamps else None
            except (SetupError, OSError) as reason:
                found[path] = SetupError(str(reason))
        self._stamps = stamps
        return found

    def _take(self, found: dict[Path, FileServer | SetupError | None]) -> bool:
        """Offer what was loaded in the place of what its file offered before."""
        changed = False
        for path, server in found.items():
            self._faults.pop(path, None)
            if isinstance(server, SetupError):
                self._fault(path, server)
            elif server is None:
                changed = self._withdraw(path) or changed
            else:
                changed = self._exchange(path, server) or changed
        return changed

    def _exchange(self, path: Path, server: FileServer) -> bool:
        before = self._servers.get(path)
        self._withdraw(path)
        try:
            self._offer(path, server)
        except SetupError as reason:
            self._fault(path, reason)
            if before is not None:
                self._offer(path, before)
            return False
        if before is not None:
            logger.info("%s was loaded anew", self._files.shown(path))
        return True

    def _offer(self, path: Path, server: FileServer) -> None:
        self._mounts.begin(self._mounts.prepare(server.offers, self._prefix), live=True)
        self._servers[path] = server

    def _withdraw(self, path: Path) -> bool:
        server = self._servers.pop(path, None)
        if server is None:
            return False
        self._mounts.end(server.offers)
        return True

    def _fault(self, path: Path, reason: SetupError) -> None:
        self._faults[path] = str(reason)
        kept = ""
        if path in self._servers:
            kept = "; what it offered before is offered on"
        logger.warning("%s%s", reason, kept)
