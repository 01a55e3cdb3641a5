"""Where transports and protocol meet: frames go up to a Receiver, messages go down a Channel."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from ferrule.identity.principal import Principal
from ferrule.wire.messages import Id, Message, Notification, Request, Success


class Traits(Struct, frozen=True, kw_only=True):
    """What holds for every channel of one kind, and what a link, a server or a client does differently for it."""

    patient: bool = False
    """Whether a peer may take as long as it likes to initialize: it owns this process, or holds no connection."""
    watches_itself: bool = False
    """Whether the transport finds out by itself that a peer is gone, or keeps no connection: no pings are sent."""
    closes_on_garbage: bool = False
    """Whether the receiver closes it after too many unreadable messages in a row (`bounds.MAX_UNREADABLE`).

    Right for a socket anyone may have connected to; without it, only the answers to such messages stop.
    """
    always_answers: bool = False
    """Whether each request has an answer of its own, as over HTTP: then silence is a failure, not an old server."""
    handshake_only: bool = False
    """Whether the transport is older than the stateless era and cannot carry it."""
    starts_peer: bool = False
    """Whether the peer is a process that begins and ends with the channel: it is given time for both."""
    mirrors: bool = False
    """Whether headers repeat what a request says, as over HTTP: a client finds out which arguments of a tool."""
    headers: bool = False
    """Whether the answer has headers, as over HTTP: then `add_headers` adds to them."""


NO_TRAITS = Traits()

SHORT_SESSION = 8
"""Characters of a session's id that are shown: whoever knows all of them can use the session."""


Gap = Literal["session", "stream"]
"""What a channel that lives on has lost: the session, which must be opened anew, or its stream of notifications."""


class Handling(Struct, frozen=True, kw_only=True):
    """How a transport may handle a message, decided by who knows what it means."""

    repeatable: bool = False
    """Whether the peer may get it twice: if so, it is sent again when it is unknown whether it arrived."""
    mirrored: Mapping[str, tuple[str, ...]] = {}
    """The arguments that headers repeat: where each is, by the last part of its header's name."""


REPEATABLE = Handling(repeatable=True)


class Broadcast(Protocol):
    """A notification to many channels: encoded once, but for the id of the subscription it is sent under, if any."""

    def under(self, tag: bytes | None) -> Notification:
        """Return the message for one subscription, given its encoded id."""

    def text_under(self, tag: bytes | None) -> bytes:
        """Return the same message encoded."""


class Channel(Protocol):
    """An ordered way out to one peer; inherit from `ChannelDefaults` and write the first three methods."""

    def send(self, message: Message | Sequence[Message]) -> None:
        """Encode and write one message, or a batch; never waits.

        Raises EncodeError when the message cannot be encoded, in which case nothing was written.
        Does nothing when the channel is closed.
        """

    async def wait_writable(self) -> None:
        """Return at once unless the peer reads slower than we write; closing the channel ends the wait."""

    def close(self, reason: str = "") -> None:
        """End the channel, what was sent before is still delivered; harmless when called again."""

    @property
    def traits(self) -> Traits:
        """What holds for every channel of this kind."""

    @property
    def context(self) -> Context | None:
        """The context in which calls run, where all that comes over the channel shares one; None: each in its own."""

    @property
    def congested(self) -> bool:
        """Whether `wait_writable` would wait, where that is known without waiting."""

    @property
    def bytes_in(self) -> int:
        """How many bytes came, where the channel counts them."""

    @property
    def bytes_out(self) -> int:
        """How many bytes were written, where the channel counts them."""

    @property
    def short_session(self) -> str:
        """How the id of the session begins that requests go with, where the transport has one; for people to read."""

    def withdrawn(self) -> None:
        """Called when the request this channel was made for gets no answer, because the peer cancelled it."""

    def release(self) -> None:
        """Let the reader of the answer go while the call runs on; the reader comes back for it."""

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Add headers to the answer this channel was made for, unless it has begun already."""

    def send_with(self, message: Message | Sequence[Message], handling: Handling) -> None:
        """Send as `send` does, knowing how the message may be handled on its way."""

    def send_broadcast(self, broadcast: Broadcast, tag: bytes | None) -> None:
        """Send, as `send` does, a notification that goes to many channels, under the subscription with that tag."""

    def agreed(self, version: str) -> None:
        """Called when a handshake settled on a revision, before anything else is sent: headers may name it."""

    def hear_gaps(self, handler: Callable[[Gap], None]) -> None:
        """Call a function when something of the server's was lost, though the channel lives on.

        "session": the server knows us no more. Make the handshake again on this channel, or close it; until then, all
        else that is sent waits. "stream": the stream for notifications is gone; `stand` opens it again.
        """

    def stand(self) -> None:
        """Open the stream for notifications again."""


class ChannelDefaults:
    """What a channel does that has nothing to say about the optional members of `Channel`: nothing."""

    __slots__ = ()

    traits: Traits = NO_TRAITS
    context: Context | None = None
    congested: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    short_session: str = ""

    def withdrawn(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Do nothing: answers have no headers."""

    def send_with(self: Channel, message: Message | Sequence[Message], handling: Handling) -> None:
        """Send the message: it is handled like any other."""
        self.send(message)

    def send_broadcast(self: Channel, broadcast: Broadcast, tag: bytes | None) -> None:
        """Send the message: it is encoded like any other."""
        self.send(broadcast.under(tag))

    def agreed(self, version: str) -> None:
        """Do nothing."""

    def hear_gaps(self, handler: Callable[[Gap], None]) -> None:
        """Do nothing: what is lost is lost with the channel."""

    def stand(self) -> None:
        """Do nothing: there is no such stream."""


class ForwardingChannel:
    """A channel that is another one in all it does; inherit from it to see what is sent."""

    __slots__ = (
        "__weakref__",
        "_channel",
        "add_headers",
        "agreed",
        "context",
        "hear_gaps",
        "release",
        "stand",
        "traits",
        "wait_writable",
        "withdrawn",
    )

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.traits: Traits = channel.traits
        self.context: Context | None = channel.context
        self.wait_writable: Callable[[], Coroutine[Any, Any, None]] = channel.wait_writable
        self.withdrawn: Callable[[], None] = channel.withdrawn
        self.release: Callable[[], None] = channel.release
        self.add_headers: Callable[[Mapping[str, str]], None] = channel.add_headers
        self.agreed: Callable[[str], None] = channel.agreed
        self.hear_gaps: Callable[[Callable[[Gap], None]], None] = channel.hear_gaps
        self.stand: Callable[[], None] = channel.stand

    @property
    def congested(self) -> bool:
        """Whether `wait_writable` would wait."""
        return self._channel.congested

    @property
    def bytes_in(self) -> int:
        """How many bytes came."""
        return self._channel.bytes_in

    @property
    def bytes_out(self) -> int:
        """How many bytes were written."""
        return self._channel.bytes_out

    @property
    def short_session(self) -> str:
        """How the id of the session begins."""
        return self._channel.short_session

    def send(self, message: Message | Sequence[Message]) -> None:
        """Send one message, or a batch."""
        self._channel.send(message)

    def send_with(self, message: Message | Sequence[Message], handling: Handling) -> None:
        """Send as `send` does."""
        self._channel.send_with(message, handling)

    def send_broadcast(self, broadcast: Broadcast, tag: bytes | None) -> None:
        """Send a notification that goes to many channels."""
        self._channel.send_broadcast(broadcast, tag)

    def close(self, reason: str = "") -> None:
        """End the channel."""
        self._channel.close(reason)


class Receiver(Protocol):
    """What a transport calls."""

    def channel_opened(self, channel: Channel) -> None:
        """Called when the peer can be reached, before anything comes from it."""

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        """Take one frame: the bytes of exactly one JSON-RPC message. Return whether it will be answered.

        A transport that knows more about this very message than about its peer gives its `origin`.
        """

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        """Called when a frame was longer than the limit and dropped unread; `head` is how it began, if known."""

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        """Called when a request sent on the channel will get no answer, though the channel lives on."""

    def end_received(self, channel: Channel) -> None:
        """Called when the peer will send nothing more, while it may still read (half-close)."""

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """Called when the channel is gone: nothing more comes in and nothing can go out."""


@runtime_checkable
class MessageReceiver(Protocol):
    """What a receiver has that also takes requests and results without their envelopes, from its own process."""

    def message_received(self, message: Request | Success, channel: Channel) -> None:
        """Take a request or a result whose payload is raw JSON, as if it had been read from a frame."""

    def request_received(self, request: Request, channel: Channel) -> None:
        """Take a request."""


@runtime_checkable
class CountingReceiver(Protocol):
    """What a receiver has that knows how many requests of the peer it has not answered yet."""

    @property
    def running(self) -> int:
        """How many calls run."""


@runtime_checkable
class PatientReceiver(Protocol):
    """What a receiver has whose requests can wait before they are sent, while a person logs in."""

    def request_held(self, identity: Id) -> None:
        """Let a request of ours wait as long as it takes: the peer does not have it yet."""

    def request_released(self, identity: Id, seconds: float) -> None:
        """Let its time begin anew: it is sent now, after so many seconds."""


class Origin(Struct, frozen=True):
    """What the transport knows about a sender."""

    carrier: str
    address: str = ""
    headers: Mapping[str, str] = {}
    principal: str | None = None
    """The key of whoever is authenticated: what is kept for a sender belongs to it."""
    version: str = ""
    lasting: bool = True
    """Whether what is agreed with the sender is still known at its next message."""
    host: str = ""
    """The address without the port, where `address` has one."""
    identity: Principal | None = None
    """The principal whose key that is, where a verifier has made one."""
    request: Id | None = None
    """The request of ours on whose stream it came, where the transport knows."""
    http: str = ""
    """The version of HTTP it came over; empty for other transports."""

    @property
    def binding(self) -> str | None:
        """What a session of this sender is bound to."""
        if self.identity is None:
            return self.principal
        return self.identity.binding
