"""`ferrule run FILE[:obj]`: serve what a file defines."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ferrule.cli.main import end_line
from ferrule.server.settings import RunSettings, ServerSettings, read_run_settings
from ferrule.settings.sources import read_sourced, require_tables, use_beside
from ferrule.supervision.logs import escaped
from ferrule.supervision.signals import awaited_at_exit, left_running
from ferrule.transports.registry import DEFAULT, TRANSPORTS, load
from ferrule.workers.overseer import oversee

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser
    from ferrule.server.server import Server

logger = logging.getLogger("ferrule.server")

STORES = "FERRULE_SERVER_STORES"


Prepare = Callable[["Server", str, list[str]], None]
"""Called with a server before it serves, the place it was loaded from and the arguments of its file."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule run`."""
    configure_serving(parser, "run", DEFAULT)


def configure_serving(parser: CommandParser, command: str, transport: str) -> None:
    """Add the arguments of a command that serves."""
    parser.usage = f"ferrule {command} [FILE[:obj]] [options] [-- arguments of the file]"
    parser.ending = _transports
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE[:obj]",
        help="a Python file or module, and the name of its server, or of a function that makes it;"
        " or a folder whose ferrule.toml names the file (default: this one)",
    )
    parser.add_argument(
        "--transport",
        choices=TRANSPORTS,
        metavar="NAME",
        help=f"how clients reach it, see below (default: {transport})",
    )
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="the port to listen on (default: 8000, for tcp 5000)")
    parser.add_argument(
        "--path", help="where MCP is served (default: /mcp, for ws /mcp/ws), for unix the path of the socket"
    )
    parser.add_argument("--allow-remote", action="store_true", default=None, help="let anyone on the network connect")
    parser.add_argument("--workers", type=int, metavar="N", help="how many processes serve (http, sse, ws, tcp)")
    parser.add_argument(
        "--stores",
        metavar="URL",
        help="what it shares with other nodes is kept there: redis://HOST:PORT, or sqlite:FILE for one machine",
    )
    parser.add_argument(
        "--reload", action="store_true", help="when a file of the server changes, serve what it offers then"
    )
    parser.set_defaults(refuse=parser.error)


def _transports() -> str:
    """Return the end of the help; only now are installed packages asked for transports of theirs."""
    lines = []
    for kind in TRANSPORTS.kinds:
        if kind.listener is not None:
            lines.append(f"  {kind.name:<8}{kind.help}")
    return "\n".join(["\ntransports:", *lines, ""])


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Serve what a file defines, until it ends."""
    serve(options, passed_on, reloaded if options.reload else None)


def serve(options: argparse.Namespace, passed_on: list[str], prepare: Prepare | None) -> None:
    """Serve what a file defines, until it ends; with `prepare`, something is done with the server before."""
    known = awaited_at_exit()
    if options.stores is not None:
        # The server is made by somebody's module, here or in a worker: both read it there.
        os.environ[STORES] = options.stores
    settings = _configured(options.file, _given(options, "transport", "workers"))
    if settings.file is None:
        options.refuse(_no_file(options.file))
    if prepare is not None:
        if options.workers is not None:
            options.refuse("a file is followed in one process: leave --workers out, or --reload")
        settings = structs.replace(settings, workers=None, worker_max_age=None, worker_max_memory=None)
        # Bytecode is kept by the second, and a file may change twice in one.
        sys.dont_write_bytecode = True
    given = _given(options, "host", "port", "path", "allow_remote")
    if given and settings.transport == DEFAULT:
        flag = next(iter(given)).replace("_", "-")
        options.refuse(f"--{flag} is for a transport that listens: add --transport http")
    _run(settings, passed_on, given, prepare)
    end_line()
    _end_without_waiting(known)


def reloaded(server: Server, place: str, arguments: list[str]) -> None:
    """Let a server follow the changes of its files."""
    from ferrule.cli.reload import Reloader

    Reloader(server, place, arguments, tell)


def tell(line: str) -> None:
    """Tell the person at the terminal, where that can be written."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{escaped(line)}\n")
        sys.stderr.flush()


def _end_without_waiting(known: Collection[object]) -> None:
    """End the process, which is ours, where Python would wait for a thread or a process that a handler forgot."""
    left = left_running(known)
    if not left:
        return
    logger.warning("the process ends without waiting for %s", left)
    logging.shutdown()
    os._exit(0)


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the options that were given on the command line."""
    given = {}
    for name in names:
        value = getattr(options, name)
        if value is not None:
            given[name] = value
    return given


def _configured(file: str | None, given: dict[str, Any]) -> RunSettings:
    """Use the `ferrule.toml` beside a file, and return how to run it; what is wrong in it is refused before it runs."""
    configuration = use_beside(folder_of(file))
    if file is not None and Path(file).is_dir():
        file = None
    known = ["run", "server", "client", "routing"]
    if configuration.tables.keys() - known:
        known.extend(kind.name for kind in TRANSPORTS.kinds)
    require_tables(configuration, known)
    if file is not None:
        given["file"] = file
    settings = read_run_settings(given)
    read_sourced("server", ServerSettings, {}, "Server")
    return settings


def _no_file(folder: str | None) -> str:
    """Return what is wrong where nothing says which file to run."""
    in_configuration = 'or write file = "server.py" below [run] in a ferrule.toml'
    if folder is None:
        return f"there is no file to run: name it, as in `ferrule run server.py`; {in_configuration}"
    return f"the folder {folder} does not say which file to run: name it; {in_configuration} there"


def folder_of(place: str | None) -> str:
    """Return a folder, or that of a file; the working directory where there is neither, as with a module."""
    if place is None:
        return str(Path.cwd())
    path = Path(place)
    if path.is_dir():
        return str(path.resolve())
    for file in (path, Path(place.rpartition(":")[0])):
        if file.is_file():
            return str(file.resolve().parent)
    return str(Path.cwd())


def _run(settings: RunSettings, arguments: list[str], options: dict[str, Any], prepare: Prepare | None) -> None:
    place = str(settings.file)
    transport = settings.transport
    kind = TRANSPORTS[transport]
    kind.new_listener(options)  # refuses what is wrong before anything is imported
    if settings.workers is not None:
        oversee(
            settings.workers,
            place,
            arguments,
            kind.name,
            options,
            max_age=settings.worker_max_age,
            max_memory=settings.worker_max_memory,
            ready_timeout=settings.worker_ready_timeout,
        )
        return
    if kind.claim is None:
        _load(place, arguments, prepare).run(transport, **options)
        return
    watched = bool(kind.hint) and sys.stdin is not None and sys.stdin.isatty()
    # The wire is claimed before somebody's module is imported, so that nothing it prints can reach the peer.
    load(kind.claim)()
    server = _load(place, arguments, prepare)
    if watched:
        sys.stderr.write(f"{server.name} {kind.hint}. Ctrl-C ends it.\n")
    server.run(transport, **options)


def _load(place: str, arguments: list[str], prepare: Prepare | None) -> Server:
    from ferrule.cli.target import load_server

    server = load_server(place, arguments)
    if prepare is not None:
        prepare(server, place, arguments)
    return server
