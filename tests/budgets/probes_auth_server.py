"""Probes of what servers and clients read of authorization: keys, challenges, addresses, and what is fetched."""

from __future__ import annotations

import asyncio
import inspect
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

from lasting import lasts_longer
from table import period, probe

from ferrule.auth import scopes
from ferrule.auth.address import AddressRefused, AddressRules
from ferrule.auth.challenge import read_challenges
from ferrule.auth.dpop import ClusterProofs
from ferrule.auth.fetch import Fetched, Fetcher, FetchFailed
from ferrule.auth.jose import BadToken, _check_rsa, make_key, read_key, split_token
from ferrule.auth.scopes import ScopeHierarchy
from ferrule.auth.server import resource
from ferrule.auth.server.introspection import Introspection
from ferrule.auth.server.jwt import JWT, fetcher_for
from ferrule.auth.server.keys import FetchedKeys, KeySet, freshness, read_keys
from ferrule.auth.server.resource import ProtectedResource
from ferrule.auth.server.settings import ResourceSettings, TokenSettings
from ferrule.auth.server.token_cache import FailureLimit
from ferrule.identity.verifier import RequestFacts

PIECE = bytes(64 * 1024)
KEYS_URL = "https://issuer.example/keys"
KEY = make_key().public()


async def never(*_: Any) -> Any:
    await asyncio.Event().wait()


# -- what is fetched


@asynccontextmanager
async def a_document(size: int) -> AsyncIterator[str]:
    """Serve a document of so many bytes on this machine, and give its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            # Without a length: nobody can tell from its head that it is too long.
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
            left = size
            while left and not writer.is_closing():
                piece = PIECE[:left]
                writer.write(piece)
                await writer.drain()
                left -= len(piece)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def fetches(fetcher: Fetcher, url: str, size: int) -> bool:
    try:
        return len((await fetcher.get(url)).body) == size
    except FetchFailed:
        return False


@probe("ferrule.auth.fetch.MAX_SIZE")
async def a_fetched_document(limit: int, size: int) -> bool:
    async with a_document(size) as url:
        return await fetches(Fetcher(AddressRules(loopback=True)), url, size)


@probe("ferrule.auth.server.keys.MAX_SIZE")
async def a_long_key_set(limit: int, size: int) -> bool:
    async with a_document(size) as url:
        return await fetches(fetcher_for(url, TokenSettings()), url, size)


@period("ferrule.auth.fetch.TIMEOUT")
async def a_slow_fetch(lasts: float, seconds: float) -> bool:
    return await lasts_longer(Fetcher(AddressRules(), resolve=never).get("https://slow.example/"), seconds)


class Redirecting(Fetcher):
    """Asks a server that redirects so often before it answers."""

    left = 0

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Fetched:
        self.left -= 1
        return Fetched(url, 302 if self.left >= 0 else 200, {"location": "/next"}, b"{}")


@probe("ferrule.auth.fetch.MAX_REDIRECTS")
async def redirects(limit: int, size: int) -> bool:
    fetcher = Redirecting(AddressRules())
    fetcher.left = size
    return await fetches(fetcher, "https://here.example/", 2)


def leads_somewhere(url: str) -> bool:
    try:
        AddressRules().judge_url(url)
    except AddressRefused:
        return False
    return True


@probe("ferrule.auth.address.LONGEST_URL")
async def a_url_to_fetch(limit: int, size: int) -> bool:
    return leads_somewhere("https://here.example/".ljust(size, "x"))


@probe("ferrule.auth.address.LONGEST_HOST")
async def a_host_to_ask(limit: int, size: int) -> bool:
    return leads_somewhere(f"https://{'h' * size}/")


# -- keys and tokens


@probe("ferrule.auth.server.keys.MOST_KEYS")
async def keys_of_a_set(limit: int, size: int) -> bool:
    try:
        return len(read_keys({"keys": [KEY] * size}).keys) == size
    except BadToken:
        return False


class FixedFetcher(Fetcher):
    """Gives the same answer to everything, or fails."""

    def __init__(self, answer: Fetched | None) -> None:
        super().__init__(AddressRules())
        self.answer = answer

    async def get(self, url: str, headers: Mapping[str, str] | None = None, *, redirects: int = 0) -> Fetched:
        if self.answer is None:
            raise FetchFailed("nobody answers")
        return self.answer


async def located() -> str:
    return KEYS_URL


def fetched_keys(answer: Fetched | None) -> FetchedKeys:
    """Return keys that are fetched by the clock of the loop."""
    clock = asyncio.get_running_loop().time
    return FetchedKeys(located, FixedFetcher(answer), on_dropped=lambda _: None, clock=clock)


@period("ferrule.auth.server.keys.FETCH_TIMEOUT")
async def keys_that_do_not_come(lasts: float, seconds: float) -> bool:
    fetcher = Fetcher(AddressRules(), timeout=1000 * lasts, resolve=never)
    keys = FetchedKeys(located, fetcher, on_dropped=lambda _: None)
    still = await lasts_longer(keys.look(), seconds)
    await keys.close()
    return still


@period("ferrule.auth.server.keys.UNKNOWN_PAUSE")
async def a_key_that_nobody_knows(lasts: float, seconds: float) -> bool:
    """After a fetch none follows for that time, whatever keys are named."""
    keys = fetched_keys(Fetched(KEYS_URL, 200, {}, b'{"keys": [%b]}' % _written(KEY)))
    await keys.look()
    await asyncio.sleep(seconds)
    return not keys.may_look()


@period("ferrule.auth.server.keys.FAILED_PAUSE")
async def keys_that_could_not_be_had(lasts: float, seconds: float) -> bool:
    keys = fetched_keys(None)
    with suppress(Exception):
        await keys.look()
    await asyncio.sleep(seconds)
    return not keys.may_look()


@probe("ferrule.auth.server.keys.LONGEST", clamps=True)
async def a_fresh_key_set(limit: int, size: int) -> bool:
    return freshness(Fetched(KEYS_URL, 200, {"cache-control": f"max-age={size}"}, b"")) == size


@period("ferrule.auth.server.keys.STALE_FOR")
async def an_old_key_set(lasts: float, seconds: float) -> bool:
    """It was fresh until now, and no other can be had."""
    key = read_key(KEY)
    keys = fetched_keys(None)
    keys._clock = lambda: 0.0
    keys._took(KeySet([key]), 0.0)
    keys._clock = lambda: seconds
    found = keys.find("", "ES256")
    await keys.close()
    return found == key


def _written(key: Mapping[str, Any]) -> bytes:
    return b"{%b}" % b",".join(f'"{name}":"{value}"'.encode() for name, value in key.items())


@probe("ferrule.auth.jose.LONGEST_HEADER")
async def the_header_of_a_token(limit: int, size: int) -> bool:
    try:
        return split_token(f"{'h' * size}.p.s")[0] != ""
    except BadToken:
        return False


@probe("ferrule.auth.jose.LARGEST_RSA")
async def an_rsa_key(limit: int, size: int) -> bool:
    modulus = (1 << (size - 1)) + 1
    written = urlsafe_b64encode(modulus.to_bytes((size + 7) // 8, "big")).rstrip(b"=").decode()
    try:
        read_key({"kty": "RSA", "n": written, "e": "AQAB"})
    except BadToken:
        return False
    return True


@probe("ferrule.auth.jose.LARGEST_EXPONENT")
async def the_exponent_of_an_rsa_key(limit: int, size: int) -> bool:
    """The limit is even and an exponent never is, so it is given to the check alone."""
    numbers = SimpleNamespace(e=size)
    try:
        _check_rsa(SimpleNamespace(key_size=2048, public_numbers=lambda: numbers))
    except BadToken:
        return False
    return True


# -- challenges and scopes


@probe("ferrule.auth.challenge.LONGEST")
async def a_challenge(limit: int, size: int) -> bool:
    return len(read_challenges('Bearer realm="'.ljust(size - 1, "r") + '"')) == 1


@probe("ferrule.auth.challenge.MOST_CHALLENGES", clamps=True)
async def challenges(limit: int, size: int) -> bool:
    return len(read_challenges(", ".join(["Bearer a=b"] * size))) == size


@probe("ferrule.auth.challenge.MOST_PARAMETERS", clamps=True)
async def parameters_of_a_challenge(limit: int, size: int) -> bool:
    said = ", ".join(f"p{number}=1" for number in range(size))
    return [len(each.parameters) for each in read_challenges(f"Bearer {said}")] == [size]


@probe("ferrule.auth.server.resource.MOST_CHALLENGES", lowered=10, clamps=True)
async def challenges_that_are_kept(limit: int, size: int) -> bool:
    protected = ProtectedResource(ResourceSettings(), ())
    with mock.patch.object(resource, "MOST_CHALLENGES", limit):
        for number in range(size):
            protected.challenge(f"http://h{number}.localhost/mcp")
    return len(protected._challenges) == size


@probe("ferrule.auth.server.resource.MOST_HOSTS", lowered=10, clamps=True)
async def names_of_a_loopback_server(limit: int, size: int) -> bool:
    protected = ProtectedResource(ResourceSettings(), ())
    with mock.patch.object(resource, "MOST_HOSTS", limit):
        for number in range(size):
            host = f"h{number}.localhost"
            facts = RequestFacts(
                transport="http",
                method="POST",
                url=f"http://{host}/at/mcp",
                address="127.0.0.1",
                headers={"host": host},
                root="/at",
            )
            assert protected.of(facts) == f"http://{host}/at/mcp"
    kept = {len(protected._loopback), len(protected._main), len(protected._mounted)}
    assert max(kept) <= limit
    return kept == {size}


@probe("ferrule.auth.scopes.MOST_REMEMBERED", lowered=10, clamps=True)
async def sets_of_scopes(limit: int, size: int) -> bool:
    hierarchy = ScopeHierarchy({"admin": ["read"]})
    with mock.patch.object(scopes, "MOST_REMEMBERED", limit):
        for number in range(size):
            assert "read" in hierarchy.expand(["admin", str(number)])
    return len(hierarchy._remembered) == size


# -- callers with bad tokens

BAD, OTHER = "192.0.2.1", "192.0.2.2"


@probe("FailureLimit(rate=…)", lowered=20)
async def bad_tokens_of_an_address(limit: int, size: int) -> bool:
    """Each is let through to be checked, the last of them too."""
    failures = FailureLimit(rate=limit)
    for _ in range(size - 1):
        failures.count(BAD, 0.0)
    assert not failures.is_reached(OTHER, 0.0)
    return not failures.is_reached(BAD, 0.0)


@probe("FailureLimit(most_addresses=…)", lowered=10, clamps=True)
async def addresses_with_bad_tokens(limit: int, size: int) -> bool:
    failures = FailureLimit(most_addresses=limit)
    for number in range(size):
        failures.count(f"10.0.{number // 256}.{number % 256}", 0.0)
    return len(failures._left) == size


@probe("ferrule.auth.server.token_cache.AT_ONCE")
async def checks_at_once_of_an_address(limit: int, size: int) -> bool:
    """One more bad token is what it may show."""
    failures = FailureLimit(rate=2.0)
    failures.count(BAD, 0.0)
    for _ in range(size - 1):
        failures.begin(BAD)
    return not failures.is_reached(BAD, 0.0)


@period("ferrule.auth.server.token_cache.WARY")
async def an_address_with_a_bad_token(lasts: float, seconds: float) -> bool:
    failures = FailureLimit(rate=1.0)
    failures.count(BAD, 0.0)
    for _ in range(100):
        failures.begin(BAD)
    return failures.is_reached(BAD, seconds)


@period("ferrule.auth.server.token_verifier.HOLD")
async def a_refusal_that_is_waited_for(lasts: float, seconds: float) -> bool:
    refusal = JWT("https://issuer", secret="s" * 32, resource="https://here/mcp")._too_many()
    assert inspect.isawaitable(refusal)
    return await lasts_longer(refusal, seconds)


class NoAnswer:
    """A store of proofs that never answers."""

    async def add(self, key: str, ttl: float) -> bool:
        await asyncio.Event().wait()
        return True


@period("ferrule.auth.dpop.PATIENCE")
async def a_store_of_proofs_that_is_silent(lasts: float, seconds: float) -> bool:
    proof = mock.Mock(digest=b"d", until=60.0)
    return await lasts_longer(ClusterProofs(NoAnswer()).add(proof, 0.0), seconds)


@period("ferrule.auth.server.introspection.KEEP")
async def a_token_that_was_called_active(lasts: float, seconds: float) -> bool:
    asked = Introspection("https://issuer.example/introspect", client=("id", "secret"), resource="https://here/mcp")
    said = {"active": True, "sub": "ada", "aud": "https://here/mcp", "exp": 10**9}
    return seconds < asked._read(said, 0.0, "https://here/mcp").until
