"""The URL of an HTTP server, parsed once."""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import quote, unquote, urljoin, urlsplit

from msgspec import Struct

from ferrule.errors import SetupError

PORTS = {"http": 80, "https": 443}

LONGEST_SHOWN = 200

UNFIT = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]")
"""Characters that no URL can have; halves of pairs stand for bytes of a command line that are no UTF-8."""

ASCII = bytes(range(128)).decode()


class Place(Struct, frozen=True):
    """The scheme, host, port and request target of a URL; `str` never shows a secret."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query, as on the request line (origin-form, RFC 9112 §3.2.1)."""
    credentials: str = ""
    """The value of an Authorization header, from a user name in the URL."""

    @property
    def secure(self) -> bool:
        """Whether the connection uses TLS."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port, as in a Host header (RFC 9110 §7.2)."""
        host = self.host
        if ":" in host:
            host = f"[{host}]"
        if self.port == PORTS[self.scheme]:
            return host
        return f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port (RFC 6454 §4), which a redirect must not change."""
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        """The whole URL, without a user name."""
        return self.origin + self.target

    def __str__(self) -> str:
        # The query stays out: keys of services travel in it.
        return self.origin + self.target.partition("?")[0]

    def resolve(self, reference: str) -> Place:
        """Return the target of a reference (RFC 3986 §5); raises SetupError when it is no HTTP URL."""
        try:
            found = place(urljoin(self.origin + self.target, reference))
        except ValueError as reason:
            raise SetupError(f"cannot read the URL: {reason}") from None
        return Place(found.scheme, found.host, found.port, found.target, self.credentials)


def place(url: str) -> Place:
    """Parse a URL; raises SetupError with what is wrong with it."""
    if UNFIT.search(url):
        raise SetupError(f"the URL {_shown(url)} has spaces, control characters or invalid text in it")
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
    if not port:
        port = PORTS[parts.scheme]
    credentials = _basic(parts.username, parts.password)
    return Place(parts.scheme, host, port, _ascii(target), credentials)


def _shown(url: str) -> str:
    """Return a URL for an error message, without user, password, query and fragment."""
    before_query = re.split("[?#]", url, maxsplit=1)[0]
    scheme, slashes, rest = before_query.partition("//")
    without_user = rest.rpartition("@")[2]
    shown = scheme + slashes + without_user
    return repr(shown[:LONGEST_SHOWN])


def _host(name: str) -> str:
    """Return a host name in ASCII (IDNA, RFC 3490)."""
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        raise SetupError(f"the URL names a host that cannot be: {name!r}") from None


def _ascii(target: str) -> str:
    """Percent-encode what is not ASCII (RFC 3987 §3.1)."""
    return quote(target, safe=ASCII)


def _basic(user: str | None, password: str | None) -> str:
    """Return the credentials of Basic authentication (RFC 7617 §2), empty without a user."""
    if user is None:
        return ""
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return "Basic " + b64encode(pair.encode()).decode()
