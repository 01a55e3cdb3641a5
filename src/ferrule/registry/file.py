"""The snapshot of a registry in a file.

Rule: whatever fails while it is written, and whenever the process dies, the file holds the old snapshot or the new one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from ferrule.errors import SetupError
from ferrule.registry.registry import Registry

LARGEST_FILE = 64 * 1024 * 1024
"""What is read of a file at most, in bytes."""


class SnapshotFile:
    """Keeps the snapshot of a registry; `save` and `load` wait for the disk, so run them in a thread."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def save(self, registry: Registry) -> None:
        """Write what the registry holds now; raises OSError where that cannot be done, and the old file stays."""
        snapshot = registry.snapshot()
        # Beside the file, since a rename is atomic only within a file system.
        descriptor, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        try:
            try:
                _write_all(descriptor, snapshot)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            Path(name).replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
        self._sync_folder()

    def _sync_folder(self) -> None:
        """Make the rename survive a loss of power."""
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def load(self, registry: Registry) -> bool:
        """Add what the file holds to the registry. Return whether there is a file; raises SetupError for another's."""
        try:
            with self.path.open("rb") as file:
                snapshot = file.read(LARGEST_FILE + 1)
        except FileNotFoundError:
            return False
        if len(snapshot) > LARGEST_FILE:
            raise SetupError(f"{self.path} is not a snapshot of a registry: it is larger than {LARGEST_FILE} bytes")
        registry.restore(snapshot)
        return True


def _write_all(descriptor: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])
