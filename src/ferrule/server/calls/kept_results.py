"""Results too large for an answer, kept for a while: whoever got the link reads them as resources."""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Awaitable, Callable, Hashable

from msgspec import Struct

from ferrule.errors import ResourceNotFound
from ferrule.schema.content import ResourceContents
from ferrule.schema.resources import ReadResourceResult
from ferrule.server.calls.media import contents_of_bytes
from ferrule.server.calls.results import Oversized

PREFIX = "ferrule://results/"
ID_BYTES = 24
"""How many random bytes an id has; a multiple of three, so that base64 pads nothing."""
MOST_KEPT = 1000
"""How many results are kept at once; one more forgets the oldest."""
LARGEST_KEPT = 8 * 1024 * 1024
"""How many bytes one kept result may have: it must fit into the answer to a read."""
SHARE = 4
"""One caller's results may take one part in so many of the room, so that it cannot push the others' out."""


class KeptResult(Struct, eq=False):
    """One result: whose it is, until when, and how to read it."""

    owner: Hashable
    expires: float
    body: bytes | Callable[[], bytes]
    """What is read later, such as a file, takes no room."""
    mime_type: str
    size: int


class KeptResults:
    """The kept results of one server, within bounds."""

    def __init__(self, ttl: float, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.ttl = ttl
        self.max_bytes = max_bytes
        self._clock = clock
        self._kept: dict[str, KeptResult] = {}
        self._lock = threading.Lock()
        self.on_keep: Callable[[str, KeptResult], None] | None = None
        """Called with each result that is kept, from any thread; None where there is one node."""
        self.on_drop: Callable[[list[str]], None] | None = None
        """Called with the URIs of what made room for others, from any thread; None where there is one node."""
        self.elsewhere: Callable[[str], Awaitable[KeptResult | None]] | None = None
        """Finds a result that another node keeps; None where there is one node."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return sum(kept.size for kept in self._kept.values())

    @property
    def largest(self) -> int:
        """How many bytes one result may have: no more than a caller's part of the room."""
        return min(LARGEST_KEPT, self.max_bytes // SHARE)

    def keep(self, owner: Hashable, body: bytes | Callable[[], bytes], mime_type: str) -> str:
        """Keep a result and return its URI, which nobody can guess; raises Oversized for one that is too large."""
        size = len(body) if isinstance(body, bytes) else 0
        if size > self.largest:
            raise Oversized(size, self.largest)
        uri = PREFIX + base64.urlsafe_b64encode(os.urandom(ID_BYTES)).decode()
        with self._lock:  # files are kept from worker threads
            dropped = self._make_room(owner, size)
            kept = self._kept[uri] = KeptResult(owner, self._clock() + self.ttl, body, mime_type, size)
        if self.on_keep is not None:
            self.on_keep(uri, kept)
        if dropped and self.on_drop is not None:
            self.on_drop(dropped)
        return uri

    def _make_room(self, owner: Hashable, size: int) -> list[str]:
        """Forget what expired, then the owner's oldest, then the oldest. Return what was forgotten before its time."""
        now = self._clock()
        own = []
        held = 0
        for uri, kept in list(self._kept.items()):
            if kept.expires <= now:
                del self._kept[uri]
            elif kept.owner == owner:
                own.append(uri)
                held += kept.size
        dropped = []
        while own and (held + size > self.max_bytes // SHARE or len(own) >= MOST_KEPT // SHARE):
            oldest = own.pop(0)
            held -= self._kept.pop(oldest).size
            dropped.append(oldest)
        total = self.size
        while self._kept and (total + size > self.max_bytes or len(self._kept) >= MOST_KEPT):
            oldest = next(iter(self._kept))
            total -= self._kept.pop(oldest).size
            dropped.append(oldest)
        return dropped

    def forget(self, owner: Hashable) -> None:
        """Let go of what was kept for an owner that is gone."""
        with self._lock:
            self._kept = {uri: kept for uri, kept in self._kept.items() if kept.owner != owner}

    def find(self, owner: Hashable, uri: str) -> KeptResult:
        """Return what is kept for this owner; for anyone else it does not exist."""
        with self._lock:
            kept = self._kept.get(uri)
        if kept is None or kept.owner != owner or kept.expires <= self._clock():
            raise ResourceNotFound(uri)
        return kept

    async def look_for(self, owner: Hashable, uri: str) -> KeptResult:
        """Return what is kept for this owner, here or at another node; raises ResourceNotFound."""
        try:
            return self.find(owner, uri)
        except ResourceNotFound:
            if self.elsewhere is None:
                raise
        kept = await self.elsewhere(uri)
        if kept is None or kept.owner != owner:
            raise ResourceNotFound(uri)
        return kept


def read_kept(uri: str, kept: KeptResult) -> ReadResourceResult:
    """Make the result of reading what is kept; blocks."""
    body = kept.body if isinstance(kept.body, bytes) else kept.body()
    contents: ResourceContents = contents_of_bytes(uri, kept.mime_type, body)
    return ReadResourceResult(contents=[contents])
