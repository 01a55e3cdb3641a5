"""Keys of an issuer: how often they are fetched, what serves meanwhile, and what happens while there are none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from forgery import forge
from issuer_double import ISSUER, JWKS, KEYS, RESOURCE, Clock, claims, judged, let_in, token

from ferrule.auth.fetch import Fetched, FetchFailed
from ferrule.auth.jose import BadToken, make_key
from ferrule.auth.server.jwt import JWT
from ferrule.auth.server.keys import freshness, read_keys
from ferrule.auth.server.oidc import OIDC, metadata_urls
from ferrule.errors import Refusal
from ferrule.identity.principal import Principal

Answer = Callable[[str], Any]


def fetched(document: Any, status: int = 200, **headers: str) -> Fetched:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Fetched("https://login.example.com/keys", status, headers, body)


class Network:
    """Answers fetches, and counts them."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def get(self, url: str, headers: Any = None) -> Fetched:
        self.asked.append(url)
        answer = self.answer(url)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Fetched)
        return answer


def by_url(answer: Answer, **options: Any) -> tuple[JWT, Network, Clock]:
    """Return a verifier that fetches keys from a network of ours, and its clock."""
    clock = Clock()
    by = JWT(ISSUER, jwks="https://login.example.com/keys", resource=RESOURCE, clock=clock, **options)
    network = Network(answer)
    by.keys._fetcher = network  # type: ignore[attr-defined]
    by.keys._clock = clock  # type: ignore[attr-defined]
    return by, network, clock


async def verdict_on(by: Any, shown: str, **changes: Any) -> Any:
    verdict = judged(shown, by, **changes)
    if asyncio.iscoroutine(verdict):
        return await verdict
    return verdict


def status_of(verdict: Any) -> int | None:
    return 200 if isinstance(verdict, Principal) else verdict.status


async def test_keys_are_fetched_at_start_in_the_background() -> None:
    by, network, _ = by_url(lambda url: fetched(JWKS))
    await by.start()
    assert network.asked == []
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert network.asked == ["https://login.example.com/keys"]
    let_in(token(), by)
    await by.close()


async def test_many_callers_wait_for_one_fetch() -> None:
    """AUT-13."""
    gate = asyncio.Event()

    async def slowly() -> Fetched:
        await gate.wait()
        return fetched(JWKS)

    by, network, _ = by_url(lambda url: slowly())
    waiting = [asyncio.ensure_future(verdict_on(by, token(jti=str(n)))) for n in range(50)]
    await asyncio.sleep(0.01)
    gate.set()
    assert {status_of(verdict) for verdict in await asyncio.gather(*waiting)} == {200}
    assert len(network.asked) == 1
    await by.close()


async def test_a_storm_of_unknown_keys_fetches_once_in_30_seconds() -> None:
    """AUT-13: 10,000 tokens that each name a key of their own."""
    by, network, clock = by_url(lambda url: fetched(JWKS))
    await verdict_on(by, token())
    clock.now += 31
    statuses = set()
    for number in range(10_000):
        # From many networks: one alone would be told to wait.
        shown = forge({"alg": "ES256", "kid": f"unknown {number}"}, claims(), b"no signature")
        statuses.add(status_of(await verdict_on(by, shown, address=f"2001:db8:{number:x}::1")))
    assert statuses == {401}
    assert len(network.asked) == 2
    assert len(by.cache) == 1
    await by.close()


async def test_a_new_key_is_found_and_a_dropped_one_is_forgotten() -> None:
    new = make_key("ES256")
    published = dict(JWKS)
    by, network, clock = by_url(lambda url: fetched(published))
    old_token = token()
    assert status_of(await verdict_on(by, old_token)) == 200
    published = {"keys": [new.public()]}
    clock.now += 31
    assert status_of(await verdict_on(by, token(key=new))) == 200
    assert len(network.asked) == 2
    assert status_of(await verdict_on(by, old_token)) == 401
    await by.close()


BROKEN: dict[str, Answer] = {
    "down": lambda url: FetchFailed("nobody answers"),
    "500": lambda url: fetched({}, 500),
    "HTML": lambda url: fetched(b"<html>"),
    "a list": lambda url: fetched([]),
    "no keys": lambda url: fetched({"keys": []}),
    "private keys": lambda url: fetched({"keys": [KEYS["ES256"].jose.as_dict(private=True)]}),
    "101 keys": lambda url: fetched({"keys": JWKS["keys"] * 34}),
    "slow": lambda url: asyncio.sleep(60),
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_without_keys_nobody_comes_in_and_nobody_is_sent_to_log_in(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AUT-13: fails closed within its time, with 503 and not with 401."""
    monkeypatch.setattr("ferrule.auth.server.keys.FETCH_TIMEOUT", 0.05)
    by, network, clock = by_url(BROKEN[broken])
    refused = await verdict_on(by, token())
    assert isinstance(refused, Refusal)
    assert (refused.status, refused.headers) == (503, {"Retry-After": "2"})
    for number in range(20):
        assert status_of(await verdict_on(by, token(jti=str(number)))) == 503
    assert len(network.asked) == 1
    network.answer = lambda url: fetched(JWKS)
    clock.now += 2.1
    assert status_of(await verdict_on(by, token())) == 200
    await by.close()


@pytest.mark.parametrize("broken", BROKEN)
async def test_old_keys_serve_for_a_day_while_no_new_ones_come(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """AUT-13."""
    monkeypatch.setattr("ferrule.auth.server.keys.FETCH_TIMEOUT", 0.05)
    by, network, clock = by_url(lambda url: fetched(JWKS))
    begun = clock.now
    assert status_of(await verdict_on(by, token())) == 200
    network.answer = BROKEN[broken]
    for hours in (1, 2, 23):
        clock.now = begun + hours * 3600
        shown = token(exp=int(clock.now) + 600, iat=int(clock.now))
        assert status_of(await verdict_on(by, shown)) == 200
        await asyncio.sleep(0.06)
    clock.now = begun + 25 * 3600
    assert status_of(await verdict_on(by, token(exp=int(clock.now) + 600, iat=int(clock.now)))) == 503
    await by.close()


async def test_keys_that_change_each_second_are_not_followed_each_second() -> None:
    published: list[Any] = []

    def next_keys(url: str) -> Fetched:
        published.append(make_key("ES256"))
        return fetched({"keys": [published[-1].public()]})

    by, _, clock = by_url(next_keys)
    for second in range(60):
        clock.now += 1
        await verdict_on(by, token(jti=str(second)), address=str(second))
    assert len(published) <= 3
    await by.close()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("", 300), ("max-age=1", 300), ("public, max-age=7200", 7200), ("max-age=999999999", 86400), ("no-store", 300)],
)
def test_keys_are_fresh_for_as_long_as_their_headers_say_within_bounds(header: str, seconds: float) -> None:
    assert freshness(fetched({}, **{"cache-control": header})) == seconds


def test_a_key_set_may_hold_keys_for_other_things() -> None:
    strange = [{"kty": "RSA", "use": "enc", "n": "AA", "e": "AQAB"}, {"kty": "new"}, "text"]
    assert len(read_keys({"keys": [*strange, *JWKS["keys"]]}).keys) == 3
    with pytest.raises(BadToken):
        read_keys({"keys": strange})


async def test_a_stop_ends_a_fetch() -> None:
    by, _, _ = by_url(lambda url: asyncio.sleep(60))
    waiting = asyncio.ensure_future(verdict_on(by, token()))
    await asyncio.sleep(0.01)
    await by.close()
    assert status_of(await asyncio.wait_for(waiting, 2)) == 503
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith(("fetch", "check"))] == []


async def test_fixed_keys_are_never_unavailable() -> None:
    by = JWT(ISSUER, jwks=JWKS, resource=RESOURCE, clock=Clock())
    await by.start()
    assert status_of(judged(token({"kid": "unknown"}), by)) == 401


# -- discovery


def discovered(answers: dict[str, Any], issuer: str = ISSUER, **options: Any) -> tuple[OIDC, Network]:
    by = OIDC(issuer, resource=RESOURCE, clock=Clock(), **options)
    network = Network(lambda url: answers.get(url, fetched({}, 404)))
    by._fetcher = by.keys._fetcher = network  # type: ignore[attr-defined, assignment]
    return by, network


KEYS_AT = "https://keys.example/jwks"


@pytest.mark.parametrize(
    ("issuer", "place"),
    [
        (ISSUER, f"{ISSUER}/.well-known/openid-configuration"),
        (ISSUER, f"{ISSUER}/.well-known/oauth-authorization-server"),
        (f"{ISSUER}/", f"{ISSUER}/.well-known/openid-configuration"),
        (f"{ISSUER}/tenant", f"{ISSUER}/tenant/.well-known/openid-configuration"),
        (f"{ISSUER}/tenant", f"{ISSUER}/.well-known/oauth-authorization-server/tenant"),
    ],
)
async def test_an_issuer_is_found_by_its_name(issuer: str, place: str) -> None:
    answers = {place: fetched({"issuer": issuer, "jwks_uri": KEYS_AT}), KEYS_AT: fetched(JWKS)}
    by, network = discovered(answers, issuer)
    assert place in metadata_urls(issuer)
    assert status_of(await verdict_on(by, token(iss=issuer))) == 200
    assert network.asked[-1] == KEYS_AT
    assert by.resource.document(RESOURCE)["authorization_servers"] == [issuer]
    await by.close()


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example", "jwks_uri": KEYS_AT},
        {"issuer": ISSUER + "/", "jwks_uri": KEYS_AT},
        {"jwks_uri": KEYS_AT},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": 7},
    ],
    ids=repr,
)
async def test_metadata_of_another_issuer_is_not_believed(metadata: dict[str, Any]) -> None:
    by, network = discovered({metadata_urls(ISSUER)[0]: fetched(metadata), KEYS_AT: fetched(JWKS)})
    assert status_of(await verdict_on(by, token())) == 503
    assert KEYS_AT not in network.asked
    await by.close()


async def test_keys_on_this_machine_are_not_fetched_for_an_issuer_elsewhere() -> None:
    """The rules of addresses hold for what an issuer names."""
    by = OIDC(ISSUER, resource=RESOURCE, clock=Clock())
    for url in ("http://127.0.0.1:6379/", "https://169.254.169.254/keys", "file:///etc/passwd"):
        by._discover = _says({"issuer": ISSUER, "jwks_uri": url})  # type: ignore[method-assign]
        by.keys._next_look = 0.0  # type: ignore[attr-defined]
        assert status_of(await verdict_on(by, token(jti=url))) == 503
    await by.close()


def _says(document: dict[str, Any]) -> Any:
    async def discover() -> dict[str, Any]:
        return document

    return discover


async def test_all_tenants_of_entra_share_their_keys() -> None:
    common = "https://login.microsoftonline.com/common/v2.0"
    template = "https://login.microsoftonline.com/{tenantid}/v2.0"
    answers = {metadata_urls(common)[0]: fetched({"issuer": template, "jwks_uri": KEYS_AT}), KEYS_AT: fetched(JWKS)}
    by, _ = discovered(answers, common, provider="entra", audience="guid")
    shown = token(iss=template.replace("{tenantid}", "one"), tid="one", aud="guid")
    assert (await verdict_on(by, shown)).issuer == "https://login.microsoftonline.com/one/v2.0"
    wrong = token(iss=template.replace("{tenantid}", "one"), tid="two", aud="guid")
    assert status_of(await verdict_on(by, wrong)) == 401
    await by.close()


async def test_a_caller_who_leaves_does_not_take_the_check_away_from_others() -> None:
    gate = asyncio.Event()

    async def slowly() -> Fetched:
        await gate.wait()
        return fetched(JWKS)

    by, _, _ = by_url(lambda url: slowly())
    shown = token()
    leaving, staying = (asyncio.ensure_future(verdict_on(by, shown)) for _ in range(2))
    await asyncio.sleep(0.01)
    leaving.cancel()
    gate.set()
    assert status_of(await staying) == 200
    await by.close()
