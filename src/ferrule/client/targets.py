"""A URL, a command, a file or an object, as the transport that reaches it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from ferrule.errors import SetupError
from ferrule.transports.child import ChildProcess
from ferrule.transports.contract import Transport
from ferrule.transports.memory import Memory

UNDERSTOOD = (
    "a Server, a URL such as https://example.com/mcp or tcp://localhost:5000, a socket as unix:/path, "
    "a path such as server.py or server.py:app, a command list, 'stdio:command', or an mcp.json"
)

SCHEMES = ("http://", "https://")
SOCKETS = ("tcp://", "tls://", "unix:")
WEBSOCKETS = ("ws://", "wss://")
OLD_WAY = "sse+"
"""What stands before the scheme of a server that has only HTTP+SSE."""


class ConfiguredServer(Struct):
    """One server of an mcp.json."""

    command: str | None = None
    args: list[str | int | float] = []
    env: dict[str, str | int | float | bool] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    type: str | None = None


class Given(Struct, frozen=True):
    """The options of each way to a server; a target has a use for one of them."""

    http: Mapping[str, Any]
    tcp: Mapping[str, Any]
    websocket: Mapping[str, Any]
    child: Mapping[str, Any]


def transport_for(
    target: Any,
    *,
    http: Mapping[str, Any] | None = None,
    tcp: Mapping[str, Any] | None = None,
    websocket: Mapping[str, Any] | None = None,
    **child_options: Any,
) -> Transport:
    """Choose the transport for a target; the options are for those it has a use for."""
    made = not isinstance(target, type)
    if made and hasattr(target, "connect") and hasattr(target, "close"):
        return target  # type: ignore[no-any-return]
    if made and hasattr(target, "link") and hasattr(target, "drain"):
        return Memory(target)
    given = Given(http or {}, tcp or {}, websocket or {}, child_options)
    if isinstance(target, Mapping):
        return _configured(target, given)
    if isinstance(target, str) and (way := _way(target)) is not None:
        return way(target, given)
    if isinstance(target, str | Path):
        return _named(str(target), given)
    if isinstance(target, Sequence) and not isinstance(target, bytes | bytearray | memoryview):
        return _command([str(part) for part in target], given)
    raise SetupError(f"cannot reach {type(target).__name__} as a server: a target is {UNDERSTOOD}")


def _way(target: str) -> Callable[[str, Given], Transport] | None:
    """Tell how a URL is reached; None where it is no URL we know."""
    target = target.lower()
    if target.removeprefix(OLD_WAY).startswith(SCHEMES):
        return _url
    if target.startswith(SOCKETS):
        return _socket
    return _websocket if target.startswith(WEBSOCKETS) else None


def _url(url: str, given: Given) -> Transport:
    from ferrule.transports.http.client.pair import SseTransport
    from ferrule.transports.http.client.transport import HttpTransport

    if url.lower().startswith(OLD_WAY):
        return SseTransport(url[len(OLD_WAY) :], **given.http)
    return HttpTransport(url, **given.http)


def _socket(address: str, given: Given) -> Transport:
    from ferrule.transports.tcp.transport import TcpTransport

    return TcpTransport(address, **given.tcp)


def _websocket(url: str, given: Given) -> Transport:
    from ferrule.transports.websocket.client import WebSocketTransport

    return WebSocketTransport(url, **given.websocket)


def _command(words: list[str], given: Given) -> Transport:
    if not words:
        raise SetupError("the command is empty: give the program, then its arguments")
    return ChildProcess(words, **given.child)


def _named(target: str, given: Given) -> Transport:
    if target.startswith("stdio:"):
        return _command(_words(target.removeprefix("stdio:")), given)
    path, _, name = (target, "", "") if _exists(target) else target.partition(":")
    if path.endswith(".json"):
        return _configured(_config_file(path), given)
    if path.endswith(".py"):
        if not _exists(path):
            raise SetupError(f"no such file: {path}")
        place = str(Path(path).resolve())
        if name:
            place += f":{name}"
        elif _is_program(path):
            return _command([sys.executable, place], given)
        return _command([sys.executable, "-m", "ferrule", "run", place], given)
    raise SetupError(f"cannot reach {target!r}: a target is {UNDERSTOOD}")


def _is_program(path: str) -> bool:
    from ferrule.client.scripts import is_program

    return is_program(path)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as reason:
        raise SetupError(f"cannot read the command {command!r}: {reason}") from None


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        return False


def _config_file(path: str) -> Mapping[str, Any]:
    try:
        config: Mapping[str, Any] = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
    except OSError as reason:
        raise SetupError(f"cannot read {path}: {reason.strerror}") from None
    except msgspec.DecodeError as reason:
        raise SetupError(f"{path} is not a JSON object: {reason}") from None
    return config


def _configured(config: Mapping[str, Any], given: Given) -> Transport:
    servers = config.get("mcpServers") or config.get("servers") or {}
    if not isinstance(servers, Mapping) or not servers:
        raise SetupError('the configuration names no server: it needs "mcpServers" or "servers" with one in it')
    if len(servers) > 1:
        first = next(iter(servers))
        raise SetupError(
            f"the configuration names {len(servers)} servers and a client takes one: {', '.join(servers)};"
            f' make a client for each, as in Client({{"mcpServers": {{"{first}": config["mcpServers"]["{first}"]}}}})'
        )
    name, described = next(iter(servers.items()))
    try:
        entry = msgspec.convert(described, ConfiguredServer)
    except msgspec.ValidationError as reason:
        raise SetupError(f"the server {name!r} of the configuration is malformed: {reason}") from None
    if entry.url:
        return _configured_url(name, entry, given)
    if not entry.command:
        raise SetupError(f"the server {name!r} of the configuration has neither a command nor a url")
    environment = {key: str(value) for key, value in entry.env.items()} | (given.child.get("env") or {})
    directory = given.child.get("cwd") or entry.cwd
    options = {**given.child, "env": environment, "cwd": directory}
    return ChildProcess([entry.command, *map(str, entry.args)], **options)


def _configured_url(name: str, entry: ConfiguredServer, given: Given) -> Transport:
    url = entry.url or ""
    if entry.type == "sse" and url.lower().startswith(SCHEMES):
        url = OLD_WAY + url
    way = _way(url)
    if way is None:
        known = ", ".join((*SCHEMES, *SOCKETS, *WEBSOCKETS))
        raise SetupError(f"the server {name!r} of the configuration has the url {url!r}; one begins with {known}")
    http, websocket = (
        {**options, "headers": {**entry.headers, **options.get("headers", {})}}
        for options in (given.http, given.websocket)
    )
    return way(url, structs.replace(given, http=http, websocket=websocket))
