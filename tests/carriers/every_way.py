"""Every way over sockets to a server: how it is served, where it is then found, and what a client must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from our_carriers import ANY_PORT, certificate

from ferrule import Http, Tcp, Unix, WebSocket
from ferrule.transports.http.listener import Sse


@dataclass
class Way:
    """One of them."""

    listener: Any
    found_at: Callable[[int], str]
    options_of: str
    """The group of a client's options that is for it."""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """What a client is given, once the listener is ready."""
        return self.found_at(self.listener.address[1] if hasattr(self.listener, "address") else 0)


def every_way(folder: str) -> dict[str, Way]:
    """Make a listener of every kind; a socket file goes into the folder."""
    cert, key = certificate()
    trusted = {"ca": cert, "server_name": "localhost"}
    with_tls = Tcp(**ANY_PORT, certificate=cert, private_key=key)
    return {
        "tcp": Way(Tcp(**ANY_PORT), lambda port: f"tcp://127.0.0.1:{port}", "tcp"),
        "tls": Way(with_tls, lambda port: f"tls://127.0.0.1:{port}", "tcp", trusted),
        "unix": Way(Unix(f"{folder}/s"), lambda _: f"unix:{folder}/s", "tcp"),
        "websocket": Way(WebSocket(**ANY_PORT), lambda port: f"ws://127.0.0.1:{port}/mcp/ws", "websocket"),
        "http": Way(Http(**ANY_PORT), lambda port: f"http://127.0.0.1:{port}/mcp", "http"),
        "sse": Way(Sse(**ANY_PORT, sse_grace=0.2), lambda port: f"sse+http://127.0.0.1:{port}/sse", "http"),
    }
