"""`ferrule run FILE[:obj]`: serve what a file defines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ferrule.errors import FerruleError
from ferrule.transports.registry import DEFAULT, TRANSPORTS, load

if TYPE_CHECKING:
    from ferrule.server.server import Server


class RunParser(argparse.ArgumentParser):
    """The parser of `ferrule run`: its help ends with the transports there are."""

    def format_help(self) -> str:
        """Return the help; only now are installed packages asked for transports of theirs."""
        lines = [f"  {kind.name:<8}{kind.help}" for kind in TRANSPORTS.kinds if kind.listener is not None]
        return super().format_help() + "\n".join(["\ntransports:", *lines, ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; an error is one sentence on stderr and a non-zero exit."""
    parser = argparse.ArgumentParser(prog="ferrule", description="A runtime for the Model Context Protocol.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=RunParser)
    run = commands.add_parser("run", help="serve the server a file defines")
    run.add_argument("file", metavar="FILE[:obj]", help="a Python file, and the name of its server")
    run.add_argument(
        "--transport",
        default=DEFAULT,
        choices=TRANSPORTS,
        metavar="NAME",
        help="how clients reach it, see below (default: %(default)s)",
    )
    run.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    run.add_argument("--port", type=int, help="the port to listen on (default: 8000, for tcp 5000)")
    run.add_argument(
        "--path", help="where MCP is served (default: /mcp, for ws /mcp/ws), for unix the path of the socket"
    )
    run.add_argument("--allow-remote", action="store_true", default=None, help="tcp: let anyone on the network connect")
    options = parser.parse_args(arguments)
    try:
        _run(options.file, options.transport, _given(options, "host", "port", "path", "allow_remote"))
    except FerruleError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _run(place: str, transport: str, options: dict[str, Any]) -> None:
    kind = TRANSPORTS[transport]
    if kind.claim is None:
        _load(place).run(transport, **options)
        return
    kind.check_options(options)
    watched = bool(kind.hint) and sys.stdin is not None and sys.stdin.isatty()
    # The wire is claimed before somebody's module is imported, so that nothing it prints can reach the peer.
    load(kind.claim)()
    server = _load(place)
    if watched:
        sys.stderr.write(f"{server.name} {kind.hint}. Ctrl-C ends it.\n")
    server.run(transport, **options)


def _load(place: str) -> Server:
    from ferrule.cli.loading import load_server

    return load_server(place)
