"""Where an HTTP server is, read from its URL once."""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct

from ferrule.errors import SetupError

PORTS = {"http": 80, "https": 443}

LONGEST_SHOWN = 200


class Place(Struct, frozen=True):
    """A scheme, a host, a port and what to ask for there; its text never shows a secret."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query, as they go over the wire."""
    credentials: str = ""
    """The value of an Authorization header, from a user name in the URL."""

    @property
    def secure(self) -> bool:
        """Whether the way there is TLS."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port, as a Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port == PORTS[self.scheme]:
            return host
        return f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """What must not change when a server sends us elsewhere."""
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        """The whole URL, without a user name."""
        return self.origin + self.target

    def __str__(self) -> str:
        # The query stays out: keys of services travel in it.
        return self.origin + self.target.partition("?")[0]

    def elsewhere(self, reference: str) -> Place:
        """Return the place a reference of this server means; raises SetupError when it is no HTTP URL."""
        try:
            found = place(urljoin(self.origin + self.target, reference))
        except ValueError as reason:
            raise SetupError(f"cannot read the URL: {reason}") from None
        return Place(found.scheme, found.host, found.port, found.target, self.credentials)


def place(url: str) -> Place:
    """Read a URL; raises SetupError with what is wrong with it."""
    if any(character <= " " or character == "\x7f" for character in url):
        raise SetupError(f"the URL {_shown(url)} has spaces or control characters in it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as reason:
        raise SetupError(f"cannot read the URL {_shown(url)}: {reason}") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise SetupError(f"the URL {_shown(url)} must begin with http:// or https:// and name a host")
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    host = _host(parts.hostname)
    credentials = _basic(parts.username, parts.password)
    return Place(parts.scheme, host, port or PORTS[parts.scheme], _ascii(target), credentials)


def _shown(url: str) -> str:
    """Return a URL that cannot be read as far as it may be told: users, passwords and keys stay out."""
    before_query = re.split("[?#]", url, maxsplit=1)[0]
    scheme, slashes, rest = before_query.partition("//")
    return repr((scheme + slashes + rest.rpartition("@")[2])[:LONGEST_SHOWN])


def _host(name: str) -> str:
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        raise SetupError(f"the URL names a host that cannot be: {name!r}") from None


def _ascii(target: str) -> str:
    """Percent-encode what a request line cannot hold."""
    return "".join(c if c.isascii() else "".join(f"%{byte:02X}" for byte in c.encode()) for c in target)


def _basic(user: str | None, password: str | None) -> str:
    if user is None:
        return ""
    return "Basic " + b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()
