"""A client and a server in one line, in either era."""

from __future__ import annotations

from typing import Any, Literal

from ferrule.client.client import Client
from ferrule.transports.contract import Reachable

ERAS: tuple[Literal["handshake"], Literal["stateless"]] = ("handshake", "stateless")


def pair(server: Reachable, era: Literal["handshake", "stateless"] = "handshake", **options: Any) -> Client:
    """Return a client of this server, still through the codec: `async with pair(app, era) as client: …`."""
    return Client(server, mode=era, **options)
