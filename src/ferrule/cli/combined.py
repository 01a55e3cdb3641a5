"""Several files as one server: what each of them offers is mounted under a prefix, so that no names collide.

Rule 1: a file alone is served as it is.
Rule 2: what belongs to whoever holds the connections (auth, receipts, stores, observers, own methods) cannot be taken
over from one of several; a file that has it is refused, since leaving it out would be noticed too late.
Rule 3: files of different folders share one process, and with it the names of modules; a name that is there twice is
refused.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ferrule.cli.place import PREFIX, Place, file_of, read_places
from ferrule.cli.target import load_server
from ferrule.errors import SetupError
from ferrule.server.server import Server

HELD = ("auth", "receipts", "stores", "observer", "tasks", "request_state_keys")
"""Options of a server that count for those who connect to it, and not for what it offers."""


def load_places(words: Sequence[str], arguments: Sequence[str] = ()) -> Server:
    """Import what files define: one server as it is, several as one; each file has the arguments."""
    places = read_places(words)
    if len(places) == 1 and not places[0].named:
        return load_server(places[0].where, arguments)
    servers: list[Server] = []
    folders: list[Path] = []
    for place in places:
        _check_prefix(place)
        file = file_of(place.where)
        if file is not None:
            _check_modules(file, folders)
            folders.append(file.parent)
        servers.append(load_server(place.where, arguments))
    return _combined(places, servers)


def _check_prefix(place: Place) -> None:
    if not PREFIX.fullmatch(place.prefix):
        raise SetupError(
            f"the names of {place.where} cannot begin with {place.prefix!r}: letters, digits, '_', '-' and '.' only; "
            f"give it another name, as in other={place.where}"
        )


def _check_modules(file: Path, before: Sequence[Path]) -> None:
    """Raise SetupError where a file would import a module beside it, and get one from the folder of another file."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or "." in name:
            continue
        there = Path(path).resolve()
        if there.is_relative_to(file.parent) or not any(there.is_relative_to(folder) for folder in before):
            continue
        for own in (file.parent / f"{name}.py", file.parent / name / "__init__.py"):
            if own.is_file() and own != file:
                raise SetupError(
                    f"{file.name} has the module {own} beside it, and {there} is loaded under that name already: "
                    "rename one of them, or serve the files apart"
                )


def _combined(places: Sequence[Place], servers: Sequence[Server]) -> Server:
    """Return one server that offers what all of them offer."""
    instructions: list[str] = []
    for place, server in zip(places, servers, strict=True):
        if server.instructions:
            instructions.append(f"{place.prefix}: {server.instructions}")
    auth = servers[0].settings.auth
    if any(server.settings.auth is not auth for server in servers):
        auth = None
    name = "+".join(place.prefix for place in places)
    host = Server(name, instructions="\n\n".join(instructions) or None, auth=auth)
    for place, server in zip(places, servers, strict=True):
        _check_options(place, server, host)
        host.mount(server, place.prefix)
        _take_routes(place, server, host)
    return host


def _check_options(place: Place, server: Server, host: Server) -> None:
    """Raise SetupError for what a server has that would be lost."""
    for option in HELD:
        value = getattr(server.settings, option)
        if value and value != getattr(host.settings, option):
            raise SetupError(
                f"{place.where} is a server with {option}, which belongs to whoever holds the connections: "
                f"serve it alone, or set it for all, in {_elsewhere(option)}"
            )
    own = sorted(server.host.methods.handlers)
    if own:
        raise SetupError(f"{place.where} answers {own[0]}, a method of its own, which has no prefix: serve it alone")


def _elsewhere(option: str) -> str:
    if option in ("receipts", "stores", "request_state_keys"):
        return "[server] of a ferrule.toml"
    return "a file that mounts the others (app.mount)"


def _take_routes(place: Place, server: Server, host: Server) -> None:
    """Answer plain web requests of a server at the same paths."""
    for route in server.host.custom_routes:
        for other in host.host.custom_routes:
            if other.path == route.path and other.methods & route.methods:
                raise SetupError(f"the path {route.path} of {place.where} is taken by a file before it: change one")
        host.host.custom_routes.append(route)
