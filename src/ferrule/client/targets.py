"""A URL, a command, a file or an object, as the transport that reaches it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ferrule.errors import SetupError
from ferrule.transports.child import ChildProcess
from ferrule.transports.contract import Transport
from ferrule.transports.memory import Memory

UNDERSTOOD = "a Server, a path such as server.py or server.py:app, a command list, 'stdio:command', or an mcp.json"


def transport_for(target: Any, **child_options: Any) -> Transport:
    """Choose the transport for a target."""
    if hasattr(target, "connect") and hasattr(target, "close"):
        return target  # type: ignore[no-any-return]
    if hasattr(target, "link") and hasattr(target, "drain"):
        return Memory(target)
    if isinstance(target, Mapping):
        return _configured(target, **child_options)
    if isinstance(target, str | Path):
        return _named(str(target), **child_options)
    if isinstance(target, Sequence):
        return ChildProcess([str(part) for part in target], **child_options)
    raise SetupError(f"cannot reach {type(target).__name__} as a server: a target is {UNDERSTOOD}")


def _named(target: str, **child_options: Any) -> Transport:
    if target.startswith("stdio:"):
        return ChildProcess(shlex.split(target.removeprefix("stdio:")), **child_options)
    path, _, name = target.partition(":") if not Path(target).exists() else (target, "", "")
    if path.endswith(".json"):
        return _configured(_config_file(path), **child_options)
    if path.endswith(".py"):
        if not Path(path).exists():
            raise SetupError(f"no such file: {path}")
        command = [sys.executable, "-m", "ferrule", "run", f"{path}:{name}" if name else path]
        return ChildProcess(command, **child_options)
    raise SetupError(f"cannot reach {target!r}: a target is {UNDERSTOOD}")


def _config_file(path: str) -> Mapping[str, Any]:
    try:
        config: Mapping[str, Any] = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
    except OSError as reason:
        raise SetupError(f"cannot read {path}: {reason.strerror}") from None
    except msgspec.DecodeError as reason:
        raise SetupError(f"{path} is not a JSON object: {reason}") from None
    return config


def _configured(config: Mapping[str, Any], **child_options: Any) -> Transport:
    servers = config.get("mcpServers") or config.get("servers") or {}
    if len(servers) != 1:
        raise SetupError(f"the configuration names {len(servers)} servers; a client takes one: {', '.join(servers)}")
    name, entry = next(iter(servers.items()))
    if "command" not in entry:
        raise SetupError(f"the server {name!r} has no command; this version reaches servers it starts itself")
    environment = {**(child_options.pop("env", None) or {}), **entry.get("env", {})}
    options = {"cwd": entry.get("cwd"), **child_options, "env": environment or None}
    return ChildProcess([entry["command"], *map(str, entry.get("args", ()))], **options)
