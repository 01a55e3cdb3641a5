"""How often a notice is sent, decided without a clock: the time comes in as an argument."""

from __future__ import annotations

from collections.abc import Hashable


class Coalescer:
    """Thins out notices: the first at once, then at most one per interval and key, and never losing the last."""

    __slots__ = ("_scheduled", "_sent", "interval")

    def __init__(self, interval: float = 0.1) -> None:
        self.interval = interval
        self._sent: dict[Hashable, float] = {}
        self._scheduled: set[Hashable] = set()

    def poke(self, key: Hashable, now: float) -> float | None:
        """Called on a change: 0.0 sends now, a positive delay schedules a notice, None means one is scheduled."""
        if key in self._scheduled:
            return None
        sent = self._sent.get(key)
        if sent is None:
            delay = 0.0
        else:
            delay = min(sent + self.interval - now, self.interval)
        if delay > 0:
            self._scheduled.add(key)
            return delay
        self._note_sent(key, now)
        return 0.0

    def fired(self, key: Hashable, now: float) -> None:
        """Called when the scheduled notice is being sent."""
        self._scheduled.discard(key)
        self._note_sent(key, now)

    def _note_sent(self, key: Hashable, now: float) -> None:
        sent = self._sent
        # Reinserting keeps the oldest send first, so forgetting what no longer matters costs nothing per key.
        sent.pop(key, None)
        sent[key] = now
        while sent and sent[oldest := next(iter(sent))] + self.interval <= now:
            del sent[oldest]
