"""`ferrule run FILE[:obj]`: serve what a file defines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ferrule.errors import FerruleError

HINT = "{} speaks MCP on stdin and stdout: start it from an MCP client. Ctrl-C ends it.\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; an error is one sentence on stderr and a non-zero exit."""
    parser = argparse.ArgumentParser(prog="ferrule", description="A runtime for the Model Context Protocol.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="serve the server a file defines")
    run.add_argument("file", metavar="FILE[:obj]", help="a Python file, and the name of its server")
    run.add_argument("--transport", default="stdio", choices=["stdio"])
    options = parser.parse_args(arguments)
    try:
        _run(options.file, options.transport)
    except FerruleError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _run(place: str, transport: str) -> None:
    # The wire is claimed before somebody's module is imported, so that nothing it prints can reach the peer.
    from ferrule.transports.stdio import claim

    watched = sys.stdin is not None and sys.stdin.isatty()
    claim()
    from ferrule.cli.loading import load_server

    server = load_server(place)
    if watched:
        sys.stderr.write(HINT.format(server.name))
    server.run(transport)
