"""Rules of sessions, leases and the directory: one owner at a time, and late writes of the last one change nothing."""

from __future__ import annotations

import asyncio

from msgspec import structs

from ferrule.stores.contracts import DirectoryEntry, SessionRecord
from ferrule.testing.carrier_kit.findings import demand, given
from ferrule.testing.store_kit.stand import LONG, StoreMaker, StoreStand, rule

MANY = 20

RECORD = SessionRecord(
    id="s1",
    revision="any",
    client_info={"name": "c", "version": "1"},
    capabilities={"sampling": {}, "experimental": {"x": [1, None, "ü"]}},
    principal="issuer subject client",
    initialized=True,
    log_level="debug",
    subscriptions=("note://1", "note://2"),
    owner="n1",
)


async def created(stand: StoreStand) -> SessionRecord:
    """Create the session all rules are about."""
    return given(await stand.stores.sessions.create(RECORD), "a session could not be created")


@rule("sessions")
async def sessions_kept(maker: StoreMaker) -> None:
    """A session is found as it was created, changes as its owner says, and is gone when it is deleted."""
    async with maker.stand() as stand:
        sessions = stand.stores.sessions
        demand(await sessions.get("s1") is None, "a session was there that nobody had created")
        record = await created(stand)
        demand(record.epoch == 1, f"the first epoch is {record.epoch}")
        demand(record.created == record.seen, "it was used before it was created, or after")
        demand(structs.replace(record, epoch=0, created=0.0, seen=0.0) == RECORD, "it was changed when it was created")
        demand(await sessions.get("s1") == record, "it came back as something else")
        demand(await sessions.create(RECORD) is None, "an id was given twice")
        demand(await sessions.save(structs.replace(record, log_level="info")), "its owner could not change it")
        found = given(await sessions.get("s1"), "it was gone")
        demand((found.log_level, found.created) == ("info", record.created), "the change was not kept")
        await sessions.delete("s1")
        await sessions.delete("s1")
        demand(await sessions.get("s1") is None, "it was there after it was deleted")
        demand(not await sessions.save(record), "a session that is gone was changed")
        demand(await sessions.get("s1") is None, "a session that is gone came back")


@rule("sessions")
async def sessions_claimed(maker: StoreMaker) -> None:
    """A session is claimed only from an owner whose lease is over; then its late writes change nothing."""
    async with maker.stand() as stand:
        sessions = stand.stores.sessions
        nodes = stand.stores.nodes
        await nodes.renew("n1", b"", LONG)
        await nodes.renew("n2", b"", LONG)
        old = await created(stand)
        demand(await sessions.claim("s1", "n2") is None, "it was taken from an owner that lives")
        demand(await sessions.claim("nothing", "n2") is None, "a session was claimed that is not there")
        await nodes.release("n1")
        claimed = given(await sessions.claim("s1", "n2"), "it could not be taken from an owner that is dead")
        demand((claimed.owner, claimed.epoch) == ("n2", 2), f"it is of {claimed.owner} in epoch {claimed.epoch}")
        demand(claimed.log_level == "debug", "what was known of it is lost")
        demand(
            not await sessions.save(structs.replace(old, log_level="error")), "a late write of the old owner counted"
        )
        demand(not await sessions.save(structs.replace(old, owner="n2")), "a write of an old epoch counted")
        await stand.pass_time(stand.tick)
        sessions.touch(old)
        demand(await sessions.get("s1") == claimed, "a late write changed it")
        again = given(await sessions.claim("s1", "n2"), "its owner could not claim it")
        demand(again.epoch == 3, "the epoch of a claim is not the next")


@rule("sessions")
async def sessions_released(maker: StoreMaker) -> None:
    """A session that its owner leaves is anybody's at once, and nobody else can leave it."""
    async with maker.stand() as stand:
        sessions = stand.stores.sessions
        await stand.stores.nodes.renew("n1", b"", LONG)
        old = await created(stand)
        demand(not await sessions.release(structs.replace(old, owner="n2")), "a node left what is another's")
        demand(await sessions.release(old), "its owner could not leave it")
        demand(not await sessions.save(old), "a write of the node that left it counted")
        demand(not await sessions.release(old), "it was left twice")
        claimed = given(await sessions.claim("s1", "n2"), "it could not be claimed from nobody")
        demand(claimed.owner == "n2" and claimed.epoch > old.epoch + 1, "the epoch did not grow")


@rule("sessions")
async def sessions_claimed_once(maker: StoreMaker) -> None:
    """Of many living nodes that claim the session of a dead one at once, one succeeds (CLU-09)."""
    async with maker.stand() as stand:
        await created(stand)
        claims = []
        for number in range(MANY):
            place = stand.stores
            if number % 2 and stand.another is not None and "sessions" not in maker.lacks:
                place = stand.another
            await place.nodes.renew(f"m{number}", b"", LONG)
            claims.append(place.sessions.claim("s1", f"m{number}"))
        claimed = await asyncio.gather(*claims)
        winners = []
        for record in claimed:
            if record is not None:
                winners.append(record.owner)
        demand(len(winners) == 1, f"{len(winners)} nodes became its owner")
        found = given(await stand.stores.sessions.get("s1"), "it was gone")
        demand((found.owner, found.epoch) == (winners[0], 2), "another is its owner")


@rule("sessions")
async def sessions_used(maker: StoreMaker) -> None:
    """A session that is used is seen, and its owner need not wait for that."""
    async with maker.stand() as stand:
        record = await created(stand)
        await stand.pass_time(stand.tick)
        stand.stores.sessions.touch(record)
        found = given(await stand.stores.sessions.get("s1"), "it was gone")
        demand(found.seen > record.seen, "its use was not noted")
        demand(structs.replace(found, seen=record.seen) == record, "its use changed more")


@rule("sessions")
async def sessions_expire(maker: StoreMaker) -> None:
    """A session that was idle for too long is gone for everybody."""
    async with maker.stand(idle=1.0) as stand:
        record = await created(stand)
        await stand.pass_time(1.5)
        demand(await stand.stores.sessions.get("s1") is None, "it was there after its time")
        demand(not await stand.stores.sessions.save(record), "it was changed after its time")
        demand(await stand.stores.sessions.claim("s1", "n1") is None, "it was claimed after its time")
        await stand.stores.sessions.expire()
        demand(await stand.stores.sessions.create(RECORD) is not None, "its id was not free after its time")


@rule("sessions", is_shared=True)
async def sessions_elsewhere(maker: StoreMaker) -> None:
    """What one process has created, another finds at once, and claims when the first is gone."""
    async with maker.stand() as stand:
        record = await created(stand)
        demand(await stand.elsewhere.sessions.get("s1") == record, "it was not found")
        demand(await stand.elsewhere.sessions.claim("s1", "n2") is not None, "it could not be claimed")
        demand(not await stand.stores.sessions.save(record), "a late write of the first process counted")


@rule("nodes")
async def leases(maker: StoreMaker) -> None:
    """A node lives from its first renewal until its lease is over or released."""
    async with maker.stand() as stand:
        nodes = stand.stores.nodes
        demand(await nodes.find("n1") is None, "a node lived before it came")
        demand(not await nodes.renew("n1", b"one", LONG), "a lease was held before it was taken")
        demand(await nodes.renew("n1", b"uno", LONG), "a lease was not held when it was renewed")
        await nodes.renew("n2", b"two", stand.tick)
        demand(await nodes.find("n1") == b"uno", "what a node says about itself is not known")
        await stand.pass_time(stand.tick * 1.5)
        demand(await nodes.find("n2") is None, "a node lived after its lease was over")
        demand(await nodes.living() == {"n1": b"uno"}, "not exactly the living live")
        demand(not await nodes.renew("n2", b"two", LONG), "a lease was held after it was over")
        await nodes.release("n1")
        await nodes.release("n1")
        demand(await nodes.living() == {"n2": b"two"}, "a node lived after it left")


@rule("directory")
async def entries(maker: StoreMaker) -> None:
    """An entry is there while its node lives; nobody takes the name of a living one, anybody that of a dead one."""
    async with maker.stand() as stand:
        nodes = stand.stores.nodes
        directory = stand.stores.directory
        first = DirectoryEntry("n1", b"\x00one")
        second = DirectoryEntry("n2", b"two")
        await nodes.renew("n1", b"", LONG)
        await nodes.renew("n2", b"", LONG)
        demand(await directory.put("server", "a", first), "a free name could not be taken")
        demand(await directory.put("server", "a", first), "an entry could not be renewed")
        demand(not await directory.put("server", "a", second), "the name of a living node was taken")
        demand(await directory.put("server", "b", second), "a free name could not be taken")
        demand(await directory.entries("server") == {"a": first, "b": second}, "not all entries are there")
        demand(await directory.entries("other") == {}, "another kind has entries")
        await directory.drop("server", "a", "n2")
        demand("a" in await directory.entries("server"), "another node dropped an entry")
        await nodes.release("n1")
        demand(await directory.entries("server") == {"b": second}, "the entry of a dead node is there")
        demand(await directory.put("server", "a", second), "the name of a dead node could not be taken")
        await directory.drop("server", "a", "n2")
        demand(await directory.entries("server") == {"b": second}, "an entry was there after it was dropped")
