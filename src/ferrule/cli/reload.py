"""Reload: when a file of a server changes, what it offers is exchanged while its clients stay connected.

The server that was loaded first goes on serving: it holds the links, sessions and subscriptions. Its own offers are
taken away, and those of the server that was loaded anew are mounted in it; clients are told that the lists changed.

Rule 1: a file that cannot be loaded changes nothing: the error is told, and what was served is served on.
Rule 2: calls that run are not touched; the lifespan of what they belong to ends after them.
Rule 3: what a server is made with (its name, options, extensions, routes) is as it was at the start.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from ferrule.cli.combined import load_places
from ferrule.cli.place import file_of, read_places
from ferrule.errors import SetupError
from ferrule.server.server import Server

INTERVAL = 0.3
"""Seconds between two looks at the files."""
SETTLE = 0.1
"""Seconds without a change after which an editor has written what it writes."""
DRAIN = 5.0
"""Seconds that calls of the server before may take before its lifespan ends."""
WORK = ("tools/call", "resources/read", "prompts/get", "completion/complete")
NOT_OURS = ("site-packages", "dist-packages")

Tell = Callable[[str], None]
"""Writes a line for the person at the terminal."""
Mark = tuple[int, int, int]


class FileWatch:
    """Which files of a program changed since the last look."""

    def __init__(self, files: Sequence[Path], folders: Sequence[Path]) -> None:
        self._folders = folders
        self._marks: dict[str, Mark | None] = {}
        for file in files:
            self._add(str(file))
        self.look()

    def look(self) -> list[str]:
        """Return the files that changed since the last look, and notice files that were loaded since."""
        changed: list[str] = []
        for path, mark in self._marks.items():
            now = _mark(path)
            if now != mark:
                self._marks[path] = now
                changed.append(path)
        for folder in self._folders:
            for path in loaded_files(folder).values():
                self._add(path)
        return changed

    def _add(self, path: str) -> None:
        if path not in self._marks:
            self._marks[path] = _mark(path)

    @property
    def files(self) -> list[str]:
        """What is watched."""
        return list(self._marks)


def _mark(path: str) -> Mark | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # a look a file, a few times a second
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def loaded_files(folder: Path) -> dict[str, str]:
    """Return the modules that were loaded from below a folder, with their files; installed ones aside."""
    start = f"{folder}{os.sep}"
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.startswith(start) or not path.endswith(".py"):
            continue
        parts = Path(path).relative_to(folder).parts
        if not any(part in NOT_OURS or part.startswith(".") for part in parts):
            found[name] = path
    return found


class Reloader:
    """Loads a server anew when its files change, and exchanges what is offered; begins and ends with the server."""

    begins_something = True

    def __init__(self, server: Server, places: Sequence[str], arguments: Sequence[str], tell: Tell) -> None:
        if server.settings.receipts is not None:
            raise SetupError("a server with receipts cannot be reloaded: its chain belongs to one process")
        self._server = server
        self._places = places
        self._arguments = arguments
        files = []
        for place in read_places(places):
            file = file_of(place.where)
            if file is not None:
                files.append(file)
        self._folders = source_roots(files)
        if len(files) < len(places):  # a module is found from the working directory
            self._folders.append(Path.cwd())
        self._tell = tell
        self._watch = FileWatch(files, self._folders)
        self._current = server
        """Whose offers are served now."""
        self._task: asyncio.Task[None] | None = None
        server.host.lifespans.mounted.append(self)

    async def enter(self) -> None:
        """Begin to watch the files."""
        self._task = asyncio.create_task(self._run(), name="reload")

    async def leave(self) -> None:
        """Watch no more, and end the lifespan of what is served now."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._current is not self._server:
            await self._current.host.lifespans.leave()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            if not self._watch.look():
                continue
            await asyncio.sleep(SETTLE)
            while self._watch.look():  # noqa: ASYNC110  # files tell nobody
                await asyncio.sleep(SETTLE)
            # In a thread, since importing may take long, and a function that makes a server may run a loop of its own.
            fresh = await asyncio.to_thread(self._load)
            if fresh is not None:
                await self._exchange(fresh)

    def _load(self) -> Server | None:
        """Load the server anew; None where that fails, and everything is as it was."""
        old = forget(self._folders)
        path = list(sys.path)
        try:
            return load_places(self._places, self._arguments)
        except SetupError as error:
            sys.modules.update(old)
            self._tell(f"not reloaded: {error}")
            return None
        finally:
            sys.path[:] = path
            self._watch.look()

    async def _exchange(self, fresh: Server) -> None:
        """Offer what a server offers in the place of what is offered now."""
        try:
            await fresh.host.lifespans.enter()
        except Exception as error:
            self._tell(f"not reloaded: the lifespan of {fresh.name} failed: {type(error).__name__}: {error}")
            return
        old = self._current
        served = self._server
        self._withdraw(old)
        served.mounts.begin(served.mounts.prepare(fresh.offers, ""), live=True)
        self._current = fresh
        names = ", ".join(Path(place).name for place in self._places)
        self._tell(f"reloaded {names}")
        if old is served:
            return
        try:
            await self._drain()
        finally:
            await old.host.lifespans.leave()

    def _withdraw(self, old: Server) -> None:
        """Offer nothing any more; what is new is offered in the same turn of the loop."""
        served = self._server
        if old is not served:
            served.mounts.end(old.offers)
            return
        for mount in list(served.mounts):
            served.mounts.end(mount.child)
        offers = served.offers
        for name in list(offers.tools.catalogue.registered):
            offers.tools.catalogue.remove(name)
        for name in list(offers.prompts.catalogue.registered):
            offers.prompts.catalogue.remove(name)
        for uri in [*offers.resources.catalogue.registered, *offers.resources.templates.registered]:
            offers.resources.remove(uri)
        # The middleware of what is mounted surrounds its own offers.
        served.host.layers.clear()
        served.host.recompose()

    async def _drain(self) -> None:
        """Wait until no call runs, since it may use what a lifespan holds; at most for a while."""
        loop = asyncio.get_running_loop()
        until = loop.time() + DRAIN
        while loop.time() < until and self._busy():  # noqa: ASYNC110  # a look at many calls, not one
            await asyncio.sleep(SETTLE)

    def _busy(self) -> bool:
        """Return whether anything runs that a handler of the server works on; who only listens is not waited for."""
        for link in self._server.host.links:
            if any(call.method in WORK for call in list(link.session.running.values())):
                return True
        return False


def source_roots(files: Sequence[Path]) -> list[Path]:
    """Return the folders with the sources of a program: those of its files, or of the packages these are in."""
    found: dict[Path, None] = {}
    for file in files:
        folder = file.parent
        while (folder / "__init__.py").is_file():
            folder = folder.parent
        found[folder] = None
    return list(found)


def forget(folders: Sequence[Path]) -> dict[str, ModuleType]:
    """Let the modules below some folders be imported anew; return them as they were."""
    found: dict[str, ModuleType] = {}
    for folder in folders:
        for name in loaded_files(folder):
            found[name] = sys.modules.pop(name)
    importlib.invalidate_caches()
    return found
