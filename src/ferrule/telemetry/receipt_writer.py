"""ReceiptWriter: makes receipts a chain and writes them, by one thread, into files of a folder or into a SQLite file.

Rule 1: `record` never waits. Where the queue is full, or the disk is, receipts are lost; they are counted, and a `gap`
record says how many as soon as one can be written.
Rule 2: a batch is written whole or not at all.
Rule 3: a file is a chain. It begins with the last hash of the file before it, also across a restart.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.telemetry.receipt_files import ReceiptFiles
from ferrule.telemetry.receipts import (
    CheckSignature,
    Receipt,
    ReceiptChain,
    Recorded,
    Sign,
    Verification,
    hash_of,
    verify,
)
from ferrule.telemetry.redaction import RecordRule, content_to_keep

logger = logging.getLogger("ferrule.telemetry")

MIB = 1 << 20
DAY = 86_400.0
CALL = "tools/call"
KEY_FILE = "digest.key"
"""Holds the key for digests, where none is given."""
DATABASES = (".db", ".sqlite", ".sqlite3")
"""How the name of a SQLite file ends."""
RETRY_INTERVAL = 1.0
"""How often one looks whether files can be written again, in seconds."""
FAIR_SHARE = 200
"""How many receipts are made into lines before the event loop may run."""


class ReceiptPlace(Protocol):
    """Where chains are kept, each as a file with a name: files of a folder, or the like in a SQLite file.

    Whatever writes raises OSError where it cannot.
    """

    @property
    def is_open(self) -> bool:
        """Whether a file is being written."""

    @property
    def size(self) -> int:
        """The bytes of that file."""

    def path_of(self, name: str) -> Path:
        """Return where something else is kept that belongs to the receipts."""

    def take(self) -> None:
        """Make the place ready to be written; raise SetupError where another process writes there."""

    def let_go(self) -> None:
        """Let others write there."""

    def next_name(self, day: str) -> str:
        """Return the name of the next file."""

    def begin(self, name: str, line: bytes, now: float) -> None:
        """Begin a file with its first line."""

    def write(self, lines: list[bytes], now: float, *, sync: bool) -> None:
        """Write lines, all or none; where what was written cannot be taken back, the file is left for another."""

    def end(self) -> None:
        """Close the file."""

    def remove_old(self, before: float) -> None:
        """Remove the files last written before a time, and keep the hash each ended with; the newest stays."""

    def names(self) -> list[str]:
        """Return the names of the files in the order they were begun."""

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the whole lines of a file."""

    def is_torn(self, name: str) -> bool:
        """Return whether the last line of a file is not whole."""

    def last_removed(self) -> str:
        """Return the last hash of the file that was removed last."""

    @property
    def is_written_now(self) -> bool:
        """Whether a process writes there."""


def is_database(path: str | Path) -> bool:
    """Return whether receipts at a path are in a SQLite file."""
    path = Path(path)
    return path.suffix in DATABASES and not path.is_dir()


def place_of(path: str | Path) -> ReceiptPlace:
    """Return where receipts are kept: in a SQLite file by its name, else in a folder."""
    if is_database(path):
        from ferrule.telemetry.receipt_database import ReceiptDatabase

        return ReceiptDatabase(path)
    return ReceiptFiles(path)


class ReceiptSettings(Struct, frozen=True, kw_only=True):
    """How receipts are kept; times are in seconds."""

    max_file: int = 64 * MIB
    """Bytes after which the next file begins."""
    queue: int = 10_000
    """How many receipts may wait to be written."""
    queue_bytes: int = 64 * MIB
    """How many bytes of arguments and results may wait with them, to be digested."""
    commit_interval: float = 0.05
    """How long receipts are gathered before they are written together."""
    durable: bool = True
    """Whether each such batch is forced to the disk; else at most once a second."""
    seal_every: int = 1_000
    seal_interval: float = 60.0
    """After how many records, or how long, a seal is written, where there is a key."""
    keep_days: float = 30.0
    """After how many days a file is removed; its last hash stays."""


class ReceiptWriter:
    """Writes receipts into a folder, or into a SQLite file."""

    def __init__(
        self,
        path: str | Path,
        *,
        node: str = "",
        software: str = "ferrule",
        key: bytes | Callable[[Path], bytes | None] | None = None,
        key_name: str = "",
        sign: Sign | None = None,
        rules: Sequence[RecordRule] = (),
        settings: ReceiptSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._place = place_of(path)
        self.written = 0
        """How many receipts are on the disk."""
        self.failure = ""
        """Why the last batch could not be written; empty where it was."""
        self._settings = settings or ReceiptSettings()
        self._node = node
        self._software = software
        self._find_key = key
        """The key for digests, or what returns it once there is a place for its file, `digest.key`."""
        self._key = None if callable(key) else key
        self._key_name = key_name
        self._sign = sign
        self._clock = clock
        self._rules = tuple(rules)
        """Which contents are kept."""
        self._queue: deque[Recorded] = deque()
        # Each thread has counts of its own.
        self._bytes_in = 0
        """Bytes of the arguments and results that were put into the queue, from the beginning."""
        self._bytes_out = 0
        """Bytes of those that are written, or lost."""
        self._dropped = 0
        """How many receipts found no room in the queue."""
        self._dropped_told = 0
        """How many of them a gap record has told of."""
        self._failed = 0
        """How many receipts could not be written."""
        self._failed_told = 0
        self._some = threading.Event()
        """Set when there is something to write, or the end has come."""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._chain = self._new_chain()
        self._sealed_records = 0
        self._sealed_at = 0.0
        self._synced_at = 0.0

    # In the thread of the event loop

    def start(self) -> None:
        """Begin a file and start to write; raise SetupError where another process does, OSError where it cannot."""
        if self._thread is not None:
            raise SetupError("receipts are being written already")
        place = self._place
        place.take()
        try:
            if callable(self._find_key):
                self._key = self._find_key(place.path_of(KEY_FILE))
            self._begin_file(last_hash(place))
        except BaseException:
            place.end()
            place.let_go()
            raise
        self._ending.clear()
        self._thread = threading.Thread(target=self._write_until_the_end, name="receipts", daemon=True)
        self._thread.start()

    def record(self, receipt: Receipt, arguments: bytes = b"", result: bytes = b"") -> bool:
        """Keep a receipt with the digests of its arguments and result; return False where it is lost."""
        if not self.has_room():
            self._dropped += 1
            return False
        self._queue.append((receipt, arguments, result, self._clock()))
        self._bytes_in += len(arguments) + len(result)
        if not self._some.is_set():
            self._some.set()
        return True

    def has_room(self, beside: int = 0) -> bool:
        """Return whether a receipt can be kept now, beside so many others that will come."""
        if self._thread is None or len(self._queue) + beside >= self._settings.queue:
            return False
        return self._bytes_in - self._bytes_out < self._settings.queue_bytes

    @property
    def lost(self) -> int:
        """How many receipts could not be kept."""
        return self._dropped + self._failed

    def close(self, timeout: float = 2.0) -> bool:
        """Write what waits, seal the chain and end; return False where that took longer."""
        thread = self._thread
        if thread is None:
            return True
        self._ending.set()
        self._some.set()
        thread.join(timeout)
        if thread.is_alive():
            return False
        self._thread = None
        return True

    # In the thread that writes

    def _write_until_the_end(self) -> None:
        while not self._ending.is_set():
            self._some.wait(self._longest_pause)
            self._some.clear()
            self._ending.wait(self._settings.commit_interval)
            self._commit()
        self._commit(final=True)
        self._place.end()
        self._place.let_go()

    @property
    def _longest_pause(self) -> float | None:
        """After how long there may be something to write though no receipt came; None for never."""
        if self.failure:
            return RETRY_INTERVAL
        if self._sign is not None:
            return self._settings.seal_interval
        return None

    def _commit(self, *, final: bool = False) -> None:
        """Write everything that waits, as one batch; what cannot be written is lost."""
        batch = []
        size = 0
        while self._queue:
            recorded = self._queue.popleft()
            batch.append(recorded)
            size += len(recorded[1]) + len(recorded[2])
        try:
            self._commit_batch(batch, final=final)
        finally:
            self._bytes_out += size

    def _commit_batch(self, batch: list[Recorded], *, final: bool) -> None:
        dropped = self._dropped
        gap = dropped - self._dropped_told + self._failed - self._failed_told
        try:
            if not self._place.is_open:
                self._begin_file(self._chain.last)
            self._add(batch, gap, final=final)
            if self._place.size >= self._settings.max_file and not final:
                self._end_file()
        except OSError as error:
            is_new = not self.failure
            # Before they are counted: whoever sees that receipts were lost sees why, and takes no call that needs one.
            self.failure = str(error)
            self._failed += len(batch)
            if is_new:
                logger.error("receipts cannot be written: %s", error)
            return
        self.written += len(batch)
        self._dropped_told = dropped
        self._failed_told = self._failed
        self.failure = ""

    def _add(self, batch: list[Recorded], gap: int, *, final: bool) -> None:
        """Add receipts to the chain and write them; where that fails, the chain is as it was."""
        state = self._chain.state
        try:
            self._write(self._lines(batch, gap, final=final), final=final)
        except OSError:
            self._chain.go_back(state)
            self._sealed_records = min(self._sealed_records, self._chain.records)
            raise

    def _lines(self, batch: list[Recorded], gap: int, *, final: bool) -> list[bytes]:
        chain = self._chain
        lines = []
        if gap:
            lines.append(chain.gap(gap, self._clock()))
        for recorded in batch:
            if self._rules:
                self._keep_contents(recorded)
            lines.append(chain.add_recorded(recorded))
            if len(lines) % FAIR_SHARE == 0:
                time.sleep(0)  # let the thread of the event loop run
        if self._is_seal_due(final=final):
            seal = chain.seal(self._clock())
            self._sealed_at = self._clock()
            if seal is not None:
                lines.append(seal)
                self._sealed_records = chain.records
        return lines

    def _keep_contents(self, recorded: Recorded) -> None:
        """Add the contents of a call where a rule says so."""
        receipt, arguments, result, _ = recorded
        if receipt.method == CALL and isinstance(receipt.target, str):
            content = content_to_keep(self._rules, receipt.target, arguments, result)
            if content is not None:
                receipt.content = content

    def _is_seal_due(self, *, final: bool) -> bool:
        new = self._chain.records - self._sealed_records
        if new == 0:
            return False
        if final or self._clock() - self._sealed_at >= self._settings.seal_interval:
            return True
        return new >= self._settings.seal_every

    def _write(self, lines: list[bytes], *, final: bool) -> None:
        if not lines:
            return
        now = time.monotonic()
        sync = self._settings.durable or final or now - self._synced_at >= 1.0
        self._place.write(lines, self._clock(), sync=sync)
        if sync:
            self._synced_at = now

    def _new_chain(self) -> ReceiptChain:
        return ReceiptChain(self._node, key=self._key, key_name=self._key_name, sign=self._sign)

    def _begin_file(self, previous: str) -> None:
        now = self._clock()
        day = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
        name = self._place.next_name(day)
        chain = self._new_chain()
        self._place.begin(name, chain.open(name, self._software, previous, now), now)
        self._chain = chain
        self._sealed_records = 0
        self._sealed_at = now
        self._place.remove_old(now - self._settings.keep_days * DAY)

    def _end_file(self) -> None:
        """Seal the file, so that the next receipt begins another; without a seal where there is no room for it."""
        with contextlib.suppress(OSError):
            self._add([], 0, final=True)
        self._place.end()


# Reading


def last_hash(place: ReceiptPlace) -> str:
    """Return the hash of the last record of a place."""
    for name in reversed(place.names()):
        last = b""
        for line in place.lines(name):
            last = line
        if last:
            return hash_of(last.removesuffix(b"\n"))
    return place.last_removed()


def verify_place(place: ReceiptPlace, *, check: CheckSignature | None = None) -> dict[str, Verification]:
    """Check every file of a place and that each follows the one before; return what was found, by file."""
    previous = place.last_removed()
    found: dict[str, Verification] = {}
    names = place.names()
    for name in names:
        verified = found[name] = verify(place.lines(name), previous=previous, check=check)
        previous = verified.last
        written_now = name == names[-1] and place.is_written_now
        if verified.ok and not written_now and place.is_torn(name):
            verified.failed("the line is cut off: by a crash, or by somebody")
    return found
