"""Sessions in Redis: read where a client changed node, written by their owner, fenced by the epoch."""

from __future__ import annotations

from msgspec import structs

from ferrule.stores.contracts import SessionRecord
from ferrule.stores.memory_cluster import IDLE
from ferrule.stores.records import ForeignRecord, decode_session, encode_session
from ferrule.stores.redis.backend import RedisBackend
from ferrule.stores.redis.scripts import CLAIM_SESSION, CREATE_SESSION, RELEASE_SESSION, SAVE_SESSION

FIELDS = ("r", "o", "e", "c", "s")


class RedisSessions:
    """Sessions by id."""

    def __init__(self, redis: RedisBackend, *, idle: float = IDLE) -> None:
        self._redis = redis
        self._idle = round(idle * 1000)

    def _key(self, session_id: str) -> str:
        return self._redis.key("s", f"{{{session_id}}}")

    async def create(self, record: SessionRecord) -> SessionRecord | None:
        """Keep a new session and return it with its epoch and times; None where the id is taken."""
        new = structs.replace(record, epoch=1)
        key = self._key(record.id)
        stamp = await self._redis.run(CREATE_SESSION, [key], encode_session(new), record.owner, self._idle)
        if stamp is None:
            return None
        at = int(stamp) / 1000
        return structs.replace(new, created=at, seen=at)

    async def get(self, session_id: str) -> SessionRecord | None:
        """Return a session; None when there is none or it has expired."""
        key = self._key(session_id)
        found = await self._redis.read(key, "hash", *FIELDS)
        if found is None:
            return None
        return await self._redis.decoded(key, found[0], lambda _: _record(found))

    async def save(self, record: SessionRecord) -> bool:
        """Keep what changed. Return False, and change nothing, unless its owner and epoch are those that are kept."""
        key = self._key(record.id)
        arguments = (record.owner, record.epoch, self._idle, encode_session(record))
        try:
            return bool(await self._redis.run(SAVE_SESSION, [key], *arguments))
        except ForeignRecord as reason:
            await self._redis.set_aside(key, reason)
            return False

    def touch(self, record: SessionRecord) -> None:
        """Note that a session is in use; ignored unless its owner and epoch are those that are kept."""
        self._redis.write_script(SAVE_SESSION, [self._key(record.id)], record.owner, record.epoch, self._idle)

    async def claim(self, session_id: str, node: str) -> SessionRecord | None:
        """Make a node the owner, with the next epoch, if it is the owner or the owner's lease is over."""
        key = self._key(session_id)
        try:
            epoch = await self._redis.run(CLAIM_SESSION, [key], node, self._idle, self._redis.key("n"))
        except ForeignRecord as reason:
            await self._redis.set_aside(key, reason)
            return None
        if not epoch:
            return None
        kept = await self.get(session_id)
        # Another node may have claimed it since, after this one was dead for a lease.
        if kept is None or (kept.owner, kept.epoch) != (node, epoch):
            return None
        return kept

    async def release(self, record: SessionRecord) -> bool:
        """Leave a session to whoever claims it. Return False unless its owner and epoch are those that are kept."""
        key = self._key(record.id)
        try:
            return bool(await self._redis.run(RELEASE_SESSION, [key], record.owner, record.epoch))
        except ForeignRecord as reason:
            await self._redis.set_aside(key, reason)
            return False

    async def delete(self, session_id: str) -> None:
        """Forget a session; harmless when there is none."""
        key = self._key(session_id)
        await self._redis.execute(key, "UNLINK", key)

    async def expire(self) -> None:
        """Redis forgets what has expired by itself."""


def _record(found: list[bytes]) -> SessionRecord:
    record = decode_session(found[0])
    try:
        owner = found[1].decode()
        return structs.replace(
            record, owner=owner, epoch=int(found[2]), created=int(found[3]) / 1000, seen=int(found[4]) / 1000
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise ForeignRecord(f"it has no owner, epoch or time that can be read: {error}") from error
