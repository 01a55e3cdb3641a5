"""The keys of an issuer (RFC 7517): fetched before they are needed, kept, and fetched anew when that may help.

Rule 1: a key that nobody has seen yet is looked for at most once in 30 seconds, however many tokens name one.
Rule 2: keys that were fetched serve while fetching fails, for a day; without any, callers are told to come again (503).
Rule 3: what keys are is said by the key set alone: nothing a token names is ever fetched.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ferrule.auth.address import AddressRefused
from ferrule.auth.fetch import Fetched, Fetcher, FetchFailed
from ferrule.auth.jose import ASYMMETRIC, SYMMETRIC, BadToken, Key, read_key
from ferrule.errors import FerruleError, SetupError

logger = logging.getLogger("ferrule.auth")

ALGORITHMS = (*ASYMMETRIC, *SYMMETRIC)
MOST_KEYS = 100
MAX_SIZE = 256 * 1024
FETCH_TIMEOUT = 2.0
SHORTEST, LONGEST = 300.0, 86_400.0
"""Bounds of how long a key set is fresh, in seconds, whatever its headers say."""
STALE_FOR = 86_400.0
"""For how long an old key set serves while no new one can be had."""
UNKNOWN_PAUSE = 30.0
"""Seconds between two fetches for keys that are not there."""
FAILED_PAUSE = 2.0
"""Seconds between two fetches where the last one failed."""

_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\"?(\d{1,9})", re.IGNORECASE)


class KeysUnavailable(FerruleError):
    """The keys of the issuer cannot be had now."""


class KeySet:
    """Keys, found by what a token says it was signed with."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys = tuple(keys)
        self.thumbprints = frozenset(key.thumbprint() for key in keys)
        self._found: dict[tuple[str, str], Key | None] = {}
        """By the id and the algorithm a token names; None where several keys fit."""
        for key in keys:
            for algorithm in ALGORITHMS:
                if key.fits(algorithm):
                    self._note("", algorithm, key)
                    if key.id:
                        self._note(key.id, algorithm, key)

    def _note(self, identity: str, algorithm: str, key: Key) -> None:
        named = (identity, algorithm)
        self._found[named] = None if named in self._found else key

    def find(self, identity: str, algorithm: str) -> Key | None:
        """Return the one key that has an id and fits an algorithm; without an id, the only one that fits."""
        return self._found.get((identity, algorithm))


def read_keys(document: Mapping[str, Any]) -> KeySet:
    """Read a JSON Web Key Set; what in it is no key for signatures is left out. Raises BadToken."""
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise BadToken(f"it is not a key set of at most {MOST_KEYS} keys")
    keys = []
    for each in listed:
        if not isinstance(each, dict):
            continue
        try:
            keys.append(read_key(each))
        except BadToken as reason:
            # Others may still be good; a set without any is refused below.
            logger.debug("a key of a key set is left out: %s", reason)
    if not keys:
        raise BadToken("it has no key that can be used")
    return KeySet(keys)


class FixedKeys:
    """Keys that were given, and stay."""

    def __init__(self, keys: KeySet) -> None:
        self.find = keys.find

    def may_look(self) -> bool:
        """Return False: there are no others."""
        return False

    async def look(self) -> None:
        """Do nothing."""

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


class FetchedKeys:
    """Keys of an issuer, as its key set says now."""

    def __init__(
        self,
        locate: Callable[[], Awaitable[str]],
        fetcher: Fetcher,
        *,
        on_dropped: Callable[[frozenset[str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._locate = locate
        """Returns the URL of the key set."""
        self._fetcher = fetcher
        self._on_dropped = on_dropped
        """Called with the thumbprints of the keys that are left, when others were dropped."""
        self._clock = clock
        self._keys: KeySet | None = None
        self._fresh_until = -math.inf
        self._stale_until = -math.inf
        self._next_look = -math.inf
        """When keys may be fetched again."""
        self._fetching: asyncio.Task[None] | None = None
        self.fetches = 0
        """How often keys were fetched, or tried to."""

    async def start(self) -> None:
        """Begin to fetch the keys, in the background."""
        if self._keys is None:
            self._begin()

    async def close(self) -> None:
        """End a fetch that runs."""
        fetching = self._fetching
        self._fetching = None
        if fetching is not None and not fetching.done():
            fetching.cancel()
            await asyncio.wait([fetching])

    def find(self, identity: str, algorithm: str) -> Key | None:
        """Return a key that is known; a set that has grown old is fetched anew meanwhile. Raises KeysUnavailable."""
        now = self._clock()
        if self._keys is not None and now >= self._fresh_until and now >= self._next_look:
            self._begin()
        if self._keys is None or now >= self._stale_until:
            if self.may_look():
                return None
            raise KeysUnavailable("the keys of the issuer cannot be had")
        return self._keys.find(identity, algorithm)

    def may_look(self) -> bool:
        """Return whether `look` can bring keys that are not there now."""
        if self._fetching is not None and not self._fetching.done():
            return True
        return self._clock() >= self._next_look

    async def look(self) -> None:
        """Fetch the keys, together with all others who want them; raises KeysUnavailable where there are none."""
        self._begin()
        fetching = self._fetching
        assert fetching is not None
        # Whoever leaves does not take the fetch away from the others.
        await asyncio.wait([fetching])
        if self._keys is None or self._clock() >= self._stale_until:
            raise KeysUnavailable("the keys of the issuer cannot be had")

    def _begin(self) -> None:
        fetching = self._fetching
        if fetching is not None and not fetching.done() and fetching.get_loop() is asyncio.get_running_loop():
            return
        self._next_look = self._clock() + UNKNOWN_PAUSE
        self._fetching = asyncio.get_running_loop().create_task(self._fetch(), name="fetch the keys of an issuer")

    async def _fetch(self) -> None:
        self.fetches += 1
        try:
            async with asyncio.timeout(FETCH_TIMEOUT):
                answer = await self._fetcher.get(await self._locate())
            if answer.status != 200:
                raise FetchFailed(f"{answer.url} answered HTTP {answer.status}")
            keys = read_keys(answer.document())
        except TimeoutError:
            self._failed("it took too long")
        except (FetchFailed, AddressRefused, BadToken, SetupError) as reason:
            self._failed(str(reason))
        else:
            self._took(keys, freshness(answer))

    def _failed(self, why: str) -> None:
        now = self._clock()
        if self._keys is None or now >= self._stale_until:
            self._next_look = now + FAILED_PAUSE
        logger.warning("the keys of an issuer could not be fetched: %s", why)

    def _took(self, keys: KeySet, fresh_for: float) -> None:
        now = self._clock()
        before = self._keys
        self._keys = keys
        self._fresh_until = now + fresh_for
        self._stale_until = self._fresh_until + STALE_FOR
        if before is not None and not before.thumbprints <= keys.thumbprints:
            self._on_dropped(keys.thumbprints)


def freshness(answer: Fetched) -> float:
    """Return for how many seconds an answer is fresh, within our bounds."""
    found = _MAX_AGE.search(answer.headers.get("cache-control", ""))
    if found is None:
        return SHORTEST
    return min(LONGEST, max(SHORTEST, float(found[1])))
