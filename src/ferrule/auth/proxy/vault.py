"""The vault: the tokens of the provider, sealed, one entry for each grant. They are refreshed here and nowhere else.

Rule 1: what is in the store can be read with our keys only, and only as the entry it was made for.
Rule 2: of several who find a token expired, one refreshes it, among all processes: providers take a refresh token that
comes twice for a stolen one, and end the login. An answer that comes late never replaces a newer token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from msgspec import structs

from ferrule.auth.proxy.keys import Keys, random_text
from ferrule.auth.proxy.upstream import Upstream, UpstreamDown, UpstreamRefused, UpstreamTokens
from ferrule.stores.contracts import Store

EARLY = 60.0
"""A token is refreshed at most so many seconds before it expires."""
CHECK_KEPT = 60.0
"""For how long a provider's word that a token is good is believed."""
RENEWING = 15.0
"""Seconds for which a process has the renewal of a token to itself: longer than a provider is waited for."""
PAUSE = 0.05
"""Seconds between two looks whether another process has renewed it."""


class Vault:
    """The provider's tokens, by grant."""

    def __init__(
        self, store: Store, keys: Keys, upstream: Upstream, lifetime: float, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._keys = keys
        self._upstream = upstream
        self._lifetime = lifetime
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}
        """Of grants whose tokens are being refreshed."""

    async def put(self, grant_id: str, tokens: UpstreamTokens, ttl: float | None = None) -> None:
        """Keep the tokens of a grant, for as long as the grant can last unless a time is given."""
        kept = structs.replace(tokens, id_token="")
        await self._store.put(_key(grant_id), self._seal(grant_id, kept), ttl or self._lifetime)

    async def delete(self, grant_id: str) -> None:
        """Forget the tokens of a grant."""
        await self._store.delete(_key(grant_id))

    async def extend(self, grant_id: str) -> None:
        """Keep the tokens of a grant for as long as a grant can last from now on."""
        raw = await self._store.get(_key(grant_id))
        if raw is not None:
            await self._store.replace(_key(grant_id), raw, raw, self._lifetime)

    async def fresh(self, grant_id: str) -> UpstreamTokens:
        """Return tokens that the provider accepts now; raises UpstreamRefused or UpstreamDown."""
        _, tokens = await self._get(grant_id)
        if not self._is_stale(tokens):
            return tokens
        lock = self._locks.setdefault(grant_id, asyncio.Lock())
        try:
            async with lock:
                return await self._renewed(grant_id)
        finally:
            if not lock.locked():
                self._locks.pop(grant_id, None)

    def _is_stale(self, tokens: UpstreamTokens) -> bool:
        now = self._clock()
        if tokens.expires is None:
            return self._upstream.profile.checked_by_use and now >= tokens.checked + CHECK_KEPT
        early = 0.0
        if tokens.refresh:
            # Of a token that lives shorter than a few minutes, half its life is left for use.
            early = min(EARLY, (tokens.expires - tokens.checked) / 2)
        return now >= tokens.expires - early

    async def _renewed(self, grant_id: str) -> UpstreamTokens:
        """Return tokens that were renewed here, or meanwhile by another process; raises as `fresh` does."""
        lease = f"renewing:{grant_id}"
        mine = random_text().encode()
        for _ in range(int(2 * RENEWING / PAUSE)):
            # Whoever was here before us may have done it.
            _, tokens = await self._get(grant_id)
            if not self._is_stale(tokens):
                return tokens
            if await self._store.add(lease, mine, RENEWING):
                break
            await asyncio.sleep(PAUSE)
        else:
            raise UpstreamDown("another process has been renewing the same token for too long")
        try:
            raw, tokens = await self._get(grant_id)
            if self._is_stale(tokens):
                tokens = await self._renew(grant_id, raw, tokens)
            return tokens
        finally:
            if await self._store.get(lease) == mine:
                await self._store.delete(lease)

    async def _renew(self, grant_id: str, raw: bytes, tokens: UpstreamTokens) -> UpstreamTokens:
        try:
            if tokens.expires is None:
                await self._upstream.identify(tokens)
                after = structs.replace(tokens, checked=self._clock())
            else:
                after = structs.replace(await self._upstream.refresh(tokens), id_token="")
        except UpstreamRefused:
            return await self._of_another(grant_id, raw)
        if await self._store.replace(_key(grant_id), raw, self._seal(grant_id, after), self._lifetime):
            return after
        return await self._of_another(grant_id, raw)

    async def _of_another(self, grant_id: str, raw: bytes) -> UpstreamTokens:
        """Return the tokens that another process has put in the place of ours; raises UpstreamRefused without any."""
        now_kept, tokens = await self._get(grant_id)
        if now_kept == raw:
            raise UpstreamRefused("the provider does not accept its own tokens any more")
        return tokens

    async def _get(self, grant_id: str) -> tuple[bytes, UpstreamTokens]:
        raw = await self._store.get(_key(grant_id))
        payload = None
        if raw is not None:
            payload = self._keys.open(_key(grant_id), raw.decode(), self._clock())
        if raw is None or payload is None:
            raise UpstreamRefused("there are no tokens of the provider for this login")
        return raw, msgspec.json.decode(payload, type=UpstreamTokens)

    def _seal(self, grant_id: str, tokens: UpstreamTokens) -> bytes:
        return self._keys.seal(_key(grant_id), msgspec.json.encode(tokens)).encode()


def _key(grant_id: str) -> str:
    return f"vault:{grant_id}"
