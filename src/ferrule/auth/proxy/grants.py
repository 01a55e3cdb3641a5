"""Grants: what a user has allowed one client in one login, and the refresh tokens that stand for it.

Rule 1: a refresh token is used once. Used again within 60 seconds it gets the same successor (a lost answer, two
processes of one client); later it was stolen, and the whole grant ends (RFC 9700 §4.14.2).
Rule 2: no token is kept. A refresh token is the id of its grant, its number and a MAC of both.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct, structs

from ferrule.auth.proxy.keys import Keys, digest, random_text
from ferrule.auth.proxy.parameters import OAuthError
from ferrule.stores.contracts import Store

GRACE = 60.0
MAX_RETIRED = 100
"""Retired tokens of one grant that are remembered, all of them within the grace."""
MAX_TRIES = 20
"""How often others may be first to change a grant."""
MAX_OF_USER = 100
"""Grants of one user, each a login of a client; the oldest ends for the next."""
PURPOSE = "refresh token"
LONGEST_TOKEN = 256
LOST = "The refresh token is not valid any more; log in again"


class Grant(Struct, frozen=True, kw_only=True):
    """What one login has allowed one client."""

    id: str
    client: str
    """The id of the client, or its digest."""
    subject: str
    name: str = ""
    scopes: tuple[str, ...] = ()
    number: int = 0
    """The number of the refresh token that was given last."""
    retired: tuple[tuple[int, float], ...] = ()
    """Which tokens were used within the grace, and when."""


class Presented(Struct, frozen=True):
    """A refresh token that may be used, and its grant as it was then."""

    grant: Grant
    number: int


class Grants:
    """Keeps grants, gives out refresh tokens and takes them back."""

    def __init__(self, store: Store, keys: Keys, lifetime: float, clock: Callable[[], float]) -> None:
        self._store = store
        self._keys = keys
        self._lifetime = lifetime
        self._clock = clock

    async def begin(self, grant: Grant) -> str:
        """Keep a new grant. Return its first refresh token."""
        await self._store.put(_key(grant.id), msgspec.json.encode(grant), self._lifetime)
        return self._token(grant.id, grant.number)

    async def crowd_out(self, grant: Grant) -> list[str]:
        """Count a new grant among those of its user. Return the oldest of them that are too many."""
        key = f"grants:{digest(grant.subject)}"
        for _ in range(MAX_TRIES):
            raw = await self._store.get(key)
            ids = [] if raw is None else msgspec.json.decode(raw, type=list[str])
            ids.append(grant.id)
            new = msgspec.json.encode(ids[-MAX_OF_USER:])
            if raw is None:
                noted = await self._store.add(key, new, self._lifetime)
            else:
                noted = await self._store.replace(key, raw, new, self._lifetime)
            if noted:
                return ids[:-MAX_OF_USER]
        raise OAuthError("temporarily_unavailable", "Too many logins at once; try again", status=503)

    async def find(self, grant_id: str) -> Grant | None:
        """Return a grant; None when it has ended."""
        found = await self._store.get(_key(grant_id))
        if found is None:
            return None
        return msgspec.json.decode(found, type=Grant)

    async def end(self, grant_id: str) -> None:
        """End a grant: none of its refresh tokens is good any more."""
        await self._store.delete(_key(grant_id))

    def read(self, token: str) -> tuple[str, int] | None:
        """Return the grant and the number of a refresh token of ours; None for anything else."""
        if len(token) > LONGEST_TOKEN or token.count(".") != 2:
            return None
        signed, _, mac = token.rpartition(".")
        grant_id, _, number = signed.partition(".")
        if not self._keys.is_mac(PURPOSE, signed, mac):
            return None
        return grant_id, int(number)

    async def present(self, token: str, client: str) -> Presented:
        """Return what a refresh token stands for; raises OAuthError, and `Reused` when it was stolen."""
        found = self.read(token)
        if found is None:
            raise OAuthError("invalid_grant", LOST)
        grant_id, number = found
        grant = await self.find(grant_id)
        if grant is None or grant.client != client:
            raise OAuthError("invalid_grant", LOST)
        if number != grant.number and not self._in_grace(grant, number):
            raise Reused(grant.id)
        return Presented(grant, number)

    async def rotate(self, presented: Presented) -> str:
        """Retire a refresh token. Return its successor, the same for whoever presents it within the grace."""
        grant: Grant | None = presented.grant
        number = presented.number
        for _ in range(MAX_TRIES):
            if grant is None:
                raise OAuthError("invalid_grant", LOST)
            if number != grant.number:
                if not self._in_grace(grant, number):
                    raise Reused(grant.id)
                return self._token(grant.id, number + 1)
            if await self._replace(grant, number):
                return self._token(grant.id, number + 1)
            grant = await self.find(grant.id)
        raise OAuthError("temporarily_unavailable", "Too many refreshes at once; try again", status=503)

    async def _replace(self, grant: Grant, number: int) -> bool:
        now = self._clock()
        recent = []
        for each in grant.retired:
            if now - each[1] <= GRACE:
                recent.append(each)
        retired = (*recent[-MAX_RETIRED + 1 :], (number, now))
        after = structs.replace(grant, number=number + 1, retired=retired)
        old = msgspec.json.encode(grant)
        return await self._store.replace(_key(grant.id), old, msgspec.json.encode(after), self._lifetime)

    def _in_grace(self, grant: Grant, number: int) -> bool:
        now = self._clock()
        for retired, at in grant.retired:
            if retired == number:
                return now - at <= GRACE
        return False

    def _token(self, grant_id: str, number: int) -> str:
        signed = f"{grant_id}.{number}"
        return f"{signed}.{self._keys.mac(PURPOSE, signed)}"


class Reused(OAuthError):
    """A refresh token came again, later than a lost answer explains: its grant must end."""

    def __init__(self, grant_id: str) -> None:
        super().__init__("invalid_grant", LOST)
        self.grant_id = grant_id


def new_grant_id() -> str:
    """Return an id for a new grant."""
    return random_text()


def _key(grant_id: str) -> str:
    return f"grant:{grant_id}"
