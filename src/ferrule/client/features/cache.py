"""Results kept as long as the server allows, and dropped when it says they changed."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from ferrule.schema.notices import PROMPTS_CHANGED, RESOURCE_UPDATED, RESOURCES_CHANGED, TOOLS_CHANGED
from ferrule.wire.codec import UNWRITABLE, unwritable

_write_in_order = msgspec.json.Encoder(order="deterministic").encode

DROPPED_BY = {
    TOOLS_CHANGED: ("tools/list",),
    PROMPTS_CHANGED: ("prompts/list",),
    RESOURCES_CHANGED: (
        *("resources/list", "resources/templates/list", "resources/directory/read"),
        *("skills/list", "skills/get"),
    ),
}


LONGEST = 2**53 - 1
"""A time to keep something, in milliseconds, that no clock reaches; larger numbers mean the same."""


def _canonical(params: dict[str, Any]) -> bytes:
    """Write params the same way whatever their order; raises EncodeError."""
    try:
        return _write_in_order(params)
    except UNWRITABLE as reason:
        raise unwritable(reason) from None


class Hints(Struct, rename="camel"):
    """What a result says about keeping it; anything unusable means: do not."""

    result_type: Any = None
    ttl_ms: Any = None
    cache_scope: Any = None


_read_hints = msgspec.json.Decoder(Hints).decode
_read_members = msgspec.json.Decoder(dict[str, Raw]).decode


def without_hints(raw: Raw) -> bytes:
    """Return a result without what it says about keeping it."""
    members = _read_members(raw)
    return msgspec.json.encode({name: value for name, value in members.items() if name not in ("ttlMs", "cacheScope")})


class Kept(Struct, frozen=True):
    """One kept result."""

    raw: Raw
    until: float
    size: int


class Cache:
    """The kept results of one client: one authorization context, so private and public are alike here."""

    def __init__(self, limit: int = 1000, max_bytes: int = 8 * 1024 * 1024, max_entry: int = 2 * 1024 * 1024) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._max_entry = max_entry
        self._held = 0
        self._kept: dict[tuple[str, bytes], Kept] = {}
        self.hits = 0
        self.misses = 0
        self.changes = 0
        """How often something was dropped: an answer that was under way meanwhile may be stale already."""

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, method: str, params: dict[str, Any], now: float) -> Raw | None:
        """Return a result that is still fresh."""
        kept = self._kept.get((method, _canonical(params)))
        if kept is None or now >= kept.until:
            self.misses += 1
            return None
        self.hits += 1
        return kept.raw

    def keep(self, method: str, params: dict[str, Any], raw: Raw, now: float) -> None:
        """Keep a result if its hints allow."""
        try:
            hints = _read_hints(raw)
        except msgspec.DecodeError:
            # A number of any length stands where a hint should: a hint that cannot be read is none.
            return
        ttl = hints.ttl_ms
        if hints.result_type not in (None, "complete") or not isinstance(ttl, int) or isinstance(ttl, bool) or ttl <= 0:
            return
        key = method, _canonical(params)
        self._forget(key)
        size = len(key[1]) + memoryview(raw).nbytes
        if size > self._max_entry:
            return
        while self._kept and (len(self._kept) >= self._limit or self._held + size > self._max_bytes):
            self._forget(next(iter(self._kept)))
        self._kept[key] = Kept(raw.copy(), now + min(ttl, LONGEST) / 1000, size)
        self._held += size

    def _forget(self, key: tuple[str, bytes]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._held -= kept.size

    def drop(self, notice: str, uri: str | None = None) -> None:
        """Forget what a change makes stale."""
        self.changes += 1
        if notice == RESOURCE_UPDATED:
            self._forget(("resources/read", _canonical({"uri": uri})))
            return
        stale = DROPPED_BY.get(notice, ())
        for key in [key for key in self._kept if key[0] in stale]:
            self._forget(key)

    def drop_pages(self, method: str) -> None:
        """Forget every page of a list, as after an invalid cursor."""
        for key in [key for key in self._kept if key[0] == method]:
            self._forget(key)

    def clear(self) -> None:
        """Forget everything."""
        self.changes += 1
        self._kept.clear()
        self._held = 0
