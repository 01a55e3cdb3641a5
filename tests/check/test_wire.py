"""What a server says is kept within bounds until somebody looks, and its end is always told."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.check.wire import MOST_FRAMES, MOST_HELD, Mailbox, MessageWire, NoAnswer
from ferrule.errors import LinkLost

CHANNEL: Any = None


def full(frame: bytes, count: int) -> Mailbox:
    mailbox = Mailbox()
    for _ in range(count):
        mailbox.frame_received(frame, CHANNEL)
    return mailbox


@pytest.mark.parametrize(
    ("frame", "count"), [(b"{}", MOST_FRAMES + 1), (b"x" * (MOST_HELD // 2), 3)], ids=["messages", "bytes"]
)
@pytest.mark.parametrize("end", ["lost", "failed"])
async def test_the_end_is_told_after_what_was_kept_though_no_more_is_kept(frame: bytes, count: int, end: str) -> None:
    wire = MessageWire.__new__(MessageWire)
    mailbox = wire._mailbox = full(frame, count)
    error = LinkLost("the server went away")
    if end == "lost":
        mailbox.channel_lost(CHANNEL, error)
    else:
        mailbox.request_failed(1, error, CHANNEL)
    assert mailbox.frames.qsize() == count
    for _ in range(count - 1):
        assert await wire._next() == frame
    assert not mailbox.frames.empty()
    with pytest.raises(NoAnswer, match="the server went away") as reason:
        await wire._next()
    assert reason.value.gone
    assert mailbox._held == 0
