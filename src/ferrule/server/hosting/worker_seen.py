"""What counts once over all workers of a server: one of them, by the key, remembers it for all."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

from ferrule.errors import Busy, StoreUnavailable
from ferrule.stores.memory_cluster import MemorySeen

if TYPE_CHECKING:
    from ferrule.transports.http.endpoint.neighbours import Neighbours

NOTE = "note"
"""What one worker asks another."""
FIRST = b"first"
AGAIN = b"again"
FULL = b"full"

_read_noted = msgspec.msgpack.Decoder(tuple[str, float]).decode


class WorkerSeen:
    """What was used at any worker: each remembers its part of the keys; see `Seen`. One that ends forgets them."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._own = MemorySeen()
        neighbours.on_question(NOTE, self._noted)

    async def add(self, key: str, ttl: float) -> bool:
        """Note a key. Return False where it was seen within its time; raise Busy where no more can be noted."""
        chosen = self._neighbours.chosen(zlib.crc32(key.encode()))
        if chosen == self._neighbours.mark:
            return await self._own.add(key, ttl)
        said = await self._neighbours.ask(chosen, NOTE, msgspec.msgpack.encode((key, ttl)))
        if said is None:
            raise StoreUnavailable("the worker that remembers it does not answer")
        if said == FULL:
            raise Busy("Busy: no more keys can be noted")
        return said == FIRST

    async def _noted(self, content: bytes) -> bytes:
        """Note a key for another worker."""
        key, ttl = _read_noted(content)
        try:
            if await self._own.add(key, ttl):
                return FIRST
        except Busy:
            return FULL
        return AGAIN
