"""A URL, a command, a file or an object, as the transport that reaches it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

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


class Entry(Struct):
    """One server of an mcp.json."""

    command: str | None = None
    args: list[str | int | float] = []
    env: dict[str, str | int | float | bool] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    type: str | None = None


def transport_for(target: Any, *, http: Mapping[str, Any] | None = None, **child_options: Any) -> Transport:
    """Choose the transport for a target; the options are for those it has a use for."""
    made = not isinstance(target, type)
    if made and hasattr(target, "connect") and hasattr(target, "close"):
        return target  # type: ignore[no-any-return]
    if made and hasattr(target, "link") and hasattr(target, "drain"):
        return Memory(target)
    if isinstance(target, Mapping):
        return _configured(target, http or {}, **child_options)
    if isinstance(target, str) and target.lower().removeprefix(OLD_WAY).startswith(SCHEMES):
        return _url(target, http or {})
    if isinstance(target, str) and target.lower().startswith(SOCKETS):
        return _socket(target)
    if isinstance(target, str) and target.lower().startswith(WEBSOCKETS):
        return _websocket(target)
    if isinstance(target, str | Path):
        return _named(str(target), http or {}, **child_options)
    if isinstance(target, Sequence) and not isinstance(target, bytes | bytearray | memoryview):
        return _command([str(part) for part in target], **child_options)
    raise SetupError(f"cannot reach {type(target).__name__} as a server: a target is {UNDERSTOOD}")


def _url(url: str, options: Mapping[str, Any]) -> Transport:
    from ferrule.transports.http.client.pair import SseTransport
    from ferrule.transports.http.client.transport import HttpTransport

    if url.lower().startswith(OLD_WAY):
        return SseTransport(url[len(OLD_WAY) :], **options)
    return HttpTransport(url, **options)


def _socket(address: str) -> Transport:
    from ferrule.transports.tcp.transport import TcpTransport

    return TcpTransport(address)


def _websocket(url: str, **options: Any) -> Transport:
    from ferrule.transports.websocket.client import WebSocketTransport

    return WebSocketTransport(url, **options)


def _command(words: list[str], **child_options: Any) -> Transport:
    if not words:
        raise SetupError("the command is empty: give the program, then its arguments")
    return ChildProcess(words, **child_options)


def _named(target: str, http: Mapping[str, Any], **child_options: Any) -> Transport:
    if target.startswith("stdio:"):
        return _command(_words(target.removeprefix("stdio:")), **child_options)
    path, _, name = (target, "", "") if _exists(target) else target.partition(":")
    if path.endswith(".json"):
        return _configured(_config_file(path), http, **child_options)
    if path.endswith(".py"):
        if not _exists(path):
            raise SetupError(f"no such file: {path}")
        place = f"{Path(path).resolve()}:{name}" if name else str(Path(path).resolve())
        return ChildProcess([sys.executable, "-m", "ferrule", "run", place], **child_options)
    raise SetupError(f"cannot reach {target!r}: a target is {UNDERSTOOD}")


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


def _configured(config: Mapping[str, Any], http: Mapping[str, Any], **child_options: Any) -> Transport:
    servers = config.get("mcpServers") or config.get("servers") or {}
    if not isinstance(servers, Mapping) or not servers:
        raise SetupError('the configuration names no server: it needs "mcpServers" or "servers" with one in it')
    if len(servers) > 1:
        raise SetupError(f"the configuration names {len(servers)} servers and a client takes one: {', '.join(servers)}")
    name, given = next(iter(servers.items()))
    try:
        entry = msgspec.convert(given, Entry)
    except msgspec.ValidationError as reason:
        raise SetupError(f"the server {name!r} of the configuration is malformed: {reason}") from None
    if entry.url:
        return _configured_url(name, entry, http)
    if not entry.command:
        raise SetupError(f"the server {name!r} of the configuration has neither a command nor a url")
    environment = {key: str(value) for key, value in entry.env.items()}
    environment.update(child_options.pop("env", None) or {})
    directory = child_options.pop("cwd", None) or entry.cwd
    return ChildProcess([entry.command, *map(str, entry.args)], env=environment, cwd=directory, **child_options)


def _configured_url(name: str, entry: Entry, http: Mapping[str, Any]) -> Transport:
    url = entry.url or ""
    if url.lower().startswith(SOCKETS):
        return _socket(url)
    if url.lower().startswith(WEBSOCKETS):
        return _websocket(url, headers=entry.headers)
    if not url.lower().removeprefix(OLD_WAY).startswith(SCHEMES):
        raise SetupError(f"the server {name!r} of the configuration has a url that is not http:// or https://")
    if entry.type == "sse" and not url.lower().startswith(OLD_WAY):
        url = OLD_WAY + url
    return _url(url, {**http, "headers": {**entry.headers, **http.get("headers", {})}})
