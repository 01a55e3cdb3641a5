"""The client of a command: any target a user writes, reached as the options say.

Rule: what a child process says on stderr while it starts is held back, since an error about its start repeats it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from ferrule.cli.main import WRONG_USAGE, CommandParser, Ended, did_you_mean
from ferrule.cli.output import Output
from ferrule.cli.place import USUAL_FILES, no_such_file, usual_file
from ferrule.client.client import Client
from ferrule.client.link.negotiation import Mode
from ferrule.client.targets import CONFIGURED, is_several, read_config_file
from ferrule.errors import ChildFailed, SetupError
from ferrule.schema.model import LogLevel
from ferrule.settings.option import alike
from ferrule.settings.sources import FILE
from ferrule.supervision.signals import run_coroutine
from ferrule.transports.registry import DEFAULT, TRANSPORTS

if TYPE_CHECKING:
    from ferrule.client.keywords import ClientKeywords

T = TypeVar("T")

TARGET_HELP = (
    "a file (server.py, server.py:app), a module (shop.server:app), a folder with a ferrule.toml (.), an address "
    "(https://…, ws://…, tcp://…, unix:/…), a command ('stdio:uvx some-server') or an mcp.json; left out where a "
    "command stands after --"
)
MAX_HELD_LINES = 200
MODULE = re.compile(r"(?:[^\W\d]\w*\.)*(?!py:)[^\W\d]\w*:[^\W\d]\w*")
"""An object of a module: `shop.server:app`."""


def configure_target(parser: CommandParser) -> None:
    """Add the target of a command, and how to reach it."""
    parser.set_defaults(uses_server=True)
    parser.add_argument("target", nargs="?", metavar="TARGET", help=TARGET_HELP)
    group = parser.add_argument_group("reaching the server")
    group.add_argument("--mode", choices=get_args(Mode), help="which protocol generation to speak (default: auto)")
    group.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="how long a request may take, from its last sign of progress (default: 30)",
    )
    group.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="a header of HTTP and WebSocket requests"
    )
    group.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="an environment variable of a child process"
    )
    group.add_argument("--cwd", metavar="DIR", help="the working directory of a child process")
    group.add_argument("--server", metavar="NAME", help="the only server to use of an mcp.json that has several")
    group.add_argument(
        "--log-level", choices=get_args(LogLevel), metavar="LEVEL", help="show the server's log from this level on"
    )


def seconds(text: str) -> float:
    """Read a time of the command line, in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time: give seconds, more than 0")
    return value


def words_after_target(options: argparse.Namespace, passed_on: list[str], words: list[str]) -> list[str]:
    """Return the words of a command; where the server's command stands after `--`, the first one is no target."""
    if passed_on and options.target is not None:
        words = [options.target, *words]
        options.target = None
    return words


# -- what the options say


def target_of(options: argparse.Namespace, passed_on: list[str]) -> Any:
    """Return what the client is given as its target; raise SetupError for what can be none."""
    if passed_on:
        if options.target is not None:
            raise SetupError(f"there are two targets, {options.target} and the command after --: give one of them")
        return list(passed_on)
    if options.target is None:
        raise Ended("there is no target: give a file, a folder, an address, or a command after --", WRONG_USAGE)
    place: str = options.target
    if place.endswith(".json") and Path(place).is_file():
        return _configured(place, options)
    if options.server is not None:
        raise SetupError(f"--server names a server of an mcp.json, and {place} is none")
    if TRANSPORTS.of_address(place) is not None:
        return place
    folder = Path(place)
    if MODULE.fullmatch(place) and not folder.exists():
        return served_module(place)
    if place.endswith(".py") and not folder.exists():
        raise SetupError(no_such_file(place))
    if not folder.exists() and ".py:" not in place:
        raise SetupError(_no_target(place))
    if folder.is_dir() and not (folder / FILE).is_file():
        found = usual_file(folder)
        if found is None:
            raise SetupError(
                f"the folder {place} has neither a {FILE} nor a {USUAL_FILES[0]}: name the file of the server, "
                f"or make a project with `ferrule new NAME`"
            )
        return found
    return place


def _no_target(place: str) -> str:
    """Return why something is no target: an address nobody knows, or nothing that is there."""
    scheme, mark, _ = place.partition("://")
    if not mark:
        return f"there is no file or folder {place}: a target is {TARGET_HELP}"
    schemes = [prefix.partition(":")[0] for prefix in TRANSPORTS.prefixes]
    return f"there is no transport for {scheme}://{did_you_mean(scheme, schemes)}"


def served_module(place: str) -> list[str]:
    """Return the command that serves the object of a module, such as `shop.server:app`, on stdio."""
    return [sys.executable, "-m", "ferrule", "run", "--transport", DEFAULT, place]


def _configured(path: str, options: argparse.Namespace) -> Mapping[str, Any]:
    """Return the servers of a configuration: all of them, or the one that is named."""
    config = read_config_file(path)
    for key in CONFIGURED:
        servers = config.get(key)
        if isinstance(servers, Mapping) and servers:
            if options.server is None and len(servers) > 1:
                _require_no_headers(path, servers, options)
                return {"mcpServers": servers}
            return {"mcpServers": {chosen: servers[chosen] for chosen in [_chosen(path, servers, options.server)]}}
    raise SetupError(f'{path} names no server: it needs "mcpServers" or "servers" with one in it')


def _require_no_headers(path: str, servers: Mapping[str, Any], options: argparse.Namespace) -> None:
    if options.header:
        every = ", ".join(servers)
        raise SetupError(f"--header would be shown to every server of {path}: choose one with --server: {every}")


def _chosen(path: str, servers: Mapping[str, Any], name: str | None) -> str:
    if name is None:
        return next(iter(servers))
    if name not in servers:
        meant = alike(name, servers)
        hint = f'. Did you mean "{meant}"?' if meant else f": it has {', '.join(servers)}"
        raise SetupError(f'no server "{name}" in {path}{hint}')
    return name


def pairs(given: list[str], mark: str, what: str) -> dict[str, str]:
    """Read `NAME:VALUE` or `NAME=VALUE` words; raise SetupError, without the value, for one that is none."""
    found: dict[str, str] = {}
    for word in given:
        name, separator, value = word.partition(mark)
        if not separator or not name.strip():
            raise SetupError(f"{what} is written NAME{mark}VALUE, and one of those given has no {mark!r} after a name")
        found[name.strip()] = value.strip()
    return found


def client_options(options: argparse.Namespace) -> ClientKeywords:
    """Return the options of the client."""
    found: ClientKeywords = {"name": "ferrule-cli", "reconnect": False}
    if options.mode is not None:
        found["mode"] = options.mode
    if options.timeout is not None:
        found["request_timeout"] = options.timeout
        found["tool_timeout"] = options.timeout
        found["init_timeout"] = options.timeout
    else:
        # A server that is started for one command may have much to import.
        found["request_timeout"] = found["init_timeout"] = 30.0
    if options.header:
        found["headers"] = pairs(options.header, ":", "--header")
    if options.env:
        found["env"] = pairs(options.env, "=", "--env")
    if options.cwd is not None:
        found["cwd"] = options.cwd
    if options.log_level is not None:
        found["log_level"] = options.log_level
    return found


class HeldLines:
    """What a child process says on stderr: held back while it starts, written as it comes once it is reached."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._held: list[str] | None = []

    def __call__(self, line: str) -> None:
        """Take one line."""
        if self._held is None:
            self._output.note(line)
        elif len(self._held) < MAX_HELD_LINES:
            self._held.append(line)

    def release(self) -> None:
        """Write what was held back, and everything from now on."""
        held = self._held or []
        self._held = None
        for line in held:
            self._output.note(line)


async def with_client(
    options: argparse.Namespace,
    passed_on: list[str],
    output: Output,
    work: Callable[[Client], Coroutine[Any, Any, T]],
    *,
    elicitation: Callable[[Any], Any] | None = None,
    url_elicitation: Callable[[Any], Any] | None = None,
) -> T:
    """Reach the target of a command, do some work with it, and leave it."""
    lines = HeldLines(output)
    given = client_options(options)
    given["stderr"] = lines
    target = target_of(options, passed_on)
    client = Client(target, elicitation=elicitation, url_elicitation=url_elicitation, **given)
    if options.log_level is not None:
        client.on_log(lambda level, data, logger: output.note(f"{level}: {logger or 'server'}: {data}"))
    try:
        await client.connect()
    except ChildFailed:
        raise
    except BaseException:
        lines.release()
        raise
    lines.release()
    if is_several(target):
        for server in client.servers.values():
            if not server.connected:
                output.note(f"the server {server.name} cannot be used: {server.error}")
    try:
        result = await work(client)
    except BaseException:
        await client.close(0.0)
        raise
    await client.close()
    return result


def use_server(
    options: argparse.Namespace,
    passed_on: list[str],
    output: Output,
    work: Callable[[Client], Coroutine[Any, Any, T]],
    **answers: Callable[[Any], Any] | None,
) -> T:
    """Do some work with the target of a command; Ctrl-C ends it."""
    return run_coroutine(lambda: with_client(options, passed_on, output, work, **answers))
