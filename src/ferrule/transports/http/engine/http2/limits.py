"""How much one HTTP/2 connection may cost beside its requests.

A frame of nine bytes costs us far more than its sender, and most frames need no open stream. So two allowances are
spent: one by frames that carry nothing of a request, one by streams that come to nothing. Who has spent either is
told ENHANCE_YOUR_CALM, and the connection ends.

| attack | spends |
|---|---|
| rapid reset (CVE-2023-44487): open a stream, cancel it | streams |
| MadeYouReset (CVE-2025-8671): make us cancel it | streams |
| more streams than we allow, malformed requests, frames on streams that are over | streams |
| PING, SETTINGS, PRIORITY floods (CVE-2019-9512, -9515, -9513) | frames |
| empty and tiny DATA (CVE-2019-9518), unknown frames | frames |
| tiny windows (CVE-2019-9511, -9517): WINDOW_UPDATE for every byte | frames |
| CONTINUATION flood (CVE-2024-27316) | frames; and one header block has few pieces and few bytes |

Rule: no clock. Whoever asks says what time it is.
"""

from __future__ import annotations

from h2.errors import ErrorCodes

from ferrule.balancing.token_bucket import TokenBucket
from ferrule.transports.http.engine.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    RST_STREAM,
    WINDOW_UPDATE,
    ConnectionFailed,
    Frame,
)

FRAME_BURST = 1000
FRAME_RATE = 100.0
"""Frames that carry nothing of a request: so many at once, and so many a second in the long run."""
STREAM_BURST = 200
STREAM_RATE = 20.0
"""Streams that come to nothing: the same."""
SMALLEST_DATA = 64
"""DATA with less than this, that does not end its stream, carries next to nothing."""
UPDATES_PER_FRAME = 2
MOST_UPDATES = 1000
"""A peer acknowledges each DATA frame with a WINDOW_UPDATE for the stream and one for the connection: free."""
MOST_PIECES = 16
"""In how many frames the fields of one request may come."""


class FloodLimits:
    """The allowances of one connection."""

    __slots__ = ("_block_size", "_frames", "_max_block", "_pieces", "_streams", "_updates")

    def __init__(self, max_block: int) -> None:
        self._frames = TokenBucket(FRAME_RATE, FRAME_BURST)
        self._streams = TokenBucket(STREAM_RATE, STREAM_BURST)
        self._updates = 0
        """How many WINDOW_UPDATE frames are free."""
        self._max_block = max_block
        self._block_size = 0
        self._pieces = 0
        """Frames of the header block that is coming; 0 while there is none."""

    @property
    def in_block(self) -> bool:
        """Whether a header block has begun and not ended."""
        return self._pieces > 0

    def judge(self, frame: Frame, now: float, *, known: bool, over: bool) -> None:
        """Count a frame that came; raises ConnectionFailed where there were too many of its kind.

        `known` says whether its stream is open, `over` whether it was.
        """
        kind = frame.kind
        if kind == HEADERS:
            self._count_block(frame)
            if over:
                self.spend_stream(now)
        elif kind == DATA:
            if over or (frame.size < SMALLEST_DATA and not frame.ends_stream):
                self._spend_frame(now)
        elif kind == RST_STREAM:
            if known:
                self.spend_stream(now)
            else:
                self._spend_frame(now)
        elif kind == WINDOW_UPDATE and self._updates:
            self._updates -= 1
        else:
            self._spend_frame(now)
            if kind == CONTINUATION:
                self._count_block(frame)

    def data_sent(self) -> None:
        """Let the peer acknowledge a DATA frame that its window has not cut short."""
        self._updates = min(self._updates + UPDATES_PER_FRAME, MOST_UPDATES)

    def spend_stream(self, now: float) -> None:
        """Count a stream that came to nothing; raises ConnectionFailed where there were too many."""
        if not self._streams.take(now):
            raise ConnectionFailed(ErrorCodes.ENHANCE_YOUR_CALM, "too many streams were cancelled or refused")

    def _spend_frame(self, now: float) -> None:
        if not self._frames.take(now):
            raise ConnectionFailed(ErrorCodes.ENHANCE_YOUR_CALM, "too many frames that carry nothing of a request")

    def _count_block(self, frame: Frame) -> None:
        """Count a piece of a header block: all of it is held until its last piece comes."""
        self._pieces += 1
        self._block_size += frame.size
        if self._pieces > MOST_PIECES or self._block_size > self._max_block:
            raise ConnectionFailed(ErrorCodes.ENHANCE_YOUR_CALM, "a header block is too long, or in too many pieces")
        if frame.flags & END_HEADERS:
            self._pieces = 0
            self._block_size = 0
