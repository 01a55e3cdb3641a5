"""ReceiptFiles: chains of receipts in files of a folder, one a file, one record a line.

Rule 1: a batch is written whole or not at all: what was written of one that failed is cut off again.
Rule 2: one process writes into a folder.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.telemetry.receipts import NO_HASH, verify

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("ferrule.telemetry")

NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-(\d+)\.jsonl")
REMOVED = "removed.jsonl"
"""Says of every file that grew too old which hash it ended with."""
LOCK = ".lock"
BLOCK = 64 * 1024


class RemovedFile(Struct):
    """What stays of a file that was removed."""

    file: str
    records: int
    last: str


class ReceiptLock:
    """Held by the process that writes receipts in a place; a process that dies holds it no more."""

    def __init__(self, path: Path, told: str) -> None:
        self._path = path
        self._told = told
        self._file = -1

    def take(self) -> None:
        """Take it; raise SetupError where another has it."""
        if fcntl is None:
            return
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise SetupError(f"another process writes receipts in {self._told}") from None
        self._file = lock

    def drop(self) -> None:
        """Let another take it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def is_taken(self) -> bool:
        """Whether anybody has it."""
        if fcntl is None or not self._path.exists():
            return False
        with open(self._path, "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False


class ReceiptFiles:
    """The files of a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.size = 0
        """The bytes of the open file."""
        self._file = -1
        """The descriptor of the open file; -1 without one."""
        self._lock = ReceiptLock(self.folder / LOCK, f"{self.folder}: give each its own folder")

    # Writing

    @property
    def is_open(self) -> bool:
        """Whether a file is being written."""
        return self._file >= 0

    def path_of(self, name: str) -> Path:
        """Return where something else is kept that belongs to the receipts."""
        return self.folder / name

    def take(self) -> None:
        """Make the folder, and cut off what a crash left; raise SetupError where another process writes there."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock.take()
        try:
            self._remove_torn_line()
        except OSError:
            self._lock.drop()
            raise

    def let_go(self) -> None:
        """Let others write into the folder."""
        self._lock.drop()

    def next_name(self, day: str) -> str:
        """Return the name of the next file."""
        numbers = [number for _, number, _ in _files_in(self.folder, day)]
        return f"{day}-{max(numbers, default=0) + 1}.jsonl"

    def begin(self, name: str, line: bytes, now: float) -> None:
        """Begin a file with its first line."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        file = os.open(self.folder / name, flags, 0o600)
        data = line + b"\n"
        try:
            if os.write(file, data) != len(data):
                raise OSError("the disk is full")
            os.fsync(file)
        except OSError:
            os.close(file)
            (self.folder / name).unlink(missing_ok=True)
            raise
        self._file = file
        self.size = len(data)

    def write(self, lines: list[bytes], now: float, *, sync: bool) -> None:
        """Write lines, all or none; a file that cannot be cut again is left for another."""
        data = b"\n".join(lines) + b"\n"
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
            if sync:
                os.fsync(self._file)
        except OSError:
            self._undo()
            raise
        self.size += len(data)

    def _undo(self) -> None:
        try:
            os.ftruncate(self._file, self.size)
        except OSError:
            self.end()

    def end(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove_old(self, before: float) -> None:
        """Remove files last written before a time, and keep the hash each ended with; the newest stays."""
        for _, _, path in _files_in(self.folder)[:-1]:
            if path.stat().st_mtime > before:
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

    # Reading

    def names(self) -> list[str]:
        """Return the names of the files in the order they were begun."""
        return [path.name for path in files_in(self.folder)]

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the whole lines of a file."""
        return lines_of(self.folder / name)

    def is_torn(self, name: str) -> bool:
        """Return whether the last line of a file is not whole."""
        with open(self.folder / name, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            return _whole_lines(file, size) < size

    def last_removed(self) -> str:
        """Return the last hash of the file that was removed last."""
        last = NO_HASH
        path = self.folder / REMOVED
        if path.exists():
            for line in lines_of(path):
                last = msgspec.json.decode(line, type=RemovedFile).last
        return last

    @property
    def is_written_now(self) -> bool:
        """Whether a process writes into the folder."""
        return self._lock.is_taken


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
