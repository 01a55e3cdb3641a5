"""Batches: a channel that collects the replies to one array and sends them as one."""

from __future__ import annotations

from collections.abc import Sequence

from ferrule.errors import EncodeError
from ferrule.wire.channel import Channel
from ferrule.wire.codec import encode
from ferrule.wire.messages import Failure, Message, Success


class BatchChannel:
    """The way back for the requests of one batch; what is not a reply goes out at once."""

    __slots__ = ("_channel", "_expected", "_replies")

    def __init__(self, channel: Channel, expected: int) -> None:
        self._channel = channel
        self._expected = expected
        self._replies: list[Message] = []

    def send(self, message: Message | Sequence[Message]) -> None:
        """Keep a reply until all are there; send anything else."""
        if not isinstance(message, Success | Failure):
            self._channel.send(message)
            return
        encode(message)  # what cannot be written must fail its own request, not the whole array at the end
        self._replies.append(message)
        self._complete()

    def dropped(self) -> None:
        """Learn that one request of the batch will not be answered."""
        self._expected -= 1
        self._complete()

    def _complete(self) -> None:
        if len(self._replies) >= self._expected and self._replies:
            replies, self._replies = self._replies, []
            self._deliver(replies)

    def _deliver(self, replies: list[Message]) -> None:
        """Send one array; answers that are too long together go out one by one, which JSON-RPC allows."""
        try:
            self._channel.send(replies)
        except EncodeError:
            for reply in replies:
                self._channel.send(reply)

    async def wait_writable(self) -> None:
        """Wait until the channel below takes more."""
        await self._channel.wait_writable()

    def close(self, reason: str = "") -> None:
        """Close the channel below."""
        self._channel.close(reason)
