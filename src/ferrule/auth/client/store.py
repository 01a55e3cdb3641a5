"""Where tokens are kept: the system's keyring, a file only its owner can read, or memory.

Rule 1: a file is written whole beside its place and moved there, so that no reader sees half of one.
Rule 2: a file others can read is not used, neither to read nor to write.
Rule 3: one lock a name, held across processes: whoever renews a token does it alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from ferrule.errors import AuthorizationFailed, SetupError
from ferrule.settings.option import FilePath

LOCK_TIMEOUT = 60.0
"""How many seconds another process may hold a lock: longer than any renewal takes."""
LOCK_PAUSE = 0.02
LARGEST_FILE = 16 * 1024 * 1024
SERVICE = "ferrule"
PRIVATE = 0o600
ADDRESSES = ("redis", "rediss", "unix", "sqlite")
"""How the addresses of stores begin, which are no paths."""

Storage = Literal["auto", "keyring", "file", "memory"]


class TokenStore(Protocol):
    """Keeps documents by name; what one process writes, the next one reads."""

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a document; None where there is none."""

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document in place of the one of that name."""

    def replace(self, name: str, old: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
        """Keep a document in place of one that was read before; False, and nothing is done, where it is another now."""

    def remove(self, name: str) -> None:
        """Forget a document."""

    def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        """Edit a document, empty where there was none, so that no other process edits it meanwhile."""

    def lock(self, name: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Hold a name alone, across processes; raises AuthorizationFailed where another does not let go of it."""


class MemoryStore:
    """Keeps documents as long as the process lives."""

    def __init__(self) -> None:
        self._documents: dict[str, bytes] = {}

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a document; None where there is none."""
        found = self._documents.get(name)
        return None if found is None else msgspec.json.decode(found, type=dict[str, Any])

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document in place of the one of that name."""
        self._documents[name] = msgspec.json.encode(document)

    def replace(self, name: str, old: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
        """Keep a document in place of one that was read before."""
        if self.read(name) != old:
            return False
        self.write(name, document)
        return True

    def remove(self, name: str) -> None:
        """Forget a document."""
        self._documents.pop(name, None)

    def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        """Edit a document."""
        document = self.read(name) or {}
        edit(document)
        self.write(name, document)

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Do nothing: no other process sees it, and in this one renewals are shared."""
        yield


class FileStore:
    """Keeps documents in one JSON file that only its owner can read."""

    def __init__(self, path: FilePath | None = None) -> None:
        self.path = Path(path) if path is not None else config_folder() / "tokens.json"
        self._locks = self.path.parent / f"{self.path.name}.locks"

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a document; None where there is none."""
        found = self._all().get(name)
        return found if isinstance(found, dict) else None

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document in place of the one of that name."""
        with self._edited() as documents:
            documents[name] = document

    def replace(self, name: str, old: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
        """Keep a document in place of one that was read before."""
        with self._edited() as documents:
            is_old = documents.get(name) == old
            if is_old:
                documents[name] = document
        return is_old

    def remove(self, name: str) -> None:
        """Forget a document."""
        with self._edited() as documents:
            documents.pop(name, None)

    def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        """Edit a document."""
        with self._edited() as documents:
            document = documents.setdefault(name, {})
            edit(document)

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Hold a name alone, across processes."""
        async with file_lock(self._locks, name):
            yield

    def _all(self) -> dict[str, Any]:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            return {}
        except OSError as reason:
            raise SetupError(f"the tokens in {self.path} cannot be read: {reason.strerror}") from None
        with open(descriptor, "rb") as file:
            self._require_private(os.fstat(descriptor))
            raw = file.read(LARGEST_FILE + 1)
        try:
            if len(raw) > LARGEST_FILE:
                raise ValueError
            return msgspec.json.decode(raw, type=dict[str, Any])
        except (ValueError, msgspec.DecodeError):
            raise SetupError(f"{self.path} holds no tokens of ours: move it away, and log in again") from None

    def _require_private(self, found: os.stat_result) -> None:
        if os.name != "posix":
            return
        if found.st_mode & 0o077:
            raise SetupError(
                f"others can read the tokens in {self.path}: run `chmod 600 {self.path}`, and log in again"
            )
        if found.st_uid != os.getuid():
            raise SetupError(f"the tokens in {self.path} belong to another user; they are not used")

    @contextmanager
    def _edited(self) -> Iterator[dict[str, Any]]:
        """Let the documents be edited, alone among all processes, and write them."""
        make_private_folder(self.path.parent)
        make_private_folder(self._locks)
        with _held(self._locks):
            documents = self._all()
            yield documents
            self._replace(msgspec.json.encode(documents))

    def _replace(self, raw: bytes) -> None:
        beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        try:
            with open(descriptor, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise


class KeyringStore:
    """Keeps documents in the keyring of the system."""

    def __init__(self, keyring: Any) -> None:
        self._keyring = keyring
        self._locks = config_folder() / "keyring.locks"

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a document; None where there is none."""
        found = self._keyring.get_password(SERVICE, name)
        if found is None:
            return None
        try:
            return msgspec.json.decode(found, type=dict[str, Any])
        except msgspec.DecodeError:
            return None

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document in place of the one of that name."""
        self._keyring.set_password(SERVICE, name, msgspec.json.encode(document).decode())

    def replace(self, name: str, old: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
        """Keep a document in place of one that was read before."""
        make_private_folder(self._locks)
        with _held(self._locks):
            is_old = self.read(name) == old
            if is_old:
                self.write(name, document)
        return is_old

    def remove(self, name: str) -> None:
        """Forget a document."""
        if self._keyring.get_password(SERVICE, name) is not None:
            self._keyring.delete_password(SERVICE, name)

    def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        """Edit a document."""
        make_private_folder(self._locks)
        with _held(self._locks):
            document = self.read(name) or {}
            edit(document)
            self.write(name, document)

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Hold a name alone, across processes."""
        async with file_lock(self._locks, name):
            yield


def open_store(storage: Storage | FilePath | TokenStore) -> TokenStore:
    """Return the store an option asks for; raises SetupError for one that cannot be used."""
    if storage == "memory":
        return MemoryStore()
    if storage == "file":
        return FileStore()
    if storage in ("keyring", "auto"):
        keyring = _keyring()
        if keyring is not None:
            return KeyringStore(keyring)
        if storage == "auto":
            return FileStore()
        raise SetupError("storage='keyring': there is no keyring here; install keyring, or use storage='file'")
    if isinstance(storage, str) and storage.partition(":")[0] in ADDRESSES:
        raise SetupError("storage: logins in a store are sealed: give SealedStore(address, keys=[…])")
    if isinstance(storage, str | os.PathLike):
        return FileStore(storage)
    return storage


def _keyring() -> Any:
    """Return the keyring of the system; None where there is none, or only a pretended one."""
    try:
        import keyring
    except ImportError:
        return None
    try:
        backend = keyring.get_keyring()
        # The backends that fail, or forget everything, have a priority of 0 or less.
        return backend if backend.priority >= 1 else None
    except Exception:
        return None


def config_folder() -> Path:
    """Return where a program keeps its settings for this user."""
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home()) / "ferrule"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "ferrule"


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can look into."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


# -- locks


def _open_lock(folder: Path, name: str) -> int:
    """Open a lock file; where somebody has put a link in its place, nothing of what that leads to is touched."""
    path = folder / f"{sha256(name.encode()).hexdigest()[:32]}.lock"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), PRIVATE)
    except OSError as reason:
        raise SetupError(f"the lock {path} cannot be used: {reason.strerror}") from None


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold what all documents share, alone among all processes."""
    held = _open_lock(folder, "")
    try:
        _take(held, wait=True)
        yield
    finally:
        # Which lets go of it.
        os.close(held)


@asynccontextmanager
async def file_lock(folder: Path, name: str, timeout: float = LOCK_TIMEOUT) -> AsyncIterator[None]:
    """Hold a lock file alone; a process that ends lets go of it, however it ends."""
    make_private_folder(folder)
    held = _open_lock(folder, name)
    try:
        await _take_within(held, timeout)
        yield
    finally:
        # Which lets go of it.
        os.close(held)


async def _take_within(held: int, timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            # Nobody tells us when another process lets go of it.
            while not _take(held, wait=False):  # noqa: ASYNC110
                await asyncio.sleep(LOCK_PAUSE)
    except TimeoutError:
        raise AuthorizationFailed(
            f"another process has been renewing the same token for {timeout:g} s; end it, and try again"
        ) from None


if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int, *, wait: bool) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _take(descriptor: int, *, wait: bool) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
