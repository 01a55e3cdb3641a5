"""The provider's tokens: sealed, refreshed once, and never lost to somebody who comes late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs
from proxy_desk import KEYS, Clock

from ferrule.auth.proxy.keys import Keys
from ferrule.auth.proxy.profiles import PROFILES
from ferrule.auth.proxy.upstream import (
    LONGEST_TOKEN,
    MOST_SCOPES,
    Person,
    UpstreamDown,
    UpstreamRefused,
    UpstreamTokens,
)
from ferrule.auth.proxy.vault import CHECK_KEPT, RENEWING, Vault
from ferrule.stores.memory import MemoryStore


class Provider:
    """A provider whose refresh tokens are good once, and that counts."""

    def __init__(self, clock: Clock, name: str = "google") -> None:
        self.profile = PROFILES[name]
        self.clock = clock
        self.refreshes = 0
        self.checks = 0
        self.good = "r0"
        self.failure: Exception | None = None
        self.release: asyncio.Event | None = None

    async def refresh(self, tokens: UpstreamTokens) -> UpstreamTokens:
        self.refreshes += 1
        if self.release is not None:
            await self.release.wait()
        if self.failure:
            raise self.failure
        if tokens.refresh != self.good:
            raise UpstreamRefused("this refresh token was used")
        self.good = f"r{self.refreshes}"
        now = self.clock.now
        return UpstreamTokens(access=f"a{self.refreshes}", refresh=self.good, expires=now + 3600, checked=now)

    async def identify(self, tokens: UpstreamTokens, nonce: str = "") -> Person:
        self.checks += 1
        await asyncio.sleep(0)
        if self.failure:
            raise self.failure
        return Person("1", "ada")


def a_vault(clock: Clock, provider: Any, store: Any = None, keys: Any = KEYS) -> Vault:
    return Vault(MemoryStore(clock) if store is None else store, Keys(keys), provider, 86_400.0, clock)


def some_tokens(clock: Clock, lifetime: float | None = 3600) -> UpstreamTokens:
    expires = None if lifetime is None else clock.now + lifetime
    return UpstreamTokens(access="a0", refresh="r0", expires=expires, checked=clock.now, id_token="secret.id.token")


async def test_a_token_is_refreshed_a_minute_before_it_expires() -> None:
    clock = Clock()
    provider = Provider(clock)
    vault = a_vault(clock, provider)
    await vault.put("g", some_tokens(clock))
    clock.now += 3539
    assert (await vault.fresh("g")).access == "a0"
    clock.now += 1
    assert (await vault.fresh("g")).access == "a1"
    assert provider.refreshes == 1


async def test_of_a_short_life_half_is_left_for_use() -> None:
    clock = Clock()
    provider = Provider(clock)
    vault = a_vault(clock, provider)
    await vault.put("g", some_tokens(clock, 10))
    clock.now += 4
    assert (await vault.fresh("g")).access == "a0"
    clock.now += 1
    assert (await vault.fresh("g")).access == "a1"


async def test_fifty_who_find_it_expired_refresh_it_once() -> None:
    clock = Clock()
    provider = Provider(clock)
    provider.release = asyncio.Event()
    vault = a_vault(clock, provider)
    await vault.put("g", some_tokens(clock, 0))
    waiting = [asyncio.ensure_future(vault.fresh("g")) for _ in range(50)]
    await asyncio.sleep(0.01)
    waiting[3].cancel()
    provider.release.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(isinstance(answer, asyncio.CancelledError) for answer in answers) == 1
    assert {answer.access for answer in answers if isinstance(answer, UpstreamTokens)} == {"a1"}
    assert provider.refreshes == 1
    assert vault._locks == {}


async def test_whoever_goes_away_during_a_refresh_leaves_it_to_the_next() -> None:
    clock = Clock()
    provider = Provider(clock)
    provider.release = asyncio.Event()
    vault = a_vault(clock, provider)
    await vault.put("g", some_tokens(clock, 0))
    first = asyncio.ensure_future(vault.fresh("g"))
    await asyncio.sleep(0.01)
    first.cancel()
    provider.release.set()
    await asyncio.gather(first, return_exceptions=True)
    assert (await vault.fresh("g")).access == "a2"


async def test_of_two_processes_the_late_one_takes_what_the_other_got() -> None:
    """The loser is refused by the provider, and never ends the winner's login."""
    clock = Clock()
    provider, store = Provider(clock), MemoryStore(clock)
    one, two = a_vault(clock, provider, store), a_vault(clock, provider, store)
    await one.put("g", some_tokens(clock, 0))
    provider.release = asyncio.Event()
    both = [asyncio.ensure_future(one.fresh("g")), asyncio.ensure_future(two.fresh("g"))]
    await asyncio.sleep(0.01)
    provider.release.set()
    tokens = await asyncio.gather(*both)
    assert tokens[0].access == tokens[1].access
    assert (await one.fresh("g")).refresh == provider.good


async def test_of_two_processes_one_asks_however_slowly_it_is_answered() -> None:
    """A provider takes a refresh token that comes twice for a stolen one, and ends the login."""
    clock = Clock()
    store = MemoryStore(clock)

    class Strict(Provider):
        async def refresh(self, tokens: UpstreamTokens) -> UpstreamTokens:
            renewed = await super().refresh(tokens)
            # It is used up now, and the answer is on its way.
            await asyncio.sleep(0.2)
            return renewed

    provider = Strict(clock)
    vaults = [a_vault(clock, provider, store) for _ in range(3)]
    await vaults[0].put("g", some_tokens(clock, 0))
    tokens = await asyncio.gather(*(each.fresh("g") for each in vaults))
    assert [each.access for each in tokens] == ["a1"] * 3
    assert provider.refreshes == 1


async def test_a_process_that_dies_during_a_refresh_leaves_it_to_the_others() -> None:
    clock = Clock()
    provider, store = Provider(clock), MemoryStore(clock)
    vault = a_vault(clock, provider, store)
    await vault.put("g", some_tokens(clock, 0))
    await store.add("renewing:g", b"another", RENEWING)
    waiting = asyncio.ensure_future(vault.fresh("g"))
    await asyncio.sleep(0.1)
    assert provider.refreshes == 0
    clock.now += RENEWING
    assert (await waiting).access == "a1"


async def test_a_refusal_ends_it_and_a_failure_does_not() -> None:
    clock = Clock()
    provider = Provider(clock)
    vault = a_vault(clock, provider)
    await vault.put("g", some_tokens(clock, 0))
    provider.failure = UpstreamDown("it is down")
    with pytest.raises(UpstreamDown):
        await vault.fresh("g")
    provider.failure = UpstreamRefused("it says no")
    with pytest.raises(UpstreamRefused):
        await vault.fresh("g")
    provider.failure = None
    assert (await vault.fresh("g")).access.startswith("a")
    with pytest.raises(UpstreamRefused):
        await vault.fresh("other")


async def test_a_token_without_an_end_is_shown_to_the_provider_once_a_minute() -> None:
    """GitHub: `GET /user`, believed for 60 s."""
    clock = Clock()
    provider = Provider(clock, "github")
    vault = a_vault(clock, provider)
    await vault.put("g", some_tokens(clock, None))
    for _ in range(5):
        await vault.fresh("g")
    assert provider.checks == 0
    clock.now += CHECK_KEPT
    await asyncio.gather(*(vault.fresh("g") for _ in range(20)))
    assert provider.checks == 1
    clock.now += CHECK_KEPT
    provider.failure = UpstreamRefused("it was withdrawn")
    with pytest.raises(UpstreamRefused):
        await vault.fresh("g")


async def test_an_entry_opens_only_where_it_belongs_and_with_our_keys() -> None:
    clock = Clock()
    provider, store = Provider(clock), MemoryStore(clock)
    vault = a_vault(clock, provider, store)
    # Long ones: two letters may stand in anything encrypted.
    tokens = structs.replace(some_tokens(clock), access="secret.access.token", refresh="secret.refresh.token")
    await vault.put("mine", tokens)
    raw = await store.get("vault:mine")
    assert raw is not None
    for secret in (b"secret.access.token", b"secret.refresh.token", b"secret.id.token"):
        assert secret not in raw
    await store.put("vault:theirs", raw)
    with pytest.raises(UpstreamRefused):
        await vault.fresh("theirs")
    with pytest.raises(UpstreamRefused):
        await a_vault(clock, provider, store, ["x" * 32]).fresh("mine")
    # The ID token is not kept at all, and nothing of it is shown.
    kept = await vault.fresh("mine")
    assert kept.id_token == ""
    assert "secret" not in repr(kept)
    assert "secret" not in repr(structs.replace(kept, scopes=("x",)))


async def test_an_entry_lives_as_long_as_its_grant() -> None:
    clock = Clock()
    vault = a_vault(clock, Provider(clock))
    await vault.put("g", some_tokens(clock, 1e6), 60)
    await vault.extend("g")
    clock.now += 86_399
    await vault.extend("g")
    clock.now += 86_399
    assert await vault.fresh("g")
    await vault.delete("g")
    with pytest.raises(UpstreamRefused):
        await vault.fresh("g")


async def test_the_longest_tokens_a_provider_may_give_are_kept() -> None:
    """Each is as long as it may be, of characters that take two in JSON, with as many scopes as one answer holds."""
    clock = Clock()
    vault = a_vault(clock, Provider(clock))
    longest = '"' * LONGEST_TOKEN
    given = structs.replace(some_tokens(clock), access=longest, refresh=longest, scopes=("s" * 320,) * MOST_SCOPES)
    await vault.put("g", given)
    assert (await vault.fresh("g")).access == longest
