"""Proxies before a server whose word is taken: who sent a request, and with which certificate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Protocol

from ferrule.errors import SetupError

FORWARDED_FOR = "x-forwarded-for"
MOST_HOPS = 32
"""Addresses in a header that are looked at, from its end."""


class Sent(Protocol):
    """A request, as far as it tells where it came from."""

    @property
    def address(self) -> str:
        """Who sent it to us."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By any spelling of a name."""


class TrustedProxies:
    """The addresses of proxies, and what they say."""

    def __init__(self, proxies: Collection[str]) -> None:
        if isinstance(proxies, str):
            raise SetupError("trusted_proxies must be a list of addresses, or of networks as '10.0.0.0/8'")
        try:
            self._networks = [ip_network(each) for each in proxies]
        except ValueError as reason:
            raise SetupError(f"trusted_proxies: {reason}; write addresses, or networks as '10.0.0.0/8'") from None

    def __bool__(self) -> bool:
        return bool(self._networks)

    def has(self, address: str) -> bool:
        """Return whether an address is that of a proxy."""
        found = _read(address)
        if found is None:
            return False
        return any(found in network for network in self._networks if network.version == found.version)

    def sender(self, request: Sent) -> str:
        """Return where a request came from: before the last proxy that is trusted, as that one says.

        Each proxy adds who it heard the request from at the end of the header; what stands before the first address
        that is not trusted was written by anybody.
        """
        address = request.address
        if not self._networks or not self.has(address):
            return address
        hops = request.headers.get(FORWARDED_FOR, "").rsplit(",", MOST_HOPS)
        for hop in reversed(hops[-MOST_HOPS:]):
            found = _read(hop.strip())
            if found is None:
                break
            address = str(found)
            if not self.has(address):
                break
        return address


def _read(address: str) -> IPv4Address | IPv6Address | None:
    """Return an address; one of IPv4 that a socket of IPv6 shows in its own form is that of IPv4."""
    try:
        found = ip_address(address)
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found
