"""Where options come from beside arguments: the environment, and a `ferrule.toml`.

Rule: arguments win over the environment, the environment over the file, the file over defaults. A file is read only
where somebody asked for it: `ferrule run` and `app.run` take the one beside the program, `FERRULE_CONFIG` names any.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.settings.option import (
    LISTS,
    Kind,
    Kinds,
    kinds_of_option,
    read,
    require_kind,
    require_known,
    settable,
)

S = TypeVar("S", bound=Struct)

FILE = "ferrule.toml"
PREFIX = "FERRULE_"
CONFIG = "FERRULE_CONFIG"
"""The variable that names a file to read."""
WORD = r"\w+"
HEADER = r"\s*\[\s*([A-Za-z0-9_-]+)\s*\]"
KEY = r"\s*([A-Za-z0-9_-]+)\s*="
NONE = "none"
TRUE = ("true", "1", "yes", "on")
FALSE = ("false", "0", "no", "off")


class Configuration(Struct, frozen=True):
    """What a file says: options by the name of their table."""

    path: str = ""
    tables: Mapping[str, Mapping[str, Any]] = {}


NOTHING = Configuration()
_active: Configuration | None = None
"""What this process was told to use; None while nobody has looked for a file."""


# -- the file


def use(configuration: Configuration | None) -> None:
    """Take options of this process from a file that was read; None forgets it."""
    global _active
    _active = configuration


def active() -> Configuration:
    """Return the configuration of this process; reads the file that `FERRULE_CONFIG` names, once."""
    if _active is None:
        named = os.environ.get(CONFIG)
        if not named:
            return NOTHING
        if not os.path.isfile(named):
            raise SetupError(f"{CONFIG} names the file {named!r}, and there is none")
        use(read_file(named))
    return _active or NOTHING


def use_beside(folder: str) -> Configuration:
    """Use the `ferrule.toml` of a folder, where there is one and no other is in use; return what is in use then."""
    found = active()
    if _active is None:
        path = os.path.join(folder, FILE)
        if os.path.isfile(path):
            found = read_file(path)
        use(found)
    return found


def use_beside_program() -> None:
    """Use the `ferrule.toml` beside the program that runs; refuses one with options of a server, which is made already.

    Called by `app.run`: what a server is made with is settled by then.
    """
    if _active is not None or CONFIG in os.environ:
        return
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    if program is None:
        return
    found = use_beside(os.path.dirname(os.path.abspath(program)))
    if found.tables.get("server"):
        use(None)
        raise SetupError(
            f"{found.path}: [server] comes too late for a server that is made before app.run() reads the file: "
            f"start it with `ferrule run {os.path.basename(program)}`, or set {CONFIG}={found.path}"
        )


def read_file(path: str) -> Configuration:
    """Read a file; raises SetupError, with one sentence, for one that cannot be read."""
    import tomllib

    try:
        with open(path, "rb") as file:
            said = tomllib.load(file)
    except OSError as reason:
        raise SetupError(f"cannot read {path}: {reason.strerror}") from None
    except ValueError as reason:
        raise SetupError(f"{path} is not TOML: {reason}") from None
    for name, table in said.items():
        if not isinstance(table, dict):
            raise SetupError(f"{path}: {name} stands in no table: write it below [run], [server] or another")
    return Configuration(path, said)


def require_tables(configuration: Configuration, known: Iterable[str]) -> None:
    """Raise SetupError for a table of a file that nobody reads."""
    names = list(known)
    for table in configuration.tables:
        if table not in names:
            require_known(_place(configuration, table, ""), [table], names, what="table")


# -- options of structs


def sourced(table: str, structs: Iterable[type[Struct]], given: Mapping[str, object]) -> dict[str, Any]:
    """Return the options that were given, and beside them what the environment and the file say of others."""
    configuration = active()
    start = f"{PREFIX}{table.upper()}_"
    variables = [variable for variable in os.environ if variable.startswith(start)]
    if not variables and not configuration.tables.get(table):
        return dict(given)
    owners: dict[str, type[Struct]] = {}
    for struct in structs:
        for name in struct.__struct_fields__:
            owners.setdefault(name, struct)
    options = _from_file(configuration, table, owners)
    options.update(_from_environment(start, variables, owners))
    options.update(given)
    return options


def read_sourced(
    table: str,
    struct: type[S],
    given: Mapping[str, object],
    where: str,
    *,
    beside: Iterable[str] = (),
    hints: Mapping[str, str] | None = None,
) -> S:
    """Make settings as `read` does, of the options given, of the environment and of the file."""
    options = sourced(table, [struct], given)
    try:
        return read(struct, options, where, beside=beside, hints=hints)
    except SetupError as reason:
        raise blamed(reason, table, given) from None


def blamed(reason: SetupError, table: str, given: Mapping[str, object]) -> SetupError:
    """Return an error about options, with where those that it names are set; as it is where they are arguments."""
    words = set(re.findall(WORD, str(reason)))
    configuration = active()
    places: list[str] = []
    for name in words - given.keys():
        variable = f"{PREFIX}{table.upper()}_{name.upper()}"
        if variable in os.environ:
            places.append(variable)
        elif name in configuration.tables.get(table, {}):
            places.append(f"[{table}] {name} in {_place(configuration, table, name)}")
    if not places:
        return reason
    return SetupError(f"{reason} (set by {', '.join(sorted(places))})")


def _from_file(configuration: Configuration, table: str, owners: Mapping[str, type[Struct]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in configuration.tables.get(table, {}).items():
        try:
            found[name] = _from_key(configuration, table, name, value, owners)
        except SetupError as reason:
            # The file is read again for the line, by those only who are told about it.
            place = f"{_place(configuration, table, name)}: "
            raise SetupError(str(reason).replace(f"{configuration.path}: ", place, 1)) from None
    return found


def _from_key(
    configuration: Configuration, table: str, name: str, value: Any, owners: Mapping[str, type[Struct]]
) -> Any:
    where = f"{configuration.path}: [{table}]"
    require_known(where, [name], owners)
    label = f"{where} {name}"
    kinds = _settable_kinds(label, kinds_of_option(owners[name], name))
    if value == NONE and any(kind.base is NoneType for kind in kinds):
        return None
    require_kind(label, value, kinds)
    if any(kind.base is os.PathLike for kind in kinds):
        return _placed(value, os.path.dirname(os.path.abspath(configuration.path)))
    return value


def key_lines(configuration: Configuration) -> dict[tuple[str, str], int]:
    """Return on which line of a file each table and each option stands, by table and name; a table has no name."""
    found: dict[tuple[str, str], int] = {}
    if not configuration.path:
        return found
    table = ""
    with open(configuration.path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            header = re.match(HEADER, line)
            key = re.match(KEY, line)
            if header is not None:
                table = header[1]
                found.setdefault((table, ""), number)
            elif key is not None:
                found.setdefault((table, key[1]), number)
    return found


def _place(configuration: Configuration, table: str, name: str) -> str:
    """Return the file and the line of an option; the file alone where the line cannot be told."""
    try:
        line = key_lines(configuration).get((table, name))
    except (OSError, UnicodeDecodeError):
        line = None
    if line is None:
        return configuration.path
    return f"{configuration.path}:{line}"


def _placed(value: object, folder: str) -> Any:
    """Return a path of a file's as seen from the file's folder, wherever the process was started; or a list of them."""
    if isinstance(value, str):
        return os.path.join(folder, value)
    if isinstance(value, list):
        return [os.path.join(folder, path) for path in value]
    return value


def _from_environment(start: str, variables: list[str], owners: Mapping[str, type[Struct]]) -> dict[str, Any]:
    names = {start + name.upper(): name for name in owners}
    require_known("the environment", variables, names, what="variable")
    found = {}
    for variable in variables:
        name = names[variable]
        kinds = _settable_kinds(variable, kinds_of_option(owners[name], name))
        found[name] = _read_text(variable, os.environ[variable], kinds)
    return found


def _settable_kinds(label: str, kinds: Kinds) -> Kinds:
    """Return the kinds of an option that can be written down; raises SetupError where there are none."""
    found: list[Kind] = []
    for kind in kinds:
        if settable(kind):
            found.append(kind)
    if not found:
        raise SetupError(f"{label} can be set in a program only")
    for kind in kinds:
        if kind.base is NoneType:
            found.append(kind)
    return tuple(found)


# -- the text of a variable


def _read_text(label: str, text: str, kinds: Kinds) -> Any:
    """Return the value a text stands for; raises SetupError for one that stands for none."""
    value: Any = text
    for kind in kinds:
        read_value = _value(kind, text)
        if read_value is not UNREADABLE:
            value = read_value
            break
    require_kind(label, value, kinds)
    return value


UNREADABLE = object()
"""What a text stands for that is no value of a kind."""


def _value(kind: Kind, text: str) -> Any:
    """Return the value of a kind that a text stands for."""
    lower = text.strip().lower()
    if kind.base is NoneType and lower == NONE:
        return None
    if kind.base is bool and lower in TRUE:
        return True
    if kind.base is bool and lower in FALSE:
        return False
    if kind.base is Literal and text in kind.choices:
        return text
    if kind.base is int or kind.base is float:
        return _number(kind.base, text)
    if kind.base in LISTS:
        return _list(kind, text)
    if kind.base is Mapping:
        return _object(text)
    return UNREADABLE


def _number(kind: type[int] | type[float], text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        return UNREADABLE


def _list(kind: Kind, text: str) -> Any:
    """Read a list with commas, as in `a,b`."""
    found: list[Any] = []
    for part in text.split(","):
        item: Any = part.strip()
        if item == "":
            continue
        if int in kind.items:
            item = _number(int, item)
            if item is UNREADABLE:
                return UNREADABLE
        found.append(item)
    return found


def _object(text: str) -> Any:
    """Read a JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return UNREADABLE


# -- OpenTelemetry


def exports_traces() -> bool:
    """Whether the environment names an OpenTelemetry exporter of traces, and its API is installed."""
    said = os.environ.get
    if said("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = said("OTEL_TRACES_EXPORTER", "")
    if exporter.lower() == "none":
        return False
    if not exporter and not said("OTEL_EXPORTER_OTLP_ENDPOINT") and not said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        return False
    try:
        import opentelemetry.trace  # noqa: F401
    except ImportError:
        return False
    return True
