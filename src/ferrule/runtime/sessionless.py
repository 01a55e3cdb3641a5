"""The link of those who ask without a session: no connection, no handshake, one exchange each."""

from __future__ import annotations

from collections.abc import Mapping

from ferrule.protocol.era import Eras
from ferrule.protocol.session import SessionlessSession
from ferrule.runtime.holdings import Holdings
from ferrule.runtime.link import Link
from ferrule.schema.methods import Method
from ferrule.wire.channel import Channel, Origin


class SessionlessLink(Link):
    """One link for everyone, since nothing is kept between their requests; making one for each would cost more."""

    __slots__ = ()

    def new_session(self, eras: Eras, methods: Mapping[str, Method], origin: Origin) -> SessionlessSession:
        """Make the book-keeping of this link."""
        return SessionlessSession(eras, methods, origin, self)

    def new_holdings(self) -> Holdings:
        """Make the account of what calls hold: all who ask without a session share what the process has."""
        return Holdings(None, None)

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """Whoever asked is gone: what runs for it ends, and the others are not touched.

        The channel that was opened stands for all of them: with it, the link ends.
        """
        if channel is self.channel:
            self.close(error)
            return
        call = self.session.running.pop(id(channel), None)
        if call is not None:
            call.cancelled = True
            call.reason = "the client closed the connection"
            self._cancel(call)
