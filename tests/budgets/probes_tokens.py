"""Probes of what callers show of themselves: tokens, proofs and certificates, and the traces they belong to."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from typing import Any
from unittest import mock
from urllib.parse import quote

from table import period, probe

from ferrule.auth import dpop
from ferrule.auth.dpop import BadProof, ProofChecker, SeenProofs, make_proof
from ferrule.auth.jose import BadToken, make_key, secret_key, sign
from ferrule.auth.server import jwt, token_verifier
from ferrule.auth.server.certificates import CertificateProof
from ferrule.auth.server.jwt import JWT
from ferrule.auth.server.settings import ResourceSettings
from ferrule.auth.server.token_cache import KnownToken, TokenCache
from ferrule.auth.server.token_verifier import Malformed, TokenVerifier, read_credentials
from ferrule.auth.server.trusted_proxies import TrustedProxies
from ferrule.errors import Refusal
from ferrule.identity.principal import Principal
from ferrule.identity.verifier import RequestFacts
from ferrule.telemetry.trace_context import trace_of

HERE = "https://here/mcp"
SECRET = "s" * 32
KNOWN = KnownToken(Principal(issuer="i", subject="s"), 10.0**9)


def facts(**headers: str) -> RequestFacts:
    return RequestFacts(transport="http", method="POST", url=HERE, address="192.0.2.1", headers=headers)


@probe("ferrule.auth.server.token_verifier.LONGEST_HEADER")
async def an_authorization(limit: int, size: int) -> bool:
    try:
        return read_credentials(facts(authorization="Bearer ".ljust(size, "x"))) is not None
    except Malformed:
        return False


class Slow(TokenVerifier):
    """Takes for ever to check a token."""

    async def check(self, token: str, now: float, resource: str) -> KnownToken:  # type: ignore[override]
        await asyncio.Event().wait()
        return KNOWN


async def all_wait(verifier: TokenVerifier, count: int) -> bool:
    """Return whether so many callers, each with a token of its own, all wait for their verdict."""
    waiting: list[asyncio.Future[Any]] = []
    for number in range(count):
        verdict = verifier.verify(facts(authorization=f"Bearer {number}"))
        if isinstance(verdict, Refusal):
            break
        waiting.append(asyncio.ensure_future(verdict))  # type: ignore[arg-type]
        await asyncio.sleep(0)
    await verifier.close()
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return len(waiting) == count


@probe("ferrule.auth.server.token_verifier.MOST_CHECKS", lowered=5)
async def checks(limit: int, size: int) -> bool:
    with mock.patch.object(token_verifier, "MOST_CHECKS", limit):
        return await all_wait(Slow(ResourceSettings(resource=HERE)), size)


@probe("ferrule.auth.server.token_verifier.MOST_HELD", lowered=5)
async def held_back(limit: int, size: int) -> bool:
    """Callers of an address that has shown too many bad tokens."""
    verifier = Slow(ResourceSettings(resource=HERE), clock=lambda: 1.0)
    for _ in range(100):
        verifier.failures.count("192.0.2.1", 1.0)
    with mock.patch.object(token_verifier, "MOST_HELD", limit):
        return await all_wait(verifier, size)


@probe("ferrule.auth.server.token_cache.MOST_GOOD", lowered=10, clamps=True)
async def good_tokens(limit: int, size: int) -> bool:
    cache = TokenCache(most_good=limit)
    for number in range(size):
        cache.keep(b"%d" % number, KNOWN)
    return len(cache) == size


@probe("ferrule.auth.server.token_cache.MOST_BAD", lowered=10, clamps=True)
async def bad_tokens(limit: int, size: int) -> bool:
    cache = TokenCache(most_bad=limit)
    for number in range(size):
        cache.keep_bad(b"%d" % number, "bad", 0.0)
    return cache.find(b"0", 1.0) is not None


@period("ferrule.auth.server.token_cache.BAD_FOR")
async def a_bad_token(lasts: float, seconds: float) -> bool:
    cache = TokenCache()
    cache.keep_bad(b"t", "bad", 0.0)
    return cache.find(b"t", seconds) is not None


def verifier() -> JWT:
    return JWT("https://issuer", secret=SECRET, algorithms=["HS256"], resource=HERE, clock=lambda: 0.0)


def token(header: dict[str, Any] | None = None, **claims: Any) -> str:
    said = {"iss": "https://issuer", "aud": HERE, "exp": 10**9, "sub": "ada", **claims}
    return sign(header or {}, said, secret_key(SECRET.encode()), "HS256")


def names_somebody(written: str) -> bool:
    try:
        verifier().check(written, 0.0, HERE)
    except BadToken:
        return False
    return True


@period("ferrule.auth.server.token_cache.GOOD_FOR")
async def a_good_token(lasts: float, seconds: float) -> bool:
    checked = verifier()
    checked.verify(facts(authorization=f"Bearer {token()}"))
    return len(checked.cache) == 1 and any(seconds < known.until for known in checked.cache._good.values())


def refusal(written: str, of: JWT) -> str:
    """Return why a token is refused that names a key nobody knows."""
    try:
        of.check(written, 0.0, HERE)
    except BadToken as reason:
        return str(reason)
    return ""


@probe("ferrule.auth.server.jwt.LONGEST_KEY_ID")
async def the_name_of_a_key(limit: int, size: int) -> bool:
    written = urlsafe_b64encode(b'{"alg":"HS256","kid":"%b"}' % (b"k" * size)).rstrip(b"=").decode()
    return "nobody knows" in refusal(f"{written}.{token().partition('.')[2]}", verifier())


@probe("ferrule.auth.server.jwt.MOST_HEADERS", lowered=10, clamps=True)
async def headers_of_tokens(limit: int, size: int) -> bool:
    checked = verifier()
    with mock.patch.object(jwt, "MOST_HEADERS", limit):
        for number in range(min(size, 3 * limit)):
            assert "nobody knows" in refusal(token({"kid": str(number)}), checked)
    return len(checked._headers) == size


@probe("ferrule.auth.server.claims.LONGEST_NAME")
async def the_name_of_a_subject(limit: int, size: int) -> bool:
    taken = {names_somebody(token(sub="s" * size)), names_somebody(token(client_id="c" * size))}
    assert len(taken) == 1
    return taken.pop()


@probe("ferrule.auth.server.claims.MOST_AUDIENCES")
async def audiences(limit: int, size: int) -> bool:
    return names_somebody(token(aud=[HERE] * size))


@probe("ferrule.auth.dpop.LONGEST_PROOF")
async def a_long_proof(limit: int, size: int) -> bool:
    """It is no good either way: is it looked at?"""
    try:
        ProofChecker().check("a.b.".ljust(size, "c"), method="POST", url=HERE, now=0.0)
    except BadToken as reason:
        return "comes twice" not in str(reason)
    return True


def proves(now: float = 0.0, identity: str = "") -> bool:
    """Return whether a proof is taken at that time that was made at second 0."""
    with mock.patch.object(dpop.secrets, "token_urlsafe", return_value=identity or "i"):
        proof = make_proof(make_key(), "POST", HERE, now=0.0)
    try:
        ProofChecker().check(proof, method="POST", url=HERE, now=now)
    except BadProof:
        return False
    return True


@probe("ferrule.auth.dpop.LONGEST_ID")
async def the_id_of_a_proof(limit: int, size: int) -> bool:
    return proves(identity="i" * size)


@period("ferrule.auth.dpop.MAX_AGE")
async def an_old_proof(lasts: float, seconds: float) -> bool:
    return proves(seconds)


@probe("ferrule.auth.dpop.MOST_SEEN", lowered=10)
async def seen_proofs(limit: int, size: int) -> bool:
    seen = SeenProofs(limit)
    return all(seen.add(b"%d" % number, 60.0, 0.0) for number in range(size))


@probe("ferrule.auth.server.certificates.LONGEST_CERTIFICATE")
async def a_certificate_in_a_header(limit: int, size: int) -> bool:
    begin, end = "-----BEGIN CERTIFICATE-----\n", "\n-----END CERTIFICATE-----"
    shown = quote(begin + "AAAA" + end)
    proof = CertificateProof("x-cert", TrustedProxies(["192.0.2.0/24"]))
    return proof.of(facts(**{"x-cert": shown + " " * (size - len(shown))})) is not None


@probe("ferrule.auth.server.trusted_proxies.MOST_HOPS", clamps=True)
async def proxies(limit: int, size: int) -> bool:
    """The caller is the first address, and proxies that are trusted have added the others."""
    hops = ["198.51.100.1", *["192.0.2.7"] * (size - 1)]
    return TrustedProxies(["192.0.2.0/24"]).sender(facts(**{"x-forwarded-for": ", ".join(hops)})) == hops[0]


PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


@probe("ferrule.telemetry.trace_context.MAX_TRACEPARENT")
async def a_traceparent(limit: int, size: int) -> bool:
    return trace_of(PARENT.ljust(size)).traceparent == PARENT


@probe("ferrule.telemetry.trace_context.MAX_TRACESTATE")
async def a_tracestate(limit: int, size: int) -> bool:
    return trace_of(PARENT, "a=b".ljust(size)).tracestate == "a=b"


@probe("ferrule.telemetry.trace_context.MAX_STATES")
async def members_of_a_tracestate(limit: int, size: int) -> bool:
    return trace_of(PARENT, ",".join(["a=b"] * size)).tracestate != ""


@probe("ferrule.telemetry.trace_context.MAX_BAGGAGE")
async def baggage(limit: int, size: int) -> bool:
    return trace_of(PARENT, "", "a=".ljust(size, "x")).baggage != ""


@probe("ferrule.telemetry.trace_context.MAX_ITEMS")
async def members_of_a_baggage(limit: int, size: int) -> bool:
    return trace_of(PARENT, "", ",".join(["a=b"] * size)).baggage != ""
