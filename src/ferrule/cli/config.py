"""`ferrule config`: which options hold, and where each was set.

Rule: a value that may be a secret is not shown, only that there is one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping
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
"""Words in the name of an option whose value is not shown."""


class Setting(Struct, frozen=True, kw_only=True):
    """The value of an option, and where it was set."""

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
    """Show the options that are set."""
    output = output_of(options)
    configuration = _read_configuration(options.place)
    tables = _tables()
    require_tables(configuration, tables)
    if options.table is not None:
        _require_table(options.table, tables)
        tables = {options.table: tables[options.table]}
    found: list[Setting] = []
    for table, structs in tables.items():
        given = _arguments(table, options)
        found.extend(_settings(table, structs, configuration, given, every=options.all))
    if output.json:
        output.document({"file": configuration.path or None, "settings": msgspec.to_builtins(found)})
        return
    rows: list[list[str]] = []
    for setting in found:
        rows.append([f"{setting.table}.{setting.option}", _shown(setting.value), setting.where])
    output.rows(rows)
    if not rows:
        output.note("every option is at its default: `ferrule config --all` shows them")


def _read_configuration(place: str | None) -> Configuration:
    """Return the configuration beside a server's file or folder, without one that of the current folder."""
    if not place:
        return use_beside(folder_of([]))
    if not Path(place.partition(".py:")[0]).exists():
        raise SetupError(f"there is no file or folder {place}")
    return use_beside(folder_of([place]))


def _require_table(table: str, tables: Iterable[str]) -> None:
    """Refuse a table that does not exist."""
    if table in tables:
        return
    meant = alike(table, tables)
    if meant:
        raise SetupError(f'no table "{table}". Did you mean "{meant}"?')
    raise SetupError(f'no table "{table}": there are {", ".join(tables)}')


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
    """Return the options of a table that were given on the command line."""
    names: tuple[str, ...] = ()
    if table == "run":
        names = ("transport",)
    elif table == (options.transport or read_run_settings({}).transport):
        names = ("host", "port", "path")
    found: dict[str, Any] = {}
    for name in names:
        value = getattr(options, name)
        if value is not None:
            found[name] = value
    return found


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
            source = "argument"
            where = f"--{name.replace('_', '-')}"
        elif variable in os.environ:
            source = "environment"
            where = variable
        elif name in configuration.tables.get(table, {}):
            source = "file"
            where = f"{configuration.path}:{lines.get((table, name), 1)}"
        elif every:
            source = "default"
            where = "default"
        else:
            continue
        yield Setting(table=table, option=name, value=_public(name, value), source=source, where=where)


def _defaults(structs: tuple[type[Struct], ...]) -> dict[str, Any]:
    """Return the options that can be set in a file, with their defaults."""
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
