"""The command line: which commands there are, and how each of them ends.

A command is a module with `configure(parser)` and `execute(options, passed_on)`, and a row in `COMMANDS`.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol

from msgspec import Struct

from ferrule.errors import FerruleError


class Command(Struct, frozen=True):
    """One command."""

    name: str
    help: str
    module: str
    """Where it is; imported when it is asked for."""


COMMANDS = (
    Command("run", "serve the server a file defines", "ferrule.cli.run"),
    Command("receipts", "verify, show and export receipts of calls", "ferrule.cli.receipts"),
    Command("telemetry", "print a dashboard of the metrics", "ferrule.cli.telemetry"),
)


class Module(Protocol):
    """What the module of a command holds."""

    def configure(self, parser: CommandParser) -> None:
        """Add the arguments of the command."""

    def execute(self, options: argparse.Namespace, passed_on: list[str]) -> None:
        """Run the command; `passed_on` is what stands after `--`. Raise FerruleError for what the user can mend."""


class CommandParser(argparse.ArgumentParser):
    """The parser of one command."""

    ending: Callable[[], str] | None = None
    """Makes the end of its help, when that is printed."""

    def format_help(self) -> str:
        """Return the help."""
        text = super().format_help()
        if self.ending is not None:
            text += self.ending()
        return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; an error is one sentence on stderr and a non-zero exit."""
    given, passed_on = _parted(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="ferrule", description="A runtime for the Model Context Protocol.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=CommandParser)
    chosen: Module | None = None
    for command in COMMANDS:
        its_parser = commands.add_parser(command.name, help=command.help)
        its_parser.add_argument(
            "--traceback", action="store_true", help="show where an error came from, not only its sentence"
        )
        if command.name in given:
            chosen = import_module(command.module)
            chosen.configure(its_parser)
    options = parser.parse_args(given)
    assert chosen is not None  # argparse has refused anything else
    if options.traceback:
        os.environ["FERRULE_TRACEBACK"] = "1"
    try:
        chosen.execute(options, passed_on)
    except FerruleError as error:
        if options.traceback:
            traceback.print_exception(error)
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part our own arguments from those of the file, which stand after `--`."""
    every = list(arguments)
    if "--" not in every:
        return every, []
    at = every.index("--")
    return every[:at], every[at + 1 :]
