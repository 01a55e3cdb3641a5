"""Rules of limits, locks and what may be used once: however many ask at once, all get together what one would."""

from __future__ import annotations

import asyncio

from ferrule.testing.carrier_kit.findings import demand, given
from ferrule.testing.store_kit.stand import LONG, StoreMaker, rule

MANY = 20


@rule("limits")
async def tokens(maker: StoreMaker) -> None:
    """A bucket grants its burst once, then no more than its rate; buckets do not know each other."""
    async with maker.stand() as stand:
        limits = stand.stores.limits
        # So slow that no token comes while the rule is judged.
        demand(await limits.lease("a", 0.0001, 10.0, 4.0) == 4.0, "tokens that are there were not granted")
        granted = await asyncio.gather(*[limits.lease("a", 0.0001, 10.0, 4.0) for _ in range(MANY)])
        demand(5.9 <= sum(granted) <= 6.1, f"{4 + sum(granted):.2f} of 10 tokens were granted")
        demand(await limits.lease("b", 0.0001, 5.0, 10.0) == 5.0, "another bucket was not full")
        demand(await limits.lease("c", 10 / stand.tick, 10.0, 10.0) == 10.0, "a new bucket was not full")
        await stand.pass_time(stand.tick * 2)
        again = await limits.lease("c", 10 / stand.tick, 10.0, 100.0)
        demand(9.9 <= again <= 10.1, f"after the time it fills in a bucket granted {again:.2f} tokens, not 10")


@rule("limits", is_shared=True)
async def tokens_elsewhere(maker: StoreMaker) -> None:
    """What one process was granted, another is not."""
    async with maker.stand() as stand:
        demand(await stand.stores.limits.lease("a", 0.0001, 10.0, 8.0) == 8.0, "tokens were not granted")
        rest = await stand.elsewhere.limits.lease("a", 0.0001, 10.0, 8.0)
        demand(1.9 <= rest <= 2.1, f"the other process was granted {rest:.2f} of 2 tokens")


@rule("locks")
async def locked_once(maker: StoreMaker) -> None:
    """Of many who want a lock at once, one gets it; it can be renewed and given back with its token only."""
    async with maker.stand() as stand:
        locks = stand.stores.locks
        got = await asyncio.gather(*[locks.acquire("a", LONG) for _ in range(MANY)])
        tokens_got = [token for token in got if token is not None]
        demand(len(tokens_got) == 1, f"{len(tokens_got)} have the lock")
        token = tokens_got[0]
        demand(await locks.acquire("b", LONG) is not None, "another lock was taken")
        demand(not await locks.release("a", token + 1), "it was given back by another")
        demand(not await locks.renew("a", token + 1, LONG), "it was renewed by another")
        demand(await locks.renew("a", token, LONG), "its holder could not renew it")
        demand(await locks.release("a", token), "its holder could not give it back")
        demand(not await locks.release("a", token), "it was given back twice")
        following = given(await locks.acquire("a", LONG), "it was not free after it was given back")
        demand(following > token, "a later token is not larger")


@rule("locks")
async def locks_end(maker: StoreMaker) -> None:
    """A lock ends by itself; who held it cannot renew it then, and the next token is larger."""
    async with maker.stand() as stand:
        locks = stand.stores.locks
        token = given(await locks.acquire("a", stand.tick), "a free lock could not be taken")
        await stand.pass_time(stand.tick * 1.5)
        demand(not await locks.renew("a", token, LONG), "it was renewed after its end")
        following = given(await locks.acquire("a", LONG), "it was not free after its end")
        demand(following > token, "a later token is not larger")
        demand(not await locks.release("a", token), "its first holder gave back what is another's")


@rule("locks", is_shared=True)
async def locked_elsewhere(maker: StoreMaker) -> None:
    """What one process has locked, another cannot lock."""
    async with maker.stand() as stand:
        token = given(await stand.stores.locks.acquire("a", LONG), "a free lock could not be taken")
        demand(await stand.elsewhere.locks.acquire("a", LONG) is None, "it was locked twice")
        demand(await stand.elsewhere.locks.release("a", token), "who has the token could not give it back")


@rule("seen")
async def used_once(maker: StoreMaker) -> None:
    """Of many who use the same key at once, one is the first; after its time it may be used again."""
    async with maker.stand() as stand:
        places = [stand.stores.seen, stand.stores.seen]
        if stand.another is not None and "seen" not in maker.lacks:
            places[1] = stand.another.seen
        uses = []
        for number in range(MANY):
            uses.append(places[number % 2].add("jti", LONG))
        used = await asyncio.gather(*uses)
        demand(used.count(True) == 1, f"{used.count(True)} of {MANY} were the first")
        demand(await places[0].add("x" * 10_000, stand.tick), "another key was seen before")
        await stand.pass_time(stand.tick * 1.5)
        demand(await places[0].add("x" * 10_000, stand.tick), "it could not be used again after its time")
