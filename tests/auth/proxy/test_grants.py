"""Refresh tokens: used once, with a grace, and the whole grant ends when one was stolen."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proxy_desk import KEYS, Clock

from ferrule.auth.proxy.grants import GRACE, MAX_OF_USER, MAX_RETIRED, Grant, Grants, Reused, new_grant_id
from ferrule.auth.proxy.keys import Keys, digest
from ferrule.auth.proxy.parameters import OAuthError
from ferrule.stores.memory import MemoryStore


class Slow(MemoryStore):
    """A store that lets others in before each deed, as one over a network does."""

    async def get(self, key: str) -> bytes | None:
        await asyncio.sleep(0)
        return await super().get(key)

    async def replace(self, key: str, old: bytes, new: bytes, ttl: float | None = None) -> bool:
        await asyncio.sleep(0)
        if self._values.get(key, (None, None))[0] != old:
            return False
        await self.put(key, new, ttl)
        return True


def some_grants(clock: Clock, store: Any = None, keys: Any = KEYS) -> Grants:
    return Grants(Slow(clock) if store is None else store, Keys(keys), 1000.0, clock)


async def begin(grants: Grants) -> str:
    return await grants.begin(Grant(id=new_grant_id(), client="c", subject="ada", scopes=("notes",)))


async def use(grants: Grants, token: str, client: str = "c") -> str:
    return await grants.rotate(await grants.present(token, client))


async def test_each_token_is_replaced_by_the_next() -> None:
    grants = some_grants(Clock())
    token = await begin(grants)
    seen = {token}
    for _ in range(5):
        token = await use(grants, token)
        seen.add(token)
    assert len(seen) == 6


async def test_a_token_used_again_within_the_grace_gets_the_same_successor() -> None:
    """codex#46028: one token came five times in a second."""
    clock = Clock()
    grants = some_grants(clock)
    first = await begin(grants)
    second = await use(grants, first)
    for seconds in (0, 1, 20, GRACE - 21):
        clock.now += seconds
        assert await use(grants, first) == second
    # The successor of a successor works as well: two processes of one client may be a step apart.
    third = await use(grants, second)
    assert await use(grants, first) == second
    assert await use(grants, second) == third
    clock.now += 1
    with pytest.raises(Reused):
        await use(grants, first)


async def test_fifty_who_use_a_token_at_once_get_the_same_successor() -> None:
    grants = some_grants(Clock())
    first = await begin(grants)
    answers = await asyncio.gather(*(use(grants, first) for _ in range(50)))
    assert len(set(answers)) == 1
    assert await use(grants, answers[0]) not in (first, answers[0])


async def test_two_processes_that_share_a_store_agree() -> None:
    clock = Clock()
    store = Slow(clock)
    one, two = some_grants(clock, store), some_grants(clock, store)
    first = await begin(one)
    assert len(set(await asyncio.gather(use(one, first), use(two, first), use(one, first)))) == 1


async def test_a_thousand_short_lives_lose_no_login() -> None:
    """Two processes of one client refresh every second, each with what it last saw: nobody is logged out."""
    clock = Clock()
    grants = some_grants(clock)
    shared = await begin(grants)
    late = shared
    for cycle in range(1000):
        clock.now += 1
        shared = await use(grants, shared)
        if cycle % 7 == 0:
            assert await use(grants, late)
            late = shared


async def test_what_is_remembered_of_a_grant_is_bounded() -> None:
    clock = Clock()
    store = Slow(clock)
    grants = some_grants(clock, store)
    token = await begin(grants)
    for _ in range(3 * MAX_RETIRED):
        token = await use(grants, token)
    (kept,) = store._values.values()
    assert len(kept[0]) < 60 * MAX_RETIRED


async def test_a_grant_ends_when_nobody_refreshes_it() -> None:
    clock = Clock()
    grants = some_grants(clock)
    token = await begin(grants)
    clock.now += 999
    token = await use(grants, token)
    clock.now += 999
    token = await use(grants, token)
    clock.now += 1000
    with pytest.raises(OAuthError, match="not valid any more"):
        await use(grants, token)


async def test_a_user_has_so_many_logins_and_the_oldest_ends_for_the_next() -> None:
    clock = Clock()
    store = Slow(clock)
    grants = some_grants(clock, store)
    made = [Grant(id=str(number), client="c", subject="ada") for number in range(MAX_OF_USER + 3)]
    ended = [each for grant in made for each in await grants.crowd_out(grant)]
    assert ended == ["0", "1", "2"]
    assert await grants.crowd_out(Grant(id="x", client="c", subject="grace")) == []
    # Of those who log in at once nobody is forgotten.
    await asyncio.gather(*(grants.crowd_out(Grant(id=f"g{number}", client="c", subject="eve")) for number in range(8)))
    kept = await store.get(f"grants:{digest('eve')}")
    assert kept is not None
    assert len(set(json.loads(kept))) == 8


async def test_a_token_belongs_to_its_client_and_its_grant() -> None:
    grants = some_grants(Clock())
    one, two = await begin(grants), await begin(grants)
    with pytest.raises(OAuthError):
        await use(grants, one, "other")
    mixed = f"{one.partition('.')[0]}.{two.partition('.')[2]}"
    numbered = one.replace(".0.", ".1.")
    for forged in (mixed, numbered, f"{one}x", one[:-1], "", "..", "a.-1.b", "x" * 10_000):
        with pytest.raises(OAuthError):
            await use(grants, forged)
    assert await use(grants, one)


async def test_tokens_of_an_old_secret_are_taken_while_it_is_there() -> None:
    clock = Clock()
    store = Slow(clock)
    token = await begin(some_grants(clock, store, ["o" * 32]))
    successor = await use(some_grants(clock, store, ["n" * 32, "o" * 32]), token)
    assert await use(some_grants(clock, store, ["n" * 32]), successor)
    with pytest.raises(OAuthError):
        await use(some_grants(clock, store, ["n" * 32]), token)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 90)), max_size=25))
def test_a_token_is_good_if_it_is_the_newest_or_was_retired_within_the_grace(steps: list[tuple[int, float]]) -> None:
    """Against a plain model: whatever comes in whatever order."""

    async def main() -> None:
        clock = Clock()
        grants = Grants(MemoryStore(clock), Keys(KEYS), 1e6, clock)
        tokens = [await begin(grants)]
        retired: dict[int, float] = {}
        for back_by, pause in steps:
            clock.now += pause
            number = max(0, len(tokens) - 1 - back_by)
            newest = number == len(tokens) - 1
            good = newest or clock.now - retired[number] <= GRACE
            if not good:
                with pytest.raises(Reused):
                    await use(grants, tokens[number])
                return
            successor = await use(grants, tokens[number])
            if newest:
                retired[number] = clock.now
                tokens.append(successor)
            assert successor == tokens[number + 1]

    asyncio.run(main())
