"""Finding the server in somebody's file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from ferrule.errors import SetupError
from ferrule.server.server import Server

USUAL_NAMES = ("mcp", "server", "app")


def load_server(place: str) -> Server:
    """Import `FILE` or `FILE:name` and give the server it defines."""
    path, name = _parted(place)
    file = Path(path).resolve()
    if not file.is_file():
        raise SetupError(f"no such file: {path}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise SetupError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SetupError(f"{path} cannot be loaded: {_told(error, file)}") from error
    found = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    if name:
        if name not in found:
            raise SetupError(f"{path} has no server named {name!r}; it has {', '.join(found) or 'none'}")
        return found[name]
    usual = [found[key] for key in USUAL_NAMES if key in found] or list(found.values())
    if not usual:
        raise SetupError(f"{path} defines no Server; write `app = Server(...)`")
    return usual[0]


def _parted(place: str) -> tuple[str, str]:
    """Part a file from the name of its server; a file's own name may hold a colon."""
    path, _, name = place.rpartition(":")
    return (place, "") if not path or Path(place).is_file() else (path, name)


def _told(error: Exception, file: Path) -> str:
    """Say what went wrong in somebody's file, and on which of its lines."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    number = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {what}" + (f" (line {number})" if number else "")
