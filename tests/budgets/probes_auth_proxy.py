"""Probes of the OAuth proxy: what clients, browsers and the provider may send it, and what it holds for them."""

from __future__ import annotations

import asyncio
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import msgspec
from table import no_bound, period, probe

from ferrule.auth.address import AddressRules
from ferrule.auth.fetch import Fetched, Fetcher
from ferrule.auth.proxy import access_tokens, documents, grants, parameters, proxy
from ferrule.auth.proxy.access_tokens import AccessTokens
from ferrule.auth.proxy.browser import Browsers
from ferrule.auth.proxy.clients import Clients, ProxyClient, shown_name
from ferrule.auth.proxy.codes import CodeReplayed, Codes
from ferrule.auth.proxy.documents import ClientDocuments, _seconds_kept
from ferrule.auth.proxy.grants import Grant, Grants, Reused
from ferrule.auth.proxy.keys import Keys
from ferrule.auth.proxy.login import AuthorizationRequest, _key
from ferrule.auth.proxy.parameters import AddressRate, OAuthError, form_text, read_form, read_parameters
from ferrule.auth.proxy.profiles import Profile
from ferrule.auth.proxy.proxy import OAuthProxy
from ferrule.auth.proxy.token_endpoint import _read_basic
from ferrule.auth.proxy.upstream import Upstream, UpstreamRefused, UpstreamTokens, challenge_of
from ferrule.balancing.rate import Rate
from ferrule.errors import Busy
from ferrule.stores.memory import MemoryStore
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.routes.web import WebRequest

KEYS = Keys(["k" * 32])
HERE = "https://here.example/mcp"
BACK = "https://app.example/callback"
VERIFIER = "v" * 43
GRANT = Grant(id="g", client="c", subject="ada")


class Now:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def posted(body: bytes, **headers: str) -> WebRequest:
    lines = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return WebRequest(HttpRequest("POST", "/", "", lines, body, "192.0.2.1"), {})


def in_bytes(size: int) -> bytes:
    """Return a form of so many bytes, which has a fourth as many characters."""
    emoji, rest = divmod(size - 2, 4)
    return ("a=" + "\N{GRINNING FACE}" * emoji + "x" * rest).encode()


# -- requests


def is_read(text: str) -> bool:
    try:
        read_parameters(text)
    except OAuthError:
        return False
    return True


@probe("ferrule.auth.proxy.parameters.MAX_PARAMETERS")
async def parameters_of_a_request(limit: int, size: int) -> bool:
    return is_read("&".join(f"p{number}=1" for number in range(size)))


@probe("ferrule.auth.proxy.parameters.LONGEST_QUERY")
async def a_query(limit: int, size: int) -> bool:
    return is_read("a=".ljust(size, "x"))


@probe("ferrule.auth.proxy.parameters.LONGEST_FORM")
async def a_form_of_a_page(limit: int, size: int) -> bool:
    try:
        return form_text(in_bytes(size)) != ""
    except OAuthError:
        return False


@probe("ferrule.auth.proxy.parameters.LONGEST_POST")
async def a_form_of_a_client(limit: int, size: int) -> bool:
    try:
        return "a" in await read_form(posted(in_bytes(size), content_type=parameters.FORM))
    except OAuthError:
        return False


@probe("ferrule.auth.proxy.parameters.MAX_ADDRESSES", lowered=10, clamps=True)
async def addresses(limit: int, size: int) -> bool:
    rate = AddressRate(Rate.parse("10/min"))
    with mock.patch.object(parameters, "MAX_ADDRESSES", limit):
        for number in range(size):
            rate.require(f"10.0.{number // 256}.{number % 256}", 0.0)
    return len(rate._buckets) == size


@probe("ferrule.auth.proxy.token_endpoint.LONGEST_HEADER")
async def the_secret_of_a_client_in_a_header(limit: int, size: int) -> bool:
    try:
        return _read_basic("Basic " + b64encode(b"id:secret").decode().ljust(size)) == ("id", "secret")
    except OAuthError:
        return False


@probe("ferrule.auth.proxy.browser.MAX_COOKIES", clamps=True)
async def cookies(limit: int, size: int) -> bool:
    """Ours is the last of them."""
    browsers = Browsers(KEYS, MemoryStore(), secure=True)
    browser, cookie = browsers.introduce()
    others = "a=b; " * (size - 1)
    return browsers.identify(posted(b"", cookie=others + cookie.partition(";")[0])) == browser


@period("ferrule.auth.proxy.browser.LIFETIME")
async def a_consent(lasts: float, seconds: float) -> bool:
    now = Now()
    browsers = Browsers(KEYS, MemoryStore(now), secure=True)
    await browsers.remember_consent("b", "c", BACK, ("read",))
    now.seconds = seconds
    return await browsers.has_consented("b", "c", BACK, ("read",))


# -- clients


class AnyDocument(ClientDocuments):
    """Has the same document for every client."""

    def __init__(self) -> None:
        super().__init__(Fetcher(AddressRules()), AddressRate(Rate.parse("10/min")), Now())

    async def get(self, url: str, address: str) -> dict[str, Any]:
        return {"redirect_uris": [BACK]}


CLIENTS = Clients(KEYS, AnyDocument(), Now())


def registers(document: Mapping[str, Any], size: int = 0) -> bool:
    """Return whether a client is registered; the document is written with so many bytes."""
    try:
        CLIENTS.register(msgspec.json.encode(document).ljust(size))
    except OAuthError:
        return False
    return True


@probe("ferrule.auth.proxy.clients.MAX_REGISTRATION")
async def a_registration(limit: int, size: int) -> bool:
    return registers({"redirect_uris": [BACK]}, size)


@probe("ferrule.auth.proxy.clients.MAX_REDIRECTS")
async def redirect_uris(limit: int, size: int) -> bool:
    return registers({"redirect_uris": [BACK] * size})


@probe("ferrule.auth.proxy.clients.MAX_METADATA")
async def what_a_client_id_holds(limit: int, size: int) -> bool:
    rest = len(msgspec.json.encode(["n", [BACK], "none"])) - len(BACK)
    return registers({"client_name": "n", "redirect_uris": [BACK.ljust(size - rest, "x")]})


@probe("ferrule.auth.proxy.clients.LONGEST_NAME", clamps=True)
async def the_name_of_a_client(limit: int, size: int) -> bool:
    return shown_name("n" * size) == "n" * size


@probe("ferrule.auth.proxy.clients.LONGEST_ID")
async def the_id_of_a_client(limit: int, size: int) -> bool:
    try:
        await CLIENTS.find("https://app.example/".ljust(size, "x"))
    except OAuthError:
        return False
    return True


# -- documents of clients


class Site(Fetcher):
    """Publishes a document at every URL; with `silent` it never answers, without one there is none."""

    def __init__(self, document: Mapping[str, Any] | None = None, *, silent: bool = False) -> None:
        super().__init__(AddressRules())
        self.document = document
        self.silent = silent

    async def get(self, url: str, headers: Mapping[str, str] | None = None, *, redirects: int = 0) -> Fetched:
        if self.silent:
            await asyncio.Event().wait()
        if self.document is None:
            return Fetched(url, 404, {}, b"{}")
        return Fetched(url, 200, {}, msgspec.json.encode({"client_id": url, **self.document}))


def described(site: Site, now: Now | None = None) -> ClientDocuments:
    return ClientDocuments(site, AddressRate(Rate.parse("1000000/s")), now or Now())


async def is_client(of: ClientDocuments, number: int = 0) -> bool:
    try:
        await of.get(f"https://app.example/{number}", "192.0.2.1")
    except OAuthError:
        return False
    return True


@probe("ferrule.auth.proxy.documents.MAX_FETCHES")
async def documents_that_are_fetched(limit: int, size: int) -> bool:
    """Each is wanted by two, one of whom leaves."""
    asked = described(Site(silent=True))
    refused = False
    waiting = []
    for number in range(size):
        first, second = (asyncio.ensure_future(is_client(asked, number)) for _ in range(2))
        await asyncio.sleep(0)
        if first.done():
            refused = True
            break
        second.cancel()
        await asyncio.sleep(0)
        waiting.append(first)
    for each in [*waiting, *asked._fetches.values()]:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return not refused


@probe("ferrule.auth.proxy.documents.MAX_KEPT", lowered=10, clamps=True)
async def documents_that_are_kept(limit: int, size: int) -> bool:
    asked = described(Site({}))
    with mock.patch.object(documents, "MAX_KEPT", limit):
        for number in range(min(size, 3 * limit)):
            assert await is_client(asked, number)
    return len(asked._kept) == size


@probe("ferrule.auth.proxy.documents.MAX_USED")
async def what_is_used_of_a_document(limit: int, size: int) -> bool:
    return await is_client(described(Site({"client_name": "n" * (size - len('{"client_name":""}'))})))


@probe("ferrule.auth.proxy.documents.MOST_KEPT", clamps=True)
async def how_long_a_document_is_kept(limit: int, size: int) -> bool:
    return _seconds_kept({"cache-control": f"max-age={size}"}) == size


@period("ferrule.auth.proxy.documents.FAILURE_KEPT")
async def a_document_that_could_not_be_had(lasts: float, seconds: float) -> bool:
    """Nobody asks for it again before that."""
    now, site = Now(), Site()
    asked = described(site, now)
    assert not await is_client(asked)
    site.document = {}
    now.seconds = seconds
    return not await is_client(asked)


no_bound(
    "ferrule.auth.proxy.documents.LEAST_KEPT",
    "the least time: whoever publishes a document cannot make us fetch it more often",
)


# -- logins


def a_proxy(now: Now | None = None) -> OAuthProxy:
    return OAuthProxy("github", ("id", "secret"), resource=HERE, keys=["k" * 32], clock=now or Now())


@probe("ferrule.auth.proxy.login.LONGEST_STATE")
async def the_state_of_a_client(limit: int, size: int) -> bool:
    asked = {
        "response_type": "code",
        "code_challenge": challenge_of(VERIFIER),
        "code_challenge_method": "S256",
        "redirect_uri": BACK,
        "state": "s" * size,
    }
    try:
        a_proxy()._login._check(asked, ProxyClient("c", "n", (BACK,)))
    except OAuthError:
        return False
    return True


@period("ferrule.auth.proxy.login.LOGIN_SECONDS")
async def a_login_that_nobody_ends(lasts: float, seconds: float) -> bool:
    now = Now()
    began = a_proxy(now)
    asked = AuthorizationRequest(client="c", redirect=BACK, challenge="x", scopes=())
    answer = await began._login._begin(posted(b""), "browser", asked)
    (state,) = parse_qs(urlsplit(str(answer.headers["Location"])).query)["state"]
    now.seconds = seconds
    return await began._store.get(_key(state)) is not None


@period("ferrule.auth.proxy.codes.REMEMBERED")
async def a_code_that_was_used(lasts: float, seconds: float) -> bool:
    now = Now()
    codes = Codes(MemoryStore(now))
    code = await codes.issue(GRANT, BACK, challenge_of(VERIFIER))
    await codes.redeem(code, VERIFIER, "c", BACK)
    now.seconds = seconds
    try:
        await codes.redeem(code, VERIFIER, "c", BACK)
    except CodeReplayed:
        return True
    except OAuthError:
        return False
    raise AssertionError("a code was good twice")


@probe("ferrule.auth.proxy.proxy.MAX_IN_MEMORY", lowered=10)
async def what_is_kept_in_memory(limit: int, size: int) -> bool:
    with mock.patch.object(proxy, "MAX_IN_MEMORY", limit):
        store = a_proxy()._store
    try:
        for number in range(size):
            await store.put(str(number), b"")
    except Busy:
        return False
    return True


# -- grants and tokens


def some_grants(now: Now | None = None, store: MemoryStore | None = None) -> Grants:
    now = now or Now()
    return Grants(MemoryStore(now) if store is None else store, KEYS, 10.0**9, now)


async def still_good(of: Grants, token: str) -> bool:
    """Return whether a refresh token that was used before is taken for one whose answer was lost."""
    try:
        await of.present(token, "c")
    except Reused:
        return False
    return True


@period("ferrule.auth.proxy.grants.GRACE")
async def a_refresh_token_that_was_used(lasts: float, seconds: float) -> bool:
    now = Now()
    kept = some_grants(now)
    first = await kept.begin(GRANT)
    await kept.rotate(await kept.present(first, "c"))
    now.seconds = seconds
    return await still_good(kept, first)


@probe("ferrule.auth.proxy.grants.MAX_RETIRED", lowered=5, clamps=True)
async def refresh_tokens_that_were_used(limit: int, size: int) -> bool:
    kept = some_grants()
    first = token = await kept.begin(GRANT)
    with mock.patch.object(grants, "MAX_RETIRED", limit):
        for _ in range(min(size, 3 * limit)):
            token = await kept.rotate(await kept.present(token, "c"))
    return await still_good(kept, first)


@probe("ferrule.auth.proxy.grants.MAX_OF_USER", lowered=5, clamps=True)
async def logins_of_a_user(limit: int, size: int) -> bool:
    kept = some_grants()
    ended = []
    with mock.patch.object(grants, "MAX_OF_USER", limit):
        for number in range(min(size, 3 * limit)):
            ended += await kept.crowd_out(Grant(id=str(number), client="c", subject="ada"))
    return ended == []


class Contested(MemoryStore):
    """Others are first so many times."""

    lost = 0

    async def replace(self, key: str, old: bytes, new: bytes, ttl: float | None = None) -> bool:
        self.lost -= 1
        return self.lost < 0 and await super().replace(key, old, new, ttl)


@probe("ferrule.auth.proxy.grants.MAX_TRIES")
async def tries_to_change_a_grant(limit: int, size: int) -> bool:
    store = Contested()
    kept = some_grants(store=store)
    presented = await kept.present(await kept.begin(GRANT), "c")
    store.lost = size - 1
    try:
        await kept.rotate(presented)
    except OAuthError:
        return False
    return True


@probe("ferrule.auth.proxy.grants.LONGEST_TOKEN")
async def a_refresh_token(limit: int, size: int) -> bool:
    kept = some_grants()
    rest = len(kept._token("", 0))
    return kept.read(kept._token("g" * (size - rest), 0)) is not None


@probe("ferrule.auth.proxy.access_tokens.LONGEST")
async def an_access_token(limit: int, size: int) -> bool:
    """It is no good either way: is it looked at?"""
    tokens = AccessTokens(KEYS, "https://here.example", HERE, 600.0, Now())
    known = mock.Mock(get=mock.Mock(return_value=None))
    tokens._keys = known
    assert tokens.read("h.p.".ljust(size, "s")) is None
    return bool(known.get.called)


@probe("ferrule.auth.proxy.access_tokens.MAX_REVOKED", lowered=10, clamps=True)
async def grants_that_ended(limit: int, size: int) -> bool:
    tokens = AccessTokens(KEYS, "https://here.example", HERE, 600.0, Now())
    with mock.patch.object(access_tokens, "MAX_REVOKED", limit):
        for number in range(size):
            tokens.revoke(str(number))
    return len(tokens._revoked) == size


# -- the provider


def provider(now: Now | None = None) -> Upstream:
    profile = Profile("Provider", "https://provider.example/authorize", "https://provider.example/token")
    return Upstream(profile, ("id", "secret"), BACK, Fetcher(AddressRules()), now or Now())


def given(**changes: Any) -> UpstreamTokens | None:
    """Return the tokens of an answer of the provider; None where they are refused."""
    try:
        return provider()._read_tokens({"access_token": "a", **changes}, None)
    except UpstreamRefused:
        return None


async def identifies(now: Now, **claims: Any) -> bool:
    said = msgspec.json.encode({"aud": "id", "exp": 0, "sub": "ada", **claims})
    written = urlsafe_b64encode(said).rstrip(b"=").decode()
    try:
        await provider(now).identify(UpstreamTokens(access="a", id_token=f"h.{written}.s"))
    except UpstreamRefused:
        return False
    return True


@probe("ferrule.auth.proxy.upstream.LONGEST_TOKEN")
async def a_token_of_the_provider(limit: int, size: int) -> bool:
    taken = {
        given(access_token="a" * size) is not None,
        given(refresh_token="r" * size) is not None,
        given(id_token="i" * size) != given(),
    }
    assert len(taken) == 1
    return taken.pop()


@probe("ferrule.auth.proxy.upstream.MOST_SCOPES", clamps=True)
async def scopes_of_the_provider(limit: int, size: int) -> bool:
    tokens = given(scope=" ".join(["s"] * size))
    return tokens is not None and len(tokens.scopes) == size


@probe("ferrule.auth.proxy.upstream.MOST_SECONDS")
async def the_life_of_a_token_of_the_provider(limit: int, size: int) -> bool:
    tokens = given(expires_in=size)
    return tokens is not None and tokens.expires is not None


@probe("ferrule.auth.proxy.upstream.LONGEST_SUBJECT")
async def the_name_of_a_user(limit: int, size: int) -> bool:
    return await identifies(Now(), sub="s" * size)


@period("ferrule.auth.proxy.upstream.LEEWAY")
async def an_id_token_that_is_over(lasts: float, seconds: float) -> bool:
    now = Now()
    now.seconds = seconds
    return await identifies(now)
