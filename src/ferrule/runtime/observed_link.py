"""Links for observers who want to know of every notification that is sent.

Rule: only where an observer overrides `notification_sent` is a link of these classes; all others send as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakValueDictionary

from ferrule.protocol.era import Eras
from ferrule.runtime.batch import BatchPart
from ferrule.runtime.dispatch import Dispatcher
from ferrule.runtime.link import Link
from ferrule.runtime.requests import DEFAULTS, LinkOptions
from ferrule.runtime.sessionless import SessionlessLink
from ferrule.schema.methods import Method
from ferrule.wire.channel import Broadcast, Channel, ForwardingChannel, Handling, Origin
from ferrule.wire.messages import Id, Message, Notification, Request

if TYPE_CHECKING:
    from ferrule.runtime.watch import LinkWatch

L = TypeVar("L", bound=Link)


class ObservedChannel(ForwardingChannel):
    """Reports the notifications that are sent on a channel; in all else it is that channel."""

    __slots__ = ("_link",)

    def __init__(self, channel: Channel, link: Link) -> None:
        super().__init__(channel)
        self._link = link

    def send(self, message: Message | Sequence[Message]) -> None:
        """Send one message, or a batch, and report it."""
        self._channel.send(message)
        self._report(message)

    def send_with(self, message: Message | Sequence[Message], handling: Handling) -> None:
        """Send as `send` does."""
        self._channel.send_with(message, handling)
        self._report(message)

    def send_broadcast(self, broadcast: Broadcast, tag: bytes | None) -> None:
        """Send a notification that goes to many channels, and report it for this one."""
        self._channel.send_broadcast(broadcast, tag)
        self._report(broadcast.under(tag))

    def _report(self, message: Message | Sequence[Message]) -> None:
        messages = message if isinstance(message, Sequence) else (message,)
        for each in messages:
            if isinstance(each, Notification):
                cast("LinkWatch", self._link.watch).told(each)


class ObservedSends(Link):
    """What a link does differently: it knows each channel of the transport as an `ObservedChannel`, always the same."""

    __slots__ = ()

    channels: WeakValueDictionary[int, ObservedChannel]
    """By the id of what they stand for, which lives as long as they do."""

    def __init__(
        self,
        eras: Eras,
        methods: Mapping[str, Method],
        dispatcher: Dispatcher,
        origin: Origin,
        *,
        options: LinkOptions = DEFAULTS,
        on_opened: Callable[[Link], None] | None = None,
        on_closed: Callable[[Link, Exception | None], None] | None = None,
    ) -> None:
        self.channels = WeakValueDictionary()  # type: ignore[misc]  # a slot of the classes below
        super().__init__(eras, methods, dispatcher, origin, options=options, on_opened=on_opened, on_closed=on_closed)

    def observed(self, channel: Channel) -> Channel:
        """Return what stands for a channel of the transport."""
        # What a part of a batch sends goes through the channel of the batch, which is observed.
        if isinstance(channel, ObservedChannel | BatchPart):
            return channel
        found = self.channels.get(id(channel))
        if found is None:
            found = self.channels[id(channel)] = ObservedChannel(channel, self)
        return found

    def channel_opened(self, channel: Channel) -> None:
        """As in `Link`."""
        super().channel_opened(self.observed(channel))

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        """As in `Link`."""
        return super().frame_received(frame, self.observed(channel), origin)

    def request_received(self, request: Request, channel: Channel, origin: Origin | None = None) -> None:
        """As in `Link`."""
        super().request_received(request, self.observed(channel), origin)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        """As in `Link`."""
        super().frame_refused(max_size, self.observed(channel), head)

    def request_failed(self, request_id: Id, error: Exception, channel: Channel | None = None) -> None:
        """As in `Link`."""
        super().request_failed(request_id, error, None if channel is None else self.observed(channel))

    def end_received(self, channel: Channel) -> None:
        """As in `Link`."""
        super().end_received(self.observed(channel))

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """As in `Link`."""
        super().channel_lost(self.observed(channel), error)


class ObservedLink(ObservedSends):
    """A link whose sent notifications are reported."""

    __slots__ = ("channels",)


class ObservedSessionlessLink(ObservedSends, SessionlessLink):
    """The link of all without a session, whose sent notifications are reported."""

    __slots__ = ("channels",)


def observed_kind(kind: type[L]) -> type[L]:
    """Return the class of links that report, in the place of one that does not."""
    if issubclass(kind, SessionlessLink):
        return cast("type[L]", ObservedSessionlessLink)
    return cast("type[L]", ObservedLink)
