"""Where carriers and rules meet: frames go up to a Receiver, messages go down a Channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ferrule.identity.principal import Principal
from ferrule.wire.messages import Id, Message


class Channel(Protocol):
    """An ordered way out to one peer.

    One that carries the answer to a single request may also have `withdrawn()`, called when there will be none because
    the peer cancelled it, and `release()`, which lets the reader go while the call runs on. One that hands over what
    comes in inside somebody else's context has `context`, in which calls are run. One that can tell without waiting
    whether `wait_writable` would wait has `congested`. One with `closes_on_garbage = True` is closed by its receiver
    when too many messages in a row cannot be read (`ferrule.budgets.bounds.MAX_UNREADABLE`), as befits a socket that
    anyone may have connected to; without it, only the answers to such messages stop.
    """

    def send(self, message: Message | Sequence[Message]) -> None:
        """Encode and write one message, or a batch; never waits.

        Raises EncodeError when the message cannot be encoded, in which case nothing was written.
        Does nothing when the channel is closed.
        """

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write; closing the channel ends the wait."""

    def close(self, reason: str = "") -> None:
        """End the channel, what was sent before is still delivered; harmless when called again."""


class Receiver(Protocol):
    """What a carrier drives."""

    def channel_opened(self, channel: Channel) -> None:
        """Learn that the peer can be reached, before anything comes from it."""

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        """Take one frame: the bytes of exactly one JSON-RPC message; tells whether it will be answered.

        A carrier that knows more about this very message than about its peer gives its `origin`.
        """

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        """Learn that a frame was longer than the limit and was thrown away unread; `head` is how it began, if known."""

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        """Learn that a request sent on the channel will get no answer, though the channel lives on."""

    def end_received(self, channel: Channel) -> None:
        """Learn that the peer will send nothing more, while it may still read (half-close)."""

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """Learn that the channel is gone: nothing more comes in and nothing can go out."""


class Origin(Struct, frozen=True):
    """What the carrier knows about a sender."""

    carrier: str
    address: str = ""
    headers: Mapping[str, str] = {}
    principal: str | None = None
    """The key of whoever is authenticated: what is kept for a sender belongs to it."""
    version: str = ""
    lasting: bool = True
    """Whether what is agreed with the sender is still known at its next message."""
    identity: Principal | None = None
    """The principal whose key that is, where a verifier has made one."""

    @property
    def binding(self) -> str | None:
        """What a session of this sender is bound to."""
        return self.principal if self.identity is None else self.identity.binding
