"""The command line: which commands there are, and how each of them ends.

A command is a module with `configure(parser)` and `execute(options, passed_on)`, and a row in `COMMANDS`.

| exit code | meaning |
|---|---|
| 0 | it worked |
| 1 | it failed; one sentence on stderr says why |
| 2 | the command line is wrong |
| 3 | the tool that was called answered with an error |
| 4 | the server cannot be reached, or did not answer in time |
| 130 | Ctrl-C |
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn, Protocol

from ferrule.errors import CarrierError, ChildFailed, FerruleError, LinkLost, TimedOut

FAILED = 1
WRONG_USAGE = 2
TOOL_FAILED = 3
UNREACHABLE = 4
INTERRUPTED = 130


class Command(NamedTuple):  # not a Struct: `ferrule --help` starts in half the time without msgspec
    """One command."""

    name: str
    help: str
    module: str
    """Where it is; imported when it is asked for."""


COMMANDS = (
    Command("new", "make a server, its test and its configuration", "ferrule.cli.new"),
    Command("run", "serve the server a file defines", "ferrule.cli.run"),
    Command("dev", "serve it, reload it when a file changes, and show every message", "ferrule.cli.dev"),
    Command("list", "list what a server offers", "ferrule.cli.list"),
    Command("call", "call a tool", "ferrule.cli.call"),
    Command("read", "read a resource", "ferrule.cli.read"),
    Command("prompt", "get a prompt, filled in", "ferrule.cli.prompt"),
    Command("inspect", "show everything a server says of itself", "ferrule.cli.inspect"),
    Command("check", "see whether a server keeps the rules of the protocol", "ferrule.cli.check"),
    Command("bench", "measure how many calls a second a server answers", "ferrule.cli.bench"),
    Command("install", "put a server into an AI host", "ferrule.cli.install"),
    Command("config", "show which options hold, and where they were set", "ferrule.cli.config"),
    Command("login", "log in to a server", "ferrule.cli.login"),
    Command("logout", "forget the login of a server", "ferrule.cli.logout"),
    Command("whoami", "show which servers one is logged in to", "ferrule.cli.whoami"),
    Command("doctor", "find what keeps a server from working in a host, and fix it", "ferrule.cli.doctor"),
    Command("receipts", "verify, show and export receipts of calls", "ferrule.cli.receipts"),
    Command("telemetry", "print a dashboard of the metrics", "ferrule.cli.telemetry"),
    Command("completion", "print a script that completes commands in a shell", "ferrule.cli.completion"),
    Command("version", "show the versions of Ferrule and of what it uses", "ferrule.cli.version"),
)


class Module(Protocol):
    """What the module of a command holds."""

    def configure(self, parser: CommandParser) -> None:
        """Add the arguments of the command."""

    def execute(self, options: argparse.Namespace, passed_on: list[str]) -> None:
        """Run the command; `passed_on` is what stands after `--`. Raise FerruleError for what the user can fix."""


class Ended(Exception):
    """Raised by a command that has failed, with the exit code that tells how."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


class CommandParser(argparse.ArgumentParser):
    """The parser of one command."""

    ending: Callable[[], str] | None = None
    """Makes the end of its help, when that is printed."""
    suggested: tuple[str, ...] = ()
    """Words that may stand first, beside any others: shells complete them."""
    hint = ""
    """What is said to whoever gives an option that there is not, beside what is like it."""
    json = False
    """Whether what is wrong is written as JSON."""

    def __init__(self, **given: Any) -> None:
        # An abbreviation would change its meaning with the next option. argparse itself makes parsers of commands.
        super().__init__(**{"allow_abbrev": False, **given})

    def format_help(self) -> str:
        """Return the help."""
        text = super().format_help()
        if self.ending is not None:
            text += self.ending()
        return text

    def error(self, message: str) -> NoReturn:
        """End with one sentence that says what is wrong, and what may have been meant."""
        quoted = message.partition("invalid choice: '")[2].partition("'")[0]
        if quoted:
            message += did_you_mean(quoted, self._choices())
        if self.json:
            _write_error(message, "WrongUsage", WRONG_USAGE)
        else:
            sys.stderr.write(f"{self.format_usage()}error: {message}\n")
        raise SystemExit(WRONG_USAGE)

    def parse(self, given: Sequence[str]) -> argparse.Namespace:
        """Read the arguments of the command; end with exit code 2 for those it does not know."""
        commands = self.described()[1]
        for parser in (self, *commands.values()):
            parser.json = "--json" in given
        if commands:
            options, extra = self.parse_known_args(given)
        else:
            # Options may stand between the words of a command.
            options, extra = self.parse_known_intermixed_args(given)
        if not extra:
            return options
        # Whether the word after an unknown option is its value or one of the command's differs between Pythons.
        unknown = [word for word in extra if word.startswith("-")] or extra
        meant = self._meant(unknown[0].partition("=")[0])
        sentence = f"unrecognized arguments: {' '.join(unknown)}{meant}"
        if self.hint:
            sentence += f"{'' if meant else '.'} {self.hint}"
        return self.error(sentence)

    def _meant(self, option: str) -> str:
        """Return which option may have been meant, as the end of a sentence; the dashes of all make none alike."""
        from ferrule.settings.option import alike

        flags = {flag.lstrip("-"): flag for flag in self.flags()}
        found = alike(option.lstrip("-"), flags)
        if not found:
            return ""
        return f'. Did you mean "{flags[found]}"?'

    def flags(self) -> list[str]:
        """Return the options of the command, and of its own commands."""
        found = list(self._option_string_actions)
        for inner in self.described()[1].values():
            found.extend(inner.flags())
        return found

    def _choices(self) -> list[str]:
        found: list[str] = []
        for action in self._actions:
            if action.choices is not None:
                found.extend(map(str, action.choices))
        return found

    def described(self) -> tuple[list[argparse.Action], dict[str, CommandParser]]:
        """Return the arguments of the command and its own commands by name, for completion."""
        actions: list[argparse.Action] = []
        commands: dict[str, CommandParser] = {}
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # the class has no other name
                commands.update(action.choices)
            else:
                actions.append(action)
        return actions, commands


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question for what is spelled most like a word, as the end of a sentence; empty where nothing is."""
    from ferrule.settings.option import alike

    meant = alike(word, known)
    if not meant:
        return ""
    return f'. Did you mean "{meant}"?'


def new_parser(command: Command) -> tuple[CommandParser, Module]:
    """Return the parser of a command, and its module."""
    module: Module = import_module(command.module)
    parser = CommandParser(prog=f"ferrule {command.name}", description=_sentence(command.help))
    parser.set_defaults(uses_server=False)
    module.configure(parser)
    parser.add_argument("--json", action="store_true", help="write JSON, for programs; an error is JSON too")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from, not only its sentence")
    return parser, module


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; an error is one sentence on stderr and a non-zero exit."""
    _prepare_streams()
    try:
        try:
            _execute(sys.argv[1:] if arguments is None else arguments)
        finally:
            # Here, and not at the end of the process, where Python would complain in its own words.
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has seen enough, as `head` does.
        _discard_output()
    except OSError as reason:
        _discard_output()
        raise _refused(f"cannot write the output: {reason.strerror or reason}", FAILED) from None
    except KeyboardInterrupt:
        end_line()
        raise SystemExit(INTERRUPTED) from None


def _execute(arguments: Sequence[str]) -> None:
    """Run the command that is asked for."""
    given, passed_on = _parted(arguments)
    command = _chosen(given)
    parser, module = new_parser(command)
    options = parser.parse(given[1:])
    if options.traceback:
        os.environ["FERRULE_TRACEBACK"] = "1"
    try:
        module.execute(options, passed_on)
    except (FerruleError, Ended) as error:
        _fail(error, options)
    except OSError as error:
        if error.filename is None:
            raise  # it is about the output
        _fail(error, options)


def end_line() -> None:
    """Leave the line in which the terminal shows `^C`."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")


def _discard_output() -> None:
    """Let nothing that is still to be written reach stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _chosen(given: Sequence[str]) -> Command:
    """Return the command that is asked for; ends the process where there is none, or only help is wanted."""
    if given and given[0] in ("-h", "--help", "help"):
        if len(given) > 1 and given[0] == "help":
            main([given[1], "--help"])
        sys.stdout.write(_help())
        raise SystemExit(0)
    if given and given[0] in ("-V", "--version"):
        from importlib.metadata import version

        sys.stdout.write(f"ferrule {version('ferrule')}\n")
        raise SystemExit(0)
    names = {command.name: command for command in COMMANDS}
    if not given:
        sys.stderr.write(f"{_help()}\n")
        raise _refused("the following arguments are required: command")
    if given[0] in names:
        return names[given[0]]
    as_json = "--json" in given
    if given[0].startswith("-"):
        raise _refused(
            f"unrecognized arguments: {given[0]}: name the command first, as in `ferrule run {given[0]}`", json=as_json
        )
    raise _refused(f'there is no command "{given[0]}"{did_you_mean(given[0], names)}', json=as_json)


def _refused(sentence: str, code: int = WRONG_USAGE, *, json: bool = False) -> SystemExit:
    if json:
        _write_error(sentence, "WrongUsage", code)
    else:
        sys.stderr.write(f"error: {sentence}\n")
    return SystemExit(code)


def _help() -> str:
    lines = ["usage: ferrule COMMAND …", "", "A runtime for the Model Context Protocol.", "", "commands:"]
    for command in COMMANDS:
        lines.append(f"  {command.name:<12}{command.help}")
    lines += ["", "`ferrule COMMAND --help` shows the arguments of a command, `ferrule --version` the version.", ""]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _fail(error: Exception, options: argparse.Namespace) -> NoReturn:
    """Say what failed, and end with the code that tells how."""
    code = _code(error, options)
    # A file that is started for this command ends as this command does: its own sentence says it all.
    message = str(error).rpartition(f"; {ChildFailed.SAID}error: ")[2]
    if isinstance(error, OSError) and error.filename is not None:
        message = f"cannot use {error.filename}: {error.strerror}"
    if options.traceback:
        import traceback

        traceback.print_exception(error)
    if options.json:
        _write_error(message, type(error).__name__, code)
    else:
        from ferrule.cli.output import error_line

        sys.stderr.write(error_line(message))
    raise SystemExit(code) from None


def _write_error(message: str, kind: str, code: int) -> None:
    """Write what failed for a program."""
    import json

    told = {"error": {"message": message, "type": kind, "exit_code": code}}
    sys.stdout.write(json.dumps(told) + "\n")


def _code(error: Exception, options: argparse.Namespace) -> int:
    if isinstance(error, Ended):
        return error.code
    # Whoever serves reaches nobody: a port in use is a failure like any other.
    if options.uses_server and isinstance(error, CarrierError | LinkLost | TimedOut):
        return UNREACHABLE
    return FAILED


def _prepare_streams() -> None:
    """Let what a terminal cannot write be written as an escape, and have all three where one was closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part our own arguments from those of the file or the command, which stand after `--`."""
    every = list(arguments)
    if "--" not in every:
        return every, []
    at = every.index("--")
    return every[:at], every[at + 1 :]
