"""Which browser a request comes from: a cookie that only we can make, and what its user has consented to.

Rule: a login belongs to the browser it began in. What another browser brings is refused (MCP SEC-3, AUT-10).
"""

from __future__ import annotations

import msgspec

from ferrule.auth.proxy.keys import Keys, digest, random_text
from ferrule.stores.contracts import Store
from ferrule.transports.http.routes.web import WebRequest

PURPOSE = "browser"
LIFETIME = 30 * 86_400
MAX_COOKIES = 100
NAME = "ferrule-browser"


class Browsers:
    """Knows browsers by a cookie."""

    def __init__(self, keys: Keys, store: Store, *, secure: bool) -> None:
        self._keys = keys
        self._store = store
        # Browsers take a cookie with this prefix only over TLS, for one host and all its paths (RFC 6265bis §4.1.3).
        self._name = f"__Host-{NAME}" if secure else NAME
        self._secure = secure

    def identify(self, request: WebRequest) -> str:
        """Return what stands for the browser of a request; empty for one we do not know."""
        value = _cookie(request.headers.get("cookie", ""), self._name)
        browser, _, mac = value.partition(".")
        if not browser or not self._keys.is_mac(PURPOSE, browser, mac):
            return ""
        return digest(browser)

    def introduce(self) -> tuple[str, str]:
        """Return what stands for a new browser, and the cookie it is given."""
        browser = random_text()
        cookie = f"{self._name}={browser}.{self._keys.mac(PURPOSE, browser)}; Path=/; HttpOnly; SameSite=Lax"
        if self._secure:
            cookie += "; Secure"
        return digest(browser), f"{cookie}; Max-Age={LIFETIME}"

    async def remember_consent(self, browser: str, client: str, redirect: str, scopes: tuple[str, ...]) -> None:
        """Note that the user of a browser has let a client come back to one place with some scopes."""
        await self._store.put(_key(browser, client, redirect), msgspec.json.encode(scopes), LIFETIME)

    async def has_consented(self, browser: str, client: str, redirect: str, scopes: tuple[str, ...]) -> bool:
        """Return whether the user of a browser has allowed all of this before."""
        found = await self._store.get(_key(browser, client, redirect))
        if found is None:
            return False
        return set(scopes) <= set(msgspec.json.decode(found, type=tuple[str, ...]))


def _cookie(header: str, name: str) -> str:
    """Return the value of a cookie; empty where there is none, or two of the name."""
    found = ""
    # Over HTTP/2 cookies come in several fields, which some join with a comma; no cookie has one in it.
    parts = header.replace(",", ";").split(";", MAX_COOKIES)
    for part in parts[:MAX_COOKIES]:
        key, _, value = part.strip().partition("=")
        if key == name:
            if found:
                return ""
            found = value
    return found


def _key(browser: str, client: str, redirect: str) -> str:
    return f"consent:{digest(msgspec.json.encode([browser, client, redirect]).decode())}"
