"""Batches: the replies to one array, collected and sent as one."""

from __future__ import annotations

from collections.abc import Sequence

from ferrule.budgets.bounds import MAX_BATCH_ANSWER
from ferrule.errors import Busy, EncodeError, Internal
from ferrule.wire.channel import Channel, ChannelDefaults
from ferrule.wire.codec import encode
from ferrule.wire.messages import ErrorObject, Failure, Message, Success

TOO_MUCH = ErrorObject(
    Busy.code,
    f"Busy: the answers of one batch may have {MAX_BATCH_ANSWER} bytes; ask for this alone",
    {"retryAfter": 1},
)


class Replies:
    """The replies to one array, kept until all are there."""

    __slots__ = ("_replies", "_size", "channel", "expected")

    def __init__(self, channel: Channel, expected: int) -> None:
        self.channel = channel
        self.expected = expected
        self._replies: list[Message] = []
        self._size = 0
        """Bytes of what is kept."""

    def keep(self, reply: Message) -> None:
        """Keep a reply, and send the array when it was the last."""
        size = len(encode(reply))  # what cannot be written must fail its own request, not the whole array at the end
        if self._size + size > MAX_BATCH_ANSWER and self._replies:
            reply = Failure(reply.id, TOO_MUCH)  # type: ignore[union-attr]  # only what answers is kept
            size = 0
        self._size += size
        self._replies.append(reply)
        self._complete()

    def dropped(self) -> None:
        """Called when one request of the batch will not be answered."""
        self.expected -= 1
        self._complete()

    def _complete(self) -> None:
        if len(self._replies) >= self.expected and self._replies:
            replies = self._replies
            self._replies = []
            self._deliver(replies)

    def _deliver(self, replies: list[Message]) -> None:
        """Send one array; answers that are too long together go out one by one, which JSON-RPC allows."""
        try:
            self.channel.send(replies)
        except EncodeError:
            for reply in replies:
                self._deliver_alone(reply)

    def _deliver_alone(self, reply: Message) -> None:
        """Send one answer; else why it cannot be sent, under its id or, where that is too long itself, under none."""
        try:
            self.channel.send(reply)
        except EncodeError as error:
            refusal = ErrorObject(Internal.code, f"The result cannot be written: {error}")
            try:
                self.channel.send(Failure(reply.id, refusal))  # type: ignore[union-attr]  # only what answers is kept
            except EncodeError:
                self.channel.send(Failure(None, refusal))


class BatchPart(ChannelDefaults):
    """The way back for one request of a batch; what is not its reply goes out at once."""

    __slots__ = ("_replies",)

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    def send(self, message: Message | Sequence[Message]) -> None:
        """Keep the reply until all are there; send anything else."""
        if isinstance(message, Success | Failure):
            self._replies.keep(message)
        else:
            self._replies.channel.send(message)

    def withdrawn(self) -> None:
        """Called when the request will not be answered."""
        self._replies.dropped()

    async def wait_writable(self) -> None:
        """Wait until the channel below takes more."""
        await self._replies.channel.wait_writable()

    def close(self, reason: str = "") -> None:
        """Close the channel below."""
        self._replies.channel.close(reason)
