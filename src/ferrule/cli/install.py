"""`ferrule install HOST [FILE]`: put a server into an AI host.

Rule 1: the file of a host is written whole or not at all, and what it was is kept beside it; `--undo` brings it back
byte for byte, unless somebody has changed the file since.
Rule 2: what is installed works from anywhere: interpreter and file are absolute paths.
Rule 3: the value of an environment variable or a header is never shown.
Rule 4: a command that a host will run is shown whole, and written only when somebody has agreed to it.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ferrule.cli.connection import pairs, target_of
from ferrule.cli.host_file import Unreadable, edited
from ferrule.cli.output import Output, output_of
from ferrule.cli.question import TerminalUser
from ferrule.client.targets import file_command
from ferrule.errors import SetupError
from ferrule.transports.registry import TRANSPORTS

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser

BACKUP = ".ferrule-backup"
"""Behind the name of a file: what it was before."""
UNDO = ".ferrule-undo"
"""Behind the name of a file: what was written, by its digest, and whether there was a file before."""
USUAL_NAMES = ("server", "app", "main")
"""Files that are named after what they are, and not after what they serve."""
HIDDEN = "…"
MOST_BYTES = 16 * 1024 * 1024
GOOSE_TIMEOUT = 300
PLAIN = "a plain mcp.json"


class Launch(Struct, frozen=True, kw_only=True):
    """How a host reaches a server: a command, or an address."""

    name: str
    command: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}


Entry = Callable[[Launch], dict[str, Any]]


class Host(Struct, frozen=True, kw_only=True):
    """One AI host: where its file is on each system, and how it writes a server."""

    title: str
    linux: str
    mac: str = ""
    windows: str = ""
    project: str = ""
    """The file of one project, where the host reads such a file."""
    format: Literal["json", "toml", "yaml"] = "json"
    table: str = "mcpServers"
    entry: Entry

    def path(self, platform: str, home: Path, appdata: str | None) -> Path:
        """Return where the file is on a system, for a user."""
        if platform == "darwin":
            return home / (self.mac or self.linux)
        if platform == "win32":
            place = self.windows or self.linux
            if place.startswith("%APPDATA%/"):
                root = Path(appdata) if appdata else home / "AppData" / "Roaming"
                return root / place.removeprefix("%APPDATA%/")
            return home / place
        return home / self.linux


def _plain(launch: Launch) -> dict[str, Any]:
    if launch.url:
        return _with({"url": launch.url}, headers=launch.headers)
    return _with({"command": launch.command[0], "args": launch.command[1:]}, env=launch.env)


def _typed(launch: Launch) -> dict[str, Any]:
    kind = "stdio"
    if launch.url:
        kind = "sse" if launch.url.startswith("sse+") else "http"
    return {"type": kind, **_plain(launch)}


def _zed(launch: Launch) -> dict[str, Any]:
    return {"source": "custom", **_plain(launch)}


def _windsurf(launch: Launch) -> dict[str, Any]:
    if launch.url:
        return _with({"serverUrl": launch.url}, headers=launch.headers)
    return _plain(launch)


def _gemini(launch: Launch) -> dict[str, Any]:
    if launch.url:
        return _with({"httpUrl": launch.url}, headers=launch.headers)
    return _plain(launch)


def _codex(launch: Launch) -> dict[str, Any]:
    if launch.url:
        return _with({"url": launch.url}, http_headers=launch.headers)
    return _plain(launch)


def _goose(launch: Launch) -> dict[str, Any]:
    common = {"enabled": True, "name": launch.name, "timeout": GOOSE_TIMEOUT}
    if launch.url:
        return {**common, "type": "streamable_http", "uri": launch.url, "headers": launch.headers}
    return {**common, "type": "stdio", "cmd": launch.command[0], "args": launch.command[1:], "envs": launch.env}


def _with(entry: dict[str, Any], **more: dict[str, str]) -> dict[str, Any]:
    for key, value in more.items():
        if value:
            entry[key] = value
    return entry


HOSTS = {
    "claude-desktop": Host(
        title="Claude Desktop",
        linux=".config/Claude/claude_desktop_config.json",
        mac="Library/Application Support/Claude/claude_desktop_config.json",
        windows="%APPDATA%/Claude/claude_desktop_config.json",
        entry=_plain,
    ),
    "claude-code": Host(title="Claude Code", linux=".claude.json", project=".mcp.json", entry=_typed),
    "cursor": Host(title="Cursor", linux=".cursor/mcp.json", project=".cursor/mcp.json", entry=_plain),
    "vscode": Host(
        title="VS Code",
        linux=".config/Code/User/mcp.json",
        mac="Library/Application Support/Code/User/mcp.json",
        windows="%APPDATA%/Code/User/mcp.json",
        project=".vscode/mcp.json",
        table="servers",
        entry=_typed,
    ),
    "windsurf": Host(title="Windsurf", linux=".codeium/windsurf/mcp_config.json", entry=_windsurf),
    "zed": Host(
        title="Zed",
        linux=".config/zed/settings.json",
        windows="%APPDATA%/Zed/settings.json",
        project=".zed/settings.json",
        table="context_servers",
        entry=_zed,
    ),
    "gemini": Host(title="Gemini CLI", linux=".gemini/settings.json", project=".gemini/settings.json", entry=_gemini),
    "goose": Host(
        title="Goose",
        linux=".config/goose/config.yaml",
        windows="%APPDATA%/Block/goose/config/config.yaml",
        format="yaml",
        table="extensions",
        entry=_goose,
    ),
    "codex": Host(title="Codex", linux=".codex/config.toml", format="toml", table="mcp_servers", entry=_codex),
    "mcp.json": Host(title=PLAIN, linux="mcp.json", project="mcp.json", entry=_plain),
}


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule install`."""
    parser.usage = "ferrule install HOST [FILE[:obj]] [options] [-- command of the server]"
    parser.add_argument("host", choices=tuple(HOSTS), metavar="HOST", help=f"where to put it: {', '.join(HOSTS)}")
    parser.add_argument(
        "target", nargs="?", metavar="FILE", help="a file, a folder with a ferrule.toml (default: this one), or a URL"
    )
    parser.add_argument("--name", metavar="NAME", help="what the host calls it (default: the name of its folder)")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="an environment variable of the server"
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="a header of requests to a URL"
    )
    parser.add_argument("--project", action="store_true", help="into the file of this folder, not of the user")
    parser.add_argument("--config", metavar="FILE", help="into another file than the host's usual one")
    parser.add_argument("--dry-run", action="store_true", help="show what would be written, and write nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask whether the host may run the command")
    parser.add_argument("--undo", action="store_true", help="bring back the file as it was before the last install")
    parser.set_defaults(server=None)


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Put a server into the file of a host, or take back what was put there last."""
    output = output_of(options)
    host = HOSTS[options.host]
    path = _path(host, options)
    if options.undo:
        undo(path)
        _tell(output, f"{path} is as it was before", {"file": str(path), "undone": True})
        return
    launch = launch_of(options, passed_on)
    before = read_text(path)
    try:
        after = edited(host.format, before or "", host.table, launch.name, host.entry(launch))
    except Unreadable as reason:
        raise SetupError(f"{path} is not changed: {reason}") from None
    if not options.dry_run and after != before:
        if launch.command and not options.yes:
            ask(TerminalUser(output), output, host, launch)
        write(path, before, after)
    if output.json:
        output.document(
            {"file": str(path), "name": launch.name, "changed": after != before, "written": not options.dry_run}
        )
        return
    for line in difference(before or "", after, str(path), launch):
        output.line(line)
    if not options.dry_run:
        restart = f"{host.title}: restart it"
        if host.title == PLAIN:
            restart = str(path)
        output.note(f"{launch.name} is in {restart}. `ferrule install {options.host} --undo` takes it out")


def ask(user: TerminalUser, output: Output, host: Host, launch: Launch) -> None:
    """Show a command whole, and raise SetupError unless somebody agrees that the host runs it (MCP SEC-9)."""
    if not user.present:
        raise SetupError("nobody is here to be asked: look at what is written with --dry-run, then say --yes")
    output.note(f"{host.title} will run this command, which can do whatever you can:")
    output.note("")
    variables = "".join(f"{name}={HIDDEN} " for name in launch.env)
    output.note(f"  {variables}{shlex.join(launch.command)}")
    output.note("")
    if not user.agrees("Install it?"):
        raise SetupError("nothing was installed")


def _tell(output: Output, line: str, value: Mapping[str, Any]) -> None:
    if output.json:
        output.document(value)
    else:
        output.line(line)


def _path(host: Host, options: argparse.Namespace) -> Path:
    if options.config is not None:
        return Path(options.config).resolve()
    if options.project or host.linux == host.project == "mcp.json":
        if not host.project:
            raise SetupError(f"{host.title} reads no file of a project: leave --project out")
        return Path.cwd() / host.project
    # A link leads to the file that is meant.
    return host.path(sys.platform, Path.home(), os.environ.get("APPDATA")).resolve()


# -- the server


def launch_of(options: argparse.Namespace, passed_on: list[str]) -> Launch:
    """Return how a host reaches the server; raise SetupError for what it cannot reach."""
    if options.target is None and not passed_on:
        options.target = "."
    target = target_of(options, passed_on)
    env = pairs(options.env, "=", "--env")
    headers = pairs(options.header, ":", "--header")
    if isinstance(target, list):
        return Launch(name=options.name or Path(target[-1]).stem, command=[_found(target[0]), *target[1:]], env=env)
    place = str(target)
    kind = TRANSPORTS.of_address(place)
    if kind is not None and kind.takes_headers:
        return Launch(name=options.name or _host_name(place), url=place, headers=headers)
    path = place
    name = ""
    if not Path(place).exists():
        path, _, name = place.partition(":")
    command = file_command(path, name)
    if not command:
        raise SetupError(f"a host cannot start {place}: give a file, a folder with a ferrule.toml, or a URL")
    return Launch(name=options.name or _own_name(Path(path).resolve()), command=command, env=env)


def _own_name(path: Path) -> str:
    if path.is_dir():
        return path.name
    if path.stem in USUAL_NAMES:
        return path.parent.name
    return path.stem


def _host_name(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].partition(":")[0]


def _found(program: str) -> str:
    """Return the absolute path of a program, since a host has a PATH of its own."""
    return shutil.which(program) or program


# -- the file


def read_text(path: Path) -> str | None:
    """Return the text of a file; None where there is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as reason:
        raise SetupError(f"cannot read {path}: {reason.strerror}") from None
    if len(data) > MOST_BYTES:
        raise SetupError(f"{path} is not changed: it has {len(data)} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise SetupError(f"{path} is not changed: it is not UTF-8 text") from None


def write(path: Path, before: str | None, after: str) -> None:
    """Keep what a file was, and write it anew, whole or not at all."""
    backup = path.with_name(path.name + BACKUP)
    note = {"written": _digest(after.encode()), "existed": before is not None}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if before is not None else 0o600
        if before is not None:
            replace_file(backup, before.encode(), mode)
        replace_file(path.with_name(path.name + UNDO), json.dumps(note).encode(), 0o600)
        replace_file(path, after.encode(), mode)
    except OSError as reason:
        raise SetupError(f"cannot write {path}: {reason.strerror}") from None


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Write a file beside another and put it in its place: whoever reads sees the one or the other."""
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def undo(path: Path) -> None:
    """Bring back a file as it was before the last install; raise SetupError where somebody changed it since."""
    backup = path.with_name(path.name + BACKUP)
    noted = path.with_name(path.name + UNDO)
    try:
        note = json.loads(noted.read_bytes())
        written = str(note["written"])
        existed = bool(note["existed"])
    except (OSError, ValueError, TypeError, KeyError):
        raise SetupError(f"there is nothing to undo: no {noted.name} beside {path}") from None
    try:
        if _digest(path.read_bytes()) != written:
            raise SetupError(f"{path} was changed since: take the server out by hand, or copy {backup.name} over it")
        if existed:
            replace_file(path, backup.read_bytes(), stat.S_IMODE(path.stat().st_mode))
            backup.unlink()
        else:
            path.unlink()
        noted.unlink()
    except OSError as reason:
        raise SetupError(f"cannot bring back {path}: {reason.strerror}") from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def difference(before: str, after: str, path: str, launch: Launch) -> list[str]:
    """Return the lines that change, without the values of environment variables and headers, nor lines around."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, n=0, lineterm="")
    shown: list[str] = []
    for line in lines:
        told = line
        for secret in (*launch.env.values(), *launch.headers.values()):
            if secret:
                told = told.replace(json.dumps(secret, ensure_ascii=False)[1:-1], HIDDEN)
        shown.append(told)
    return shown
