"""`ferrule doctor [HOST|TARGET]`: what keeps a server from working in a host, and the fix.

Rule 1: a program of a host is started as that host starts it, and ended at once; no tool is called.
Rule 2: only `--fix` changes a file, as `ferrule install` does: whole or not at all, with a backup that `ferrule install
HOST --undo` brings back. Values of variables and headers are never shown.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ferrule.cli.connection import TARGET_HELP, pairs, seconds, target_of
from ferrule.cli.diagnosis import Ailment, entry_ailments, ill, sound, start_ailments, url_ailments
from ferrule.cli.host_file import Unreadable
from ferrule.cli.host_servers import Entry, HostServers
from ferrule.cli.install import HOSTS
from ferrule.cli.login_steps import look, told
from ferrule.cli.main import FAILED, WRONG_USAGE, Ended, did_you_mean
from ferrule.cli.output import GREEN, RED, Output, output_of, painted
from ferrule.client.targets import file_command
from ferrule.errors import SetupError
from ferrule.supervision.signals import run_coroutine
from ferrule.transports.registry import TRANSPORTS

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser

AUTH = "auth"
SECONDS = 30.0
PLAIN_JSON = frozenset({"claude-desktop", "claude-code", "mcp.json"})
"""Hosts that read JSON without comments and trailing commas."""
MOST_SERVERS = 100


class Looked(Struct, frozen=True, kw_only=True):
    """What was found of one server, or of the file of a host."""

    host: str = ""
    file: str = ""
    server: str = ""
    what: str
    ok: bool
    found: str
    fix: str = ""
    fixed: bool = False


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule doctor`."""
    parser.usage = "ferrule doctor [HOST | TARGET | auth URL] [options] [-- command of the server]"
    parser.add_argument(
        "what",
        nargs="?",
        metavar="HOST",
        help=f"a host: {', '.join(HOSTS)} (default: every host that has a configuration); or auth; or {TARGET_HELP}",
    )
    parser.suggested = (*HOSTS, AUTH)
    parser.add_argument("url", nargs="?", metavar="URL", help="after auth: the server to log in to")
    parser.add_argument("--fix", action="store_true", help="fix what can be fixed in the file of a host")
    parser.add_argument("--config", metavar="FILE", help="another file than the host's usual one")
    parser.add_argument("--server", metavar="NAME", help="only this server of the file")
    parser.add_argument("--no-start", action="store_true", help="read the files only: start no server, ask no URL")
    parser.add_argument("--timeout", type=seconds, metavar="SECONDS", help="how long a start may take (default: 30)")
    parser.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="a header for a URL")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of a program")
    parser.add_argument("--cwd", metavar="DIR", help="the folder a program is started in")
    group = parser.add_argument_group("auth")
    group.add_argument("--issuer", metavar="URL", help="the only authorization server to use")
    group.add_argument("--allow-private", action="append", default=[], metavar="NETWORK", help="as in 10.0.0.0/8")


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Look at everything; ends with exit code 1 where something is wrong."""
    output = output_of(options)
    if options.what == AUTH:
        _login(options, output)
        return
    if options.url is not None:
        raise Ended(f"unrecognized arguments: {options.url}", WRONG_USAGE)
    if passed_on or (options.what is not None and options.what not in HOSTS):
        found = run_coroutine(lambda: _target(options, passed_on))
    else:
        found = run_coroutine(lambda: _hosts(options, output))
    _write(found, output)
    if any(not each.ok and not each.fixed for each in found):
        raise SystemExit(FAILED)


def _login(options: argparse.Namespace, output: Output) -> None:
    if options.url is None:
        raise Ended("the following arguments are required: URL", WRONG_USAGE)
    steps = run_coroutine(lambda: look(options))
    if output.json:
        output.document(steps)
    else:
        for step in steps:
            output.text(told(step))
    if not all(step.ok for step in steps):
        raise SystemExit(FAILED)


# -- a target


async def _target(options: argparse.Namespace, passed_on: list[str]) -> list[Looked]:
    options.target = options.what
    try:
        target = target_of(options, passed_on)
    except SetupError as reason:
        raise SetupError(f"{reason}{did_you_mean(options.what or '', HOSTS)}") from None
    entry = _entry(target, options)
    name = options.what or " ".join(passed_on)
    return [_looked(each, server=name) for each in await _server_ailments(entry, options)]


def _entry(target: Any, options: argparse.Namespace) -> Entry:
    """Return a target as a host would have it."""
    env = pairs(options.env, "=", "--env")
    if isinstance(target, Mapping):
        name, raw = next(iter(target["mcpServers"].items()))
        return Entry(name, dict(raw))
    if isinstance(target, list):
        return Entry("", {"command": target[0], "args": target[1:], "env": env, "cwd": options.cwd})
    place = str(target)
    kind = TRANSPORTS.of_address(place)
    if kind is not None and kind.takes_headers and "http" in place.partition(":")[0]:
        return Entry("", {"url": place, "headers": pairs(options.header, ":", "--header")})
    path = place
    name = ""
    if not Path(place).exists():
        path, _, name = place.partition(":")
    command = file_command(path, name)
    if not command:
        raise SetupError(f"the doctor looks at programs, files and http URLs, and not at {place}")
    return Entry("", {"command": command[0], "args": command[1:], "env": env, "cwd": options.cwd})


async def _server_ailments(entry: Entry, options: argparse.Namespace) -> list[Ailment]:
    """Start a server, or ask its URL."""
    limit = options.timeout or SECONDS
    if entry.url:
        return await url_ailments(entry, limit)
    if not entry.command:
        return [ill("entry", "it has neither a command nor a URL", "write a command with args, or a url")]
    return await start_ailments([entry.command, *entry.arguments], entry.variables, entry.cwd, limit)


# -- hosts


async def _hosts(options: argparse.Namespace, output: Output) -> list[Looked]:
    names = [options.what] if options.what else list(HOSTS)
    found: list[Looked] = []
    for name in names:
        host = HOSTS[name]
        path = host.path(sys.platform, Path.home(), os.environ.get("APPDATA"))
        if name == "mcp.json":
            path = Path.cwd() / "mcp.json"
        if options.config is not None and options.what:
            path = Path(options.config)
        try:
            servers = HostServers(host, path.resolve())
        except SetupError as reason:
            fix = "let yourself read it; the host may not be able to either"
            found.append(Looked(host=name, file=str(path), what="not-read", ok=False, found=str(reason), fix=fix))
            continue
        if servers.text is not None:
            found.extend(await _host(name, servers, options, output))
        elif options.what:
            fix = f"put a server there with `ferrule install {name}`"
            found.append(_looked(ill("no-file", f"there is no {path}", fix), name, servers))
    if not found:
        found.append(Looked(what="hosts", ok=True, found="no host has a configuration here"))
    return found


async def _host(name: str, servers: HostServers, options: argparse.Namespace, output: Output) -> list[Looked]:
    try:
        config = servers.read()
    except Unreadable as reason:
        fix = "correct that line; a file that cannot be read is one without servers to the host"
        return [_looked(ill("file-broken", str(reason), fix), name, servers)]
    except SetupError as reason:
        return [_looked(ill("not-read", str(reason), "then run `ferrule doctor` again"), name, servers)]
    found: list[Looked] = []
    if name in PLAIN_JSON and not servers.is_plain():
        comment = ill("comments", "it has comments or trailing commas, which this host does not read", "take them out")
        if options.fix:
            _show(servers.write_plain(config), output)
        found.append(_looked(comment, name, servers, fixed=options.fix))
    if other := servers.other_table(config):
        fix = f'rename "{other}" to "{servers.host.table}"'
        told_so = f'the servers are under "{other}", and {servers.host.title} reads "{servers.host.table}"'
        found.append(_looked(ill("table", told_so, fix), name, servers))
    for entry in servers.entries(config)[:MOST_SERVERS]:
        if options.server in (None, entry.name) and not entry.disabled:
            found.extend(await _entry_of_host(name, servers, entry, options, output))
    if not found:
        found.append(_looked(sound("servers", "the file has no servers"), name, servers))
    return found


async def _entry_of_host(
    name: str, servers: HostServers, entry: Entry, options: argparse.Namespace, output: Output
) -> list[Looked]:
    """Look at one server of a host; what is fixed is looked at again before it is started."""
    found: list[Looked] = []
    left: list[Ailment] = []
    folder = Path.cwd()
    ailments = entry_ailments(entry, name, folder)
    while ailments:
        first = ailments[0]
        if first.better is None or not options.fix:
            left.extend(ailments)
            break
        entry = first.better
        _show(servers.replace(entry), output)
        found.append(_looked(first, name, servers, entry.name, fixed=True))
        ailments = entry_ailments(entry, name, folder)
    found.extend(_looked(each, name, servers, entry.name) for each in left)
    if options.no_start or any(each.what != "environment" for each in left):
        return found or [_looked(sound("entry", "its entry is sound"), name, servers, entry.name)]
    for each in await _server_ailments(entry, options):
        fixed = options.fix and each.better is not None
        if fixed and each.better is not None:
            _show(servers.replace(each.better), output)
        found.append(_looked(each, name, servers, entry.name, fixed=fixed))
    return found


def _looked(
    ailment: Ailment, host: str = "", servers: HostServers | None = None, server: str = "", *, fixed: bool = False
) -> Looked:
    return Looked(
        host=host,
        file=str(servers.path) if servers is not None else "",
        server=server,
        what=ailment.what,
        ok=ailment.ok,
        found=ailment.found,
        fix=ailment.fix,
        fixed=fixed,
    )


# -- telling


def _show(lines: list[str], output: Output) -> None:
    """Show what was changed in a file, where no program reads stdout."""
    if not output.json:
        for line in lines:
            output.line(line)


def _write(found: list[Looked], output: Output) -> None:
    if output.json:
        output.document(found)
        return
    before = ""
    for each in found:
        if each.file and each.file != before:
            before = each.file
            output.line(f"{each.host}: {each.file}")
        mark = painted("ok  ", GREEN, output.out)
        if each.fixed:
            mark = painted("fixed", GREEN, output.out)
        elif not each.ok:
            mark = painted("FAIL", RED, output.out)
        name = f"{each.server}: " if each.server else ""
        output.marked(f"{mark}  ", f"{name}{each.what}: {each.found}")
        if each.fix and not each.fixed:
            output.line(f"      {each.fix}")
