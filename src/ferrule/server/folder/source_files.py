"""The Python files of a folder: which there are, which changed, and the servers they define."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import traceback
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Protocol

from ferrule.errors import SetupError
from ferrule.server.hosting.host import Host
from ferrule.server.offers.offers import Offers

MOST_FILES = 1_000
"""How many files a folder may have: a wrong folder should not be imported."""
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
PRIVATE = "_"
"""How the name of a file begins that only others import."""

Stamp = tuple[int, int, int]
"""When a file was changed, its size and its number: what tells, without reading it, that it is the same."""

_numbers = itertools.count(1)


class FileServer(Protocol):
    """The server that a file defines."""

    name: str
    host: Host
    offers: Offers


class FreshLoader(SourceFileLoader):
    """Runs a file as it is now: code that Python kept of it may be as old as the second it was changed in."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file."""
        compiled: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return compiled


class SourceFiles:
    """The Python files of one folder, imported as a package of their own."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        root = Path(folder).expanduser()
        if not root.is_dir():
            raise SetupError(f"add_folder: there is no folder {str(folder)!r} (looked for it at {root.absolute()})")
        self.root = root.resolve()
        self._package = f"ferrule_folder_{next(_numbers)}"

    def stamps(self) -> dict[Path, Stamp]:
        """Return the files there are now, with what tells that they changed."""
        found: dict[Path, Stamp] = {}
        for path in self._walk():
            try:
                status = path.stat()
            except OSError:
                continue  # it is gone again
            found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
            if len(found) > MOST_FILES:
                raise SetupError(f"add_folder: {self.root} has more than {MOST_FILES} files: is it the right folder?")
        return found

    def _walk(self) -> Iterator[Path]:
        for place, folders, names in os.walk(self.root):
            folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in SKIPPED)
            for name in sorted(names):
                if name.endswith(".py") and not name.startswith("."):
                    yield Path(place) / name

    @staticmethod
    def is_private(path: Path) -> bool:
        """Return whether a file offers nothing itself: its name begins with an underscore."""
        return path.name.startswith(PRIVATE)

    def forget_private(self) -> None:
        """Import the private files anew the next time."""
        for name in list(sys.modules):
            if name.startswith(f"{self._package}."):
                del sys.modules[name]
        importlib.invalidate_caches()

    def load(self, path: Path) -> FileServer:
        """Import a file and return the server it defines; raise SetupError with one sentence where that fails."""
        name = self._module_name(path)
        before = sys.modules.get(name)
        try:
            return _only_server(self._imported(path, name), self.shown(path))
        except SetupError:
            if before is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = before
            raise

    def shown(self, path: Path) -> str:
        """Return the name of a file for people."""
        return str(path.relative_to(self.root.parent))

    def _module_name(self, path: Path) -> str:
        return ".".join([self._package, *path.relative_to(self.root).with_suffix("").parts])

    def _imported(self, path: Path, name: str) -> ModuleType:
        self._add_packages(path)
        loader = FreshLoader(name, str(path))
        spec = importlib.util.spec_from_loader(name, loader, origin=str(path))
        if spec is None:
            raise SetupError(f"{self.shown(path)} is not a Python file")
        spec.has_location = True
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise SetupError(f"{self.shown(path)} cannot be loaded: {_told(error, path)}") from error
        return module

    def _add_packages(self, path: Path) -> None:
        """Make a package of each folder on the way, so that files may import each other relatively."""
        name = self._package
        place = self.root
        for part in ("", *path.relative_to(self.root).parent.parts):
            if part:
                name = f"{name}.{part}"
                place = place / part
            if name not in sys.modules:
                package = ModuleType(name)
                package.__path__ = [str(place)]
                sys.modules[name] = package


def _only_server(module: ModuleType, shown: str) -> FileServer:
    found: list[FileServer] = []
    for value in vars(module).values():
        if isinstance(getattr(value, "offers", None), Offers) and not any(value is other for other in found):
            found.append(value)
    if len(found) != 1:
        many = "no Server" if not found else f"{len(found)} servers"
        raise SetupError(
            f"{shown} defines {many}: write one `app = Server()` with `@app.tool` and the like, "
            "or let the name of the file begin with _ if only others import it"
        )
    server = found[0]
    if server.host.lifespans.begins_something:
        raise SetupError(f"{shown}: a server in a folder has no lifespan of its own: give it to the server that serves")
    return server


def _told(error: BaseException, path: Path) -> str:
    """Return what went wrong in a file, and on which line of it."""
    number: int | None = None
    what = str(error)
    if isinstance(error, SyntaxError):
        number = error.lineno
        what = error.msg
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(path):
                number = frame.lineno
    where = "" if number is None else f" (line {number})"
    return f"{type(error).__name__}: {what}{where}"
