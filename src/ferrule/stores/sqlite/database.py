"""Database: one SQLite file and the one thread that uses it.

Rule 1: the event loop never waits for the disk. Jobs run in the thread, in the order they were given.
Rule 2: jobs that wait together are committed together, and a job is done when that commit is on the disk. What is
written behind waits for others at most the flush window, so a crash loses no more than that.
Rule 3: a file of somebody else, or of a newer Ferrule, is left as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from ferrule.errors import FerruleError, SetupError, StoreUnavailable

logger = logging.getLogger("ferrule.stores")

FLUSH_WINDOW = 0.02
"""Seconds that what is written behind may wait for others."""
MOST_TOGETHER = 1000
"""Jobs of one commit."""
MOST_WAITING = 10_000
MOST_WAITING_BYTES = 16 * 1024 * 1024
"""What waits for the thread; beyond, what is written behind is dropped, the oldest first."""
LOCKED_FOR = 5.0
"""Seconds another process may hold the file."""
LOOK = 0.1
"""Seconds between two looks whether it still does, and whether the store is being closed."""
GRACE = 2.0
"""Seconds that what waits has when the store is closed while another process holds the file."""

# The tables; times are seconds of the store's own clock.

APPLICATION_ID = 0x4645_5255
"""Marks a file as ours in its header: `FERU` (https://www.sqlite.org/fileformat.html#application_id)."""

SCHEMA_VERSION = 1
"""Kept as `user_version`; 0 is a new file."""

SCHEMA = (
    "CREATE TABLE clock (boot TEXT NOT NULL, time_offset REAL NOT NULL)",
    """CREATE TABLE sessions (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, epoch INTEGER NOT NULL, created REAL NOT NULL, seen REAL NOT NULL,
        record BLOB NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX sessions_by_use ON sessions (seen)",
    "CREATE TABLE nodes (id TEXT PRIMARY KEY, expires REAL NOT NULL, about BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE entries (
        kind TEXT NOT NULL, name TEXT NOT NULL, node TEXT NOT NULL, record BLOB NOT NULL,
        PRIMARY KEY (kind, name)) WITHOUT ROWID""",
    """CREATE TABLE events (
        stream TEXT NOT NULL, number INTEGER NOT NULL, event BLOB NOT NULL, PRIMARY KEY (stream, number))""",
    "CREATE TABLE streams (stream TEXT PRIMARY KEY, spoke REAL NOT NULL) WITHOUT ROWID",
    "CREATE INDEX streams_by_silence ON streams (spoke)",
    """CREATE TABLE tasks (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, status TEXT NOT NULL, created REAL NOT NULL, expires REAL,
        ended INTEGER, record BLOB NOT NULL)""",
    "CREATE INDEX tasks_by_owner ON tasks (owner, created, id)",
    "CREATE INDEX tasks_by_expiry ON tasks (expires) WHERE expires IS NOT NULL",
    "CREATE INDEX tasks_by_end ON tasks (ended) WHERE ended IS NOT NULL",
    "CREATE TABLE stored_values (key TEXT PRIMARY KEY, expires REAL, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE INDEX values_by_expiry ON stored_values (expires) WHERE expires IS NOT NULL",
)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]


class DatabaseStats(Struct, frozen=True, kw_only=True):
    """What a database has done."""

    commits: int
    jobs: int
    dropped: int
    """Writes that were dropped because too many waited."""
    failed: int
    """Writes behind that failed, for example because the disk is full."""
    waiting: int


class _Job(Struct, eq=False):
    work: Work
    future: asyncio.Future[Any] | None
    size: int
    at: float
    result: Any = None
    error: Exception | None = None


class Database:
    """One file, used by one thread."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] | None = None) -> None:
        self.path = Path(path)
        self._given_clock = clock
        self._offset = 0.0
        self._jobs: deque[_Job] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._urgent = False
        self._closing = False
        self._ends = math.inf
        """When it gives up waiting for another process that holds the file."""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._commits = 0
        self._ran = 0
        self._dropped = 0
        self._failed = 0

    @property
    def stats(self) -> DatabaseStats:
        """What it has done."""
        return DatabaseStats(
            commits=self._commits,
            jobs=self._ran,
            dropped=self._dropped,
            failed=self._failed,
            waiting=len(self._jobs),
        )

    @property
    def state(self) -> str:
        """`ready`, or `closed`."""
        return "closed" if self._thread is None else "ready"

    @property
    def is_gone(self) -> bool:
        """A file is there for everybody or nobody."""
        return True

    def now(self) -> float:
        """Return the time of this store: seconds that never jump, and go on after a restart."""
        if self._given_clock is not None:
            return self._given_clock()
        return _uptime() + self._offset

    # -- life

    async def open(self) -> None:
        """Open the file and start the thread; raise SetupError for a file that is not ours."""
        if self._thread is not None:
            return
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = self._loop.create_future()
        self._closing = False
        self._ends = math.inf
        self._thread = threading.Thread(target=self._run, args=(opened,), name="ferrule-sqlite", daemon=True)
        self._thread.start()
        try:
            await asyncio.shield(opened)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Commit what waits, then close the file. Where another process holds it, that is tried for two seconds."""
        thread = self._thread
        if thread is None:
            return
        with self._changed:
            self._closing = True
            self._ends = time.monotonic() + GRACE
            self._changed.notify()
        await asyncio.to_thread(thread.join)
        self._thread = None

    # -- jobs

    def write(self, work: Work, size: int = 0) -> None:
        """Let the thread do something that nobody waits for."""
        with self._changed:
            self._add(_Job(work, None, size, time.monotonic()))

    async def execute(self, work: Callable[[sqlite3.Connection], T], size: int = 0) -> T:
        """Let the thread do something, and wait until it is on the disk."""
        if self._thread is None or self._loop is None or self._closing:
            raise StoreUnavailable(f"{self.path.name} is not open")
        future: asyncio.Future[T] = self._loop.create_future()
        with self._changed:
            self._make_room(size)
            self._urgent = True
            self._add(_Job(work, future, size, time.monotonic()))
        # Whoever waits may be cancelled; the job is done all the same.
        return await future

    def _add(self, job: _Job) -> None:
        self._jobs.append(job)
        self._size += job.size
        while len(self._jobs) > MOST_WAITING or self._size > MOST_WAITING_BYTES:
            if not self._drop_oldest():
                break
        if self._urgent or len(self._jobs) == 1:
            self._changed.notify()

    def _make_room(self, size: int) -> None:
        """Drop what is written behind until a job has room; raises StoreUnavailable where there is not enough of it."""
        while len(self._jobs) >= MOST_WAITING or self._size + size > MOST_WAITING_BYTES:
            if size > MOST_WAITING_BYTES or not self._drop_oldest():
                raise StoreUnavailable(f"{len(self._jobs)} operations wait for {self.path.name} already")

    def _drop_oldest(self) -> bool:
        for position, job in enumerate(self._jobs):
            if job.future is None:
                del self._jobs[position]
                self._size -= job.size
                self._dropped += 1
                return True
        return False

    # -- the thread

    def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            connection = self._connect()
        except Exception as error:  # whatever it is, `open` raises it
            self._deliver(opened, None, error)
            return
        self._deliver(opened, None, None)
        with contextlib.closing(connection):
            while batch := self._next():
                self._commit(connection, batch)
                self._report(batch)
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _next(self) -> list[_Job]:
        """Wait for jobs; return none when it is over."""
        with self._changed:
            while True:
                if self._jobs:
                    left = self._jobs[0].at + FLUSH_WINDOW - time.monotonic()
                    if self._urgent or self._closing or left <= 0 or len(self._jobs) >= MOST_TOGETHER:
                        break
                    self._changed.wait(left)
                elif self._closing:
                    return []
                else:
                    self._changed.wait()
            batch: list[_Job] = []
            while self._jobs and len(batch) < MOST_TOGETHER:
                job = self._jobs.popleft()
                self._size -= job.size
                batch.append(job)
            if not self._jobs:
                self._urgent = False
            return batch

    def _commit(self, connection: sqlite3.Connection, batch: list[_Job]) -> None:
        """Run jobs in one transaction; where one fails for the database's sake, each in its own."""
        try:
            self._transact(connection, batch)
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                self._commit_each(connection, batch)
            elif time.monotonic() < self._ends:
                self._postpone(batch, error)
            else:
                for job in batch:
                    job.error = StoreUnavailable(f"{self.path.name}: {error}")
        except sqlite3.Error:
            self._commit_each(connection, batch)

    def _commit_each(self, connection: sqlite3.Connection, batch: list[_Job]) -> None:
        for job in batch:
            try:
                self._transact(connection, [job])
            except sqlite3.Error as error:
                job.error = StoreUnavailable(f"{self.path.name}: {error}")

    def _postpone(self, batch: list[_Job], error: sqlite3.Error) -> None:
        """Fail what is awaited while another process holds the file; what is written behind is tried again."""
        behind = []
        for job in batch:
            if job.future is None:
                behind.append(job)
            else:
                job.error = StoreUnavailable(f"{self.path.name}: {error}")
        batch[:] = [job for job in batch if job.future is not None]
        with self._changed:
            self._jobs.extendleft(reversed(behind))
            self._size += sum(job.size for job in behind)

    def _transact(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        for job in jobs:
            job.error = None
        try:
            self._begin(connection)
            for job in jobs:
                try:
                    job.result = job.work(connection)
                except sqlite3.Error:
                    raise
                except Exception as error:  # a refusal: a job refuses before it writes
                    job.error = error
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._commits += 1

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction as soon as no other process holds the file."""
        began = time.monotonic()
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() >= min(began + LOCKED_FOR, self._ends):
                    raise
            else:
                return

    def _report(self, batch: list[_Job]) -> None:
        self._ran += len(batch)
        awaited = []
        for job in batch:
            if job.future is not None:
                awaited.append(job)
            elif job.error is not None:
                if not self._failed:
                    logger.warning("a write to %s failed: %s; more are counted and not logged", self.path, job.error)
                self._failed += 1
        if awaited and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(_resolve, awaited)

    def _deliver(self, future: asyncio.Future[None], result: None, error: Exception | None) -> None:
        job = _Job(_nothing, future, 0, 0.0, result, error)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_resolve, [job])

    # -- the file

    def _connect(self) -> sqlite3.Connection:
        try:
            # Created here, so that nobody else can read it even for a moment; SQLite gives its other files the mode of
            # this one.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
            connection = sqlite3.connect(self.path, timeout=LOCKED_FOR, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise SetupError(f"the store {self.path} cannot be opened: {error}") from error
        try:
            self._prepare(connection)
        except sqlite3.DatabaseError as error:
            connection.close()
            raise SetupError(f"{self.path} cannot be used as a store: {error}; choose another path") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self._refuse_strangers(connection)
        self.path.chmod(0o600)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have been first.
        if _pragma(connection, "user_version") == 0:
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        self._offset = _clock_offset(connection)
        connection.execute("COMMIT")
        connection.execute(f"PRAGMA busy_timeout={round(LOOK * 1000)}")

    def _refuse_strangers(self, connection: sqlite3.Connection) -> None:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        version = _pragma(connection, "user_version")
        if tables and _pragma(connection, "application_id") != APPLICATION_ID:
            raise SetupError(f"{self.path} is a database of another program: choose another path for the store")
        if version > SCHEMA_VERSION:
            raise SetupError(
                f"{self.path} was written by a newer Ferrule (schema {version}, this one knows {SCHEMA_VERSION}): "
                "upgrade Ferrule, or choose another path for the store"
            )


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        future = job.future
        if future is None or future.done():
            continue
        if job.error is None:
            future.set_result(job.result)
        elif isinstance(job.error, FerruleError):
            future.set_exception(job.error)
        else:
            future.set_exception(StoreUnavailable(f"{type(job.error).__name__}: {job.error}"))


def _nothing(connection: sqlite3.Connection) -> None:
    """Do nothing."""


# Time: processes of one machine agree on it, whatever happens to the clock on the wall, and it goes on after a restart
# of the machine where that clock stands, but never back.


def _uptime() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _boot() -> str:
    """Return what names the time since the machine was started; random where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return os.urandom(16).hex()


def _clock_offset(connection: sqlite3.Connection) -> float:
    """Return what must be added to the uptime for the store's time."""
    boot = _boot()
    row = connection.execute("SELECT boot, time_offset FROM clock").fetchone()
    if row is not None and row[0] == boot:
        return float(row[1])
    latest = connection.execute("SELECT max(seen) FROM sessions").fetchone()[0] or 0.0
    offset = max(time.time(), float(latest)) - _uptime()
    connection.execute("DELETE FROM clock")
    connection.execute("INSERT INTO clock (boot, time_offset) VALUES (?, ?)", (boot, offset))
    return offset
