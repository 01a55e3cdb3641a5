"""Which addresses may be asked for a document that somebody else named (server-side request forgery, MCP SEC).

Rule 1: a URL is judged before anything is resolved, and every address its name has before anything is connected.
Rule 2: one address that may not be reached refuses the name, whatever its others are.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from msgspec import Struct

from ferrule.errors import FerruleError, SetupError

PORTS = {"https": 443, "http": 80}
NAT64 = IPv6Network("64:ff9b::/96")
"""IPv6 addresses that lead to the IPv4 address in their last 32 bits (RFC 6052)."""
COMPATIBLE = IPv6Network("::/96")
"""The same, out of use (RFC 4291 §2.5.5.1)."""
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All that is assigned to the public internet (RFC 4291 §2.4, IANA)."""
RESERVED = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
"""Networks of no public host that older versions of Python take for public."""
LONGEST_URL = 2048
LONGEST_HOST = 253
"""RFC 1035 §2.3.4."""

Address = IPv4Address | IPv6Address


class AddressRefused(FerruleError):
    """A URL leads where nothing may be fetched from."""


class Destination(Struct, frozen=True):
    """Where a URL leads: what to connect to, and what to ask there."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> str:
        """Scheme, host and port, without the port that goes without saying."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port == PORTS[self.scheme]:
            return f"{self.scheme}://{host}"
        return f"{self.scheme}://{host}:{self.port}"


class AddressRules:
    """Which addresses may be reached: those of the public internet, and what is allowed beside them."""

    def __init__(self, *, loopback: bool = False, private: Sequence[str] = ()) -> None:
        self.loopback = loopback
        """Whether this machine may be asked, also without TLS."""
        try:
            self._private = [ip_network(text) for text in private]
        except ValueError as reason:
            raise SetupError(f"allow_private: {reason}; write networks as '10.0.0.0/8'") from None

    def judge_url(self, url: str) -> Destination:
        """Return where a URL leads; raises AddressRefused with what is wrong with it."""
        if len(url) > LONGEST_URL or any(c <= " " or c > "~" or c == "\\" for c in url):
            raise AddressRefused("a URL is too long, or has characters that may not be in one")
        try:
            parts = urlsplit(url)
            host = (parts.hostname or "").rstrip(".")
            port = parts.port
        except ValueError:
            raise AddressRefused("a URL cannot be read") from None
        shown = f"{parts.scheme}://{host}"
        if parts.scheme not in PORTS or not host or len(host) > LONGEST_HOST:
            raise AddressRefused(f"{shown}: only https:// and a host may be asked")
        if "@" in parts.netloc or "%" in host:
            raise AddressRefused(f"{shown}: a URL with a user name or a zone is not followed")
        if port == 0:
            raise AddressRefused(f"{shown}: there is no port 0")
        self._judge_host(host, shown)
        if parts.scheme == "http" and not (self.loopback and is_loopback_name(host)):
            raise AddressRefused(f"{shown}: http:// is only for this machine; use https://")
        target = parts.path or "/"
        if parts.query:
            target += f"?{parts.query}"
        return Destination(parts.scheme, host, port or PORTS[parts.scheme], target)

    def _judge_host(self, host: str, shown: str) -> None:
        try:
            address = ip_address(host)
        except ValueError:
            # 0x7f.1 and 2130706433 are names to us and addresses to a resolver.
            if host.rpartition(".")[2].isdigit() or host.startswith("0x") or host.rpartition(".")[2].startswith("0x"):
                raise AddressRefused(f"{shown}: an address is written as four decimal numbers") from None
            return
        self.judge_address(address, shown)

    def judge_address(self, address: Address, shown: str) -> None:
        """Raise AddressRefused for an address that may not be reached."""
        inner = inner_address(address)
        if any(inner in network for network in self._private if network.version == inner.version):
            return
        if inner.is_loopback:
            if not self.loopback:
                raise AddressRefused(f"{shown}: this machine may not be asked")
            return
        if not _is_public(inner):
            raise AddressRefused(f"{shown}: its address is not one of the public internet; allow_private names others")

    def judge_addresses(self, there: Destination, addresses: Sequence[str]) -> None:
        """Raise AddressRefused where one of the addresses that a name has may not be reached."""
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            self.judge_address(address, there.origin)
            if there.scheme == "http" and not inner_address(address).is_loopback:
                # A name of this machine may lead elsewhere, where nothing may be said in plain text.
                raise AddressRefused(f"{there.origin}: http:// is only for this machine; use https://")


def _is_public(address: Address) -> bool:
    """Return whether an address is one of the public internet."""
    if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
        return False
    if any(address in network for network in RESERVED if network.version == address.version):
        return False
    # is_global leaves out private, link-local, shared, reserved and unspecified addresses; not multicast.
    return address.is_global and not address.is_multicast


def inner_address(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    # ::1 and :: are IPv6 addresses of their own.
    if int(address) > 1 and (address in NAT64 or address in COMPATIBLE):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_loopback_name(host: str) -> bool:
    """Return whether a host is this machine by its name."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return inner_address(ip_address(host)).is_loopback
    except ValueError:
        return False


def network_of(address: str) -> str:
    """Return what one host has of addresses, for limits by sender: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return found.exploded[:19]
