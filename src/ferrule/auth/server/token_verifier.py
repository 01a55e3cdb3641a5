"""Finds out who sent a request by the token it shows: what every kind of token has in common.

Rule 1: no failure names anybody. A request is let in as the principal of a token that was checked, or it is refused.
Rule 2: what is cheap comes first: the header, what is known of the token, the limit of bad tokens; only then the check.
Rule 3: a token that is bound to a key or a certificate counts only with the proof of it, for each request anew.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import logging
import math
import re
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from msgspec import Struct

from ferrule.auth.dpop import USED_BEFORE, BadProof, ClusterProofs, NonceNeeded, Nonces, Proof, ProofChecker
from ferrule.auth.jose import BadToken
from ferrule.auth.server.certificates import CertificateProof, require_certificate
from ferrule.auth.server.resource import ProtectedResource
from ferrule.auth.server.settings import ResourceSettings
from ferrule.auth.server.token_cache import GOOD_FOR, FailureLimit, KnownToken, TokenCache, digest
from ferrule.auth.server.trusted_proxies import TrustedProxies
from ferrule.errors import Busy, FerruleError, Refusal, Unauthorized
from ferrule.identity.principal import Principal
from ferrule.identity.verifier import Anonymous, RequestFacts, UsedOnce, Verdict, Verifier, certified
from ferrule.transports.http.routes.custom import CustomRoute

logger = logging.getLogger("ferrule.auth")

MOST_CHECKS = 1_000
"""Tokens that are being checked at once, where that takes a while."""
HOLD = 0.25
"""Seconds for which an address that has shown too many bad tokens waits for its refusal: it cannot try faster then."""
MOST_HELD = 1_000
COMPLAIN_EVERY = 10.0
"""Seconds between two log records of what keeps callers out."""
MOST_NOTED = 20
"""Scopes of one token in a log record."""
LONGEST_NOTED = 40
"""Characters of a client in it; those of a proxy's clients say all of them."""
CARRIERS_WITHOUT_HEADERS = ("tcp", "unix")
LONGEST_HEADER = 8 * 1024
BEARER = "bearer"
DPOP = "dpop"
SCHEMES = frozenset({BEARER, DPOP})

TOKEN_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/"
_IN_QUERY = re.compile(r"[?&]access_token=", re.IGNORECASE)


class CannotCheck(FerruleError):
    """Whether a token is good cannot be found out now."""


class Malformed(FerruleError):
    """The request shows a token in a way it may not be shown."""


class Credentials(Struct, frozen=True):
    """A token, and how it was shown."""

    scheme: str
    """`bearer` or `dpop`."""
    token: str

    def __repr__(self) -> str:
        return f"Credentials({self.scheme!r})"


def is_token(text: str) -> bool:
    """Return whether a text can be a token at all (RFC 6750 §2.1)."""
    body = text.rstrip("=")
    # What is not ASCII becomes a `?`, which no token has.
    return body != "" and not body.encode("ascii", "replace").translate(None, TOKEN_CHARACTERS)


def read_credentials(facts: RequestFacts) -> Credentials | None:
    """Return the token of a request, None where it shows none; raises Malformed."""
    if "?" in facts.url and _IN_QUERY.search(facts.url):
        # MCP basic/authorization, Access Token Usage: tokens are never in the query.
        raise Malformed("a token in the URL is not taken: send it in the header Authorization")
    header = facts.headers.get("authorization", "")
    if not header:
        return None
    if len(header) > LONGEST_HEADER:
        raise Malformed(f"the header Authorization is longer than {LONGEST_HEADER} characters")
    scheme, _, token = header.partition(" ")
    scheme = scheme.lower()
    if scheme not in SCHEMES:
        return None
    token = token.strip(" ")
    # Several headers come joined with a comma, which no token has.
    if not is_token(token):
        raise Malformed("the header Authorization must be one scheme and one token")
    return Credentials(scheme, token)


class ShownToken(Struct, frozen=True):
    """A token, and what it was read from: it is read anew where any of that is another."""

    headers: Mapping[str, str]
    url: str
    resource: str
    credentials: Credentials
    digest: bytes
    """What it is remembered by."""


class TokenVerifier(Verifier):
    """Lets in who shows a good token."""

    keep = 1.0
    timeout = 5.0
    takes_token = True
    keep_good = GOOD_FOR
    """For how many seconds a checked token is not checked again, at most."""

    def __init__(
        self,
        settings: ResourceSettings,
        *,
        issuers: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.resource = ProtectedResource(settings, issuers)
        self.clock = clock
        self.cache = TokenCache()
        self.failures = FailureLimit()
        nonces = Nonces() if settings.dpop_nonce else None
        self._proofs = ProofChecker(nonces=nonces)
        self._shared: ClusterProofs | None = None
        """The proofs that other processes have seen; None where there are none."""
        self.proxies = TrustedProxies(settings.trusted_proxies)
        self._certificates = CertificateProof(settings.certificate_header, self.proxies)
        self._needs_proof = settings.dpop == "required"
        self._checks: dict[bytes, asyncio.Task[KnownToken]] = {}
        self._held = 0
        """How many wait for their refusal."""
        self._complained = -math.inf
        """When the log was last told that callers cannot be let in."""

    @abstractmethod
    def check(self, token: str, now: float, resource: str) -> KnownToken | Awaitable[KnownToken]:
        """Return what a token says, now or later; raises BadToken, or CannotCheck where nobody can tell."""

    def share_keys(self, keys: Sequence[bytes | str]) -> None:
        """Make nonces that the other processes of the server take."""
        if self._proofs.nonces is not None:
            self._proofs.nonces.share(keys)

    def share_seen(self, seen: UsedOnce) -> None:
        """Let a proof count once over all processes of the server."""
        self._shared = ClusterProofs(seen)

    def routes(self, path: str) -> Sequence[CustomRoute]:
        """Return the metadata of the resource, for an endpoint that is mounted at a path."""
        return self.resource.routes(path)

    def demand(self, scopes: Sequence[str], headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the challenge that tells a caller which scopes it needs."""
        dpop = headers.get("authorization", "").lower().startswith("dpop ")
        # All that the operation needs, so that one more login is enough (MCP basic/authorization, Scope Challenge).
        needed = list(dict.fromkeys([*self.resource.scopes, *scopes]))
        return self.resource.challenge(self.resource.by_headers(headers), "insufficient_scope", needed, dpop=dpop)

    async def close(self) -> None:
        """End the checks that run."""
        running = list(self._checks.values())
        self._checks.clear()
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    # -- one request

    def verify(self, facts: RequestFacts) -> Verdict | Awaitable[Verdict]:
        """Return the principal of the token a request shows, or why it is refused."""
        resource = self.resource.of(facts)
        if not resource and facts.transport not in CARRIERS_WITHOUT_HEADERS:
            self._complain(
                "no caller is let in: %s", "this server has not been told its URL, set resource=…", self.clock()
            )
            return Refusal("Unavailable: this server has not been told its URL", status=503)
        read = facts.notes.get(self)
        # A verifier around this one may replace the headers, as with the token a cookie stands for, or ask for another
        # resource; the notes stay.
        if read is None or read.headers is not facts.headers or read.url is not facts.url or read.resource != resource:
            try:
                credentials = read_credentials(facts)
            except Malformed as reason:
                return self.resource.malformed(resource, str(reason))
            if credentials is None:
                return self._without_token(facts, resource)
            key = digest(credentials.token, "" if self.resource.settings.resource else resource)
            read = facts.notes[self] = ShownToken(facts.headers, facts.url, resource, credentials, key)
        shown = read.credentials
        token = read.digest
        now = self.clock()
        known = self.cache.find(token, now)
        if known is None:
            return self._examine(facts, shown, token, resource, now)
        if isinstance(known, KnownToken):
            return self._judge(facts, shown, known, resource, now)
        return self.resource.invalid(resource, known.why, dpop=shown.scheme == DPOP)

    def _examine(
        self, facts: RequestFacts, shown: Credentials, token: bytes, resource: str, now: float
    ) -> Verdict | Awaitable[Verdict]:
        """Judge a request whose token is not known."""
        running = self._checks.get(token)
        if running is not None:
            return self._wait(running, facts, shown, token, resource)
        sender = self.proxies.sender(facts)
        if self.failures.is_reached(sender, now):
            return self._too_many()
        try:
            found = self.check(shown.token, now, resource)
            if not isinstance(found, KnownToken):
                running = self._begin(token, found, sender)
                return self._wait(running, facts, shown, token, resource)
        except (BadToken, CannotCheck) as reason:
            return self._refused(facts, shown, token, reason, resource, now)
        if found.until > now:
            self.cache.keep(token, found)
        if found.principal.scopes:
            self._note_scopes(found.principal)
        return self._judge(facts, shown, found, resource, now)

    def _too_many(self) -> Refusal | Awaitable[Refusal]:
        """Return the refusal of whoever shows too many bad tokens: it has to wait for it, as far as there is room."""
        refusal = Refusal("Too many bad tokens came from your address", status=429, headers={"Retry-After": "1"})
        if self._held >= MOST_HELD:
            return refusal
        return self._hold(refusal)

    async def _hold(self, refusal: Refusal) -> Refusal:
        self._held += 1
        try:
            await asyncio.sleep(HOLD)
        finally:
            self._held -= 1
        return refusal

    def _begin(self, token: bytes, found: Awaitable[KnownToken], sender: str) -> asyncio.Task[KnownToken]:
        """Go on with a check that takes a while, once for all who show the token."""
        if len(self._checks) >= MOST_CHECKS:
            if inspect.iscoroutine(found):
                found.close()
            raise CannotCheck("too many tokens are being checked")

        async def finish() -> KnownToken:
            return await found

        task = asyncio.get_running_loop().create_task(finish(), name="check a token")
        self._checks[token] = task
        self.failures.begin(sender)
        task.add_done_callback(lambda ended: self._ended(token, sender, ended))
        return task

    def _ended(self, token: bytes, sender: str, task: asyncio.Task[KnownToken]) -> None:
        self._checks.pop(token, None)
        self.failures.end(sender)
        if not task.cancelled() and task.exception() is None:
            known = task.result()
            self.cache.keep(token, known)
            self._note_scopes(known.principal)

    def _note_scopes(self, principal: Principal) -> None:
        """Log that a token says more than every caller's does."""
        more = principal.scopes.difference(self.resource.scopes)
        if more:
            shown = " ".join(sorted(more)[:MOST_NOTED])
            client = principal.client[:LONGEST_NOTED]
            logger.info("%s has more scopes than all need, with the client %s: %s", principal, client, shown)

    async def _wait(
        self,
        running: asyncio.Task[KnownToken],
        facts: RequestFacts,
        shown: Credentials,
        token: bytes,
        resource: str,
    ) -> Verdict:
        # Whoever leaves does not take the check away from the others.
        await asyncio.wait([running])
        now = self.clock()
        if running.cancelled():
            return self._refused(facts, shown, token, CannotCheck("the server is stopping"), resource, now)
        error = running.exception()
        if error is None:
            verdict = self._judge(facts, shown, running.result(), resource, now)
            if isinstance(verdict, Verdict):
                return verdict
            return await verdict
        if not isinstance(error, BadToken | CannotCheck):
            raise error
        return self._refused(facts, shown, token, error, resource, now)

    def _without_token(self, facts: RequestFacts, resource: str) -> Verdict:
        if facts.certificate is not None and facts.transport in CARRIERS_WITHOUT_HEADERS:
            # Whoever listens there has asked for certificates, and TLS has checked this one.
            verdict = certified(facts.certificate)
            if isinstance(verdict, Anonymous):
                return self.resource.missing(resource)
            needed = self.resource.scopes
            if needed and not verdict.scopes.issuperset(needed):
                return self.resource.insufficient(resource, needed)
            return verdict
        return self.resource.missing(resource)

    def _refused(
        self, facts: RequestFacts, shown: Credentials, token: bytes, reason: Exception, resource: str, now: float
    ) -> Refusal:
        if isinstance(reason, CannotCheck):
            # Not 401: every client would log in again, and again (fail closed, but say why).
            self._complain("a token could not be checked: %s", reason, now)
            return Refusal("Unavailable: tokens cannot be checked now", status=503, headers={"Retry-After": "2"})
        self.failures.count(self.proxies.sender(facts), now)
        self.cache.keep_bad(token, str(reason), now)
        return self.resource.invalid(resource, str(reason), dpop=shown.scheme == DPOP)

    def _complain(self, text: str, reason: object, now: float) -> None:
        """Log what keeps callers out, now and then: each of them comes again and again."""
        if now - self._complained >= COMPLAIN_EVERY:
            self._complained = now
            logger.error(text, reason)

    def _judge(
        self, facts: RequestFacts, shown: Credentials, known: KnownToken, resource: str, now: float
    ) -> Verdict | Awaitable[Verdict]:
        """Judge what belongs to the request, and not to the token alone."""
        principal = known.principal
        dpop = shown.scheme == DPOP
        proof = None
        expires = principal.expires
        if expires is not None and now >= expires:
            return self.resource.invalid(resource, "the token has expired", dpop=dpop)
        if dpop or principal.confirmation or self._needs_proof:
            try:
                proof = self._confirm(facts, shown, principal, now)
            except NonceNeeded as reason:
                return self._with_nonce(self.resource.challenge(resource, "use_dpop_nonce", dpop=True), reason, now)
            except BadProof as reason:
                return self._bad_proof(facts, resource, reason, now)
            except BadToken as reason:
                self.failures.count(self.proxies.sender(facts), now)
                return self.resource.invalid(resource, str(reason), dpop=dpop or self._needs_proof)
        needed = self.resource.scopes
        if needed and not principal.scopes.issuperset(needed):
            return self.resource.insufficient(resource, needed, dpop=dpop)
        if proof is None or self._shared is None:
            return principal
        return self._note(self._shared, proof, principal, facts, resource, now)

    async def _note(
        self,
        shared: ClusterProofs,
        proof: Proof,
        principal: Principal,
        facts: RequestFacts,
        resource: str,
        now: float,
    ) -> Verdict:
        """Let in who shows a proof that no other process has seen."""
        try:
            first = await shared.add(proof, now)
        except Busy:
            # As in a process of its own: what cannot be noted does not count.
            return Refusal("Unavailable: no more proofs can be noted now", status=503, headers={"Retry-After": "2"})
        if first:
            return principal
        return self._bad_proof(facts, resource, BadProof(USED_BEFORE), now)

    def _bad_proof(self, facts: RequestFacts, resource: str, reason: BadProof, now: float) -> Refusal:
        self.failures.count(self.proxies.sender(facts), now)
        headers = self.resource.challenge(resource, "invalid_dpop_proof", dpop=True)
        return self._with_nonce(headers, reason, now)

    def _with_nonce(self, headers: Mapping[str, str], reason: Exception, now: float) -> Refusal:
        more = {}
        if self._proofs.nonces is not None:
            more["DPoP-Nonce"] = self._proofs.nonces.newest(now)
        return Unauthorized(f"Unauthorized: {reason}", headers={**headers, **more})

    def _confirm(self, facts: RequestFacts, shown: Credentials, principal: Principal, now: float) -> Proof | None:
        """Return the proof that a token needs, checked, None where it needs none; raises BadToken."""
        proof = None
        confirmation = principal.confirmation
        if "x5t#S256" in confirmation:
            require_certificate(confirmation["x5t#S256"], self._certificates.of(facts))
        bound = "jkt" in confirmation
        if shown.scheme == DPOP and not bound:
            raise BadToken("the token is bound to no key, so it is not a DPoP token")
        if bound and shown.scheme != DPOP:
            raise BadToken("the token is bound to a key: show it as DPoP, with a proof")
        if bound and not facts.proven:
            proof = self._proofs.examine(
                facts.headers.get("dpop", ""),
                method=facts.method,
                url=self.resource.url_of(facts),
                now=now,
                token=shown.token,
            )
            said = str(confirmation["jkt"])
            if not hmac.compare_digest(said.encode("utf-8", "replace"), proof.thumbprint.encode()):
                raise BadToken("the token is bound to another key")
        elif self._needs_proof and not bound:
            raise BadToken("only tokens that are bound to a key are taken: use DPoP")
        return proof
