"""Where a server is: `tcp://host:port`, `tls://host:port` or `unix:/path`."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from ferrule.errors import SetupError

SHAPES = "tcp://host:port, tls://host:port or unix:/path"


class Address(Struct, frozen=True):
    """Where a server is, and by which transport it is reached."""

    carrier: Literal["tcp", "tls", "unix"]
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.carrier == "unix":
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.carrier}://{host}:{self.port}"


def read_address(text: str) -> Address:
    """Read an address; raises SetupError that names what is missing."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme.lower() == "unix":
        path = rest.removeprefix("//")
        if not path:
            raise SetupError(f"the address {text!r} has no path: write unix:/path")
        return Address("unix", path=path)
    try:
        parts = urlsplit(text)
        host = parts.hostname
        port = parts.port
    except ValueError as reason:
        raise SetupError(f"the address {text!r} cannot be read: {reason}") from None
    if parts.scheme not in ("tcp", "tls"):
        raise SetupError(f"the address {text!r} is none of {SHAPES}")
    if not host or not port:
        raise SetupError(f"the address {text!r} has no {'port' if host else 'host'}: write {parts.scheme}://host:port")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise SetupError(f"the address {text!r} has more than a host and a port: write {parts.scheme}://{host}:{port}")
    return Address(parts.scheme, host, port)  # type: ignore[arg-type]  # it is one of the two
