"""The stores of one SQLite file: sessions, leases of nodes, their directory, events, tasks, values."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection
from typing import Any

from msgspec import structs

from ferrule.errors import Busy
from ferrule.stores.contracts import DirectoryEntry, SessionRecord, StoredTask
from ferrule.stores.event_mirror import consecutive
from ferrule.stores.memory import FULL
from ferrule.stores.memory_cluster import IDLE
from ferrule.stores.records import (
    ForeignRecord,
    decode_session,
    decode_task,
    encode_session,
    encode_task,
)
from ferrule.stores.sqlite.database import Database

logger = logging.getLogger("ferrule.stores")

COUNT_EVERY = 1000
"""New rows after which the rows of a table are counted again: others may have been taken out."""
SWEEP = 500
"""Rows that are forgotten in one go, so that others do not wait long."""


class _Room:
    """How many rows a table may have; counted now and then, since counting reads the whole of it."""

    def __init__(self, count: str, most: int, what: str) -> None:
        self._count = count
        self._most = most
        self._what = what
        self._known = most
        self._since = 0

    def take(self, connection: sqlite3.Connection) -> None:
        """Count one more row; raise Busy where that is too many."""
        if self._known >= self._most or self._since >= COUNT_EVERY:
            self._known = connection.execute(self._count).fetchone()[0]
            self._since = 0
        if self._known >= self._most:
            raise Busy(f"Busy: the store keeps as many {self._what} as it can, {self._most}")
        self._known += 1
        self._since += 1


class SqliteNodes:
    """Leases of the processes that share a file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def renew(self, node: str, about: bytes, ttl: float) -> bool:
        """Take or extend a lease, and keep what the node says about itself. Return whether it still had one."""
        now = self._database.now()

        def work(connection: sqlite3.Connection) -> bool:
            had = _lives(connection, node, now)
            connection.execute("DELETE FROM nodes WHERE expires <= ?", (now,))
            connection.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?)", (node, now + ttl, about))
            return had

        return await self._database.execute(work, len(about))

    async def release(self, node: str) -> None:
        """End a lease."""
        await self._database.execute(lambda connection: _run(connection, "DELETE FROM nodes WHERE id = ?", node))

    async def find(self, node: str) -> bytes | None:
        """Return what a living node says about itself; None when its lease is over."""
        return (await self.living()).get(node)

    async def living(self) -> dict[str, bytes]:
        """Return all living nodes and what they say about themselves."""
        query = "SELECT id, about FROM nodes WHERE expires > ?"
        now = self._database.now()
        return dict(await self._database.execute(lambda connection: connection.execute(query, (now,)).fetchall()))


def _lives(connection: sqlite3.Connection, node: str, now: float) -> bool:
    return bool(connection.execute("SELECT 1 FROM nodes WHERE id = ? AND expires > ?", (node, now)).fetchone())


def _run(connection: sqlite3.Connection, statement: str, *values: Any) -> int:
    """Run a statement. Return how many rows it changed."""
    return connection.execute(statement, values).rowcount


class SqliteDirectory:
    """What the processes that share a file offer."""

    def __init__(self, database: Database, max_entries: int = 100_000) -> None:
        self._database = database
        self._room = _Room("SELECT count(*) FROM entries", max_entries, "entries")

    async def put(self, kind: str, name: str, entry: DirectoryEntry) -> bool:
        """Keep an entry. Return False where a living node other than its own has the name."""
        now = self._database.now()

        def work(connection: sqlite3.Connection) -> bool:
            query = "SELECT node FROM entries WHERE kind = ? AND name = ?"
            old = connection.execute(query, (kind, name)).fetchone()
            if old is not None and old[0] != entry.node and _lives(connection, old[0], now):
                return False
            if old is None:
                self._room.take(connection)
            _run(connection, "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", kind, name, entry.node, entry.record)
            return True

        return await self._database.execute(work, len(entry.record))

    async def drop(self, kind: str, name: str, node: str) -> None:
        """Take out the entry of a node; harmless when the name is free or another's."""
        statement = "DELETE FROM entries WHERE kind = ? AND name = ? AND node = ?"
        await self._database.execute(lambda connection: _run(connection, statement, kind, name, node))

    async def entries(self, kind: str) -> dict[str, DirectoryEntry]:
        """Return the entries of a kind whose nodes live."""
        now = self._database.now()
        query = (
            "SELECT name, node, record FROM entries WHERE kind = ? AND node IN (SELECT id FROM nodes WHERE expires > ?)"
        )
        rows = await self._database.execute(lambda connection: connection.execute(query, (kind, now)).fetchall())
        found = {}
        for name, node, record in rows:
            found[name] = DirectoryEntry(node, record)
        return found


class SqliteSessions:
    """Sessions by id."""

    def __init__(self, database: Database, *, idle: float = IDLE, max_sessions: int = 1_000_000) -> None:
        self._database = database
        self._idle = idle
        self._room = _Room("SELECT count(*) FROM sessions", max_sessions, "sessions")

    async def create(self, record: SessionRecord) -> SessionRecord | None:
        """Keep a new session and return it with its epoch and times; None where the id is taken."""
        now = self._database.now()
        new = structs.replace(record, epoch=1, created=now, seen=now)
        encoded = encode_session(new)

        def work(connection: sqlite3.Connection) -> SessionRecord | None:
            if self._row(connection, record.id, now) is not None:
                return None
            self._expire(connection, now)
            self._room.take(connection)
            values = (new.id, new.owner, 1, now, now, encoded)
            connection.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)", values)
            return new

        return await self._database.execute(work, len(encoded))

    def _row(self, connection: sqlite3.Connection, session_id: str, now: float) -> SessionRecord | None:
        query = "SELECT record, owner, epoch, created, seen FROM sessions WHERE id = ? AND seen > ?"
        row = connection.execute(query, (session_id, now - self._idle)).fetchone()
        if row is None:
            return None
        try:
            record = decode_session(row[0])
        except ForeignRecord as error:
            logger.warning("session %s is set aside: %s", session_id[:8], error)
            return None
        return structs.replace(record, owner=row[1], epoch=row[2], created=row[3], seen=row[4])

    async def get(self, session_id: str) -> SessionRecord | None:
        """Return a session; None when there is none or it has expired."""
        now = self._database.now()
        return await self._database.execute(lambda connection: self._row(connection, session_id, now))

    async def save(self, record: SessionRecord) -> bool:
        """Keep what changed. Return False, and change nothing, unless its owner and epoch are those that are kept."""
        now = self._database.now()
        encoded = encode_session(record)
        statement = "UPDATE sessions SET record = ?, seen = ? WHERE id = ? AND owner = ? AND epoch = ? AND seen > ?"
        values = (encoded, now, record.id, record.owner, record.epoch, now - self._idle)
        return await self._database.execute(lambda connection: _run(connection, statement, *values) == 1, len(encoded))

    def touch(self, record: SessionRecord) -> None:
        """Note that a session is in use; ignored unless its owner and epoch are those that are kept."""
        now = self._database.now()
        statement = "UPDATE sessions SET seen = ? WHERE id = ? AND owner = ? AND epoch = ? AND seen > ?"
        values = (now, record.id, record.owner, record.epoch, now - self._idle)
        self._database.write(lambda connection: _run(connection, statement, *values))

    async def claim(self, session_id: str, node: str) -> SessionRecord | None:
        """Make a node the owner, with the next epoch, if it is the owner or the owner's lease is over."""
        now = self._database.now()

        def work(connection: sqlite3.Connection) -> SessionRecord | None:
            kept = self._row(connection, session_id, now)
            if kept is None or (kept.owner != node and _lives(connection, kept.owner, now)):
                return None
            claimed = structs.replace(kept, owner=node, epoch=kept.epoch + 1, seen=now)
            statement = "UPDATE sessions SET owner = ?, epoch = ?, seen = ? WHERE id = ?"
            _run(connection, statement, node, claimed.epoch, now, session_id)
            return claimed

        return await self._database.execute(work)

    async def release(self, record: SessionRecord) -> bool:
        """Leave a session to whoever claims it. Return False unless its owner and epoch are those that are kept."""
        statement = "UPDATE sessions SET owner = '', epoch = epoch + 1 WHERE id = ? AND owner = ? AND epoch = ?"
        values = (record.id, record.owner, record.epoch)
        return await self._database.execute(lambda connection: _run(connection, statement, *values) == 1)

    async def delete(self, session_id: str) -> None:
        """Forget a session; harmless when there is none."""
        statement = "DELETE FROM sessions WHERE id = ?"
        await self._database.execute(lambda connection: _run(connection, statement, session_id))

    async def expire(self) -> None:
        """Forget what has expired."""
        now = self._database.now()
        while await self._database.execute(lambda connection: self._expire(connection, now)) == SWEEP:
            pass

    def _expire(self, connection: sqlite3.Connection, now: float) -> int:
        statement = "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE seen <= ? LIMIT ?)"
        return _run(connection, statement, now - self._idle, SWEEP)


class SqliteEvents:
    """Events of streams, as the copy of a `MirroredLog`."""

    def __init__(self, database: Database, age: float) -> None:
        self._database = database
        self._age = age

    def append(self, stream: str, number: int, first: int, event: bytes) -> None:
        """Keep one event, and forget those of the stream before the number `first`."""
        now = self._database.now()

        def work(connection: sqlite3.Connection) -> None:
            _run(connection, "INSERT OR REPLACE INTO events VALUES (?, ?, ?)", stream, number, event)
            _run(connection, "INSERT OR REPLACE INTO streams VALUES (?, ?)", stream, now)
            _run(connection, "DELETE FROM events WHERE stream = ? AND number < ?", stream, first)

        self._database.write(work, len(event))

    def trim(self, stream: str, first: int) -> None:
        """Forget the events of a stream before a number."""
        statement = "DELETE FROM events WHERE stream = ? AND number < ?"
        self._database.write(lambda connection: _run(connection, statement, stream, first))

    def forget(self, stream: str) -> None:
        """Forget a stream."""
        self._database.write(lambda connection: _forget_stream(connection, stream))

    def sweep(self) -> None:
        """Forget the streams that were silent for too long."""
        now = self._database.now()
        query = "SELECT stream FROM streams WHERE spoke <= ? LIMIT ?"

        def work(connection: sqlite3.Connection) -> None:
            for (stream,) in connection.execute(query, (now - self._age, SWEEP)).fetchall():
                _forget_stream(connection, stream)

        self._database.write(work)

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Return the events after a number, in order; None when some of them are forgotten."""
        if number < 0:
            return None
        now = self._database.now()
        query = "SELECT number, event FROM events WHERE stream = ? AND number >= ? ORDER BY number"

        def work(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
            lasting = "SELECT 1 FROM streams WHERE stream = ? AND spoke > ?"
            if connection.execute(lasting, (stream, now - self._age)).fetchone() is None:
                return []
            return connection.execute(query, (stream, number)).fetchall()

        return consecutive(await self._database.execute(work), number)


def _forget_stream(connection: sqlite3.Connection, stream: str) -> None:
    _run(connection, "DELETE FROM events WHERE stream = ?", stream)
    _run(connection, "DELETE FROM streams WHERE stream = ?", stream)


COUNT_TASKS = "SELECT count(*) FROM tasks"
COUNT_OWN = "SELECT count(*) FROM tasks WHERE owner = ?"
OLDEST_ENDED = "SELECT id FROM tasks WHERE ended IS NOT NULL ORDER BY ended LIMIT 1"
OLDEST_OWN = "SELECT id FROM tasks WHERE owner = ? AND ended IS NOT NULL ORDER BY ended LIMIT 1"


def _count(connection: sqlite3.Connection, query: str, *values: str) -> int:
    return int(connection.execute(query, values).fetchone()[0])


def _forget_ended(connection: sqlite3.Connection, oldest: str, *values: str) -> None:
    row = connection.execute(oldest, values).fetchone()
    if row is None:
        raise Busy(FULL)
    _run(connection, "DELETE FROM tasks WHERE id = ?", row[0])


class SqliteTasks:
    """Tasks by id; over a bound, the one that ended longest ago goes first."""

    def __init__(self, database: Database, *, max_tasks: int = 10_000, max_per_owner: int = 1000) -> None:
        self._database = database
        self._max_tasks = max_tasks
        self._max_per_owner = max_per_owner

    async def create(self, task: StoredTask, now: float) -> None:
        """Keep a new task; raises Busy when there is no room for one more."""
        at = self._database.now()
        expires = None
        if task.ttl is not None:
            expires = at + task.ttl
        encoded = encode_task(task)

        def work(connection: sqlite3.Connection) -> None:
            _run(connection, "DELETE FROM tasks WHERE expires <= ?", at)
            if task.owner and _count(connection, COUNT_OWN, task.owner) >= self._max_per_owner:
                _forget_ended(connection, OLDEST_OWN, task.owner)
            if _count(connection, COUNT_TASKS) >= self._max_tasks:
                _forget_ended(connection, OLDEST_ENDED)
            values = (task.id, task.owner, task.status, task.created, expires, None, encoded)
            _run(connection, "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?)", *values)

        await self._database.execute(work, len(encoded))

    async def get(self, task_id: str, now: float) -> StoredTask | None:
        """Return a task; None when there is none or it has expired."""
        at = self._database.now()
        query = "SELECT record FROM tasks WHERE id = ? AND (expires IS NULL OR expires > ?)"
        rows = await self._database.execute(lambda connection: connection.execute(query, (task_id, at)).fetchall())
        for task in _read_tasks(rows):
            return task
        return None

    async def update(self, task: StoredTask, expected: Collection[str]) -> bool:
        """Put a task in the place of the one kept, if that is still in an expected status. Return whether it was."""
        encoded = encode_task(task)

        def work(connection: sqlite3.Connection) -> bool:
            row = connection.execute("SELECT status FROM tasks WHERE id = ?", (task.id,)).fetchone()
            if row is None or row[0] not in expected:
                return False
            ended = None
            if task.ended:
                ended = connection.execute("SELECT coalesce(max(ended), 0) + 1 FROM tasks").fetchone()[0]
            statement = "UPDATE tasks SET status = ?, ended = ?, record = ? WHERE id = ?"
            _run(connection, statement, task.status, ended, encoded, task.id)
            return True

        return await self._database.execute(work, len(encoded))

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int, now: float) -> list[StoredTask]:
        """Return tasks of one owner by time of creation and id, those after a given pair, at most so many."""
        at = self._database.now()
        query = """SELECT record FROM tasks
            WHERE owner = ? AND (expires IS NULL OR expires > ?) AND (created, id) > (?, ?)
            ORDER BY created, id LIMIT ?"""
        created, task_id = after or (float("-inf"), "")
        values = (owner, at, created, task_id, limit)
        return _read_tasks(
            await self._database.execute(lambda connection: connection.execute(query, values).fetchall())
        )

    async def delete(self, task_id: str) -> None:
        """Forget a task; harmless when there is none."""
        await self._database.execute(lambda connection: _run(connection, "DELETE FROM tasks WHERE id = ?", task_id))

    async def expire(self, now: float) -> float | None:
        """Forget what has expired. Return when the next will, None when nothing does."""
        at = self._database.now()

        def work(connection: sqlite3.Connection) -> float | None:
            _run(connection, "DELETE FROM tasks WHERE expires <= ?", at)
            found: float | None = connection.execute("SELECT min(expires) FROM tasks").fetchone()[0]
            return found

        following = await self._database.execute(work)
        if following is None:
            return None
        return now + following - at


def _read_tasks(rows: list[tuple[bytes]]) -> list[StoredTask]:
    tasks = []
    for (record,) in rows:
        try:
            tasks.append(decode_task(record))
        except ForeignRecord as error:
            logger.warning("a task is set aside: %s", error)
    return tasks


class SqliteValues:
    """Values by key."""

    def __init__(self, database: Database, *, max_values: int = 1_000_000) -> None:
        self._database = database
        self._room = _Room("SELECT count(*) FROM stored_values", max_values, "values")

    async def get(self, key: str) -> bytes | None:
        """Return a value; None when there is none or it expired."""
        now = self._database.now()
        row = await self._database.execute(lambda connection: _value(connection, key, now))
        if row is None:
            return None
        return row[0]

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Keep a value, for `ttl` seconds where it is given; raises Busy when there is no room for it."""
        await self._put(key, value, ttl, replace=True)

    async def add(self, key: str, value: bytes, ttl: float | None = None) -> bool:
        """Keep a value unless there is one. Return whether it was kept."""
        return await self._put(key, value, ttl, replace=False)

    async def _put(self, key: str, value: bytes, ttl: float | None, *, replace: bool) -> bool:
        now = self._database.now()
        expires = None
        if ttl is not None:
            expires = now + ttl

        def work(connection: sqlite3.Connection) -> bool:
            old = _value(connection, key, now)
            if old is not None and not replace:
                return False
            statement = (
                "DELETE FROM stored_values WHERE key IN (SELECT key FROM stored_values WHERE expires <= ? LIMIT ?)"
            )
            _run(connection, statement, now, SWEEP)
            if old is None:
                self._room.take(connection)
            _run(connection, "INSERT OR REPLACE INTO stored_values VALUES (?, ?, ?)", key, expires, value)
            return True

        return await self._database.execute(work, len(value))

    async def replace(self, key: str, old: bytes, new: bytes, ttl: float | None = None) -> bool:
        """Keep a value in the place of the one that is expected. Return whether that was there."""
        now = self._database.now()
        expires = None if ttl is None else now + ttl

        def work(connection: sqlite3.Connection) -> bool:
            if _value(connection, key, now) != (old,):
                return False
            _run(connection, "INSERT OR REPLACE INTO stored_values VALUES (?, ?, ?)", key, expires, new)
            return True

        return await self._database.execute(work, len(new))

    async def take(self, key: str) -> bytes | None:
        """Return a value and forget it: only one of those who ask at once gets it."""
        now = self._database.now()

        def work(connection: sqlite3.Connection) -> bytes | None:
            found = _value(connection, key, now)
            _run(connection, "DELETE FROM stored_values WHERE key = ?", key)
            return None if found is None else found[0]

        return await self._database.execute(work)

    async def delete(self, key: str) -> None:
        """Forget a value; harmless when there is none."""
        await self._database.execute(
            lambda connection: _run(connection, "DELETE FROM stored_values WHERE key = ?", key)
        )


def _value(connection: sqlite3.Connection, key: str, now: float) -> tuple[bytes] | None:
    query = "SELECT value FROM stored_values WHERE key = ? AND (expires IS NULL OR expires > ?)"
    row: tuple[bytes] | None = connection.execute(query, (key, now)).fetchone()
    return row
