"""A target of a user as a way to it: raw HTTP for Streamable HTTP, our transports for all else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ferrule.check.http import HttpWire
from ferrule.check.wire import MessageWire, Wire
from ferrule.client.targets import ConfiguredServer, transport_for
from ferrule.transports.http.client.old_sse import SseTransport
from ferrule.transports.registry import TRANSPORTS


def wire_maker(target: Any, headers: Mapping[str, str], env: Mapping[str, str], cwd: str | None) -> Callable[[], Wire]:
    """Return what makes a new way to a target, each time another."""
    address = http_address(target)
    if address is not None:
        url, more = address
        return lambda: HttpWire(url, {**more, **headers})
    return lambda: message_wire(target, headers, env, cwd)


def http_address(target: Any) -> tuple[str, dict[str, str]] | None:
    """Return the URL and the headers of a target that is reached by Streamable HTTP; None for any other."""
    headers: dict[str, str] = {}
    url = target
    if isinstance(target, Mapping):
        try:
            servers = msgspec.convert(target, dict[str, dict[str, ConfiguredServer]])
        except msgspec.ValidationError:
            return None
        entry = next(iter(servers["mcpServers"].values()))
        url = entry.url
        headers = entry.headers
        if entry.type == "sse":
            return None
    if isinstance(url, str) and TRANSPORTS.of_address(url) is TRANSPORTS["http"]:
        return url, headers
    return None


def message_wire(target: Any, headers: Mapping[str, str], env: Mapping[str, str], cwd: str | None) -> MessageWire:
    """Return a way on which messages go both ways; what a child process says on stderr is kept for its end."""
    given: dict[str, Any] = {"stderr": "capture"}
    if env:
        given["env"] = env
    if cwd is not None:
        given["cwd"] = cwd
    with_headers: dict[str, Any] = {}
    if headers:
        with_headers["headers"] = headers
    transport = transport_for(target, http=with_headers, websocket=with_headers, **given)
    kind = getattr(transport, "carrier", type(transport).__name__.lower())
    if isinstance(transport, SseTransport):
        kind = "sse"
    return MessageWire(transport, kind)
