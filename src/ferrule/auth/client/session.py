"""Being logged in to one server: the token, what renews it, and what to do when the server refuses it.

Rule 1: one renewal, one login at a time; whoever needs the same waits for it. Across processes a lock is held, and what
is stored is read again inside it: if somebody else has renewed the token, theirs is used.
Rule 2: a stored token is never deleted because it was refused: the one that was sent is marked, if it is still there.
Rule 3: nothing of one authorization server is shown to another.

    event                                   what is done
    first request                           read what is stored
    token about to end                      renew it
    401                                     look who issues tokens; renew once; else log in
    403 insufficient_scope                  log in for what was asked for before and is asked for now
    401 use_dpop_nonce                      send again with the nonce
    token number differs from the refused   send again: somebody got another meanwhile
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from hashlib import sha256
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct, structs

from ferrule.auth.challenge import Challenge, read_challenges
from ferrule.auth.client.discovery import Discovered, Discovery
from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.client.store import TokenStore
from ferrule.auth.client.token import (
    DPOP,
    ClientIdentity,
    ProofKey,
    Token,
    TokenEndpoint,
    TokenRefused,
    TokenUnavailable,
)
from ferrule.auth.jose import load_private, make_key
from ferrule.errors import AuthorizationFailed
from ferrule.transports.contract import Authorization, Refused

logger = logging.getLogger("ferrule.auth")

MAX_AUTHORIZATIONS = 3
"""How often one operation may lead to an authorization within WINDOW, before it fails (MCP authorization, step-up)."""
WINDOW = 600.0
MOST_OPERATIONS = 1000
PAUSES = (0.2, 1.0)
"""Seconds to wait before a renewal is tried again whose authorization server does not answer: three tries in all."""
REST = 10.0
"""Seconds until a renewal is tried again that failed while the token still serves."""
AT_LEAST = 0.2
"""Seconds for which a renewed token is used."""
METADATA_LIFE = 3600.0
OFFLINE = "offline_access"
SERVERS = "servers"
"""The name of the document that says which login belongs to which server."""


class Wanted(Struct, frozen=True):
    """What a grant is to get."""

    url: str
    """The server it is for."""
    found: Discovered
    scopes: tuple[str, ...]
    resource: str
    """What the token is for; empty where that is not said."""
    proof_key: ProofKey | None


class Granted(Struct, frozen=True):
    """What a grant has got, and as whom."""

    token: Token
    client: ClientIdentity


class Grant(Protocol):
    """A way to get tokens."""

    preregistered: bool
    """Whether we were told who we are: that holds for one authorization server only."""
    shows_secret: bool
    """Whether we were given a secret, or a token of somebody else's, that the authorization server gets to see."""
    renews: bool
    """Whether its tokens are renewed by what came with them; else another is got in the same way."""

    async def obtain(self, wanted: Wanted) -> Granted:
        """Return a token; raises AuthorizationFailed."""

    def endpoint(self, server: ServerMetadata, client: ClientIdentity, proof_key: ProofKey | None) -> TokenEndpoint:
        """Return the token endpoint as our client uses it."""


class Login(Struct, frozen=True):
    """What is kept of one login."""

    issuer: str
    resource: str
    client: ClientIdentity
    token: Token
    requested: tuple[str, ...] = ()
    """All scopes that were asked for so far."""
    key: str = ""
    """The private key its tokens are bound to, in PEM."""
    needs_login: bool = False
    """Whether what renews it was refused."""

    def __repr__(self) -> str:
        return f"Login({self.issuer})"


class SessionOptions(Struct, frozen=True):
    """How one server is logged in to."""

    scopes: tuple[str, ...] = ()
    issuer: str | None = None
    user: str = ""
    resource_parameter: bool = True
    dpop: bool = False


class Flights:
    """Work that many wait for and one does, a renewal or a login: at most one at a time in each event loop.

    It ends when nobody waits for it any more.
    """

    def __init__(self) -> None:
        self._flights: WeakKeyDictionary[asyncio.AbstractEventLoop, _Flight] = WeakKeyDictionary()

    async def join(self) -> bool:
        """Wait for what is being done; False where nothing is."""
        loop = asyncio.get_running_loop()
        flight = self._flights.get(loop)
        while flight is not None and flight.task.cancelling():
            # Nobody else waits for it, and it may still have something to bring to its end.
            await asyncio.wait([flight.task])
            if self._flights.get(loop) is flight:
                return False
            flight = self._flights.get(loop)
        if flight is None or flight.task.done():
            return False
        await flight.join()
        return True

    async def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that others can join, and wait for it; nothing may be under way."""
        loop = asyncio.get_running_loop()
        flight = _Flight(loop.create_task(work))
        self._flights[loop] = flight
        await flight.join()


class _Flight:
    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self._waiting = 0

    async def join(self) -> None:
        self._waiting += 1
        try:
            await asyncio.shield(self.task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self.task.done():
                self.task.cancel()


async def _to_its_end(renewal: Coroutine[Any, Any, bool]) -> bool:
    """Do something whole, also where nobody waits for it any more.

    Many authorization servers take a refresh token once: whoever has shown it must keep what comes for it.
    """
    task = asyncio.ensure_future(renewal)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class OAuthSession:
    """The credentials for one server."""

    def __init__(
        self,
        url: str,
        grant: Grant,
        store: TokenStore,
        options: SessionOptions,
        new_discovery: Callable[[], Discovery],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.url = url
        self._grant = grant
        self._store = store
        self._options = options
        self._new_discovery = new_discovery
        self._clock = clock
        self._flights = Flights()
        self._loaded = False
        self.login: Login | None = None
        """What we are logged in with; None for not at all."""
        self._number = 0
        self._proof_key: ProofKey | None = None
        self._lines = b""
        self._rests_until = 0.0
        self._renewed_at = 0.0
        self._attempts: dict[str, list[float]] = {}
        self._servers: dict[str, tuple[float, ServerMetadata]] = {}
        self._unkept: tuple[dict[str, Any], Login] | None = None
        """A renewed login that could not be kept, and the document it takes the place of."""

    # -- what a request says

    def authorize(self, method: str, url: str) -> Authorization | None:
        """Return what a request says now; None where that has to be awaited first."""
        if not self._loaded:
            return None
        login = self.login
        if login is None:
            return Authorization(b"", self._number)
        now = self._clock()
        if login.token.is_stale(now) and now >= self._rests_until:
            return None
        if self._proof_key is None:
            return Authorization(self._lines, self._number)
        proof = self._proof_key.proof(method, url, login.token.access)
        return Authorization(self._lines + f"dpop: {proof}\r\n".encode(), self._number)

    async def prepare(self) -> None:
        """Read what is stored, renew a token that is about to end."""
        if not await self._flights.join():
            await self._flights.begin(self._prepare())

    async def _prepare(self) -> None:
        if not self._loaded:
            self._adopt(await asyncio.to_thread(self._load))
            self._loaded = True
        login = self.login
        now = self._clock()
        if login is None or not login.token.is_stale(now):
            return
        try:
            if await self._renewed(login):
                return
            # What is left of it may still serve; where it does not, the server will say so.
            self._rests_until = now + REST
            if login.token.is_dead(now):
                self._adopt(None)
        except TokenUnavailable:
            self._rests_until = now + REST
            if login.token.is_dead(now):
                raise

    # -- what a server refuses

    async def refused(self, refusal: Refused) -> bool:
        """Get what the server wants to see. Return whether the request is worth sending again."""
        challenge = _chosen(read_challenges(refusal.headers.get("www-authenticate", "")))
        error = "" if challenge is None else challenge.error
        if self._proof_key is not None:
            self._proof_key.learn(self.url, refusal.headers)
            if error == "use_dpop_nonce":
                return True
        if refusal.status == 403 and error != "insufficient_scope":
            return False
        while refusal.token == self._number:
            if not await self._flights.join():
                await self._flights.begin(self._log_in(challenge, refusal))
        return True

    def _count(self, operation: str, challenge: Challenge | None) -> None:
        """Let an operation lead to so many authorizations, and no more."""
        now = self._clock()
        recent = [at for at in self._attempts.pop(operation, []) if at > now - WINDOW]
        if len(self._attempts) >= MOST_OPERATIONS:
            del self._attempts[next(iter(self._attempts))]
        self._attempts[operation] = recent
        if len(recent) >= MAX_AUTHORIZATIONS:
            wanted = "" if challenge is None else challenge.parameters.get("scope", "")[:500]
            scopes = f"; it asks for the scopes {wanted}" if wanted else ""
            raise AuthorizationFailed(
                f"{self.url} refuses {operation} after {len(recent)} authorizations{scopes}: "
                "see that this user may have them there"
            )
        recent.append(now)

    async def _log_in(self, challenge: Challenge | None, refusal: Refused) -> None:
        before = self.login
        discovery = self._new_discovery()
        found = await discovery.find(challenge, () if before is None else (before.issuer,))
        self._servers = {found.issuer: (self._clock(), found.server)}
        if before is not None and before.issuer != found.issuer:
            self._leave(before, found)
            before = None
        if refusal.status == 401:
            if await self._takes_stored(found.issuer):
                return
            if before is not None and await self._renews_after_refusal(before):
                return
        self._count(refusal.operation, challenge)
        scopes = self._scopes(found, challenge, before)
        proof_key = self._key_for(found, challenge, before)
        resource = found.resource if self._options.resource_parameter else ""
        if self._grant.shows_secret and self._options.issuer is None and before is None:
            warning = "%s has its tokens from %s, which is shown our secret for them: say whom you mean with issuer=…"
            logger.warning(warning, self.url, found.issuer)
        granted = await self._grant.obtain(Wanted(self.url, found, scopes, resource, proof_key))
        key = "" if proof_key is None else proof_key.key.private_pem().decode()
        login = Login(found.issuer, found.resource, granted.client, granted.token, scopes, key)
        await asyncio.to_thread(self._save, login)
        self._adopt(login, proof_key)

    def _leave(self, before: Login, found: Discovered) -> None:
        """Forget an authorization server: another one issues the tokens of this server now (MCP ACLI-16)."""
        logger.warning("the tokens of %s are issued by another authorization server now", self.url)
        if self._grant.preregistered and self._options.issuer != found.issuer:
            raise AuthorizationFailed(
                f"{self.url} had its tokens from {before.issuer}, and now from {found.issuer}; the client id was given "
                f"for the first: if that is right, give the one of the other, and issuer={found.issuer!r}"
            )
        self._adopt(None)

    async def _takes_stored(self, issuer: str) -> bool:
        """Go on with a login that another program stored meanwhile, if there is one."""
        stored = await asyncio.to_thread(self._load)
        if stored is None or stored.issuer != issuer or stored.token.is_stale(self._clock()):
            return False
        if self.login is not None and self.login.token.access == stored.token.access:
            return False
        self._adopt(stored)
        return True

    async def _renews_after_refusal(self, login: Login) -> bool:
        """Renew a token the server does not take; one that was renewed just now, and should serve, is not."""
        now = self._clock()
        just_now = now - self._renewed_at < REST and not login.token.is_stale(now)
        if not self._grant.renews or just_now:
            return False
        return await self._renewed(login)

    def _scopes(self, found: Discovered, challenge: Challenge | None, before: Login | None) -> tuple[str, ...]:
        """Return what to ask for: what the challenge says, else what the resource has, else nothing (MCP ACLI-8)."""
        challenged = [] if challenge is None else challenge.scopes
        wanted: Iterable[str] = self._options.scopes or challenged or found.scopes
        union = [*(before.requested if before is not None else ()), *wanted, *challenged]
        scopes = dict.fromkeys(scope for scope in union if scope != OFFLINE)
        if scopes and self._grant.renews and OFFLINE in found.server.scopes_supported:
            scopes[OFFLINE] = None
        return tuple(scopes)

    def _key_for(self, found: Discovered, challenge: Challenge | None, before: Login | None) -> ProofKey | None:
        """Return the key a token is to be bound to; None where none is asked for."""
        asked = challenge is not None and challenge.is_scheme(DPOP)
        bound = before is not None and before.key != ""
        if not asked and not bound and not found.needs_dpop and not self._options.dpop:
            return None
        algorithms = found.server.dpop_signing_alg_values_supported
        if algorithms and "ES256" not in algorithms:
            raise AuthorizationFailed(f"{found.issuer} binds tokens to keys of {', '.join(algorithms)} and not ES256")
        if self._proof_key is not None and before is not None:
            return self._proof_key
        return ProofKey(make_key("ES256"))

    # -- renewal

    async def _renewed(self, login: Login) -> bool:
        """Replace a token by a newer one, ours or somebody else's; False where it takes a login."""
        name = self._name(login)
        async with self._store.lock(name):
            await self._keep_late(name)
            document = await asyncio.to_thread(self._store.read, name)
            stored = self._understood(document)
            if document is None or stored is None or stored.needs_login:
                return False
            if stored.token.access != login.token.access and not stored.token.is_stale(self._clock()):
                self._adopt(stored)
                return True
            if not self._grant.renews:
                await self._obtain_another(stored)
                return True
            if not stored.token.refresh:
                return False
            return await _to_its_end(self._renew(name, document, stored))

    async def _renew(self, name: str, document: dict[str, Any], stored: Login) -> bool:
        try:
            token = await self._ask_again(stored)
        except TokenRefused as refusal:
            logger.info("%s does not renew the token for %s: %s", stored.issuer, self.url, refusal.error)
            newest = await asyncio.to_thread(self._read, name)
            if newest is not None and newest.token.refresh != stored.token.refresh:
                self._adopt(newest)
                return True
            marked = structs.replace(stored, needs_login=True)
            await asyncio.to_thread(self._store.replace, name, document, msgspec.to_builtins(marked))
            return False
        # Some keep what renews a token for good, and say nothing of it (RFC 6749 §6).
        token = structs.replace(token, refresh=token.refresh or stored.token.refresh)
        login = structs.replace(stored, token=token)
        try:
            login = await self._put(name, document, login)
        except TokenUnavailable as reason:
            # It is the only one that can be renewed: it is used, and kept as soon as that can be.
            logger.warning("a renewed login for %s is not kept yet: %s", self.url, reason)
            self._unkept = (document, login)
        self._adopt(login)
        self._renewed_at = self._clock()
        # However short its life is, it is shown once before the next is asked for.
        self._rests_until = self._renewed_at + AT_LEAST
        return True

    async def _put(self, name: str, document: dict[str, Any], login: Login) -> Login:
        """Keep a renewed login in place of the document it was made of; where another has a newer one, return that."""
        before = document
        for pause in (*PAUSES, 0.0):
            try:
                if await asyncio.to_thread(self._store.replace, name, before, msgspec.to_builtins(login)):
                    return login
                found = await asyncio.to_thread(self._store.read, name)
                newest = self._understood(found)
                if found is None or newest is None:
                    # Somebody has logged out.
                    return login
                if found["token"].get("refresh") != document["token"].get("refresh"):
                    return newest
                # It was only marked.
                before = found
            except TokenUnavailable:
                if not pause:
                    raise
                await asyncio.sleep(pause)
        return login

    async def _keep_late(self, name: str) -> None:
        """Keep a renewed login that could not be kept when it came."""
        if self._unkept is not None:
            document, login = self._unkept
            await self._put(name, document, login)
            self._unkept = None

    async def _ask_again(self, login: Login) -> Token:
        """Ask for a newer token; one who does not answer is asked a few times (network errors are no refusal)."""
        server = await self._server(login.issuer)
        endpoint = self._grant.endpoint(server, login.client, self._bound(login))
        fields = {"grant_type": "refresh_token", "refresh_token": login.token.refresh}
        if self._options.resource_parameter:
            fields["resource"] = login.resource
        elif login.token.scopes:
            # Without a resource the scopes alone say what the token is for.
            fields["scope"] = " ".join(login.token.scopes)
        for pause in PAUSES:
            try:
                return await endpoint.ask(fields, login.token.scopes)
            except TokenUnavailable as failure:
                logger.info("a token for %s is not renewed yet: %s", self.url, failure)
                await asyncio.sleep(pause)
        return await endpoint.ask(fields, login.token.scopes)

    async def _obtain_another(self, login: Login) -> None:
        """Get a token in the way the last one was got: there is nobody to ask."""
        found = Discovered(login.resource, await self._server(login.issuer))
        resource = login.resource if self._options.resource_parameter else ""
        wanted = Wanted(self.url, found, login.requested, resource, self._bound(login))
        granted = await self._grant.obtain(wanted)
        again = structs.replace(login, token=granted.token, client=granted.client)
        await asyncio.to_thread(self._save, again)
        self._adopt(again)

    async def _server(self, issuer: str) -> ServerMetadata:
        """Return the metadata of an authorization server, from an hour ago at most."""
        read = self._servers.get(issuer)
        if read is not None and self._clock() - read[0] < METADATA_LIFE:
            return read[1]
        found = await self._new_discovery().find(None, (issuer,))
        if found.issuer != issuer:
            raise TokenRefused(f"the tokens of {self.url} are issued by {found.issuer} now", "moved")
        self._servers = {issuer: (self._clock(), found.server)}
        return found.server

    def _bound(self, login: Login) -> ProofKey | None:
        """Return the key of a login."""
        if not login.key:
            return None
        if self._proof_key is not None and self.login is not None and self.login.key == login.key:
            return self._proof_key
        return ProofKey(load_private(login.key))

    # -- what is kept

    def _adopt(self, login: Login | None, proof_key: ProofKey | None = None) -> None:
        """Go on with a login, or with none."""
        key = None
        if login is not None:
            key = proof_key or self._bound(login)
        self.login = login
        self._proof_key = key
        self._number += 1
        self._rests_until = 0.0
        self._lines = b""
        if login is not None:
            self._lines = f"authorization: {login.token.kind} {login.token.access}\r\n".encode("ascii")

    def _name(self, login: Login) -> str:
        parts = [login.issuer, login.client.id, login.resource, self._options.user]
        return "token " + sha256(msgspec.json.encode(parts)).hexdigest()

    @property
    def _entry(self) -> str:
        return f"{self.url} {self._options.user}".strip()

    def _load(self) -> Login | None:
        entry = (self._store.read(SERVERS) or {}).get(self._entry)
        if not isinstance(entry, dict) or not isinstance(entry.get("token"), str):
            return None
        if self._options.issuer is not None and entry.get("issuer") != self._options.issuer:
            return None
        login = self._read(entry["token"])
        if login is None or login.needs_login:
            return None
        return login

    def _read(self, name: str) -> Login | None:
        return self._understood(self._store.read(name))

    def _understood(self, document: dict[str, Any] | None) -> Login | None:
        if document is None:
            return None
        try:
            return msgspec.convert(document, Login)
        except msgspec.ValidationError:
            logger.warning("a stored login for %s cannot be read, and is not used", self.url)
            return None

    def _write(self, name: str, login: Login) -> None:
        self._store.write(name, msgspec.to_builtins(login))

    def _save(self, login: Login) -> None:
        name = self._name(login)
        self._write(name, login)
        entry = {"token": name, "issuer": login.issuer, "resource": login.resource}
        self._store.change(SERVERS, lambda servers: servers.update({self._entry: entry}))

    async def stored(self) -> Login | None:
        """Return the login that is stored for the server."""
        return await asyncio.to_thread(self._load)

    async def revoke(self) -> bool:
        """Ask the authorization server to end the stored login; False where it cannot be asked, or does not."""
        login = await self.stored()
        if login is None:
            return False
        try:
            endpoint = self._grant.endpoint(await self._server(login.issuer), login.client, self._bound(login))
            return await endpoint.revoke(login.token.refresh or login.token.access)
        except AuthorizationFailed as reason:
            logger.info("the login at %s is not revoked: %s", login.issuer, reason)
            return False

    async def forget(self) -> bool:
        """Forget the login of this server here; False where there was none."""
        entry = (await asyncio.to_thread(self._store.read, SERVERS) or {}).get(self._entry)
        if not isinstance(entry, dict):
            return False
        name = str(entry.get("token", ""))
        await asyncio.to_thread(self._store.remove, name)
        await asyncio.to_thread(self._store.change, SERVERS, lambda servers: servers.pop(self._entry, None))
        self._adopt(None)
        return True


def _chosen(challenges: list[Challenge]) -> Challenge | None:
    """Return the challenge to answer: the first that asks for a token."""
    for challenge in challenges:
        if challenge.is_scheme("bearer") or challenge.is_scheme(DPOP):
            return challenge
    return None
