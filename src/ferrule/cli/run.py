"""`ferrule run FILE[:obj]…`: serve what a file defines, or several files as one server."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ferrule.cli.main import end_line
from ferrule.cli.place import folder_of, no_usual_file, usual_file
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


Prepare = Callable[["Server", Sequence[str], list[str]], None]
"""Called with a server before it serves, the places it was loaded from and the arguments of its files."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule run`."""
    configure_serving(parser, "run", DEFAULT)


def configure_serving(parser: CommandParser, command: str, transport: str) -> None:
    """Add the arguments of a command that serves."""
    parser.usage = f"ferrule {command} [[name=]FILE[:obj] …] [options] [-- arguments of the file]"
    parser.ending = _transports
    parser.add_argument(
        "files",
        nargs="*",
        metavar="[name=]FILE[:obj]",
        help="a Python file or module, and the name of its server, or of a function that makes it;"
        " or a folder with a server.py or a ferrule.toml that names the file (default: this one);"
        " several are served as one server, the names of each beginning with its file's name, or with the one given",
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
    settings, places = _configured(options.files, _given(options, "transport", "workers"))
    if not places:
        options.refuse(_no_file(options.files))
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
    _run(settings, places, passed_on, given, prepare)
    end_line()
    _end_without_waiting(known)


def reloaded(server: Server, places: Sequence[str], arguments: list[str]) -> None:
    """Let a server follow the changes of its files."""
    from ferrule.cli.reload import Reloader

    Reloader(server, places, arguments, tell)


def tell(line: str) -> None:
    """Write a line for the person at the terminal, where that works."""
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


def _configured(files: list[str], given: dict[str, Any]) -> tuple[RunSettings, list[str]]:
    """Use the `ferrule.toml` beside the files, and return how to run which; what is wrong in it is refused first."""
    folder = folder_of(files)
    configuration = use_beside(folder)
    if len(files) == 1 and Path(files[0]).is_dir():
        files = []
    known = ["run", "server", "client", "routing"]
    if configuration.tables.keys() - known:
        known.extend(kind.name for kind in TRANSPORTS.kinds)
    require_tables(configuration, known)
    if files:
        given["file"] = files
    settings = read_run_settings(given)
    read_sourced("server", ServerSettings, {}, "Server")
    return settings, _places(settings, folder)


def _places(settings: RunSettings, folder: str) -> list[str]:
    """Return what is served: what was named, else the usual file of a folder; empty where there is none."""
    named = settings.file
    if named is None:
        found = usual_file(Path(folder))
        return [] if found is None else [found]
    if isinstance(named, str | os.PathLike):
        return [str(named)]
    return [str(each) for each in named]


def _no_file(folders: list[str]) -> str:
    """Return what is wrong where nothing says which file to run."""
    if folders:
        return f"the folder {folders[0]} does not say which file to run: {no_usual_file()}"
    return f"there is no file to run in this folder: {no_usual_file()}"


def _run(
    settings: RunSettings,
    places: list[str],
    arguments: list[str],
    options: dict[str, Any],
    prepare: Prepare | None,
) -> None:
    transport = settings.transport
    kind = TRANSPORTS[transport]
    kind.new_listener(options)  # refuses what is wrong before anything is imported
    if settings.workers is not None:
        oversee(
            settings.workers,
            places,
            arguments,
            kind.name,
            options,
            max_age=settings.worker_max_age,
            max_memory=settings.worker_max_memory,
            ready_timeout=settings.worker_ready_timeout,
        )
        return
    if kind.claim is None:
        _load(places, arguments, prepare).run(transport, **options)
        return
    watched = bool(kind.hint) and sys.stdin is not None and sys.stdin.isatty()
    # The wire is claimed before somebody's module is imported, so that nothing it prints can reach the peer.
    load(kind.claim)()
    server = _load(places, arguments, prepare)
    if watched:
        sys.stderr.write(f"{server.name} {kind.hint}. Ctrl-C ends it.\n")
    server.run(transport, **options)


def _load(places: list[str], arguments: list[str], prepare: Prepare | None) -> Server:
    from ferrule.cli.combined import load_places

    server = load_places(places, arguments)
    if prepare is not None:
        prepare(server, places, arguments)
    return server
