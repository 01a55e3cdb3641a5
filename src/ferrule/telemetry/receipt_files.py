"""ReceiptFiles: receipts in files of a folder, written by one thread, and read back to be verified.

Rule 1: `record` never waits. Where the queue is full, or the disk is, receipts are lost; they are counted, and a `gap`
record says how many as soon as one can be written.
Rule 2: a batch is written whole or not at all: what was written of one that failed is cut off again.
Rule 3: a file is a chain. It begins with the last hash of the file before it, also across a restart.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.telemetry.receipts import (
    NO_HASH,
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

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("ferrule.telemetry")

MIB = 1 << 20
NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-(\d+)\.jsonl")
REMOVED = "removed.jsonl"
"""Says of every file that grew too old which hash it ended with."""
LOCK = ".lock"
DAY = 86_400.0
CALL = "tools/call"
RETRY_INTERVAL = 1.0
"""How often one looks whether files can be written again, in seconds."""
BLOCK = 64 * 1024
FAIR_SHARE = 200
"""How many receipts are made into lines before the event loop may run."""


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


class RemovedFile(Struct):
    """What stays of a file that was removed."""

    file: str
    records: int
    last: str


class ReceiptFiles:
    """Writes receipts into the files of a folder."""

    def __init__(
        self,
        folder: str | Path,
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
        self.folder = Path(folder)
        self.written = 0
        """How many receipts are on the disk."""
        self.failure = ""
        """Why the last batch could not be written; empty where it was."""
        self._settings = settings or ReceiptSettings()
        self._node = node
        self._software = software
        self._find_key = key
        """The key for digests, or what returns it for the folder once that is there."""
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
        """Bytes of those that were taken out again."""
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
        self._file = -1
        """The descriptor of the open file; -1 without one."""
        self._size = 0
        self._lock = -1
        self._sealed_records = 0
        self._sealed_at = 0.0
        self._synced_at = 0.0

    # In the thread of the event loop

    def start(self) -> None:
        """Begin a file and start to write; raise SetupError where another process does, OSError where it cannot."""
        if self._thread is not None:
            raise SetupError("receipts are being written already")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        try:
            if callable(self._find_key):
                self._key = self._find_key(self.folder)
            self._remove_torn_line()
            self._begin_file(last_hash_in(self.folder))
        except OSError:
            self._drop_lock()
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
        """Whether a receipt can be kept now, beside so many others that will come."""
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
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._drop_lock()

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
        while self._queue:
            recorded = self._queue.popleft()
            batch.append(recorded)
            self._bytes_out += len(recorded[1]) + len(recorded[2])
        dropped = self._dropped
        gap = dropped - self._dropped_told + self._failed - self._failed_told
        state = self._chain.state
        size = self._size
        try:
            if self._file < 0:
                self._begin_file(self._chain.last)
                state = self._chain.state
                size = self._size
            self._write(self._lines(batch, gap, final=final), final=final)
            if self._size >= self._settings.max_file and not final:
                self._end_file()
        except OSError as error:
            self._undo(state, size)
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

    def _lines(self, batch: list[Recorded], gap: int, *, final: bool) -> bytes:
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
        if not lines:
            return b""
        return b"\n".join(lines) + b"\n"

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

    def _write(self, data: bytes, *, final: bool) -> None:
        left = memoryview(data)
        while left:
            count = os.write(self._file, left)
            left = left[count:]
            self._size += count
        now = time.monotonic()
        if data and (self._settings.durable or final or now - self._synced_at >= 1.0):
            os.fsync(self._file)
            self._synced_at = now

    def _undo(self, state: tuple[int, str], size: int) -> None:
        """Cut off what was written of a batch; where that fails too, the next batch begins a file."""
        self._chain.go_back(state)
        self._sealed_records = min(self._sealed_records, self._chain.records)
        if self._file < 0:
            return
        try:
            os.ftruncate(self._file, size)
            self._size = size
        except OSError:
            os.close(self._file)
            self._file = -1

    # Files

    def _new_chain(self) -> ReceiptChain:
        return ReceiptChain(self._node, key=self._key, key_name=self._key_name, sign=self._sign)

    def _begin_file(self, previous: str) -> None:
        now = self._clock()
        day = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
        numbers = [number for _, number, _ in _files_in(self.folder, day)]
        name = f"{day}-{max(numbers, default=0) + 1}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        file = os.open(self.folder / name, flags, 0o600)
        chain = self._new_chain()
        data = chain.open(name, self._software, previous, now) + b"\n"
        try:
            if os.write(file, data) != len(data):
                raise OSError("the disk is full")
            os.fsync(file)
        except OSError:
            os.close(file)
            (self.folder / name).unlink(missing_ok=True)
            raise
        self._chain = chain
        self._file = file
        self._size = len(data)
        self._sealed_records = 0
        self._sealed_at = now
        self._remove_old(now)

    def _end_file(self) -> None:
        """Seal the file, so that the next receipt begins another; without a seal where there is no room for it."""
        size = self._size
        state = self._chain.state
        try:
            self._write(self._lines([], 0, final=True), final=True)
        except OSError:
            self._undo(state, size)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _remove_old(self, now: float) -> None:
        """Remove files that are too old, and keep the hash each ended with; the newest stays."""
        for _, _, path in _files_in(self.folder)[:-1]:
            age = now - path.stat().st_mtime
            if age < self._settings.keep_days * DAY:
                return
            found = verify(lines_of(path))
            kept = msgspec.json.encode(RemovedFile(path.name, found.records, found.last))
            with open(self.folder / REMOVED, "ab") as removed:
                removed.write(kept + b"\n")
                removed.flush()
                os.fsync(removed.fileno())
            path.unlink()

    def _remove_torn_line(self) -> None:
        """Cut off what a crash left of a last line: nobody was told that it was kept."""
        paths = files_in(self.folder)
        if not paths:
            return
        last = paths[-1]
        with open(last, "rb+") as file:
            size = file.seek(0, os.SEEK_END)
            whole = _whole_lines(file, size)
            file.truncate(whole)
        if whole < size:
            logger.warning("removed %d bytes of an unfinished receipt from %s", size - whole, last.name)
        if not whole:
            last.unlink()

    def _take_lock(self) -> None:
        if fcntl is None:
            return
        lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise SetupError(f"another process writes receipts in {self.folder}: give each its own folder") from None
        self._lock = lock

    def _drop_lock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


# Reading


def _whole_lines(file: BinaryIO, size: int) -> int:
    """Return how many bytes of a file are whole lines."""
    while size:
        begin = max(0, size - BLOCK)
        file.seek(begin)
        end = file.read(size - begin).rfind(b"\n")
        if end >= 0:
            return begin + end + 1
        size = begin
    return 0


def _files_in(folder: Path, day: str = "") -> list[tuple[str, int, Path]]:
    """Return the files of a folder, or those of one day, in the order they were begun."""
    found = []
    for path in folder.iterdir():
        match = NAME.fullmatch(path.name)
        if match and (not day or match[1] == day):
            found.append((match[1], int(match[2]), path))
    return sorted(found)


def files_in(folder: str | Path) -> list[Path]:
    """Return the files of a folder in the order they were begun."""
    return [path for _, _, path in _files_in(Path(folder))]


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file; what a crash left of a last one is no line."""
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line


def last_hash_in(folder: str | Path) -> str:
    """Return the hash of the last record in a folder."""
    for path in reversed(files_in(folder)):
        last = b""
        for line in lines_of(path):
            last = line
        if last:
            return hash_of(last.removesuffix(b"\n"))
    return _last_removed(Path(folder))


def _last_removed(folder: Path) -> str:
    """Return the hash of the last record of the file that was removed last."""
    last = NO_HASH
    path = folder / REMOVED
    if path.exists():
        for line in lines_of(path):
            last = msgspec.json.decode(line, type=RemovedFile).last
    return last


def verify_folder(folder: str | Path, *, check: CheckSignature | None = None) -> dict[str, Verification]:
    """Check every file of a folder and that each follows the one before; return what was found, by file."""
    folder = Path(folder)
    previous = _last_removed(folder)
    found: dict[str, Verification] = {}
    paths = files_in(folder)
    for path in paths:
        verified = found[path.name] = verify(lines_of(path), previous=previous, check=check)
        previous = verified.last
        written_now = path == paths[-1] and is_written_now(folder)
        if verified.ok and not written_now and _is_torn(path):
            verified.failed("the line is cut off: by a crash, or by somebody")
    return found


def _is_torn(path: Path) -> bool:
    """Whether the last line of a file is not whole."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        return _whole_lines(file, size) < size


def is_written_now(folder: Path) -> bool:
    """Whether a process writes receipts in a folder."""
    if fcntl is None or not (folder / LOCK).exists():
        return False
    with open(folder / LOCK, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
