"""Finding the server in somebody's file or module."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import types
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ferrule.cli.place import no_such_file
from ferrule.errors import SetupError
from ferrule.porting_hints import foreign_module
from ferrule.server.offers.offers import Offers
from ferrule.server.server import Server
from ferrule.supervision.signals import run_coroutine

FOREIGN = ("mcp", "fastmcp")
"""Other libraries whose servers a file may define."""
OURS = str(Path(__file__).resolve().parents[1])
NOT_THEIRS = (OURS, str(Path(os.__file__).parent), "<")
"""Where the code is that the author of a file did not write, beside what is installed."""


def load_server(place: str, arguments: Sequence[str] = ()) -> Server:
    """Import `FILE`, `FILE:name`, `MODULE` or `MODULE:name`, and return the server it defines.

    The name may be that of a function without parameters that returns one. `sys.argv` is the file's own from here on.
    """
    path, name = _parted(place)
    sys.argv = [path, *arguments]
    module = _load_module(path) if _is_module(path) else _load_file(path)
    if name:
        return _named(module, path, name)
    return _only(module, path)


def _parted(place: str) -> tuple[str, str]:
    """Part a file from the name of its server; a file's own name may hold a colon."""
    path, _, name = place.rpartition(":")
    if not path or Path(place).is_file():
        return (place, "")
    return (path, name)


def _is_module(path: str) -> bool:
    return all(part.isidentifier() for part in path.split(".")) and not path.endswith(".py") and not Path(path).exists()


# -- importing


def _load_module(name: str) -> types.ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        if importlib.util.find_spec(name) is None:
            raise SetupError(no_such_file(name).replace("file", "file or module", 1))
        return importlib.import_module(name)
    except SetupError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise SetupError(no_such_file(name).replace("file", "file or module", 1)) from None
        raise SetupError(f"{name} cannot be loaded: {_told(error, None)}") from error


def _load_file(path: str) -> types.ModuleType:
    file = Path(path).resolve()
    if not file.is_file():
        raise SetupError(no_such_file(path))
    sys.path.insert(0, str(file.parent))
    try:
        spec = importlib.util.spec_from_file_location(_module_name(file), file)
        if spec is None or spec.loader is None:
            raise SetupError(f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except Exception as error:
        if isinstance(error, SetupError) and not _frames(error):
            raise
        raise SetupError(f"{path} cannot be loaded: {_told(error, file)}") from error
    return module


def _module_name(file: Path) -> str:
    """Return the name a file is imported under; one in a package, or with relative imports, is below its package."""
    if (file.parent / "__init__.py").is_file():
        root = file.parent.parent
        while (root / "__init__.py").is_file():
            root = root.parent
        sys.path.insert(0, str(root))
        package = ".".join(file.parent.relative_to(root).parts)
        importlib.import_module(package)
        if file.stem == "__init__":
            return package
        return f"{package}.{file.stem}"
    if not _imports_relatively(file):
        return _free_name(file)
    package = file.parent.name.replace(".", "_") or "root"
    while package in sys.modules:
        package += "_"
    parent = types.ModuleType(package)
    parent.__path__ = [str(file.parent)]
    sys.modules[package] = parent
    return f"{package}.{file.stem}"


def _free_name(file: Path) -> str:
    """Return the name of a file as a module; another one where a file of that name was loaded from elsewhere."""
    name = file.stem
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if isinstance(loaded, str) and Path(loaded).name == file.name and Path(loaded).resolve() != file:
        return f"{file.parent.name.replace('.', '_')}_{name}"
    return name


def _imports_relatively(file: Path) -> bool:
    if file.suffix != ".py":
        return False
    tree = ast.parse(file.read_bytes(), str(file))
    return any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(tree))


# -- choosing


def _named(module: types.ModuleType, path: str, name: str) -> Server:
    value = getattr(module, name, None)
    if not isinstance(value, Server | type) and callable(value):
        value = _made(value, path, name)
    if isinstance(value, Server):
        return value
    raise SetupError(f"{path} has no server named {name!r}; it has {', '.join(_servers(module)) or 'none'}")


def _made(factory: Any, path: str, name: str) -> Server:
    """Return what a function of somebody's file makes."""
    try:
        value = factory()
        if inspect.iscoroutine(value):
            with closing(value) as coroutine:
                value = run_coroutine(lambda: coroutine)
    except Exception as error:
        raise SetupError(f"{path}:{name} cannot make a server: {_told(error, None)}") from error
    if not isinstance(value, Server):
        raise SetupError(f"{path}:{name} returned {type(value).__name__}, not a Server")
    return value


def _servers(module: types.ModuleType) -> dict[str, Server]:
    """Return the servers a module defines, each under its first name, without those that others of them mount."""
    found: dict[str, Server] = {}
    for name, value in vars(module).items():
        if isinstance(value, Server) and not any(value is other for other in found.values()):
            found[name] = value
    for server in list(found.values()):
        for mount in server.mounts:
            _drop(found, mount.child)
    return found


def _drop(found: dict[str, Server], mounted: Offers) -> None:
    for name, server in list(found.items()):
        if server.offers is mounted:
            del found[name]


def _only(module: types.ModuleType, path: str) -> Server:
    found = _servers(module)
    if len(found) > 1:
        first = next(iter(found))
        if len(found) == 2:
            names = " and ".join(found)
        else:
            names = ", ".join(found)
        raise SetupError(f"{path} defines {len(found)} servers, {names}: name the one to run, as in {path}:{first}")
    if not found:
        raise SetupError(f"{path} defines no Server; write `app = Server(...)`{_foreign_server(module)}")
    return next(iter(found.values()))


def _foreign_server(module: types.ModuleType) -> str:
    for name, value in vars(module).items():
        kind = type(value)
        if kind.__module__.partition(".")[0] in FOREIGN and hasattr(value, "run"):
            return f", since its {name!r} is a {kind.__name__} of {kind.__module__.partition('.')[0]}"
    return ""


# -- telling


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an error that its author wrote."""
    every = traceback.extract_tb(error.__traceback__)
    found: list[traceback.FrameSummary] = []
    for frame in every:
        if not frame.filename.startswith(NOT_THEIRS) and "site-packages" not in frame.filename:
            found.append(frame)
    return found


def _told(error: Exception, file: Path | None) -> str:
    """Return what went wrong in somebody's code, and on which line: the innermost that is theirs."""
    number: int | None = None
    where = ""
    what = str(error)
    if isinstance(error, SyntaxError):
        number = error.lineno
        where = error.filename or ""
        what = error.msg
    elif frames := _frames(error):
        number = frames[-1].lineno
        where = frames[-1].filename
    if isinstance(error, ModuleNotFoundError) and error.name and (instead := foreign_module(error.name)):
        what += f"; here it is {instead}"
    if file is not None and where == str(file):
        line = f"line {number}"
    else:
        line = f"{Path(where).name}, line {number}"
    return f"{type(error).__name__}: {what}" + (f" ({line})" if number else "")
