"""Logins in stores that several machines share, sealed: who can read the store can read no login.

Rule 1: the stores live in a thread of their own, so that every event loop and every thread can use one object.
Rule 2: who renews a token holds a lease, and stops before it ends. What comes late all the same replaces nothing: a
document takes the place of the one it was made of, and of no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from ferrule.auth.client.token import TokenUnavailable
from ferrule.errors import AuthorizationFailed, Busy, SetupError
from ferrule.protocol.seal import NONCE_SIZE, Keyring, Seal, SealTooLarge, Tampered
from ferrule.stores.contracts import Store
from ferrule.stores.stores import InProcess, Stores, stores_of

LEASE = 30.0
"""Seconds for which one process has the renewal of a token to itself; one that died keeps the others for so long."""
MARGIN = 5.0
"""Seconds before the end of its lease in which a process does nothing any more."""
LOCK_TIMEOUT = 60.0
"""How many seconds others may keep us from renewing a token."""
PAUSE = 0.05
"""Seconds between two looks whether another process has renewed it."""
PATIENCE = 10.0
"""Seconds that one operation of the store may take."""
MOST_TRIES = 100
"""How often a document is edited anew because others edit it at the same time."""
LARGEST = 1024 * 1024
"""Characters of a sealed document."""
NAMESPACE = "logins"
FOREVER = float("inf")

T = TypeVar("T")


class SealedStore:
    """Keeps logins where several machines find them: `OAuth(storage=SealedStore("redis://…", keys=[…]))`.

    `stores` is the address of a Redis or of a file (`sqlite:PATH`), or `Stores` that nobody else uses. `keys` are
    secrets of at least 32 bytes that all who share the logins have: the first seals, all open.
    """

    def __init__(self, stores: Stores | str, keys: Sequence[str | bytes]) -> None:
        self._stores = stores_of(stores, NAMESPACE)
        if not isinstance(self._stores.backend, InProcess) and self._stores.backend.state != "closed":
            raise SetupError("SealedStore: these stores are in use already, give it some of its own")
        self._seal = Seal(Keyring(keys), LARGEST)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_open = False
        self._starting = threading.Lock()

    def __repr__(self) -> str:
        return "SealedStore(…)"

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a document; None where there is none."""
        return self._done(self._read(name))

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document in place of the one of that name."""
        self._done(self._values.put(_key(name), self._sealed(name, document)))

    def replace(self, name: str, old: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
        """Keep a document in place of one that was read before; False, and nothing is done, where it is another now."""
        return self._done(self._replace(name, old, document))

    def remove(self, name: str) -> None:
        """Forget a document."""
        self._done(self._values.delete(_key(name)))

    def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        """Edit a document, empty where there was none, so that no other process edits it meanwhile."""
        self._done(self._change(name, edit))

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Hold a name alone, across machines."""
        mine = secrets.token_bytes(16)
        try:
            await self._awaited(self._take(name, mine))
            async with asyncio.timeout(LEASE - MARGIN):
                yield
        except TimeoutError:
            raise TokenUnavailable(f"a token was not renewed within {LEASE - MARGIN:g} s") from None
        finally:
            with contextlib.suppress(TokenUnavailable):
                await self._awaited(self._give_back(name, mine))

    # -- in the thread of the stores

    @property
    def _values(self) -> Store:
        return self._stores.values

    async def _read(self, name: str) -> dict[str, Any] | None:
        raw = await self._values.get(_key(name))
        if raw is None:
            return None
        return self._opened(name, raw)

    async def _replace(self, name: str, old: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
        raw = await self._values.get(_key(name))
        if raw is None or self._opened(name, raw) != old:
            return False
        return await self._values.replace(_key(name), raw, self._sealed(name, document))

    async def _change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        key = _key(name)
        for _ in range(MOST_TRIES):
            raw = await self._values.get(key)
            document = {} if raw is None else self._opened(name, raw)
            edit(document)
            edited = self._sealed(name, document)
            if raw is None:
                kept = await self._values.add(key, edited)
            else:
                kept = await self._values.replace(key, raw, edited)
            if kept:
                return
        raise Busy("Busy: others edit the logins in the store all the time")

    async def _take(self, name: str, mine: bytes) -> None:
        try:
            async with asyncio.timeout(LOCK_TIMEOUT):
                # Nobody tells us when another process gives it back.
                while not await self._values.add(_lease(name), mine, LEASE):  # noqa: ASYNC110
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise AuthorizationFailed(
                f"other processes have been renewing the same token for {LOCK_TIMEOUT:g} s; try again"
            ) from None

    async def _give_back(self, name: str, mine: bytes) -> None:
        if await self._values.get(_lease(name)) == mine:
            await self._values.delete(_lease(name))

    # -- sealing

    def _sealed(self, name: str, document: Mapping[str, Any]) -> bytes:
        payload = msgspec.json.encode(document)
        try:
            token = self._seal.seal(payload, binding=name.encode(), expires=FOREVER, nonce=os.urandom(NONCE_SIZE))
        except SealTooLarge as reason:
            raise AuthorizationFailed(f"there are too many logins for one store: {reason}") from None
        return token.encode()

    def _opened(self, name: str, raw: bytes) -> dict[str, Any]:
        try:
            payload = self._seal.open(raw.decode("ascii", "replace"), binding=name.encode(), now=0.0)
            return msgspec.json.decode(payload, type=dict[str, Any])
        except (Tampered, msgspec.DecodeError):
            raise SetupError(
                "the logins in the store were sealed with another key: give SealedStore that one too, or another store"
            ) from None

    # -- from other threads

    def _begun(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the stores; they are opened when they are first used."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="ferrule-logins", daemon=True).start()
            if not self._is_open:
                asyncio.run_coroutine_threadsafe(self._stores.open(), self._loop).result(PATIENCE)
                self._is_open = True
            return self._loop

    def _scheduled(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._begun())
        except (Busy, TimeoutError) as reason:
            work.close()
            raise _unavailable(reason) from None

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what comes of work in the thread of the stores."""
        future = self._scheduled(work)
        try:
            return future.result(PATIENCE)
        except (Busy, TimeoutError) as reason:
            future.cancel()
            raise _unavailable(reason) from None

    async def _awaited(self, work: Coroutine[Any, Any, T]) -> T:
        future = await asyncio.to_thread(self._scheduled, work)
        try:
            return await asyncio.wrap_future(future)
        except Busy as reason:
            raise _unavailable(reason) from None


def _unavailable(reason: Exception) -> TokenUnavailable:
    return TokenUnavailable(f"the store of logins cannot be used now: {reason or 'it does not answer'}")


def _key(name: str) -> str:
    return f"login:{sha256(name.encode()).hexdigest()}"


def _lease(name: str) -> str:
    return f"{_key(name)}:renewing"
