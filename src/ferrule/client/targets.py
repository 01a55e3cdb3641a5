"""A URL, a command, a file or an object, as the transport that reaches it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeGuard, Unpack

import msgspec
from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.transports.contract import Transport
from ferrule.transports.memory import Memory
from ferrule.transports.process.child import ChildKeywords, ChildProcess
from ferrule.transports.registry import DEFAULT, TRANSPORTS

UNDERSTOOD = (
    "a Server, a URL such as https://example.com/mcp or tcp://localhost:5000, a socket as unix:/path, "
    "a path such as server.py, server.py:app or server.js, a folder with a ferrule.toml, a command list, "
    "'stdio:command', an mcp.json, a list of these for several servers that offer the same, or a dict of others"
)

CONFIGURED = ("mcpServers", "servers")
"""Under which key a configuration has its servers."""
MOST_SERVERS = 256
"""How many servers a client may use side by side: each is a connection, or a process."""

NODE = ("node",)
TYPESCRIPT = (*(("tsx",), ("bun",), ("deno", "run", "-A")), ("node", "--experimental-strip-types"))
SCRIPTS: dict[str, tuple[tuple[str, ...], ...]] = {
    ".js": (NODE,),
    ".mjs": (NODE,),
    ".cjs": (NODE,),
    ".ts": TYPESCRIPT,
    ".mts": TYPESCRIPT,
}
"""The programs that run a script, by how its name ends; the first that is there is used."""
OURS = "ferrule"
OTHER_LIBRARIES = frozenset({"mcp", "fastmcp"})
"""What a server of another library imports: its file is a program of its own."""


class ConfiguredServer(Struct):
    """One server of an mcp.json."""

    command: str | None = None
    args: list[str | int | float] = []
    env: dict[str, str | int | float | bool] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    type: str | None = None


Given = Mapping[str, Mapping[str, Any]]
"""The options of each way to a server, by the name `TransportKind.options` has for them; a target uses one of them."""


def transport_for(
    target: Any,
    *,
    http: Mapping[str, object] | None = None,
    tcp: Mapping[str, object] | None = None,
    websocket: Mapping[str, object] | None = None,
    **child_options: Unpack[ChildKeywords],
) -> Transport:
    """Choose the transport for a target; the options are for those it has a use for."""
    if _is_transport(target):
        return target  # type: ignore[no-any-return]
    if _is_acceptor(target):
        return Memory(target)
    given: Given = {"http": http or {}, "tcp": tcp or {}, "websocket": websocket or {}, "child": child_options}
    if isinstance(target, Mapping):
        return _configured(target, given)
    if isinstance(target, str):
        kind = TRANSPORTS.of_address(target)
        if kind is not None:
            return kind.new_transport(target, given.get(kind.options, {}))
    if isinstance(target, str | Path):
        return _named(str(target), given)
    if _is_list(target):
        return _command(list(map(str, target)), given)
    raise SetupError(f"cannot reach {type(target).__name__} as a server: a target is {UNDERSTOOD}")


def is_group(target: object) -> bool:
    """Whether a target is a list of targets, and not one; raise SetupError for a list that is in doubt.

    A list of words that begins with no address is a command, as in `["python", "server.py"]`. Any other list is one of
    targets: addresses, servers, configurations, files, and commands as lists of their own.
    """
    if not _is_list(target) or is_object(target):
        return False
    elements = list(target)
    if not elements:
        return False
    if all(isinstance(each, str | int | float | PathLike) for each in elements) and not _is_address(elements[0]):
        if len(elements) > 1 and all(_is_server_file(each) for each in elements):
            raise SetupError(
                f"{elements!r} may be a command or several servers: write the command as 'stdio:{elements[0]} …', "
                f"or the servers as [['python', {str(elements[0])!r}], …]"
            )
        return False
    for each in elements:
        if not _is_target(each):
            raise SetupError(
                f"{each!r} is not a target, and its list is not a command, since it begins with {elements[0]!r}: "
                f"a target is {UNDERSTOOD}"
            )
    return True


def is_several(target: object) -> bool:
    """Whether a target names several servers: a configuration with more than one, or a dict of targets."""
    return _servers_of(target) is not None


def named_targets(target: object) -> dict[str, object]:
    """Return the targets of a configuration, or of a dict of targets, by their names; raise SetupError for others."""
    found = _servers_of(target)
    if found is None:
        raise SetupError(f"{target!r} does not name several servers: a target is {UNDERSTOOD}")
    if len(found) > MOST_SERVERS:
        raise SetupError(f"there are {len(found)} servers, and a client uses at most {MOST_SERVERS}: leave some out")
    return found


def _servers_of(target: object) -> dict[str, object] | None:
    if isinstance(target, str | Path) and str(target).endswith(".json") and not _is_address(target):
        try:
            target = read_config_file(str(target))
        except SetupError:
            return None  # the error is raised by whoever connects to it
    if not isinstance(target, Mapping):
        return None
    for key in CONFIGURED:
        servers = target.get(key)
        if isinstance(servers, Mapping) and len(servers) > 1:
            return {name: _entry(name, described) for name, described in servers.items()}
        if servers is not None:
            return None
    found = {}
    for name, each in target.items():
        if isinstance(each, Mapping):
            found[name] = _entry(name, each)
        elif isinstance(name, str) and (_is_target(each) and each):
            found[name] = each
        else:
            return None
    return found or None


def _entry(name: str, described: object) -> object:
    """Return one server of a configuration as a configuration of its own."""
    if isinstance(described, Mapping) and any(key in described for key in CONFIGURED):
        return described
    return {"mcpServers": {name: described}}


def _is_target(element: object) -> bool:
    """Whether an element of a list can be a target of its own."""
    if is_object(element) or isinstance(element, Mapping) or _is_list(element):
        return True
    return _is_address(element) or _is_server_file(element)


def _is_list(target: object) -> TypeGuard[Sequence[object]]:
    return isinstance(target, Sequence) and not isinstance(target, str | bytes | bytearray | memoryview)


def _is_address(target: object) -> bool:
    return isinstance(target, str) and TRANSPORTS.of_address(target) is not None


def _is_server_file(target: object) -> bool:
    """Whether a word names a server by its file: `server.py`, `server.py:app`, an mcp.json or a project's folder."""
    if not isinstance(target, str | PathLike):
        return False
    path = str(target)
    if path.endswith((".py", ".json", *SCRIPTS)) or ".py:" in path:
        return True
    return _exists(f"{path}/ferrule.toml")


def is_object(target: object) -> bool:
    """Whether a target is an object of its owner's, a transport or a server, and not where to find one."""
    return _is_transport(target) or _is_acceptor(target)


def _is_transport(target: object) -> bool:
    return not isinstance(target, type) and hasattr(target, "connect") and hasattr(target, "close")


def _is_acceptor(target: object) -> bool:
    return not isinstance(target, type) and hasattr(target, "link") and hasattr(target, "drain")


def _command(words: list[str], given: Given) -> Transport:
    if not words:
        raise SetupError("the command is empty: give the program, then its arguments")
    return ChildProcess(words, **given["child"])


def _named(target: str, given: Given) -> Transport:
    path = target
    name = ""
    if not _exists(target):
        path, _, name = target.partition(":")
    if path.endswith(".json"):
        return _configured(read_config_file(path), given)
    words = file_command(path, name)
    if words:
        return _command(words, given)
    raise SetupError(f"cannot reach {target!r}: a target is {UNDERSTOOD}")


def file_command(path: str, name: str = "") -> list[str]:
    """Return the command that serves a file, or a folder with a ferrule.toml, on stdio; empty for what is neither."""
    place = str(Path(path).resolve())
    # The transport is named, since a ferrule.toml beside the file may name another for everybody else.
    run_by_us = [sys.executable, "-m", OURS, "run", "--transport", DEFAULT]
    if _exists(f"{path}/ferrule.toml"):
        return [*run_by_us, place]
    if not path.endswith((".py", *SCRIPTS)):
        return []
    if not _exists(path):
        raise SetupError(f"no such file: {path}")
    if not path.endswith(".py"):
        return _script_command(place)
    if name:
        return [*run_by_us, f"{place}:{name}"]
    if _is_program(path):
        return [sys.executable, place]
    return [*run_by_us, place]


def _script_command(place: str) -> list[str]:
    """Return the command that runs a script of another language; raise SetupError where nothing here can."""
    import shutil

    runners = SCRIPTS[Path(place).suffix]
    for program, *words in runners:
        found = shutil.which(program)
        if found is not None:
            return [found, *words, place]
    wanted = " or ".join(runner[0] for runner in runners)
    raise SetupError(
        f"{Path(place).name} is run by {wanted}, which is not on the PATH: install it, "
        f"or give the command, as in ['/path/to/{runners[-1][0]}', {place!r}]"
    )


def _is_program(path: str) -> bool:
    """Whether a file is to be started as it is: it is a server of another library, or a program without any.

    A file that imports ours is loaded by `ferrule run`; so is one that cannot be read, which says why.
    """
    import ast

    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported.add(alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom) and node.level:
            imported.add(".")
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    if OURS in imported:
        return False
    for statement in tree.body:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            return True
    return bool(imported & OTHER_LIBRARIES) or imported <= sys.stdlib_module_names


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        return False


def read_config_file(path: str) -> Mapping[str, object]:
    try:
        config: Mapping[str, Any] = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
    except OSError as reason:
        raise SetupError(f"cannot read {path}: {reason.strerror}") from None
    except msgspec.DecodeError as reason:
        raise SetupError(f"{path} is not a JSON object: {_where(path) or reason}") from None
    return config


def _where(path: str) -> str:
    """Return what is wrong with a JSON file, and where; empty for JSON that is no object."""
    import json

    try:
        json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as reason:
        return f"{reason.msg} (line {reason.lineno}, column {reason.colno})"
    except UnicodeDecodeError:
        return "it is no UTF-8 text"
    except RecursionError:
        return "it is nested too deeply"
    return ""


def _configured(config: Mapping[str, object], given: Given) -> Transport:
    servers = config.get("mcpServers") or config.get("servers") or {}
    if not isinstance(servers, Mapping) or not servers:
        raise SetupError(
            'the configuration names no server: it needs "mcpServers" or "servers" with one in it, '
            "or is a dict with a target for each name"
        )
    if len(servers) > 1:
        raise SetupError(f"the configuration names {len(servers)} servers and a transport takes one: use a Client")
    name, described = next(iter(servers.items()))
    try:
        entry = msgspec.convert(described, ConfiguredServer)
    except msgspec.ValidationError as reason:
        raise SetupError(f"the server {name!r} of the configuration is malformed: {reason}") from None
    if entry.url:
        return _configured_url(name, entry, given)
    if not entry.command:
        raise SetupError(f"the server {name!r} of the configuration has neither a command nor a url")
    options = given["child"]
    environment = {key: str(value) for key, value in entry.env.items()} | (options.get("env") or {})
    directory = options.get("cwd") or entry.cwd
    return ChildProcess([entry.command, *map(str, entry.args)], **{**options, "env": environment, "cwd": directory})


def _configured_url(name: str, entry: ConfiguredServer, given: Given) -> Transport:
    url = entry.url or ""
    kind = TRANSPORTS.of_address(url)
    typed = f"{entry.type}+{url}"
    if TRANSPORTS.of_address(typed) is not None:
        # "type": "sse" beside an http URL names the older transport.
        url = typed
        kind = TRANSPORTS.of_address(typed)
    if kind is None:
        known = ", ".join(TRANSPORTS.prefixes)
        raise SetupError(f"the server {name!r} of the configuration has the url {url!r}; one begins with {known}")
    options = given.get(kind.options, {})
    if kind.takes_headers:
        options = {**options, "headers": {**entry.headers, **options.get("headers", {})}}
    return kind.new_transport(url, options)
