"""`ferrule config`: which options hold, and where each was set.

Rule: a value that may be a secret is not shown, only that there is one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ferrule.cli.output import output_of
from ferrule.cli.place import folder_of
from ferrule.client.settings import ClientSettings
from ferrule.errors import SetupError
from ferrule.routing.settings import RoutingSettings
from ferrule.server.settings import RunSettings, ServerSettings, read_run_settings
from ferrule.settings.option import alike, kinds_of_option, settable
from ferrule.settings.sources import PREFIX, Configuration, key_lines, require_tables, sourced, use_beside
from ferrule.transports.registry import TRANSPORTS, load

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser

SECRETS = ("key", "secret", "token", "password", "headers", "auth", "env")
"""What the name of an option has in it whose value is not shown."""


class Setting(Struct, frozen=True, kw_only=True):
    """One option, what it is, and where that was said."""

    table: str
    option: str
    value: Any
    source: str
    """`argument`, `environment`, `file` or `default`."""
    where: str
    """The argument, the variable, or the file and the line."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule config`."""
    parser.add_argument("place", nargs="?", metavar="FILE", help="a server's file or folder (default: this folder)")
    parser.add_argument("--table", metavar="NAME", help="only the options of one table: run, server, client, http, …")
    parser.add_argument("--all", action="store_true", help="also options that are at their defaults")
    group = parser.add_argument_group("as `ferrule run` would be given them")
    group.add_argument("--transport", metavar="NAME", help="how clients reach the server")
    group.add_argument("--host", help="the address to listen on")
    group.add_argument("--port", type=int, help="the port to listen on")
    group.add_argument("--path", help="where MCP is served")


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Show which options hold."""
    output = output_of(options)
    if options.place is not None and not Path(options.place.partition(".py:")[0]).exists():
        raise SetupError(f"there is no file or folder {options.place}")
    configuration = use_beside(folder_of([options.place] if options.place else []))
    tables = _tables()
    require_tables(configuration, tables)
    if options.table is not None and options.table not in tables:
        meant = alike(options.table, tables)
        hint = f'. Did you mean "{meant}"?' if meant else f": there are {', '.join(tables)}"
        raise SetupError(f'no table "{options.table}"{hint}')
    found: list[Setting] = []
    for table, structs in tables.items():
        if options.table in (None, table):
            found.extend(_settings(table, structs, configuration, _arguments(table, options), every=options.all))
    if output.json:
        output.document({"file": configuration.path or None, "settings": [msgspec.to_builtins(each) for each in found]})
        return
    rows = []
    for each in found:
        rows.append([f"{each.table}.{each.option}", _shown(each.value), each.where])
    output.rows(rows)
    if not rows:
        output.note("every option is at its default: `ferrule config --all` shows them")


def _tables() -> dict[str, tuple[type[Struct], ...]]:
    """Return every table of options, with the structs that declare them."""
    found: dict[str, tuple[type[Struct], ...]] = {
        "run": (RunSettings,),
        "server": (ServerSettings,),
        "client": (ClientSettings,),
        "routing": (RoutingSettings,),
    }
    for kind in TRANSPORTS.kinds:
        structs: list[Any] = [load(each) for each in kind.settings]
        found[kind.name] = tuple(structs)
    return found


def _arguments(table: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what of a table was given on the command line."""
    names: tuple[str, ...] = ()
    if table == "run":
        names = ("transport",)
    elif table == (options.transport or read_run_settings({}).transport):
        names = ("host", "port", "path")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def _settings(
    table: str,
    structs: tuple[type[Struct], ...],
    configuration: Configuration,
    given: Mapping[str, Any],
    *,
    every: bool,
) -> Iterator[Setting]:
    """Yield the options of a table that were set; with `every` the others too."""
    values = sourced(table, structs, given)
    lines = key_lines(configuration)
    for name, default in _defaults(structs).items():
        variable = f"{PREFIX}{table.upper()}_{name.upper()}"
        value = values.get(name, default)
        if name in given:
            source, where = "argument", f"--{name.replace('_', '-')}"
        elif variable in os.environ:
            source, where = "environment", variable
        elif name in configuration.tables.get(table, {}):
            source, where = "file", f"{configuration.path}:{lines.get((table, name), 1)}"
        elif every:
            source, where = "default", "default"
        else:
            continue
        yield Setting(table=table, option=name, value=_public(name, value), source=source, where=where)


def _defaults(structs: tuple[type[Struct], ...]) -> dict[str, Any]:
    """Return the options that can be written down, with their defaults."""
    found: dict[str, Any] = {}
    for struct in structs:
        names = struct.__struct_fields__
        defaults = struct.__struct_defaults__
        for name, default in zip(reversed(names), reversed(defaults), strict=False):
            if name not in found and any(settable(kind) for kind in kinds_of_option(struct, name)):
                found[name] = default
    return dict(sorted(found.items()))


def _public(name: str, value: Any) -> Any:
    """Return a value as it may be shown."""
    if value and any(word in name for word in SECRETS):
        return "(set, not shown)"
    if isinstance(value, str | int | float | None):
        return value
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return str(value)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
