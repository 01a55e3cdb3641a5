"""The book-keeping of those who ask without a session: each exchange stands alone.

Rule: nothing one exchange says can touch another: ids are the asker's own business, and a cancellation that names one
is not heard.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from ferrule.protocol.call import Call, Event, Ignored
from ferrule.protocol.session import Session, reply
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.messages import Failure, Message, Request, Success


class CrowdSession(Session):
    """Many conversations of one request each; a call is known by its way back, which no other call has."""

    __slots__ = ()

    @property
    def nameless_id(self) -> UnsetType | None:
        """The id for an error whose request could not be read: by the crowd's revision, whoever asked before."""
        return UNSET if self.peer is None else self.peer.revision.nameless_id

    def receive(self, message: Message, channel: Channel, origin: Origin | None = None) -> Event:
        """Decide what a message means: a request is admitted, anything else is dropped."""
        if type(message) is Request:
            return self.admit(message, channel, origin)
        return Ignored("what is no request has no meaning without a session")

    def admit(self, request: Request, channel: Channel, origin: Origin | None = None) -> Call:
        """Make a call of a request, or refuse it; the same id may run many times."""
        call = self.running[id(channel)] = self.call_of(request, channel, origin or self.origin)
        return call

    def finish(self, call: Call, outcome: Any) -> Success | Failure | None:
        """Make the reply of a call's outcome; None when its asker is gone."""
        return None if self.running.pop(id(call.channel), None) is None else reply(call, outcome)

    def runs(self, call: Call) -> bool:
        """Tell whether a call is neither answered nor cancelled yet."""
        return self.running.get(id(call.channel)) is call
