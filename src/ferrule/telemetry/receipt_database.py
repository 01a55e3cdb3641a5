"""ReceiptDatabase: chains of receipts in one SQLite file, a row a record, a transaction a batch.

Rule 1: a row holds the line that a file would hold, so that hashes, seals and what a verification finds are the same.
Rule 2: one process writes into it, at any time; others read, each a part at a time, so that the log of SQLite is never
held long.
Rule 3: a file of somebody else, or of a newer Ferrule, is left as it is.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ferrule.errors import SetupError
from ferrule.telemetry.receipt_files import ReceiptLock
from ferrule.telemetry.receipts import NO_HASH, verify

APPLICATION_ID = 0x4645_5252
"""Marks a file as ours in its header: `FERR` (https://www.sqlite.org/fileformat.html#application_id)."""
SCHEMA_VERSION = 1
"""Kept as `user_version`; 0 is a new file."""
SCHEMA = (
    "CREATE TABLE files (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, written REAL NOT NULL)",
    """CREATE TABLE records (
        file INTEGER NOT NULL, n INTEGER NOT NULL, line BLOB NOT NULL, PRIMARY KEY (file, n)) WITHOUT ROWID""",
    """CREATE TABLE removed (
        number INTEGER PRIMARY KEY, file TEXT NOT NULL, records INTEGER NOT NULL, last TEXT NOT NULL)""",
)
LOCKED_FOR = 1.0
"""Seconds another process may hold the file before a batch is lost."""
LARGEST_LOG = 16 << 20
"""Bytes of the write-ahead log that stay on the disk after a large batch."""
READ_TOGETHER = 1000
"""Records that are read at a time."""


class ReceiptDatabase:
    """A SQLite file with chains of receipts."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.size = 0
        """The bytes of the lines of the open file."""
        self._number = 0
        """The number of the open file; 0 without one."""
        self._records = 0
        """How many records that one has."""
        self._lock = ReceiptLock(self.path_of("lock"), f"{self.path}: give each its own file")
        self._connection: sqlite3.Connection | None = None
        """Used by one thread at a time."""

    # Writing

    @property
    def is_open(self) -> bool:
        """Whether a file is being written."""
        return self._number > 0

    def path_of(self, name: str) -> Path:
        """Return where something else is kept that belongs to the receipts: beside the SQLite file."""
        return self.path.with_name(f"{self.path.name}.{name}")

    def take(self) -> None:
        """Make or open the SQLite file; raise SetupError where another process writes, or another program did."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock.take()
        try:
            # Created here, so that nobody else can read it even for a moment; SQLite gives its other files its mode.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
            with _as_os_errors():
                connection = sqlite3.connect(
                    self.path, timeout=LOCKED_FOR, isolation_level=None, check_same_thread=False
                )
                self._connection = connection
                self._prepare(connection)
        except BaseException:
            self.let_go()
            raise

    def let_go(self) -> None:
        """Close the SQLite file and let others write."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        self._lock.drop()

    def next_name(self, day: str) -> str:
        """Return the name of the next file."""
        numbers = [0]
        for name in self.names():
            begin, _, number = name.rpartition("-")
            if begin == day and number.isdecimal():
                numbers.append(int(number))
        return f"{day}-{max(numbers) + 1}"

    def begin(self, name: str, line: bytes, now: float) -> None:
        """Begin a file with its first line."""
        with self._transaction(sync=True) as connection:
            made = connection.execute("INSERT INTO files (name, written) VALUES (?, ?)", (name, now))
            connection.execute("INSERT INTO records (file, n, line) VALUES (?, 0, ?)", (made.lastrowid, line))
        self._number = int(made.lastrowid or 0)
        self._records = 1
        self.size = len(line)

    def write(self, lines: list[bytes], now: float, *, sync: bool) -> None:
        """Write lines, all or none."""
        first = self._records
        rows = [(self._number, first + position, line) for position, line in enumerate(lines)]
        with self._transaction(sync=sync) as connection:
            connection.executemany("INSERT INTO records (file, n, line) VALUES (?, ?, ?)", rows)
            connection.execute("UPDATE files SET written = ? WHERE number = ?", (now, self._number))
        self._records += len(lines)
        self.size += sum(map(len, lines))

    def end(self) -> None:
        """Let the next receipt begin another file."""
        self._number = 0

    def remove_old(self, before: float) -> None:
        """Remove files last written before a time, and keep the hash each ended with; the newest stays."""
        with self._reader() as connection:
            files = connection.execute("SELECT number, name, written FROM files ORDER BY number").fetchall()
        for number, name, written in files[:-1]:
            if written > before:
                return
            found = verify(self.lines(name))
            with self._transaction(sync=True) as connection:
                kept = (name, found.records, found.last)
                connection.execute("INSERT INTO removed (file, records, last) VALUES (?, ?, ?)", kept)
                connection.execute("DELETE FROM records WHERE file = ?", (number,))
                connection.execute("DELETE FROM files WHERE number = ?", (number,))

    @contextlib.contextmanager
    def _transaction(self, *, sync: bool) -> Iterator[sqlite3.Connection]:
        """Do everything inside or nothing; `sync` forces it to the disk."""
        connection = self._connection
        assert connection is not None
        with _as_os_errors():
            try:
                connection.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self._refuse_strangers(connection)
        self.path.chmod(0o600)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA journal_size_limit={LARGEST_LOG}")
        connection.execute("PRAGMA trusted_schema=OFF")
        if _pragma(connection, "user_version") == 0:
            with self._transaction(sync=True):
                for statement in SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def _refuse_strangers(self, connection: sqlite3.Connection) -> None:
        try:
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            ours = _pragma(connection, "application_id") == APPLICATION_ID
            version = _pragma(connection, "user_version")
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise SetupError(f"{self.path} holds no receipts: {error}") from None
        if tables and not ours:
            raise SetupError(f"{self.path} is a database of something else: choose another path for receipts")
        if version > SCHEMA_VERSION:
            raise SetupError(
                f"{self.path} was written by a newer Ferrule (schema {version}, this one knows {SCHEMA_VERSION}): "
                "upgrade Ferrule, or choose another path for receipts"
            )

    # Reading

    def names(self) -> list[str]:
        """Return the names of the files in the order they were begun."""
        with self._reader() as connection:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return []
            return [str(name) for (name,) in connection.execute("SELECT name FROM files ORDER BY number").fetchall()]

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file."""
        position = -1
        select = (
            "SELECT n, coalesce(CAST(line AS BLOB), x'') FROM records WHERE file = "
            "(SELECT number FROM files WHERE name = ?) AND n > ? ORDER BY n LIMIT ?"
        )
        with self._reader() as connection:
            while rows := connection.execute(select, (name, position, READ_TOGETHER)).fetchall():
                for _, line in rows:
                    yield line + b"\n"
                position = rows[-1][0]

    def is_torn(self, name: str) -> bool:
        """Return False: a row is there whole or not at all."""
        return False

    def last_removed(self) -> str:
        """Return the last hash of the file that was removed last."""
        with self._reader() as connection:
            row = connection.execute("SELECT last FROM removed ORDER BY number DESC LIMIT 1").fetchone()
        return NO_HASH if row is None else str(row[0])

    @property
    def is_written_now(self) -> bool:
        """Whether a process writes."""
        return self._lock.is_taken

    @contextlib.contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection that writes, or one that only reads."""
        with _as_os_errors():
            if self._connection is not None:
                yield self._connection
                return
            address = f"{self.path.absolute().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(address, uri=True, timeout=LOCKED_FOR)) as connection:
                self._refuse_strangers(connection)
                connection.execute("PRAGMA trusted_schema=OFF")
                yield connection


@contextlib.contextmanager
def _as_os_errors() -> Iterator[None]:
    """Have what fails in SQLite fail as a file does."""
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(f"SQLite: {error}") from error


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
