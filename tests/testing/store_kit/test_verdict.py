"""The kit finds a store that breaks a rule, and blames no other part of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "stores"))

from our_stores import Memory

from ferrule.stores.contracts import SessionRecord
from ferrule.stores.memory import MemoryStore
from ferrule.stores.memory_cluster import MemorySessions
from ferrule.testing.store_kit import RULES, StoreStand, judge


class Forgetful(MemoryStore):
    """Loses every empty value."""

    async def get(self, key: str) -> bytes | None:
        return await super().get(key) or None


class Unfenced(MemorySessions):
    """Lets anybody write."""

    async def save(self, record: SessionRecord) -> bool:
        kept = await self.get(record.id)
        return kept is not None and await super().save(
            msgspec.structs.replace(record, owner=kept.owner, epoch=kept.epoch)
        )


class Broken(Memory):
    @asynccontextmanager
    async def stand(self, *, idle: float = 600.0, age: float = 600.0) -> AsyncIterator[StoreStand]:
        async with super().stand(idle=idle, age=age) as stand:
            sessions = Unfenced(stand.stores.nodes, idle=idle, clock=stand.stores.values._clock)
            values = Forgetful(stand.stores.values._clock)
            stores = msgspec.structs.replace(stand.stores, sessions=sessions, values=values)
            yield StoreStand(stores, stand.tick, stand.pass_time)


def test_a_store_that_breaks_rules_is_found_out_and_others_of_its_parts_are_not_blamed() -> None:
    broken = asyncio.run(judge(Broken()))
    assert set(broken) == {"values: kept", "sessions: sessions claimed", "sessions: sessions released"}
    assert "an empty one is a value" in broken["values: kept"]
    assert "late write" in broken["sessions: sessions claimed"]


def test_every_part_of_the_stores_has_rules() -> None:
    parts = {rule.part for rule in RULES}
    assert parts == {"sessions", "nodes", "directory", "events", "tasks", "values", "bus", "limits", "locks", "seen"}
    assert all(rule.sentence.endswith((".", ").")) for rule in RULES)
