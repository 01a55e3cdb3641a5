"""Addresses of sockets."""

from __future__ import annotations

import pytest

from ferrule.errors import SetupError
from ferrule.transports.tcp.address import Address, read_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://localhost:5000", Address("tcp", "localhost", 5000)),
        ("TCP://Example.COM:1", Address("tcp", "example.com", 1)),
        ("tls://[::1]:65535", Address("tls", "::1", 65535)),
        ("tcp://10.0.0.1:80/", Address("tcp", "10.0.0.1", 80)),
        ("unix:/run/mcp.sock", Address("unix", path="/run/mcp.sock")),
        ("unix:///run/mcp.sock", Address("unix", path="/run/mcp.sock")),
        ("unix:relative.sock", Address("unix", path="relative.sock")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert read_address(text) == address
    assert read_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tcp://localhost", "has no port: write tcp://host:port"),
        ("tls://:5000", "has no host: write tls://host:port"),
        ("tcp://", "has no host"),
        ("tcp://localhost:0", "has no port"),
        ("tcp://localhost:many", "cannot be read"),
        ("tcp://localhost:70000", "cannot be read"),
        ("tcp://[::1:5000", "cannot be read"),
        ("unix:", "has no path"),
        ("http://localhost:5000", "is none of tcp://host:port, tls://host:port or unix:/path"),
        ("localhost:5000", "is none of"),
        ("tcp://localhost:5000/mcp", "has more than a host and a port"),
        ("tcp://user@localhost:5000", "has more than a host and a port"),
    ],
)
def test_tcpt_05_an_address_that_lacks_something_is_refused_by_name(text: str, said: str) -> None:
    """TCPT-05."""
    with pytest.raises(SetupError, match=said):
        read_address(text)
